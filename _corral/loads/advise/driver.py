"""Advise on a load: which policy to run, how many requests that saves, and how certain that is.

    advice = corral.advise("loads.csv", minutes=5)
    print(*advice.verdict)

1. The textbook of plain rules is fitted to the days that are not held out. The best rules then play
   all days; the figures for each day are those of the best rule of the other days.
2. A few rules are replayed for figures, and the recommended one under what-ifs: a server down, more
   load, ...
3. The rule, that of today and balancers of practice are rehearsed on the held-out days: request by
   request (``corral.rehearse``). The saving may not hold, or a balancer may cost less.
4. A team is trained (``corral.from_rule``), unless it cannot win. It is judged on the held-out
   days, day by day, compared with the rule that was fitted without these days, and rehearsed.
5. The ladder: the saving of each step of knowledge, up to the optimum, on the held-out days.
6. The verdict. Everything is in the folder: report.html, advice.json, the team's run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.data import Trace, load_trace
from corral.data.trace import about_capacity
from corral.envs.arguments import one_of
from corral.envs.dfaas_v0.arguments import with_capacity
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import ActionError, ArgumentError, MissingExtraError
from corral.loads.advise.advice import ADVICE, Advice
from corral.loads.advise.bound import Bound, bound_of
from corral.loads.advise.chosen import (
    Chosen,
    Textbook,
    choose,
    replayed,
    textbook_of,
    today_rule,
    without_choice,
)
from corral.loads.advise.notes import not_considered, notes_of
from corral.loads.advise.page import written
from corral.loads.advise.post_mortem import post_mortem
from corral.loads.advise.question import Question
from corral.loads.advise.rehearsed import (
    BALANCERS,
    Rehearsed,
    Stage,
    confirmed,
    rehearsed,
    stage_of,
)
from corral.loads.advise.rule_of_thumb import rule_of_thumb
from corral.loads.advise.sentences import (
    TEAM_RUNS,
    about_costs,
    asks_of_rule,
    asks_of_team,
    balancer_sentences,
    baseline_sentence,
    capacity_sentence,
    rehearsal_sentences,
    run_sentence,
    saves_sentence,
    second_choice,
    team_sentences,
    trend_sentences,
)
from corral.loads.advise.team import (
    FEWEST,
    Division,
    Team,
    divide,
    judge,
    require_the_same,
    trained,
)
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
from corral.loads.from_rule.preset import FROM_RULE, MINUTES
from corral.loads.ladder.climb import ladder_of
from corral.loads.paired import a_day, has_costs, per_day
from corral.loads.rehearsal.policies import Entry
from corral.loads.replay import Replay
from corral.loads.text import counted
from corral.loads.textbook import pseudo_code_of
from corral.loads.textbook.grid import BY_COUNT
from corral.progress import Progress
from corral.trainers.runs.folders import new_folder
from corral.trainers.runs.run import Run

__all__ = ["TEAM", "advise"]

TEAM = "team"
"""Folder of the team's run, inside the folder of the advice."""


