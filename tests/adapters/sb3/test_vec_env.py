"""Both ways to a VecEnv, Batch and SuperSuit, show the same and answer the same."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral import adapters
from corral.adapters.zoo.batch import zoo_rules
from corral.envs import dfaas_v0
from corral.envs.batch import Batch
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import (
    ActionError,
    IllegalActionError,
    MissingExtraError,
    ResetNeededError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from support.columns import GAMES, WAYS, columns, dfaas, legal
from support.contract import plain
from support.loads import small_trace
from support.messages import refused
from support.no_masks import NoMasks
from support.turn_rules import MortalRules, PileRules

for package in ("stable_baselines3", "supersuit"):
    pytest.importorskip(package, reason="needs the extra sb3")

# --- The two ways give the same ------------------------------------------------------------------


@pytest.mark.parametrize("agent_id", [True, False])
@pytest.mark.parametrize("name", GAMES)
def test_both_ways_show_the_same(name: str, agent_id: bool) -> None:
    one, other = (columns(way, GAMES[name](), 3, 4, agent_id=agent_id) for way in WAYS)
    assert one.observation_space == other.observation_space
    assert one.action_space == other.action_space
    assert ("agent" in one.observation_space.spaces) == agent_id
    seen, twin = one.reset(), other.reset()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(20):
        assert plain(seen) == plain({key: twin[key] for key in seen})
        assert set(seen) == set(twin) == set(one.observation_space.spaces)
        for key, space in one.observation_space.spaces.items():
            assert all(space.contains(value) for value in seen[key])
        assert plain(one.action_masks()) == plain(other.action_masks())
        actions = legal(one.action_masks(), rng)
        seen, rewards, dones, infos = one.step(actions)
        twin, *rest, others = other.step(actions)
        assert [plain(rewards), plain(dones)] == [plain(part) for part in rest]
        for done, info, like in zip(dones, infos, others, strict=True):
            assert ("TimeLimit.truncated" in info) == ("terminal_observation" in info) == done
            if done:
                assert list(info["episode"]) == list(like["episode"]) == ["r", "l", "t"]
                for key in ("r", "l"):
                    assert info["episode"][key] == like["episode"][key]
                assert info["kpis"] == like["kpis"]
                assert info["TimeLimit.truncated"] is like["TimeLimit.truncated"]
                last, was = info["terminal_observation"], like["terminal_observation"]
                assert plain(last) == plain({key: was[key] for key in last})
                assert one.observation_space.contains(last)
        ends += int(dones.sum())
    assert ends >= 3 * 3 * 2


def test_columns_are_copies_by_agents() -> None:
    """Column 2 of 2 copies of 3 agents is node_2 of copy 0, and so on; by hand."""
    loads = small_trace(steps=6)
    vec_env = columns("batch", dfaas(trace=loads, start=0), 2)
    seen = vec_env.reset()
    scaled = (loads.arrivals[0] / loads.arrivals.max()).astype(np.float32).tolist()
    assert seen["observation"][:, 0].tolist() == scaled * 2
    assert seen["agent"].tolist() == np.eye(3).tolist() * 2
    for _ in range(6):
        seen, rewards, dones, infos = vec_env.step(np.zeros(6, dtype=int))
    lost = np.maximum(loads.arrivals[5] - loads.capacity[5], 0)
    assert infos[1]["kpis"]["arrivals"] == int(loads.arrivals[:, 1].sum())
    assert infos[4]["kpis"] == infos[1]["kpis"]
    assert rewards.shape == (6,)
    assert (rewards <= 0).all()
    assert (-rewards[:3] * loads.arrivals.max() <= lost + 1e-4).all()
    assert dones.all()
    assert infos[0]["terminal_observation"]["agent"].tolist() == [1.0, 0.0, 0.0]


def test_termination_and_truncation_stay_apart() -> None:
    for way in WAYS:
        vec_env = columns(way, GAMES["mortal, one cut"](), 2)
        vec_env.reset()
        rng = np.random.default_rng(0)
        for _ in range(5):
            _, _, dones, infos = vec_env.step(legal(vec_env.action_masks(), rng))
        assert dones.all()
        assert [info["TimeLimit.truncated"] for info in infos] == [False, True] * 2
        assert [info["episode"]["r"] for info in infos] == [5.0, 50.0] * 2


@pytest.mark.parametrize("name", ["dfaas", "steady"])
def test_what_is_handed_out_is_the_learners_to_change(name: str) -> None:
    """Stable-Baselines3 adds values to rewards in place."""
    one, other = columns("batch", GAMES[name](), 2), columns("batch", GAMES[name](), 2)
    one.reset()
    other.reset()
    rng = np.random.default_rng(0)
    for _ in range(13):
        actions = legal(one.action_masks(), rng)
        seen, rewards, _, infos = one.step(actions)
        was = rewards.tolist()
        rewards += 100
        for value in seen.values():
            value[...] = 0
        _, paid, _, others = other.step(actions)
        assert was == paid.tolist()
        assert [info.get("kpis") for info in infos] == [info.get("kpis") for info in others]
        returns = [info["episode"]["r"] for info in infos if info]
        assert returns == [info["episode"]["r"] for info in others if info]


# --- What else a VecEnv is asked ----------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_stable_baselines_finds_the_spaces_in_order(way: str) -> None:
    from stable_baselines3.common.preprocessing import check_for_nested_spaces
    from stable_baselines3.common.utils import check_for_correct_spaces
    from stable_baselines3.common.vec_env import VecCheckNan, VecMonitor, VecNormalize

    vec_env = columns(way, GAMES["steady, nested"](), 2)
    assert set(vec_env.observation_space.spaces) == {
        "observation_level_now",
        "observation_picture",
        "action_mask",
        "agent",
    }
    check_for_nested_spaces(vec_env.observation_space)
    check_for_correct_spaces(vec_env, vec_env.observation_space, spaces.Discrete(3))
    with pytest.warns(UserWarning, match="Monitor"):
        watched = VecMonitor(vec_env)
    wrapped = VecNormalize(VecCheckNan(watched, True), norm_obs_keys=["observation_level_now"])
    assert wrapped.has_attr("action_masks")
    seen = wrapped.reset()
    for _ in range(9):
        actions = legal(np.stack(wrapped.env_method("action_masks")), np.random.default_rng(0))
        seen, *_ = wrapped.step(actions)
        assert seen["action_mask"].tolist() == [[1, 1, 0]] * 4


@pytest.mark.parametrize("way", WAYS)
def test_attributes_and_methods_per_column(way: str) -> None:
    vec_env = columns(way, dfaas(), 2)
    with refused(ResetNeededError, "dfaas_v0", "reset()"):
        vec_env.action_masks()
    with refused(ResetNeededError, "dfaas_v0", "reset()"):
        vec_env.step(np.zeros(6, dtype=int))
    seen = vec_env.reset()
    masks = vec_env.action_masks()
    assert masks.dtype == bool
    assert masks.tolist() == seen["action_mask"].astype(bool).tolist()
    assert np.stack(vec_env.env_method("action_masks")).tolist() == masks.tolist()
    assert vec_env.env_method("action_masks", indices=[4])[0].tolist() == masks[4].tolist()
    assert vec_env.get_attr("action_masks", 5)[0]().tolist() == masks[5].tolist()
    assert vec_env.get_attr("max_cycles") == [6] * 6
    assert vec_env.get_attr("render_mode", [0, 1]) == [None, None]
    for missing in ("nothing", "step", "_rng"):
        assert not vec_env.has_attr(missing)
    with refused(AttributeError, "dfaas_v0", "state()"):
        vec_env.env_method("state")
    with refused(AttributeError, "'queue'", "dfaas_v0"):
        vec_env.set_attr("queue", 3)
    assert vec_env.seed(7) == [7] * 6
    first = plain(vec_env.reset())
    assert plain(vec_env.reset()) != first
    vec_env.seed(7)
    assert plain(vec_env.reset()) == first
    assert len(set(vec_env.seed())) == 1
    assert plain(vec_env.reset()) != first
    vec_env.close()


@pytest.mark.parametrize("way", WAYS)
def test_bad_actions_are_refused(way: str) -> None:
    vec_env = columns(way, dfaas(), 2)
    seen = vec_env.reset()
    for bad in (np.zeros(5, dtype=int), np.zeros(6), np.zeros((6, 1), dtype=int)):
        with refused(ActionError, "(6,)", "2 copies of 3"):
            vec_env.step(bad)
    mask = seen["action_mask"][4]
    illegal = np.zeros(6, dtype=int)
    illegal[4] = np.flatnonzero(mask == 0)[0]
    with refused(IllegalActionError, "node_1", "action_mask"):
        vec_env.step(illegal)


def test_pictures_are_of_copy_0() -> None:
    env = dfaas_v0.parallel_env(trace=small_trace(), max_cycles=3, render_mode="ansi")
    over_suit = adapters.vectorize(env, 2, seed=0)
    arguments = {"trace": small_trace(), "max_cycles": 3, "keep_flow": True}
    over_batch = adapters.make_vec_env("dfaas_v0", 2, 0, render_mode="ansi", **arguments)
    over_suit.reset()
    over_batch.reset()
    for _ in range(7):
        assert over_batch.render() == over_suit.render("ansi")
        assert isinstance(over_batch.render(), str)
        over_batch.step(np.zeros(6, dtype=int))
        over_suit.step(np.zeros(6, dtype=int))
    with refused(ValueError, "'human'", "'ansi'", "render_mode"):
        over_batch.render("human")
    with pytest.raises(ValueError, match="render_mode='human'"):
        adapters.make_vec_env("dfaas_v0", 2, render_mode="human", trace=small_trace())


def test_making_one() -> None:
    named = adapters.make_vec_env("dfaas_v0", num_envs=2, seed=3, trace=small_trace(), max_cycles=6)
    given = adapters.BatchVecEnv(Batch(DfaasRules(small_trace(), max_cycles=6), 2, 3))
    assert plain(named.reset()) == plain(given.reset())
    with refused(UnknownNameError, "'dfas_v0'", "'dfaas_v0'"):
        adapters.make_vec_env("dfas_v0")
    with refused(UnsupportedSpaceError, "pile_v0", "turn-based", "corral.adapters.make_batch"):
        adapters.make_vec_env(PileRules())
    with refused(
        UnsupportedSpaceError,
        "mortal_v0",
        "agent_0",
        "agent_1",
        "corral.adapters.wrappers.homogenize(env)",
    ):
        adapters.make_vec_env(MortalRules((2, 5, 1)))
    with refused(AttributeError, "'corral.adapters'", "'nothing'"):
        _ = adapters.nothing


@pytest.mark.parametrize(
    ("package", "extra"), [("stable_baselines3", "sb3"), ("supersuit", "supersuit")]
)
def test_a_missing_extra_is_named(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectorize, env = adapters.vectorize, dfaas_v0.parallel_env(trace=small_trace())
    calls = {
        "supersuit": lambda: vectorize(env, 2),
        "stable_baselines3": lambda: adapters.make_vec_env,
    }
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with refused(MissingExtraError, package, f"pip install '.[{extra}]'"):
        calls[package]()


def test_an_agent_that_ends_early_is_refused() -> None:
    vec_env = adapters.make_vec_env(MortalRules((2, 2), lives=(2, 5)), num_envs=3)
    vec_env.reset()
    rng = np.random.default_rng(0)
    vec_env.step(legal(vec_env.action_masks(), rng))
    with refused(
        UnsupportedSpaceError,
        "mortal_v0",
        "agent_0",
        "ended",
        "corral.adapters.wrappers.homogenize(env)",
    ):
        vec_env.step(legal(vec_env.action_masks(), rng))


# --- Saving and restoring ------------------------------------------------------------------------


def told(vec_env: Any, steps: int) -> list[Any]:
    rng = np.random.default_rng(1)
    record = []
    for _ in range(steps):
        seen, rewards, dones, infos = vec_env.step(legal(vec_env.action_masks(), rng))
        ends = [(info["episode"]["r"], info["kpis"]) for info in infos if info]
        record.append([plain(seen), plain(rewards), plain(dones), ends])
    return record


@pytest.mark.parametrize("before", [0, 4])
def test_a_restored_snapshot_goes_on_bit_for_bit(before: int) -> None:
    vec_env = columns("batch", dfaas(route="two"), 3)
    seen = vec_env.reset()
    for _ in range(before):
        seen, *_ = vec_env.step(legal(vec_env.action_masks(), np.random.default_rng(0)))
    shown, snapshot = plain(seen), vec_env.snapshot()
    played = told(vec_env, 15)

    fresh = columns("batch", dfaas(route="two"), 3, seed=99)
    assert plain(fresh.restore(snapshot)) == shown
    assert told(fresh, 15) == played
    fresh.restore(snapshot)  # a copy: playing on did not change it
    assert told(fresh, 15) == played


def test_snapshots_that_do_not_fit_are_refused_and_change_nothing() -> None:
    vec_env, twin = columns("batch", dfaas(), 3), columns("batch", dfaas(), 3)
    for each in (vec_env, twin):
        each.reset()
        told(each, 4)
    snapshot = vec_env.snapshot()
    other = columns("batch", dfaas(), 2)
    other.reset()
    arrays = {key: a for key, a in snapshot["arrays"].items() if key != "kpis.lost"}
    misfits = [{**snapshot, "arrays": arrays}, other.snapshot(), vec_env.batch.snapshot(), {}]
    misfits.append({**snapshot, "generators": snapshot["generators"][:-1]})
    for misfit in misfits:
        with pytest.raises(ValueError, match="snapshot"):
            vec_env.restore(misfit)
    assert told(vec_env, 9) == told(twin, 9)


def test_arguments_are_named() -> None:
    with refused(
        TypeError,
        "'n_envs'",
        "'num_envs'",
        "env, num_envs, seed, agent_id, render_mode",
        "width, height",
    ):
        adapters.make_vec_env("arena_v0", n_envs=4)
    for wrong in ("4", 2.0, 0):
        with refused(ValueError, f"num_envs={wrong!r}", 1):
            adapters.make_vec_env("arena_v0", num_envs=wrong)


def test_a_dict_of_only_an_observation_is_that_observation() -> None:
    rules = zoo_rules(functools.partial(NoMasks, "observation"))
    vec_env = adapters.make_vec_env(rules, num_envs=2, seed=0)
    first = vec_env.reset()
    assert first["observation"].shape == (4, 3)
    after, _, _, _ = vec_env.step(np.zeros(4, dtype=np.int64))
    assert after["observation"].shape == (4, 3)
    assert not np.array_equal(first["observation"], after["observation"])
