"""Faulty formulas of advantages, each with the cause that the doctor names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.envs.core import Array
from corral.lab.listening.fits import Formula, Table, fit, generalized, recursion, shifted

__all__ = ["GAMMAS", "faulty", "reshaped"]

GAMMAS = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0)
LAMBDAS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 1.0)
"""Candidates if gamma and lambda are unknown and a fit cannot show them."""

ESTIMATES = 2**18
"""Largest number of estimates over all candidates."""


def faulty(table: Table, gamma: float | None, gae_lambda: float | None) -> Iterator[Formula]:
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
        fitted = recursion(table, telling=True, rows=rows, **other)
        if fitted is not None and fitted.matters("reward") and fitted["reward"] > 0:
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
        moved = shifted(advantages, k)
        yield from tried("advantage-elsewhere", f"advantages of the {text} decision", target=moved)
    if values is not None:
        after = table.next_values
        for now, then, text in (
            (after, shifted(values, 2), "values of one step later"),
            (shifted(values, -1), values, "values of one step earlier"),
            (shifted(values, -1), after, "the value of the step before as their own"),
            (values, shifted(values, 2), "the value of two steps later as the next one"),
        ):
            yield from tried("values-of-another-step", text, values=now, after=then)
        text, now = "values reversed in time", values[::-1]
        yield from tried("values-of-another-step", text, values=now, after=shifted(now, 1))
    if rewards.shape[1] > 1:
        text = "their rows and columns mixed by a reshape"
        yield from tried("advantages-mixed", text, target=reshaped(advantages))
        yield from tried("advantages-mixed", "rewards mixed by a reshape", rewards=_mixed(rewards))
        if values is not None:
            text, now = "values mixed by a reshape", _mixed(values)
            yield from tried("advantages-mixed", text, values=now, after=shifted(now, 1))


def reshaped(values: Array) -> Array:
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
        fitted = fit(advantages, features, rows)
        if fitted is None or not fitted.telling or not fitted.unique:
            break
        shown.append([fitted[f"reward {k}"] if fitted.matters(f"reward {k}") else 0.0
                      for k in range(counted)])  # fmt: skip
    if len(shown) == counted:
        weights = np.array(shown)
        diagonal = np.diag(weights)
        of = np.abs(weights).argmax(axis=1)
        if (diagonal == 0).all() and (of != np.arange(counted)).all():
            measured = "; ".join(f"column {j} gets the rewards of column {of[j]}" for j in (0, 1))
            yield Formula("rewards of another", "reward-of-another", measured)
        elif np.ptp(weights) <= 1e-2 * np.abs(weights).max():
            yield Formula("shared rewards")  # a team
        return
    for k in range(1, min(count, 9)):
        moved = np.roll(advantages, k, axis=1)
        if recursion(table, telling=True, target=moved) is not None:
            measured = f"advantages are those of the column {k} places away"
            yield Formula("another column", "advantages-mixed", measured)
        following = table.next_values
        if values is not None and following is not None:
            other, after = np.roll(values, k, axis=1), np.roll(following, k, axis=1)
            if recursion(table, telling=True, values=other, after=after) is not None:
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
            fitted = fit(target, {"square": signed**2, "linear": signed}, rows)
            if fitted is not None and fitted.worst < 1e-3 * target[rows].std():
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
    count = max(1, ESTIMATES // table.rewards.size)
    return generalized(table, pairs[:count, 0], pairs[:count, 1])


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
