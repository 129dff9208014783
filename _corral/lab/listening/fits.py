"""Linear fits of recorded advantages and value targets, and the rollout as arrays of float64.

Generalized advantages satisfy A_t = r_t + gamma V_{t+1} - V_t + gamma lambda A_{t+1} within an
episode. This equation is linear in r, V and A, and stays linear if A is normalized over a rollout.
So a least squares fit over neighboring steps finds gamma and lambda without a search, and needs no
values after the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.lab.listening.heard import Rollout

__all__ = [
    "Fit",
    "Formula",
    "Model",
    "Table",
    "begins_at_flag",
    "fit",
    "flat_obs",
    "generalized",
    "jump_offset",
    "recursion",
    "shifted",
    "table_of",
]

EXACT = 1e-4
"""Largest error of an exact formula, as a share of the spread of its new part in each step."""

ROUNDING = 3e-6
"""Rounding of float32, with regard to the largest term of a formula."""

FEWEST = 32
"""Minimum number of rows of a fit."""


@dataclass(frozen=True)
class Table:
    """A rollout: [T, B] each, float64 or bool. Unknown numbers are NaN."""

    rewards: Array
    values: Array | None
    advantages: Array | None
    returns: Array | None
    terminated: Array
    truncated: Array
    valid: Array
    final_values: Array
    last_values: Array  # [B]
    ends_apart: bool  # truncated is known: terminated holds no time limits
    offset: int | None  # 1: the observation after an end begins an episode; see ``jump_offset``

    @property
    def ended(self) -> Array:
        both: Array = self.terminated | self.truncated
        return both

    @property
    def next_values(self) -> Array | None:
        """V of the next row, also after an end: [T, B]."""
        if self.values is None:
            return None
        return np.concatenate([self.values[1:], self.last_values[None]])

    @property
    def inner(self) -> Array:
        """Decisions with a next one in the same episode, away from ends: bool [T, B]."""
        near = self.ended | shifted(self.ended, 1, True) | shifted(self.ended, -1, False)
        plain: Array = self.valid & shifted(self.valid, 1, False) & ~near
        if plain.sum() >= 4 * FEWEST:
            return plain
        any_inner: Array = self.valid & shifted(self.valid, 1, False) & ~self.ended
        return any_inner


def table_of(rollout: Rollout) -> Table | None:
    """Return the arrays of a rollout; None without rewards or if a number is not finite."""
    if rollout.rewards is None or rollout.rewards.ndim != 2:
        return None
    shape = rollout.rewards.shape

    def numbers(values: Array | None) -> Array | None:
        if values is None or values.shape != shape:
            return None
        return values.astype(np.float64)

    no_row = np.zeros(shape, bool)
    terminated = no_row if rollout.terminated is None else rollout.terminated.astype(bool)
    truncated = no_row if rollout.truncated is None else rollout.truncated.astype(bool)
    valid = ~no_row if rollout.valid is None else rollout.valid.astype(bool)
    values = numbers(rollout.values)
    unknown = np.full(shape, np.nan)
    final = numbers(rollout.final_values)
    last = rollout.last_values
    table = Table(
        rewards=rollout.rewards.astype(np.float64),
        values=values,
        advantages=numbers(rollout.advantages),
        returns=numbers(rollout.returns),
        terminated=terminated,
        truncated=truncated & ~terminated,
        valid=valid,
        final_values=unknown if final is None else final,
        last_values=last.astype(np.float64).reshape(-1)
        if last is not None and last.size == shape[1]
        else unknown[0],
        ends_apart=rollout.truncated is not None,
        offset=jump_offset(rollout, terminated | truncated),
    )
    heard = (table.rewards, table.values, table.advantages, table.returns)
    if any(part is not None and not np.isfinite(part[valid]).all() for part in heard):
        return None
    return table


def begins_at_flag(table: Table) -> Table:
    """Return the table with ends one step earlier: the flag marked first steps of episodes."""
    return replace(
        table,
        terminated=shifted(table.terminated, 1, False),
        truncated=shifted(table.truncated, 1, False),
        offset=1,
    )


def shifted(values: Array, steps: int, fill: Any = np.nan) -> Array:
    """Return ``values`` of ``steps`` rows later, with ``fill`` beyond the rollout."""
    result = np.full_like(values, fill)
    if abs(steps) >= len(values):
        return result
    if steps > 0:
        result[:-steps] = values[steps:]
    elif steps < 0:
        result[-steps:] = values[:steps]
    else:
        result[:] = values
    return result


WIDE = 512
"""Columns of an observation that are looked at."""


def flat_obs(obs: Any, shape: tuple[int, ...]) -> Array | None:
    """Return observations [T, B, F] as float64, parts of dicts and tuples side by side.

    Pixels are divided by 255. Of wide observations, every n-th column is returned.
    """
    if obs is None:
        return None
    parts = (
        list(obs.values())
        if isinstance(obs, Mapping)
        else list(obs)
        if isinstance(obs, tuple)
        else [obs]
    )
    flat = []
    for part in parts:
        if isinstance(part, Mapping | tuple):
            inner = flat_obs(part, shape)
            if inner is None:
                return None
            flat.append(inner)
        elif not isinstance(part, np.ndarray) or part.dtype.kind not in "biuf":
            return None
        elif part.shape[:2] == shape or (part.shape[:1] == shape[:1] and shape[1] == 1):
            columns = part.reshape(*shape, -1)
            columns = columns[..., :: 1 + columns.shape[-1] // WIDE]
            flat.append(columns / 255 if part.dtype == np.uint8 else columns)
        else:
            return None
    return np.concatenate(flat, axis=-1).astype(np.float64) if flat else None


def jump_offset(rollout: Rollout, ended: Array) -> int | None:
    """Return the offset from a marked end to the first observation of the next episode.

    1: rows are as ``Rollout`` defines them. 0: the mark is on the first step of an episode. 2: a
    step between the episodes shows the final observation (autoreset in the next step). None: the
    observations do not show it.
    """
    obs = flat_obs(rollout.obs, ended.shape)
    if obs is None or not ended.any() or len(obs) < 8:
        return None
    spread = obs.std(axis=(0, 1))
    obs = obs[..., spread > 0] / spread[spread > 0]
    if not obs.shape[-1] or not np.isfinite(obs).all():
        return None
    steps = np.full(ended.shape, np.nan)
    steps[1:] = np.linalg.norm(np.diff(obs, axis=0), axis=-1)  # to this row from the one before
    inner = ~(ended | shifted(ended, 1, False) | shifted(ended, -1, False)) & np.isfinite(steps)
    at_ends = [shifted(steps, k)[ended] for k in (0, 1, 2)]
    if not inner.any() or not all(np.isfinite(item).any() for item in at_ends):
        return None
    usual = np.median(steps[inner])
    jumps = [np.nanmean(item) for item in at_ends]
    best = int(np.argmax(jumps))
    second = max(jump for k, jump in enumerate(jumps) if k != best)
    return best if jumps[best] > 3 * max(second, usual) else None


# --- Fits ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Coefficients of a linear formula, and its errors over the rows."""

    coefs: dict[str, float]  # without constant features
    effects: dict[str, float]  # coefficient times the spread of its feature
    shift: float
    worst: float  # largest error
    tolerance: float
    spread: float  # of the new part in each step
    unique: bool  # no other coefficients fit as well
    distinct: bool  # enough different rows

    @property
    def exact(self) -> bool:
        return self.worst <= self.tolerance

    @property
    def telling(self) -> bool:
        """True if an exact fit does not come from few numbers or from rounding."""
        return self.exact and self.distinct and self.tolerance <= 1e-3 * self.spread

    def matters(self, name: str) -> bool:
        """Return True if the feature has an effect above rounding."""
        return abs(self.effects.get(name, 0.0)) > 10 * self.tolerance

    def __getitem__(self, name: str) -> float:
        return self.coefs.get(name, 0.0)


