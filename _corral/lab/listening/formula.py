"""Find the formula that reproduces recorded advantages and value targets exactly.

Sound formulas come first: generalized advantages with any lambda, rewards to go with or without a
baseline, n-step and whole returns, each up to a normalization with a positive slope. If none of
them fits, faulty ones are tried. A fault is certain only if its formula reproduces the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.fits import Fit, Table, begins_at_flag, fit, shifted, table_of
from corral.lab.listening.heard import Heard, Rollout

__all__ = ["RULES", "Formula", "advantage_formula", "formula_of", "target_formula"]

GAMMAS = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0)
LAMBDAS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 1.0)
"""Candidates if gamma and lambda are unknown and a fit cannot show them."""

SHORT = 0.45
"""Discount below which a decision hardly counts what follows its own step."""

MOST = 2**18
"""Largest number of estimates over all candidates."""


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


# --- Advantages ----------------------------------------------------------------------------------


def formula_of(
    table: Table, gamma: float | None = None, gae_lambda: float | None = None
) -> Formula | None:
    """Return the formula of the advantages of a rollout; None if it is not known."""
    advantages = table.advantages
    if advantages is None or table.valid.sum() < 48:
        return None
    if (none := _zero(table, gamma)) is not None or np.ptp(advantages[table.valid]) <= 1e-9:
        return none
    if (sound := _recursion(table)) is not None:
        formula = _interpreted(sound, table, gamma, gae_lambda)
        if formula.cause or formula.name not in ("gae", "rewards to go"):
            return formula
        return _ends(table, advantages, _model(sound, table), formula) or formula
    if _other_sound(table):
        return Formula("other")
    return next(_faulty(table, gamma, gae_lambda), None)


def _zero(table: Table, gamma: float | None) -> Formula | None:
    """Return the formula of advantages that are all equal while rewards minus values differ."""
    advantages, values = table.advantages, table.values
    assert advantages is not None
    if np.std(advantages[table.valid]) > 1e-9 or values is None:
        return None
    raw = np.std((table.rewards - values)[table.valid])
    discount = np.array([gamma if gamma is not None else 0.99])
    long = np.std(generalized(table, discount, np.ones(1), True)[0][table.valid])
    if min(raw, long) <= 1e-6:
        return None
    measured = (
        f"advantages have a standard deviation of {np.std(advantages[table.valid]):.3g}, "
        f"rewards minus values one of {raw:.3g}"
    )
    return Formula("constant", "zero-advantages", measured)


def _recursion(
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
    found = fit(target, features, table.inner if rows is None else rows)
    if found is None or not found.exact or (telling and not found.telling):
        return None
    return found


def _interpreted(
    found: Fit, table: Table, gamma: float | None, gae_lambda: float | None
) -> Formula:
    """Return the formula of exact coefficients: a sound one, or one with a wrong sign or horizon.

    Coefficients that the data do not determine count as sound.
    """
    if not found.unique or not found.telling:
        return Formula("unclear")
    reward, value, after, later = (found[name] for name in ("reward", "value", "after", "later"))
    paid, valued, seen = (found.matters(name) for name in ("reward", "value", "after"))
    if paid and reward < 0:
        measured = f"advantages contain {reward:.3g} times their reward"
        return Formula("negative", "advantage-sign", measured)
    if valued and value > 0 and (paid or (seen and after < 0)):
        measured = f"advantages contain {value:+.3g} times the value of their own observation"
        return Formula("negative", "advantage-sign", measured)
    if "reward" in found.coefs and not paid:
        if abs(later - 1) < 1e-3 and (not valued or abs(after + value) < 1e-2 * abs(value)):
            return Formula("whole return")
        rewards = table.rewards[table.inner]
        if np.mean(rewards != np.median(rewards)) > 0.1 and valued:
            measured = "advantages of values alone: their reward has the coefficient 0"
            return Formula("values", "advantage-elsewhere", measured)
        return Formula("unclear")
    slope = -value if valued else reward
    if not valued:
        named = later if not seen else None
        if (
            not seen
            and gamma is not None
            and gae_lambda is not None
            and table.values is not None
            and gae_lambda < 0.999
            and abs(later - gamma * gae_lambda) < 1e-3
            and np.std(table.values[table.inner]) > 10 * found.tolerance / max(reward, 1e-12)
        ):
            measured = f"rewards are summed with factor {later:.4g}; no value enters"
            return Formula("values missing", "values-missing", measured, 2)
        return Formula("rewards to go", gamma=named, slope=slope, shift=None)
    horizon = after / slope if seen else 0.0
    if horizon < 0:
        measured = f"the value of the next observation has the coefficient {after:.3g}, not above 0"
        return Formula("negative", "advantage-sign", measured)
    if not seen and later > 1e-3:
        measured = f"rewards are summed with factor {later:.4g}, but V of the next step is missing"
        return Formula("next values missing", "values-missing", measured, 2)
    if horizon < SHORT:
        return _myopic(table, horizon, gamma)
    if horizon > 1.01 or later < -1e-3 or later > 1.01 * horizon:
        return Formula("unclear")
    model = _model(found, table)
    shift = model.end if abs(reward - slope) < 1e-3 * abs(slope) else None
    return Formula("gae", "", "", 3, horizon, later / horizon, slope, shift)


def _myopic(table: Table, horizon: float, gamma: float | None) -> Formula:
    if gamma is not None and abs(gamma - horizon) < 1e-2:
        measured = f"gamma is {gamma:g}"
    else:
        measured = f"advantages discount the next value by {horizon:.3g}"
        measured += "" if gamma is None else f"; gamma is {gamma:g}"
    rewards = table.rewards[table.inner]
    late = float(np.unique(rewards, return_counts=True)[1].max() / len(rewards))
    certainty = 2 if late > 0.5 and horizon < 0.2 else 1  # a short discount may be on purpose
    if gamma is not None and gamma > 0.5:
        certainty = 3
    return Formula("myopic", "myopic", measured, certainty, horizon)


def _model(found: Fit, table: Table) -> Model:
    """Return the coefficients, and the constant that remains if an episode ends."""
    later = found["later"]
    values = {"reward": table.rewards, "value": table.values}
    known = all(name in found.coefs for name, part in values.items() if part is not None)
    scaled = table.values is not None and found.matters("value")
    if scaled and abs(found["reward"] + found["value"]) > 1e-3 * abs(found["value"]):
        known = False  # a critic with another scale may have another zero
    end = found.shift / (1 - later) if known and abs(1 - later) > 1e-3 else None
    after = found["after"] if found.matters("after") else 0.0
    return Model(
        found["reward"],
        found["value"],
        after,
        later,
        after,
        found.shift,
        end,
        found.tolerance,
        found.spread,
    )


def _other_sound(table: Table) -> bool:
    """Return True for sound formulas without the equation of generalized advantages."""
    advantages, values = table.advantages, table.values
    assert advantages is not None
    rows = table.inner
    step = np.abs(shifted(advantages, 1) - advantages)[rows]
    if np.nanmax(step, initial=0.0) <= 1e-5 * np.ptp(advantages[table.valid]):
        return True  # one number for an episode
    columns = np.arange(advantages.shape[1])
    each = [_recursion(table, rows=rows & (columns == k)) for k in columns[:8]]
    if len(each) > 1 and all(
        item is not None and (not item.unique or (item["reward"] >= 0 >= item["value"]))
        for item in each
    ):
        return True  # normalized over each column
    return any(_n_steps(table, n) for n in (2, 3, 4, 5, 8, 10, 16, 20, 32)) or (
        values is not None and _n_steps(table, 1)
    )


def _n_steps(table: Table, n: int) -> bool:
    """Return True for n-step returns, with or without values."""
    assert table.advantages is not None
    rows = table.valid & ~table.ended
    for k in range(1, n + 1):
        rows = rows & shifted(table.valid & ~table.ended, k, False)
    for values in (table.values, None):
        features = {str(k): shifted(table.rewards, k) for k in range(n)}
        if values is not None:
            features |= {"value": values, "after": shifted(values, n)}
        found = fit(table.advantages, features, rows)
        if found is not None and found.exact:
            return min((found[str(k)] for k in range(n)), default=0.0) >= -1e-6
    return False


# --- Faulty advantages ---------------------------------------------------------------------------


def _faulty(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
    """Yield the faulty formulas that reproduce the advantages."""
    for kind in (_misplaced, _of_other_columns, _by_step, _unsigned, _permuted, _unlike):
        yield from kind(table, gamma, gae_lambda)


def _misplaced(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
    """Yield formulas with rewards, values or advantages of other steps."""
    advantages, rewards, values = table.advantages, table.rewards, table.values
    assert advantages is not None
    wide = table.inner
    for k in (-2, -1, 1, 2):
        wide = wide & shifted(table.valid & ~table.ended, k, False)

    def tried(cause: str, text: str, **other: Array | None) -> Iterator[Formula]:
        rows = wide if wide.sum() >= 48 else None
        found = _recursion(table, telling=True, rows=rows, **other)
        if found is not None and found.matters("reward") and found["reward"] > 0:
            yield Formula(text, cause, f"the advantages are exactly those with {text}")

    early, late = shifted(rewards, 1), shifted(rewards, -1)
    yield from tried("advantage-elsewhere", "the reward of the step before", rewards=late)
    yield from tried("advantage-elsewhere", "the reward of the step after", rewards=early)
    earlier = shifted(advantages, -1)
    yield from tried("advantage-elsewhere", "a sum that runs forward in time", later=earlier)
    yield from tried("advantage-elsewhere", "rewards reversed in time", rewards=rewards[::-1])
    # A recursion over reversed arrays that is not turned back.
    yield from tried("advantage-elsewhere", "the order of steps reversed", target=advantages[::-1])
    for k, text in ((1, "next"), (-1, "previous")):
        moved = {"target": shifted(advantages, k)}
        yield from tried("advantage-elsewhere", f"advantages of the {text} decision", **moved)
    if values is not None:
        after = table.next_values
        for now, then, text in (
            (after, shifted(values, 2), "values of one step later"),
            (shifted(values, -1), values, "values of one step earlier"),
            (shifted(values, -1), after, "the value of the step before as their own"),
            (values, shifted(values, 2), "the value of two steps later as the next one"),
        ):
            yield from tried("values-of-another-step", text, values=now, after=then)
        reversed_ = values[::-1]
        parts = {"values": reversed_, "after": shifted(reversed_, 1)}
        yield from tried("values-of-another-step", "values reversed in time", **parts)
    if rewards.shape[1] > 1:
        text = "their rows and columns mixed by a reshape"
        yield from tried("advantages-mixed", text, target=_reshaped(advantages))
        yield from tried("advantages-mixed", "rewards mixed by a reshape", rewards=_mixed(rewards))
        if values is not None:
            mixed = _mixed(values)
            parts = {"values": mixed, "after": shifted(mixed, 1)}
            yield from tried("advantages-mixed", "values mixed by a reshape", **parts)


def _reshaped(values: Array) -> Array:
    """Undo a reshape of [B, T] to [T, B]."""
    return values.reshape(values.shape[1], values.shape[0]).T


def _mixed(values: Array) -> Array:
    """Take [T, B] for [B, T]."""
    return np.ascontiguousarray(values.T).reshape(values.shape)


def _of_other_columns(
    table: Table, gamma: float | None, gae_lambda: float | None
) -> Iterator[Formula]:
    """Yield formulas with rewards, values or advantages of other columns."""
    count = table.rewards.shape[1]
    advantages, values = table.advantages, table.values
    assert advantages is not None
    if count < 2:
        return
    # Rewards of all columns as features show which of them count.
    counted = min(count, 16)
    parts = {f"reward {k}": table.rewards[:, [k] * count] for k in range(counted)}
    shown = []
    for j in range(counted):
        rows = table.inner & (np.arange(count) == j)
        features = {
            **parts,
            "value": values,
            "after": table.next_values,
            "later": shifted(advantages, 1),
        }
        found = fit(advantages, features, rows)
        if found is None or not found.telling or not found.unique:
            break
        shown.append([found[f"reward {k}"] if found.matters(f"reward {k}") else 0.0
                      for k in range(counted)])  # fmt: skip
    if len(shown) == counted:
        weights = np.array(shown)
        own = np.diag(weights)
        of = np.abs(weights).argmax(axis=1)
        if (own == 0).all() and (of != np.arange(counted)).all():
            measured = "; ".join(f"column {j} gets the rewards of column {of[j]}" for j in (0, 1))
            yield Formula("rewards of another", "reward-of-another", measured)
        elif np.ptp(weights) <= 1e-2 * np.abs(weights).max():
            yield Formula("shared rewards")  # a team
        return
    for k in range(1, min(count, 9)):
        moved = np.roll(advantages, k, axis=1)
        if _recursion(table, telling=True, target=moved) is not None:
            measured = f"advantages are those of the column {k} places away"
            yield Formula("another column", "advantages-mixed", measured)
        if values is not None:
            other, after = np.roll(values, k, axis=1), np.roll(table.next_values, k, axis=1)
            if _recursion(table, telling=True, values=other, after=after) is not None:
                measured = f"advantages use the values of the column {k} places away"
                yield Formula("values of another", "advantages-mixed", measured)


def _by_step(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
    """Yield a normalization over the columns of each step."""
    advantages = table.advantages
    assert advantages is not None
    if advantages.shape[1] < 2 or not table.valid.all() or len(advantages) < 16:
        return
    size = float(advantages.std())
    means, spreads = advantages.mean(axis=1), advantages.std(axis=1)
    if np.abs(means).max() > 1e-4 * size:
        return
    scaled = np.ptp(spreads) < 1e-3 * spreads.max() and advantages.shape[1] > 2
    text = "mean 0 and standard deviation 1" if scaled else "mean 0"
    measured = f"advantages have {text} over the columns of each step"
    yield Formula("normalized by step", "advantages-mixed", measured, 3 if scaled else 2)


def _unsigned(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
    """Yield sizes or squares of generalized advantages."""
    advantages = table.advantages
    assert advantages is not None
    if advantages[table.valid].min() < 0:
        return
    for signed in _candidates(table, gamma, gae_lambda):
        rows = table.valid & np.isfinite(signed)
        negative = float(np.mean(signed[rows] < signed[rows].mean())) if rows.any() else 0.0
        if not 0.05 < negative < 0.95:
            continue
        for target, text in ((advantages**2, "sizes"), (advantages, "squares")):
            found = fit(target, {"square": signed**2, "linear": signed}, rows)
            if found is not None and found.worst < 1e-3 * target[rows].std():
                measured = f"advantages are the {text} of the estimates, without their signs"
                yield Formula("unsigned", "advantage-unsigned", measured)
                return


def _permuted(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
    """Yield generalized advantages in another order."""
    advantages = table.advantages
    assert advantages is not None
    if advantages.size < 64:
        return
    got = np.sort(advantages[table.valid])
    for signed in _candidates(table, gamma, gae_lambda):
        if not np.isfinite(signed[table.valid]).all() or signed[table.valid].std() <= 1e-9:
            continue
        made = np.sort(signed[table.valid])
        slope = got.std() / made.std()
        off = np.abs(got - got.mean() - slope * (made - made.mean())).max()
        distinct = len(np.unique(np.round(made / made.std(), 5)))
        if off < 1e-3 * got.std() and distinct > 0.5 * len(made):
            correlation = np.corrcoef(advantages[table.valid], signed[table.valid])[0, 1]
            if correlation > 0.95:
                continue
            measured = (
                "the advantages of the rollout are right, but belong to other decisions "
                f"(correlation {correlation:.2f})"
            )
            yield Formula("another order", "advantage-shuffled", measured)
            return


def _candidates(table: Table, gamma: float | None, gae_lambda: float | None) -> Array:
    """Return generalized advantages [K, T, B] for known or usual gammas and lambdas."""
    gammas = [gamma] if gamma is not None else GAMMAS[::-1]
    lambdas = [gae_lambda] if gae_lambda is not None else LAMBDAS
    pairs = np.array([(g, item) for g in gammas for item in lambdas])
    most = max(1, MOST // table.rewards.size)
    return generalized(table, pairs[:most, 0], pairs[:most, 1])


def _unlike(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
    """Yield a note if advantages resemble no sound estimate, or its opposite."""
    advantages = table.advantages
    assert advantages is not None
    by: list[float] = []
    discount = gamma if gamma is not None else 0.99
    lambdas = np.array([gae_lambda if gae_lambda is not None else 0.95, 1.0, 0.0])
    for signed in generalized(table, np.full(3, discount), lambdas, bootstrap=True):
        rows = table.valid & np.isfinite(signed)
        if rows.sum() < 512 or min(signed[rows].std(), advantages[rows].std()) <= 1e-9:
            return
        by.append(float(np.corrcoef(signed[rows], advantages[rows])[0, 1]))
    if max(by) < -0.8:
        measured = f"advantages correlate {max(by):.2f} with every usual estimate"
        yield Formula("negative", "advantage-sign", measured, 2)
    elif max(by) < 0.05:
        measured = f"advantages correlate at most {max(by):.2f} with the usual estimates"
        yield Formula("unknown", "advantage-unknown", measured, 1)


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


# --- Episode ends --------------------------------------------------------------------------------


def _ends(table: Table, target: Array, model: Model, formula: Formula) -> Formula | None:
    """Return the formula if ends are treated wrongly, from the equation in the steps of ends."""
    if table.offset == 0:
        table = begins_at_flag(table)
    rest = target - model.reward * table.rewards
    if table.values is not None:
        rest = rest - model.value * table.values
    slack = 10 * model.tolerance + 2e-3 * model.spread
    ends = _End(table, model, rest, shifted(target, 1), slack)
    for kind in (ends.of_terminated, ends.of_truncated):
        if (found := kind()) is not None:
            cause, measured, certainty = found
            return replace(formula, cause=cause, measured=measured, certainty=certainty)
    return None


@dataclass(frozen=True)
class _End:
    """The terms of a formula that follow an episode's end: ``rest`` [T, B] must equal them."""

    table: Table
    model: Model
    rest: Array
    later: Array
    slack: float

    def kept(self, rows: Array) -> bool:
        """Return True if the next episode enters."""
        after: Array | float = 0.0
        if self.model.after:
            assert self.table.next_values is not None
            after = self.table.next_values
        kept = self.model.after * after + self.model.trace * self.later + self.model.shift
        return self._equal(rows, kept, 0.0)

    def stops(self, rows: Array, value: Array | float = 0.0) -> bool:
        """Return True if ``value`` counts as V after the end and no later advantage does."""
        return self._equal(
            rows, self.model.final * value + np.zeros_like(self.rest), self.model.end
        )

    def _equal(self, rows: Array, expected: Array, shift: float | None) -> bool:
        off = (self.rest - expected)[rows]
        off = off[np.isfinite(off)]
        if len(off) < (2 if shift is not None else 4):
            return False
        return bool(
            np.abs(off - (shift if shift is not None else np.median(off))).max() < self.slack
        )

    def clear(self, rows: Array, value: Array | float) -> bool:
        """Return True if ``value`` as V after the end differs from 0 by more than rounding."""
        size = np.abs(self.model.final * value + np.zeros_like(self.rest))[rows]
        return bool(np.nanmedian(size) > 10 * self.slack) if rows.any() else False

    def of_terminated(self) -> tuple[str, str, int] | None:
        table = self.table
        rows = table.terminated & table.valid
        if not rows.any() or self.stops(rows):
            return None
        count = int(rows.sum())
        if self.kept(rows):
            return self._ignored(rows, f"advantages of {count} steps that end an episode")
        after = table.next_values
        if after is not None and self.model.after:
            if self.stops(rows, after) and self.clear(rows, after):
                measured = (
                    f"V of the observation after {count} terminated steps counts, "
                    f"about {np.nanmean(after[rows]):.3g}"
                )
                return "end-taken-for-limit", measured, 3
            if np.isfinite(table.final_values[rows]).all() and self.stops(rows, table.final_values):
                return "end-taken-for-limit", f"V(final observation) counts in {count} ends", 3
            if self.model.end is not None and table.ends_apart:
                used = (self.rest[rows] - self.model.end) / self.model.final
                low, high = np.quantile(table.values[table.valid], [0, 1])  # type: ignore[index]
                wide = high - low
                if ((used > low - wide) & (used < high + wide)).all() and (
                    np.abs(self.model.final * used) > 5 * self.slack
                ).mean() > 0.9:
                    measured = f"V after {count} terminated steps counts as {used.mean():.3g}"
                    return "end-taken-for-limit", measured, 2
        return None

    def _ignored(self, rows: Array, text: str) -> tuple[str, str, int] | None:
        table = self.table
        others = shifted(rows, -1, False) & ~table.ended, shifted(rows, 1, False) & ~table.ended
        for cut, where in zip(others, ("after", "before"), strict=True):
            if cut.sum() >= 2 and self.stops(cut) and not self.kept(cut):
                # The script may hand over marks of another step: observations must tell.
                certainty = 3 if table.offset == 1 else 1
                return (
                    "end-ignored",
                    f"{text} count the next one; they stop one step {where}",
                    certainty,
                )
        if table.offset == 2:
            return None
        return "end-ignored", f"{text} contain those of the next episode", 3

    def of_truncated(self) -> tuple[str, str, int] | None:
        table = self.table
        rows = table.truncated & table.valid
        if not rows.any():
            return None
        count = int(rows.sum())
        after = table.next_values
        if self.kept(rows) and not self.stops(rows):
            return self._ignored(rows, f"advantages of {count} steps at a time limit")
        if not self.model.after or after is None or self.model.end is None:
            return None
        final = table.final_values
        known = rows & np.isfinite(final)
        if known.any() and self.stops(known, final):
            return None
        size = final if known.any() else table.values
        if (
            self.stops(rows)
            and size is not None
            and self.clear(known if known.any() else rows, size)
        ):
            measured = (
                f"V after {count} time limits counts as 0; V is about {np.nanmean(size[rows]):.3g}"
            )
            return "limit-taken-for-end", measured, 3
        if self.stops(rows, after) and self.clear(rows, after) and table.offset != 2:
            shown = table.offset == 1 or known.any() or self._pays_after(rows)
            measured = (
                f"V after {count} time limits is that of the next episode's first observation"
            )
            return "bootstraps-from-reset", measured, 3 if shown else 1
        if known.sum() >= 2 and self.clear(known, final):
            used = (self.rest[known] - self.model.end) / self.model.final
            measured = (
                f"V used at time limits {used.mean():.4g}, V of the final observations "
                f"{final[known].mean():.4g}"
            )
            return "limit-value", measured, 2
        return None

    def _pays_after(self, rows: Array) -> bool:
        """Return True if steps after a limit pay: a step between two episodes pays nothing."""
        following = shifted(rows, -1, False)
        return bool(np.mean(self.table.rewards[following] != 0) > 0.5) if following.any() else False


