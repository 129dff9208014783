"""The first screen of an advice: the verdict, the policies that matter, and the next commands.

All policies are compared on the same days. With a rehearsal these are the rehearsed days, request
by request; with a team that was not rehearsed, the held-out days; else all days, in the replay.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.loads.advise.advice import Advice
from corral.loads.advise.directives import directive_of_balancer, directive_of_rule
from corral.loads.advise.rehearsed import DEPENDS
from corral.loads.advise.sentences import (
    asks_of_rule,
    asks_of_team,
    capacity_sentence,
    holds_sentence,
    interval_of,
    needs_sentence,
)
from corral.loads.advise.verdict import LOCAL, Saving, both, saving
from corral.loads.advise.what_ifs import capacity_saving
from corral.loads.advise.words import WIDTH, columns, percent, requests
from corral.loads.paired import a_day, has_costs
from corral.loads.replay import SERIES_POINTS, Replay, binned
from corral.loads.text import counted
from corral.loads.textbook.words import short_of
from corral.text import pasted
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS

__all__ = ["LINES", "Losses", "Row", "Screen", "losses_of", "screen_of"]

LINES = 40
"""Most lines of the first screen in a terminal, at 80 columns."""


@dataclass(frozen=True)
class Row:
    """A policy on the days of the screen."""

    policy: str
    role: str  # "advised", "today", ...
    cost: float  # requests a day
    lost: float  # requests a day
    lost_share: float  # of the arrivals
    saving: Saving | None  # compared with the rule of today; None: it is that rule


@dataclass(frozen=True)
class Screen:
    """An advice as an operator sees it first. Sentences are plain text."""

    run: str  # what to run
    rows: tuple[Row, ...]  # the policies that matter, the cheapest first
    days: str  # "10 held-out days, request by request"
    unit: str  # "a day" or "a window"
    costs: bool  # whether anything except lost requests has a cost
    saves: str
    asks: str
    directive: str  # the policy as configuration of a proxy, or that there is none; "": a team
    capacity: str  # what 20 % more capacity would do; "": it was not played
    team: str  # the answer about a learned team
    notes: tuple[str, ...]  # trend and doubts
    call: str  # the command, as it was typed
    commands: tuple[tuple[str, str], ...]  # the next commands, and their purpose
    report: str  # path of report.html

    @property
    def advised(self) -> Row:
        """The recommended policy."""
        return _advised(self.rows)

    def headings(self) -> list[str]:
        """Return the headings of ``cells``."""
        costs = [f"cost\n{self.unit}"] * self.costs
        return ["policy", "", *costs, f"lost\n{self.unit}", "saves over\ntoday's", "95 %\ninterval"]

    def cells(self) -> list[list[str]]:
        """Return a line for each policy: its name, its role, and its figures."""
        lines = []
        for row in self.rows:
            figures = [row.cost, row.lost] if self.costs else [row.lost]
            saves = "" if row.saving is None else _count(row.saving.requests)
            ends = "" if row.saving is None else _ends(row.saving)
            lines.append([row.policy, row.role, *map(_count, figures), saves, ends])
        return lines

    def lines(self) -> list[str]:
        """Return the screen as at most ``LINES`` lines of 80 columns; commands are not wrapped.

        If it would be longer, notes are left out, the last one first.
        """
        notes = list(self.notes)
        while len(lines := [*self._lines(notes)]) > LINES and notes:
            notes.pop()
        return lines

    def _lines(self, notes: Sequence[str]) -> Iterator[str]:
        yield from wrapped(self.run)
        yield ""
        yield from wrapped(f"On {self.days}:")
        head, cells = self.headings(), self.cells()
        filled = [k for k in range(len(head)) if any(line[k] for line in cells)]
        yield from columns([head[k] for k in filled], [[c[k] for k in filled] for c in cells], 2)
        yield ""
        for text in (self.saves, self.asks, self.directive, self.capacity, self.team, *notes):
            yield from wrapped(text) if text else ()
        yield ""
        for command, purpose in self.commands:
            yield f"{command}  # {purpose}"
        yield ""
        yield f"Report: {self.report} (--verbose prints the rest)"


def _ends(saving: Saving) -> str:
    """Return the interval of a saving, with the signs of its ends."""
    if saving.constant or saving.low is None or saving.high is None:
        return interval_of(saving)
    return " to ".join(_count(end * saving.arrivals) for end in (saving.low, saving.high))


def _count(number: float) -> str:
    """Return a number of requests without rounding them to hundreds."""
    return f"{number:,.0f}" if abs(number) >= 10 else requests(number)


def wrapped(text: str) -> list[str]:
    """Wrap a sentence at 80 columns, with an indent from the second line on."""
    kept = text.replace(" %", "\u00a0%")
    lines = textwrap.wrap(
        kept, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    return [line.replace("\u00a0", " ") for line in lines]


def screen_of(advice: Advice) -> Screen:
    """Return the first screen of an advice."""
    rows, days = _rows(advice)
    capacity = capacity_sentence(
        capacity_saving(advice.what_ifs), None if advice.run == "rule" else advice.chosen.rule
    )
    replay = f", step by step, in the replay of all {'day' if advice.replay.days else 'window'}s."
    tail = advice.verdict[advice.code_after + 1 :]
    trend = 1 if advice.trend is not None else 0
    return Screen(
        run=advice.verdict[0],
        rows=tuple(rows),
        days=days,
        unit=a_day(advice.replay),
        costs=has_costs(advice.replay),
        saves=_saves(advice, rows),
        asks=_asks(advice),
        directive=_directive(advice),
        capacity=f"{capacity.removesuffix('.')}{replay}" if capacity else "",
        team=" ".join(tail[trend:]),
        notes=(*tail[:trend], *_doubts(advice, rows)),
        call=_call(advice.arguments),
        commands=tuple(_commands(advice, rows)),
        report=str(advice.folder / "report.html"),
    )


# --- The policies that matter --------------------------------------------------------------------


def _rows(advice: Advice) -> tuple[list[Row], str]:
    """Return the policies that matter, the cheapest first, and the days of their figures."""
    roles = _roles(advice)
    if advice.rehearsed is not None:
        played = advice.rehearsed.played
        today = played.deterministic[advice.chosen.today]
        arrivals = max(1.0, played.daily(played.requests))
        rows = []
        for label, role in roles.items():
            costs = played.deterministic[label]
            cost, lost = played.daily(costs.cost), played.daily(costs.lost)
            gain = None if label == advice.chosen.today else played.saving(today, costs)
            rows.append(Row(label, role, cost, lost, lost / arrivals, gain))
        days, windows = f"{played.days()}, request by request", len(played.windows)
    else:
        replay = advice.replay if advice.team is None else advice.team.replay
        rows = [_replayed(advice, replay, label, role) for label, role in roles.items()]
        held_out = "held-out " * (advice.team is not None)
        days = counted(replay.windows, f"{held_out}{'day' if replay.days else 'window'}")
        days, windows = f"{days}, in the replay", replay.windows
    if windows < FEWEST_WINDOWS:
        days += f"; fewer than {FEWEST_WINDOWS} give no intervals, so all of this may be chance"
    return sorted(rows, key=lambda row: row.cost), days


def _roles(advice: Advice) -> dict[str, str]:
    """Return the policies that matter, with their roles; the advised one first."""
    chosen, rehearsed = advice.chosen, advice.rehearsed
    plan = "team" if advice.plan == "team" else chosen.rule
    roles: dict[str, list[str]] = {}
    if rehearsed is not None and rehearsed.better is not None:
        roles[rehearsed.better.name] = ["advised"]
        roles[plan] = ["second choice"]
    else:
        roles[plan] = ["advised"]
    roles.setdefault(chosen.today, []).append("today")
    roles.setdefault(LOCAL, [])
    if rehearsed is not None and advice.run != "balancer":
        roles.setdefault(rehearsed.balancers()[0], []).append("best balancer")
    if advice.team is not None and advice.decision is not None and plan != "team":
        roles["team"] = [advice.decision.answer]
    played = [*(advice.replay.sums if advice.team is None else advice.team.replay.sums)]
    if rehearsed is not None:
        played = [*rehearsed.played.deterministic]
    return {label: ", ".join(words) for label, words in roles.items() if label in played}


def _advised(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row.role.startswith("advised"))


def _replayed(advice: Advice, replay: Replay, label: str, role: str) -> Row:
    """Return the row of a policy in a replay. The chosen rule of all days has the figures of the
    days on which it was not chosen."""
    chosen, sums, today = advice.chosen, replay.sums[label], replay.sums[advice.chosen.today]
    every = max(1.0, float(sums.arrivals.sum()))
    cost, lost = float(sums.cost.sum()) / every, float(sums.lost.sum()) / every
    gain = saving(replay, both(today), both(sums), sums.arrivals)
    if label == chosen.rule and advice.team is None:
        cost, lost, gain = chosen.cost, chosen.lost, chosen.beside_today or gain
    daily = gain.arrivals
    other = None if label == chosen.today else gain
    return Row(label, role, cost * daily, lost * daily, lost, other)


# --- Sentences -----------------------------------------------------------------------------------


def _saves(advice: Advice, rows: Sequence[Row]) -> str:
    """Return the saving of the advised policy over the rule of today, on the days of the screen."""
    advised = _advised(rows)
    today = next(row for row in rows if row.policy == advice.chosen.today)
    name = f"{short_of(PlainRule.of(today.policy))} ({today.policy})"
    gain, level = advised.saving, percent(advised.lost_share)
    if gain is None:
        return f"It runs today already: {name}; --today sets another rule. It loses {level}."
    ends = f" (95 %: {interval_of(gain)})" if interval_of(gain) else ""
    change = f"saves {requests(gain.requests)}"
    if gain.share < 0:
        change = f"costs {requests(-gain.requests)} more"
    text = (
        f"It {change} requests {gain.unit}{ends} and loses {level} instead of "
        f"{percent(today.lost_share)}, compared with today: {name}; --today sets another rule."
    )
    if gain.open_ended and not gain.same:
        text += " The difference may be chance."
    rehearsed = advice.rehearsed
    if rehearsed is None:
        return text
    if rehearsed.better is not None:
        exponential = rehearsed.better.over_today[1]
        return f"{text} With exponential work, {_saved(exponential)}."
    if rehearsed.promise is None:
        return text
    return (
        f"{text} With exponential work, {_saved(rehearsed.promise.exponential)}; the replay "
        f"promises {requests(rehearsed.promise.promised.requests)}."
    )


def _saved(saving: Saving) -> str:
    return f"{requests(saving.requests)} requests {saving.unit}"


def _asks(advice: Advice) -> str:
    """Return the requirements of the advised policy."""
    settings, rehearsed = advice.replay.settings, advice.rehearsed
    if rehearsed is not None and rehearsed.better is not None:
        return needs_sentence(rehearsed.better, rehearsed.played)
    if advice.plan == "team":
        return asks_of_team(settings)
    return asks_of_rule(advice.chosen.rule, settings)


def _directive(advice: Advice) -> str:
    """Return the advised policy in the words of proxies; "" for a team."""
    rehearsed = advice.rehearsed
    if rehearsed is not None and rehearsed.better is not None:
        return directive_of_balancer(rehearsed)
    if advice.plan == "team":
        return ""
    nodes = len(advice.replay.trace.nodes)
    return directive_of_rule(advice.chosen.rule, advice.replay.settings, nodes)


def _doubts(advice: Advice, rows: Sequence[Row]) -> Iterator[str]:
    """Yield doubts about the figures of the screen."""
    advised = _advised(rows)
    unit = a_day(advice.replay).removeprefix("a ")
    if any(row.saving is not None and row.saving.alike for row in rows):
        yield f"Neighboring {unit}s correlate, so the intervals are too narrow."
    rehearsed = advice.rehearsed
    if rehearsed is None:
        return
    if rehearsed.better is not None and rehearsed.promise is not None:
        promise, plan = rehearsed.promise, rehearsed.plan
        if promise.answer == DEPENDS:  # the replay of more capacity and the table seem to differ
            yield holds_sentence(promise, rehearsed.today, f"The saving of {plan}")
    yield from rehearsed.stale_sentences()
    cheaper = [row.policy for row in rows if row.cost < advised.cost]
    for policy in cheaper:
        if policy in rehearsed.balancers() and policy not in rehearsed.stale:
            yield (
                f"{policy} costs less here, but not by more than --worth in both rehearsals, or it "
                "may be chance."
            )


# --- Commands ------------------------------------------------------------------------------------


def _call(arguments: Mapping[str, Any]) -> str:
    """Return the call of an advice as it was typed: a command, or Python if no command says it."""
    trace = arguments.get("trace")
    more = {key: value for key, value in arguments.items() if key != "trace"}
    if trace is None or not all(isinstance(value, str | int | float) for value in more.values()):
        words = ["trace" if trace is None else repr(trace)]
        words += [f"{key}={value!r}" for key, value in more.items()]
        return f"corral.advise({', '.join(words)})"
    words = ["corral advise", pasted(trace)]
    for key, value in more.items():
        option = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words.append(f"--{option} {pasted(value)}")
    return " ".join(words)


def _commands(advice: Advice, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the next commands and their purpose."""
    served = next((row for row in rows if row.role.startswith("second choice")), _advised(rows))
    folder, nodes = pasted(advice.folder), len(advice.replay.trace.nodes)
    trace = advice.arguments.get("trace")
    name = "LOAD.csv" if trace is None else pasted(trace)
    if nodes > 1 and advice.arrivals == "unknown":
        yield f"corral rehearse {name} {folder}", "with your servers and latency"
    if nodes > 1 and (served.saving is None or served.saving.share > 0):
        plan = "the second choice" if advice.run == "balancer" else "the plan"
        yield f"corral serve {folder}", f"{plan} over HTTP"
    if advice.team is not None:
        run = f"{folder}/team@best" if advice.plan == "team" else f"{folder}/team --recommended"
        yield f"corral export {run} --out gateway", "needs NumPy only"
    yield f"corral advise LATER.csv --recheck {folder}", "does it still hold?"


