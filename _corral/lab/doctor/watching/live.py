"""Warn during training about faults in the first updates.

Every session has a ``Watch``, which runs before the callbacks and changes no number. It warns once
per cause and policy, after the cause has held in several consecutive updates (3 or 10), because a
single update may be chance. In progress.csv ``warnings`` counts them, and ``warning_<cause>`` is 1
from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from corral.lab.doctor.evidence.learning import legal_entropy
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings import updates
from corral.lab.doctor.findings.finding import Finding, Rule
from corral.lab.doctor.watching.progress import (
    AFTER,
    ROWS,
    Rewards,
    Told,
    early,
    own_columns,
    told_of,
)
from corral.trainers.observers import Observer
from corral.trainers.on_policy.records import (
    Advantages,
    Losses,
    Minibatch,
    Outputs,
    TrackedMinibatch,
    Trajectories,
)
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.session import Session, say

__all__ = ["Watch"]

Row = dict[str, Any]

LOOKS = ROWS
"""Number of updates in which slower measurements are made."""


class Watch(Observer):
    """Warns of faults that keep policies from learning."""

    def begin(self, session: Session) -> None:
        """Start observing the session."""
        learner = session.learner
        self.told = told_of(session.config)
        self.rewards = Rewards()
        for row in session.rows:
            self.rewards.see(row)
        self.seen: dict[str, PolicyEvidence] = {}
        self.looks = LOOKS
        self.evidence: Evidence | None = None
        if isinstance(learner, OnPolicyTrainer):
            self.trained = [name for name, each in learner.learners.items() if each.trained]
            self.before = {name: _weights(learner.learners[name]) for name in self.trained}
            self.evidence = Evidence(learner, self.seen, [])
            learner.observe(self)

    def look(self, session: Session, row: Row) -> None:
        """Print due warnings, and add their columns to the row."""
        self.rewards.see(row)
        self._see_weights(session.learner)
        counts, due = session.statistics.warnings, []
        for told in self.told:
            finding = next(self._causes(told, row), None)
            name = "" if finding is None else f"{told.policy}/{finding.cause}"
            for own in [one for one in counts if one.rpartition("/")[0] == told.policy]:
                if counts[own] > 0 and own != name:
                    del counts[own]  # the cause did not hold again: it was chance
            if finding is None or counts.get(name, 0) < 0:
                continue
            counts[name] = counts.get(name, 0) + 1
            if counts[name] >= AFTER.get(finding.cause, ROWS):
                counts[name] = -finding.certainty  # negative: already reported
                due.append(finding)
        for cause in dict.fromkeys(finding.cause for finding in due):
            self._say(session, [finding for finding in due if finding.cause == cause])
        row |= self._columns(counts)
        self.seen.clear()
        self.looks -= 1

    # --- Rules -----------------------------------------------------------------------------------

    def _causes(self, told: Told, row: Row) -> Iterator[Finding]:
        """Yield findings, nearest to the root first; the caller reports only the first."""
        found = self.seen.get(told.policy)
        if found is not None and self.evidence is not None:
            for rule in WATCHED:
                if (finding := rule(found, self.evidence)) is not None:
                    yield finding
        yield from early(own_columns(row, told), told, self.rewards.may_vary)

    def _say(self, session: Session, findings: list[Finding]) -> None:
        """Print one cause with the policies that it affects."""
        one, who = findings[0], ""
        if len(self.told) > 1:
            names = ", ".join(finding.policy for finding in findings)
            who = f", {'policies' if len(findings) > 1 else 'policy'} {names}"
        word = "warning" if one.certainty >= 2 else "note"
        say(
            session.run.folder,
            f"{word} at {session.row['env_steps']:,} env steps{who}: {one.title} "
            f"Measured: {one.measured}. Expected: {one.expected}. To do: {one.todo}",
        )

    def _columns(self, counts: Mapping[str, int]) -> dict[str, int]:
        said = [name for name, count in counts.items() if count <= -2]
        row = {"warnings": len(said)}
        for name in said:
            policy, _, cause = name.rpartition("/")
            prefix = f"{policy}/" if len(self.told) > 1 else ""
            row[f"{prefix}warning_{cause.replace('-', '_')}"] = 1
        return row

    # --- Recording an update
    # -------------------------------------------------------------------------

    def _see_weights(self, learner: Any) -> None:
        """Record the distance of the weights from their start, until they move."""
        for name in self.trained if self.evidence is not None else ():
            if name in self.before and name in self.seen:
                after, before = _weights(learner.learners[name]), self.before[name]
                moved = {key: float((after[key] - before[key]).abs().max()) for key in after}
                self.seen[name].moved = moved
                if self.looks <= 1 or max(moved.values(), default=0.0) > 0:
                    del self.before[name]

    def on_advantages(
        self, learner: Any, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        name = learner.group.policy
        self.seen[name] = found = PolicyEvidence(name, learner.group.agents)
        found.trajectories.append(trajectories)
        found.advantages.append(advantages)
        self.tracks_reads = True

    def on_minibatch(
        self, learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        found = self.seen.get(learner.group.policy)
        if self.tracks_reads and found is not None and isinstance(minibatch, TrackedMinibatch):
            self.tracks_reads = False
            self._first_minibatch(found, minibatch, outputs)

    def _first_minibatch(
        self, found: PolicyEvidence, noted: TrackedMinibatch, outputs: Outputs
    ) -> None:
        """Record the first minibatch of an update, before any optimizer step."""
        read = set(noted.read)
        if "advantage" not in read:
            found.advantages.clear()  # this loss does not use them
        if "log_prob" in read:
            ratio = (outputs.log_prob - noted.log_prob).detach()
            found.log_ratio.append(ratio.cpu().numpy())
        if self.looks <= 0:
            return
        legal = noted.mask.sum(dim=-1).clamp(min=1)
        found.max_entropy.append(float(legal.double().log().mean()))
        own = legal_entropy(noted, outputs)
        if own is not None:
            found.entropy.append((float(outputs.entropy.detach()), own))


def _weights(learner: Any) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone() for name, each in learner.named_parameters()}


# --- Rules for in-house trainers -----------------------------------------------------------------


def weights_fixed(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report weights that do not move although the learning rate is not 0."""
    if not found.moved or any(size > 0 for size in found.moved.values()):
        return None
    learner = evidence.trainer.learners[found.policy]
    rate = float(learner.optimizer.param_groups[0]["lr"])
    if rate == 0 or not any(each.grad is not None for each in learner.parameters()):
        return None
    return Finding(
        "weights-fixed",
        "No weight changes.",
        f"largest change of a weight since the start of training: 0, learning rate {rate:g}",
        "weights that change in every update",
        "check the parameters passed to the optimizer",
        3,
        found.policy,
    )


