"""Findings about credit: how advantages depend on rewards and values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.credit import Credit, credit
from corral.lab.doctor.evidence.record import Evidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.trainers.on_policy.records import Trajectories

__all__ = ["credited"]

TINY = 1e-4
"""Below this size, advantages are as small as Adam's epsilon."""


def credited(evidence: Evidence) -> Iterator[Finding]:
    """Yield findings about advantages as a function of rewards and values."""
    trainer = evidence.trainer
    for record in evidence.policies.values():
        for trajectories, terminated, truncated in zip(
            record.trajectories, record.terminated, record.truncated, strict=False
        ):
            if not trajectories.valid.any() or not record.advantages_differ:
                continue
            effects = credit(
                trainer.algorithm.advantages,
                trajectories,
                trainer.settings,
                terminated,
                truncated,
                len(record.agents),
            )
            yield from _of_credit(effects, record.policy)
            yield from _of_sight(effects, trajectories, terminated | truncated, record.policy)
            break


def _of_sight(
    effects: Credit, trajectories: Trajectories, ended: Array, policy: str
) -> Iterator[Finding]:
    """Yield findings about the horizon of the advantages and their sensitivity to rewards."""
    if effects.myopic and effects.own:
        late = _paid_late(trajectories, ended)
        yield Finding(
            "myopic",
            "Advantages ignore all rewards and values after the decision's own step.",
            "rewards and values of the next decision change no advantage before it"
            + (f"; {late:.0%} of decisions get no reward of their own" if late else ""),
            "later rewards count too, discounted",
            "raise gamma (0.99 looks about 100 decisions ahead) and gae_lambda",
            2 if late > 0.5 else 1,
            policy,
        )
    if effects.gain is not None and 0 < effects.gain < TINY:
        yield Finding(
            "advantages-tiny",
            "Advantages are so small that the optimizer's epsilon dominates them.",
            f"a typical reward difference changes an advantage by {effects.gain:.2g}",
            "advantages of about 1",
            "normalize advantages, or multiply rewards in the environment",
            2,
            policy,
        )
    if effects.target_flat is not None and effects.target_flat >= 0.5:
        measured = (
            f"a typical reward difference does not change {effects.target_flat:.0%} of the value "
            "targets"
        )
        yield finding_of("value-clipped", measured, 2, policy)


def _paid_late(trajectories: Trajectories, ended: Array) -> float:
    """Return the share of non-final decisions with the most common reward.

    Return 0 if rewards do not differ or most decisions are the last of an episode.
    """
    inner = trajectories.valid & ~ended
    if (
        inner.sum() < 0.5 * trajectories.valid.sum()
        or not np.ptp(trajectories.reward[trajectories.valid]) > 0
    ):
        return 0.0
    counts = np.unique(trajectories.reward[inner], return_counts=True)[1]
    return float(counts.max() / inner.sum())


def _of_credit(effects: Credit, policy: str) -> Iterator[Finding]:
    """Yield findings about the decisions and episodes that a reward or value is credited to."""
    if effects.opposite:
        measured = "a larger reward lowers the advantage of the decision before it"
        yield finding_of("advantage-sign", measured, 3, policy)
    elif effects.foreign and effects.own:
        measured = "a very large test reward changes advantages in other environment copies too"
        yield finding_of("advantages-mixed", measured, 3, policy)
    elif effects.foreign or effects.backwards or effects.own is False:
        measured = "a very large test reward changes " + (
            "advantages in other environment copies"
            if effects.foreign
            else "the next decision's advantage, not the previous one's"
            if effects.backwards
            else "other decisions' advantages more than that of its own, or none"
        )
        yield finding_of("advantage-elsewhere", measured, 3, policy)
    if effects.value_in_target:
        measured = "a larger value of a decision raises its own value target"
        yield finding_of("targets-follow-values", measured, 3, policy)
    if effects.past_end:
        measured = "a reward after an episode end changes advantages before it"
        yield finding_of("end-ignored", measured, 3, policy)
        return
    if effects.end_as_limit:
        measured = "V of the observation after a terminated step changes advantages before it"
        yield finding_of("end-taken-for-limit", measured, 3, policy)
    if effects.from_reset:
        measured = "V of the observation after a reset changes advantages before it"
        yield finding_of("bootstraps-from-reset", measured, 3, policy)
    elif effects.limit is False and effects.own:
        measured = "V of the final observation at a time limit changes no advantage"
        yield finding_of("limit-taken-for-end", measured, 3, policy)
