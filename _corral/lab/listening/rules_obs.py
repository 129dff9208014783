"""Rules about recorded observations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings import signals
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.fed import WIDE, Seen, by_doctor, is_image, seen
from corral.lab.listening.heard import Heard

__all__ = [
    "blank",
    "constant",
    "drifting",
    "equal_copies",
    "equal_starts",
    "late",
    "not_finite",
    "unscaled",
]


def parts_of(heard: Heard) -> Iterator[Seen]:
    """Yield the recorded rollouts of finite numbers, in order."""
    for rollout in heard.rollouts:
        part = seen(rollout)
        if part is not None and not any(wrong.any() for wrong in part.wrong().values()):
            yield part


def not_finite(heard: Heard) -> Finding | None:
    """Report observations or rewards that are not finite."""
    for rollout in heard.rollouts:
        part = seen(rollout)
        for quantity, wrong in (part.wrong() if part is not None else {}).items():
            if wrong.any():
                return Finding(
                    f"{quantity}-not-finite",
                    f"The environment returns {quantity}s that are not finite.",
                    f"{quantity}s of {int(wrong.sum())} of {wrong.size} decisions",
                    "only finite numbers",
                    "look for a division by 0, a logarithm of 0 or an empty mean in the "
                    "environment or in a wrapper",
                    3,
                    heard.policy,
                )
    return None


# --- Observations that stay equal ----------------------------------------------------------------


def constant(heard: Heard) -> Finding | None:
    """Report observations that never change within an episode."""
    steps, differ, reasons, blank_only = 0, False, set(), True
    first: Array | None = None
    for part in parts_of(heard):
        within = part.within
        if part.obs is None or not part.obs.shape[-1] or not within.any():
            continue
        if (part.obs[1:] != part.obs[:-1]).any(axis=-1)[within].any():
            return None
        steps += int(within.sum())
        rows = part.obs[part.valid]
        first = rows[0] if first is None else first
        differ |= bool((rows != first).any())
        blank_only &= not rows.any()
        if part.mask is not None and (part.mask[1:] != part.mask[:-1]).any(axis=-1)[within].any():
            reasons.add("action masks change from step to step")
        terminated = part.rollout.terminated
        if (
            terminated is not None
            and 0 < terminated[part.valid].mean() < 0.5
            and _lengths_vary(part)
        ):
            reasons.add("episodes terminate after different numbers of steps")
    if steps < 64:
        return None
    if differ:
        reasons.add("it differs between episodes")
    measured = (
        f"equal to the previous observation in all {steps:,} steps within episodes; "
        f"{'; '.join(sorted(reasons)) or 'nothing else changes'}"
    )
    return finding_of("observation-constant", measured, 2 if reasons else 1, heard.policy)


def _lengths_vary(part: Seen) -> bool:
    """Return True if episodes of one column have different lengths."""
    assert part.ended is not None
    return any(len(np.unique(np.diff(np.flatnonzero(column)))) > 1 for column in part.ended.T)


MANY = 2000
"""Minimum number of decisions before a column is called blank."""


def blank(heard: Heard) -> Finding | None:
    """Report columns that are always 0 between columns of varying numbers."""
    rows = _rows(heard)
    if rows is None or len(rows) < MANY or not 4 <= rows.shape[1] <= WIDE or not rows.any():
        return None
    zero = np.flatnonzero(~rows.any(axis=0))
    rest = np.setdiff1d(np.arange(rows.shape[1]), zero)
    numbers = np.mean([len(np.unique(rows[:256, column])) > 16 for column in rest])
    # Padding is at the end, and flags and one-hot codes take few values.
    padded = len(zero) and zero[-1] == rows.shape[1] - 1
    if not len(zero) or numbers < 0.8 or padded or len(zero) > max(1, 0.25 * rows.shape[1]):
        return None
    named = ", ".join(f"observation[{column}]" for column in zero[:6])
    return finding_of(
        "observation-blank", f"{named}: 0 in {len(rows):,} decisions", 1, heard.policy
    )


def _rows(heard: Heard) -> Array | None:
    """Return the recorded observations of all valid decisions [R, F]; None for images."""
    parts = [
        part.obs[part.valid]
        for part in parts_of(heard)
        if part.obs is not None and not is_image(part.rollout)
    ]
    if not parts or len({rows.shape[1] for rows in parts}) > 1:
        return None
    return np.concatenate(parts)


# --- Observations of another step ----------------------------------------------------------------

CELLS = 12
"""Minimum number of episodes and of decisions for each action."""


def late(heard: Heard) -> Finding | None:
    """Report observations that show the state of the step before."""
    reasons = []
    first, later = _repeats(heard)
    if len(first) >= CELLS and len(later) >= CELLS and first.mean() >= 0.99 and later.mean() < 0.5:
        reasons.append(
            f"the second observation equals the first in {first.mean():.0%} of {len(first)} "
            f"episodes, later observations equal the one before in {later.mean():.0%}"
        )
    if (delayed := _answers_late(heard)) is not None:
        reasons.append(delayed)
    if not reasons and (paid := _pays_for_next(heard)) is not None:
        reasons.append(paid)
    if not reasons:
        return None
    return finding_of("observation-late", "; ".join(reasons), len(reasons), heard.policy)


def _repeats(heard: Heard) -> tuple[Array, Array]:
    """Return if an observation equals the one before: second ones of episodes, and later ones."""
    both: tuple[list[Array], list[Array]] = ([np.zeros(0, bool)], [np.zeros(0, bool)])
    for part in parts_of(heard):
        if part.obs is None or part.ended is None or len(part.obs) < 3:
            continue
        same = (part.obs[1:] == part.obs[:-1]).all(axis=-1)
        begun = part.ended[:-2]  # step t + 1 is the first of an episode
        inside = part.within[1:]
        both[0].append(same[1:][begun & inside])
        both[1].append(same[1:][~begun & inside & ~part.ended[:-2]])
    return np.concatenate(both[0]), np.concatenate(both[1])


def _answers_late(heard: Heard) -> str | None:
    """Describe observations that follow the action before the last one, and not the last one.

    The first rollout is nearly random play: changes of observations are regressed on actions.
    """
    for part in parts_of(heard):
        actions, obs = part.actions, part.obs
        if actions is None or obs is None or obs.shape[-1] > WIDE or len(obs) < 4:
            return None
        inside = part.within[:-1] & part.within[1:]
        change = np.diff(obs, axis=0)[1:][inside]  # of the second step
        if not len(change):
            return None
        now, before = actions[1:-1][inside], actions[:-2][inside]
        counts = np.unique(np.concatenate([now, before]), return_counts=True)[1]
        if len(counts) < 2 or len(counts) > 16 or counts.min() < CELLS or len(now) < 256:
            return None
        fresh, stale = _explained(change, now), _explained(change, before)
        noise = 4 * len(counts) / len(now)
        if stale.max() > 0.3 and fresh.max() < noise:
            return (
                f"the action of a step explains at most {fresh.max():.1%} of the next change of a "
                f"column, the action before it up to {stale.max():.0%}"
            )
        return None
    return None


def _pays_for_next(heard: Heard) -> str | None:
    """Describe rewards that fit the action and the next observation, and not the decision's own.

    Hidden moves that the next observation shows, as those of an opponent, look the same.
    """
    columns: tuple[list[Array], ...] = ([], [], [], [])
    for part in parts_of(heard):
        actions, obs, rewards = part.actions, part.obs, part.rollout.rewards
        if actions is None or obs is None or rewards is None or rewards.shape != part.shape:
            return None
        inside = part.within
        for column, values in zip(columns, (obs, obs[1:], actions, rewards), strict=True):
            column.append(values[: len(inside)][inside])
    if not columns[0] or len({rows.shape[1] for rows in columns[0]}) > 1:
        return None
    shown, following, played, paid = (np.concatenate(column) for column in columns)
    if len(paid) < 256 or shown.shape[1] > WIDE or np.ptp(paid) == 0:
        return None
    different, cells = np.unique(np.concatenate([shown, following]), axis=0, return_inverse=True)
    if not 2 <= len(different) <= 16 or len(np.unique(played)) > 16:
        return None
    by_shown, by_next = (
        _by_action(paid, part, played) for part in np.split(cells.reshape(-1), [len(paid)])
    )
    if not (by_next > 0.5 and by_shown < 0.02 + 2 * len(different) * 16 / len(paid)):
        return None
    return (
        f"observation and action explain {max(by_shown, 0.0):.0%} of the rewards, the next "
        f"observation and the action {by_next:.0%}, in {len(paid):,} decisions"
    )


def _by_action(rewards: Array, cells: Array, actions: Array) -> float:
    """Return the share of the variance of rewards that actions explain, given the cell."""
    rest = rewards - _means(rewards, cells)
    explained = _means(rest, np.unique(cells * 16 + actions, return_inverse=True)[1].reshape(-1))
    return float(explained.var() / rewards.var())


def _means(values: Array, groups: Array) -> Array:
    """Return the mean of the group of each value."""
    counts = np.maximum(np.bincount(groups), 1)
    means: Array = (np.bincount(groups, values) / counts)[groups]
    return means


def _explained(change: Array, actions: Array) -> Array:
    """Return the share of the variance of each column [F] that the actions explain."""
    total = np.square(change - change.mean(axis=0)).sum(axis=0)
    between = np.zeros(change.shape[1])
    for action in np.unique(actions):
        rows = change[actions == action]
        between += len(rows) * np.square(rows.mean(axis=0) - change.mean(axis=0))
    result: Array = np.where(total > 1e-12, between / np.maximum(total, 1e-12), 0.0)
    return result


# --- Scale ---------------------------------------------------------------------------------------

NORMALIZERS = ("norm", "meanstd", "whiten", "standardi")
"""Parts of class names of modules that scale their input."""


def unscaled(heard: Heard) -> Finding | None:
    """Report columns of large numbers that a network gets without a normalization."""
    rows = _rows(heard)
    if rows is None or len(rows) < 32 or rows.shape[1] < 2 or not np.isfinite(rows).all():
        return None
    if any(layer.inputs is not None for layer in heard.layers.values()):
        return None  # a network may divide them itself: another rule reads its inputs
    if heard.network is not None and any(
        part in type(module).__name__.lower()
        for module in heard.network.modules()
        for part in NORMALIZERS
    ):
        return None
    sizes = np.sqrt(np.square(rows).mean(axis=0))
    varied = sizes[rows.std(axis=0) > 0]
    if not len(varied) or not varied.max() > 30:
        return None
    small = float(varied.min())
    return Finding(
        "observation-unscaled",
        "Observations contain large numbers, which hide the small ones.",
        f"columns have sizes of {small:.3g} to {varied.max():.4g}; "
        f"{int((sizes > 30).sum())} of {len(sizes)} exceed 30",
        "values of about -1 to 1",
        "divide large columns by their typical size, in the environment or with a running "
        "normalization",
        2 if varied.max() > 100 else 1,
        heard.policy,
    )


def wraps(heard: Heard) -> Finding | None:
    """Report small integers that wrap around, in rewards or observations."""
    return by_doctor(signals.wrapped, heard)


EARLY = 8
"""Updates in which the statistics of a normalization may still settle."""


def drifting(heard: Heard) -> Finding | None:
    """Report first observations of episodes that move: no policy changes these."""
    parts = [
        (part.obs[1:][part.ended[:-1] & part.valid[1:]])
        for part in parts_of(heard)
        if part.obs is not None and part.ended is not None and not is_image(part.rollout)
    ][3:]
    if len(parts) < 3 or heard.updates < 4 * EARLY or min(map(len, parts)) < CELLS:
        return None
    early, latest = parts[0], parts[-1]
    if early.shape[1] != latest.shape[1]:
        return None
    spread = np.maximum(early.std(axis=0), latest.std(axis=0))
    moved = np.abs(early.mean(axis=0) - latest.mean(axis=0)) / np.maximum(spread, 1e-9)
    moved = np.where(spread > 1e-6, moved, 0.0)
    if not moved.max() > 5:
        return None
    return Finding(
        "observation-drifts",
        "First observations of episodes move during training.",
        f"column {int(moved.argmax())} moved by {moved.max():.3g} times its spread",
        "first observations that do not depend on the policy",
        "check the normalization of observations: its statistics should settle; a curriculum "
        "also moves them",
        1,
        heard.policy,
    )


# --- Copies --------------------------------------------------------------------------------------


def equal_copies(heard: Heard) -> Finding | None:
    """Report environment copies with the same seed."""
    part = next(parts_of(heard), None)
    if part is None or part.shape[1] < 2 or part.shape[0] < 16 or part.obs is None:
        return None
    obs, actions = part.obs, part.rollout.actions
    if not part.valid.all() or not (obs[1:] != obs[:-1]).any():
        return None
    same = (obs == obs[:, :1]).all()
    if same and actions is not None and (actions == actions[:, :1]).all():
        varied = np.ptp(actions.astype(np.float64), axis=0).max() > 0
        measured = f"all {part.shape[1]} columns have equal observations and actions"
        return _equal_copies(measured, 3 if varied else 2, heard)
    if part.ended is None or part.shape[1] < 3 or not (obs[0] == obs[0, :1]).all():
        return None
    # Episodes with the same number in all columns begin alike, at different times.
    starts = [1 + np.flatnonzero(ended[:-1]) for ended in part.ended.T]
    count = min(map(len, starts))
    if count < 2 or len({tuple(item[:count]) for item in starts}) < 2:
        return None
    begins = np.stack([obs[item[:count], k] for k, item in enumerate(starts)])  # [B, E, F]
    varied = (begins[0] != obs[0, 0]).any()
    if not varied or not (begins == begins[:1]).all():
        return None
    measured = f"the first {count + 1} episodes of all {part.shape[1]} columns begin alike"
    return _equal_copies(measured, 2, heard)


def equal_starts(heard: Heard) -> Finding | None:
    """Report episodes that all begin with the same observation."""
    begins: dict[int, list[Array]] = {}  # column -> first observations
    for part in parts_of(heard):
        if part.obs is None or part.ended is None or not (part.obs[1:] != part.obs[:-1]).any():
            return None
        for column, ended in enumerate(part.ended.T):
            rows = part.obs[1:, column][ended[:-1] & part.valid[1:, column]]
            begins.setdefault(column, []).append(rows)
    starts = {column: np.concatenate(rows) for column, rows in begins.items()}
    starts = {column: rows for column, rows in starts.items() if len(rows)}
    count = sum(map(len, starts.values()))
    if count < 2 * CELLS or any((rows != rows[0]).any() for rows in starts.values()):
        return None
    columns = np.stack([rows[0] for rows in starts.values()])
    repeated = all(len(rows) > 2 for rows in starts.values())
    apart = repeated and len(columns) > 1 and len(np.unique(columns, axis=0)) == len(columns)
    measured = f"the first observations of {count} episodes are equal"
    if apart:
        measured += f" in each of {len(columns)} columns, and differ between columns"
    elif (columns != columns[0]).any() or not (columns[0] % 1).any():
        return None  # a fixed start, such as a cell of a grid, has whole numbers
    return Finding(
        "starts-alike",
        "Every episode begins with the same observation.",
        measured,
        "other first observations, unless the environment has only one",
        "pass a seed to the first reset() only: a seed in each reset repeats the same episode",
        2 if apart else 1,
        heard.policy,
    )


def _equal_copies(measured: str, certainty: int, heard: Heard) -> Finding:
    return Finding(
        "copies-alike",
        "All copies of the environment play the same episodes: they have the same seed.",
        measured,
        "copies with different seeds",
        "reset copy k with seed + k",
        certainty,
        heard.policy,
    )