def advise(
    trace: str | Path | Trace,
    *,
    arrivals: str = "unknown",
    today: str = "local",
    minutes: float | None = None,
    steps: int | None = None,
    worth: float | None = None,
    train: bool = True,
    rehearse: bool = True,
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
    """Return the policy to run for a load, its saving, and how certain that is.

    Writes report.html, results.json, results.csv and advice.json; the run of the team is in the
    folder ``team`` next to them. To resume a stopped advice, call it again with the same ``out``.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace.
        arrivals: whether nodes know a step's arrivals before the step: "known", or "unknown", as
            for a gateway, until the step is over.
        today: the rule that runs today: local (each node serves its own requests); round-robin,
            weighted, least or two-choices (local first; only the overflow is forwarded, in turn, by
            capacity, to the most reported spare, or to the better of two); or a rule such as
            share=0.8333/equal (six nodes share all requests evenly).
        minutes: longest time of training a team; default: 5, or no limit with ``steps``. No team is
            trained if even the optimum, which knows the future, would not be worth it.
        steps: env steps of training; default: by the number of nodes. If no limit of time ends it
            earlier, the result is reproducible.
        worth: least saving of a team compared with the best plain rule, or of a balancer compared
            with the best plan, in % of the requests; default: 0.1, or a tenth of the saving of 20 %
            more capacity if that is more.
        train: whether a team may be trained.
        rehearse: whether the held-out days are also played request by request, with balancers of
            practice.
        out: a folder; default: a new one, runs/advice.
        overwrite: replace an existing advice in the folder.
        seed: seed of training, and of routes that draw.
        capacity: replaces the trace's: requests per step, or "1.25x" of each node's mean load.
        window: steps of a window; default: a day, or 288 if the trace's clock has no days.
        training: training settings of ``corral.from_rule``.
        progress: as in ``corral.train``.
        show: called with the name of a part, the work done, and the total work.
        begins: called first with the plan, then with each part when it begins.
        settings: further arguments of dfaas_v0; a ``route`` restricts the rules to that route.

    Raises the errors of ``fit``, ``replay`` and ``corral.from_rule``; ValueError for a folder with
    an existing advice, or with a team for another load. A KeyboardInterrupt from the training on
    names the folder, which keeps the verdict on the rules; before, nothing is written.
    """
    values: dict[str, Any] = {
        "trace": None if isinstance(trace, Trace) else str(trace),
        **settings,
        "capacity": capacity,
        "window": window,
        "arrivals": arrivals,
        "today": today,
        "minutes": minutes,
        "steps": steps,
        "worth": worth,
        "train": train,
        "rehearse": rehearse,
        "seed": seed,
        "training": training,
        "out": None if out is None else str(out),
    }
    defaults = {key: p.default for key, p in inspect.signature(advise).parameters.items()}
    arguments = {key: v for key, v in values.items() if key not in defaults or v != defaults[key]}
    one_of("arrivals", arrivals, ("known", "unknown"))
    if worth is not None and not (math.isfinite(worth) and worth >= 0):
        raise ValueError(f"worth={worth}: pass % of the arrivals, 0 or more")
    load = with_capacity(load_trace(trace), capacity, None)
    late = arrivals == "unknown" and settings.get("report_delay") == 0
    if late:
        settings["report_delay"] = 1
    rule = today_rule(today)
    if arrivals == "unknown" and PlainRule.of(rule).route in BY_COUNT:
        raise ArgumentError(
            f"today={today!r}: {rule} divides the requests of a step, so it must know their number "
            "before the step. Pass arrivals='known', or today='overflow/weighted'"
        )
    assert load.capacity is not None  # with_capacity ensures it
    replaced = None if capacity is None else tuple(load.capacity[0].tolist())
    question = Question(
        load, arrivals, rule, window, seed, worth, late, settings, replaced, arguments
    )
    lasts = {"minutes": minutes, "steps": steps}
    if out is not None:
        _require_room(Path(out), train, overwrite, question)
    train_requested = minutes is not None or steps is not None
    trains = counted(steps or FROM_RULE.steps(len(load.nodes)), "env step")
    if minutes is not None or steps is None:
        trains = f"{trains}, at most {_minutes(minutes or MINUTES)}"
    question.require_valid()
    if minutes is not None and not (math.isfinite(minutes) and minutes > 0):
        raise ValueError(f"minutes={minutes:g}: give a number above 0")
    begins(question.beginning(_of_team(out, trains, train_requested) if train else ""))
    results = _of_rules(question, show, begins)
    division = divide(len(load), question.steps)
    stage: Stage | str = "No rehearsal was requested."
    if rehearse:
        stage = stage_of(question, division, show)
    results = _rehearsed(results, stage, begins)
    why, decision = _no_team(question, train), None
    if not why:
        cost = results.base.sums[results.chosen.rule].cost
        results = dataclasses.replace(
            results, bound=bound_of(results.base, cost, results.worth.share, show)
        )
        if results.out_of_reach:
            assert results.bound is not None
            if train_requested:
                begins(f"{_cannot_win(results, results.bound)} A team is trained as requested.")
            else:
                why = f"No learned team was trained. {_cannot_win(results, results.bound)}"
                decision = Decision("not worth it")
    folder = new_folder("advice")[0] if out is None else Path(out)
    if why or division is None:
        advice = results.advice(folder, why, decision)
        rule = results.chosen.rule
        if question.nothing:
            return written(advice)
        advice = _with_ladder(advice, question, division, show)
        return written(_explained(advice, results.base, rule, None, show))
    written(results.advice(folder, "A learned team is in training: only plain rules so far."))
    with _resumable(folder):
        begins(f"a team trains for {trains}")
        run = trained(
            load,
            folder / TEAM,
            division,
            results.book.rule,
            question.game(),
            {**lasts, **(training or {})},
            seed=seed,
            progress=progress,
            show=show,
        )
        begins("the team is judged on the held-out days and explained")
        team = judge(run, [*results.base.sums], question.today, show)
        decision = decide(team.saving, results.worth.share, team.training)
        if results.out_of_reach and decision.answer != "worth it":
            decision = Decision("not worth it")
        results, decision = _with_team(results, team, decision)
        advice = results.advice(folder, "", decision, team)
        advice = _with_ladder(advice, question, division, show)
        return written(_explained(advice, team.replay, "team", team.run, show))


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Let a KeyboardInterrupt in this block name the kept results and the way to resume."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"stopped: {folder} keeps the verdict on the rules, and the team so far"
        raise KeyboardInterrupt(f"{kept}. To resume, repeat the call with out={folder}") from None


def _with_ladder(
    advice: Advice, question: Question, division: Division | None, show: Progress
) -> Advice:
    """Return the advice with the ladder of its load."""
    if division is None:
        few = f"{counted(question.windows, question.unit)}; {FEWEST} are needed"
        return dataclasses.replace(advice, no_ladder=f"No ladder: {few} to hold some out.")
    ladder = ladder_of(question, advice.book, division.held_out, advice.team, show=show)
    return dataclasses.replace(advice, ladder=ladder)


def _of_team(out: str | Path | None, trains: str, train_requested: bool) -> str:
    if out is not None and plan_of(Path(out) / TEAM) is not None:
        return "then the team is resumed"
    return (
        f"then a team trains for {trains}{'' if train_requested else ', if that can be worth it'}"
    )


def _minutes(minutes: float) -> str:
    return f"{minutes:g} minute{'s' * (minutes != 1)}"


def _require_room(folder: Path, train: bool, overwrite: bool, question: Question) -> None:
    """Raise ValueError if ``folder`` holds an advice that this one does not continue."""
    if train and plan_of(folder / TEAM) is not None:
        require_the_same(folder / TEAM, question.load, question.game())
    elif (folder / ADVICE).exists() and not overwrite:
        raise ValueError(f"{folder / ADVICE} exists: pass another out=, or overwrite=True")


# --- Rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleResults:
    """The results of plain rules, before a team is trained."""

    question: Question
    book: Textbook
    base: Replay  # of the shortlist, on all days
    chosen: Chosen
    worth: Worth
    what_ifs: list[WhatIf]
    left_out: list[str]  # what-ifs that cannot be played
    trend: Trend | None
    bound: Bound | None = None
    stage: Stage | None = None  # windows of the rehearsal
    rehearsed: Rehearsed | None = None
    no_rehearsal: str = ""

    @property
    def out_of_reach(self) -> bool:
        """Whether even the optimum, which knows the future, would save less than is worth it."""
        return self.bound is not None and not self.bound.enough

    def advice(
        self, folder: Path, no_team: str, decision: Decision | None = None, team: Team | None = None
    ) -> Advice:
        """Return the advice, on rules alone or with a team."""
        runs = team is not None and decision is not None and decision.answer == "worth it"
        rule, settings = self.chosen.rule, self.base.settings
        code = [] if runs else pseudo_code_of(PlainRule.of(rule), settings).splitlines()
        plan = self._plan(team if runs else None, code)
        first, second = self._balancer(), self._rehearsal()
        verdict = [*first, *plan[:2], *second, *plan[2:]]
        return Advice(
            verdict=(*verdict, *self._trend_and_team(no_team, decision, team, runs)),
            pseudo_code=() if self.question.nothing else tuple(code),
            chosen=self.chosen,
            book=self.book,
            replay=self.base,
            must_save=self.worth,
            team=team,
            decision=decision,
            no_team=no_team,
            capacity=self.question.capacity,
            arguments=self.question.arguments,
            route=self.question.settings.get("route"),
            rehearsed=self.rehearsed,
            no_rehearsal=self.no_rehearsal,
            code_after=len(verdict) - 1,
            bound=self.bound,
            trend=self.trend,
            what_ifs=self.what_ifs,
            notes=[*notes_of(self.base, self.book, self.chosen, self.worth, team), *self._doubts()],
            not_considered=not_considered(self.base),
            folder=folder,
        )

    def _balancer(self) -> list[str]:
        """Return the sentences about a recommended balancer."""
        if self.rehearsed is None or self.rehearsed.better is None:
            return []
        costs = has_costs(self.base)
        return balancer_sentences(self.rehearsed.better, self.rehearsed, costs=costs)

    def _rehearsal(self) -> list[str]:
        """Return the sentence about the best plan in the rehearsal."""
        if self.rehearsed is None:
            return []
        return [rehearsal_sentences(self.rehearsed, costs=has_costs(self.base))]

    def _plan(self, team: Team | None, code: Sequence[str]) -> list[str]:
        """Return sentences on the best plan: its meaning, its saving and its needs.

        ``team``: if the best plan is a team. ``code``: pseudo-code of the rule.
        """
        chosen, base = self.chosen, self.base
        costs, more = has_costs(base), capacity_saving(self.what_ifs)
        second = bool(self._balancer())
        if team is not None:
            days = f", on the {counted(team.saving.windows, self.question.unit)} held out"
            saves = saves_sentence(
                team.lost, chosen.today, team.beside_today, costs=costs, days=days
            )
            told = baseline_sentence(chosen.today, team.beside_today)
            capacity = capacity_sentence(more, chosen.rule)
            return [
                second_choice(None, base.settings) if second else TEAM_RUNS,
                _joined(saves, told, about_costs(base.settings), capacity),
                asks_of_team(base.settings),
            ]
        saves = saves_sentence(chosen.lost, chosen.today, chosen.beside_today, costs=costs)
        told = baseline_sentence(chosen.today, chosen.beside_today)
        capacity = capacity_sentence(more, None)
        first = second_choice if second else run_sentence
        return [
            first(chosen.rule, base.settings),
            _joined(saves, told, about_costs(base.settings), capacity),
            asks_of_rule(chosen.rule, base.settings, code),
        ]

    def _trend_and_team(
        self, no_team: str, decision: Decision | None, team: Team | None, runs: bool
    ) -> list[str]:
        chosen, base, sentences = self.chosen, self.base, []
        if self.trend is not None:
            simple = not runs and not self._balancer()
            what = "the saving above" if simple else f"the saving of {chosen.rule}"
            what_of = None if chosen.beside_today is None else what
            sentences.append(trend_sentences(self.trend, a_day(base), what_of))
        if team is not None and decision is not None:
            sentences.append(
                team_sentences(
                    team.saving,
                    decision,
                    self.worth,
                    team.rule,
                    team.training,
                    costs=has_costs(base),
                    rehearsal=None if self.rehearsed is None else self.rehearsed.team,
                )
            )
            if self.out_of_reach:
                assert self.bound is not None
                sentences.append(_cannot_win(self, self.bound))
        return [*sentences, no_team] if no_team else sentences

    def _doubts(self) -> list[str]:
        late = "Arrivals are unknown, so reports are one step old: report_delay 0 is played as 1."
        doubts = [*self.left_out, *([late] if self.question.late else [])]
        doubts += [self.no_rehearsal] if self.no_rehearsal else []
        doubts += [] if self.rehearsed is None else self.rehearsed.notes()
        return [*doubts, *about_capacity(self.question.load)]


def _rehearsed(
    results: RuleResults, stage: Stage | str, begins: Callable[[str], None]
) -> RuleResults:
    """Return the results with a rehearsal; ``stage`` may be the reason for none."""
    if isinstance(stage, str):
        return dataclasses.replace(results, no_rehearsal=stage)
    chosen = results.chosen
    days = counted(stage.windows, results.question.unit)
    compiling = ", after compiling it, which takes about half a minute" * stage.compiled
    begins(f"rehearsal of plans and balancers, request by request, for {days}{compiling}")
    labels = dict.fromkeys([chosen.today, chosen.rule, LOCAL, *BALANCERS])
    try:
        played = stage.play({label: label for label in labels})
    except ActionError as error:  # a rule that cannot be carried out request by request
        return dataclasses.replace(results, no_rehearsal=f"No rehearsal: {error}")
    worth, again = results.worth.share, stage.again
    follows = rehearsed(played, plan=chosen.rule, today=chosen.today, worth=worth, again=again)
    return dataclasses.replace(results, stage=stage, rehearsed=follows)


def _with_team(
    results: RuleResults, team: Team, decision: Decision
) -> tuple[RuleResults, Decision]:
    """Return the results with the rehearsal of a team, and the decision if it is confirmed."""
    stage, rules = results.stage, results.rehearsed
    if stage is None or rules is None:
        return results, decision
    policies: dict[str, Entry] = {"team": team.run}
    if team.rule not in rules.played.promised:
        policies[team.rule] = team.rule
    try:
        played = rules.played.merged(stage.play(policies))
    except ActionError as error:  # a team that decides too slowly
        why = f"No rehearsal: {error}"
        return dataclasses.replace(results, rehearsed=None, no_rehearsal=why), decision
    savings = played.savings(team.rule, "team")
    decision = confirmed(decision, savings)
    follows = rehearsed(
        played,
        plan="team" if decision.answer == "worth it" else results.chosen.rule,
        today=results.chosen.today,
        worth=results.worth.share,
        again=stage.again,
        team=savings,
    )
    return dataclasses.replace(results, rehearsed=follows), decision


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _of_rules(question: Question, show: Progress, begins: Callable[[str], None]) -> RuleResults:
    """Return the results of plain rules."""
    load, plan, nothing = question.load, question.plan(), question.nothing
    today = question.today
    if nothing:
        book = without_choice(load, list(dict.fromkeys([LOCAL, today])), **plan)
    else:
        book = textbook_of(question, show)
    base = replayed(load, book, book.shortlist(today, LOCAL), show=show, **plan)
    book = book.with_replay(base)
    chosen = choose(base, book, today, not nothing)
    what_if_results: tuple[list[WhatIf], list[str]] = ([], [])
    if not nothing:
        begins(f"the best plain rule is {chosen.rule}: now playing the what-ifs")
        what_if_results = what_ifs(base, chosen.rule, show)
    more = capacity_saving(what_if_results[0])
    worth = worth_of(question.worth, None if more is None else 100 * more.share)
    whole, per_unit = base.windows, per_day(base)
    arrived, saved = (per_unit * daily[:whole] for daily in (book.arrivals, chosen.saved))
    trend = trend_of(arrived, saved, days=base.days)
    return RuleResults(question, book, base, chosen, worth, *what_if_results, trend)


def _no_team(question: Question, train: bool) -> str:
    """Return the reason why no team is trained, whatever the rules cost; "" if one may be."""
    unit = question.unit
    if why := question.nothing:
        return f"No rule and no learned team can make a difference ({why})."
    if not train:
        return "No learned team was requested."
    if question.windows < FEWEST:
        return (
            f"No learned team was trained: {counted(question.windows, unit)} cannot be divided "
            f"into {unit}s for training, validation and judging. At least {FEWEST} are needed; "
            f"with {PLENTY} or more there are intervals."
        )
    if question.constant:
        return (
            "No learned team was trained: load and capacity are equal in all steps, so "
            f"no different {unit} remains for judging it."
        )
    return ""


def _cannot_win(results: RuleResults, bound: Bound) -> str:
    """Return the sentence that even the optimum would save too little."""
    unit, every = results.question.unit, len(results.book.arrivals)
    much = f"save {percent(bound.share)} of requests" if bound.share > 1e-9 else "save no request"
    days = f"all {unit}s" if bound.windows == every else f"{bound.windows} of {every} {unit}s"
    return (
        "A learned team would not be worth it: the optimum, which knows the future, would "
        f"{much} compared with {results.chosen.rule} on {days}."
    )


def _explained(
    advice: Advice, played: Replay, label: str, run: Run | None, show: Progress
) -> Advice:
    """Return the advice with a post-mortem of the costliest day of ``label`` (a rule, or the team
    of ``run``), and with the team's rule of thumb."""
    more: dict[str, Any] = {}
    notes = list(advice.notes)
    if played.sums[label].cost.any():
        rules = [label for label in played.sums if label not in played.teams]
        mortem = post_mortem(played, label, run, rules=rules, progress=show)
        if mortem.avoidable:
            more["post_mortem"] = mortem
    if run is not None:
        try:
            more["rule_of_thumb"] = rule_of_thumb(played, label, run, progress=show)
        except (MissingExtraError, ValueError) as error:  # ValueError: most actions are illegal
            notes.append(f"No rule of thumb: {error}")
    return dataclasses.replace(advice, more=more, notes=notes)
