"""What stock SuperSuit loses, shown on it, and then not lost by ``vectorize``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from corral import adapters
from corral.envs import arena_v0, dfaas_v0
from corral.envs.shells import ParallelShell, TurnShell
from corral.errors import UnsupportedSpaceError
from support.columns import columns, legal, value_of_a_steady_reward
from support.contract import plain
from support.loads import small_trace
from support.messages import refused
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules, PileRules

supersuit = pytest.importorskip("supersuit", reason="needs the extra supersuit")
PPO = pytest.importorskip("stable_baselines3", reason="needs the extra sb3").PPO
MaskablePPO = pytest.importorskip("sb3_contrib", reason="needs the extra sb3").MaskablePPO
vectorize = adapters.vectorize

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}


def dfaas(**kwargs: Any) -> Any:
    settings = {"trace": small_trace(), "max_cycles": 6, "route": "two", "illegal": "raise"}
    return dfaas_v0.parallel_env(**{**settings, **kwargs})


def stock(env: Any, num_envs: int, cpus: int = 0, base_class: str = "stable_baselines3") -> Any:
    """SuperSuit's VecEnv as its users make it."""
    vector = supersuit.pettingzoo_env_to_vec_env_v1(env)
    return supersuit.concat_vec_envs_v1(vector, num_envs, num_cpus=cpus, base_class=base_class)


def shown(observations: dict[str, np.ndarray], num_envs: int) -> list[Any]:
    """The observations copy by copy, as plain data."""
    apart = {k: v.reshape(num_envs, -1, *v.shape[1:]) for k, v in observations.items()}
    return [plain({k: v[row] for k, v in apart.items()}) for row in range(num_envs)]


# --- The time limit ------------------------------------------------------------------------------


def test_a_cut_is_no_end() -> None:
    """Reward 1 for ever, gamma 0.9, cut every 4 steps: 10, not 2.304."""
    taken_for_ends = value_of_a_steady_reward(stock(ParallelShell(SteadyRules()), 2))
    assert taken_for_ends == pytest.approx(2.304, abs=1e-3)
    assert value_of_a_steady_reward(columns("supersuit", SteadyRules(), 2)) == pytest.approx(
        10.0, abs=1e-3
    )


# --- Seeds ---------------------------------------------------------------------------------------


def test_learners_can_be_seeded() -> None:
    with pytest.raises(AttributeError):
        PPO("MultiInputPolicy", stock(dfaas(), 2), seed=0, **SMALL)
    vec_env = vectorize(dfaas(), 2)
    PPO("MultiInputPolicy", vec_env, seed=5, **SMALL)
    given = vec_env.reset()
    assert shown(given, 2) == shown(vectorize(dfaas(), 2, seed=5).reset(), 2)
    assert shown(given, 2) != shown(vec_env.reset(), 2)  # later resets go on


def test_copies_without_a_seed_play_episodes_of_their_own() -> None:
    alike = shown(stock(dfaas(), 4).reset(), 4)
    assert all(copy == alike[0] for copy in alike)
    used = dfaas()
    used.reset(seed=0)  # nor does it help that the environment was seeded before
    alike = shown(stock(used, 4).reset(), 4)
    assert all(copy == alike[0] for copy in alike)

    first, second = vectorize(used, 4), vectorize(used, 4)
    copies = shown(first.reset(), 4) + shown(second.reset(), 4)
    assert len({str(copy) for copy in copies}) > 4


def test_copies_in_different_workers_play_episodes_of_their_own() -> None:
    vector = stock(dfaas(trace=small_trace(steps=500)), 4, cpus=2, base_class="gymnasium")
    copies = shown(vector.reset(seed=5)[0], 4)
    vector.close()
    assert copies[1] == copies[2]  # worker 0 plays seeds 5 and 6, worker 1 seeds 6 and 7

    vec_env = vectorize(dfaas(trace=small_trace(steps=500)), 4, cpus=2, seed=5)
    assert len({str(copy) for copy in shown(vec_env.reset(), 4)}) == 4
    vec_env.close()


