"""Batch as a gymnasium VectorEnv: like agents as columns, or one seat in every copy."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from pettingzoo.utils import BaseParallelWrapper

import corral
from corral.adapters import BatchVectorEnv, SeatEnv, make_batch
from corral.envs import ENVIRONMENTS, PROBES, make_rules
from corral.envs.core import generator
from corral.errors import (
    ActionError,
    ResetNeededError,
    UnsupportedSpaceError,
)
from support.contract import plain
from support.messages import refused
from support.seat_games import GAMES
from support.turn_rules import MortalRules, PileRules


@pytest.mark.parametrize("game", ["arena", "dfaas", "nested"])
def test_columns_play_the_batch(game: str) -> None:
    n = len(GAMES[game]().agents)
    envs = BatchVectorEnv(GAMES[game](), 4 * n)
    batch = make_batch(GAMES[game](), num_envs=4, seed=3)
    shown, infos = envs.reset(seed=3)
    observations, rng, ends = batch.reset(), np.random.default_rng(0), 0
    for _ in range(20):
        assert envs.observation_space.contains(shown)
        assert plain(shown) == plain(envs.layout.columns(observations))
        assert plain(shown["agent"]) == plain(np.tile(np.eye(n, dtype=np.float32), (4, 1)))
        assert plain(envs.action_masks()) == plain(shown["action_mask"].astype(bool))
        actions = batch.sample_actions(rng)
        step = batch.step(actions)
        shown["action_mask"][...] = 0  # the caller's
        shown, reward, terminated, truncated, infos = envs.step(actions.reshape(-1))
        for one, other in (
            (reward, step.reward),
            (terminated, step.terminated),
            (truncated, step.truncated),
        ):
            assert plain(one) == plain(other.reshape(-1))
        told = infos if step.finished is None else infos["final_info"]
        for key, values in step.info.items():
            assert told[key].tolist() == values.reshape(-1).tolist()
            assert told[f"_{key}"].all()
        if step.finished is not None:  # all copies end together
            ends += 1
            last = envs.layout.columns(step.finished.observations)
            for column, seen in enumerate(infos["final_obs"]):
                assert plain(seen) == plain({key: values[column] for key, values in last.items()})
            assert infos["_final_obs"].all()
            assert all(not infos[key].any() for key in step.info)  # new episodes
        observations = step.observations
    assert ends >= 2
    mode = envs.metadata["autoreset_mode"]
    assert getattr(mode, "value", mode) == "SameStep"  # gymnasium has the enumeration from 1.1 on


@pytest.mark.skipif(
    not hasattr(gymnasium.vector, "AutoresetMode"), reason="gymnasium 1.0 knows one mode only"
)
def test_a_seat_of_many_copies_plays_like_gymnasiums_own_vector_of_seats() -> None:
    """two_step_v0 knows no chance: everything must be the same, infos too."""
    kwargs = {"seat": "agent_1", "opponents": lambda seen: int(seen["observation"].argmax() % 2)}
    ours = BatchVectorEnv("two_step_v0", 3, **kwargs)
    theirs = gymnasium.vector.SyncVectorEnv(
        [lambda: SeatEnv("two_step_v0", **kwargs)] * 3,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    rng = np.random.default_rng(0)
    ours_seen, theirs_seen = ours.reset(seed=0), theirs.reset(seed=0)
    for _ in range(9):
        _require_alike(ours_seen, theirs_seen)
        actions = rng.integers(2, size=3)
        ours_seen, theirs_seen = ours.step(actions), theirs.step(actions)
    _require_alike(ours_seen, theirs_seen)
    assert "final_obs" not in ours_seen[4]  # nine steps of games of two


def _require_alike(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    *one, infos = ours
    *other, told = theirs
    for mine, its in zip(one, other, strict=True):
        if isinstance(mine, dict):
            assert plain(mine) == plain(its)
        else:
            assert mine.tolist() == pytest.approx(its.tolist())
    told = dict(told)
    for key in ("episode_return", "_episode_return"):  # SeatEnv's alone
        told.pop(key, None)
    assert set(infos) == set(told)
    for key, values in infos.items():
        if key == "final_obs":
            assert [plain(seen) for seen in values] == [plain(seen) for seen in told[key]]
        elif key == "final_info":
            assert set(values) <= set(told[key])
            for name, numbers in values.items():
                assert numbers.tolist() == told[key][name].tolist()
        else:
            assert values.tolist() == told[key].tolist()


def test_held_copies_are_named_by_booleans() -> None:
    batch = make_batch("arena_v0", num_envs=2, seed=0)
    batch.reset()
    with pytest.raises(ActionError):
        batch.step(np.zeros((2, 2), dtype=int), held=np.array([0, 1]))


def test_copies_end_at_their_own_time() -> None:
    """Copies whose agents live for 1 to 6 steps: final values where one ended, and only there."""

    class Together(MortalRules):
        def start(self, rngs: Any) -> Any:
            state = super().start(rngs)
            state.lives[:, 1] = state.lives[:, 0]
            return state

    envs = BatchVectorEnv(Together((3, 3), illegal="raise"), 10)
    shown, _ = envs.reset(seed=0)
    some = 0
    for _ in range(30):
        actions = shown["action_mask"].argmax(axis=1)
        shown, _, terminated, truncated, infos = envs.step(actions)
        assert not truncated.any()
        assert infos.get("_final_obs", np.zeros(10, bool)).tolist() == terminated.tolist()
        if 0 < terminated.sum() < 10:
            some += 1
            for column, ended in enumerate(terminated):
                assert (infos["final_obs"][column] is not None) == ended
                assert infos["final_info"]["_t"][column] == ended
                assert (infos["final_info"]["t"][column] > 0) == ended
                assert (infos["t"][column] == 0) == ended
        assert (shown["observation"][terminated, 0] == 0).all()
        assert shown["action_mask"].any(axis=1).all()
    assert some > 5


def test_games_that_are_no_columns_are_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"turn-based.*corral\.adapters\.SeatEnv"):
        BatchVectorEnv(PileRules(), 4)
    with refused(
        UnsupportedSpaceError,
        "probe_p11_v0",
        "agent_0",
        "agent_1",
        "corral.adapters.wrappers.homogenize(env)",
        "corral.adapters.SeatEnv",
    ):
        BatchVectorEnv("probe_p11_v0", 4)
    envs = BatchVectorEnv(MortalRules((2, 2), lives=(1, 3)), 4)
    envs.reset(seed=0)
    with refused(UnsupportedSpaceError, "mortal_v0", "agent_0", "ended", "corral.adapters.SeatEnv"):
        envs.step(np.zeros(4, dtype=int))


def test_turn_based_games_are_refused_by_stable_baselines3s_columns_with_the_way_out() -> None:
    pytest.importorskip("supersuit", reason="needs the extra supersuit")
    from corral.adapters import make_vec_env

    for env, values in (
        ("probe_p12_v0", ("turn-based",)),
        ("probe_p11_v0", ("corral.adapters.wrappers.homogenize(env)",)),
    ):
        with refused(UnsupportedSpaceError, *values, "corral.adapters.SeatEnv"):
            make_vec_env(env)


def test_wrong_columns_and_actions_are_named() -> None:
    with refused(ValueError, "num_envs=3", "2 agents", "arena_v0", "multiple of 2", "seat="):
        BatchVectorEnv("arena_v0", 3)
    with refused(ValueError, "opponents", "seat="):
        BatchVectorEnv("arena_v0", 2, opponents="random")
    envs = BatchVectorEnv("arena_v0", 2)
    with refused(ResetNeededError, "arena_v0", "reset()", "step()"):
        envs.step(np.zeros(2, dtype=int))
    envs.reset(seed=0)
    for actions in (np.zeros(3, dtype=int), np.zeros(2), np.zeros((2, 1), dtype=int)):
        with refused(ActionError, actions.dtype, actions.shape, "(2,)"):
            envs.step(actions)
    with refused(ActionError, "copy 0", "agent_2", "action 4", "0..3"):
        envs.step(np.array([0, 4]))


def test_gymnasium_makes_them_by_name() -> None:
    envs = gymnasium.make_vec("corral/arena-v0", num_envs=6, width=4)
    assert isinstance(envs, BatchVectorEnv)
    assert envs.reset(seed=0)[0]["observation"].shape == (6, 80)
    envs.close()
    env = gymnasium.make("corral/arena-v0", seat="agent_2", opponents="nearest/still")
    env.reset(seed=0)
    env.step(1)
    env.close()


@pytest.mark.filterwarnings("ignore::corral.errors.IllegalActionWarning")  # it samples unmasked
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, mode) for name in [*ENVIRONMENTS, *PROBES] for mode in (None, "sync")),
        *(("arena_v0", "async"), ("tictactoe_v0", "async")),  # two processes each
    ],
)
def test_gymnasium_makes_vectors_of_all(name: str, mode: str | None) -> None:
    """By default a Batch where all act at once, else gymnasium's own vector of seats."""
    rules = make_rules(name)
    seat = rules.agents[-1]
    envs = gymnasium.make_vec(
        "corral/" + name.replace("_v", "-v"), num_envs=2, vectorization_mode=mode, seat=seat
    )
    assert isinstance(envs, BatchVectorEnv) is (rules.simultaneous and mode is None)
    envs.action_space.seed(0)
    shown, _ = envs.reset(seed=0)
    for _ in range(5):
        assert envs.observation_space.contains(shown)
        shown, reward, terminated, truncated, _ = envs.step(envs.action_space.sample())
        assert reward.shape == terminated.shape == truncated.shape == (2,)
    envs.close()


