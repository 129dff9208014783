"""The result of a ladder: its rungs, a table, JSON values and a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from rich.table import Table

from corral.loads.advise.verdict import Saving, between
from corral.loads.advise.words import columns, requests
from corral.loads.text import counted
from corral.results import Result, filled, plain
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.tables import table_of

__all__ = ["KNOWLEDGE", "TOOLS", "Ladder", "Name", "Rung"]

Name = Literal["today", "rule", "learned", "arrivals", "reports", "future"]

KNOWLEDGE: dict[Name, str] = {
    "today": "today",
    "rule": "best plain rule",
    "learned": "learned policy",
    "arrivals": "+ known arrivals",
    "reports": "+ present spare",
    "future": "+ the future",
}
"""The knowledge of each rung in words."""

TOOLS: dict[str, str] = {
    "rule": "a better rule",
    "learned": "learning",
    "arrivals": "exact arrivals in advance",
    "reports": "the present spare of all nodes",
    "capacity": "20 % more capacity",
}
"""The tool that brings a step of the ladder, or a saving for comparison."""


@dataclass(frozen=True)
class Rung:
    """A step of knowledge, with the best policy for it on the days of the fit."""

    name: Name
    policy: str  # a rule, "team" or "optimum"; "" if the rung is absent
    cost: float | None = None  # requests a day, on the held-out days
    lost: float | None = None
    saving: Saving | None = None
    """Saving over the rung below on the held-out days; None for the first rung."""
    saving_fitted: float | None = None
    """The same on the days of the fit, in requests a day; None for the first rung and optima."""
    absent: str = ""  # reason why the rung has no figures

    @property
    def same(self) -> bool:
        """Whether the rung has the policy of the rung below."""
        return self.saving_fitted == 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, and the knowledge in words."""
        saving = None if self.saving is None else self.saving.to_json()
        values: dict[str, Any] = plain({**vars(self), "saving": saving})
        return {"name": self.name, "knowledge": KNOWLEDGE[self.name], **values}