# --- Value targets -------------------------------------------------------------------------------


def targets_of(table: Table, advantages: Formula | None) -> Formula | None:
    """Return the formula of the value targets of a rollout; None if it is not known."""
    targets, values = table.returns, table.values
    if targets is None or values is None or table.valid.sum() < 48:
        return None
    if np.ptp(targets[table.valid]) <= 1e-9:
        return None
    if np.array_equal(targets[table.valid], values[table.valid]):
        differ = table.advantages is not None and np.std(table.advantages[table.valid]) > 1e-6
        if differ:
            return Formula("values", "targets-follow-values", "targets equal the values")
        return None
    if (found := _recursion(table, target=targets)) is not None:
        return _read_targets(found, table, targets)
    if table.advantages is not None and _raw(table, targets, values):
        return Formula("advantage + value")
    for moved, text in _moved_targets(targets):
        if (found := _recursion(table, telling=True, target=moved)) is not None and _plain(found):
            return Formula("another order", "targets-shuffled", f"targets are {text}")
    forward = shifted(targets, -1)
    found = _recursion(table, telling=True, target=targets, later=forward)
    if found is not None and found.matters("reward") and found["later"] > 0.1:
        measured = "targets add up rewards of the past, not of the future"
        return Formula("forward", "targets-shuffled", measured)
    if advantages is not None and advantages.name == "gae" and advantages.shift is not None:
        assert table.advantages is not None
        right = values + (table.advantages - advantages.shift) / advantages.slope
        got, made = np.sort(targets[table.valid]), np.sort(right[table.valid])
        if np.abs(got - made).max() < 1e-3 * made.std():
            measured = "the targets of the rollout are right, but belong to other decisions"
            return Formula("another order", "targets-shuffled", measured)
    return None


