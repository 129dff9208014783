"""Our mathematics beside TorchRL's: numbers of MultiAgentGAE, MAPPOLoss and PopArtValueNorm.

benchmarks/core/torchrl_oracle.py wrote them, in an environment of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.adapters.masked_distribution import MaskedCategorical
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.learner import ValueNorm

GOLDEN = json.loads(Path(__file__).with_name("torchrl_golden.json").read_text())


def test_advantages_and_targets() -> None:
    case = {name: np.array(values) for name, values in GOLDEN["advantages"].items()}
    shape = case["reward"].shape
    ended = np.broadcast_to(case["done"][:, None], shape)
    over = np.broadcast_to(case["terminated"][:, None], shape)
    assert (ended & ~over).any()
    assert over.any()
    assert not ended.all()
    found = maths.gae(
        reward=case["reward"],
        value=case["value"],
        acted=np.ones(shape, dtype=bool),
        ended=ended,
        final_obs_value=np.where(ended & ~over, case["next_value"], 0.0),
        bootstrap_value=case["next_value"][-1],
        gamma=float(case["gamma"]),
        gae_lambda=float(case["gae_lambda"]),
    )
    np.testing.assert_allclose(found, case["advantage"], atol=2e-6)
    np.testing.assert_allclose(found + case["value"], case["target"], atol=2e-6)


def test_losses() -> None:
    case = {
        name: torch.tensor(values) if isinstance(values, list) else values
        for name, values in GOLDEN["losses"].items()
    }
    choice = MaskedCategorical(case["logits"], case["mask"])
    log_ratio = choice.log_prob(case["action"]) - case["old_log_prob"]
    loss = maths.clipped_surrogate(log_ratio, case["advantage"], case["clip_range"]).mean()
    assert loss.item() == pytest.approx(case["policy_loss"], rel=1e-5)
    clipped = (torch.expm1(log_ratio).abs() > case["clip_range"]).float().mean()
    assert 0.2 < clipped.item() < 0.8
    assert clipped.item() == pytest.approx(case["clip_fraction"], abs=1e-6)
    assert choice.entropy().mean().item() == pytest.approx(case["entropy"], rel=1e-5)
    fault = maths.value_loss(case["value"], case["target"], huber_delta=case["huber_delta"])
    assert fault.mean().item() == pytest.approx(case["value_loss"], rel=1e-5)


def test_value_normalisation() -> None:
    case = GOLDEN["value_normalisation"]
    norm = ValueNorm(case["decay"])
    for batch in case["batches"]:
        norm.update(torch.tensor(batch))
    asked = torch.tensor(case["asked"])
    assert norm.normalize(asked).tolist() == pytest.approx(case["normalised"], rel=1e-4, abs=1e-4)
    assert norm.restore(asked).tolist() == pytest.approx(case["restored"], rel=1e-4, abs=1e-4)
