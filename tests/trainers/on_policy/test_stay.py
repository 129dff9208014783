"""The penalty on leaving the start: what it is, that it holds, and that a run goes on exactly."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.adapters.masked_distribution import Gaussian, MaskedCategorical, MultiCategorical
from corral.trainers.driver import resume
from corral.trainers.on_policy.algorithms import adapt_penalties
from corral.trainers.on_policy.settings import MAPPOSettings
from support.runs import everything

SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 2, "n_minibatches": 2, "net_arch": (16,)},
    **{"env_kwargs": {"max_cycles": 10}, "preset": "none"},
}


@pytest.fixture(scope="module", params=[0, 8], ids=["plain", "memory"])
def start(request: Any, tmp_path_factory: pytest.TempPathFactory) -> corral.trainers.Run:
    out = tmp_path_factory.mktemp("runs") / "start"
    return corral.train("arena_v0", steps=64, memory=request.param, out=out, **SMALL)


def begun(start: Any, out: Path, updates: int = 4, **given: Any) -> Any:
    steps = 64 * updates
    return corral.train("arena_v0", steps=steps, init=start, out=out, **{**SMALL, **given})


def test_the_divergence_is_the_sum_over_legal_actions() -> None:
    mask = torch.tensor([[True, True, False]])
    here = MaskedCategorical(torch.tensor([[0.0, 1.0, 5.0]]), mask)
    start = MaskedCategorical(torch.tensor([[0.0, 0.0, 9.0]]), mask)
    p = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    expected = float((p * np.log(p / 0.5)).sum())
    assert here.kl_to(start.parameters).item() == pytest.approx(expected, abs=1e-6)
    assert here.kl_to(here.parameters).item() == 0.0
    twice = MultiCategorical([here, here]).kl_to(MultiCategorical([start, start]).parameters)
    assert twice.item() == pytest.approx(2 * expected, abs=1e-6)


def test_the_divergence_of_normal_distributions_is_the_other_way_round() -> None:
    here = Gaussian(torch.tensor([[1.0, 0.0]]), torch.tensor([0.5, -1.0]))
    start = Gaussian(torch.tensor([[0.0, 0.5]]), torch.tensor([0.0, 0.2]))
    torch.testing.assert_close(here.kl_to(start.parameters), start.kl_from(here.parameters))


def test_a_high_weight_holds_a_policy_at_its_start(start: Any, tmp_path: Path) -> None:
    free = begun(start, tmp_path / "free", stay_coef=1e-9)
    held = begun(start, tmp_path / "held", stay_coef=100.0)
    apart = [run.progress["stay_kl"].iloc[-1] for run in (free, held)]
    assert 0 <= apart[1] < 0.3 * apart[0]


def test_without_a_weight_nothing_is_kept_of_the_start(start: Any, tmp_path: Path) -> None:
    run = begun(start, tmp_path / "plain", updates=1)
    assert "stay_kl" not in run.progress
    assert not [key for key in run.content("latest").arrays["policy_shared"] if "start" in key]


def test_a_resumed_run_stays_by_the_same_start(start: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {"stay_coef": 0.5, "stay_target": 1e-4, "checkpoint_every": 64}
    begun(start, tmp_path / "whole", **given)
    first = begun(start, tmp_path / "parts", updates=2, horizon=256, **given)
    assert resume(first.folder, steps=256).progress["stay_kl"].iloc[-1] > 0
    assert everything(tmp_path / "parts") == everything(tmp_path / "whole")


def test_the_weight_rises_with_the_divergence_and_never_falls_below_what_was_given() -> None:
    class Learner:
        kl_coef, stay_coef = 0.0, 0.1

        def set_penalties(self, **given: float) -> None:
            vars(self).update(given)

    learner: Any = Learner()
    settings = dataclasses.replace(MAPPOSettings(), stay_coef=0.1, stay_target=0.02)
    for divergence, weight in ((0.05, 0.2), (0.05, 0.4), (0.02, 0.4), (0.0, 0.2), (0.0, 0.1)):
        adapt_penalties(learner, {"stay_kl": divergence}, settings)
        assert learner.stay_coef == pytest.approx(weight)
    adapt_penalties(learner, {"stay_kl": 0.0}, settings)
    assert learner.stay_coef == 0.1


def test_there_is_nothing_to_stay_by_without_a_start(tmp_path: Path) -> None:
    with refused(ValueError, "stay_coef=0.1", "init="):
        corral.train("arena_v0", steps=64, stay_coef=0.1, out=tmp_path / "run", **SMALL)
    with refused(ValueError, "stay_target=0.1", "stay_coef=0"):
        MAPPOSettings(stay_target=0.1)
