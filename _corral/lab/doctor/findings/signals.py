"""Findings about what the environment shows, pays and allows, from the numbers alone."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined

__all__ = ["avoided_goal", "never_allowed", "running_total", "shifted_codes", "wrapped"]

DECISIONS = 500
"""Minimum number of decisions before a value that never occurs is reported."""

STEPS = 128
"""Minimum number of steps before a pattern of rewards or observations is reported."""


def never_allowed(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions that no mask of the recorded decisions allows."""
    masks, _ = joined(record.masks)
    if not masks.size or not record.acted:
        return None
    decided = masks[np.concatenate(record.acted)[: len(masks)]]
    if len(decided) < DECISIONS or not decided.shape[-1]:
        return None
    counts = decided.sum(axis=0)
    never = np.flatnonzero(counts == 0)
    # Large action spaces, such as moves in chess, have actions that are rarely possible.
    usual = counts[counts > 0]
    few = len(never) <= max(1, 0.25 * len(counts))
    if not len(never) or not few or usual.min() < 0.1 * len(decided):
        return None
    named = ", ".join(str(action) for action in never[:4])
    return Finding(
        "action-never-legal",
        f"The mask never allows action {named}.",
        f"allowed in 0 of {len(decided):,} decisions; each other action in at least "
        f"{usual.min() / len(decided):.0%}",
        "every action is legal in some state",
        "look for an index that stops one too early where the mask is written, such as "
        "range(n - 1); if the action is meant to be impossible, leave it out of the action space",
        1,
        record.policy,
    )


# --- Rewards -------------------------------------------------------------------------------------


