"""The result of ``corral.bisect``: causes, their p-values, and the CPU time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from corral.lab.bisect.sides import Difference
from corral.results import Result

__all__ = ["Bisection", "Cause", "Verdict"]

Verdict = Literal["found", "no difference", "equal", "undecided"]


@dataclass(frozen=True)
class Cause:
    """A smallest set of differences that costs the learning, and a test of it on new seeds."""

    differences: tuple[Difference, ...]
    p: float  # one-sided exact rank test: the good side without and with these differences
    good: float  # median score of the good side on these seeds
    bad: float  # the same with the differences
    seeds: int  # new seeds, not used by the search


@dataclass(frozen=True, repr=False)
class Bisection(Result):
    """The differences between two trainings, and those that cost the learning.

    ``verdict`` is one of:

    | | |
    |---|---|
    | "found" | ``causes`` are the smallest sets; ``rest_learns`` if all others are harmless |
    | "no difference" | the sides do not differ in learning, with this number of seeds |
    | "equal" | the sides have no difference except, perhaps, the seed |
    | "undecided" | the CPU time ended, or tests contradicted each other; ``note`` says which |
    """

    json_file, csv_file = "bisect.json", "bisect.csv"

    good: str
    bad: str
    verdict: Verdict
    differences: tuple[Difference, ...]
    causes: tuple[Cause, ...]
    suspects: tuple[Difference, ...]  # if undecided: the smallest set known to be like the bad side
    rest_learns: bool | None  # whether the good side learns with all other differences
    p: float | None  # of the comparison of both sides
    scores: tuple[float, float] | None  # median of both sides
    seeds: int  # of the comparison of both sides
    trainings: int
    cpu: float  # seconds of all trainings
    steps: int | None  # env steps of the good side; None: a script
    note: str = ""

    def text(self, width: int = 80) -> str:
        """Return the result in lines of at most ``width``."""
        return "\n".join(self._lines(width))

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per difference; "cause" is the number of its cause, from 1; 0: none."""
        numbers = enumerate(self.causes, start=1)
        cause = {d: i for i, group in numbers for d in group.differences}
        rows = [{**vars(d), "cause": cause.get(d, 0)} for d in self.differences]
        return pd.DataFrame(rows, columns=["part", "name", "good", "bad", "cause"])

    def _lines(self, width: int) -> Iterator[str]:
        yield from textwrap.wrap(self.headline(), width)
        for cause in self.causes:
            yield ""
            for difference in cause.differences:
                values = f"  {difference}: {difference.good} -> {difference.bad}"
                yield from textwrap.wrap(values, width, subsequent_indent="    ")
            tested = (
                f"{cause.seeds} new seeds: median score {cause.good:.4g} without, "
                f"{cause.bad:.4g} with it (p = {cause.p:.2g})."
            )
            yield from textwrap.wrap(tested, width, initial_indent="  ", subsequent_indent="  ")
        if self.note:
            yield ""
            yield from textwrap.wrap(self.note, width)
        yield ""
        named = {*self.suspects, *(d for cause in self.causes for d in cause.differences)}
        rest = [difference for difference in self.differences if difference not in named]
        if rest:
            text = f"Other differences: {', '.join(map(str, rest))}."
            yield from textwrap.wrap(text, width)
        length = f" of {self.steps:,} env steps" if self.steps is not None else ""
        yield f"{self.trainings} trainings{length}, {self.cpu:.0f} s of CPU time."

    def headline(self) -> str:
        """Return the verdict as a sentence."""
        count = len(self.differences)
        sides = f"{self.good} and {self.bad}"
        if self.verdict == "equal":
            return f"{sides} have equal configurations, except for the seed and the script."
        medians = (
            "" if self.scores is None else "median scores {:.4g} and {:.4g}".format(*self.scores)
        )
        if self.verdict == "no difference":
            return (
                f"{sides} do not differ in learning: {medians} over {self.seeds} seeds "
                f"(p = {self.p:.2g})."
            )
        if self.verdict == "undecided":
            suspects = ", ".join(map(str, self.suspects))
            return f"Undecided: {len(self.suspects)} of {count} differences are left: {suspects}."
        number = sum(len(cause.differences) for cause in self.causes)
        together = " together" if len(self.causes) == 1 < number else ""
        rest = {True: " With all others, it learns.", False: " Others cost it as well.", None: ""}
        return (
            f"{number} of {count} differences{together} cost{'s' * (number == 1)} the learning."
            f"{rest[self.rest_learns]}"
        )