@pytest.mark.parametrize(("num_envs", "cpus"), [(3, 0), (3, 1), (4, 2), (5, 2), (5, 4)])
def test_copy_r_plays_like_row_r_of_a_batch(num_envs: int, cpus: int) -> None:
    """Bit for bit over several episodes, whichever process runs it."""
    arguments: dict[str, Any] = {"trace": small_trace(), "max_cycles": 6, "route": "two"}
    batch = adapters.make_batch("dfaas_v0", num_envs, 9, illegal="raise", **arguments)
    vec_env = vectorize(dfaas(), num_envs, cpus, seed=9)
    seen, observations = batch.reset(), vec_env.reset()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(20):
        for key in ("observation", "action_mask"):
            rows = np.stack([seen[agent][key] for agent in batch.agents], axis=1)
            assert plain(rows.reshape(-1, rows.shape[-1])) == plain(observations[key])
        actions = batch.sample_actions(rng)
        step = batch.step(actions)
        observations, rewards, dones, _ = vec_env.step(actions.reshape(-1))
        assert plain(rewards) == plain(step.reward.reshape(-1))
        assert plain(dones) == plain((step.terminated | step.truncated).reshape(-1))
        seen = step.observations
        ends += int(dones.sum())
    assert ends == 3 * 3 * num_envs
    vec_env.close()


# --- Masks and infos -----------------------------------------------------------------------------


def test_masked_learners_find_the_masks() -> None:
    with pytest.raises((AttributeError, ValueError)):
        MaskablePPO("MultiInputPolicy", stock(dfaas(), 2), **SMALL).learn(4)
    vec_env = vectorize(dfaas(), 2, seed=0)
    MaskablePPO("MultiInputPolicy", vec_env, n_steps=4, batch_size=12, n_epochs=1, **SMALL).learn(4)
    assert vec_env.has_attr("action_masks")
    assert vec_env.get_attr("max_cycles") == [6] * 6


@pytest.mark.parametrize("cpus", [0, 2])
def test_the_last_info_of_an_episode_is_its_own(cpus: int) -> None:
    arguments: dict[str, Any] = {"trace": small_trace(steps=6), "start": 0}
    last = small_trace(steps=6).arrivals[5].tolist()
    total = small_trace(steps=6).arrivals.sum(axis=0).tolist()

    vector = stock(dfaas(**arguments), 2, base_class="gymnasium")
    vector.reset(seed=0)
    for _ in range(6):
        infos = vector.step(np.zeros(6, dtype=int))[-1]
    assert [info["arrivals"] for info in infos] == [0] * 6  # the info of the reset

    vec_env = vectorize(dfaas(**arguments), 2, cpus, seed=0)
    before = vec_env.reset()
    returns = np.zeros(6)
    for t in range(6):
        before, rewards, dones, infos = vec_env.step(np.zeros(6, dtype=int))
        returns += rewards
        assert dones.tolist() == [t == 5] * 6
        assert ("kpis" in infos[0]) == (t == 5)
    assert [info["arrivals"] for info in infos] == last * 2
    assert [info["kpis"]["arrivals"] for info in infos] == total * 2
    assert [info["TimeLimit.truncated"] for info in infos] == [True] * 6
    assert [info["episode"]["l"] for info in infos] == [6] * 6
    np.testing.assert_allclose([info["episode"]["r"] for info in infos], returns, rtol=1e-6)
    assert set(infos[0]["terminal_observation"]) == set(before)
    vec_env.close()


# --- The end -------------------------------------------------------------------------------------

STOCK = """
import supersuit
vector = supersuit.pettingzoo_env_to_vec_env_v1(env)
vec_env = supersuit.concat_vec_envs_v1(vector, 2, num_cpus=2)
vec_env.reset(seed=0)
"""
OURS = """
from corral.adapters import vectorize
vec_env = vectorize(env, 2, cpus=2, seed=0)
vec_env.reset()
"""


