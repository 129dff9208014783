"""Findings about the trainer's record: stored, played and reported data against the environment."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined

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


def not_finite(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations or rewards that are not finite."""
    if not evidence.said.not_finite or not first_policy(found, evidence):
        return None
    what = "reward" if evidence.said.not_finite[0].startswith("reward") else "observation"
    return Finding(
        f"{what}-not-finite",
        f"The environment returns {what}s that are not finite.",
        evidence.said.not_finite[0],
        "only finite numbers",
        "look for a division by 0, a logarithm of 0 or an empty mean in the environment or in a "
        "wrapper",
        3,
    )


def first_policy(found: PolicyEvidence, evidence: Evidence) -> bool:
    """Return True for the first policy: rules about all policies report once."""
    return found is next(iter(evidence.policies.values()))


# --- Masks and observations ----------------------------------------------------------------------


def stored_masks(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report stored masks that differ from the environment's masks."""
    said, kept = joined(found.masks)
    acted = np.concatenate(found.acted) if found.acted else np.zeros((0, 0), bool)
    if not said.size:
        return None
    wrong = (said != kept).any(axis=-1) & acted
    if not wrong.any():
        return None
    how = "another mask"
    if kept[wrong].all():
        how = "a mask that allows every action"
    elif _of_another(said, kept, wrong, len(found.agents)):
        how = "the mask of another agent"
    elif _late(found.masks, acted):
        how = "the mask of the previous step"
    return Finding(
        "mask-lost-in-rollout",
        "The rollout does not contain the masks that the environment returned.",
        f"{wrong.sum() / acted.sum():.1%} of decisions were stored with {how}",
        "every mask exactly as the environment returned it",
        "store observations[agent]['action_mask'] of the step of the decision, and use it "
        "both for sampling and in the loss",
        3,
        found.policy,
    )


def stored_obs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report stored observations that differ: vectors, images and agent ids."""
    said, kept = joined(found.obs)
    playing = found.playing
    acted = np.concatenate(found.acted) if found.acted else np.zeros((0, 0), bool)
    wrong = ~np.isclose(said, kept, atol=1e-5, equal_nan=True) & acted[..., None]
    images = np.array([each for each in playing.images_wrong if len(each)])  # [rollouts, images, 2]
    pictures = bool(images.size and images[..., 0].any())
    if not wrong.any() and not pictures and not playing.identity_wrong:
        return None
    cause, title = "observation-changed", "The networks do not get the environment's observation."
    columns = np.flatnonzero(wrong.any(axis=(0, 1)))
    if wrong.any():
        rows = wrong.any(axis=-1)
        measured = (
            f"{len(columns)} of {said.shape[-1]} columns differ from the environment's, in "
            f"{rows.sum() / acted.sum():.0%} of decisions"
        )
        late = _late(found.obs, acted)
        another = not late and _of_another(said, kept, rows, len(found.agents))
        blank = not kept[..., columns].any()
    elif pictures:
        share, stale = images.reshape(-1, images.shape[-2], 2).mean(axis=0).max(axis=0)
        measured = f"an image differs from the environment's in {share:.0%} of decisions"
        late, another, blank = bool(stale >= 0.9 * share), False, False
    else:
        measured = f"{playing.identity_wrong:.0%} of decisions are stored with another agent's id"
        late, another, blank = False, False, False
        title = "The policy gets the wrong agent id."
        cause = "identity-changed"
    if late:
        cause, title = "observation-late", "The networks get the observation of an earlier step."
        measured += ": they hold an earlier observation"
    elif another:
        cause = "observation-of-another"
        title = "Agents decide on another agent's observation."
        measured += ": they hold another agent's"
    elif blank:
        measured += ": they hold 0"
    return Finding(
        cause,
        title,
        measured,
        "the observation of the deciding agent at the current step",
        "store the observation before choosing the action, index by agent name, and copy arrays "
        "that the environment reuses",
        3,
        found.policy,
    )


def _late(pairs: list[tuple[Array, Array]], acted: Array) -> bool:
    """Return True if wrong entries are the environment's data from 1 to 4 steps before."""
    for lag in range(1, 5):
        wrong = stale = 0
        for said, kept in pairs:
            if len(said) <= lag:
                continue
            differs = ~np.isclose(said[lag:], kept[lag:], atol=1e-5).all(axis=-1)
            before = np.isclose(said[:-lag], kept[lag:], atol=1e-5).all(axis=-1)
            wrong += int(differs.sum())
            stale += int((differs & before).sum())
        if wrong and stale >= 0.9 * wrong:
            return True
    return False


def _of_another(said: Array, kept: Array, wrong: Array, agents: int) -> bool:
    """Return True if the wrong entries, bool [T, C], are another agent's observation.

    The other agent is in the same environment copy.
    """
    if agents < 2:
        return False
    shape = (len(said), -1, agents, said.shape[-1])
    theirs, own, bad = said.reshape(shape), kept.reshape(shape), wrong.reshape(shape[:3])
    same = [np.isclose(np.roll(theirs, k, axis=2), own).all(axis=-1) for k in range(1, agents)]
    return bool((np.any(same, axis=0) & bad).sum() >= 0.9 * bad.sum())


# --- Actions -------------------------------------------------------------------------------------


def played_actions(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report played actions that differ from the stored ones."""
    if not found.playing.played:
        return None
    played, stored = (np.concatenate(each) for each in zip(*found.playing.played, strict=True))
    pairs = zip(found.acted, found.playing.played, strict=False)
    acted = np.concatenate([own[: len(told)] for own, (told, _) in pairs])
    differs = ~np.isclose(played, stored).reshape(*played.shape[:3], -1).all(axis=-1)
    differs &= acted.reshape(differs.shape)
    if not differs.any():
        return None
    agents, of = len(found.agents), ""
    for k in range(1, agents):
        same = np.isclose(np.roll(stored, k, axis=2), played).reshape(*differs.shape, -1)
        if same.all(axis=-1)[differs].mean() > 0.9:
            of = f"{found.agents[k % agents]} plays the action that {found.agents[0]} chose"
    return Finding(
        "actions-permuted" if of else "actions-changed",
        "The environment gets other actions than the ones stored for learning.",
        f"{differs.sum() / acted.sum():.0%} of actions differ" + (f": {of}" if of else ""),
        "stored actions equal to played actions, agent by agent",
        "assign actions by agent name, not by the order of a list; store the actions that are "
        "played, after clipping or repair",
        3,
        found.policy,
    )


def stored_chances(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Compare stored log-probabilities with those that the policy gives to stored actions."""
    if not found.playing.chances or not found.actions:
        return None
    tables, stored = (np.concatenate(each) for each in zip(*found.playing.chances, strict=True))
    actions = np.concatenate(found.actions[: len(found.playing.chances)]).reshape(stored.shape)
    acted = np.concatenate(found.acted[: len(found.playing.chances)]).reshape(stored.shape)

    def of(chosen: Array) -> Array:
        told: Array = np.take_along_axis(tables, chosen[..., None], axis=-1)[..., 0]
        with np.errstate(invalid="ignore"):
            off: Array = told - stored
        return off

    off = np.abs(np.where(acted, of(actions), 0.0))
    wrong = ~(off <= 1e-3)
    if not wrong.any():
        return None
    agents = len(found.agents)
    swapped = next(
        (
            k
            for k in range(1, agents)
            if (np.abs(of(np.roll(actions, k, axis=2)))[wrong] <= 1e-3).mean() > 0.95
        ),
        None,
    )
    return Finding(
        "probability-of-another" if swapped is None else "actions-permuted",
        "Stored probabilities do not belong to the actions stored with them."
        if swapped is None
        else "Each agent gets the action that another agent chose.",
        f"{wrong.sum() / acted.sum():.0%} of decisions; off by up to "
        f"{float(np.nanmax(np.where(np.isfinite(off), off, np.nan))):.3g} in the log-probability",
        "log pi(action | observation, mask) of the stored action, from the policy that played",
        "store the action and log-probability of one sample of one agent, from the masked "
        "distribution",
        3,
        found.policy,
    )


# --- Rewards and returns -------------------------------------------------------------------------


def stored_rewards(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report rewards that change between the environment and the advantages."""
    said, kept = joined(found.rewards)
    learned = [given.reward for given in found.trajectories]
    for values in (kept, np.concatenate(learned) if learned else kept):
        own = said[: len(values)]
        if own.shape == values.shape and not np.allclose(own, values, atol=1e-6):
            return _other_rewards(own, values, found, evidence)
    return None


def _other_rewards(
    said: Array, kept: Array, found: PolicyEvidence, evidence: Evidence
) -> Finding | None:
    everybody = np.concatenate(found.everybody)[: len(kept)]  # [T, B, N]
    agents = evidence.trainer.rules.agents
    own = [agents.index(agent) for agent in found.agents]
    shape = (len(kept), everybody.shape[1], len(own))
    theirs = kept.reshape(shape)
    of = [
        f"{agents[mine]} gets the reward of {agents[other]}"
        for j, mine in enumerate(own)
        for other in range(len(agents))
        if other != mine
        and np.allclose(theirs[..., j], everybody[..., other], atol=1e-6)
        and np.ptp(theirs[..., j]) > 0
    ]
    cause, certainty = ("reward-of-another", 3) if of else ("reward-changed", 2)
    mean = everybody.mean(axis=-1, keepdims=True)
    scale = _ratio(said, kept)
    if scale is not None:
        of, certainty = [f"rewards are multiplied by {scale:.4g}"], 3 if scale <= 0 else 1
        cause = "reward-changed"
    elif any(np.allclose(theirs, mean * times, atol=1e-6) for times in (1, len(agents))):
        of, cause, certainty = ["each agent gets the reward of all agents"], "reward-shared", 1
    elif not of and np.isclose(kept[1:], said[:-1], atol=1e-6).mean() > 0.95 and np.ptp(said) > 0:
        of, cause, certainty = ["each step gets the reward of the step before"], "reward-late", 3
    return Finding(
        cause,
        "Agents learn from other rewards than the environment's.",
        "; ".join(of[:4])
        or f"{np.mean(~np.isclose(said, kept, atol=1e-6)):.0%} of the stored rewards differ",
        "rewards[agent] of the environment, for the same agent",
        "trace one reward from step() to the advantage; index by agent name, not by the "
        "order of a dict",
        certainty,
        found.policy,
    )


def _ratio(said: Array, kept: Array) -> float | None:
    """Return c if ``kept`` equals c times ``said``, else None."""
    at = np.abs(said) > 1e-9
    if not at.any():
        return None
    ratio = float(np.median(kept[at] / said[at]))
    return ratio if np.allclose(kept, ratio * said, rtol=1e-3, atol=1e-9) else None


def reported_returns(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Compare the reported returns and mean rewards with the environment's rewards."""
    if not first_policy(found, evidence):
        return None
    measured = ""
    pairs_of = {"return": evidence.returns, "mean reward": evidence.said.reported}
    if any(stored_rewards(each, evidence) for each in evidence.policies.values()):
        del pairs_of["mean reward"]  # another finding reports the stored rewards
    for what, pairs in pairs_of.items():
        for said, told in pairs:
            for agent, value in said.items():
                reported = told.get(agent, np.nan)
                if not measured and not abs(reported - value) <= 1e-4 * max(1.0, abs(value)):
                    measured = f"{agent}: reported {what} {reported:.4g}, its rewards {value:.4g}"
                    others = [
                        other
                        for other, theirs in said.items()
                        if other != agent and abs(theirs - reported) <= 1e-6 * max(1, abs(theirs))
                    ]
                    measured += f" (equal to that of {others[0]})" if others else ""
    if not measured and evidence.said.missing:
        measured = f"{evidence.said.missing} more episodes ended than were reported"
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