def _read_targets(found: Fit, table: Table, targets: Array) -> Formula | None:
    if not found.unique or not found.telling:
        return Formula("unclear")
    if found.matters("value") and abs(found["value"]) > 1e-2 * max(
        abs(found["reward"]), abs(found["after"])
    ):
        measured = f"a value of a decision enters its own target with factor {found['value']:.3g}"
        return Formula("own value", "targets-follow-values", measured)
    if found.matters("reward") and found["reward"] < 0:
        measured = f"targets contain {found['reward']:.3g} times their reward"
        return Formula("negative", "targets-wrong-sign", measured)
    formula = Formula("targets", gamma=found["after"] + found["later"])
    return _ends(table, targets, _model_of_targets(found), formula) or formula


def _model_of_targets(found: Fit) -> Model:
    later = found["later"]
    plain = abs(found.shift) < 10 * found.tolerance and abs(found["reward"] - 1) < 1e-3
    after = found["after"] if found.matters("after") else 0.0
    return Model(
        found["reward"],
        0.0,
        after,
        later,
        after + later if after else 0.0,
        found.shift,
        0.0 if plain else None,
        found.tolerance,
        found.spread,
    )


def _plain(found: Fit) -> bool:
    """Return True for targets of rewards and later values."""
    own = found.matters("value") and abs(found["value"]) > 1e-2 * abs(found["reward"])
    return found.matters("reward") and found["reward"] > 0 and not own