def fit(target: Array, features: Mapping[str, Array | None], rows: Array) -> Fit | None:
    """Fit ``target`` by features and a constant over ``rows``, bool [T, B].

    The feature "later" holds the target of a neighboring row. Returns None with too few rows.
    """
    present = {name: values for name, values in features.items() if values is not None}
    usable = rows & np.isfinite(target)
    for values in present.values():
        usable = usable & np.isfinite(values)
    y = target[usable]
    if len(y) < max(FEWEST, 6 * len(present)):
        return None
    columns = {name: values[usable] for name, values in present.items()}
    means = {name: values.mean() for name, values in columns.items()}
    spreads = {name: values.std() for name, values in columns.items()}
    names = [name for name in columns if spreads[name] > 1e-9 * np.abs(columns[name]).max()]
    largest = float(np.abs(y).max())
    if not names:
        x = np.zeros((len(y), 0))
        solution, rank = np.zeros(0), 0
    else:
        x = np.stack([(columns[name] - means[name]) / spreads[name] for name in names], axis=1)
        solution, _, rank, _ = np.linalg.lstsq(x, y - y.mean(), rcond=1e-6)
    errors = y - y.mean() - x @ solution
    coefs = {name: float(s / spreads[name]) for name, s in zip(names, solution, strict=True)}
    for name in names:
        largest = max(largest, abs(coefs[name]) * float(np.abs(columns[name]).max()))
    new = y - coefs.get("later", 0.0) * columns["later"] if "later" in columns else y
    spread = float(np.std(new))
    worst, tolerance = float(np.abs(errors).max()), EXACT * spread + ROUNDING * largest
    different = 0
    if worst <= tolerance:
        rounded = np.round(np.column_stack([x, y / (y.std() or 1.0)]), 4)
        different = len(np.unique(rounded, axis=0))
    return Fit(
        coefs,
        {name: float(s) for name, s in zip(names, solution, strict=True)},
        float(y.mean() - sum(coefs[name] * means[name] for name in names)),
        worst,
        tolerance,
        spread,
        rank == len(names),
        different >= max(16, 4 * (len(names) + 1)),
    )


