"""What the environment said, beside what the trainer stored of it."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.trainers.doctor.evidence import Evidence, PolicyEvidence
from corral.trainers.doctor.findings.finding import Finding, joined

__all__ = ["played_illegally", "reported_returns", "stored_masks", "stored_obs", "stored_rewards"]


def stored_masks(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, kept = joined(found.masks)
    acted = np.concatenate(found.acted) if found.acted else np.zeros((0, 0), bool)
    if not said.size:
        return None
    wrong = (said != kept).any(axis=-1) & acted
    if not wrong.any():
        return None
    return Finding(
        "mask-lost-in-rollout",
        "The rollout does not hold the masks that the environment gave.",
        f"{wrong.mean():.1%} of decisions were stored with another mask",
        "every mask as the environment gave it",
        "store observations[agent]['action_mask'] of the moment that is decided on, and hand it "
        "to sampling and to the loss alike",
        3,
        found.policy,
    )


def played_illegally(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if evidence.error_kind != "IllegalActionError":
        return None
    return Finding(
        "mask-ignored-in-play",
        "The team plays actions that the mask forbids.",
        evidence.error,
        "no illegal action",
        "sample from the masked distribution: logits of illegal actions are -inf before the "
        "softmax (corral.adapters.masked_distribution)",
        3,
        found.policy,
    )


def stored_obs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, kept = joined(found.obs)
    if not said.size:
        return None
    wrong = ~np.isclose(said, kept, atol=1e-5, equal_nan=True)
    if not wrong.any():
        return None
    late = all(len(s) > 1 and np.allclose(s[:-1], k[1:], atol=1e-5) for s, k in found.obs)
    columns = np.flatnonzero(wrong.any(axis=(0, 1)))
    return Finding(
        "observation-late" if late else "observation-changed",
        "The networks get the observation of the step before."
        if late
        else "The networks do not get what the environment shows.",
        "step t is decided on the observation of step t - 1"
        if late
        else f"{len(columns)} of {said.shape[-1]} columns differ from the environment's, in "
        f"{wrong.any(axis=-1).mean():.0%} of decisions",
        "the observation of the moment that is decided on",
        "store the observation before the action is chosen, and do not let a buffer be written "
        "over (copy arrays that an environment uses again)",
        3,
        found.policy,
    )


def stored_rewards(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, kept = joined(found.rewards)
    if not said.size or np.allclose(said, kept, atol=1e-6):
        return None
    everybody = np.concatenate(found.everybody)  # [T, B, N]
    agents = evidence.trainer.rules.agents
    own = [agents.index(agent) for agent in found.agents]
    shape = (len(kept), everybody.shape[1], len(own))
    theirs = kept.reshape(shape)
    of = [
        f"{agents[mine]} is paid what {agents[other]} gets"
        for j, mine in enumerate(own)
        for other in range(len(agents))
        if other != mine
        and np.allclose(theirs[..., j], everybody[..., other], atol=1e-6)
        and np.ptp(theirs[..., j]) > 0
    ]
    mean = everybody.mean(axis=-1, keepdims=True)
    if not of and np.allclose(theirs, np.broadcast_to(mean, shape), atol=1e-6):
        of = ["each agent is paid the mean of all agents"]
    scale = _ratio(said, kept)
    if not of and scale is not None:
        of = [f"rewards are multiplied by {scale:.4g}"]
    return Finding(
        "reward-of-another" if of and scale is None else "reward-changed",
        "Agents learn from other rewards than the environment gives them.",
        "; ".join(of)
        or f"{np.mean(~np.isclose(said, kept, atol=1e-6)):.0%} of the stored rewards differ",
        "rewards[agent] of the environment, each for its own agent",
        "follow one reward from step() to the advantage; index by the agent's name, not by the "
        "order of a dict",
        3,
        found.policy,
    )


def _ratio(said: Array, kept: Array) -> float | None:
    """Return c where ``kept`` is c times ``said``; None: it is not."""
    at = np.abs(said) > 1e-9
    if not at.any():
        return None
    ratio = float(np.median(kept[at] / said[at]))
    return ratio if np.allclose(kept, ratio * said, rtol=1e-3, atol=1e-9) else None


def reported_returns(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if found is not next(iter(evidence.policies.values())):
        return None  # once
    wrong: dict[str, tuple[float, float]] = {}
    for said, told in evidence.returns:
        for agent, value in said.items():
            if abs(told.get(agent, np.nan) - value) > 1e-4 * max(1.0, abs(value)):
                wrong.setdefault(agent, (value, told.get(agent, np.nan)))
    if not wrong:
        return None
    agent, (value, reported) = next(iter(wrong.items()))
    return Finding(
        "returns-leak",
        "The returns that are reported are not those of the episodes.",
        f"{agent}: reported {reported:.4g}, the rewards of that episode sum to {value:.4g}",
        "the sum of each agent's own rewards, whatever the rollouts cut",
        "add up rewards by agent, and reset a sum when that environment's episode ends, not when "
        "a rollout does",
        3,
    )