def test_other_autoreset_modes_are_refused() -> None:
    with refused(ValueError, "autoreset_mode='disabled'", "same_step", "next_step"):
        gymnasium.make_vec("corral/two-step-v0", num_envs=2, autoreset_mode="disabled")
    form = 'gymnasium.make_vec(ID, num_envs=2, vectorization_mode="sync")'
    with refused(ValueError, "autoreset_mode='next_step'", form):  # steps all copies at once
        wrapped = BaseParallelWrapper(corral.make("two_step_v0"))
        BatchVectorEnv(wrapped, 2, autoreset_mode="next_step")
    gymnasium.make_vec("corral/two-step-v0", num_envs=2, autoreset_mode="same_step").close()


# --- autoreset_mode="next_step" ------------------------------------------------------------------

NEXT_STEP = getattr(gymnasium.vector, "AutoresetMode", str)("NextStep")


class OwnEnds(MortalRules):
    """Copies of 1 to 6 steps. Copy r of a Batch and a single copy with ``row`` r are equal."""

    def __init__(self, row: int | None = None, max_cycles: int | None = None) -> None:
        super().__init__((3, 3), illegal="raise", max_cycles=max_cycles)
        self.rng = None if row is None else generator(3, "env", row)

    def start(self, rngs: Any) -> Any:
        state = super().start(rngs if self.rng is None else [self.rng])
        state.lives[:, 1] = state.lives[:, 0]
        return state


