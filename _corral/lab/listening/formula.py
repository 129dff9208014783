"""Find the formula that reproduces recorded advantages and value targets exactly.

Sound formulas come first: generalized advantages with any lambda, rewards to go with or without a
baseline, n-step and whole returns, each up to a normalization with a positive slope. If none of
them fits, faulty ones are tried. A fault is certain only if its formula reproduces the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from weakref import WeakKeyDictionary

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.fits import (
    Fit,
    Formula,
    Model,
    Table,
    fit,
    generalized,
    recursion,
    shifted,
    table_of,
)
from corral.lab.listening.formula_ends import ends_of
from corral.lab.listening.formula_faults import GAMMAS, faulty, reshaped
from corral.lab.listening.heard import Heard, Rollout

__all__ = ["RULES", "advantage_formula", "formula_of", "target_formula", "targets_of"]

# --- Advantages ----------------------------------------------------------------------------------


def formula_of(
    table: Table, gamma: float | None = None, gae_lambda: float | None = None
) -> Formula | None:
    """Return the formula of the advantages of a rollout; None if it is not known."""
    advantages = table.advantages
    if advantages is None or table.valid.sum() < 48:
        return None
    if (constant := _zero(table, gamma)) is not None or np.ptp(advantages[table.valid]) <= 1e-9:
        return constant
    if (sound := recursion(table)) is not None:
        formula = _interpreted(sound, table, gamma, gae_lambda)
        if formula.cause or formula.name not in ("gae", "rewards to go"):
            return formula
        return ends_of(table, advantages, _model(sound, table), formula) or formula
    if _other_sound(table):
        return Formula("other")
    return next(faulty(table, gamma, gae_lambda), None)


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


def _interpreted(
    fitted: Fit, table: Table, gamma: float | None, gae_lambda: float | None
) -> Formula:
    """Return the formula of exact coefficients: a sound one, or one with a wrong sign or horizon.

    Coefficients that the data do not determine count as sound.
    """
    formula = _read(fitted, table, gamma, gae_lambda)
    if formula.cause and _fits_soundly(table, gamma):
        return Formula("unclear")  # rewards or values hardly vary
    return formula


def _fits_soundly(table: Table, gamma: float | None) -> bool:
    """Return True if generalized advantages of a usual gamma fit as well."""
    advantages, values, after = table.advantages, table.values, table.next_values
    assert advantages is not None
    for discount in GAMMAS if gamma is None else (gamma, *GAMMAS):
        delta = table.rewards
        if values is not None and after is not None:
            delta = delta + discount * after - values
        features = {"delta": delta, "later": shifted(advantages, 1)}
        fitted = fit(advantages, features, table.inner)
        if fitted is None or not fitted.exact or fitted["delta"] < 0:
            continue
        if -1e-3 <= fitted["later"] <= 1.01 * discount:
            return True
    return False


def _read(fitted: Fit, table: Table, gamma: float | None, gae_lambda: float | None) -> Formula:
    """Return the formula of exact coefficients."""
    if not fitted.unique or not fitted.telling:
        return Formula("unclear")
    reward, value, after, later = (fitted[name] for name in ("reward", "value", "after", "later"))
    paid, valued, seen = (fitted.matters(name) for name in ("reward", "value", "after"))
    if paid and reward < 0:
        measured = f"advantages contain {reward:.3g} times their reward"
        return Formula("negative", "advantage-sign", measured)
    if valued and value > 0 and (paid or (seen and after < 0)):
        measured = f"advantages contain {value:+.3g} times the value of their own observation"
        return Formula("negative", "advantage-sign", measured)
    if "reward" in fitted.coefs and not paid:
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
            and np.std(table.values[table.inner]) > 10 * fitted.tolerance / max(reward, 1e-12)
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
    if horizon < 0.45:
        return _myopic(table, horizon, gamma)
    if horizon > 1.01 or later < -1e-3 or later > 1.01 * horizon:
        return Formula("unclear")
    model = _model(fitted, table)
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


def _model(fitted: Fit, table: Table) -> Model:
    """Return the coefficients, and the constant that remains if an episode ends."""
    later = fitted["later"]
    values = {"reward": table.rewards, "value": table.values}
    exact_inputs = all(name in fitted.coefs for name, part in values.items() if part is not None)
    scaled = table.values is not None and fitted.matters("value")
    if scaled and abs(fitted["reward"] + fitted["value"]) > 1e-3 * abs(fitted["value"]):
        exact_inputs = False  # a critic with another scale may have another zero
    end = fitted.shift / (1 - later) if exact_inputs and abs(1 - later) > 1e-3 else None
    after = fitted["after"] if fitted.matters("after") else 0.0
    reward = fitted["reward"]
    if "reward" not in fitted.coefs and scaled and not table.rewards[table.inner].any():
        reward = -fitted["value"]  # rewards at ends alone: usually on the scale of values
    return Model(
        reward,
        fitted["value"],
        after,
        later,
        after,
        fitted.shift,
        end,
        fitted.tolerance,
        fitted.spread,
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
    columnwise = [recursion(table, rows=rows & (columns == k)) for k in columns[:8]]
    if len(columnwise) > 1 and all(
        item is not None and (not item.unique or (item["reward"] >= 0 >= item["value"]))
        for item in columnwise
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
        fitted = fit(table.advantages, features, rows)
        if fitted is not None and fitted.exact:
            return min((fitted[str(k)] for k in range(n)), default=0.0) >= -1e-6
    return False


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
    if (fitted := recursion(table, target=targets)) is not None:
        return _read_targets(fitted, table, targets)
    if table.advantages is not None and _raw(table, targets, values):
        return Formula("advantage + value")
    for moved, text in _moved_targets(targets):
        if (fitted := recursion(table, telling=True, target=moved)) is not None and _plain(fitted):
            return Formula("another order", "targets-shuffled", f"targets are {text}")
    forward = shifted(targets, -1)
    fitted = recursion(table, telling=True, target=targets, later=forward)
    if fitted is not None and fitted.matters("reward") and fitted["later"] > 0.1:
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


def _read_targets(fitted: Fit, table: Table, targets: Array) -> Formula | None:
    if not fitted.unique or not fitted.telling:
        return Formula("unclear")
    later = shifted(targets, 1)
    if fitted.matters("value") and abs(fitted["value"]) > 1e-2 * max(
        abs(fitted["reward"]), abs(fitted["after"])
    ):
        features = {"reward": table.rewards, "after": table.next_values, "later": later}
        if (without := fit(targets, features, table.inner)) is not None and without.exact:
            return Formula("unclear")
        measured = f"a value of a decision enters its own target with factor {fitted['value']:.3g}"
        return Formula("own value", "targets-follow-values", measured)
    if fitted.matters("reward") and fitted["reward"] < 0:
        features = {"after": table.next_values, "later": later}
        paid = fit(targets - table.rewards, features, table.inner)
        if paid is not None and paid.exact:
            return Formula("unclear")
        measured = f"targets contain {fitted['reward']:.3g} times their reward"
        return Formula("negative", "targets-wrong-sign", measured)
    formula = Formula("targets", gamma=fitted["after"] + fitted["later"])
    return ends_of(table, targets, _model_of_targets(fitted), formula) or formula


def _model_of_targets(fitted: Fit) -> Model:
    later = fitted["later"]
    plain = abs(fitted.shift) < 10 * fitted.tolerance and abs(fitted["reward"] - 1) < 1e-3
    after = fitted["after"] if fitted.matters("after") else 0.0
    return Model(
        fitted["reward"],
        0.0,
        after,
        later,
        after + later if after else 0.0,
        fitted.shift,
        0.0 if plain else None,
        fitted.tolerance,
        fitted.spread,
    )


def _plain(fitted: Fit) -> bool:
    """Return True for targets of rewards and later values."""
    baseline = fitted.matters("value") and abs(fitted["value"]) > 1e-2 * abs(fitted["reward"])
    return fitted.matters("reward") and fitted["reward"] > 0 and not baseline


def _raw(table: Table, targets: Array, values: Array) -> bool:
    """Return True if targets are a value plus a positive multiple of the advantage and a shift."""
    fitted = fit(targets - values, {"advantage": table.advantages}, table.valid)
    return fitted is not None and fitted.exact and fitted["advantage"] > 0


def _moved_targets(targets: Array) -> Iterator[tuple[Array, str]]:
    yield shifted(targets, 1), "those of the decision before"
    yield shifted(targets, -1), "those of the decision after"
    yield targets[::-1], "in reversed order"
    if targets.shape[1] > 1:
        yield reshaped(targets), "mixed by a reshape over rows and columns"
        for k in range(1, min(targets.shape[1], 5)):
            yield np.roll(targets, k, axis=1), f"those of the column {k} places away"


# --- Rules ---------------------------------------------------------------------------------------


Formulas = tuple[Formula | None, Formula | None]

_CACHE: WeakKeyDictionary[Rollout, Formulas] = WeakKeyDictionary()


def formulas_of(rollout: Rollout, gamma: float | None, gae_lambda: float | None) -> Formulas:
    """Return the formulas of the advantages and of the value targets of a rollout."""
    if rollout not in _CACHE:
        table = table_of(rollout)
        advantages = None if table is None else formula_of(table, gamma, gae_lambda)
        targets = None if table is None else targets_of(table, advantages)
        _CACHE[rollout] = advantages, targets
    return _CACHE[rollout]


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
    if best.cause in TEXTS:
        title, expected, todo = TEXTS[best.cause]
        return Finding(
            best.cause, title, best.measured, expected, todo, best.certainty, heard.policy
        )
    return finding_of(best.cause, best.measured, best.certainty, heard.policy)


ESTIMATE = "A_t = r_t + gamma V_{t+1} - V_t + gamma lambda A_{t+1}, or rewards to go"

TEXTS: Mapping[str, tuple[str, str, str]] = {
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
