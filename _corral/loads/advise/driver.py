"""From a load to an answer: which policy to run, how many requests that saves, how sure that is.

    advice = corral.advise("loads.csv", minutes=5)
    print(*advice.verdict)

1. The textbook is fitted to the days that are not held out. The rules that are left play all days;
   each day is judged by the rule that was the best on the others.
2. A few of them are replayed for figures, and under what-ifs: a server down, more load, ...
3. A team is trained (``corral.from_rule``), unless it cannot win. It is judged on the days held
   out, day by day, compared with the rule that was fitted without these days.
4. The verdict. Everything is in the folder: report.html, advice.json, the team's run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.data import Trace, load_trace
from corral.envs.arguments import one_of
from corral.envs.dfaas_v0.arguments import with_capacity
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import ArgumentError, MissingExtraError
from corral.loads.advise.advice import ADVICE, Advice, written
from corral.loads.advise.bound import Bound, bound_of
from corral.loads.advise.chosen import (
    Chosen,
    Textbook,
    choose,
    familiar,
    read_textbook,
    replayed,
    today_rule,
    without_choice,
)
from corral.loads.advise.notes import not_considered, notes_of
from corral.loads.advise.post_mortem import post_mortem
from corral.loads.advise.question import Question
from corral.loads.advise.rule_of_thumb import rule_of_thumb
from corral.loads.advise.sentences import (
    TEAM_RUNS,
    asks_of_rule,
    asks_of_team,
    capacity_sentence,
    run_sentence,
    saves_sentence,
    team_sentences,
    trend_sentences,
)
from corral.loads.advise.team import FEWEST, Team, divide, judge, require_the_same, trained
from corral.loads.advise.trend import Trend, trend_of
from corral.loads.advise.verdict import (
    LOCAL,
    PLENTY,
    Decision,
    Worth,
    decide,
    worth_of,
)
from corral.loads.advise.what_ifs import WhatIf, capacity_saving, what_ifs
from corral.loads.advise.words import percent
from corral.loads.from_rule.plan import plan_of
from corral.loads.from_rule.preset import MINUTES
from corral.loads.paired import a_day, has_costs, per_day
from corral.loads.replay import Replay
from corral.loads.text import counted
from corral.loads.textbook import pseudo_code_of
from corral.loads.textbook.grid import BY_COUNT
from corral.progress import Progress
from corral.trainers.runs.folders import new_folder
from corral.trainers.runs.run import Run

__all__ = ["TEAM", "advise"]

TEAM = "team"
"""Folder of the team's run, in that of the advice."""


