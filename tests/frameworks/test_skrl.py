"""skrl on environments that raise at an illegal action: its models read the mask as observed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("skrl", reason="needs the extra skrl")

import torch
from skrl.envs.wrappers.torch import wrap_env
from skrl.multi_agents.torch.ippo import IPPO_CFG

from corral.envs import dfaas_v0, tictactoe_v0
from support.frameworks import example, judge

pytestmark = pytest.mark.filterwarnings("default")


def test_parallel_it_learns_and_plays_legal_actions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lost mask would raise, in training or in the 20 windows played after it."""
    skrl = example("skrl")
    forbidden = []
    compute = skrl.Policy.compute

    def counted(self: Any, inputs: Any, role: str = "") -> Any:
        logits, outputs = compute(self, inputs, role)
        forbidden.append(int(torch.isinf(logits).sum()))
        return logits, outputs

    monkeypatch.setattr(skrl.Policy, "compute", counted)
    verdict = judge(skrl.learn, steps=240, seed=0)
    assert np.isfinite(verdict.learned)
    assert len(forbidden) > 3 * 240  # rollout and update
    assert np.mean(np.array(forbidden) > 0) > 0.9


def test_turn_based_games_are_not_what_its_wrapper_expects() -> None:
    env = wrap_env(tictactoe_v0.env(illegal="raise"), wrapper="pettingzoo")
    with pytest.raises(TypeError, match="NoneType"):
        env.reset()


def test_its_default_settings_name_no_agents() -> None:
    agents = dfaas_v0.parallel_env(trace="edge3").possible_agents
    with pytest.raises(ValueError, match="agents"):
        IPPO_CFG().expand(possible_agents=agents)
