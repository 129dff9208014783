"""Findings about credit: how advantages depend on rewards and values."""

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
"""Below this size, advantages are as small as Adam's epsilon."""


def credited(evidence: Evidence) -> Iterator[Finding]:
    """Yield findings about advantages as a function of rewards and values."""
    trainer = evidence.trainer
    for record in evidence.policies.values():
        for trajectories, terminated, truncated in zip(
            record.trajectories, record.terminated, record.truncated, strict=False
        ):
            if not trajectories.valid.any() or _silent(record):
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
        yield Finding(
            "value-clipped",
            "The critic's targets do not follow the rewards.",
            f"a typical reward difference does not change {effects.target_flat:.0%} of the value "
            "targets",
            "value targets that rise and fall with every reward",
            "do not clamp value targets; scale the rewards or normalize the values",
            2,
            policy,
        )


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


def _silent(record: PolicyEvidence) -> bool:
    """Return True if all advantages are equal, which another rule reports."""
    return all(
        np.ptp(learned.advantage[trajectories.valid]) <= 1e-9
        for trajectories, learned in zip(record.trajectories, record.advantages, strict=False)
        if trajectories.valid.any()
    )


def _of_credit(effects: Credit, policy: str) -> Iterator[Finding]:
    if effects.opposite:
        yield Finding(
            "advantage-sign",
            "Advantages have the wrong sign: well-paid actions become less likely.",
            "a larger reward lowers the advantage of the decision before it",
            "a larger reward raises that advantage",
            "advantage = return - value; the loss is minimized, so it contains -advantage * "
            "log_prob",
            3,
            policy,
        )
    elif effects.foreign:
        yield Finding(
            "advantage-elsewhere",
            "A reward is credited to decisions in other environment copies.",
            "a very large test reward changes advantages in other columns",
            "a reward changes advantages in its own environment copy only",
            "keep time on the first axis, [T, C]; look for reshapes of [T, B, N] arrays",
            3,
            policy,
        )
    elif effects.backwards:
        yield Finding(
            "advantage-elsewhere",
            "A reward is credited to the decision after it, not to the decisions before it.",
            "a very large test reward changes the next decision's advantage, not the previous "
            "one's",
            "a reward changes the advantages of decisions before it",
            "iterate over the rollout from its end: reversed(range(T))",
            3,
            policy,
        )
    elif effects.own is False:
        yield Finding(
            "advantage-elsewhere",
            "A reward does not reach the decision that earned it.",
            "a very large test reward raises other decisions' advantages, or none",
            "the advantage of the decision just before the reward rises most",
            "look for shuffled or reshaped arrays: [T, B] read as [B, T], a permutation applied "
            "to one array only, advantages that are all equal",
            3,
            policy,
        )
    if effects.past_end:
        yield Finding(
            "end-ignored",
            "Rewards of the next episode are credited to decisions of the previous episode.",
            "a reward after an episode end changes advantages before it",
            "advantages stop at the end of an episode",
            "cut the trace at done = terminated | truncated",
            3,
            policy,
        )
        return
    if effects.end_as_limit:
        yield Finding(
            "end-taken-for-limit",
            "A terminated step is bootstrapped as if the episode continued.",
            "V of the observation after a terminated step changes advantages before it",
            "a next value of 0 if terminated is True",
            "multiply V(next) by 1 - terminated",
            3,
            policy,
        )
    if effects.from_reset:
        yield Finding(
            "bootstraps-from-reset",
            "Advantages at an episode end bootstrap from the next episode's first observation.",
            "V of the observation after a reset changes advantages before it",
            "V(final observation) if truncated, 0 if terminated",
            "bootstrap from the final observation, which autoreset replaces",
            3,
            policy,
        )
    elif effects.limit is False and effects.own:
        yield Finding(
            "limit-taken-for-end",
            "A time limit is treated as a termination: the value after it counts as 0.",
            "V of the final observation at a time limit changes no advantage",
            "reward + gamma V(final observation) if truncated",
            "bootstrap truncated steps; set V(next) to 0 only if terminated",
            3,
            policy,
        )
