"""From a load to an answer: which policy to run, how many requests that saves, how sure that is.

    advice = corral.advise("loads.csv", minutes=5)
    print(*advice.verdict)

1. All rules, with all routes, play all days. Which is the best is chosen for each day on all the
   others, so that no rule is judged on a day that it was chosen on.
2. What-ifs: the best rule on the same days, had a server been down, ...
3. A team is trained (``corral.from_rule``) on the first days, and judged on the last ones alone,
   day by day beside the rule that was the best on the others.
4. The verdict. Everything is in the folder: report.html, advice.json, the team's run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace, load_trace
from corral.envs.dfaas_v0.arguments import with_capacity
from corral.envs.dfaas_v0.baselines import meaning
from corral.envs.dfaas_v0.network import adjacency, no_choice
from corral.errors import MissingExtraError, UnknownNameError
from corral.progress import Progress
from corral.trainers.loads import replay as engine
from corral.trainers.loads.advise.advice import (
    ADVICE,
    NOT_CONSIDERED,
    SECOND_OFFER,
    Advice,
    Chosen,
    written,
)
from corral.trainers.loads.advise.post_mortem import post_mortem
from corral.trainers.loads.advise.rule_of_thumb import rule_of_thumb
from corral.trainers.loads.advise.team import FEWEST, Team, divide, judge, require_the_same, trained
from corral.trainers.loads.advise.verdict import (
    LOCAL,
    PLENTY,
    WORTH,
    Decision,
    about_costs,
    both,
    decide,
    percent,
    rule_sentence,
    saving,
    team_sentence,
)
from corral.trainers.loads.advise.what_ifs import WhatIf, how_many, what_ifs
from corral.trainers.loads.from_rule.days import RULES
from corral.trainers.loads.from_rule.plan import plan_of
from corral.trainers.loads.from_rule.preset import MINUTES
from corral.trainers.loads.paired import has_costs, without_intervals
from corral.trainers.loads.replay import Replay
from corral.trainers.loads.text import counted
from corral.trainers.runs.folders import new_folder
from corral.trainers.runs.run import Run

__all__ = ["TEAM", "advise"]

TEAM = "team"
"""Folder of the team's run, in that of the advice."""


