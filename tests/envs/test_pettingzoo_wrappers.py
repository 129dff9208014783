"""PettingZoo's wrappers and conversions over every environment.

Not here, since they fail on other grounds: ``ClipOutOfBoundsWrapper`` asserts Box actions, which no
game of the suite has. ``TerminateIllegalWrapper`` over PettingZoo's own ``parallel_to_aec`` sets
what it changes on ``unwrapped``, which is the ParallelEnv then: give it ``env()``.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pettingzoo.utils import wrappers
from pettingzoo.utils.conversions import (
    aec_to_parallel,
    parallel_to_aec,
    turn_based_aec_to_parallel,
)

from corral.envs import ENVIRONMENTS
from corral.envs.registry import make_rules
from support.contract import plain

AEC_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "base": wrappers.BaseWrapper,
    "assert": wrappers.AssertOutOfBoundsWrapper,
    "order": wrappers.OrderEnforcingWrapper,
    "illegal": lambda env: wrappers.TerminateIllegalWrapper(env, illegal_reward=-1),
    "as pettingzoo wraps its own": lambda env: wrappers.OrderEnforcingWrapper(
        wrappers.AssertOutOfBoundsWrapper(wrappers.TerminateIllegalWrapper(env, illegal_reward=-1))
    ),
}
SIMULTANEOUS = [name for name, spec in ENVIRONMENTS.items() if spec.simultaneous]
ALL_LEGAL = {"rps_v0", "two_step_v0"}
"""Games in which no action is ever illegal."""
IN_TURNS = [name for name, spec in ENVIRONMENTS.items() if not spec.simultaneous]
PLACES = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name in ENVIRONMENTS
    for kind in ("env", "raw_env")
]


def make(name: str, kind: str, **kwargs: Any) -> Any:
    return getattr(importlib.import_module(ENVIRONMENTS[name].module), kind)(**kwargs)


def played(env: Any, most: int = 2000) -> list[Any]:
    """What random legal play shows, turn by turn."""
    env.reset(seed=0)
    rng, told = np.random.default_rng(0), []
    for agent in env.agent_iter(most):
        observation, *rest = env.last()
        told.append((agent, plain(observation), *rest))
        over = rest[1] or rest[2]
        env.step(None if over else int(rng.choice(np.flatnonzero(observation["action_mask"]))))
    return told


@pytest.mark.parametrize("wrapper", AEC_WRAPPERS)
@pytest.mark.parametrize(("name", "kind"), PLACES)
def test_a_wrapped_game_is_the_game(name: str, kind: str, wrapper: str) -> None:
    env = AEC_WRAPPERS[wrapper](make(name, kind))
    told = played(env)
    assert told == played(make(name, kind))
    assert len(told) >= 4
    assert env.agents == []


@pytest.mark.parametrize("illegal", ["penalise", "raise"])
@pytest.mark.parametrize("kind", ["env", "raw_env"])
@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name not in ALL_LEGAL])
def test_an_illegal_action_ends_the_game(
    name: str, kind: str, illegal: str, caplog: pytest.LogCaptureFixture
) -> None:
    kwargs = {"walls": "mask"} if name == "arena_v0" else {}
    env = wrappers.TerminateIllegalWrapper(make(name, kind, illegal=illegal, **kwargs), -1)
    env.reset(seed=0)
    mask = env.last()[0]["action_mask"]
    if name == "tictactoe_v0":  # illegal where the other has played
        env.step(0)
        mask = env.last()[0]["action_mask"]
    if name == "tiles_v0":
        for action in (0, 0):
            env.step(action)
        mask = env.last()[0]["action_mask"]
    loser = env.agent_selection
    env.step(int((mask == 0).argmax()))
    told = {}
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        told[agent] = (reward, terminated, truncated)
        env.step(None)
    assert told.keys() == set(env.possible_agents)
    assert told[loser] == (-1, True, True)
    assert env.agents == []
    assert played(env) == played(make(name, kind, **kwargs))  # and the next one is whole


@pytest.mark.parametrize(("name", "kind"), PLACES)
def test_several_episodes_in_a_row(name: str, kind: str) -> None:
    env = wrappers.MultiEpisodeEnv(make(name, kind, max_cycles=4), num_episodes=3)
    env.reset(seed=1)
    rng, ends = np.random.default_rng(0), 0
    for _ in env.agent_iter(2000):
        observation, _, terminated, truncated, _ = env.last()
        ends += terminated or truncated
        over = terminated or truncated
        env.step(None if over else int(rng.choice(np.flatnonzero(observation["action_mask"]))))
    assert ends == 3 * len(env.possible_agents)


@pytest.mark.parametrize(("name", "kind"), PLACES)
def test_standard_output_can_be_captured(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pygame imports what setuptools has deprecated
        pytest.importorskip("PIL", reason="pictures need Pillow")
        pytest.importorskip("pygame", reason="windows need pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(type(make_rules(name)), "render_fps", 0)  # as fast as it can
    env = wrappers.CaptureStdoutWrapper(make(name, kind, render_mode="human"))
    env.reset(seed=0)
    assert env.render() == ""  # the game is drawn in a window, and prints nothing
    env.close()


# --- Parallel environments and conversions -------------------------------------------------------


def steps(env: Any) -> list[Any]:
    """What random legal play shows of an episode, step by step."""
    observations, _ = env.reset(seed=0)
    rng, told = np.random.default_rng(0), [plain(observations)]
    while env.agents:
        masks = {agent: observations[agent]["action_mask"] for agent in env.agents}
        acting = {agent: mask for agent, mask in masks.items() if mask.any()}
        actions = {a: int(rng.choice(np.flatnonzero(mask))) for a, mask in acting.items()}
        observations, *rest = env.step(actions)
        told.append((plain(observations), [dict(part) for part in rest]))
    return told


@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_a_wrapped_parallel_game_is_the_game(name: str) -> None:
    own = steps(make(name, "parallel_env"))
    assert steps(wrappers.BaseParallelWrapper(make(name, "parallel_env"))) == own
    for kind in ("env", "raw_env"):
        assert steps(aec_to_parallel(make(name, kind))) == own
    assert steps(aec_to_parallel(parallel_to_aec(make(name, "parallel_env")))) == own
    assert played(parallel_to_aec(make(name, "parallel_env"))) == played(make(name, "env"))
    assert played(parallel_to_aec(aec_to_parallel(make(name, "env")))) == played(make(name, "env"))


@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_several_parallel_episodes_in_a_row(name: str) -> None:
    env = wrappers.MultiEpisodeParallelEnv(make(name, "parallel_env", max_cycles=2), 3)
    assert len(steps(env)) == 1 + 3 * 2


@pytest.mark.parametrize("name", IN_TURNS)
@pytest.mark.parametrize("kind", ["env", "raw_env"])
def test_a_game_in_turns_as_a_parallel_one(name: str, kind: str) -> None:
    told = steps(turn_based_aec_to_parallel(make(name, kind)))
    turns = [turn for turn in played(make(name, kind)) if not (turn[3] or turn[4])]
    assert len(told) == 1 + len(turns)
