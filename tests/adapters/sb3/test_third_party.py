"""Stable-Baselines3 plays and learns third-party PettingZoo environments, in columns and seats."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from corral.adapters import SeatEnv, zoo_rules
from corral.errors import ActionError, CheckpointError, ResetNeededError, UnsupportedSpaceError
from support.bits_env import STEPS, BitsEnv, bits
from support.messages import refused
from support.zoo_envs import MixedEnv, SleepyEnv

PPO = pytest.importorskip("stable_baselines3", reason="needs the extra sb3").PPO
MaskablePPO = pytest.importorskip("sb3_contrib", reason="needs the extra sb3").MaskablePPO

from corral.adapters import make_vec_env  # noqa: E402

QUICK: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 128,
    "n_epochs": 5,
    "learning_rate": 0.02,
    "gamma": 0.0,
    "seed": 0,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [16]},
}


def rules_of(**options: Any) -> Any:
    return zoo_rules(functools.partial(BitsEnv, **options))


def named(vec_env: Any) -> Any:
    """Actions that name the symbol, for columns."""
    return vec_env.reset()["observation"].argmax(axis=1)


def test_columns_are_the_third_partys_agents() -> None:
    vec_env = make_vec_env(rules_of(mask="info"), num_envs=3, seed=0)
    assert vec_env.num_envs == 6
    with pytest.raises(ResetNeededError):
        vec_env.step(np.zeros(6, dtype=int))
    seen = vec_env.reset()
    assert seen["agent"].tolist() == np.eye(2).tolist() * 3
    for t in range(1, 2 * STEPS + 1):
        right = seen["observation"].argmax(axis=1)
        rows = np.arange(6)
        assert vec_env.action_masks().sum(axis=1).tolist() == [2] * 6
        assert vec_env.action_masks()[rows, right].all()
        seen, rewards, dones, infos = vec_env.step(right)
        assert rewards.tolist() == [1.0] * 6
        assert dones.tolist() == [t % STEPS == 0] * 6
        if dones.all():
            assert infos[0]["episode"]["r"] == STEPS == infos[0]["episode"]["l"]
            assert infos[0]["kpis"] == {"t": sum(range(1, STEPS + 1))}
            assert vec_env.observation_space.contains(infos[0]["terminal_observation"])
    with pytest.raises(CheckpointError, match="third-party"):
        vec_env.snapshot()
    vec_env.close()
    again = make_vec_env(rules_of(mask="info"), num_envs=3, seed=0)
    twin = make_vec_env(rules_of(mask="info"), num_envs=3, seed=0)
    assert named(again).tolist() == named(twin).tolist()
    assert named(again).tolist() != named(make_vec_env(rules_of(), num_envs=3, seed=1)).tolist()


def test_a_time_limit_cuts_the_columns() -> None:
    vec_env = make_vec_env(zoo_rules(functools.partial(SleepyEnv, 0.0), max_cycles=2), num_envs=1)
    vec_env.reset()
    vec_env.step(np.zeros(2, dtype=int))
    *_, dones, infos = vec_env.step(np.zeros(2, dtype=int))
    assert dones.all()
    assert infos[0]["TimeLimit.truncated"]


def test_agents_that_come_late_or_are_unlike_are_refused() -> None:
    class Late(BitsEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            shown, infos = super().reset(seed)
            self.agents = ["a"]
            return {"a": shown["a"]}, {"a": infos["a"]}

    with refused(UnsupportedSpaceError, "bits_v0: b", "corral.adapters.SeatEnv"):
        make_vec_env(zoo_rules(Late), num_envs=2).reset()
    with refused(
        UnsupportedSpaceError,
        "mixed_v0",
        "walker",
        "picker",
        "corral.adapters.wrappers.homogenize(env)",
        "corral.adapters.SeatEnv",
    ):
        make_vec_env(zoo_rules(MixedEnv), num_envs=2)


def test_actions_that_are_not_discrete_pass_through_columns() -> None:
    for kind in ("box", "bits"):
        vec_env = make_vec_env(rules_of(kind=kind), num_envs=2, seed=0)
        symbols = named(vec_env)
        actions = np.stack([symbols // 2, symbols % 2], axis=1)
        if kind == "box":
            actions = (2.0 * (symbols >= 2) - 1)[:, None].astype(np.float32)
        assert vec_env.step(actions)[1].tolist() == [1.0] * 4
        with refused(UnsupportedSpaceError, "bits_v0", vec_env.action_space, "mask"):
            vec_env.action_masks()
        with refused(ActionError, actions.shape):
            vec_env.step(actions[:, 0])
    with pytest.raises(ActionError, match="integers"):
        vec_env.step(actions + 0.5)


def mean_return(model: Any, env: Any, masked: bool) -> float:
    """Play 20 greedy episodes of a seat."""
    total = 0.0
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        over = False
        while not over:
            given = {"action_masks": env.action_masks()} if masked else {}
            action, _ = model.predict(obs, deterministic=True, **given)
            obs, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            total += reward
    return total / 20


@pytest.mark.parametrize("mask", [None, "observation", "info"])
def test_it_learns_in_columns(mask: Any) -> None:
    """Chance earns 1.25 of 5, with masks 2.5."""
    vec_env = make_vec_env(rules_of(mask=mask), num_envs=8, seed=0, agent_id=False)
    algorithm = MaskablePPO if mask else PPO
    model = algorithm("MultiInputPolicy", vec_env, **QUICK).learn(4_000)
    assert mean_return(model, SeatEnv(rules_of(mask=mask)), bool(mask)) > 4.5


@pytest.mark.slow  # learns
@pytest.mark.parametrize(("mask", "turns"), [(None, False), ("observation", True), ("info", True)])
def test_it_learns_in_a_seat(mask: Any, turns: bool) -> None:
    env = SeatEnv(zoo_rules(functools.partial(bits, mask, turns)), "b", "random")
    algorithm = MaskablePPO if mask else PPO
    model = algorithm("MultiInputPolicy", env, **QUICK | {"n_steps": 256}).learn(3_000)
    assert mean_return(model, env, bool(mask)) > 4.5


def test_it_learns_numbers_in_columns_and_seats() -> None:
    """Box actions: chance earns 2.5 of 5."""
    vec_env = make_vec_env(rules_of(kind="box"), num_envs=8, seed=0, agent_id=False)
    model = PPO("MultiInputPolicy", vec_env, **QUICK).learn(5_000)
    assert mean_return(model, SeatEnv(rules_of(kind="box")), False) > 4.5
