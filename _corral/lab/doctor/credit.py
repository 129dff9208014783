"""Does an advantage function credit who earned it? Told by changing one number, and looking.

An advantage function is pure, so it can be asked again with one reward, or one value, that is made
huge: whatever it normalizes then shows who was credited for it, and nothing else. No formula is
presumed: GAE, rewards to go, whole returns and others of that kind pass.
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
"""Decisions, ends and cuts that are tried, each."""

HUGE = 1e4
"""By how many times the spread of rewards or values one number is raised."""

LINES = 30
"""Lines that are tried to tell how a change scales all other advantages."""

LEAK = 0.02
"""Share of a change that may be seen where none belongs."""


@dataclass(frozen=True)
class Credit:
    """What was found; None: nothing in the rollout told it."""

    own: bool | None = None  # a reward raises the advantage of the decision that it followed
    opposite: bool | None = None  # it lowers it
    limit: bool | None = None  # V of the last observation counts where a time limit cuts
    past_end: bool | None = None  # what comes after an end changes what came before
    from_reset: bool | None = (
        None  # V of the next episode's first observation does, at a time limit
    )
    end_as_limit: bool | None = None  # ... or any value, at an end by the rules
    foreign: bool | None = None  # a reward moves decisions of other environments
    backwards: bool | None = None  # it moves what was decided after it, not before
    myopic: bool | None = None  # no decision is told of what follows it
    gain: float | None = None  # change of an advantage by one typical difference of rewards
    target_flat: float | None = None  # share of decisions whose value target a reward does not move


def credit(
    advantages: Callable[[Trajectories, Any], Advantages],
    given: Trajectories,
    settings: Any,
    terminated: Array,
    truncated: Array,
    agents: int = 1,
) -> Credit:
    """Return whom ``advantages`` credits, by the decisions, ends and cuts of a rollout.

    ``terminated``, ``truncated`` bool [T, C]: how the environment ended episodes; ``agents``
    columns in a row are of one environment. Float32 holds what is compared: shares of one huge
    number.
    """
    episode = np.cumsum(np.pad(terminated | truncated, ((1, 0), (0, 0)))[:-1], axis=0)  # [T, C]
    after = np.concatenate([given.final_obs_value[given.ended], given.bootstrap_value])
    numbers = (given.reward[given.valid], given.value[given.valid], after)
    spread = max(float(np.std(each)) for each in numbers if each.size)
    largest = max(float(np.abs(each).max(initial=0.0)) for each in numbers)
    # By their spread: float32 would round tiny differences away beside a larger number.
    scale = HUGE * (max(spread, 1e-4 * largest) or 1.0)
    base = advantages(given, settings).advantage.astype(np.float64)
    rounding = 0.05 * float(np.std(base[given.valid]))

    def changed(name: str, t: int, c: int) -> Any:
        """Return, for each valid decision, what share of the largest change it got: [T, C]."""
        for sign in (1.0, -1.0):  # what is clipped may move one way alone
            values = np.array(getattr(given, name), dtype=np.float64)
            values[t, c] += sign * scale
            found = advantages(dataclasses.replace(given, **{name: values}), settings).advantage
            if np.abs(found - base)[given.valid].max(initial=0.0) > max(rounding, 1e-9):
                break
        found, base_ = sign * found.astype(np.float64), sign * base
        moved = np.where(given.valid, _unscaled(found, base_, given.valid), np.nan)
        most = np.nanmax(np.abs(moved), initial=0.0)
        return moved / most if most > max(rounding, 1e-9) else np.zeros(found.shape)

    tried = _some(given.valid)
    by_reward = {at: changed("reward", *at) for at in tried}
    told = [_own(moved, episode, *at) for at, moved in by_reward.items()]
    sights = [
        _neighbours(by_reward[at], changed("value", *at), given, episode, *at) for at in tried
    ]
    before = [each for each in sights if each is not None]
    ends = [
        (t, c) for t, c in _some(terminated | truncated) if _decided_before(given, episode, t, c)
    ]
    cuts = [(t, c) for t, c in _some(truncated) if _decided_before(given, episode, t, c)]
    later = [(t, c) for t, c in ends if t + 1 < len(episode)]
    return Credit(
        own=None if not told else all(each == 1 for each in told),
        opposite=None if not told else all(each == -1 for each in told),
        limit=None
        if not cuts
        else all(_sees(changed("final_obs_value", *at), given, episode, *at) for at in cuts),
        past_end=None
        if not later
        else any(
            _sees(changed("reward", t + 1, c), given, episode, t, c)
            for t, c in later
            if _decides_after(given, episode, t, c)
        ),
        from_reset=_any(
            _sees(changed("value", t + 1, c), given, episode, t, c)
            for t, c in later
            if truncated[t, c] and not terminated[t, c]
        ),
        end_as_limit=_any(
            _sees(changed("value", t + 1, c), given, episode, t, c)
            for t, c in later
            if terminated[t, c]
        )
        or _valued_end(advantages, given, settings, terminated),
        foreign=_any(_foreign(moved, given, agents, at[1]) for at, moved in by_reward.items()),
        backwards=None if not before else "after" in before and "before" not in before,
        myopic=None if not before else all(each == "nobody" for each in before),
        **_small_steps(advantages, given, settings, tried),
    )


def _unscaled(found: Array, base: Array, valid: Array) -> Any:
    """Return ``found`` less what scales and shifts of ``base`` explain, as normalization does.

    Most decisions are taken to be left alone: of lines through two of them, and of no change, the
    one is taken that is nearest to most.
    """
    x, y = base[valid], found[valid]
    order = np.argsort(x, kind="stable")
    half = len(x) // 2
    lines = [(1.0, 0.0), (0.0, float(np.median(y)))]
    for at in np.unique(np.linspace(0, max(half - 1, 0), LINES).astype(int)).tolist():
        i, j = order[at], order[min(at + half, len(x) - 1)]
        if x[j] > x[i]:
            slope = float((y[j] - y[i]) / (x[j] - x[i]))
            lines.append((slope, float(y[i] - slope * x[i])))
    # Roots: a line that leaves few out, however far, is better than one that is near to half.
    slope, shift = min(
        lines, key=lambda line: float(np.sqrt(np.abs(y - line[0] * x - line[1])).sum())
    )
    return found - slope * base - shift


def _any(told: Iterable[bool]) -> bool | None:
    """Return whether any is True; None where there is none."""
    found = list(told)
    return any(found) if found else None


def _foreign(moved: Array, given: Trajectories, agents: int, c: int) -> bool:
    """Tell whether decisions of another environment were moved."""
    other = given.valid & (np.arange(moved.shape[1]) // agents != c // agents)
    return bool((np.abs(moved[other]) > LEAK).any())


def _neighbours(
    by_reward: Array, by_value: Array, given: Trajectories, episode: Array, t: int, c: int
) -> str | None:
    """Return who of the decisions beside (t, c) is told of its reward: "before", "after", "by
    value" (the one before, of its value alone), "nobody".

    None where it has no decision before it in its episode.
    """
    same = np.flatnonzero(given.valid[:, c] & (episode[:, c] == episode[t, c]))
    before, after = same[same < t], same[same > t]
    if not len(before):
        return None
    if abs(by_reward[before[-1], c]) > LEAK:
        return "before"
    if len(after) and abs(by_reward[after[0], c]) > LEAK:
        return "after"
    return "by value" if abs(by_value[before[-1], c]) > LEAK else "nobody"


def _valued_end(
    advantages: Callable[[Trajectories, Any], Advantages],
    given: Trajectories,
    settings: Any,
    terminated: Array,
) -> bool | None:
    """Tell whether the value target of a decision that ended its episode follows any value.

    What follows an end by the rules is worth nothing, so that its target is its reward alone.
    None where no decision ended one.
    """
    last = _some(terminated & given.ended & given.valid)
    if not last:
        return None
    at = tuple(np.transpose(last))
    values = np.array(given.value)
    values[at] += max(1.0, 10.0 * float(np.abs(values).max(initial=0.0)))
    step = values[at] - given.value[at]
    targets = [
        advantages(each, settings).value_target[at]
        for each in (given, dataclasses.replace(given, value=values))
    ]
    moved = (targets[1] - targets[0]) / step
    return bool((np.abs(moved) > LEAK).all())


def _small_steps(
    advantages: Callable[[Trajectories, Any], Advantages],
    given: Trajectories,
    settings: Any,
    tried: list[tuple[int, int]],
) -> dict[str, Any]:
    """Return what typical differences of rewards change: Credit's ``gain`` and ``target_flat``."""
    rewards = given.reward[given.valid].astype(np.float64)
    unit = float(np.std(rewards)) if tried else 0.0
    if not unit > 1e-6 * float(np.abs(rewards).max(initial=0.0)):  # rounding, of equal ones
        return {}
    base = advantages(given, settings)
    gains, flat = [], []
    for t, c in tried:
        still = False
        for step in (unit, -unit):
            reward = np.array(given.reward)
            reward[t, c] += step
            found = advantages(dataclasses.replace(given, reward=reward), settings)
            gains.append(abs(float(found.advantage[t, c] - base.advantage[t, c])))
            moved = abs(float(found.value_target[t, c] - base.value_target[t, c]))
            still |= not moved > 1e-6 * unit
        flat.append(still)
    return {"gain": float(np.median(gains)), "target_flat": float(np.mean(flat))}


