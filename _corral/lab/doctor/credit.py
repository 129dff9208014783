"""Test which decisions an advantage function credits, by changing one number.

An advantage function is pure, so it can be evaluated again with one reward or value made huge. The
change of the advantages, after removing any normalization, shows the credited decisions. No formula
is assumed: GAE, rewards to go, whole returns and similar functions pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.trainers.on_policy.records import Advantages, Trajectories

__all__ = ["Credit", "credit"]

TRIED = 6
"""Number of decisions, of episode ends and of time limits that are tested."""

HUGE = 1e4
"""The test change, as a multiple of the spread of rewards or values."""

LINES = 30
"""Number of candidate lines for the effect of normalization."""

LEAK = 0.02
"""Largest share of a change that may appear in unrelated decisions."""


@dataclass(frozen=True)
class Credit:
    """Results of the test; None: the rollout has no data for it."""

    own: bool | None = None  # a reward raises the advantage of the decision before it
    opposite: bool | None = None  # a reward lowers that advantage
    limit: bool | None = None  # V of the final observation counts at a time limit
    past_end: bool | None = None  # a reward after an episode end changes advantages before it
    from_reset: bool | None = None  # at a time limit, V of the next episode's first obs counts
    end_as_limit: bool | None = None  # a value counts after a termination
    value_in_target: bool | None = None  # a decision's value target follows its own value
    foreign: bool | None = None  # a reward changes decisions in other environment copies
    backwards: bool | None = None  # a reward changes the decision after it, not before it
    myopic: bool | None = None  # later rewards and values change no earlier advantage
    gain: float | None = None  # change of an advantage by a typical reward difference
    target_flat: float | None = None  # share of decisions with a target that ignores rewards


def credit(
    advantages: Callable[[Trajectories, Any], Advantages],
    trajectories: Trajectories,
    settings: Any,
    terminated: Array,
    truncated: Array,
    agents: int = 1,
) -> Credit:
    """Test the function ``advantages`` on the decisions, ends and time limits of a rollout.

    ``terminated``, ``truncated`` bool [T, C]: the environment's episode ends. Each ``agents``
    consecutive columns belong to one environment copy. Float32 is precise enough, because the test
    compares shares of one huge number.
    """
    episode = np.cumsum(np.pad(terminated | truncated, ((1, 0), (0, 0)))[:-1], axis=0)  # [T, C]
    after = np.concatenate(
        [trajectories.final_obs_value[trajectories.ended], trajectories.bootstrap_value]
    )
    numbers = (
        trajectories.reward[trajectories.valid],
        trajectories.value[trajectories.valid],
        after,
    )
    spread = max(float(np.std(number)) for number in numbers if number.size)
    largest = max(float(np.abs(number).max(initial=0.0)) for number in numbers)
    # Scale with the spread: float32 would lose tiny differences next to a larger number.
    scale = HUGE * (max(spread, 1e-4 * largest) or 1.0)
    base = advantages(trajectories, settings).advantage.astype(np.float64)
    rounding = 0.05 * float(np.std(base[trajectories.valid]))

    def changed(name: str, t: int, c: int) -> Any:
        """Return each valid decision's share of the largest change: [T, C]."""
        for sign in (1.0, -1.0):  # clipping may block one direction
            values = np.array(getattr(trajectories, name), dtype=np.float64)
            values[t, c] += sign * scale
            changed_advantages = advantages(
                dataclasses.replace(trajectories, **{name: values}), settings
            ).advantage
            if np.abs(changed_advantages - base)[trajectories.valid].max(initial=0.0) > max(
                rounding, 1e-9
            ):
                break
        changed_advantages, base_ = sign * changed_advantages.astype(np.float64), sign * base
        moved = np.where(
            trajectories.valid, _unscaled(changed_advantages, base_, trajectories.valid), np.nan
        )
        peak = np.nanmax(np.abs(moved), initial=0.0)
        return moved / peak if peak > max(rounding, 1e-9) else np.zeros(changed_advantages.shape)

    tried = _some(trajectories.valid)
    by_reward = {at: changed("reward", *at) for at in tried}
    directions = [_rise_or_fall(moved, episode, *at) for at, moved in by_reward.items()]
    sights = [
        _neighbours(by_reward[at], changed("value", *at), trajectories, episode, *at)
        for at in tried
    ]
    before = [sight for sight in sights if sight is not None]
    ends = [
        (t, c)
        for t, c in _some(terminated | truncated)
        if _decided_before(trajectories, episode, t, c)
    ]
    cuts = [(t, c) for t, c in _some(truncated) if _decided_before(trajectories, episode, t, c)]
    later = [(t, c) for t, c in ends if t + 1 < len(episode)]
    inner = trajectories.valid & ~trajectories.ended & ~(terminated | truncated)
    value_in_target = _follows_value(advantages, trajectories, settings, inner)
    last = terminated & trajectories.ended & trajectories.valid
    valued_end = _follows_value(advantages, trajectories, settings, last)
    return Credit(
        own=None if not directions else all(direction == 1 for direction in directions),
        opposite=None if not directions else all(direction == -1 for direction in directions),
        limit=None
        if not cuts
        else all(_sees(changed("final_obs_value", *at), trajectories, episode, *at) for at in cuts),
        past_end=None
        if not later
        else any(
            _sees(changed("reward", t + 1, c), trajectories, episode, t, c)
            for t, c in later
            if _decides_after(trajectories, episode, t, c)
        ),
        from_reset=_any(
            _sees(changed("value", t + 1, c), trajectories, episode, t, c)
            for t, c in later
            if truncated[t, c] and not terminated[t, c]
        ),
        end_as_limit=_any(
            _sees(changed("value", t + 1, c), trajectories, episode, t, c)
            for t, c in later
            if terminated[t, c]
        )
        or (valued_end and not value_in_target),
        value_in_target=value_in_target,
        foreign=_any(
            _foreign(moved, trajectories, agents, at[1]) for at, moved in by_reward.items()
        ),
        backwards=None if not before else "after" in before and "before" not in before,
        myopic=None if not before else all(item == "none" for item in before),
        **_small_steps(advantages, trajectories, settings, tried),
    )