def ends_by_itself(code: str, deadline: float) -> bool:
    """Whether a program that never closes ends within ``deadline`` seconds of its last line."""
    start = "from corral.envs import dfaas_v0\nenv = dfaas_v0.parallel_env()\n"
    program = subprocess.Popen(
        [sys.executable, "-c", start + code + "print('over', flush=True)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # a group of its own, to end its workers with it
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "over\n"
        return program.wait(deadline) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        program.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="ends a group of processes")
def test_a_program_ends_without_close() -> None:
    assert not ends_by_itself(STOCK, deadline=3)
    assert ends_by_itself(OURS, deadline=300)


def test_close_leaves_no_child_behind() -> None:
    before = set(multiprocessing.active_children())
    vec_env = vectorize(dfaas(), 4, cpus=2, seed=0)
    vec_env.reset()
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    vec_env.close()
    vec_env.close()  # twice is once
    assert not any(worker.is_alive() for worker in workers)


def test_without_close_workers_end_with_their_vec_env() -> None:
    before = set(multiprocessing.active_children())
    vec_env = vectorize(dfaas(), 2, cpus=2, seed=0)
    vec_env.reset()
    workers = set(multiprocessing.active_children()) - before
    del vec_env
    assert not any(worker.is_alive() for worker in workers)


# --- What is refused -----------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_by_name() -> None:
    for turns in (PileRules(), ParallelShell(PileRules())):
        env = turns if isinstance(turns, ParallelShell) else TurnShell(turns)
        with refused(UnsupportedSpaceError, "pile_v0", "turn-based", "corral.adapters.make_batch"):
            vectorize(env, 2)
    disguised = turn_based_aec_to_parallel(TurnShell(PileRules()))
    with refused(UnsupportedSpaceError, "pile_v0", "turn-based", "corral.adapters.SeatEnv"):
        vectorize(disguised, 2)
    with refused(UnsupportedSpaceError, "dfaas_v0", "AECEnv", "parallel_env()"):
        vectorize(dfaas_v0.env(trace=small_trace()), 2)
    with refused(
        UnsupportedSpaceError,
        "mortal_v0",
        "agent_0",
        "agent_1",
        "corral.adapters.wrappers.homogenize(env)",
    ):
        vectorize(ParallelShell(MortalRules((2, 5, 1))), 2)
    with refused(ValueError, "num_envs=0", 1):
        vectorize(dfaas(), 0)


@pytest.mark.parametrize("cpus", [0, 2])
def test_an_agent_that_ends_early_is_refused(cpus: int) -> None:
    vec_env = vectorize(ParallelShell(MortalRules((2, 2), lives=(2, 5))), 2, cpus, seed=0)
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
    vec_env.close()


# --- What may be given ---------------------------------------------------------------------------


def test_names_modules_and_functions_are_taken() -> None:
    for given in ("arena_v0", "corral/arena-v0", arena_v0, arena_v0.parallel_env):
        vec_env = vectorize(given, 2, seed=0, width=3, height=4)
        assert vec_env.get_attr("rules")[0].width == 3
        vec_env.close()


@pytest.mark.parametrize(
    ("given", "error", "values"),
    [
        ({"parallel_env": "tictactoe_v0"}, UnsupportedSpaceError, ("tictactoe_v0", "turn-based")),
        ({"parallel_env": "arena_v0", "widht": 3}, TypeError, ("'widht'", "'width'")),
        (
            {"parallel_env": arena_v0.parallel_env(), "width": 3},
            ValueError,
            ("arena_v0", "arguments"),
        ),
        ({"parallel_env": 3}, TypeError, (3, "int", "ParallelEnv")),
        ({"parallel_env": "arena_v0", "num_envs": "4"}, ValueError, ("num_envs='4'", 1)),
    ],
)
def test_what_is_given_wrongly(
    given: dict[str, Any], error: type[Exception], values: tuple[Any, ...]
) -> None:
    with refused(error, *values):
        vectorize(**{"num_envs": 2, **given})