def _first_legal(seen: Any) -> int:
    return int(seen["action_mask"].argmax())


@pytest.mark.skipif(isinstance(NEXT_STEP, str), reason="gymnasium 1.0 knows one mode only")
@pytest.mark.parametrize("max_cycles", [None, 4])
def test_next_step_plays_like_gymnasiums_own_vector_of_seats(max_cycles: int | None) -> None:
    kwargs: dict[str, Any] = {"seat": "agent_1", "opponents": _first_legal}
    ours = BatchVectorEnv(OwnEnds(max_cycles=max_cycles), 5, autoreset_mode="next_step", **kwargs)
    theirs = gymnasium.vector.SyncVectorEnv(
        [functools.partial(SeatEnv, OwnEnds(row, max_cycles), **kwargs) for row in range(5)],
        autoreset_mode=NEXT_STEP,
    )
    assert ours.metadata["autoreset_mode"] is NEXT_STEP
    ours_seen, theirs_seen = ours.reset(seed=3), theirs.reset(seed=3)
    ended, ends = np.zeros(5, bool), set()
    for _ in range(40):
        _require_alike(ours_seen, theirs_seen)
        # Actions of copies that begin a new episode are ignored, so they may be illegal.
        actions = np.where(ended, 0, ours_seen[0]["action_mask"].argmax(axis=1))
        ours_seen, theirs_seen = ours.step(actions), theirs.step(actions)
        ended = ours_seen[2] | ours_seen[3]
        ends.add(int(ended.sum()))
    _require_alike(ours_seen, theirs_seen)
    assert ends > {0, 1, 2}


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if ENVIRONMENTS[name].simultaneous])
def test_next_step_plays_the_episodes_of_same_step(name: str) -> None:
    """The same steps without those that begin a new episode, which pay 0 and end no episode."""
    n = len(make_rules(name).agents)
    seen: dict[str, list[Any]] = {}
    for mode in ("same_step", "next_step"):
        envs = BatchVectorEnv(name, 2 * n, max_cycles=2, autoreset_mode=mode)
        (shown, infos), steps, over = envs.reset(seed=1), [], np.zeros(2 * n, bool)
        while len(steps) < 6:
            first = shown["observation"]
            shown, reward, terminated, truncated, infos = envs.step(
                shown["action_mask"].argmax(axis=1)
            )
            if over.all():
                assert not reward.any()
                assert not (terminated | truncated).any()
                assert not infos["illegal_actions"].any()
            else:
                steps.append([plain(x) for x in (first, reward, terminated, truncated)])
            over = (terminated | truncated) & (mode == "next_step")
        seen[mode] = steps
    assert seen["same_step"] == seen["next_step"]


@pytest.mark.skipif(isinstance(NEXT_STEP, str), reason="gymnasium 1.0 knows one mode only")
def test_wrappers_that_refuse_same_step_take_next_step() -> None:
    wrappers = gymnasium.wrappers.vector
    vector = gymnasium.make_vec(
        "corral/arena-v0", num_envs=4, autoreset_mode="next_step", max_cycles=5
    )
    recorded = wrappers.RecordEpisodeStatistics(vector)
    flat = wrappers.FlattenObservation(recorded)
    wrapped = wrappers.NormalizeReward(wrappers.NormalizeObservation(flat))
    with pytest.raises(ValueError, match="NEXT_STEP"):
        wrappers.NormalizeObservation(gymnasium.make_vec("corral/arena-v0", num_envs=4))
    observations, _ = wrapped.reset(seed=0)
    lengths = []
    for _ in range(12):
        observations, _, _, _, infos = wrapped.step(wrapped.action_space.sample())
        assert observations.shape == wrapped.observation_space.shape
        lengths += [*infos["episode"]["l"]] if "episode" in infos else []
    assert lengths == [5] * 8
    wrapped.close()
