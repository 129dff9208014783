"""Findings about optimizer steps: too small or without effect, and too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.stored import first_policy
from corral.lab.doctor.findings.texts import finding_of, strongest
from corral.lab.doctor.findings.updates import FAR, not_moved
from corral.trainers.on_policy.maths import valid_decisions
from corral.trainers.schedules import scheduled

__all__ = [
    "larger_gradients",
    "nothing_moves",
    "nothing_valid",
    "size_of_updates",
    "some",
]

WHOLE = ("", "ModelError", "IllegalActionError")
"""Exceptions before or after which all updates are complete."""


def nothing_valid(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report decisions with a known outcome that training leaves out."""
    lost, of = 0, 0
    for trajectories, acted, terminated, truncated in zip(
        record.trajectories, record.acted, record.terminated, record.truncated, strict=False
    ):
        learnable = valid_decisions(
            acted=acted,
            ended=terminated | truncated,
            acts_next=np.zeros(acted.shape[1], dtype=bool),  # leaves out each agent's last decision
        )
        lost, of = lost + int((learnable & ~trajectories.valid).sum()), of + int(learnable.sum())
    if not of or lost <= 0.5 * of:
        return None
    measured = f"{lost:,} of {of:,} decisions with an outcome in the rollout are left out"
    return finding_of("decisions-left-out", measured, 3 if lost == of else 2, record.policy)


