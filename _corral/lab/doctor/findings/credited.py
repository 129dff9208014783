"""Whom the advantages credit, as functions of rewards and values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.credit import Credit, credit
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.trainers.on_policy.records import Trajectories

__all__ = ["credited"]

TINY = 1e-4
"""Below it, advantages are of the size of Adam's epsilon."""


def credited(evidence: Evidence) -> Iterator[Finding]:
    """Yield what is wrong with the advantages, as functions of rewards and values."""
    trainer = evidence.trainer
    for found in evidence.policies.values():
        for given, terminated, truncated in zip(
            found.trajectories, found.terminated, found.truncated, strict=False
        ):
            if not given.valid.any() or _silent(found):
                continue
            told = credit(
                trainer.algorithm.advantages,
                given,
                trainer.settings,
                terminated,
                truncated,
                len(found.agents),
            )
            yield from _of_credit(told, found.policy)
            yield from _of_sight(told, given, terminated | truncated, found.policy)
            break


def _of_sight(told: Credit, given: Trajectories, ended: Array, policy: str) -> Iterator[Finding]:
    """Yield how far ahead advantages look, and how much of it is left of rewards."""
    if told.myopic and told.own:
        late = _paid_late(given, ended)
        yield Finding(
            "myopic",
            "Decisions are told of nothing that follows the next one.",
            "rewards and values of the next decision change no advantage before it"
            + (f"; {late:.0%} of decisions get no reward of their own" if late else ""),
            "a reward that comes later counts too, discounted",
            "raise gamma (0.99 looks about 100 decisions ahead), and gae_lambda",
            2 if late > 0.5 else 1,
            policy,
        )
    if told.gain is not None and 0 < told.gain < TINY:
        yield Finding(
            "advantages-tiny",
            "Advantages are so small that they drown in constants of the optimizer.",
            f"a typical difference of rewards changes an advantage by {told.gain:.2g}",
            "advantages of about 1",
            "normalize advantages, or multiply rewards in the environment",
            2,
            policy,
        )
    if told.target_flat is not None and told.target_flat >= 0.5:
        yield Finding(
            "value-clipped",
            "The critic's targets do not follow the rewards.",
            f"a typical difference of a reward does not move {told.target_flat:.0%} of the value "
            "targets",
            "targets that rise and fall with every reward",
            "do not clamp value targets; scale rewards, or normalize values",
            2,
            policy,
        )


def _paid_late(given: Trajectories, ended: Array) -> float:
    """Return the share of decisions that are not the last of an episode, and whose step has the
    commonest reward; 0 where rewards do not differ, or most decisions are the last."""
    inner = given.valid & ~ended
    if inner.sum() < 0.5 * given.valid.sum() or not np.ptp(given.reward[given.valid]) > 0:
        return 0.0
    counts = np.unique(given.reward[inner], return_counts=True)[1]
    return float(counts.max() / inner.sum())


def _silent(found: PolicyEvidence) -> bool:
    """Tell whether all advantages are the same, which is a finding of its own."""
    return all(
        np.ptp(learned.advantage[given.valid]) <= 1e-9
        for given, learned in zip(found.trajectories, found.advantages, strict=False)
        if given.valid.any()
    )


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
    elif told.foreign:
        yield Finding(
            "advantage-elsewhere",
            "A reward is credited to decisions in other environments.",
            "a reward that is made huge changes advantages in other columns",
            "a reward counts in its own environment alone",
            "let time run along the first axis, [T, C]; look for reshapes of [T, B, N] arrays",
            3,
            policy,
        )
    elif told.backwards:
        yield Finding(
            "advantage-elsewhere",
            "A reward is credited to the decisions after it, not to those before.",
            "a reward that is made huge changes the next decision's advantage, not the last one's",
            "decisions are told of what comes after them",
            "go through the rollout from its end: reversed(range(T))",
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
        return
    if told.end_as_limit:
        yield Finding(
            "end-taken-for-limit",
            "An end by the rules is bootstrapped, as if the episode went on.",
            "V of the observation after a terminated step changes advantages before it",
            "0 follows where terminated is True",
            "multiply V(next) by 1 - terminated",
            3,
            policy,
        )
    if told.from_reset:
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