def advise(
    trace: str | Path | Trace,
    *,
    arrivals: str = "unknown",
    today: str = "local",
    minutes: float | None = None,
    steps: int | None = None,
    worth: float | None = None,
    train: bool = True,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    capacity: int | str | None = None,
    window: int | None = None,
    training: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    show: Progress = lambda what, done, total: None,
    begins: Callable[[str], None] = lambda part: None,
    **settings: Any,
) -> Advice:
    """Return the policy to run for a load, its saving, and how sure that is.

    Writes report.html, results.json, results.csv and advice.json; the run of the team is in the
    folder ``team`` next to them. To resume an advice that was stopped, call it again with the same
    ``out``.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace.
        arrivals: whether nodes know the requests of a step before it: "unknown" until the step is
            over, as to a gateway, or "known".
        today: the rule that runs today: local, round-robin, weighted, least, two-choices, or any
            rule such as overflow/equal. A route alone forwards the overflow.
        minutes: minutes that training a team may take; default: 5, or none where even the optimum,
            which knows the future, would not be worth it.
        steps: env steps of training, in place of minutes: the same team each time.
        worth: least saving of a team worth running, compared with the best plain rule, in % of
            the requests; default: 0.1, or a tenth of the saving of 20 % more capacity if that is
            more.
        train: whether a team is trained at all.
        out: a folder; default: a new one, runs/advice.
        overwrite: replace the advice in the folder.
        seed: seed of training, and of routes that draw.
        capacity: replaces the trace's: requests per step, or "1.25x" of each node's mean load.
        window: steps of a window; default: a day, or 288 if the trace's clock has none.
        training: settings of the training, as ``corral.from_rule`` takes them.
        progress: as in ``corral.train``.
        show: called with the name of a part, how much of it is done, and of how much.
        begins: called first with the plan, then with each part as it begins.
        settings: further arguments of dfaas_v0; a route leaves only the rules with it.

    Raises what ``fit``, ``replay`` and ``corral.from_rule`` raise; ValueError for a folder that
    holds an advice, or a team for another load.
    """
    one_of("arrivals", arrivals, ("known", "unknown"))
    if worth is not None and not (math.isfinite(worth) and worth >= 0):
        raise ValueError(f"worth={worth}: give % of the arrivals, 0 or more")
    load = with_capacity(load_trace(trace), capacity, None)
    late = arrivals == "unknown" and settings.get("report_delay") == 0
    if late:
        settings["report_delay"] = 1
    rule = today_rule(today)
    if arrivals == "unknown" and PlainRule.of(rule).route in BY_COUNT:
        raise ArgumentError(
            f"today={today!r}: {rule} divides the requests of a step: their number must be known "
            "before. Give arrivals='known', or overflow/weighted"
        )
    question = Question(load, arrivals, rule, window, seed, worth, late, settings)
    lasts = {"minutes": None if steps else minutes or MINUTES, "steps": steps}
    if out is not None:
        _require_room(Path(out), train, overwrite, question)
    asked = minutes is not None or steps is not None
    trains = counted(steps, "env step") if steps else _minutes(lasts["minutes"] or MINUTES)
    begins(question.beginning(_of_team(out, trains, asked) if train else ""))
    found = _of_rules(question, show, begins)
    why, decision = _no_team(question, train), None
    if not why:
        cost = found.base.sums[found.chosen.rule].cost
        found = dataclasses.replace(
            found, bound=bound_of(found.base, cost, found.worth.share, show)
        )
        if found.bound is not None and not found.bound.enough:
            if asked:
                begins(f"{_cannot_win(found, found.bound)} One is trained as asked.")
            else:
                why = f"No learned team was trained. {_cannot_win(found, found.bound)}"
                decision = Decision("not worth it")
    folder = new_folder("advice")[0] if out is None else Path(out)
    division = divide(len(load), question.steps)
    if why or division is None:
        advice = found.advice(folder, why, decision)
        rule = found.chosen.rule
        if question.nothing:
            return written(advice)
        return written(_explained(advice, found.base, rule, None, show))
    written(found.advice(folder, "A learned team is in training: this is of plain rules alone."))
    begins(f"a team trains for {trains}")
    run = trained(
        load,
        folder / TEAM,
        division,
        found.book.rule,
        question.game(),
        {**lasts, **(training or {})},
        seed=seed,
        progress=progress,
        show=show,
    )
    begins("the team is judged on the days held out, and looked into")
    team = judge(run, [*found.base.sums], question.today, show)
    decision = decide(team.saving, found.worth.share, team.training)
    advice = found.advice(folder, "", decision, team)
    return written(_explained(advice, team.replay, "team", team.run, show))


def _of_team(out: str | Path | None, trains: str, asked: bool) -> str:
    if out is not None and plan_of(Path(out) / TEAM) is not None:
        return "then the team is resumed"
    return f"then a team trains for {trains}{'' if asked else ', if that can be worth it'}"


def _minutes(minutes: float) -> str:
    return f"{minutes:g} minute{'s' * (minutes != 1)}"


def _require_room(folder: Path, train: bool, overwrite: bool, question: Question) -> None:
    """Raise ValueError if ``folder`` holds an advice that this one does not continue."""
    if train and plan_of(folder / TEAM) is not None:
        require_the_same(folder / TEAM, question.load, question.game())
    elif (folder / ADVICE).exists() and not overwrite:
        raise ValueError(f"{folder / ADVICE} exists: give another out=, or overwrite=True")


# --- Rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """The figures of plain rules, and all that is known before a team is trained."""

    question: Question
    book: Textbook
    base: Replay  # of the shortlist, on all days
    chosen: Chosen
    worth: Worth
    what_ifs: list[WhatIf]
    left_out: list[str]  # what-ifs that could not be played
    trend: Trend | None
    bound: Bound | None = None

    def advice(
        self, folder: Path, no_team: str, decision: Decision | None = None, team: Team | None = None
    ) -> Advice:
        """Return the advice: of the rules alone, or with a team."""
        runs = team is not None and decision is not None and decision.answer == "worth it"
        rule, settings = self.chosen.rule, self.base.settings
        code = [] if runs else pseudo_code_of(PlainRule.of(rule), settings).splitlines()
        return Advice(
            verdict=tuple(self._verdict(no_team, decision, team, runs, code)),
            pseudo_code=() if self.question.nothing else tuple(code),
            chosen=self.chosen,
            book=self.book,
            replay=self.base,
            must_save=self.worth,
            team=team,
            decision=decision,
            no_team=no_team,
            bound=self.bound,
            trend=self.trend,
            what_ifs=self.what_ifs,
            notes=[*notes_of(self.base, self.book, self.chosen, self.worth, team), *self._doubts()],
            not_considered=not_considered(self.base),
            folder=folder,
        )

    def _verdict(
        self,
        no_team: str,
        decision: Decision | None,
        team: Team | None,
        runs: bool,
        code: Sequence[str],
    ) -> list[str]:
        chosen, base = self.chosen, self.base
        costs, more = has_costs(base), capacity_saving(self.what_ifs)
        if runs:
            assert team is not None
            days = f", on the {counted(team.saving.windows, self.question.unit)} held out"
            saves = saves_sentence(
                team.lost, chosen.today, team.beside_today, costs=costs, days=days
            )
            said = [TEAM_RUNS, _joined(saves, capacity_sentence(more, chosen.rule))]
            said.append(asks_of_team(base.settings))
        else:
            saves = saves_sentence(chosen.lost, chosen.today, chosen.beside_today, costs=costs)
            said = [
                run_sentence(chosen.rule, base.settings),
                _joined(saves, capacity_sentence(more, None)),
            ]
            said.append(asks_of_rule(chosen.rule, base.settings, code))
        if self.trend is not None:
            what = f"what {chosen.rule} saves" if runs else "the saving above"
            what_of = None if chosen.beside_today is None else what
            said.append(trend_sentences(self.trend, a_day(base), what_of))
        if team is not None and decision is not None:
            said.append(
                team_sentences(
                    team.saving, decision, self.worth, team.rule, team.training, costs=costs
                )
            )
        return [*said, no_team] if no_team else said

    def _doubts(self) -> list[str]:
        late = (
            "Arrivals are unknown, so that reports come a step late: report_delay 0 is played as 1."
        )
        return [*self.left_out, *([late] if self.question.late else [])]


