"""A single-file masked PPO over make_batch learns; a missing mask would have raised."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.adapters import make_batch
from corral.envs import make_rules
from corral.lab.doctor.examination import examination
from support.frameworks import EXAMPLES, example, judge


def test_it_beats_random_play_on_days_it_has_not_seen() -> None:
    verdict = judge(example("cleanrl").learn, steps=10_000, seed=0)
    assert verdict.beats_random, verdict


def test_the_same_seed_plays_the_same() -> None:
    cleanrl = example("cleanrl")
    rules = make_rules("dfaas_v0", trace="edge3", rows=(2822, 4032), max_cycles=48)
    first = make_batch(rules, num_envs=20, seed=0).reset()
    plays = [cleanrl.learn(512, seed) for seed in (0, 0, 1)]
    chosen = [
        [play({a: _row(seen, i) for a, seen in first.items()}) for i in range(20)] for play in plays
    ]
    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]


def test_entropy_is_over_legal_actions_alone() -> None:
    import torch

    cleanrl = example("cleanrl")
    agent = cleanrl.Agent(3, 4)
    mask = torch.tensor([[True, True, False, False], [False, False, True, False]])
    with torch.no_grad():
        for layer in agent.actor:
            if hasattr(layer, "weight"):
                layer.weight.zero_()
                layer.bias.zero_()
    policy = agent.policy(torch.ones(2, 3), mask)
    assert torch.allclose(policy.entropy(), torch.tensor([np.log(2.0), 0.0]).float())
    policy.entropy().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in agent.actor.parameters())


def _row(seen: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
    return {key: np.asarray(part)[i] for key, part in seen.items()}


def test_its_learner_comes_out_at_the_answers_of_probes() -> None:
    found = examination(f"{EXAMPLES}/cleanrl_learner.py:learn", ["P4", "P10", "P12"])
    assert [result.passed for result in found.results] == [True, True, None]
    assert found.results[-1].refused


@pytest.mark.parametrize("seed", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_its_learner_passes_the_masks(seed: int) -> None:
    """A critic that does not observe masks learns from noise; that is slow, and no fault."""
    (result,) = examination(f"{EXAMPLES}/cleanrl_learner.py:learn", ["P6"], seed=seed).results
    assert result.passed, result.checks
