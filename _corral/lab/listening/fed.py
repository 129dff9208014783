"""Recorded rollouts, as arrays for rules and as evidence for rules of the doctor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import EnvRecord, Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.fits import flat_obs
from corral.lab.listening.heard import Heard, Rollout

__all__ = ["Seen", "by_doctor", "fed", "is_image", "seen"]

WIDE = 64
"""Observations with more columns are not examined column by column."""


@dataclass(frozen=True)
class Seen:
    """A rollout with its shape [T, B], ends, valid decisions and flat observations."""

    rollout: Rollout  # a copy: the cache must not keep the key
    shape: tuple[int, int]
    valid: Array  # bool [T, B]
    ended: Array | None  # bool [T, B]
    obs: Array | None  # float64 [T, B, F]

    def wrong(self) -> dict[str, Array]:
        """Return which rewards and observations are not finite: bool [T, B]."""
        parts = {"reward": self.rollout.rewards, "observation": self.obs}
        return {
            name: ~np.isfinite(values.reshape(*self.shape, -1)).all(axis=-1) & self.valid
            for name, values in parts.items()
            if values is not None and values.shape[:2] == self.shape
        }

    @property
    def actions(self) -> Array | None:
        """Discrete actions [T, B]; None for other actions."""
        actions = self.rollout.actions
        if actions is None or actions.dtype.kind not in "iu":
            return None
        if actions.ndim == 3 and actions.shape[-1] == 1:
            actions = actions[..., 0]
        return actions if actions.shape == self.shape else None

    @property
    def mask(self) -> Array | None:
        mask = self.rollout.mask
        return mask if mask is not None and mask.ndim == 3 and mask.shape[-1] > 1 else None

    @property
    def within(self) -> Array:
        """Steps t with t + 1 in the same episode: bool [T - 1, B]."""
        both: Array = self.valid[:-1] & self.valid[1:]
        return both if self.ended is None else both & ~self.ended[:-1]


_SEEN: WeakKeyDictionary[Rollout, Seen | None] = WeakKeyDictionary()


def seen(rollout: Rollout) -> Seen | None:
    """Return a rollout for rules; None without a field that has a time and a column."""
    if rollout not in _SEEN:
        _SEEN[rollout] = _seen(rollout)
    return _SEEN[rollout]


def _seen(rollout: Rollout) -> Seen | None:
    fields = (rollout.rewards, rollout.values, rollout.log_probs, rollout.terminated)
    shape = next((part.shape for part in fields if part is not None and part.ndim == 2), None)
    if shape is None:
        return None
    ends = [
        part.astype(bool)
        for part in (rollout.terminated, rollout.truncated)
        if part is not None and part.shape == shape
    ]
    valid = np.ones(shape, bool) if rollout.valid is None else rollout.valid.astype(bool)
    ended = np.logical_or.reduce(ends) if ends else None
    return Seen(replace(rollout), (shape[0], shape[1]), valid, ended, flat_obs(rollout.obs, shape))


def is_image(rollout: Rollout) -> bool:
    """Return True for pixels, and for codes of states: networks scale or embed them."""
    obs = rollout.obs
    if not isinstance(obs, np.ndarray):
        return False
    return obs.dtype == np.uint8 or obs.ndim >= 5 or (obs.dtype.kind in "iu" and obs.ndim <= 3)


Rule = Callable[[PolicyEvidence, Evidence], Finding | None]


def by_doctor(rule: Rule, heard: Heard) -> Finding | None:
    """Return the finding of a rule of the doctor about the first or the latest rollout."""
    for rollout in dict.fromkeys(map(id, heard.rollouts[:1] + heard.rollouts[-1:])):
        item = next(part for part in heard.rollouts if id(part) == rollout)
        part = seen(item)
        if part is None or any(wrong.any() for wrong in part.wrong().values()):
            continue
        if (finding := rule(*fed(part, heard.policy))) is not None:
            return finding
    return None


def fed(part: Seen, policy: str) -> tuple[PolicyEvidence, Evidence]:
    """Return a rollout as the evidence that the doctor's rules read. Columns are copies."""
    rollout = part.rollout
    record = PolicyEvidence(policy, ("agent",))
    if rollout.rewards is not None and rollout.rewards.shape == part.shape:
        record.rewards.append((rollout.rewards, rollout.rewards))
    if part.obs is not None and part.obs.shape[-1] <= WIDE and not is_image(rollout):
        record.obs.append((part.obs, part.obs))
    if part.mask is not None:
        record.masks.append((part.mask, part.mask))
    if part.actions is not None:
        record.actions.append(part.actions)
    record.acted.append(part.valid)
    no_row = np.zeros(part.shape, bool)
    for flags, parts in (
        (rollout.terminated, record.terminated),
        (rollout.truncated, record.truncated),
    ):
        parts.append(no_row if flags is None else flags.astype(bool))
    env = EnvRecord()
    if part.ended is not None:
        env.begins.append(np.concatenate([np.ones((1, part.shape[1]), bool), part.ended]))
    return record, Evidence(None, {policy: record}, [], env=env)
