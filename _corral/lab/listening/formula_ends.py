"""Find how a formula treats the ends of episodes, from its equation in the steps of ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from corral.envs.core import Array
from corral.lab.listening.fits import Formula, Model, Table, begins_at_flag, shifted

__all__ = ["ends_of"]


def ends_of(table: Table, target: Array, model: Model, formula: Formula) -> Formula | None:
    """Return the formula if ends are treated wrongly, from the equation in the steps of ends."""
    if table.offset == 0:
        table = begins_at_flag(table)
    rest = target - model.reward * table.rewards
    if table.values is not None:
        rest = rest - model.value * table.values
    slack = 10 * model.tolerance + 2e-3 * model.spread
    if table.values is not None:  # large values with a small spread make the constant less exact
        size = float(np.sqrt(np.square(table.values[table.valid]).mean()))
        slack += 1e-3 * abs(model.final) * size
    ends = _End(table, model, rest, shifted(target, 1), slack)
    for kind in (ends.of_terminated, ends.of_truncated):
        if (treated := kind()) is not None:
            cause, measured, certainty = treated
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

    def traced(self, rows: Array) -> bool:
        """Return True if V after the end counts as 0, and advantages of the next episode enter."""
        return self._equal(rows, self.model.trace * self.later, self.model.shift)

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
        if self.traced(rows):
            measured = f"V after {count} terminated steps is 0, but later advantages enter theirs"
            return "end-ignored", measured, 3
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
        neighbors = shifted(rows, -1, False) & ~table.ended, shifted(rows, 1, False) & ~table.ended
        for cut, where in zip(neighbors, ("after", "before"), strict=True):
            if cut.sum() >= 2 and self.stops(cut) and not self.kept(cut):
                # The script may hand over marks of another step: observations must tell.
                certainty = 2 if table.offset == 1 else 1
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
        with_final = rows & np.isfinite(final)
        if with_final.any() and self.stops(with_final, final):
            return None
        size = final if with_final.any() else table.values
        if (
            self.stops(rows)
            and size is not None
            and self.clear(with_final if with_final.any() else rows, size)
        ):
            measured = (
                f"V after {count} time limits counts as 0; V is about {np.nanmean(size[rows]):.3g}"
            )
            return "limit-taken-for-end", measured, 3
        if self.stops(rows, after) and self.clear(rows, after) and table.offset != 2:
            shown = table.offset == 1 or with_final.any() or self._pays_after(rows)
            measured = (
                f"V after {count} time limits is that of the next episode's first observation"
            )
            return "bootstraps-from-reset", measured, 3 if shown else 1
        if with_final.sum() >= 2 and self.clear(with_final, final):
            used = (self.rest[with_final] - self.model.end) / self.model.final
            measured = (
                f"V used at time limits {used.mean():.4g}, V of the final observations "
                f"{final[with_final].mean():.4g}"
            )
            return "limit-value", measured, 2
        return None

    def _pays_after(self, rows: Array) -> bool:
        """Return True if steps after a limit pay: a step between two episodes pays nothing."""
        following = shifted(rows, -1, False)
        return bool(np.mean(self.table.rewards[following] != 0) > 0.5) if following.any() else False