# --- Formulas ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """The formula of recorded numbers. ``cause`` is "" for a sound one."""

    name: str
    cause: str = ""
    measured: str = ""
    certainty: int = 3
    gamma: float | None = None
    gae_lambda: float | None = None
    slope: float = 1.0  # of a normalization
    shift: float | None = 0.0  # None: unknown


@dataclass(frozen=True)
class Model:
    """Number_t = reward * r + value * V_t + after * V_{t+1} + trace * Number_{t+1} + shift."""

    reward: float
    value: float
    after: float
    trace: float
    final: float  # factor of V(final observation)
    shift: float
    end: float | None  # constant at an end with V = 0; None: unknown
    tolerance: float
    spread: float


def recursion(
    table: Table, telling: bool = False, rows: Array | None = None, **other: Array | None
) -> Fit | None:
    """Fit the equation of generalized advantages within episodes; None if it is not exact.

    ``other`` replaces rewards, values, after (next values), later (next advantages) or target.
    """
    target = other.get("target", table.advantages)
    assert target is not None
    features = {
        "reward": other.get("rewards", table.rewards),
        "value": other.get("values", table.values),
        "after": other.get("after", table.next_values),
        "later": other.get("later", shifted(target, 1)),
    }
    fitted = fit(target, features, table.inner if rows is None else rows)
    if fitted is None or not fitted.exact or (telling and not fitted.telling):
        return None
    return fitted


def generalized(table: Table, gamma: Array, gae_lambda: Array, bootstrap: bool = False) -> Array:
    """Return generalized advantages [K, T, B]; NaN if they depend on unknown values.

    ``gamma``, ``gae_lambda`` [K]. ``bootstrap``: use the value of the last row for unknown values
    after the rollout.
    """
    gamma, trace = gamma[:, None], (gamma * gae_lambda)[:, None]  # [K, 1]
    values = np.zeros_like(table.rewards) if table.values is None else table.values
    unknown = 0.0 if table.values is None else values[-1] if bootstrap else np.nan
    after = np.where(np.isfinite(table.last_values), table.last_values, unknown)
    final = np.where(np.isfinite(table.final_values), table.final_values, values)
    following = np.concatenate([values[1:], after[None]])
    following = np.where(table.terminated, 0.0, np.where(table.truncated, final, following))
    goes_on = (~table.ended).astype(np.float64)
    rest = table.rewards - values
    result = np.empty((len(gamma), *values.shape))
    later: Array = np.zeros((len(gamma), values.shape[1]))
    for t in range(len(values) - 1, -1, -1):
        later = (
            rest[t] + gamma * following[t] + trace * goes_on[t] * np.where(goes_on[t], later, 0.0)
        )
        result[:, t] = later
    return result
