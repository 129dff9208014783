"""The advice as text and as advice.json; docs/advise.md explains the layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from corral.envs.dfaas_v0.baselines import meaning
from corral.loads.advise.bound import Bound
from corral.loads.advise.chosen import Chosen, Textbook
from corral.loads.advise.rehearsed import Rehearsed, by_work
from corral.loads.advise.sentences import knowledge
from corral.loads.advise.team import Team
from corral.loads.advise.trend import Trend
from corral.loads.advise.verdict import Decision, Worth
from corral.loads.advise.what_ifs import WhatIf
from corral.loads.ladder.result import Ladder
from corral.loads.paired import has_costs, paired_headings, paired_lines
from corral.loads.replay import Replay
from corral.loads.report import evaluation_of
from corral.loads.scores import ordered
from corral.results import Result, filled, plain
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.tables import COLUMNS, table_of
from corral.trainers.runs.run_config import versions

__all__ = ["ADVICE", "FORMAT", "LADDER", "Advice"]

ADVICE = "advice.json"
FORMAT = 1

BALANCER_CODE = 2
"""Index of the sentence of the verdict that the pseudo-code of a balancer follows."""

LADDER = "What each step of knowledge saves"
"""Heading of the ladder. Its lines are a table, to be printed unchanged."""


@dataclass(frozen=True, repr=False)
class Advice(Result):
    """The policy to run on the nodes of a load, its saving, and how certain that is."""

    json_file = ADVICE

    verdict: tuple[str, ...]  # policy to run, its saving, its requirements; then all else
    pseudo_code: tuple[str, ...]  # of the recommended rule
    chosen: Chosen
    book: Textbook = field(repr=False)
    replay: Replay = field(repr=False)  # of the shortlist of rules, on all days
    must_save: Worth
    team: Team | None = None
    decision: Decision | None = None  # about a team; None: undecided
    no_team: str = ""  # reason for a missing team
    rehearsed: Rehearsed | None = None
    no_rehearsal: str = ""  # reason for a missing rehearsal
    capacity: tuple[int, ...] | None = None  # of each node, if it replaced that of the trace
    route: str | None = None  # the only route of its rules; None: all were tried
    arguments: Mapping[str, Any] = field(default_factory=dict)  # that differ from defaults
    ladder: Ladder | None = None
    no_ladder: str = ""  # reason for a missing ladder
    code_after: int = 2  # index of the sentence of the verdict that the pseudo-code follows
    bound: Bound | None = None
    trend: Trend | None = None
    what_ifs: Sequence[WhatIf] = ()
    notes: Sequence[str] = ()  # method and doubts
    not_considered: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further results (post-mortem, rule of thumb) by their key in advice.json. Each has
    ``lines()`` and ``to_json()``."""
    folder: Path = Path()

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        columns = ["policy", "cost %", "lost %", "forwarded %"]
        rows = [
            (score.policy, 100 * score.cost, 100 * score.lost, 100 * score.forwarded)
            for score in ordered(self.replay.scores)
        ]
        lines = [str(sentence) for sentence in self.verdict]
        return as_html(f"Advice for {self.replay.trace.name}", {}, columns, rows, lines=lines)

    @property
    def run(self) -> str:
        """The kind of policy to run: "balancer", "team" or "rule"."""
        better = self.rehearsed is not None and self.rehearsed.better is not None
        return "balancer" if better else self.plan

    def code_below(self, place: int) -> Sequence[str]:
        """Return the pseudo-code below a sentence of the verdict, by its index."""
        better = None if self.rehearsed is None else self.rehearsed.better
        if better is not None and place == BALANCER_CODE:
            return better.pseudo_code
        return self.pseudo_code if place == self.code_after else ()

    @property
    def plan(self) -> str:
        """The best plan for each step, which ``corral serve`` serves: "team" or "rule"."""
        worth_it = self.decision is not None and self.decision.answer == "worth it"
        return "team" if worth_it else "rule"

    @property
    def worth(self) -> float:
        """The least saving of a team worth running, in points."""
        return self.must_save.points

    @property
    def arrivals(self) -> str:
        """Whether nodes know a step's arrivals before the step: "known" or "unknown"."""
        return knowledge(self.replay.settings)

    def table(self) -> Table:
        """Return the shortlist of rules on all days, then the team and the rehearsed policies on
        the held-out days, for 80 columns."""
        tried = self.book.tried
        title = f"arrivals {self.arrivals}\nbest of {tried:,} rule{'s' * (tried != 1)}"
        if self.replay.best_rule is None:  # one window
            table = table_of(title, ["cost %", "lost %", "forwarded %", *self._heading()])
            for score in ordered(self.replay.scores):
                shares = score.cost, score.lost, score.forwarded
                table.add_row(score.policy, *(f"{100 * share:.2f}" for share in shares))
            self._add_rehearsal(table, 3)
            return table
        wide = paired_headings(self.replay)
        narrow = [heading.replace("% of arrivals", "% of\narrivals") for heading in wide]
        places = [*range(len(wide))]
        while True:
            for headings in (wide, narrow):
                table = self._paired(title, headings, places)
                if _width(table) <= COLUMNS:
                    return table
            if len(places) == 1:
                return table
            del places[1 if len(places) > 3 else -1]  # the lost column first, then the interval

    def _paired(self, title: str, headings: Sequence[str], places: Sequence[int]) -> Table:
        """Return the table of rules and the team, with the columns ``places`` only."""
        table = table_of(title, [*(headings[k] for k in places), *self._heading()])
        for policy, *cells in paired_lines(self.replay):
            table.add_row(policy, *(cells[k] for k in places))
        if self.team is None:
            self._add_rehearsal(table, len(places))
            return table
        unit = "day" if self.replay.days else "window"
        shown = ["team", self.team.rule, self.chosen.today]
        same = self.rehearsed is not None and self.rehearsed.covers(self.team.replay)
        if same:
            shown.append(self.chosen.rule)
        table.add_section()
        table.add_row("on the days held out:")
        for policy, *cells in paired_lines(self.team.replay):
            if policy in shown:
                few = f"needs {FEWEST_WINDOWS} {unit}s"  # instead of an interval
                cells = [(*cells, few)[min(k, len(cells))] for k in places]
                table.add_row(policy, *cells, *([self._cell(policy)] if same else []))
        if self.rehearsed is not None and same:
            for balancer in self.rehearsed.balancers():
                table.add_row(balancer, *[""] * len(places), self._cell(balancer))
        else:
            self._add_rehearsal(table, len(places))
        return table

    def _heading(self) -> list[str]:
        """Return the heading of the column with rehearsed costs, if there was a rehearsal."""
        if self.rehearsed is None:
            return []
        return [f"rehearsed\n{self.rehearsed.played.a_day}"]

    def _cell(self, policy: str) -> str:
        cost = None if self.rehearsed is None else self.rehearsed.cost(policy)
        return "" if cost is None else f"{cost:,.0f}"

    def _add_rehearsal(self, table: Table, columns: int) -> None:
        """Add the rehearsed policies to a table with ``columns`` before their column. The first one
        has the cost that a replay promises for the same days."""
        if self.rehearsed is None:
            return
        played = self.rehearsed.played
        table.add_section()
        table.add_row(f"on {played.days()}:")
        for policy in (*self.rehearsed.plans(), *self.rehearsed.balancers()):
            cells = [""] * columns
            if policy in played.promised and self.replay.best_rule is not None:
                cells[0] = f"{played.daily(played.promised[policy]):,.0f}"
            table.add_row(policy, *cells, self._cell(policy))

    def text(self, width: int = 80) -> str:
        """Return ``lines`` in lines of at most ``width``."""
        return filled(self.lines(), width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each rule of the shortlist, on all days."""
        return evaluation_of(self.replay).to_dataframe()

    def lines(self) -> list[str]:
        """Return the whole advice as text; the verdict comes first."""
        lines = [line for _, part in self.sections() for line in part]
        return [*lines, *(line for part in self.more.values() for line in part.lines())]

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield headings and sentences in printed order; the verdict is first."""
        yield "Verdict", list(self.verdict)
        if self.what_ifs:
            yield "What if", [line for what_if in self.what_ifs for line in what_if.lines()]
        yield "How it was judged", list(self.notes)
        yield "Not considered", list(self.not_considered)
        if self.ladder is not None:
            yield LADDER, self.ladder.lines()

    def to_json(self) -> dict[str, Any]:
        """Return the content of advice.json as JSON values."""
        trace, (low, high) = self.replay.trace, self.replay.rows
        decision, parts = self.decision, {"bound": self.bound, "trend": self.trend}
        team = None if self.team is None or decision is None else self.team.to_json()
        if team is not None and decision is not None:
            short = None if decision.reason == "rehearsal" else decision.reason
            team |= {"more_windows": decision.more, "leans": decision.leans, "too_short": short}
            savings = None if self.rehearsed is None else self.rehearsed.team
            team |= {"reason": decision.reason, "rehearsed": savings and by_work(savings)}
        season = 7 if self.replay.days else 1
        forwarded = {score.policy: score.forwarded for score in self.replay.scores}
        values = {
            "format": FORMAT,
            "verdict": list(self.verdict),
            "run": self.run,
            "plan": self.plan,
            "balancer": self._balancer(),
            "answer": None if decision is None else decision.answer,
            "arrivals": self.arrivals,
            "rule": self.chosen.to_json(),
            "meaning": meaning(self.chosen.rule),
            "pseudo_code": list(self.pseudo_code),
            "team": team,
            "no_team": self.no_team,
            "rehearsal": None if self.rehearsed is None else self.rehearsed.to_json(),
            "no_rehearsal": self.no_rehearsal,
            "ladder": None if self.ladder is None else self.ladder.to_json(),
            "no_ladder": self.no_ladder,
            "worth": self.must_save.points,
            "worth_from": self.must_save.source,
            **{name: None if part is None else part.to_json() for name, part in parts.items()},
            "costs": has_costs(self.replay),
            "unit": "day" if self.replay.days else "window",
            "windows": self.replay.windows,
            "remainder": self.replay.remainder,
            "window": self.replay.window,
            "tried": self.book.tried,
            "fitted": {"rule": self.book.rule, "rows": list(self.book.fitted_on)},
            "rules": self.book.to_json(season, forwarded),
            "what_ifs": [what_if.to_json() for what_if in self.what_ifs],
            "notes": list(self.notes),
            "not_considered": list(self.not_considered),
            **{name: part.to_json() for name, part in self.more.items()},
            "trace": {
                "name": trace.name,
                "digest": trace.digest,
                "nodes": list(trace.nodes),
                "rows": [low, high],
                "from": trace.clock_text(low),
                "to": trace.clock_text(high - 1),
            },
            "capacity": self.capacity,
            "route": self.route,
            "arguments": dict(self.arguments),
            "settings": {k: v for k, v in self.replay.settings.items() if k != "trace"},
            "versions": versions(learning=self.team is not None),
        }
        plain_values: dict[str, Any] = plain(values)
        return plain_values

    def _balancer(self) -> dict[str, Any] | None:
        """Return the recommended balancer as JSON values."""
        better = None if self.rehearsed is None else self.rehearsed.better
        return None if better is None else better.to_json()

    def write(self, folder: str | Path | None = None) -> dict[str, Path]:
        """Write advice.json into a folder (default: the advice's folder); return {name: path}."""
        return super().write(self.folder if folder is None else folder)


def _width(table: Table) -> int:
    return Console(width=1000, markup=False, emoji=False).measure(table).maximum
