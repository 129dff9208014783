"""Findings about the effects of actions, measured in paired replays of the environment.

The replays have the same seed and the same actions, except in one step: see
``evidence.environment``.
"""

from __future__ import annotations

import numpy as np

from corral.lab.doctor.evidence.environment import HORIZON
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.stored import first_policy
from corral.lab.doctor.findings.texts import finding_of

__all__ = ["idle_actions", "misdirected_rewards", "permuted_actions", "unearned_rewards"]


def permuted_actions(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions that affect another agent instead of the agent that chose them."""
    twins = evidence.env.twins
    if twins is None or not first_policy(record, evidence) or len(twins.agents) < 2:
        return None
    if (twins.moments < 16).any():
        return None
    share = twins.reached / twins.moments[:, None]
    to = share.argmax(axis=1)
    rest = share.copy()
    rest[np.arange(len(to)), to] = 0.0
    if (
        len(set(to.tolist())) < len(to)
        or (to == np.arange(len(to))).any()
        or share.max(axis=1).min() < 0.5
        or rest.max() > 0.02
    ):
        return None
    if not twins.shown[np.arange(len(to)), to].any():
        return None  # rewards alone are another agent's, see below
    measured = "; ".join(
        f"changing the action of {twins.agents[i]} changed the observation or reward of "
        f"{twins.agents[j]} in {share[i, j]:.0%} of {twins.moments[i]:.0f} replays, its own in "
        f"{share[i, i]:.0%}"
        for i, j in enumerate(to[:3])
    )
    return finding_of("actions-permuted", measured, 2)


def misdirected_rewards(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions that change another agent's reward and hardly the agent's own."""
    twins = evidence.env.twins
    if twins is None or not first_policy(record, evidence) or (twins.moments < 32).all():
        return None
    share = twins.paid / np.maximum(twins.moments, 1)[:, None]
    own_share = np.diag(share)
    largest = (share - np.diag(own_share)).max(axis=1)
    wrong = (twins.moments >= 32) & (largest >= 0.2) & (own_share <= 0.25 * largest)
    if not wrong.any():
        return None
    payees = np.where(np.eye(len(share), dtype=bool), -1, share).argmax(axis=1)
    measured = "; ".join(
        f"changing the action of {twins.agents[i]} changed the reward of "
        f"{twins.agents[payees[i]]} in {largest[i]:.0%} of {twins.moments[i]:.0f} replays, its own "
        f"in {own_share[i]:.0%}"
        for i in np.flatnonzero(wrong)[:3]
    )
    return finding_of("reward-of-another", measured, 1)  # a game may be meant that way


def unearned_rewards(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report rewards that differ but that no action changes."""
    twins = evidence.env.twins
    if twins is None or not first_policy(record, evidence) or twins.cases < 32 or twins.earned:
        return None
    rewards = record.all_rewards
    if not rewards or np.ptp(np.concatenate(rewards)) <= 1e-9:
        return None
    return Finding(
        "reward-unearned",
        "Rewards do not depend on actions.",
        f"in {twins.cases} paired replays, other actions of all agents in one step changed no "
        f"reward in that step and the next {HORIZON}, or to the episode's end",
        "rewards that depend on actions, unless they come later",
        "trace a reward from an action to step(): look for noise, and for a wrapper that replaces "
        "rewards; corral check ENV --learnable",
        1,
    )


def idle_actions(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions of every agent that mostly change nothing at all."""
    twins = evidence.env.twins
    if twins is None or not first_policy(record, evidence) or (twins.moments < 16).any():
        return None
    share = twins.idle / twins.moments
    if not twins.earned or share.min() < 0.5:
        return None
    return Finding(
        "actions-idle",
        "Most actions have no effect.",
        "; ".join(
            f"another action of {agent} changed no observation, mask or reward of any agent in "
            f"{idle:.0%} of {moments:.0f} replays"
            for agent, idle, moments in list(zip(twins.agents, share, twins.moments, strict=True))[
                :3
            ]
        ),
        "actions that change something in most states",
        "look for code that replaces or repeats actions before step(): sticky actions, a "
        "random share, a clipped range",
        1,
    )