def no_choice(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a policy with one legal action in every decision."""
    if not found.max_entropy or max(found.max_entropy) > 0:
        return None
    return Finding(
        "no-choice",
        "Every decision of this policy has one legal action: the policy has nothing to learn.",
        "1 legal action in each decision of a minibatch",
        "masks that allow several actions",
        "check the action masks: corral check ENV --learnable",
        1,
        found.policy,
    )


def critic_misleads(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report value errors with a larger deviation than the value targets."""
    if not found.advantages:
        return None
    valid = found.trajectories[0].valid
    value, target = found.trajectories[0].value[valid], found.advantages[0].value_target[valid]
    if len(target) < 2:
        return None
    scale = evidence.trainer.learners[found.policy].value_norm.scale
    off, spread = float(np.std(target - value)), float(np.std(target))
    if off <= 2.0 * max(spread, scale):
        return None
    return Finding(
        "critic-misleads",
        "The critic predicts worse than a constant.",
        f"value errors have a standard deviation of {off:.3g}, their targets one of {spread:.3g}",
        "errors smaller than the targets' standard deviation",
        "check that values and targets have the same order, and check the critic's input",
        2,
        found.policy,
    )


WATCHED: tuple[Rule, ...] = (
    updates.zero_advantages,
    updates.first_ratio,
    updates.entropy_of_illegal,
    weights_fixed,
    critic_misleads,
    no_choice,
)
"""From the root cause outwards."""
