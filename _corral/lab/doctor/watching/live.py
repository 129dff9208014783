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

from corral.lab.doctor.evidence.learning import legal_entropy, moved_from, weights_of
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings import updates
from corral.lab.doctor.findings.finding import Finding, Rule
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.doctor.watching.progress import (
    AFTER,
    ROWS,
    PolicyInfo,
    Rewards,
    early,
    policy_columns,
    policy_infos,
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
        self.infos = policy_infos(session.config)
        self.rewards = Rewards()
        for row in session.rows:
            self.rewards.see(row)
        self.seen: dict[str, PolicyEvidence] = {}
        self.looks = LOOKS
        self.evidence: Evidence | None = None
        if isinstance(learner, OnPolicyTrainer):
            self.trained = [name for name, item in learner.learners.items() if item.trained]
            self.before = {name: weights_of(learner.learners[name]) for name in self.trained}
            self.evidence = Evidence(learner, self.seen, [])
            learner.observe(self)

    def look(self, session: Session, row: Row) -> None:
        """Print due warnings, and add their columns to the row."""
        self.rewards.see(row)
        self._see_weights(session.learner)
        counts, due = session.statistics.warnings, []
        for info in self.infos:
            now = {f"{info.policy}/{item.cause}": item for item in self._causes(info, row)}
            for name in [count for count in counts if count.rpartition("/")[0] == info.policy]:
                if counts[name] > 0 and name not in now:
                    del counts[name]  # the cause did not hold again: it was chance
            for name, finding in now.items():  # nearest to the root first
                if counts.get(name, 0) >= 0:
                    counts[name] = counts.get(name, 0) + 1
                if counts[name] >= AFTER.get(finding.cause, ROWS):
                    counts[name] = -finding.certainty  # negative: reported
                    due.append(finding)
                if counts[name] < 0:
                    break  # the rest may be its consequences
        for cause in dict.fromkeys(finding.cause for finding in due):
            self._say(session, [finding for finding in due if finding.cause == cause])
        row |= self._columns(counts)
        self.seen.clear()
        self.looks -= 1

    # --- Rules -----------------------------------------------------------------------------------

    def _causes(self, info: PolicyInfo, row: Row) -> Iterator[Finding]:
        """Yield findings, nearest to the root first."""
        record = self.seen.get(info.policy)
        if record is not None and self.evidence is not None:
            for rule in WATCHED:
                if (finding := rule(record, self.evidence)) is not None:
                    yield finding
        yield from early(policy_columns(row, info), info, self.rewards.may_vary)

    def _say(self, session: Session, findings: list[Finding]) -> None:
        """Print one cause with the policies that it affects."""
        first, who = findings[0], ""
        if len(self.infos) > 1:
            names = ", ".join(finding.policy for finding in findings)
            who = f", {'policies' if len(findings) > 1 else 'policy'} {names}"
        word = "warning" if first.certainty >= 2 else "note"
        say(
            session.run.folder,
            f"{word} at {session.row['env_steps']:,} env steps{who}: {first.title} "
            f"Measured: {first.measured}. Expected: {first.expected}. To do: {first.todo}",
        )

    def _columns(self, counts: Mapping[str, int]) -> dict[str, int]:
        reported = [name for name, count in counts.items() if count <= -2]
        row = {"warnings": len(reported)}
        for name in reported:
            policy, _, cause = name.rpartition("/")
            prefix = f"{policy}/" if len(self.infos) > 1 else ""
            row[f"{prefix}warning_{cause.replace('-', '_')}"] = 1
        return row

    # --- Recording an update
    # -------------------------------------------------------------------------

    def _see_weights(self, learner: Any) -> None:
        """Record the distance of the weights from their start, until they move."""
        for name in self.trained if self.evidence is not None else ():
            if name in self.before and name in self.seen:
                moved = moved_from(self.before[name], learner.learners[name])
                self._see_steps(learner.learners[name], self.seen[name])
                self.seen[name].moved = moved
                if self.looks <= 1 or max(moved.values(), default=0.0) > updates.STILL:
                    del self.before[name]

    def _see_steps(self, learner: Any, record: PolicyEvidence) -> None:
        """Record the learning rate, and the gradients of the update's last step."""
        record.learning_rates.append(float(learner.optimizer.param_groups[0]["lr"]))
        for name, parameter in learner.named_parameters():
            if parameter.grad is not None:
                record.gradients[name] = float(parameter.grad.abs().max())

    def on_advantages(
        self, learner: Any, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        name = learner.group.policy
        self.seen[name] = record = PolicyEvidence(name, learner.group.agents)
        if self.looks > 0:
            self._see_observations(record, learner)
        record.trajectories.append(trajectories)
        record.advantages.append(advantages)
        self.tracks_reads = True

    def _see_observations(self, record: PolicyEvidence, learner: Any) -> None:
        """Record the rollout's observations, and whether each equals the one before."""
        assert self.evidence is not None
        trainer = self.evidence.trainer
        rollout = trainer.rollout
        buffer = rollout.groups[list(trainer.learners).index(record.policy)]
        steps, width = len(buffer.log_prob), learner.group.layout.width
        obs = buffer.vector[:steps, ..., :width].reshape(steps, -1, width)
        masks = buffer.mask[:steps].reshape(*obs.shape[:2], -1)
        repeats = np.zeros(obs.shape[:2], dtype=bool)
        repeats[1:] = (obs[1:] == obs[:-1]).all(axis=-1)
        for image in buffer.images:
            flat = image[:steps].reshape(*obs.shape[:2], -1)
            repeats[1:] &= (flat[1:] == flat[:-1]).all(axis=-1)
        record.obs.append((obs, obs))
        record.masks.append((masks, masks))
        record.acted.append(buffer.acted)
        record.playing.repeats.append(repeats)
        begins = np.concatenate([np.zeros_like(rollout.over[:1]), rollout.over])
        self.evidence.env.begins, self.evidence.env.states = [begins], [rollout.state]

    def on_minibatch(
        self, learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        record = self.seen.get(learner.group.policy)
        if self.tracks_reads and record is not None and isinstance(minibatch, TrackedMinibatch):
            self.tracks_reads = False
            self._first_minibatch(record, minibatch, outputs)

    def _first_minibatch(
        self, record: PolicyEvidence, minibatch: TrackedMinibatch, outputs: Outputs
    ) -> None:
        """Record the first minibatch of an update, before any optimizer step."""
        read = set(minibatch.read)
        if "advantage" not in read:
            record.advantages.clear()  # this loss does not use them
        if "log_prob" in read:
            ratio = (outputs.log_prob - minibatch.log_prob).detach()
            record.log_ratio.append(ratio.cpu().numpy())
        if self.looks <= 0:
            return
        record.note_entropy(minibatch.mask, outputs, legal_entropy(minibatch, outputs))


# --- Rules for in-house trainers -----------------------------------------------------------------


def not_moved(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report updates that change no weight. After the planned steps, a rate of 0 is expected."""
    if evidence.trainer.env_steps > evidence.trainer.steps:
        return None
    return updates.not_moved(record, evidence)


def constant_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations that never change while masks or the global state do."""
    finding = updates.constant_obs(record, evidence)
    return finding if finding is not None and finding.certainty >= 2 else None


def no_choice(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a policy with one legal action in every decision."""
    if not record.max_entropy or max(record.max_entropy) > 0:
        return None
    return Finding(
        "no-choice",
        "Every decision of this policy has one legal action: the policy has nothing to learn.",
        "1 legal action in each decision of a minibatch",
        "masks that allow several actions",
        "check the action masks: corral check ENV --learnable",
        1,
        record.policy,
    )


def critic_misleads(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report value errors with a larger deviation than the value targets."""
    if not record.advantages:
        return None
    valid = record.trajectories[0].valid
    value, target = record.trajectories[0].value[valid], record.advantages[0].value_target[valid]
    if len(target) < 2:
        return None
    scale = evidence.trainer.learners[record.policy].value_norm.scale
    off, spread = float(np.std(target - value)), float(np.std(target))
    if off <= 2.0 * max(spread, scale):
        return None
    measured = f"value errors have a standard deviation of {off:.3g}, their targets {spread:.3g}"
    return finding_of("critic-misleads", measured, 2, record.policy)


WATCHED: tuple[Rule, ...] = (
    updates.zero_advantages,
    updates.first_ratio,
    updates.masks_in_loss,
    not_moved,
    constant_obs,
    critic_misleads,
    no_choice,
)
"""From the root cause outwards."""
