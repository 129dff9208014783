"""Does an advantage function credit who earned it? Told by changing one number, and looking.

An advantage function is pure, so it can be asked again with one reward, or one value, that is made
huge: whatever it normalizes then shows who was credited for it, and nothing else. No formula is
presumed: GAE, rewards to go, whole returns and others of that kind pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.trainers.on_policy.records import Advantages, Trajectories

__all__ = ["Credit", "credit"]

TRIED = 6
"""Decisions, ends and cuts that are tried, each."""

HUGE = 1e6
"""By how many times the largest number of the rollout one number is raised."""

LEAK = 0.02
"""Share of a change that may be seen where none belongs."""


@dataclass(frozen=True)
class Credit:
    """What was found; None: nothing in the rollout told it."""

    own: bool | None = None  # a reward raises the advantage of the decision that it followed
    opposite: bool | None = None  # it lowers it
    limit: bool | None = None  # V of the last observation counts where a time limit cuts
    past_end: bool | None = None  # what comes after an end changes what came before
    from_reset: bool | None = None  # ... the value of the next episode's first observation does


def credit(
    advantages: Callable[[Trajectories, Any], Advantages],
    given: Trajectories,
    settings: Any,
    terminated: Array,
    truncated: Array,
) -> Credit:
    """Return whom ``advantages`` credits, by the decisions, ends and cuts of a rollout.

    ``terminated``, ``truncated`` bool [T, C]: how the environment ended episodes. Float32 holds
    what is compared: shares of one huge number.
    """
    episode = np.cumsum(np.pad(terminated | truncated, ((1, 0), (0, 0)))[:-1], axis=0)  # [T, C]
    scale = HUGE * max(
        1.0, *(float(np.abs(a).max(initial=0.0)) for a in (given.reward, given.value))
    )

    base = advantages(given, settings).advantage.astype(np.float64)

    def changed(name: str, t: int, c: int) -> Any:
        """Return, for each valid decision, what share of the largest change it got: [T, C]."""
        values = np.array(getattr(given, name), dtype=np.float64)
        values[t, c] += scale
        found = advantages(dataclasses.replace(given, **{name: values}), settings).advantage
        if np.allclose(found, base, rtol=1e-3, atol=1e-6):
            return np.zeros(found.shape)
        found = np.where(given.valid, found.astype(np.float64), np.nan)
        moved = found - np.nanmedian(found)
        most = np.nanmax(np.abs(moved), initial=0.0)
        return moved / most if most > 0 else moved

    own = [_own(changed("reward", t, c), episode, t, c) for t, c in _some(given.valid)]
    told = [each for each in own if each is not None]
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
        from_reset=None
        if not later
        else any(_sees(changed("value", t + 1, c), given, episode, t, c) for t, c in later),
    )


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