# --- Losses over time ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """Lost requests of all nodes in each step, on the days of the screen."""

    rows: tuple[int, int]
    width: int  # steps of a point
    lost: dict[str, Array]  # by policy: float64 [P] mean requests a step
    played: int  # windows, of those in ``rows``
    whole: int


def losses_of(advice: Advice, policies: Sequence[str]) -> Losses:
    """Return the losses of policies over time: rehearsed ones, or those of the replay."""
    if advice.rehearsed is not None:
        played = advice.rehearsed.played
        rehearsed = {policy: played.deterministic[policy].lost_by_step for policy in policies}
        by_step = {policy: lost for policy, lost in rehearsed.items() if lost is not None}
        if len(by_step) == len(policies):
            return _rehearsed_losses(by_step, played.first_row, played.windows, played.whole)
    replay = advice.replay if advice.team is None else advice.team.replay
    series = {policy: replay.series[policy] for policy in policies if policy in replay.series}
    width = next(iter(series.values())).width
    lost = {policy: course.counts["lost"].sum(axis=1) for policy, course in series.items()}
    return Losses(replay.rows, width, lost, replay.windows, replay.windows)


def _rehearsed_losses(
    by_step: Mapping[str, Array], first_row: int, windows: Sequence[int], whole: int
) -> Losses:
    """``by_step``: int64 [W, T]; windows that were not played have no losses."""
    steps = next(iter(by_step.values())).shape[1]
    width = -(-whole * steps // SERIES_POINTS)
    lost = {}
    for policy, values in by_step.items():
        every = np.zeros((whole, steps))
        every[list(windows)] = values
        lost[policy] = binned(every.reshape(-1, 1), width)[:, 0]
    return Losses((first_row, first_row + whole * steps), width, lost, len(windows), whole)