@dataclass(frozen=True, repr=False)
class Ladder(Result):
    """The saving of each step of knowledge, on the same held-out days."""

    json_file = "ladder.json"
    csv_file = "ladder.csv"

    rungs: tuple[Rung, ...]
    arrivals: str  # knowledge of the nodes before a step: "known" or "unknown"
    fitted_windows: int
    windows: int  # held-out ones
    unit: str  # name of a window: "day" or "window"
    costs: bool  # whether forwarding or waiting has a cost
    capacity: Saving | None = None  # of 20 % more capacity with the best plain rule
    beyond_rule: Saving | None = (
        None  # of the optimum over the best plain rule: no policy saves more
    )

    def rung(self, name: Name) -> Rung:
        """Return a rung by its name."""
        return next(rung for rung in self.rungs if rung.name == name)

    @property
    def savings(self) -> dict[str, Saving]:
        """Savings by the key of their tool, see ``TOOLS``; without savings of 0."""
        steps = {str(rung.name): rung.saving for rung in self.rungs} | {"capacity": self.capacity}
        return {
            name: saving
            for name, saving in steps.items()
            if name in TOOLS and saving is not None and not saving.same
        }

    @property
    def ranked(self) -> list[str]:
        """The keys of the tools that save more than chance, largest saving first.

        Without intervals, all means above 0 count.
        """
        certain = {
            name: saving.share
            for name, saving in self.savings.items()
            if saving.share > 0 and (saving.low is None or saving.low > 0)
        }
        return sorted(certain, key=lambda name: -certain[name])

    @property
    def largest(self) -> str | None:
        """The key of the tool with the largest saving; None if all savings may be chance."""
        return next(iter(self.ranked), None)

    @property
    def contradictions(self) -> list[Name]:
        """Rungs that cost more than the rung below on the held-out days."""
        return [r.name for r in self.rungs if r.saving is not None and r.saving.share < 0]

    def table(self) -> Table:
        """Return one row for each rung, and one for more capacity, for 80 columns."""
        first, policy, *numbers = self.headings()
        table = table_of(first, [])
        table.add_column(policy, no_wrap=True)
        for heading in numbers:
            table.add_column(heading, justify="right", no_wrap=True)
        for row in self.rows():
            table.add_row(*row)
        return table

    def headings(self) -> list[str]:
        """Return the headings of the table."""
        unit = "requests a window" if self.unit == "window" else "requests a day"
        return [unit, "policy", "cost" if self.costs else "lost", "saves", "95 %"]

    def rows(self) -> list[list[str]]:
        """Return the cells of the table, in requests a day."""
        rows = []
        for number, rung in enumerate(self.rungs):
            label = f"{number} {KNOWLEDGE[rung.name]}"
            if rung.cost is None:
                rows.append([label, f"({rung.absent})", "", "", ""])
            else:
                policy = "the same" if rung.same else rung.policy
                rows.append([label, policy, f"{rung.cost:,.0f}", *_cells(rung.saving)])
        if self.capacity is not None and (cost := self.rung("rule").cost) is not None:
            cost -= self.capacity.requests
            cells = [f"{cost:,.0f}", *_cells(self.capacity)]
            rows.append(["20 % more capacity", "that of rung 1", *cells])
        return rows

    def text(self, width: int = 80) -> str:
        """Return ``lines`` in lines of at most ``width``."""
        return filled(self.lines(), width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each rung."""
        rows = []
        for rung in self.rungs:
            saving = None if rung.saving is None else rung.saving.to_json()
            ends = ("requests", "requests_low", "requests_high", "windows")
            values = {key: None if saving is None else saving[key] for key in ends}
            rows.append(
                {
                    **{"name": rung.name, "policy": rung.policy},
                    **{"cost": rung.cost, "lost": rung.lost},
                    **{key.replace("requests", "saving"): value for key, value in values.items()},
                    "saving_fitted": rung.saving_fitted,
                }
            )
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the rungs, the savings and the answer as JSON values."""
        savings = {
            name: None if saving is None else saving.to_json()
            for name, saving in (("capacity", self.capacity), ("beyond_rule", self.beyond_rule))
        }
        values: dict[str, Any] = plain(
            {
                "rungs": [rung.to_json() for rung in self.rungs],
                "arrivals": self.arrivals,
                "fitted_windows": self.fitted_windows,
                "windows": self.windows,
                "unit": self.unit,
                "costs": self.costs,
                **savings,
                "largest": self.largest,
                "contradictions": self.contradictions,
                "answer": self.answer,
            }
        )
        return values

    def lines(self) -> list[str]:
        """Return the table and the sentences as text."""
        return [*self.table_lines(), *self.sentences()]

    def table_lines(self) -> list[str]:
        """Return the table as text, of at most 80 characters."""
        return columns(self.headings(), self.rows(), names=2)

    def sentences(self) -> list[str]:
        """Return the answer, and notes on the method."""
        return [self.answer, *self.notes()]

    # --- Sentences -------------------------------------------------------------------------------

    @property
    def answer(self) -> str:
        """Whether learning is the right tool, in a few sentences."""
        return " ".join(["Is learning the right tool?", *self._largest(), *self._learning()])

    def _largest(self) -> Iterator[str]:
        if not self.ranked:
            yield "No step of the ladder saves more than chance."
            return
        first, *further = self.ranked
        start = "Yes: the largest" if first == "learned" else "The largest"
        text = f"{start} saving is that of {TOOLS[first]}, {_much(self.savings[first])}"
        rest = [f"{TOOLS[name]} {requests(self.savings[name].requests)}" for name in further]
        yield f"{text}; then {' and '.join(_listed(rest))}." if rest else f"{text}."

    def _learning(self) -> Iterator[str]:
        learned = self.rung("learned")
        if learned.saving is None:
            rest = self.beyond_rule
            if rest is not None and rest.same:
                yield "Learning can save nothing: the best plain rule costs as much as the optimum."
            elif rest is not None:
                yield (
                    f"Learning can save at most {_much(rest)} more: that is the saving of the "
                    "optimum, which knows the future, over the best plain rule."
                )
        elif learned.same:
            yield "The team was not better than the rule on the days of the fit."
        elif learned.saving.same:
            yield "Learning saves nothing."
        elif self.largest != "learned":
            verb = "saves" if learned.saving.share > 0 else "costs"
            chance = ", which may be chance" * learned.saving.open_ended
            yield f"Learning {verb} {_much(learned.saving)} more than the best rule{chance}."

    def notes(self) -> list[str]:
        """Return sentences on the method, and on rungs that contradict the days of the fit."""
        days = f"{self.unit}s"
        text = (
            f"Each rung was chosen on {counted(self.fitted_windows, self.unit)} and judged on "
            f"{counted(self.windows, f'held-out {self.unit}')}."
        )
        by_rules = [k for k, rung in enumerate(self.rungs) if rung.name in ("arrivals", "reports")]
        places = [str(k) for k in by_rules if not self.rungs[k].absent]
        if places:
            text += (
                f" Plain rules play rung{'s' * (len(places) > 1)} {' and '.join(places)}, so this "
                "knowledge may be worth more. It is exact: a forecast, or fresher reports that do "
                "not hold the arrivals of the step, save less."
            )
        notes = [text]
        if self.windows < FEWEST_WINDOWS:
            few = f"{counted(self.windows, f'held-out {self.unit}')}: too few for intervals"
            notes.append(f"{few}, which need {FEWEST_WINDOWS}. All of this may be chance.")
        future = self.rung("future")
        if future.saving is not None and future.saving.windows < self.windows:
            notes.append(f"The optimum was computed on {future.saving.windows} of these {days}.")
        narrow = [
            str(number)
            for number, rung in enumerate(self.rungs)
            if rung.saving is not None and rung.saving.alike
        ]
        if narrow:
            notes.append(
                f"Neighboring {days} correlate, so the intervals of these rungs are too narrow: "
                f"{', '.join(narrow)}."
            )
        for name in self.contradictions:
            rung = self.rung(name)
            assert rung.saving is not None
            much = requests(-rung.saving.requests)
            why = "which may be chance" if rung.saving.open_ended else f"so these {days} differ"
            notes.append(
                f"Rung {self.rungs.index(rung)} costs {much} more than the rung below on the "
                f"held-out {days}, and less on the {days} of the fit, {why}."
            )
        return notes


def _listed(texts: list[str]) -> list[str]:
    """Return all texts but the last one as one text, and the last one."""
    return [", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts


def _cells(saving: Saving | None) -> list[str]:
    """Return a saving in requests a day, and its interval."""
    if saving is None:
        return ["", ""]
    if saving.low is None or saving.high is None:
        return [requests(saving.requests), ""]
    low, high = (requests(end * saving.arrivals) for end in (saving.low, saving.high))
    return [requests(saving.requests), "" if saving.same else f"{low} to {high}"]


def _much(saving: Saving) -> str:
    """Return the size of a saving in requests a day, with its interval."""
    text = f"{requests(abs(saving.requests))} requests {saving.unit}"
    return text if saving.low is None or saving.constant else f"{text} (95 %: {between(saving)})"
