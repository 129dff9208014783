"""Whom the advantages credit, as functions of rewards and values."""

from __future__ import annotations

from collections.abc import Iterator

from corral.trainers.doctor.credit import Credit, credit
from corral.trainers.doctor.evidence import Evidence
from corral.trainers.doctor.findings.finding import Finding

__all__ = ["credited"]


def credited(evidence: Evidence) -> Iterator[Finding]:
    """Yield what is wrong with the advantages, as functions of rewards and values."""
    trainer = evidence.trainer
    for found in evidence.policies.values():
        for given, terminated, truncated in zip(
            found.trajectories, found.terminated, found.truncated, strict=False
        ):
            if not given.valid.any():
                continue
            told = credit(
                trainer.algorithm.advantages, given, trainer.settings, terminated, truncated
            )
            yield from _of_credit(told, found.policy)
            break


def _of_credit(told: Credit, policy: str) -> Iterator[Finding]:
    if told.opposite:
        yield Finding(
            "advantage-sign",
            "Advantages have the wrong sign: what pays is made rarer.",
            "a larger reward lowers the advantage of the decision before it",
            "a larger reward raises it",
            "advantage = return - value; the loss is minimized, so it has -advantage * log_prob",
            3,
            policy,
        )
    elif told.own is False:
        yield Finding(
            "advantage-elsewhere",
            "A reward does not reach the decision that earned it.",
            "a reward that is made huge raises other decisions' advantages, or none",
            "the advantage of the decision that it followed rises most",
            "look for shuffled or reshaped arrays: [T, B] read as [B, T], a permutation applied "
            "to one array alone, advantages that are all the same",
            3,
            policy,
        )
    if told.past_end:
        yield Finding(
            "end-ignored",
            "Rewards of the next episode are credited to decisions before the end.",
            "a reward after an end changes advantages before it",
            "advantages stop where an episode ends",
            "cut the trace where done = terminated | truncated",
            3,
            policy,
        )
    elif told.from_reset:
        yield Finding(
            "bootstraps-from-reset",
            "The value of the next episode's first observation counts as what follows an end.",
            "V of the observation after a reset changes advantages before it",
            "V(final observation) where truncated, 0 where terminated",
            "bootstrap from the final observation, which autoreset replaces",
            3,
            policy,
        )
    elif told.limit is False and told.own:
        yield Finding(
            "limit-taken-for-end",
            "A time limit is taken for an end: what would follow counts nothing.",
            "V of the last observation before a time limit changes no advantage",
            "reward + gamma V(final observation) where truncated",
            "bootstrap where truncated; let only terminated set V(next) to 0",
            3,
            policy,
        )