def _raw(table: Table, targets: Array, values: Array) -> bool:
    """Return True if targets are a value plus a positive multiple of the advantage and a shift."""
    found = fit(targets - values, {"advantage": table.advantages}, table.valid)
    return found is not None and found.exact and found["advantage"] > 0


def _moved_targets(targets: Array) -> Iterator[tuple[Array, str]]:
    yield shifted(targets, 1), "those of the decision before"
    yield shifted(targets, -1), "those of the decision after"
    yield targets[::-1], "in reversed order"
    if targets.shape[1] > 1:
        yield _reshaped(targets), "mixed by a reshape over rows and columns"
        for k in range(1, min(targets.shape[1], 5)):
            yield np.roll(targets, k, axis=1), f"those of the column {k} places away"


# --- Rules ---------------------------------------------------------------------------------------


Formulas = tuple[Formula | None, Formula | None]

_KNOWN: WeakKeyDictionary[Rollout, Formulas] = WeakKeyDictionary()


def formulas_of(rollout: Rollout, gamma: float | None, gae_lambda: float | None) -> Formulas:
    """Return the formulas of the advantages and of the value targets of a rollout."""
    if rollout not in _KNOWN:
        table = table_of(rollout)
        advantages = None if table is None else formula_of(table, gamma, gae_lambda)
        targets = None if table is None else targets_of(table, advantages)
        _KNOWN[rollout] = advantages, targets
    return _KNOWN[rollout]


