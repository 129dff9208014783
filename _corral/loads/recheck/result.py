"""The result of a recheck: savings as stated and on later days, and whether the verdict holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.table import Table

from corral.data import Trace
from corral.loads.advise.verdict import Saving
from corral.loads.advise.words import requests
from corral.loads.recheck.stated import StatedSaving
from corral.loads.text import about_exceeding, counted
from corral.results import Result, filled, plain
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.tables import table_of
from corral.trainers.runs.run_config import versions

__all__ = ["FORMAT", "HOLDS", "LAPSED", "OPEN", "Answer", "Check", "Fresh", "Recheck", "answer_of"]

FORMAT = 1
"""Version of recheck.json."""

Answer = Literal["still holds", "no longer holds", "too few days to tell"]

HOLDS: Answer = "still holds"
LAPSED: Answer = "no longer holds"
OPEN: Answer = "too few days to tell"

Play = Literal["replay", "equal work", "exponential work"]


def answer_of(stated: StatedSaving | None, current: Saving, worth: float = 0.0) -> Answer:
    """Return whether a stated saving still holds.

    - It holds if the interval on later days is above 0, and the mean above ``worth``, a share of
      the arrivals.
    - It no longer holds if this is not so, and the interval excludes either savings of ``worth``,
      or those of the stated interval, if there is one.
    - Otherwise, and without an interval, there are too few days to tell.
    """
    if current.low is None or current.high is None:
        return OPEN
    if current.low > 0 and current.share > worth:
        return HOLDS
    if current.high < worth or current.high <= 0:
        return LAPSED
    least = None if stated is None else stated.low
    if least is not None and current.high * current.arrivals < least:
        return LAPSED
    return OPEN


@dataclass(frozen=True)
class Check:
    """A stated saving of ``policy`` compared with ``other``, and the saving on later days."""

    policy: str
    other: str
    play: Play  # equal and exponential work: rehearsals
    stated: StatedSaving
    current: Saving
    answer: Answer
    decides: bool = True  # whether the verdict depends on it; False: a second choice

    @property
    def inside(self) -> bool | None:
        """Whether the mean on later days is in the stated interval; None without an interval."""
        if self.stated.low is None or self.stated.high is None:
            return None
        return self.stated.low <= self.current.requests <= self.stated.high

    @property
    def shrunken(self) -> bool:
        """Whether the saving holds, but its interval is below the stated one."""
        least = self.stated.mean if self.stated.low is None else self.stated.low
        high = self.current.high
        return self.answer == HOLDS and high is not None and high * self.current.arrivals < least

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and ``inside``, as JSON values."""
        return {
            "policy": self.policy,
            "other": self.other,
            "play": self.play,
            "stated": plain(self.stated),
            "current": self.current.to_json(),
            "inside": self.inside,
            "answer": self.answer,
            "decides": self.decides,
        }


@dataclass(frozen=True)
class Fresh:
    """The best plain rule of the later days: a benchmark, fitted to the days that judge it."""

    rule: str  # of least cost on the later days
    tried: int
    saving: Saving | None  # over the recommended policy; None: it is that policy
    better: bool  # whether its interval is above 0, and its mean above what is worth it
    play: Play = "replay"


