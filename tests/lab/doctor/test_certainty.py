"""What may be done on purpose is never certain: unusual, but sound, ways to train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import torch
from gymnasium import spaces
from torch import nn

from corral import algorithms as alg
from corral.adapters.sources import rules_of
from corral.lab.doctor.diagnose import Diagnosis, diagnose
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.agents import misplaced_obs
from corral.lab.doctor.findings.ends import ends
from corral.trainers.on_policy.records import Trajectories
from corral.trainers.on_policy.trainer import IPPO
from corral.trainers.runs.run import Run
from faults import trained
from faults.sound import Depots, depots


def certain(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(one.cause, one.measured) for one in diagnosis.findings if one.certainty == 3]


def with_loss(folder: Path, loss: Callable[[Any, Any, Any], Any]) -> Run:
    return trained(folder, depots(), trainer=alg.ippo.but(name="own", loss=loss))


def scaled_observations(folder: Path) -> Run:
    """The trainer stores observations less a mean, divided by a deviation."""

    class Scales(IPPO):
        def begin(self) -> None:
            super().begin()
            for buffer in self.rollout.groups:
                store = buffer.store

                def scaled(at: Any, shown: Any, store: Any = store, to: Any = buffer) -> None:
                    store(at, shown)
                    part = to.vector[at][..., : to.group.layout.width]
                    part[...] = (part - 0.5) / 0.7

                buffer.store = scaled

    return trained(folder, depots(), trainer=Scales)


def term_named_like_an_entropy(folder: Path) -> Run:
    """A penalty of large log-probabilities is reported as "entropy_penalty"."""

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        terms = alg.ppo_loss(minibatch, outputs, settings).terms
        penalty = 1e-4 * outputs.log_prob.square().mean()
        return alg.Losses({**terms, "entropy_penalty": penalty})

    return with_loss(folder, loss)


def values_that_are_held_back(folder: Path) -> Run:
    """The value loss also penalizes large values."""

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        terms = dict(alg.ppo_loss(minibatch, outputs, settings).terms)
        terms["value_loss"] = terms["value_loss"] + 0.5 * outputs.value.square().mean()
        return alg.Losses(terms)

    return with_loss(folder, loss)


class Memory(Depots):
    """Shows what happened in the step before, by design; the state holds both."""

    def observation_space(self, agent: str) -> Any:
        part = spaces.Box(0, 10, (3,), np.float32)
        return spaces.Dict(observation=part, action_mask=spaces.Box(0, 1, (3,), np.int8))

    def step(self, actions: Any) -> Any:
        self.before = self.load
        return super().step(actions)

    def look(self, i: int) -> Any:
        before = getattr(self, "before", np.zeros(3)) if self.t else np.zeros(3)
        return np.roll(before, -i).astype(np.float32)


def reports_of_the_step_before(folder: Path) -> Run:
    return trained(folder, depots(Memory))


class Chosen(nn.Module):
    """Reads two of four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 16)
        self.out_features = 16

    def forward(self, obs: Any) -> torch.Tensor:
        hidden: torch.Tensor = self.first(obs[:, :2]).tanh()
        return hidden


def network_of_two_columns(folder: Path) -> Run:
    return trained(folder, depots(), model=lambda space, *, role: Chosen(), trainer="ippo")


def sizes_of_advantages(folder: Path) -> Run:
    """A minibatch holds the ranks of advantages' sizes in place of advantages."""

    class Sized(IPPO):
        def update_minibatch(self, learner: Any, minibatch: Any, outputs: Any) -> Any:
            ranks = minibatch.advantage.abs().argsort().argsort() / len(minibatch)
            return super().update_minibatch(learner, replace(minibatch, advantage=ranks), outputs)

    return trained(folder, depots(), trainer=Sized)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        scaled_observations,
        term_named_like_an_entropy,
        values_that_are_held_back,
        reports_of_the_step_before,
        network_of_two_columns,
        sizes_of_advantages,
    ],
)
def test_what_may_be_meant_is_not_certain(make: Callable[[Path], Run], tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    diagnosis = diagnose(run, audited=False, cloned=False)
    assert any(item.endswith("from the start") for item in diagnosis.looked_at)
    assert certain(diagnosis) == []


# --- Values at time limits -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "named"),
    [
        (1.0, None),
        (0.0, ("limit-taken-for-end", 3)),
        (2.0, ("bootstraps-from-reset", 3)),  # V of the next episode's first observation
        (0.5, ("limit-value", 2)),  # neither: it may be meant
    ],
)
def test_a_value_at_a_time_limit_is_named_by_what_it_equals(
    used: float, named: tuple[str, int] | None
) -> None:
    cut = np.array([[False], [True], [False]])
    one = np.ones((3, 1), np.float32)
    trajectories = Trajectories(
        reward=one,
        value=2 * one,
        acted=one > 0,
        ended=cut,
        final_obs_value=np.where(cut, np.float32(used), np.float32(0)),
        bootstrap_value=one[0],
        valid=one > 0,
    )
    record = PolicyEvidence("shared", ("agent_0",))
    record.trajectories.append(trajectories)
    record.terminated.append(np.zeros_like(cut))
    record.truncated.append(cut)
    record.final_value.append(np.where(cut, 1.0, np.nan))
    finding = ends(record, Evidence(None, {}, []))
    assert (None if finding is None else (finding.cause, finding.certainty)) == named


@pytest.mark.parametrize(("others", "found"), [("equal", False), ("own", True)])
def test_views_are_compared_in_the_steps_in_which_both_agents_act(others: str, found: bool) -> None:
    """Two agents leave together, a third one later: all views are equal as long as they act."""
    seen = np.arange(12.0).reshape(6, 1, 2).repeat(3, axis=1)  # [T, C, F]
    acted = np.array([[True] * 3] * 3 + [[False, False, True]] * 3)
    seen[~acted] = 0.0
    if others == "own":
        seen[:, 2] += 1.0
    record = PolicyEvidence("shared", ("a", "b", "c"), obs=[(seen, seen)], acted=[acted])
    group = SimpleNamespace(identities=3, layout=SimpleNamespace(images=()))
    learners = {"shared": SimpleNamespace(group=group)}
    trainer = SimpleNamespace(learners=learners, rules=rules_of("two_step_v0"))
    finding = misplaced_obs(record, Evidence(trainer, {"shared": record}, []))
    assert (None if finding is None else finding.cause) == (
        "observation-of-another" if found else None
    )