def advise(
    trace: str | Path | Trace,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    worth: float = WORTH,
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
    """Return which policy to run for a load, what it saves, and how sure that is.

    Writes report.html, results.json, results.csv and advice.json; the run of the team is in the
    folder ``team`` beside. An advice that was stopped goes on where it was: call it again with the
    same ``out``.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace.
        minutes: that training may take; default: 5, or none where even the optimum, which knows the
            future, would not be worth it.
        steps: env steps of training, in place of minutes.
        worth: what a team must save beside the best rule to be worth it, in % of the arrivals.
        train: whether a team is trained at all.
        out: a folder; default: a new one, runs/advice.
        overwrite: whether an advice in ``out`` is replaced.
        seed: of training, and of routes that draw.
        capacity: replaces the trace's: requests per step, or "1.25x" of each node's mean load.
        window: steps of a window; default: a day, or 288 where the trace's clock has none.
        training: settings of the training, as ``corral.from_rule`` takes them.
        progress: as in ``corral.train``.
        show: is told of what is replayed.
        begins: is told first what is done, and then of each part of it as it begins.
        settings: further arguments of dfaas_v0; a route leaves only the rules with it.

    Raises what ``replay`` and ``corral.from_rule`` raise; ValueError for a folder that holds an
    advice, or a team for another load.
    """
    if not (math.isfinite(worth) and worth >= 0):
        raise ValueError(f"worth={worth}: give % of the arrivals, 0 or more")
    load = with_capacity(load_trace(trace), capacity, None)
    route = settings.pop("route", None)
    rules = [pair for pair in _ordered() if route in (None, pair.partition("/")[2])]
    if not settings.get("queue"):  # patient nodes wait for nothing, and play as the others do
        rules = [pair for pair in rules if not pair.startswith("patient")]
    if not rules:
        raise UnknownNameError.of("route", str(route), [pair.partition("/")[2] for pair in RULES])
    only = {} if route is None else {"route": route}
    if out is not None:
        game = {**settings, **only, **({} if window is None else {"max_cycles": window})}
        _require_room(Path(out), train, overwrite, load, game)
    plan: dict[str, Any] = {"window": window, "seed": seed, "optimum_windows": 0}
    length = {"minutes": None if steps else minutes or MINUTES, "steps": steps}
    trains = counted(steps, "env step") if steps else _minutes(length["minutes"] or MINUTES)
    if load.capacity is not None:
        sure = minutes is not None or steps is not None
        told = f"then a team trains for {trains}{'' if sure else ', where that can be worth it'}"
        if out is not None and plan_of(Path(out) / TEAM) is not None:
            told = "then the team goes on where it was"
        begins(_beginning(load, len(rules), window, settings, told if train else ""))
    base = engine.replay(load, rules, progress=show, **plan, **settings)
    nothing = no_choice(load, _links(load, settings))
    chosen = _chosen(base, choice=not nothing)
    why, decision = _no_team(base, train, worth / 100, minutes is not None or steps is not None)
    asked: tuple[list[WhatIf], list[str]] = ([], [])
    if not nothing:
        begins(f"the best rule is {chosen.rule}: what if the days were others?")
        asked = what_ifs(base, rules, chosen.rule, settings, seed, show)
    folder = new_folder("advice")[0] if out is None else Path(out)
    make = functools.partial(_advice, base, chosen, worth=worth, asked=asked, folder=folder)
    division = divide(len(load), base.window)
    if why or division is None:
        advice = make(None, why, decision)
        return written(advice if nothing else _explained(advice, base, chosen.rule, None, show))
    written(make(None, "A learned team is in training: what is here is of the rules alone.", None))
    own = {**settings, **only, "max_cycles": base.window}
    begins(f"a team trains for {trains}")
    run = trained(
        load,
        folder / TEAM,
        division,
        own,
        {**length, **(training or {})},
        seed=seed,
        progress=progress,
        show=show,
    )
    begins("the team is judged on the days held out, and looked into")
    team = judge(run, rules, show)
    return written(_explained(make(team, "", None), team.replay, "team", team.run, show))


def _beginning(
    load: Trace, rules: int, window: int | None, settings: Mapping[str, Any], team: str
) -> str:
    """Return what is done, as far as it is known before anything was played; ``team``: of it."""
    steps = min(window or load.steps_per_day or engine.DEFAULT_WINDOW, len(load))
    windows = len(load) // steps
    unit = "day" if steps == load.steps_per_day else "window"
    said = f"{counted(rules, 'rule')} {'plays' if rules == 1 else 'play'} {counted(windows, unit)}"
    if no_choice(load, _links(load, settings)):
        return said
    said += f" and {counted(how_many(load, settings), 'what-if')}"
    return f"{said}; {team}" if team and windows >= FEWEST and not _constant(load) else said


def _minutes(minutes: float) -> str:
    return f"{minutes:g} minute{'s' * (minutes != 1)}"


def _require_room(
    folder: Path, train: bool, overwrite: bool, load: Trace, game: Mapping[str, Any]
) -> None:
    """Raise ValueError where ``folder`` holds an advice that this one does not go on with."""
    if train and plan_of(folder / TEAM) is not None:
        require_the_same(folder / TEAM, load, game)
    elif (folder / ADVICE).exists() and not overwrite:
        raise ValueError(f"{folder / ADVICE} exists: give another out=, or overwrite=True")


def _ordered() -> list[str]:
    """Return all rules; of those that cost the same the first is named."""
    first = ("local", "overflow")
    return sorted(RULES, key=lambda pair: pair.partition("/")[0] not in first)


def _links(load: Trace, settings: Mapping[str, Any]) -> Any:
    agents = [f"node_{i}" for i in range(len(load.nodes))]
    return adjacency(agents, load.nodes, settings.get("neighbours"))


# --- Rules ---------------------------------------------------------------------------------------


def _chosen(base: Replay, choice: bool) -> Chosen:
    """Return the rule of least cost, and what is got by choosing it so; without a ``choice``, where
    all do the same, that rule alone."""
    sums, costs = base.sums, {label: s.cost for label, s in base.sums.items()}
    rule = min(costs, key=lambda label: float(costs[label].sum()))  # of equal ones the first
    load = sums[rule].arrivals
    own, days = both(sums[rule]), {}
    if base.best_rule is not None:
        labels = base.best_rule.labels
        lost = np.array([sums[label].lost[w] for w, label in enumerate(labels)])
        own = base.best_rule.cost, lost
        days = {label: labels.count(label) for label in base.best_rule.names}
    every = max(1.0, float(load.sum()))
    beside = None
    if LOCAL in sums and rule != LOCAL:
        beside = saving(base, both(sums[LOCAL]), own, load)
    runner_up = None
    if rule == LOCAL and len(costs) > 1 and choice:
        other = min(costs.keys() - {LOCAL}, key=lambda label: (float(costs[label].sum()), label))
        runner_up = other, saving(base, own, both(sums[other]), load)
    alike = [k for k, cost in costs.items() if k != rule and (cost == costs[rule]).all()] * choice
    shares = float(own[0].sum()) / every, float(own[1].sum()) / every
    return Chosen(rule, *shares, days, alike, beside, runner_up)


def _no_team(base: Replay, train: bool, worth: float, asked: bool) -> tuple[str, Decision | None]:
    """Return why no team is trained, "" where one is, and what follows from it. ``asked``: whether
    minutes or steps were given."""
    load, days = base.trace, "day" if base.days else "window"
    if why := no_choice(load, _links(load, base.settings)):
        return f"No rule and no learned team can make a difference ({why}).", None
    if not train:
        return "No learned team was asked for.", None
    if base.windows < FEWEST:
        return (
            f"No learned team was trained: {counted(base.windows, days)} cannot be divided into "
            f"{days}s to learn from, to validate on and to judge on. {FEWEST} can, and from "
            f"{PLENTY} on there are intervals."
        ), None
    if _constant(load):
        return (
            "No learned team was trained: load and capacity are the same in every step, so that "
            f"there are no other {days}s to judge it on."
        ), None
    optimum = [score.cost for score in base.scores if score.policy == "optimum"]
    if base.optimum_method == "closed form" and optimum and not asked:
        rule = min(score.cost for score in base.scores if score.policy != "optimum")
        if (gap := rule - optimum[0]) < worth:
            much = f"save more than {percent(gap)} of requests" if gap > 0 else "save a request"
            said = "A learned team is not worth it: not even the optimum, which knows the future, "
            return f"{said}would {much}.", Decision("not worth it")
    return "", None


def _constant(load: Trace) -> bool:
    """Return whether load and capacity are the same in every step."""
    assert load.capacity is not None  # a replay's trace has one
    return all(bool((each == each[:1]).all()) for each in (load.arrivals, load.capacity))


# --- The answer ----------------------------------------------------------------------------------


def _advice(
    base: Replay,
    chosen: Chosen,
    team: Team | None,
    no_team: str,
    decision: Decision | None,
    *,
    worth: float,
    asked: tuple[list[WhatIf], list[str]],
    folder: Path,
) -> Advice:
    costs = has_costs(base)
    offered = base.settings.get("second_offer", True) and chosen.rule != LOCAL
    said = [
        rule_sentence(
            chosen.rule,
            chosen.cost,
            chosen.lost,
            chosen.beside_local,
            costs=costs,
            runner_up=chosen.runner_up,
        )
    ]
    if team is not None:
        decision = decide(team.saving, worth / 100)
        other = "" if team.rule == chosen.rule else team.rule
        said.append(team_sentence(team.saving, decision, worth / 100, costs=costs, beside=other))
    elif no_team:
        said.append(no_team)
    return Advice(
        verdict=tuple(said),
        chosen=chosen,
        replay=base,
        worth=worth,
        team=team,
        decision=decision,
        no_team=no_team,
        what_ifs=asked[0],
        notes=[*_notes(base, chosen, team), *asked[1]],
        not_considered=(*NOT_CONSIDERED, *[SECOND_OFFER] * offered),
        folder=folder,
    )


def _notes(base: Replay, chosen: Chosen, team: Team | None) -> list[str]:
    """Return how it was judged, and what is in doubt."""
    days = "day" if base.days else "window"
    every = base.windows + bool(base.remainder)
    part = f", and a part of one ({counted(base.remainder, 'step')})" if base.remainder else ""
    steps = "" if base.days else f" of {counted(base.window, 'step')}"
    count = f"{counted(base.windows, days)}{steps}{part}"
    notes = [f"{chosen.rule}: {meaning(chosen.rule)}."]
    if len(chosen.days) > 1:
        others = ", ".join(f"{k} on {n}" for k, n in chosen.days.items())
        notes.append(
            f"{len(base.sums)} rules played {count}. Each {days} is judged by the rule that was "
            f"the best on all others ({others}); the figures are those of choosing so."
        )
    elif chosen.days:
        notes.append(
            f"{len(base.sums)} rules played {count}. On whichever {days} is left out, the others "
            f"choose {next(iter(chosen.days))}."
        )
    else:
        notes.append(
            f"{len(base.sums)} rules played {count}: the rule was chosen on the {days} that it is "
            "judged on, and may look better than it is."
        )
    if chosen.alike and chosen.days:
        more = f" and {len(chosen.alike) - 4} more" if len(chosen.alike) > 4 else ""
        notes.append(f"The same on every {days}: {', '.join(chosen.alike[:4])}{more}.")
    if every < 6:
        notes.append(without_intervals(base))
    elif _constant(base.trace):
        notes.append(f"Every {days} is alike: no interval tells of other {days}s.")
    else:
        notes.append(f"95 %: Student's interval over the {every} {days}s.")
    if text := about_costs(base.settings):
        notes.append(text)
    if team is not None:
        notes += _about_team(team, days)
    narrow = [s for s in (chosen.beside_local, team and team.saving) if s and s.alike]
    rule = base.best_rule
    if narrow or (rule is not None and every >= 6 and rule.dominated):
        why = (
            f"{days}s next to each other are alike"
            if narrow
            else f"one {days} has much of the cost"
        )
        notes.append(f"Take the intervals as too narrow: {why}.")
    return notes


def _about_team(team: Team, days: str) -> list[str]:
    config = team.run.config.env_config
    rows, window = config.env_kwargs["rows"], team.replay.window
    kept = config.validation.get("rows", (0, 0))
    steps = int(team.run.progress["env_steps"].iloc[-1])
    learned, validated = ((high - low) // window for low, high in (rows, kept))
    return [
        f"The team learned from {counted(learned, days)}, its checkpoint was chosen on "
        f"{validated}, and it was judged on the last {team.saving.windows}, which nothing was "
        f"chosen on, beside {team.rule}, the best rule of the others.",
        f"It was trained for {steps:,} env steps. A longer training may find another team.",
    ]


def _explained(
    advice: Advice, played: Replay, label: str, run: Run | None, show: Progress
) -> Advice:
    """Return the advice with a post-mortem of the costliest day of ``label``, a rule or the team of
    ``run``, and the team's rule of thumb."""
    more: dict[str, Any] = {}
    notes = list(advice.notes)
    if played.sums[label].cost.any():
        more["post_mortem"] = post_mortem(played, label, run, progress=show)
    if run is not None:
        try:
            more["rule_of_thumb"] = rule_of_thumb(played, label, run, progress=show)
        except (MissingExtraError, ValueError) as error:  # ValueError: it plays against its masks
            notes.append(f"There is no rule of thumb: {error}")
    return dataclasses.replace(advice, more=more, notes=notes)