def _joined(*sentences: str) -> str:
    return " ".join(each for each in sentences if each)


def _of_rules(question: Question, show: Progress, begins: Callable[[str], None]) -> Found:
    """Return the figures of plain rules."""
    load, plan, nothing = question.load, question.plan(), question.nothing
    route, today = question.settings.get("route"), question.today
    if nothing:
        book = without_choice(load, list(dict.fromkeys([LOCAL, today])), **plan)
    else:
        always = [*familiar(int(plan.get("queue") or 0), route), today]
        division = divide(len(load), question.steps)
        cut = len(load) if division is None else division.held_out[0]
        book = read_textbook(
            load, cut, always=list(dict.fromkeys(always)), route=route, show=show, **plan
        )
    base = replayed(load, book, book.shortlist(today, LOCAL), show=show, **plan)
    book = book.with_replay(base)
    chosen = choose(base, book, today, not nothing)
    asked: tuple[list[WhatIf], list[str]] = ([], [])
    if not nothing:
        begins(f"the best plain rule is {chosen.rule}: what if the days were others?")
        asked = what_ifs(base, chosen.rule, show)
    more = capacity_saving(asked[0])
    worth = worth_of(question.worth, None if more is None else 100 * more.share)
    whole, times = base.windows, per_day(base)
    arrived, saved = (times * each[:whole] for each in (book.arrivals, chosen.saved))
    trend = trend_of(arrived, saved, days=base.days)
    return Found(question, book, base, chosen, worth, *asked, trend)


def _no_team(question: Question, train: bool) -> str:
    """Return why no team is trained, whatever rules cost; "" if one may be."""
    unit = question.unit
    if why := question.nothing:
        return f"No rule and no learned team can make a difference ({why})."
    if not train:
        return "No learned team was asked for."
    if question.windows < FEWEST:
        return (
            f"No learned team was trained: {counted(question.windows, unit)} cannot be divided "
            f"into {unit}s to learn from, to validate on and to judge on. {FEWEST} can, and from "
            f"{PLENTY} on there are intervals."
        )
    if question.constant:
        return (
            "No learned team was trained: load and capacity are the same in every step, so that "
            f"no other {unit} is left to judge it on."
        )
    return ""


def _cannot_win(found: Found, bound: Bound) -> str:
    """Return that not even the optimum would save enough."""
    unit, every = found.question.unit, len(found.book.arrivals)
    much = f"save {percent(bound.share)} of requests" if bound.share > 1e-9 else "save no request"
    days = f"all {unit}s" if bound.windows == every else f"{bound.windows} of {every} {unit}s"
    return (
        "A learned team would not be worth it: the optimum, which knows the future, would "
        f"{much} compared with {found.chosen.rule} on {days}."
    )


def _explained(
    advice: Advice, played: Replay, label: str, run: Run | None, show: Progress
) -> Advice:
    """Return the advice with a post-mortem of the costliest day of ``label``, a rule or the team of
    ``run``, and the team's rule of thumb."""
    more: dict[str, Any] = {}
    notes = list(advice.notes)
    if played.sums[label].cost.any():
        rules = [each for each in played.sums if each not in played.teams]
        more["post_mortem"] = post_mortem(played, label, run, rules=rules, progress=show)
    if run is not None:
        try:
            more["rule_of_thumb"] = rule_of_thumb(played, label, run, progress=show)
        except (MissingExtraError, ValueError) as error:  # ValueError: it plays against its masks
            notes.append(f"No rule of thumb: {error}")
    return dataclasses.replace(advice, more=more, notes=notes)
