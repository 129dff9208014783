"""SuperSuit's wrappers over every environment.

Those of actions and rewards take our games as they are. Those of observations want a Box each, so
they take them through ``mask_in_info``; of tiles_v0, whose observation is a Dict all the same, they
take none. Others do not apply: ``clip_actions`` wants Box actions, ``resize`` and
``color_reduction`` want pictures with their channels last, and ``black_death`` of SuperSuit 3.11
ends an episode only where all agents are terminated and truncated at once, which none of ours are
(``homogenize`` keeps ended agents in place).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corral.adapters import SeatEnv, mask_in_info
from corral.envs import ENVIRONMENTS, dfaas_v0
from support.loads import small_trace

supersuit = pytest.importorskip("supersuit", reason="needs the extra sb3")

# An action that is repeated, or comes late, may be illegal by then.
pytestmark = pytest.mark.filterwarnings("ignore::corral.errors.IllegalActionWarning")

AS_THEY_ARE: dict[str, Callable[[Any], Any]] = {
    "frame_skip": lambda env: supersuit.frame_skip_v0(env, 2),
    "sticky_actions": lambda env: supersuit.sticky_actions_v0(env, 0.3),
    "clip_reward": supersuit.clip_reward_v0,
    "reward_lambda": lambda env: supersuit.reward_lambda_v0(env, lambda reward: 2 * reward),
    "pad_action_space": supersuit.pad_action_space_v0,
    "delay_observations": lambda env: supersuit.delay_observations_v0(env, 2),
    "observation_lambda": lambda env: supersuit.observation_lambda_v0(
        env, lambda seen, space: seen, lambda space: space
    ),
    "action_lambda": lambda env: supersuit.action_lambda_v1(
        env, lambda action, space: action, lambda space: space
    ),
}
MASK_IN_INFO: dict[str, Callable[[Any], Any]] = {
    "agent_indicator": supersuit.agent_indicator_v0,
    "dtype": lambda env: supersuit.dtype_v0(env, np.float16),
    "flatten": supersuit.flatten_v0,
    "frame_stack": lambda env: supersuit.frame_stack_v1(env, 3),
    "max_observation": lambda env: supersuit.max_observation_v0(env, 2),
    "normalize_obs": supersuit.normalize_obs_v0,
    "pad_observations": supersuit.pad_observations_v0,
    **AS_THEY_ARE,
}
FORMS = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name, spec in ENVIRONMENTS.items()
    for kind in (("parallel_env",) if spec.simultaneous else ()) + ("env", "raw_env")
]


def make(name: str, kind: str) -> Any:
    env = getattr(importlib.import_module(ENVIRONMENTS[name].module), kind)()
    env.max_cycles = 12
    return env


def rewards(env: Any) -> int:
    """Play an episode with action 0, or the first legal one; how many rewards were paid."""
    count = 0
    if hasattr(env, "agent_iter"):
        env.reset(seed=0)
        for agent in env.agent_iter(500):
            observation, reward, terminated, truncated, info = env.last()
            assert np.isfinite(reward)
            count += 1
            over = terminated or truncated
            env.step(None if over else _first(observation, info, env.action_space(agent)))
    else:
        observations, infos = env.reset(seed=0)
        while env.agents:
            actions = {
                a: _first(observations[a], infos[a], env.action_space(a)) for a in env.agents
            }
            observations, paid, *_, infos = env.step(actions)
            assert np.isfinite(list(paid.values())).all()
            count += len(paid)
    assert env.agents == []
    return count


def _first(observation: Any, info: Any, space: Any) -> int:
    if isinstance(observation, dict) and "action_mask" in observation:
        return int(observation["action_mask"].argmax())
    return int(info["action_mask"].argmax()) if "action_mask" in info else 0


@pytest.mark.parametrize("wrapper", AS_THEY_ARE)
@pytest.mark.parametrize(("name", "kind"), FORMS)
def test_wrappers_of_actions_and_rewards(name: str, kind: str, wrapper: str) -> None:
    assert rewards(AS_THEY_ARE[wrapper](make(name, kind))) >= 2


@pytest.mark.parametrize("wrapper", MASK_IN_INFO)
@pytest.mark.parametrize(("name", "kind"), [f for f in FORMS if f.values[0] != "tiles_v0"])
def test_wrappers_of_observations_with_the_mask_in_info(name: str, kind: str, wrapper: str) -> None:
    assert rewards(MASK_IN_INFO[wrapper](mask_in_info(make(name, kind)))) >= 2


def test_skipped_frames_are_played_and_chance_stays() -> None:
    """Two steps in one are the two, bit for bit: to skip a given number draws nothing."""
    kwargs = {"trace": small_trace(), "route": "two", "max_cycles": 8}
    plain, env = dfaas_v0.parallel_env(**kwargs), dfaas_v0.parallel_env(**kwargs)
    skipping = supersuit.frame_skip_v0(env, 2)
    for seed in (3, None):
        plain.reset(seed=seed)
        skipping.reset(seed=seed)
        while plain.agents:
            actions = dict.fromkeys(plain.agents, 1)
            first, second = plain.step(actions)[1], plain.step(actions)[1]
            paid = skipping.step(actions)[1]
            assert paid == {agent: first[agent] + second[agent] for agent in actions}
        assert skipping.agents == []


def test_a_seat_skips_frames_too() -> None:
    env = supersuit.frame_skip_v0(SeatEnv("arena_v0", max_cycles=9), (1, 3))
    env.reset(seed=0)
    truncated, steps = False, 0
    while not truncated:
        truncated = env.step(0)[3]
        steps += 1
    assert 3 <= steps <= 9