def _unscaled(advantages: Array, base: Array, valid: Array) -> Any:
    """Subtract from ``found`` the scaling and shift of ``base`` that normalization causes.

    Assumes that most advantages do not change. Tries lines through two points each, and an
    unchanged median, and takes the line that is nearest to most points.
    """
    x, y = base[valid], advantages[valid]
    order = np.argsort(x, kind="stable")
    half = len(x) // 2
    lines = [(1.0, 0.0), (0.0, float(np.median(y)))]
    for at in np.unique(np.linspace(0, max(half - 1, 0), LINES).astype(int)).tolist():
        i, j = order[at], order[min(at + half, len(x) - 1)]
        if x[j] > x[i]:
            slope = float((y[j] - y[i]) / (x[j] - x[i]))
            lines.append((slope, float(y[i] - slope * x[i])))
    # Square roots prefer a line that fits most points exactly, however far the others are.
    slope, shift = min(
        lines, key=lambda line: float(np.sqrt(np.abs(y - line[0] * x - line[1])).sum())
    )
    return advantages - slope * base - shift


def _any(results: Iterable[bool]) -> bool | None:
    """Return True if any is True; None for an empty iterable."""
    values = list(results)
    return any(values) if values else None


def _foreign(moved: Array, trajectories: Trajectories, agents: int, c: int) -> bool:
    """Return True if decisions in another environment copy changed."""
    other = trajectories.valid & (np.arange(moved.shape[1]) // agents != c // agents)
    return bool((np.abs(moved[other]) > LEAK).any())


def _neighbours(
    by_reward: Array, by_value: Array, trajectories: Trajectories, episode: Array, t: int, c: int
) -> str | None:
    """Return which neighbor of decision (t, c) its reward affects.

    "before" and "after" name the affected decision. "by value": only the value of (t, c) affects
    the decision before. "none": no effect. None if the episode has no earlier decision.
    """
    same = np.flatnonzero(trajectories.valid[:, c] & (episode[:, c] == episode[t, c]))
    before, after = same[same < t], same[same > t]
    if not len(before):
        return None
    if abs(by_reward[before[-1], c]) > LEAK:
        return "before"
    if len(after) and abs(by_reward[after[0], c]) > LEAK:
        return "after"
    return "by value" if abs(by_value[before[-1], c]) > LEAK else "none"


def _follows_value(
    advantages: Callable[[Trajectories, Any], Advantages],
    trajectories: Trajectories,
    settings: Any,
    chosen: Array,
) -> bool | None:
    """Return True if the value targets of some ``chosen`` decisions follow their own values.

    A target is made of rewards and later values; that of a terminated decision is its reward alone.
    None if no decision is chosen.
    """
    places = _some(chosen)
    if not places:
        return None
    at = tuple(np.transpose(places))
    values = np.array(trajectories.value)
    values[at] += max(1.0, 10.0 * float(np.abs(values).max(initial=0.0)))
    step = values[at] - trajectories.value[at]
    targets = [
        advantages(item, settings).value_target[at]
        for item in (trajectories, dataclasses.replace(trajectories, value=values))
    ]
    moved = (targets[1] - targets[0]) / step
    return bool((np.abs(moved) > LEAK).all())


def _small_steps(
    advantages: Callable[[Trajectories, Any], Advantages],
    trajectories: Trajectories,
    settings: Any,
    tried: list[tuple[int, int]],
) -> dict[str, Any]:
    """Return ``gain`` and ``target_flat`` of ``Credit``, measured with typical reward
    differences."""
    rewards = trajectories.reward[trajectories.valid].astype(np.float64)
    unit = float(np.std(rewards)) if tried else 0.0
    if not unit > 1e-6 * float(np.abs(rewards).max(initial=0.0)):  # equal up to rounding
        return {}
    base = advantages(trajectories, settings)
    gains, flat = [], []
    for t, c in tried:
        still = False
        for step in (unit, -unit):
            reward = np.array(trajectories.reward)
            reward[t, c] += step
            changed = advantages(dataclasses.replace(trajectories, reward=reward), settings)
            gains.append(abs(float(changed.advantage[t, c] - base.advantage[t, c])))
            moved = abs(float(changed.value_target[t, c] - base.value_target[t, c]))
            still |= not moved > 1e-6 * unit
        flat.append(still)
    return {"gain": float(np.median(gains)), "target_flat": float(np.mean(flat))}


def _some(chosen: Array) -> list[tuple[int, int]]:
    """Return a few evenly spread positions of True in ``chosen`` [T, C]."""
    places = np.argwhere(chosen)
    if not len(places):
        return []
    at = np.unique(np.linspace(0, len(places) - 1, TRIED).round().astype(int))
    return [(int(t), int(c)) for t, c in places[at]]


def _rise_or_fall(moved: Array, episode: Array, t: int, c: int) -> int | None:
    """Return 1 if the largest change is a rise in the episode of decision (t, c), -1 if a fall.

    Return 0 if the largest change is elsewhere.
    """
    if not np.nanmax(np.abs(moved)) > 0:
        return 0
    same = episode[:, c] == episode[t, c]
    in_episode = np.where(same, moved[:, c], np.nan)
    if np.nanmax(in_episode) >= 1 - 1e-3:
        return 1
    return -1 if np.nanmin(in_episode) <= -1 + 1e-3 else 0


def _decided_before(trajectories: Trajectories, episode: Array, t: int, c: int) -> bool:
    same = episode[: t + 1, c] == episode[t, c]
    return bool((trajectories.valid[: t + 1, c] & same).any())


def _decides_after(trajectories: Trajectories, episode: Array, t: int, c: int) -> bool:
    """Return True if the reward after step t belongs to a decision of the next episode."""
    return bool(trajectories.valid[t + 1, c])


def _sees(moved: Array, trajectories: Trajectories, episode: Array, t: int, c: int) -> bool:
    """Return True if a decision of the episode that ends in (t, c) changed."""
    same = (episode[: t + 1, c] == episode[t, c]) & trajectories.valid[: t + 1, c]
    return bool((np.abs(moved[: t + 1, c][same]) > LEAK).any())
