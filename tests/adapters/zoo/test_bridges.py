"""Third-party environments through the bridges: a seat, columns and batches of them."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from corral.adapters import BatchVectorEnv, SeatEnv, ZooBatch, make_batch, make_zoo_batch, zoo_rules
from corral.adapters.zoo.batch import ZooRules
from corral.envs import dfaas_v0, two_step_v0
from corral.errors import (
    ActionError,
    CheckpointError,
    IllegalActionError,
    ResetNeededError,
    UnsupportedSpaceError,
)
from support.bits_env import STEPS, BitsEnv, bits
from support.loads import small_trace
from support.messages import refused
from support.zoo_envs import MixedEnv, RingEnv

FORMS = [(mask, turns) for mask in (None, "observation", "info") for turns in (False, True)]


def rules_of(*given: Any, **options: Any) -> ZooRules:
    return zoo_rules(functools.partial(bits, *given, **options))


def symbol(obs: dict[str, Any]) -> int:
    return int(np.asarray(obs["observation"]).argmax())


# --- A seat --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mask", "turns"), FORMS)
def test_a_seat_plays_the_third_partys_episodes(mask: Any, turns: bool) -> None:
    env, plain_env = SeatEnv(rules_of(mask, turns), "b"), BitsEnv(mask)
    for seed in (3, None, 4):
        obs, info = env.reset(seed=seed)
        shown, _ = plain_env.reset(seed=seed)
        assert info == {"t": 0, "episode_return": 0.0}
        total = 0.0
        for t in range(STEPS):
            own = shown["b"]["observation"] if mask == "observation" else shown["b"]
            assert obs["observation"].tolist() == own.tolist()
            legal = plain_env._legal("b") if mask else np.ones(4)
            assert env.action_masks().tolist() == (legal != 0).tolist()
            assert obs["action_mask"].tolist() == legal.tolist()
            action = symbol(obs) if t % 2 else (symbol(obs) + 1) % 4
            shown, rewards, ends, _, _ = plain_env.step({"a": plain_env.symbols["a"], "b": action})
            obs, reward, terminated, truncated, info = env.step(action)
            total += reward
            assert (reward, terminated, truncated) == (rewards["b"], ends["b"], False)
            assert info["episode_return"] == total
        assert terminated
        with pytest.raises(ResetNeededError, match="reset"):
            env.step(0)
    env.close()


def test_a_seat_sums_what_it_earns_between_its_turns() -> None:
    """Against a plain loop over ``agent_iter``: rewards, fractions, ends and gifts included."""
    env = SeatEnv(zoo_rules(RingEnv), "agent_1", lambda obs: 1)
    plain_env = RingEnv()
    kinds = set()
    for seed in range(8):
        plain_env.reset(seed=seed)
        earned, ends = [], []
        for agent in plain_env.agent_iter():
            _, reward, terminated, truncated, _ = plain_env.last()
            if agent == "agent_1":
                earned.append(reward)
                ends.append((terminated, truncated))
            plain_env.step(None if terminated or truncated else 1)
        _, info = env.reset(seed=seed)
        assert info["episode_return"] == pytest.approx(earned[0]) != 0
        found = []
        while True:
            _, reward, terminated, truncated, info = env.step(1)
            found.append(reward)
            if terminated or truncated:
                break
        assert found == pytest.approx(earned[1:])
        assert (terminated, truncated) == ends[-1]
        assert info["episode_return"] == pytest.approx(sum(earned))
        kinds.add(ends[-1])
    assert len(kinds) == 2


def test_a_seat_may_come_late_and_leave_early() -> None:
    late = SeatEnv(zoo_rules(MixedEnv), "late")
    obs, _ = late.reset(seed=0)
    assert obs["observation"].ravel()[0] == 2
    lengths = set()
    for seed in range(6):
        picker = SeatEnv(zoo_rules(MixedEnv), "picker")
        picker.reset(seed=seed)
        length, terminated = 0, False
        while not terminated:
            _, _, terminated, truncated, _ = picker.step(np.array([1, 2]))
            length += 1
            assert not truncated
        lengths.add(length)
    assert lengths <= {3, 4, 5, 6}
    assert len(lengths) > 1


@pytest.mark.parametrize("opponents", [None, symbol, {"a": symbol}])
def test_the_others_are_played_by_a_function_or_by_chance(opponents: Any) -> None:
    """What they earn shows in the state: they name their symbol, or they do not."""
    heard: list[Any] = []

    class Listening(BitsEnv):
        def step(self, actions: Any) -> Any:
            heard.append(int(actions["a"]) == self.symbols["a"])
            return super().step(actions)

    env = SeatEnv(zoo_rules(Listening), "b", opponents)
    for seed in range(8):
        env.reset(seed=seed)
        for _ in range(STEPS):
            env.step(0)
    assert len(heard) == 8 * STEPS
    assert all(heard) == (opponents is not None)


def test_illegal_actions_of_a_seat_are_refused_before_anything_changes() -> None:
    env = SeatEnv(rules_of("info", True), "a")
    obs, _ = env.reset(seed=0)
    with pytest.raises(IllegalActionError, match="legal:"):
        env.step((symbol(obs) + 2) % 4)
    with refused(ActionError, "action 4", "0..3"):
        env.step(4)
    assert env.step(symbol(obs))[1] == 1.0


@pytest.mark.parametrize(("kind", "space"), [("box", spaces.Box), ("bits", spaces.MultiDiscrete)])
def test_actions_that_are_not_discrete_pass_through(kind: Any, space: Any) -> None:
    env = SeatEnv(rules_of(kind=kind), "b")
    assert isinstance(env.action_space, space)
    assert set(env.observation_space.spaces) == {"observation"}
    obs, _ = env.reset(seed=1)
    for _ in range(STEPS):
        seen = symbol(obs)
        action = [2 * (seen >= 2) - 1.0] if kind == "box" else [seen // 2, seen % 2]
        obs, reward, *_ = env.step(np.array(action, dtype=env.action_space.dtype))
        assert reward == 1.0
    with refused(UnsupportedSpaceError, "bits_v0", env.action_space, "mask"):
        env.action_masks()


def test_pictures_are_the_third_partys_own() -> None:
    """The mode goes to ``make_env`` where it takes one; else the environment must have it."""
    for make in (BitsEnv, functools.partial(BitsEnv, render_mode="rgb_array"), bits):
        env = SeatEnv(zoo_rules(make), render_mode="rgb_array")
        assert env.metadata["render_modes"] == ["rgb_array"]
        assert env.metadata["render_fps"] == 7
        env.reset(seed=0)
        for t in range(STEPS):
            assert (env.render() == t).all()
            env.step(0)
        assert (env.render() == STEPS).all()  # of the episode that ended
    with pytest.raises(ValueError, match=r"render_mode='rgb_array'.*make_env"):
        SeatEnv(zoo_rules(lambda: BitsEnv()), render_mode="rgb_array")
    with pytest.raises(ValueError, match="render_mode='ansi'"):
        SeatEnv(zoo_rules(BitsEnv), render_mode="ansi")


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("kind", ["discrete", "box", "bits"])
def test_gymnasium_and_stable_baselines_find_no_fault(turns: bool, kind: Any) -> None:
    assert check_both(rules_of(None, turns, kind=kind))


def check_both(rules: Any) -> bool:
    """Run the checkers of Gymnasium and Stable-Baselines3, which sample without the mask."""
    check_env(gymnasium.make("corral/arena-v0", env=rules).unwrapped)
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="extra sb3")
    checker.check_env(SeatEnv(rules))
    return True


@pytest.mark.filterwarnings("ignore:The old environment creation API")
def test_pettingzoos_own_games_pass_the_checks() -> None:
    pytest.importorskip("pygame", reason="PettingZoo's classic games need pygame")
    from pettingzoo.classic import connect_four_v3, rps_v2, tictactoe_v3

    for module in (rps_v2, tictactoe_v3, connect_four_v3):
        rng = np.random.default_rng(0)
        env = SeatEnv(zoo_rules(module.env), render_mode="rgb_array")
        for seed in range(3):
            env.reset(seed=seed)
            over = False
            while not over:
                _, _, terminated, truncated, _ = env.step(
                    int(rng.choice(np.flatnonzero(env.action_masks())))
                )
                over = terminated or truncated
        assert env.render().ndim == 3
    assert check_both(zoo_rules(rps_v2.env))  # no masks


# --- Batches and columns -------------------------------------------------------------------------


def test_make_batch_takes_rules_of_third_parties() -> None:
    batch = make_batch(rules_of("info"), 3, seed=0)
    assert isinstance(batch, ZooBatch)
    assert batch.num_envs == 3
    with batch:
        step = batch.reset() and batch.step(batch.sample_actions(np.random.default_rng(0)))
    assert step.reward.shape == (3, 2)
    with make_zoo_batch(rules_of("info"), 2, seed=0, max_cycles=2) as again:
        again.reset()
        assert again.max_cycles == 2


@pytest.mark.parametrize("seat", [None, "b"])
@pytest.mark.parametrize("mask", [None, "observation", "info"])
def test_columns_of_gymnasium(mask: Any, seat: str | None) -> None:
    envs = BatchVectorEnv(rules_of(mask), 6, seat=seat, opponents=symbol if seat else None)
    obs, infos = envs.reset(seed=0)
    assert infos["t"].tolist() == [0] * 6
    for t in range(1, 2 * STEPS + 1):
        assert envs.observation_space.contains(obs)
        obs, rewards, terminated, truncated, infos = envs.step(obs["observation"].argmax(axis=1))
        assert rewards.tolist() == [1.0] * 6
        over = t % STEPS == 0
        assert terminated.tolist() == [over] * 6
        assert not truncated.any()
        assert infos["t"].tolist() == [t % STEPS] * 6
        if over:
            assert infos["final_info"]["t"].tolist() == [STEPS] * 6
            assert envs.single_observation_space.contains(infos["final_obs"][0])
    assert envs.action_masks().shape == (6, 4)
    envs.close()


@pytest.mark.parametrize("kind", ["box", "bits"])
def test_columns_of_gymnasium_take_actions_that_are_not_discrete(kind: Any) -> None:
    for seat in (None, "a"):
        envs = BatchVectorEnv(rules_of(kind=kind), 4, seat=seat)
        obs, _ = envs.reset(seed=0)
        seen = obs["observation"].argmax(axis=1)
        actions = np.stack([seen // 2, seen % 2], axis=1)
        if kind == "box":
            actions = (2.0 * (seen >= 2) - 1)[:, None].astype(np.float32)
        assert envs.step(actions)[1].tolist() == [1.0] * 4
        with pytest.raises(ActionError, match="shape"):
            envs.step(np.zeros(4, dtype=int))


def test_gymnasium_makes_them_through_its_registry() -> None:
    env = gymnasium.make("corral/arena-v0")  # the entry point is SeatEnv
    env.close()
    made = gymnasium.make_vec(
        gymnasium.spec("corral/arena-v0"), num_envs=4, env=rules_of("info"), seat="a"
    )
    assert isinstance(made, BatchVectorEnv)
    assert made.reset(seed=0)[0]["action_mask"].shape == (4, 4)


def test_games_that_are_no_columns_are_refused_and_told_of_seats() -> None:
    for make in (BatchVectorEnv, pytest.importorskip("corral.adapters.sb3").make_vec_env):
        with refused(UnsupportedSpaceError, "bits_v0", "turn-based", "corral.adapters.SeatEnv"):
            make(rules_of(None, True), 4)
        with refused(
            UnsupportedSpaceError,
            "mixed_v0",
            "corral.adapters.wrappers.homogenize(env)",
            "corral.adapters.SeatEnv",
        ):
            make(zoo_rules(MixedEnv), 6)


# --- Environments of ours, wrapped ---------------------------------------------------------------


def test_a_wrapped_environment_of_ours_is_a_third_partys() -> None:
    """It must not be taken for ours: its rewards are others."""
    rules = zoo_rules(functools.partial(dfaas_v0.parallel_env, trace=small_trace(), max_cycles=4))
    assert rules.name == "wrapped_dfaas_v0"
    assert zoo_rules(two_step_v0.env).name == "wrapped_two_step_v0"
    with pytest.raises(CheckpointError, match="third-party"):
        rules.make_batch(1).snapshot()


def test_a_seat_is_an_environment_of_one_agent_whose_copies_differ() -> None:
    """The others play inside: each copy has its own draws, and a seed gives them again."""

    def played() -> np.ndarray:
        batch, seen = make_batch(SeatEnv("tictactoe_v0"), num_envs=3, seed=0), []
        observations = batch.reset()["agent_0"]
        for _ in range(5):
            legal = observations["action_mask"].argmax(axis=1)
            observations = batch.step(legal[:, None]).observations["agent_0"]
            seen.append(observations["observation"].reshape(3, -1).copy())
        return np.stack(seen)

    first, again = played(), played()
    assert np.array_equal(first, again)
    assert not np.array_equal(first[:, 0], first[:, 1])
    assert not np.array_equal(first[:, 1], first[:, 2])
