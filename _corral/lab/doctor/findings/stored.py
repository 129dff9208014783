"""What the environment said, beside what the trainer stored, played and reported of it."""

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


# --- Whatever cannot be learned from -------------------------------------------------------------


def not_finite(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """The environment says numbers that are none."""
    if not evidence.said.not_finite or not first_policy(found, evidence):
        return None
    what = "reward" if evidence.said.not_finite[0].startswith("reward") else "observation"
    return Finding(
        f"{what}-not-finite",
        f"The environment gives {what}s that are no finite numbers.",
        evidence.said.not_finite[0],
        "finite numbers alone",
        "look for a division by 0, a logarithm of 0 or an empty mean in the environment or in a "
        "wrapper",
        3,
    )


def first_policy(found: PolicyEvidence, evidence: Evidence) -> bool:
    """Tell whether this is the first policy: rules about all policies speak once."""
    return found is next(iter(evidence.policies.values()))


# --- Masks and observations ----------------------------------------------------------------------


def stored_masks(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Masks, as they are stored."""
    said, kept = joined(found.masks)
    acted = np.concatenate(found.acted) if found.acted else np.zeros((0, 0), bool)
    if not said.size:
        return None
    wrong = (said != kept).any(axis=-1) & acted
    if not wrong.any():
        return None
    how = "another mask"
    if kept[wrong].all():
        how = "a mask that forbids nothing"
    elif _of_another(said, kept, wrong, len(found.agents)):
        how = "the mask of another agent"
    elif _late(found.masks, acted):
        how = "the mask of the step before"
    return Finding(
        "mask-lost-in-rollout",
        "The rollout does not hold the masks that the environment gave.",
        f"{wrong.sum() / acted.sum():.1%} of decisions were stored with {how}",
        "every mask as the environment gave it",
        "store observations[agent]['action_mask'] of the moment that is decided on, and hand it "
        "to sampling and to the loss alike",
        3,
        found.policy,
    )


def stored_obs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Observations, as they are stored: vectors, images, and which agent it is."""
    said, kept = joined(found.obs)
    playing = found.playing
    acted = np.concatenate(found.acted) if found.acted else np.zeros((0, 0), bool)
    wrong = ~np.isclose(said, kept, atol=1e-5, equal_nan=True) & acted[..., None]
    images = np.array([each for each in playing.images_wrong if len(each)])  # [rollouts, images, 2]
    pictures = bool(images.size and images[..., 0].any())
    if not wrong.any() and not pictures and not playing.identity_wrong:
        return None
    cause, title = "observation-changed", "The networks do not get what the environment shows."
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
        measured = f"{playing.identity_wrong:.0%} of decisions are stored as another agent's"
        late, another, blank = False, False, False
        title = "The policy is not told which agent it plays."
        cause = "identity-changed"
    if late:
        cause, title = "observation-late", "The networks get the observation of an earlier step."
        measured += ": they hold what was shown before"
    elif another:
        cause = "observation-of-another"
        title = "Agents decide on what another agent observes."
        measured += ": they hold another agent's"
    elif blank:
        measured += ": they hold 0"
    return Finding(
        cause,
        title,
        measured,
        "the observation of the agent and the moment that is decided on",
        "store the observation before the action is chosen, index by the agent's name, and do not "
        "let a buffer be written over (copy arrays that an environment uses again)",
        3,
        found.policy,
    )


def _late(pairs: list[tuple[Array, Array]], acted: Array) -> bool:
    """Tell whether what is stored wrong is what was said 1 to 4 steps before, all the same."""
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
    """Tell whether what is stored wrong, bool [T, C], is what another agent of the same environment
    was shown."""
    if agents < 2:
        return False
    shape = (len(said), -1, agents, said.shape[-1])
    theirs, own, bad = said.reshape(shape), kept.reshape(shape), wrong.reshape(shape[:3])
    same = [np.isclose(np.roll(theirs, k, axis=2), own).all(axis=-1) for k in range(1, agents)]
    return bool((np.any(same, axis=0) & bad).sum() >= 0.9 * bad.sum())


# --- Actions -------------------------------------------------------------------------------------


def played_actions(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """The environment is given other actions than those that are stored."""
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
            of = f"{found.agents[k % agents]} is played what {found.agents[0]} chose"
    return Finding(
        "actions-permuted" if of else "actions-changed",
        "The environment is given other actions than those that are learned from.",
        f"{differs.sum() / acted.sum():.0%} of actions differ" + (f": {of}" if of else ""),
        "what is stored is what is played, by the same agent",
        "hand actions over by the agent's name, not by the order of a list; store what was played "
        "after clipping or repair",
        3,
        found.policy,
    )


def stored_chances(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Stored log-probabilities, beside those that the policy gives to stored actions."""
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
        "Stored probabilities are not those of the actions that are stored with them."
        if swapped is None
        else "Each agent is given the action that another one chose.",
        f"{wrong.sum() / acted.sum():.0%} of decisions; off by up to "
        f"{float(np.nanmax(np.where(np.isfinite(off), off, np.nan))):.3g} in the log-probability",
        "log pi(action | observation, mask) of what was stored, by the policy that played",
        "store action and log-probability of the same draw, of the same agent, from the masked "
        "distribution",
        3,
        found.policy,
    )


# --- Rewards and returns -------------------------------------------------------------------------


def stored_rewards(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Rewards, as they are stored, and as advantages are made of them."""
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
        f"{agents[mine]} is paid what {agents[other]} gets"
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
        of, cause, certainty = ["each agent is paid for all agents"], "reward-shared", 1
    elif not of and np.isclose(kept[1:], said[:-1], atol=1e-6).mean() > 0.95 and np.ptp(said) > 0:
        of, cause, certainty = ["each step is paid what the one before earned"], "reward-late", 3
    return Finding(
        cause,
        "Agents learn from other rewards than the environment gives them.",
        "; ".join(of[:4])
        or f"{np.mean(~np.isclose(said, kept, atol=1e-6)):.0%} of the stored rewards differ",
        "rewards[agent] of the environment, each for its own agent",
        "follow one reward from step() to the advantage; index by the agent's name, not by the "
        "order of a dict",
        certainty,
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
    """Returns and mean rewards that are reported, beside the sums of what was paid."""
    if not first_policy(found, evidence):
        return None
    measured = ""
    pairs_of = {"return": evidence.returns, "mean reward": evidence.said.reported}
    if any(stored_rewards(each, evidence) for each in evidence.policies.values()):
        del pairs_of["mean reward"]  # it is of what is stored, which is named
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
                    measured += f" (that is what {others[0]} was paid)" if others else ""
    if not measured and evidence.said.missing:
        measured = f"{evidence.said.missing} more episodes ended than were reported"
    if not measured:
        return None
    return Finding(
        "returns-leak",
        "What is reported is not what agents were paid.",
        measured,
        "the sum of each agent's own rewards, whatever the rollouts cut",
        "add up rewards by agent, and reset a sum when that environment's episode ends, not when "
        "a rollout does",
        3,
    )