def wrapped(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report rewards or observations in which small integers wrapped around at 256 or 65,536.

    Such numbers are multiples of one unit, in two groups that are nearly that many units apart.
    """
    rewards, _ = joined(record.rewards)
    obs, _ = joined(record.obs)
    columns = {"the reward": rewards.reshape(-1)}
    for k in range(obs.shape[-1] if obs.size else 0):
        columns[f"observation[{k}]"] = obs[..., k].reshape(-1)
    for name, values in columns.items():
        if (units := _units_of_wrap(values)) is not None:
            return Finding(
                "number-wraps",
                f"An integer wraps around in {name}: it jumps by nearly {units:,} units.",
                f"{name} is between {values.min():.4g} and {values.max():.4g}, with nothing "
                "between its two groups of values",
                "small changes of the state change it by little",
                f"convert {'uint8' if units == 256 else 'uint16'} numbers to int or float before "
                "subtracting them",
                1,
                record.policy,
            )
    return None


def _units_of_wrap(values: Array) -> int | None:
    """Return 256 or 65,536 if ``values`` look like integers of 8 or 16 bits that wrapped."""
    levels = np.unique(np.round(values[np.isfinite(values)].astype(np.float64), 6))
    if not 8 <= len(levels) <= 2_000:
        return None
    gaps = np.diff(levels)
    unit, largest = float(gaps.min()), int(gaps.argmax())
    in_units = (levels - levels[0]) / unit
    if np.abs(in_units - np.round(in_units)).max() > 0.02:
        return None
    groups = largest + 1, len(levels) - largest - 1
    for units in (2**8, 2**16):
        fills = 0.9 * units < in_units[-1] < units
        if fills and min(groups) >= 3 and gaps[largest] / unit > units / 2:
            return units
    return None


def running_total(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report rewards that are a running total: few increments, many sums of them."""
    rewards, _ = joined(record.rewards)
    first = _first_steps(record, evidence, rewards)
    if first is None or len(rewards) < 2:
        return None
    steps = np.round(np.diff(rewards, axis=0)[~first[1:]], 5)
    starts = np.round(rewards[first], 5)
    if len(steps) < STEPS or len(starts) < 8:
        return None
    # A distance changes by few increments too, but it does not start with one of them.
    increments = np.unique(np.concatenate([steps, starts]))
    levels = np.unique(np.round(rewards, 5))
    if len(levels) < 12 or len(levels) < 4 * len(increments) or not np.isin(starts, steps).all():
        return None
    return Finding(
        "reward-running-total",
        "The reward looks like the total so far, not like what the step added.",
        f"{len(levels)} different rewards; from step to step they change by one of "
        f"{len(increments)} amounts, and each episode starts with one of those",
        "the reward of a step alone; the trainer adds them up",
        "return the difference to the total of the step before",
        1,
        record.policy,
    )


def _first_steps(record: PolicyEvidence, evidence: Evidence, rewards: Array) -> Array | None:
    """Return the first steps of episodes, bool [T, C]; None if they are unknown."""
    begins = evidence.env.begins
    if sum(len(begin) - 1 for begin in begins) != len(rewards) or not len(rewards):
        return None
    # Row 0 of a rollout is unknown to it: the rollout before knows if an episode ended.
    parts = [np.ones_like(begins[0][:1]), *(begin[1:] for begin in begins)]
    first: Array = np.repeat(np.concatenate(parts)[:-1], len(record.agents), axis=1)
    return first if first.shape == rewards.shape else None


# --- Actions -------------------------------------------------------------------------------------


def shifted_codes(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a first or last action that does nothing, while a number moves in one direction only.

    This is what remains if step() compares the action with 1 to n instead of 0 to n - 1.
    """
    obs, _ = joined(record.obs)
    if not obs.size or not record.actions or len(record.agents) > 1:
        return None
    actions = np.concatenate(record.actions)
    first = _first_steps(record, evidence, actions)
    if first is None or len(obs) != len(actions):
        return None
    same_episode = ~first[1:]
    moves = np.diff(obs, axis=0)[same_episode]
    played = actions[:-1][same_episode]
    if len(played) < STEPS:
        return None
    count = int(played.max()) + 1
    still = [(~moves[played == action].any(axis=1)) for action in range(count)]
    if count < 3 or min(map(len, still)) < STEPS // 8:
        return None
    shares = np.array([item.mean() for item in still])
    for action in (0, count - 1):
        if shares[action] < 1 or np.delete(shares, action).max() > 0.6:
            continue
        rises = np.asarray((moves > 1e-6).any(axis=0))
        falls = np.asarray((moves < -1e-6).any(axis=0))
        if (one_way := np.flatnonzero(rises ^ falls)).size and (rises & falls).any():
            column = int(one_way[0])
            return Finding(
                "action-codes-shifted",
                f"Action {action} never changes the observation, and no action makes "
                f"observation[{column}] {'fall' if rises[column] else 'rise'}.",
                f"action {action} was played {len(still[action]):,} times",
                "a way back for each direction, if positions are meant",
                "compare the codes in step() with the action space: Discrete(n) gives 0 to n - 1, "
                "unless start is given",
                1,
                record.policy,
            )
    return None


# --- Ends ----------------------------------------------------------------------------------------

OFTEN, FEWER = 0.1, 1 / 3
"""Minimum share of episodes that reach the goal at the start; factor by which it must fall."""


def avoided_goal(beginning: PolicyEvidence, latest: PolicyEvidence) -> Finding | None:
    """Report terminations that pay most and that the policy has learned to avoid.

    The first rollouts are nearly random play. A bonus that can be collected again and again, such
    as one for each step towards a goal, makes reaching the goal a loss.
    """
    before, after = _ends(beginning), _ends(latest)
    if before is None or after is None or min(before[1], after[1]) < 20:
        return None
    paid, _ = joined(beginning.rewards)
    ended = np.concatenate(beginning.terminated)
    if not ended.any() or ended.all():
        return None
    usual = paid[~ended]
    # The last reward of a reached goal is above all others, that of a fall is not.
    is_goal = np.quantile(paid[ended], 0.1) > usual.max()
    if before[0] < OFTEN or after[0] > FEWER * before[0] or not is_goal:
        return None
    return Finding(
        "goal-avoided",
        "The policy has learned not to reach the end that pays most.",
        f"{before[0]:.0%} of episodes terminated in the first updates, {after[0]:.0%} at the "
        f"checkpoint; the last step paid {float(paid[ended].mean()):.3g}, any other step at most "
        f"{usual.max():.3g}",
        "an end that is reached more often, not less",
        "look for a bonus that can be collected again and again, such as one for each step "
        "towards the goal and none against a step back; take the difference of a potential",
        1,
        latest.policy,
    )


def _ends(record: PolicyEvidence) -> tuple[float, int] | None:
    """Return the share of ended episodes that terminated, and their number."""
    if not record.terminated or len(record.agents) > 1:
        return None
    terminated = int(np.concatenate(record.terminated).sum())
    ended = terminated + int(np.concatenate(record.truncated).sum())
    return terminated / max(ended, 1), ended