def larger_gradients(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report gradients that are larger after the algorithm's gradient rule than before it."""
    norms = [(norm[at], norm[at + 1]) for norm in record.learning.norms for at in (0, 2)]
    factors = [after / before for before, after in norms if before > 0]
    if len(factors) < 8 or not np.median(factors) > GROWS:
        return None
    return Finding(
        "gradients-grow",
        "The gradient rule makes gradients larger: it adds something to them.",
        f"norm after the rule / before it: median {np.median(factors):.3g}, largest "
        f"{max(factors):.3g}, in {len(factors)} steps",
        "the same gradients, or clipped ones",
        "look for gradients of earlier steps that are added up; clear what the rule keeps between "
        "steps",
        2,
        record.policy,
    )


GROWS = 1.05
"""Factor of a norm above which the difference is no rounding."""


def size_of_updates(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report updates that change the policy too much, or that their clipping ends too early."""
    return strongest(_sizes(record, evidence))


def _sizes(record: PolicyEvidence, evidence: Evidence) -> Iterator[Finding]:
    learning, response = record.learning, record.learning.response
    if evidence.error_kind == "NonFiniteError" and first_policy(record, evidence):
        yield finding_of("diverged", evidence.error, 3)
    if evidence.error_kind in WHOLE:
        yield from _without_old(record)
    off_one = response.off_one or 0.0
    if off_one >= 0.2 and evidence.error_kind in WHOLE:
        measured = (
            f"with old log-probabilities equal to the new ones, {off_one:.0%} of the "
            "decisions (all with advantages of the same sign) have no gradient; with old "
            "log-probabilities shifted far away, these decisions have a gradient"
        )
        certainty = 3 if off_one > 0.5 else 2
        yield finding_of("ratio-wrong-in-loss", measured, certainty, record.policy)
    annealed = any(progress > 0.9 for progress in learning.progress)
    if response.tight and not annealed and evidence.error_kind in WHOLE:
        measured = "the gradient is 0 as soon as a probability has changed by 1 %"
        yield finding_of("clip-too-tight", measured, 2, record.policy)
    worst = max(learning.divergence, default=0.0)
    if worst > FAR or any(a > 0.5 and b < 0.02 for a, b in learning.entropy):
        at = int(np.argmax(learning.divergence))
        fell = "; entropy goes from {:.0%} to {:.0%} of log(legal actions)"
        measured = (
            f"KL(before || after) of an update is {worst:.3g} nats"
            + "".join(fell.format(*both) for both in learning.entropy[at : at + 1])
            + f"; learning rate {max(record.learning_rates):g}"
        )
        yield finding_of("updates-too-large", measured, 2, record.policy)


def _without_old(record: PolicyEvidence) -> Iterator[Finding]:
    """Yield several epochs on one rollout without the log-probabilities of the rollout."""
    learning = record.learning
    ignored = learning.response.old_log_prob is False and learning.response.advantage == "own"
    for ratios, rows, changed in zip(
        learning.ratios, learning.rows, learning.changed, strict=False
    ):
        measured = ""
        if still := len(ratios) > 1 and max(ratios[1:]) <= 1e-6 and changed > 1e-4:
            measured = (
                f"in {len(ratios)} steps on one rollout the log ratio stays within "
                f"{max(ratios[1:]):.1g}, while probabilities change by up to {changed:.2g}"
            )
        elif ignored and len(ratios) > len(rows) > 0:
            measured = (
                "the gradient does not depend on the log-probabilities of the rollout, which is "
                f"used for {len(ratios) / len(rows):.0f} epochs"
            )
        if measured:
            yield finding_of("old-log-prob-recomputed", measured, 3 if still else 2, record.policy)
            return


# --- Updates without effect -----------------------------------------------------------------------


def nothing_moves(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report the link between gradients and policy at which updates stop, fully or in part."""
    gradients = _gradients(record, evidence) if evidence.error_kind in WHOLE else ()
    return strongest([*gradients, *_steps(record, evidence), not_moved(record, evidence)])


def _gradients(record: PolicyEvidence, evidence: Evidence) -> Iterator[Finding]:
    """Yield the parts of the networks that are frozen or get no gradient."""
    learners = getattr(evidence.trainer, "learners", {})  # other libraries: recorded gradients only
    fixed = [name for name, learner in learners.items() if not learner.trained]
    if fixed and first_policy(record, evidence):
        agents = [agent for name in fixed for agent in learners[name].group.agents]
        measured = (
            f"{len(fixed)} of {len(learners)} policies are not in policies_to_train: "
            f"{some(fixed)}, for {', '.join(agents)}"
        )
        yield finding_of("policy-untrained", measured, 1)
    images = [name for name in record.playing.cut if name.startswith("the image")]
    if images:  # rounded or looked-up columns need no gradient
        measured = f"{some(images)} changes the outputs, and gets no gradient from them"
        yield finding_of("no-gradient", measured, 2, record.policy)
    learner = learners.get(record.policy)
    trainable = dict.fromkeys(record.gradients, 0)
    if learner is not None:
        parameters = dict(learner.named_parameters())
        trainable = {name: p.ndim for name, p in parameters.items() if p.requires_grad}
        if frozen := [name for name in parameters if name not in trainable]:
            measured = f"requires_grad is False: {some(frozen)}"
            yield finding_of("frozen-weights", measured, 1, record.policy)
        for name in _without_memory(record, learner):
            trainable.pop(name, None)
    dead = [n for n, size in record.gradients.items() if not size > 0 and n in trainable]
    if dead and record.advantages_differ:
        whole = any(
            all(name in dead for name in trainable if name.startswith(role))
            for role in ("actor.", "critic.")
        )
        measured = f"{len(dead)} of {len(record.gradients)} parameters: {some(dead)}"
        # A branch may be unused on purpose; a network for images is not.
        certainty = 3 if whole or any(trainable[name] >= 4 for name in dead) else 2
        yield finding_of("no-gradient", measured, certainty, record.policy)


def _steps(record: PolicyEvidence, evidence: Evidence) -> Iterator[Finding]:
    """Yield what clipping, the optimizer or the code after it keep from moving."""
    learning, rate = record.learning, max(record.learning_rates, default=0.0)
    for role, at in (("actor", 0), ("critic", 2)):
        norms = [(norm[at], norm[at + 1]) for norm in learning.norms if norm[at] > 0]
        before, after = np.median(norms, axis=0) if norms else (0.0, 1.0)
        if after < 1e-6 and after < 1e-2 * before:
            measured = (
                f"norm of the {role}'s gradients {before:.2g} before clipping, {after:.2g} after"
            )
            yield finding_of("gradient-clipped-away", measured, 3, record.policy)
    missing = [name for name in learning.missing if record.gradients.get(name, 0.0) > 0]
    if missing:
        roles = {name.partition(".")[0] for name in missing}
        whole = any(
            {n for n in record.gradients if n.startswith(f"{role}.")} <= set(missing)
            for role in roles & {"actor", "critic"}
        )
        measured = (
            f"{len(missing)} of {len(record.gradients)} parameters get gradients and are in no "
            f"group of the optimizer: {some(missing)}"
        )
        yield finding_of("weights-fixed", measured, 3 if whole else 2, record.policy)
    zero = _share_without_rate(record, evidence)
    if zero >= 0.25:
        measured = f"it is 0 in {zero:.0%} of the {evidence.trainer.steps:,} planned env steps"
        yield finding_of("learning-rate-zero", measured, 3, record.policy)
    updates = list(zip(learning.ratios, learning.changed, record.learning_rates, strict=False))
    later = [(max(ratios), moved) for ratios, moved, rate in updates[1:] if rate > 0 and ratios]
    if later and all(moved <= 1e-7 and within >= 1e-3 for within, moved in later):
        measured = (
            f"within {len(later)} updates log-probabilities moved by up to {max(later)[0]:.2g}; "
            "after each update every probability is the same as before it"
        )
        yield finding_of("weights-put-back", measured, 3, record.policy)
    spread = learning.response.spread if learning.response.advantage is not None else 0.0
    open_minded = max((before for before, _ in learning.entropy), default=0.0) >= 0.05
    still = rate > 0 and max(learning.changed, default=1.0) <= 1e-5
    if still and open_minded and spread > 1e-6:
        measured = (
            f"no probability changes by more than {max(learning.changed):.1g} in "
            f"{len(learning.changed)} updates, while advantages differ by {spread:.2g}; learning "
            f"rate {rate:g}"
        )
        yield finding_of("policy-unchanged", measured, 2, record.policy)


def _share_without_rate(record: PolicyEvidence, evidence: Evidence) -> float:
    """Return the share of the planned env steps in which the learning rate is 0."""
    if min(record.learning.progress, default=1.0) >= 1:
        return 0.0
    settings, steps = evidence.trainer.learners[record.policy].settings, evidence.trainer.steps
    if not hasattr(settings, "learning_rate"):
        return 0.0
    rates = [
        scheduled(settings, "learning_rate", env_steps=int(steps * at), progress=at)
        for at in np.linspace(0.0, 1.0, 20, endpoint=False).tolist()
    ]
    return float(np.mean([rate == 0 for rate in rates]))


def _without_memory(record: PolicyEvidence, learner: Any) -> set[str]:
    """Return the recurrent weights that can have no gradient.

    If no agent decides twice in an episode, these weights only multiply the initial hidden state 0.
    """
    if not record.acted or not record.terminated:
        return set()  # no record of the deciding agents
    ended = np.concatenate(record.terminated) | np.concatenate(record.truncated)  # [T, C]
    acted = np.concatenate(record.acted)[: len(ended)]
    before = np.zeros(acted.shape[1], dtype=bool)
    for now, over in zip(acted, ended, strict=True):
        if (now & before).any():
            return set()
        before = (before | now) & ~over
    return {
        f"{name}.{weight}"
        for name, module in learner.named_modules()
        if isinstance(module, nn.RNNBase)
        for weight, _ in module.named_parameters()
        if weight.startswith("weight_hh")
    }


def some(names: list[str], limit: int = 4) -> str:
    """Join the first names and append the number of the remaining ones."""
    return ", ".join(names[:limit]) + (
        f" and {len(names) - limit} more" if len(names) > limit else ""
    )
