"""Recheck an advice: does its verdict still hold on later days?

    result = corral.recheck("runs/advice", "later.csv")
    print(result.answer)

1. The policy of today, the advised rule and an advised team are replayed on the later days. An
   advised balancer is rehearsed on these days, too.
2. The textbook of plain rules is fitted to the later days: a benchmark.
3. Each saving that the advice states is paired by day, and compared with the stated one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from corral.data import Trace, load_trace
from corral.envs.dfaas_v0.arguments import with_capacity
from corral.envs.dfaas_v0.rows import section
from corral.loads import replay as replays
from corral.loads.advise.chosen import Chosen, Textbook, choose, familiar, read_textbook, replayed
from corral.loads.advise.question import Question
from corral.loads.advise.rehearsed import Played, stage_of
from corral.loads.advise.team import Division
from corral.loads.advise.verdict import LOCAL, Saving, both, saving
from corral.loads.paired import per_day
from corral.loads.recheck.result import (
    HOLDS,
    LAPSED,
    OPEN,
    Answer,
    Check,
    Fresh,
    Play,
    Recheck,
    answer_of,
)
from corral.loads.recheck.stated import Stated, StatedSaving, stated_of
from corral.loads.rehearsal.policies import Entry
from corral.loads.replay import Replay
from corral.progress import Progress, cell_progress
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.judge import players
from corral.trainers.runs.run import Run, load_run

__all__ = ["recheck"]


def recheck(
    folder: str | Path,
    trace: str | Path | Trace,
    *,
    rows: tuple[int, int] | None = None,
    capacity: int | str | None = None,
    beyond: str | None = None,
    seed: int = 0,
    write: bool = True,
    progress: Progress = cell_progress,
) -> Recheck:
    """Return whether the verdict of an advice still holds on later days.

    Writes recheck.json into the folder of the advice.

    Args:
        folder: folder of the advice.
        trace: later days of the same nodes: a bundled name, the path of a CSV, or a Trace.
        rows: (low, high), the rows to play; default: all. A file that begins with the days of the
            advice needs them.
        capacity: replaces the trace's, see ``corral.advise``. Default: the capacity that replaced
            it for the advice, if one did.
        beyond: play of numbers above the scales of an advised team, "clip" or "rule"; default: as
            trained.
        seed: seed of routes that draw, and of the rehearsal.
        write: whether to write recheck.json.
        progress: called with the name of a part, the work done, and the total work.

    Raises RunError for a damaged or missing advice. ValueError: the trace has other nodes, another
    clock or step, or days of the advice, or all policies do the same there. TraceError without
    capacity, ScaleError for a team without ``beyond`` if the trace exceeds its scales.
    """
    stated = stated_of(folder)
    load = load_trace(trace)
    _require_comparable(stated, load)
    load = _with_stated_capacity(stated, load, capacity)
    low, high = (0, len(load)) if rows is None else section(rows, len(load))
    _require_later(stated, load, low, high)
    question = Question(
        load=load.section(low, high),
        arrivals=stated.settings.get("arrivals", "known"),
        today=stated.today,
        window=stated.window,
        seed=seed,
        worth=None,
        late=False,
        settings={key: v for key, v in stated.settings.items() if key != "arrivals"},
    )
    if question.nothing:
        raise ValueError(f"{load.name}: {question.nothing}; all policies do the same there")
    team = None
    if stated.team is not None:
        run = load_run(stated.verdict.team or stated.folder)
        team = load_run(f"{run.folder}@best") if run.config.env_config.validation else run
    played = _Played(stated, question, team, beyond, progress)
    checks = [*played.of_balancer(), *played.of_team(), *played.of_rule()]
    fresh = played.fresh()
    result = Recheck(
        folder=stated.folder,
        policy=stated.policy,
        answer=_answer(checks, fresh, len(played.arrivals)),
        checks=checks,
        fresh=fresh,
        costs=played.costs(),
        trace=load,
        rows=(low, high),
        window=question.steps,
        windows=len(played.arrivals),
        arrivals=float(played.arrivals.sum()) * question.steps / (high - low) * played.per_day,
        stated_arrivals=stated.arrivals,
        exceeding=played.exceeding(),
    )
    if write:
        result.write()
    return result


def _with_stated_capacity(stated: Stated, load: Trace, capacity: int | str | None) -> Trace:
    """Return the load with ``capacity``; None: with that of the advice, or as recorded."""
    if capacity is not None or stated.capacity is None:
        return with_capacity(load, capacity, None)
    table = np.tile(np.array(stated.capacity, dtype=np.int64), (len(load), 1))
    return dataclasses.replace(load, capacity=table)


def _require_comparable(stated: Stated, load: Trace) -> None:
    """Raise ValueError for other nodes, another clock or another step than those of the advice."""
    nodes = stated.verdict.nodes
    if load.nodes != nodes:
        raise ValueError(
            f"{load.name} has the nodes {', '.join(load.nodes)}, but {stated.folder} is the advice "
            f"for {', '.join(nodes)}, in this order: make an advice for the new nodes"
        )
    if load.clock != stated.clock:
        raise ValueError(
            f"{load.name} has the clock {load.clock}, but the load of {stated.folder} has "
            f"{stated.clock}: write its times in the same way"
        )
    if stated.step is not None and load.step != stated.step:
        unit = " s" if load.clock == "utc" else ""
        raise ValueError(
            f"{load.name} has steps of {load.step}{unit}, but {stated.folder} is the advice for "
            f"steps of {stated.step}{unit}: import the later days with the same step"
        )


def _require_later(stated: Stated, load: Trace, low: int, high: int) -> None:
    """Raise ValueError if rows are of the days of the advice, or fewer than one window."""
    times = load.times[low:high]
    used = (times >= stated.first) & (times <= stated.last)
    if (times < stated.first).any() and not used.any():
        raise ValueError(
            f"{load.name} begins before the days of {stated.folder}: give a trace of later days"
        )
    if used.any():
        later = int((load.times <= stated.last).sum())
        remedy = "give a trace of later days"
        if later < len(load) and load.times[0] <= stated.last:
            remedy = f"its rows {later}:{len(load)} are later: give them as rows="
        raise ValueError(
            f"{int(used.sum()):,} of {len(times):,} rows of {load.name} are of the days of "
            f"{stated.folder}. Those days were used to make the advice, so they cannot judge it; "
            f"{remedy}"
        )
    if high - low < stated.window:
        raise ValueError(
            f"{load.name} has {high - low} rows to play, but the windows of {stated.folder} have "
            f"{stated.window} steps: give at least one window"
        )


def _answer(checks: list[Check], fresh: Fresh, windows: int) -> Answer:
    """Return the answer for the recommended policy.

    Advice to keep the policy of today states no saving. With enough ``windows`` it holds unless
    another rule is better.
    """
    answers = {check.answer for check in checks if check.decides}
    if not answers:
        if fresh.better:
            return LAPSED
        return HOLDS if windows >= FEWEST_WINDOWS else OPEN
    return next(answer for answer in (LAPSED, OPEN, HOLDS) if answer in answers)


class _Played:
    """All policies on the later days."""

    def __init__(
        self,
        stated: Stated,
        question: Question,
        team: Run | None,
        beyond: str | None,
        progress: Progress,
    ) -> None:
        self.stated, self.question, self.progress = stated, question, progress
        self.team = team
        load, plan = question.load, question.plan()
        self.rule, self.today = stated.verdict.rule, stated.today
        rules = [self.rule, self.today, *([stated.team_rule] if stated.team_rule else [])]
        self.book = self._textbook(rules)
        self.base = replayed(
            load, self.book, self.book.shortlist(*rules, LOCAL), show=progress, **plan
        )
        self.sums = dict(self.base.sums)
        self.of_teams: Replay | None = None
        if team is not None:
            entries: dict[str, replays.Entry] = {self.rule: self.rule, "team": players(team)[0]}
            self.of_teams = replays.replay(
                load, entries, beyond=beyond, optimum_windows=0, progress=progress, **plan
            )
            self.sums["team"] = self.of_teams.sums["team"]
        self.arrivals = self.sums[self.rule].arrivals
        self.per_day = per_day(self.base)
        self.rehearsed: Played | None = None
        self.chosen: Chosen = choose(self.base, self.book, self.rule, choice=True)
        if stated.balancer is not None:
            self.rehearsed = self._rehearsed(beyond)

    def _textbook(self, rules: list[str]) -> Textbook:
        """Return the textbook fitted to all later days."""
        plan, load = self.question.plan(), self.question.load
        route = self.stated.route
        names = list(dict.fromkeys([*familiar(int(plan.get("queue") or 0), route), *rules]))
        return read_textbook(load, len(load), always=names, route=route, show=self.progress, **plan)

    def _rehearsed(self, beyond: str | None) -> Played:
        """Rehearse the advised balancer, the plans and the rule of today on all later days."""
        stated, question = self.stated, self.question
        if beyond is not None:
            settings = {**question.settings, "beyond": beyond}
            question = dataclasses.replace(question, settings=settings)
        stage = stage_of(question, Division((0, len(question.load)), None), self.progress)
        if isinstance(stage, str):
            raise ValueError(f"the balancer {stated.policy} cannot be rechecked. {stage}")
        labels = dict.fromkeys([stated.today, stated.verdict.rule, self.chosen.rule, stated.policy])
        policies: dict[str, Entry] = {label: label for label in labels}
        if self.team is not None:
            policies["team"] = self.team
        return stage.play(policies)

    def _saving(self, other: str, policy: str) -> Saving:
        """Return the saving of a policy compared with another one, in the replay."""
        return saving(self.base, both(self.sums[other]), both(self.sums[policy]), self.arrivals)

    def _check(
        self,
        stated: StatedSaving | None,
        policy: str,
        other: str,
        current: Saving,
        *,
        play: Play = "replay",
        worth: float = 0.0,
        decides: bool = True,
    ) -> list[Check]:
        if stated is None:
            return []
        answer = answer_of(stated, current, worth)
        return [Check(policy, other, play, stated, current, answer, decides)]

    def of_rule(self) -> list[Check]:
        """Return the check of the advised rule compared with the policy of today."""
        if self.rule == self.today:
            return []
        return self._check(
            self.stated.over_today,
            self.rule,
            self.today,
            self._saving(self.today, self.rule),
            decides=self.stated.policy == self.rule,
        )

    def of_team(self) -> list[Check]:
        """Return the checks of an advised team compared with its rule and the policy of today."""
        team, rule = self.stated.team, self.stated.team_rule
        if team is None or rule is None:
            return []
        decides, worth = self.stated.policy == "team", self.stated.worth
        over_rule = self._saving(rule, "team")
        checks = self._check(team[0], "team", rule, over_rule, worth=worth, decides=decides)
        if rule == self.today:
            return checks
        over_today = self._saving(self.today, "team")
        return [*checks, *self._check(team[1], "team", self.today, over_today, decides=decides)]

    def of_balancer(self) -> list[Check]:
        """Return the checks of an advised balancer, with both kinds of work."""
        stated, played = self.stated, self.rehearsed
        if stated.balancer is None or played is None:
            return []
        checks = []
        plays: dict[str, Play] = {"deterministic": "equal work", "exponential": "exponential work"}
        compared = [(stated.plan, stated.worth), (stated.today, 0.0)]
        for place, (other, worth) in enumerate(compared[: 2 - (stated.plan == stated.today)]):
            pair = played.savings(other, stated.policy)
            for (work, play), current in zip(plays.items(), pair, strict=True):
                then = stated.balancer[work][place]
                checks += self._check(then, stated.policy, other, current, play=play, worth=worth)
        return checks

    def fresh(self) -> Fresh:
        """Return the best plain rule of the later days, compared with the recommended policy."""
        stated, chosen, worth = self.stated, self.chosen, self.stated.worth
        if self.rehearsed is not None:
            pair = self.rehearsed.savings(stated.policy, chosen.rule)
            better = all(answer_of(None, current, worth) == HOLDS for current in pair)
            return Fresh(chosen.rule, self.book.tried, pair[0], better, play="equal work")
        if stated.policy == chosen.rule:
            return Fresh(chosen.rule, self.book.tried, None, better=False)
        sums = self.sums[stated.policy]
        figures = both(self.sums[chosen.rule])
        if (best := self.base.best_rule) is not None:  # each day by the other days
            lost = [self.base.sums[label].lost[w] for w, label in enumerate(best.labels)]
            figures = best.cost, np.array(lost)
        current = saving(self.base, both(sums), figures, self.arrivals)
        better = answer_of(None, current, worth) == HOLDS
        return Fresh(chosen.rule, self.book.tried, current, better)

    def costs(self) -> dict[str, tuple[float, float]]:
        """Return the cost in requests a day, and the lost share, by policy. With a balancer, these
        are costs of the rehearsal with equal work."""
        if self.rehearsed is not None:
            total = max(1.0, float(self.rehearsed.requests.sum()))
            return {
                label: (self.rehearsed.daily(costs.cost), float(costs.lost.sum()) / total)
                for label, costs in self.rehearsed.deterministic.items()
            }
        labels = dict.fromkeys([self.today, self.rule, *(["team"] if self.team else [])])
        labels |= dict.fromkeys([self.chosen.rule])
        total, steps = max(1.0, float(self.arrivals.sum())), len(self.question.load)
        days = steps / self.question.steps / self.per_day
        return {
            label: (
                float(self.sums[label].cost.sum()) / days,
                float(self.sums[label].lost.sum()) / total,
            )
            for label in labels
        }

    def exceeding(self) -> dict[str, tuple[str, int]]:
        """Return ``beyond`` of the team, and the steps with numbers above its scales."""
        teams = {} if self.of_teams is None else self.of_teams.teams
        return {
            label: (note.beyond, note.exceeding)
            for label, note in teams.items()
            if note.beyond is not None
        }
