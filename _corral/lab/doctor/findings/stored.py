"""Findings about the trainer's record: stored, played and reported data against the environment."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined
from corral.lab.doctor.findings.texts import finding_of

__all__ = [
    "not_finite",
    "played_actions",
    "reported_returns",
    "stored_chances",
    "stored_masks",
    "stored_obs",
    "stored_rewards",
]


# --- Invalid numbers -----------------------------------------------------------------------------


def not_finite(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations or rewards that are not finite."""
    if not evidence.env.not_finite or not first_policy(record, evidence):
        return None
    quantity = "reward" if evidence.env.not_finite[0].startswith("reward") else "observation"
    return Finding(
        f"{quantity}-not-finite",
        f"The environment returns {quantity}s that are not finite.",
        evidence.env.not_finite[0],
        "only finite numbers",
        "look for a division by 0, a logarithm of 0 or an empty mean in the environment or in a "
        "wrapper",
        3,
    )


def first_policy(record: PolicyEvidence, evidence: Evidence) -> bool:
    """Return True for the first policy: rules about all policies report once."""
    return record is next(iter(evidence.policies.values()))


# --- Masks and observations ----------------------------------------------------------------------


def stored_masks(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report stored masks that differ from the environment's masks."""
    masks, kept = joined(record.masks)
    acted = np.concatenate(record.acted) if record.acted else np.zeros((0, 0), bool)
    if not masks.size:
        return None
    wrong = (masks != kept).any(axis=-1) & acted
    if not wrong.any():
        return None
    how = "another mask"
    if kept[wrong].all():
        how = "a mask that allows every action"
    elif _of_another(masks, kept, wrong, len(record.agents)):
        how = "the mask of another agent"
    elif _late(record.masks, acted):
        how = "the mask of the previous step"
    return Finding(
        "mask-lost-in-rollout",
        "The rollout does not contain the masks that the environment returned.",
        f"{wrong.sum() / acted.sum():.1%} of decisions were stored with {how}",
        "every mask exactly as the environment returned it",
        "store observations[agent]['action_mask'] of the step of the decision, and use it "
        "both for sampling and in the loss",
        3,
        record.policy,
    )


def stored_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report stored observations that differ: vectors, images and agent ids."""
    obs, kept = joined(record.obs)
    playing = record.playing
    acted = np.concatenate(record.acted) if record.acted else np.zeros((0, 0), bool)
    wrong = ~np.isclose(obs, kept, atol=1e-5, equal_nan=True) & acted[..., None]
    images = np.array([item for item in playing.images_wrong if len(item)])  # [rollouts, images, 2]
    pictures = bool(images.size and images[..., 0].any())
    if not wrong.any() and not pictures and not playing.identity_wrong:
        return None
    cause, late, another, blank = "observation-changed", False, False, False
    columns = np.flatnonzero(wrong.any(axis=(0, 1)))
    if wrong.any():
        rows = wrong.any(axis=-1)
        measured = (
            f"{len(columns)} of {obs.shape[-1]} columns differ from the environment's, in "
            f"{rows.sum() / acted.sum():.0%} of decisions"
        )
        late = _late(record.obs, acted)
        another = not late and _of_another(obs, kept, rows, len(record.agents))
        blank = not kept[..., columns].any()
    elif pictures:
        share, stale = images.reshape(-1, images.shape[-2], 2).mean(axis=0).max(axis=0)
        measured = f"an image differs from the environment's in {share:.0%} of decisions"
        late = bool(stale >= 0.9 * share)
    else:
        measured = f"{playing.identity_wrong:.0%} of decisions are stored with another agent's id"
        cause = "identity-changed"
    if late:
        cause = "observation-late"
        measured += ": the stored ones are those of an earlier step"
    elif another:
        cause = "observation-of-another"
        measured += ": the stored ones are another agent's"
    elif blank:
        measured += ": they hold 0"
    exact = late or another or blank or cause == "identity-changed"
    return finding_of(cause, measured, 3 if exact else 2, record.policy)


def _late(pairs: list[tuple[Array, Array]], acted: Array) -> bool:
    """Return True if wrong entries are the environment's data from 1 to 4 steps before."""
    for lag in range(1, 5):
        wrong = stale = 0
        for original, kept in pairs:
            if len(original) <= lag:
                continue
            differs = ~np.isclose(original[lag:], kept[lag:], atol=1e-5).all(axis=-1)
            before = np.isclose(original[:-lag], kept[lag:], atol=1e-5).all(axis=-1)
            wrong += int(differs.sum())
            stale += int((differs & before).sum())
        if wrong and stale >= 0.9 * wrong:
            return True
    return False


def _of_another(original: Array, kept: Array, wrong: Array, agents: int) -> bool:
    """Return True if the wrong entries, bool [T, C], are another agent's observation.

    The other agent is in the same environment copy.
    """
    if agents < 2:
        return False
    shape = (len(original), -1, agents, original.shape[-1])
    original_by_agent, stored_by_agent, bad = (
        original.reshape(shape),
        kept.reshape(shape),
        wrong.reshape(shape[:3]),
    )
    same = [
        np.isclose(np.roll(original_by_agent, k, axis=2), stored_by_agent).all(axis=-1)
        for k in range(1, agents)
    ]
    return bool((np.any(same, axis=0) & bad).sum() >= 0.9 * bad.sum())


# --- Actions -------------------------------------------------------------------------------------


def played_actions(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report played actions that differ from the stored ones."""
    if not record.playing.played:
        return None
    played, stored = (np.concatenate(item) for item in zip(*record.playing.played, strict=True))
    pairs = zip(record.acted, record.playing.played, strict=False)
    acted = np.concatenate([acts[: len(actions)] for acts, (actions, _) in pairs])
    differs = ~np.isclose(played, stored).reshape(*played.shape[:3], -1).all(axis=-1)
    differs &= acted.reshape(differs.shape)
    if not differs.any():
        return None
    agents, of = len(record.agents), ""
    for k in range(1, agents):
        same = np.isclose(np.roll(stored, k, axis=2), played).reshape(*differs.shape, -1)
        if same.all(axis=-1)[differs].mean() > 0.9:
            of = f"{record.agents[k % agents]} plays the action that {record.agents[0]} chose"
    measured = f"{differs.sum() / acted.sum():.0%} of actions differ" + (f": {of}" if of else "")
    exact = of or played.dtype.kind in "iu"  # numbers may be clipped on purpose
    cause = "actions-permuted" if of else "actions-changed"
    return finding_of(cause, measured, 3 if exact else 2, record.policy)


def stored_chances(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Compare stored log-probabilities with those that the policy gives to stored actions."""
    if not record.playing.chances or not record.actions:
        return None
    tables, stored = (np.concatenate(item) for item in zip(*record.playing.chances, strict=True))
    actions = np.concatenate(record.actions[: len(record.playing.chances)]).reshape(stored.shape)
    acted = np.concatenate(record.acted[: len(record.playing.chances)]).reshape(stored.shape)

    def of(chosen: Array) -> Array:
        log_probs: Array = np.take_along_axis(tables, chosen[..., None], axis=-1)[..., 0]
        with np.errstate(invalid="ignore"):
            off: Array = log_probs - stored
        return off

    off = np.abs(np.where(acted, of(actions), 0.0))
    wrong = ~(off <= 1e-3)
    if not wrong.any():
        return None
    agents = len(record.agents)
    swapped = next(
        (
            k
            for k in range(1, agents)
            if (np.abs(of(np.roll(actions, k, axis=2)))[wrong] <= 1e-3).mean() > 0.95
        ),
        None,
    )
    measured = (
        f"stored log-probabilities of {wrong.sum() / acted.sum():.0%} of decisions are off by up "
        f"to {float(np.nanmax(np.where(np.isfinite(off), off, np.nan))):.3g}"
    )
    cause = "probability-of-another" if swapped is None else "actions-permuted"
    return finding_of(cause, measured, 3, record.policy)


# --- Rewards and returns -------------------------------------------------------------------------


def stored_rewards(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report rewards that change between the environment and the advantages."""
    rewards, kept = joined(record.rewards)
    learned = [trajectories.reward for trajectories in record.trajectories]
    for values in (kept, np.concatenate(learned) if learned else kept):
        original = rewards[: len(values)]
        if original.shape == values.shape and not np.allclose(original, values, atol=1e-6):
            return _other_rewards(original, values, record, evidence)
    return None


def _other_rewards(
    original: Array, kept: Array, record: PolicyEvidence, evidence: Evidence
) -> Finding | None:
    all_rewards = np.concatenate(record.all_rewards)[: len(kept)]  # [T, B, N]
    agents = evidence.trainer.rules.agents
    columns = [agents.index(agent) for agent in record.agents]
    shape = (len(kept), all_rewards.shape[1], len(columns))
    by_agent = kept.reshape(shape)
    of = [
        f"{agents[column]} gets the reward of {agents[other]}"
        for j, column in enumerate(columns)
        for other in range(len(agents))
        if other != column
        and np.allclose(by_agent[..., j], all_rewards[..., other], atol=1e-6)
        and np.ptp(by_agent[..., j]) > 0
    ]
    cause, certainty = ("reward-of-another", 3) if of else ("reward-changed", 2)
    mean = all_rewards.mean(axis=-1, keepdims=True)
    scale = _ratio(original, kept)
    if scale is not None:
        of, certainty = [f"rewards are multiplied by {scale:.4g}"], 3 if scale <= 0 else 1
        cause = "reward-changed"
    elif any(np.allclose(by_agent, mean * times, atol=1e-6) for times in (1, len(agents))):
        of, cause, certainty = ["each agent gets the reward of all agents"], "reward-shared", 1
    elif (
        not of
        and np.isclose(kept[1:], original[:-1], atol=1e-6).mean() > 0.95
        and np.ptp(original) > 0
    ):
        of, cause, certainty = ["each step gets the reward of the step before"], "reward-late", 3
    return Finding(
        cause,
        "Agents learn from other rewards than the environment's.",
        "; ".join(of[:4])
        or f"{np.mean(~np.isclose(original, kept, atol=1e-6)):.0%} of the stored rewards differ",
        "rewards[agent] of the environment, for the same agent",
        "trace one reward from step() to the advantage; index by agent name, not by the "
        "order of a dict",
        certainty,
        record.policy,
    )


def _ratio(original: Array, kept: Array) -> float | None:
    """Return c if ``kept`` equals c times ``said``, else None."""
    at = np.abs(original) > 1e-9
    if not at.any():
        return None
    ratio = float(np.median(kept[at] / original[at]))
    return ratio if np.allclose(kept, ratio * original, rtol=1e-3, atol=1e-9) else None


def reported_returns(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Compare the reported returns and mean rewards with the environment's rewards."""
    if not first_policy(record, evidence):
        return None
    measured = ""
    pairs_of = {"return": evidence.returns, "mean reward": evidence.env.reported}
    if any(stored_rewards(policy, evidence) for policy in evidence.policies.values()):
        del pairs_of["mean reward"]  # another finding reports the stored rewards
    for quantity, pairs in pairs_of.items():
        for actual, report in pairs:
            for agent, value in actual.items():
                reported = report.get(agent, np.nan)
                if not measured and not abs(reported - value) <= 1e-4 * max(1.0, abs(value)):
                    measured = (
                        f"{agent}: reported {quantity} {reported:.4g}, its rewards {value:.4g}"
                    )
                    matches = [
                        other
                        for other, other_value in actual.items()
                        if other != agent
                        and abs(other_value - reported) <= 1e-6 * max(1, abs(other_value))
                    ]
                    measured += f" (equal to that of {matches[0]})" if matches else ""
    if not measured and evidence.env.missing:
        measured = f"{evidence.env.missing} more episodes ended than were reported"
    if not measured:
        return None
    return Finding(
        "returns-leak",
        "The reported returns are not the returns of the agents.",
        measured,
        "the sum of each agent's own rewards over whole episodes",
        "sum rewards per agent, and reset a sum when the episode of that environment copy ends, "
        "not when a rollout ends",
        3,
    )
