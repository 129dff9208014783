"""Rules about recorded rewards, episode ends and returns of episodes."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings import scales, signals
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.fed import Seen, by_doctor, fed, is_image, seen
from corral.lab.listening.heard import Heard
from corral.lab.listening.rules_obs import parts_of
from corral.trainers.runs.trends import change_of

__all__ = [
    "clipped",
    "constant_ends",
    "ends_unmarked",
    "equal_in_copies",
    "few_updates",
    "goal_avoided",
    "huge_targets",
    "reset_incomplete",
    "returns_fell",
    "running_total",
    "same_rewards",
    "short_horizon",
    "tiny_rewards",
    "unseen_ends",
]


# --- Rewards -------------------------------------------------------------------------------------

UPDATES, DECISIONS, EPISODES = 8, 2000, 10
"""Minimum numbers before equal rewards are reported."""

SOME_DECISIONS = 256
"""Minimum number of decisions with equal rewards if gamma is 0."""

MANY_EPISODES = 50
"""Episodes that replace UPDATES."""


def same_rewards(heard: Heard) -> Finding | None:
    """Report rewards that are all equal, in episodes of equal lengths."""
    paid = _recorded(heard)
    if not len(paid) or (heard.updates < UPDATES and len(heard.returns) < MANY_EPISODES):
        return None
    if max(len(paid), sum(heard.lengths)) < DECISIONS or np.ptp(paid) > 0:
        return None
    lengths = heard.lengths[len(heard.lengths) // 10 :]
    # The rewards of all episodes are known by their returns. First ones may lack their begin.
    returns = np.array(heard.returns[len(heard.returns) // 10 :])
    if paid[0] != 0 and (len(lengths) < EPISODES or len(set(lengths)) > 1):
        return None
    if len(returns) and np.ptp(returns) > 1e-9:
        return None
    measured = f"all {len(paid):,} recorded rewards are {paid[0]:g}"
    if len(returns):
        measured += f", and {len(returns):,} episodes return {returns[0]:g}"
    certainty = 2 if heard.updates >= 2 * UPDATES else 1  # rare rewards may still come
    return finding_of("same-rewards", measured, certainty, heard.policy)


def _recorded(heard: Heard) -> Array:
    """Return the rewards of all recorded decisions, float [R]."""
    rewards = [
        part.rollout.rewards[part.valid]
        for part in parts_of(heard)
        if part.rollout.rewards is not None and part.rollout.rewards.shape == part.shape
    ]
    return np.concatenate(rewards) if rewards else np.zeros(0)


def unseen_ends(heard: Heard) -> Finding | None:
    """Report gamma 0 with equal rewards: the ends of episodes have no effect on advantages."""
    paid = _recorded(heard)
    if heard.gamma != 0 or max(heard.lengths, default=2) < 2:
        return None
    if len(paid) < SOME_DECISIONS or np.ptp(paid) > 0:
        return None
    return Finding(
        "myopic",
        "Gamma is 0 and all rewards are equal: the policy has nothing to learn from.",
        f"gamma 0; all {len(paid):,} recorded rewards are {paid[0]:g}",
        "later rewards count too, discounted, so that longer episodes have larger returns",
        "raise gamma (0.99 looks about 100 decisions ahead)",
        2,  # rare rewards may still come
        heard.policy,
    )


def tiny_rewards(heard: Heard) -> Finding | None:
    """Report rewards that are too small for floats and optimizers."""
    rewards = [
        part.rollout.rewards[part.valid]
        for part in parts_of(heard)
        if part.rollout.rewards is not None and part.rollout.rewards.shape == part.shape
    ]
    if not rewards or np.abs(np.concatenate(rewards)).max(initial=0.0) >= 1e-4:
        return None
    # Normalized advantages do not depend on the scale of rewards, but values do.
    return by_doctor(scales.tiny_rewards, heard)


def clipped(heard: Heard) -> Finding | None:
    """Report rewards of which most are exactly the lowest or the highest one."""
    rewards = [
        part.rollout.rewards[part.valid]
        for part in parts_of(heard)
        if part.rollout.rewards is not None and part.rollout.rewards.shape == part.shape
    ]
    paid = np.concatenate(rewards) if rewards else np.zeros(0)
    if len(paid) < DECISIONS:
        return None
    low, high = (float(np.mean(paid == end)) for end in (paid.min(), paid.max()))
    between = np.unique(paid[(paid > paid.min()) & (paid < paid.max())])
    if len(between) < 16 or low + high < 0.6 or low + high > 0.999:
        return None
    both = min(low, high) > 0.02
    gap = between[0] - paid.min() if low > high else paid.max() - between[-1]
    if not both and gap > 0.2 * np.ptp(paid):
        return None  # a constant cost beside other rewards
    return Finding(
        "reward-clipped",
        "Most rewards are exactly the lowest or the highest one: they look clipped.",
        f"{low:.0%} are {paid.min():.4g}, {high:.0%} are {paid.max():.4g}; {len(between)} other "
        "rewards lie between",
        "rewards that differ as the outcomes differ",
        "scale rewards instead of clipping them, or clip at larger numbers",
        2 if both else 1,
        heard.policy,
    )


def equal_in_copies(heard: Heard) -> Finding | None:
    """Report rewards that are equal in all copies of the environment, in each step."""
    count, names = 0, 0
    for part in parts_of(heard):
        rewards, obs = part.rollout.rewards, part.obs
        if rewards is None or obs is None or rewards.shape != part.shape or len(rewards) < 16:
            return None
        if rewards.shape[1] < 4:
            return None
        same = np.flatnonzero((rewards == rewards[:, :1]).all(axis=0))
        agents = int(same[1]) if len(same) > 1 else 0
        # Neighboring columns are agents of a team; a team's other copies are further away.
        if agents < 2 or not np.array_equal(same, np.arange(0, rewards.shape[1], agents)):
            return None
        varied = len(np.unique(rewards[:, 0])) >= 8
        if not varied or (obs[:, 0] == obs[:, agents]).all():
            return None
        count, names = count + len(rewards), len(same)
    if count < 64:
        return None
    return Finding(
        "reward-shared",
        "All copies of the environment get the same rewards.",
        f"the rewards of {names} copies are equal in each of {count:,} steps; observations differ",
        "the reward of the copy's own actions",
        "look for a mean or sum over the axis of copies instead of the axis of agents",
        2,
        heard.policy,
    )


def running_total(heard: Heard) -> Finding | None:
    """Report rewards that are sums so far."""
    return by_doctor(signals.running_total, heard)


def huge_targets(heard: Heard) -> Finding | None:
    """Report value targets that are out of reach of the values in the loss."""
    pairs = [
        (item.values.astype(np.float64).reshape(-1), item.returns.astype(np.float64).reshape(-1))
        for item in heard.minibatches
        if item.values is not None and item.returns is not None
        and item.values.size == item.returns.size
    ] or [
        (part.rollout.values[part.valid], part.rollout.returns[part.valid])
        for part in parts_of(heard)
        if part.rollout.values is not None and part.rollout.returns is not None
        and part.rollout.values.shape == part.rollout.returns.shape == part.shape
    ]  # fmt: skip
    if not pairs:
        return None
    values, targets = (np.concatenate(item) for item in zip(*pairs[-8:], strict=True))
    if len(targets) < 32 or not np.isfinite(targets).all() or not np.isfinite(values).all():
        return None
    size = float(np.sqrt(np.square(targets).mean()))
    off = float(np.sqrt(np.square(targets - values).mean()))
    if size <= scales.HUGE or off < 0.5 * size:
        return None
    change = change_of(heard.returns)
    learns = change is not None and change.direction() == "rose"
    return Finding(
        "reward-huge",
        "Returns are so large that the critic cannot reach them and its gradients dominate.",
        f"value targets of about {size:.3g}, values of about "
        f"{float(np.sqrt(np.square(values).mean())):.3g}",
        "targets of about 1; an untrained network outputs about 1",
        "divide rewards by their typical size, or normalize returns",
        1 if learns else 2,
        heard.policy,
    )


# --- Ends ----------------------------------------------------------------------------------------

NEAR, JUMPS = 0.3, 3


def _steps(part: Seen) -> tuple[Array, Array] | None:
    """Return observations [T, B, F] in units of their spread, and the sizes of steps [T - 1, B]."""
    obs = part.obs
    if obs is None or len(obs) < 16 or not np.isfinite(obs).all():
        return None
    spread = obs[part.valid].std(axis=0)
    if not (spread > 1e-9).any():
        return None
    scaled = obs[..., spread > 1e-9] / spread[spread > 1e-9]
    return scaled, np.linalg.norm(np.diff(scaled, axis=0), axis=-1)


def ends_unmarked(heard: Heard) -> Finding | None:
    """Report observations that jump back to the first one again and again, without a mark."""
    decisions, landed = 0, []
    for part in parts_of(heard):
        measured = _steps(part)
        if part.ended is None or measured is None or part.ended.any() or is_image(part.rollout):
            return None
        scaled, steps = measured
        inside = part.valid[:-1] & part.valid[1:]
        # The first row of the first rollout is a reset; jumps back to it look the same.
        home = np.linalg.norm(scaled[1:] - scaled[0].mean(axis=0), axis=-1)
        usual = np.median(steps[inside])
        jumped = inside & (steps > 8 * usual) & (home < NEAR * np.median(home)) & (usual > 0)
        landed.append(scaled[1:][jumped])
        decisions += int(part.valid.sum())
    if not landed or len({rows.shape[1] for rows in landed}) > 1:
        return None
    places = np.concatenate(landed)
    if len(places) < JUMPS:
        return None
    measured_text = (
        f"no end is marked in {decisions:,} decisions; {len(places)} times, the observation jumps "
        "back near the first one of the training"
    )
    # A game may send the agent back to a fixed start; random first states come from resets.
    random = len(np.unique(places.round(6), axis=0)) > 0.5 * len(places)
    return finding_of("end-ignored", measured_text, 2 if random else 1, heard.policy)


def constant_ends(heard: Heard) -> Finding | None:
    """Report episodes that end in every step while observations continue."""
    parts = list(parts_of(heard))
    for part in parts:
        measured = _steps(part)
        if part.ended is None or measured is None or not part.ended[part.valid].all():
            return None
        scaled, steps = measured
        rng = np.random.default_rng(0)
        flat = scaled.reshape(-1, scaled.shape[-1])
        apart = np.linalg.norm(flat - flat[rng.permutation(len(flat))], axis=-1)
        if not np.median(steps) < NEAR * np.median(apart) or steps.size < 128:
            return None
    if not parts:
        return None
    return Finding(
        "ends-each-step",
        "Every step is marked as the end of an episode.",
        "observations go on from step to step as in one episode",
        "an end in the last step of an episode only",
        "check the order of the results of step(): obs, reward, terminated, truncated, info; "
        "an array or dict of flags is always true",
        2,
        heard.policy,
    )


def reset_incomplete(heard: Heard) -> Finding | None:
    """Report episodes that all end after one step, except for the first ones."""
    lengths = np.array(heard.lengths)
    longer = np.flatnonzero(lengths > 1)
    if len(lengths) < 64 or not len(longer) or longer[-1] >= 0.05 * len(lengths):
        return None
    if np.median(lengths[longer]) < 3:
        return None
    return Finding(
        "reset-incomplete",
        "Only the first episodes last; all later ones end after one step.",
        f"the first {longer[-1] + 1} episodes have up to {lengths.max()} decisions, the other "
        f"{len(lengths) - longer[-1] - 1:,} have 1",
        "episodes of similar lengths from the start on",
        "reset() must set back every variable that ends an episode, such as its clock",
        2,
        heard.policy,
    )


def goal_avoided(heard: Heard) -> Finding | None:
    """Report terminations that pay most and that the policy learned to avoid."""
    if len(heard.rollouts) < 2:
        return None
    first, last = seen(heard.rollouts[0]), seen(heard.rollouts[-1])
    if first is None or last is None:
        return None
    if any(part.rollout.rewards is None for part in (first, last)):
        return None
    return signals.avoided_goal(fed(first, heard.policy)[0], fed(last, heard.policy)[0])


def short_horizon(heard: Heard) -> Finding | None:
    """Report a discount that hides rewards at the ends of episodes."""
    if heard.gamma is None or not 0 <= heard.gamma < 1 or len(heard.lengths) < EPISODES:
        return None
    length = float(np.median(heard.lengths[-200:]))
    at_ends, elsewhere = [], []
    for part in parts_of(heard):
        rewards = part.rollout.rewards
        if part.ended is None or rewards is None or rewards.shape != part.shape:
            return None
        at_ends.append(rewards[part.ended & part.valid])
        elsewhere.append(rewards[~part.ended & part.valid])
    if not at_ends:
        return None
    paid, rest = np.concatenate(at_ends), np.concatenate(elsewhere)
    horizon = 1.0 / (1.0 - heard.gamma)
    # Only rewards at the end differ, and they are out of sight.
    if len(paid) < EPISODES or np.ptp(paid) <= 0 or len(rest) < 32 or np.ptp(rest) > 0:
        return None
    if heard.gamma**length > 0.01:
        return None
    return Finding(
        "myopic",
        "Rewards at the ends of episodes are discounted to almost nothing.",
        f"gamma {heard.gamma:g} looks about {horizon:.0f} decisions ahead; the median episode has "
        f"{length:.0f}, and only its last reward varies",
        "a horizon of about an episode",
        "raise gamma, such as to 1 - 1 / length",
        2 if heard.gamma**length < 1e-4 else 1,
        heard.policy,
    )


# --- The whole training --------------------------------------------------------------------------


def returns_fell(heard: Heard) -> Finding | None:
    """Report returns of episodes that fell."""
    returns = np.array(heard.returns, dtype=np.float64)
    if len(returns) < 200 or heard.updates < UPDATES:
        return None
    change = change_of(returns, rows=max(1, len(returns) // 24))
    if change is None or change.direction() != "fell":
        return None
    spread = float(returns[: len(returns) // 3].std())
    if change.first - change.last < 0.5 * spread:
        return None
    return Finding(
        "returns-fell",
        "Returns of episodes fell.",
        f"{change.first:.4g} in the first third of {len(returns):,} episodes, {change.last:.4g} in "
        f"the last (p = {change.p_value:.2g})",
        "rising returns, unless opponents learn too or the environment becomes harder",
        "look for a wrong sign of advantages or of the loss, for rewards of another agent, for a "
        "learning rate that is too large, and for bonuses that the return does not contain",
        1,
        heard.policy,
    )


def few_updates(heard: Heard) -> Finding | None:
    """Report a training with very few optimizer steps for its decisions."""
    played = sum(heard.lengths)
    if heard.updates >= 10 or len(heard.steps) >= 50 or played < 20_000:
        return None
    if not heard.steps:
        return None
    return Finding(
        "updates-few",
        "There were few updates for the number of decisions.",
        f"{heard.updates} updates with {len(heard.steps)} optimizer steps in {played:,} decisions",
        "hundreds of optimizer steps",
        "use shorter rollouts, smaller minibatches or more epochs",
        1,
        heard.policy,
    )
