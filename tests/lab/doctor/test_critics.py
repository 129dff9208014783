"""The audit of critics that others trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.envs.arena_v0 import ArenaRules
from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.policy import RandomPolicy
from corral.envs.probes.episodes import LaterReward
from corral.lab.doctor.audit.critics import audit_critics
from corral.lab.doctor.audit.findings import against_truth
from corral.trainers.sb3.settings import SB3Settings
from corral.trainers.sb3.trainer import SB3PPO, SB3MaskablePPO
from support.loads import days

GAMMA = 0.9


class Settings:
    gamma = GAMMA


class Told:
    """A learner of P3 whose values are ``sign`` times the right ones."""

    settings, env_steps, rollout_steps = Settings(), 0, 1

    def __init__(self, sign: float) -> None:
        self.rules, self.sign = LaterReward(), sign
        self.policies = {agent: RandomPolicy() for agent in self.rules.agents}

    def values(self, observations: Any, state: Array) -> dict[str, Array]:
        found = {}
        for agent, sign in zip(self.rules.agents, (1, -1), strict=True):
            seen = observations[agent]["observation"]
            found[agent] = self.sign * sign * seen[:, 0] * np.where(seen[:, 1] > 0, 1, GAMMA)
        return found


@pytest.mark.parametrize("sign", [1, -1])
def test_right_and_wrong_values(sign: int) -> None:
    names = {"agent_0": "a", "agent_1": "b"}
    report = audit_critics(Told(sign), names, most_steps=5000)
    assert [each.policy for each in report.policies] == ["a", "b"]
    for each in report.policies:
        assert each.moments > 20
        assert each.value_correlation == pytest.approx(sign)
        assert each.advantage_correlation is None


@pytest.mark.slow  # trains with Stable-Baselines3
@pytest.mark.parametrize("trainer", [SB3PPO, SB3MaskablePPO])
def test_stable_baselines3(trainer: Any) -> None:
    rules = ArenaRules(3, 3, max_cycles=12)
    names = dict.fromkeys(rules.agents, "shared")
    made = trainer(
        rules,
        SB3Settings(num_envs=8, n_steps=64, batch_size=64, gamma=0.9, learning_rate=3e-3),
        seed=0,
        policies=names,
        policies_to_train=["shared"],
        steps=6_000,
    )
    for _ in made.learn():
        pass
    report = audit_critics(made, names, most_steps=20_000)
    (found,) = report.policies
    assert report.updates == 11
    assert not report.given_this_future
    assert (found.value_correlation or 0) > 0.5
    assert list(against_truth(report)) == []


@pytest.mark.slow
def test_data_is_replayed_unless_other_days_are_asked_for() -> None:
    rules = DfaasRules(days(3), max_cycles=8)
    made = SB3PPO(
        rules,
        SB3Settings(num_envs=2, n_steps=8, batch_size=8),
        seed=0,
        policies=dict.fromkeys(rules.agents, "shared"),
        policies_to_train=["shared"],
        steps=10,
    )
    names = dict.fromkeys(rules.agents, "shared")
    assert audit_critics(made, names, most_steps=1000).given_this_future
    report = audit_critics(made, names, most_steps=1000, other_futures=True)
    assert not report.given_this_future