def _some(chosen: Array) -> list[tuple[int, int]]:
    """Return a few places of ``chosen`` [T, C], spread over all."""
    places = np.argwhere(chosen)
    if not len(places):
        return []
    at = np.unique(np.linspace(0, len(places) - 1, TRIED).round().astype(int))
    return [(int(t), int(c)) for t, c in places[at]]


def _own(moved: Array, episode: Array, t: int, c: int) -> int | None:
    """Return 1 where the largest rise is in the episode of the decision (t, c), -1 where the
    largest fall is; 0: elsewhere."""
    if not np.nanmax(np.abs(moved)) > 0:
        return 0
    same = episode[:, c] == episode[t, c]
    here = np.where(same, moved[:, c], np.nan)
    if np.nanmax(here) >= 1 - 1e-3:
        return 1
    return -1 if np.nanmin(here) <= -1 + 1e-3 else 0


def _decided_before(given: Trajectories, episode: Array, t: int, c: int) -> bool:
    same = episode[: t + 1, c] == episode[t, c]
    return bool((given.valid[: t + 1, c] & same).any())


def _decides_after(given: Trajectories, episode: Array, t: int, c: int) -> bool:
    """Tell whether the reward after step t belongs to a decision of the next episode."""
    return bool(given.valid[t + 1, c])


def _sees(moved: Array, given: Trajectories, episode: Array, t: int, c: int) -> bool:
    """Tell whether a decision of the episode that ends in (t, c) was moved."""
    same = (episode[: t + 1, c] == episode[t, c]) & given.valid[: t + 1, c]
    return bool((np.abs(moved[: t + 1, c][same]) > LEAK).any())