def advantage_formula(heard: Heard) -> Finding | None:
    """Report the faulty formula of the advantages."""
    return _worst(heard, 0)


def target_formula(heard: Heard) -> Finding | None:
    """Report the faulty formula of the value targets."""
    return _worst(heard, 1)


def _worst(heard: Heard, part: int) -> Finding | None:
    """Return the most certain finding over the rollouts."""
    best: Formula | None = None
    for rollout in heard.rollouts:
        formula = formulas_of(rollout, heard.gamma, heard.gae_lambda)[part]
        if formula is None or not formula.cause:
            continue
        if best is None or formula.certainty > best.certainty:
            best = formula
    if best is None:
        return None
    if best.cause in OTHERS:
        title, expected, todo = OTHERS[best.cause]
        return Finding(
            best.cause, title, best.measured, expected, todo, best.certainty, heard.policy
        )
    return finding_of(best.cause, best.measured, best.certainty, heard.policy)


ESTIMATE = "A_t = r_t + gamma V_{t+1} - V_t + gamma lambda A_{t+1}, or rewards to go"

OTHERS: Mapping[str, tuple[str, str, str]] = {
    "zero-advantages": (
        "All advantages are equal: the actor gets no gradient.",
        "advantages that vary with rewards and values",
        "check the code that computes advantages (RLlib: a module without ValueFunctionAPI gets "
        "none), a normalization that divides by 0, and a mask of valid transitions that is all "
        "False",
    ),
    "myopic": (
        "Advantages ignore all rewards and values after the decision's own step.",
        "later rewards count too, discounted",
        "raise gamma (0.99 looks about 100 decisions ahead) and gae_lambda",
    ),
    "values-of-another-step": (
        "Advantages use the values of other steps.",
        ESTIMATE,
        "values[t] belongs to obs[t]; the next value is values[t + 1], or V(last observation) "
        "after the last step",
    ),
    "values-missing": (
        "Advantages leave out values.",
        ESTIMATE,
        "check the values in the formula; a sum of rewards alone needs lambda = 1",
    ),
    "targets-wrong-sign": (
        "Value targets fall with the rewards.",
        "targets made of rewards and later values",
        "value target = advantage + value, with the advantage as it was before any normalization",
    ),
    "advantage-unknown": (
        "Advantages resemble no usual estimate.",
        ESTIMATE,
        "compare one advantage with a sum by hand; look for another order, another scale of "
        "rewards, and advantages of another batch",
    ),
}
"""Causes without a text in the doctor."""

RULES: tuple[Callable[[Heard], Finding | None], ...] = (advantage_formula, target_formula)