@dataclass(frozen=True, repr=False)
class Recheck(Result):
    """Whether the verdict of an advice still holds on later days."""

    json_file = "recheck.json"

    folder: Path  # of the advice
    policy: str  # the recommended one
    answer: Answer
    checks: Sequence[Check]
    fresh: Fresh
    costs: dict[str, tuple[float, float]]  # by policy: cost in requests a day, and lost share
    trace: Trace = field(repr=False)
    rows: tuple[int, int]
    window: int  # steps
    windows: int  # with a shorter last one
    arrivals: float  # requests a day
    stated_arrivals: float | None
    exceeding: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By team: ``beyond``, and the steps in which it observed a number above its scales."""

    @property
    def advise_again(self) -> bool:
        """Whether another rule, fitted to the later days, saves more."""
        return self.fresh.better

    @property
    def unit(self) -> str:
        """The name of a window: "day" or "window"."""
        return "day" if self.window == self.trace.steps_per_day else "window"

    @property
    def a_day(self) -> str:
        return "a day" if self.trace.steps_per_day else "a window"

    # --- Text -------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the savings as stated and on later days, for a terminal of 80 columns."""
        table = table_of(f"saving, requests {self.a_day}\n(95 %)", ["stated", "now", "inside"])
        for check in self.checks:
            stated, current = check.stated, check.current
            table.add_row(
                f"{check.policy} over\n  {check.other}{_in_rehearsal(check.play)}",
                f"{requests(stated.mean)}\n{_between(stated.low, stated.high)}",
                _with_interval(current),
                {True: "yes", False: "no", None: ""}[check.inside],
            )
        fresh = self.fresh
        if fresh.saving is not None:
            name = f"refitted {fresh.rule} over\n  {self.policy}{_in_rehearsal(fresh.play)}"
            table.add_row(name, "", _with_interval(fresh.saving), "")
        return table

    def lines(self) -> list[str]:
        """Return sentences on the days, the costs, the benchmark and the verdict, which is last."""
        low, high = self.rows
        days = counted(self.windows, self.unit)
        sentences = [
            f"Played: {days} ({self.trace.clock_text(low)} to {self.trace.clock_text(high - 1)}), "
            f"{requests(self.arrivals)} requests {self.a_day}{self._growth()}.",
            f"Cost {self.a_day}{_in_rehearsal(self.checks[0].play if self.checks else 'replay')}: "
            + "; ".join(
                f"{label} {requests(cost)} (loses {100 * lost:.2f} %)"
                for label, (cost, lost) in self.costs.items()
            )
            + ".",
        ]
        sentences += [
            f"{label}: {about_exceeding(beyond, exceeding, high - low)}"
            for label, (beyond, exceeding) in self.exceeding.items()
            if exceeding
        ]
        if self.windows < FEWEST_WINDOWS:
            sentences.append(f"No intervals: {days}; they need {FEWEST_WINDOWS}.")
        return [*sentences, self._about_fresh(), self.verdict()]

    def _growth(self) -> str:
        if not self.stated_arrivals:
            return ""
        change = self.arrivals / self.stated_arrivals - 1
        if abs(change) < 0.005:
            return ", as many as in the advice"
        return f", {100 * abs(change):.0f} % {'more' if change > 0 else 'fewer'} than in the advice"

    def _about_fresh(self) -> str:
        """Return a sentence on the benchmark."""
        fresh, unit = self.fresh, self.unit
        text = f"Benchmark: of {fresh.tried:,} rules, {fresh.rule} costs least on these {unit}s"
        if fresh.saving is None:
            return f"{text}; it is the rule of the advice."
        chosen = f"Chosen for each {unit} by the other {unit}s, the best rule"
        if fresh.play != "replay":
            chosen = f"Request by request, with {fresh.play}, it"
        mean, less = requests(abs(fresh.saving.requests)), fresh.saving.share >= 0
        return f"{text}. {chosen} costs {mean} {'less' if less else 'more'} than {self.policy}."

    def verdict(self) -> str:
        """Return the answer as a sentence."""
        subject = f"The verdict, run {self.policy}, {self.answer}"
        if self.answer == OPEN:
            subject = f"There are {self.answer} whether the verdict, run {self.policy}, still holds"
        if self.answer == HOLDS and any(check.shrunken for check in self.checks if check.decides):
            subject += ", but it saves less than stated"
        if self.advise_again:
            subject += f". Advise again: {self.fresh.rule} would save more"
        return f"{subject}."

    # --- Files ------------------------------------------------------------------------------------

    def text(self, width: int = 80) -> str:
        """Return ``lines`` in lines of at most ``width``."""
        return filled(self.lines(), width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each stated saving, in requests a day."""
        rows = []
        for check in self.checks:
            stated, current = check.stated, check.current
            ends = (current.low, current.high)
            low, high = (None if end is None else end * current.arrivals for end in ends)
            rows.append(
                {
                    "policy": check.policy,
                    "other": check.other,
                    "play": check.play,
                    "stated": stated.mean,
                    "stated_low": stated.low,
                    "stated_high": stated.high,
                    "current": current.requests,
                    "current_low": low,
                    "current_high": high,
                    "inside": check.inside,
                    "answer": check.answer,
                }
            )
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the content of recheck.json as JSON values."""
        low, high = self.rows
        saving = self.fresh.saving
        values = {
            "format": FORMAT,
            "answer": self.answer,
            "advise_again": self.advise_again,
            "verdict": self.verdict(),
            "policy": self.policy,
            "checks": [check.to_json() for check in self.checks],
            "fresh": {
                "rule": self.fresh.rule,
                "tried": self.fresh.tried,
                "play": self.fresh.play,
                "saving": None if saving is None else saving.to_json(),
                "better": self.fresh.better,
            },
            "costs": {
                label: {"requests": cost, "lost": lost}
                for label, (cost, lost) in self.costs.items()
            },
            "unit": self.unit,
            "window": self.window,
            "windows": self.windows,
            "arrivals": self.arrivals,
            "stated_arrivals": self.stated_arrivals,
            "exceeding": {
                label: {"beyond": beyond, "steps": steps}
                for label, (beyond, steps) in self.exceeding.items()
            },
            "trace": {
                "name": self.trace.name,
                "digest": self.trace.digest,
                "nodes": list(self.trace.nodes),
                "rows": [low, high],
                "from": self.trace.clock_text(low),
                "to": self.trace.clock_text(high - 1),
            },
            "versions": versions(learning=False),
        }
        plain_values: dict[str, Any] = plain(values)
        return plain_values

    def write(self, folder: str | Path | None = None) -> dict[str, Path]:
        """Write recheck.json into a folder (default: that of the advice); return {name: path}."""
        return super().write(self.folder if folder is None else folder)


def _in_rehearsal(play: Play) -> str:
    return "" if play == "replay" else f", {play}"


def _with_interval(saving: Saving) -> str:
    """Return the mean of a saving, with its interval in a second line."""
    ends = (None if end is None else end * saving.arrivals for end in (saving.low, saving.high))
    return f"{requests(saving.requests)}\n{_between(*ends)}"


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{requests(low)} to {requests(high)}"
