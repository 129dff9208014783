"""A replay in words: what was played, by whom, and the table of its scores."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.table import Table

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.network import adjacency, no_choice
from corral.envs.dfaas_v0.optimum import reached_by
from corral.loads.paired import (
    COSTS,
    about_best_rule,
    has_costs,
    paired_headings,
    paired_lines,
    without_intervals,
)
from corral.loads.replay import OWN, Replay
from corral.loads.scores import Score, ordered
from corral.loads.waiting import waits_lines
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.tables import LEARNED, returns_by_agent, table_of

__all__ = [
    "about_clock",
    "about_knowledge",
    "beside_optimum",
    "counted",
    "describe",
    "losses_table",
    "optimum_part",
    "ordered",
    "returns_table",
    "score_tables",
]

UNIX = 10**9
"""Integers from here on look like seconds since 1970: the year 2001."""

MOST_NAMES = 12
"""Names of so many nodes are listed."""

FEW_AMOUNTS = 6
"""Lists of so many entries are written out."""


def describe(replay: Replay) -> list[str]:
    """Return what was played and how, in sentences."""
    trace, (low, high) = replay.trace, replay.rows
    settings = _words(replay.settings)
    windows = replay.windows + bool(replay.remainder)
    played = f"{counted(replay.windows, 'window')} of {counted(replay.window, 'step')}"
    if replay.remainder:
        played += f" and one of {replay.remainder}"
    intervals = without_intervals(replay)
    if not intervals:
        kinds = ", each beside those of its weekday" if replay.days and windows >= 14 else ""
        intervals = f"95 % intervals are Student's over {counted(windows, 'window')}{kinds}."
    lines = [
        f"Trace {trace.name}: rows {low}:{high} of {len(trace)}, "
        f"{counted(len(trace.nodes), 'node')} "
        f"({trace.clock_text(low)} to {trace.clock_text(high - 1)}).",
        *about_clock(trace),
        *_about_names(trace.nodes),
        f"Played as {played}; queues and reports of other nodes start empty in each. {intervals}",
        about_knowledge(replay.settings),
        "Served, lost and forwarded (refused offers included) in % of the arrivals; waiting in "
        f"requests per node and step.{_about_rest(replay)}",
        *_about_cost(replay),
        *about_best_rule(replay),
        _about_returns(replay),
        f"Settings of dfaas_v0: {settings or 'default'}.",
    ]
    return [*lines, *_about_choice(replay), *_about_teams(replay), _about_optimum(replay)]


def about_knowledge(settings: Mapping[str, Any]) -> str:
    """Return whether nodes knew the arrivals of a step before they chose."""
    if settings.get("arrivals", "known") == "unknown":
        return (
            "Arrivals: unknown until a step is over, as to a gateway. Rules count as requests come."
        )
    return "Arrivals: known to each node before a step, which no gateway knows."


def about_clock(trace: Trace) -> list[str]:
    """Return a sentence where times are integers that are seconds since 1970, it seems."""
    unix = trace.clock == "integer" and trace.times[0] >= UNIX
    said = "These times look like Unix times: written as ISO-8601, such as 2026-01-05T00:05:00Z, "
    return [f"{said}they have days, which are the windows of a replay."] if unix else []


def _about_names(nodes: tuple[str, ...]) -> list[str]:
    """Return which server is which node, where servers have other names than their nodes."""
    named = [f"node_{i} {name}" for i, name in enumerate(nodes) if name != f"node_{i}"]
    more = f" and {len(named) - MOST_NAMES} more" if len(named) > MOST_NAMES else ""
    return [f"Nodes: {', '.join(named[:MOST_NAMES])}{more}."] if named else []


def _about_choice(replay: Replay) -> list[str]:
    """Return a sentence where policies cannot differ, and one where windows cannot."""
    played = replay.trace.section(*replay.rows)
    neighbours = replay.settings.get("neighbours")
    links = adjacency([f"node_{i}" for i in range(len(played.nodes))], played.nodes, neighbours)
    why = no_choice(played, links)
    lines = [f"{played.name}: {why}, so that all policies serve and lose the same."] if why else []
    loads = (played.arrivals, played.capacity)
    if len(played) > 1 and all((load == load[:1]).all() for load in loads if load is not None):
        lines.append(
            "Load and capacity are the same in every step: no interval tells of other days."
        )
    return lines


def _about_rest(replay: Replay) -> str:
    if not replay.settings.get("queue"):
        return ""
    return (
        " What waits at a window's end is neither served nor lost. Requests that a node forwards "
        "do not wait."
    )


def _about_cost(replay: Replay) -> list[str]:
    """Return what cost and the share of the optimum are, where there is such a column."""
    shown = has_costs(replay) or replay.optimum_is_partial
    lines = [f"Cost: {' + '.join(_costs(replay))}, in % of the arrivals."] * shown
    if replay.optimum_windows:
        less = "cost" if has_costs(replay) else "lost"
        lines.append(
            f"Of opt.: what a policy gains (arrivals minus {less}) in % of what the optimum gains."
        )
    return lines


def _about_returns(replay: Replay) -> str:
    """Return what a reward is in this replay, and what is made of it."""
    what = " + ".join(_costs(replay))
    scale = _as_played(replay)["load_scale"]
    largest = max(1, int(replay.trace.arrivals.max()))
    said = f"; {scale:g} is the largest load of a node" if scale == largest else " (load_scale)"
    over = f"({what})" if "+" in what else what
    whose = "the team's mean of " if replay.settings.get("reward") == "team" else ""
    return (
        f"Return: the sum of a node's rewards in a window, on average; team: the sum over nodes. A "
        f"reward is minus {whose}{over} / {scale:g}{said}."
    )


def _costs(replay: Replay) -> list[str]:
    """Return what counts as cost in a replay: "lost", "0.1 forwarded", ..."""
    prices = {what: replay.settings.get(name) for name, what in COSTS.items()}
    return ["lost", *(f"{price:g} x {what}" for what, price in prices.items() if price)]


def _about_teams(replay: Replay) -> list[str]:
    """Return how policies that are no references played, and illegal actions of any."""
    lines: list[str] = []
    if replay.teams:
        lines.append("Greedy play takes the likeliest action, sampled play draws one.")
    played = _as_played(replay)
    brought: dict[str, list[str]] = {}
    for label, note in replay.teams.items():
        own = {k: v for k, v in note.settings.items() if not _same(v, played[k])}
        brought.setdefault(_words(own), []).append(label)
    for words, labels in brought.items():
        if words:
            lines.append(f"Trained with {words}, and replayed so: {'; '.join(labels)}.")
    for label, note in replay.teams.items():
        if note.own_links:
            lines.append(
                f"{label} forwards along links of its own, not the replay's: no optimum bounds it."
            )
    lines += _about_levels(replay)
    illegal = {s.policy: s.illegal_actions for s in replay.scores if s.illegal_actions}
    if illegal:
        counts = "; ".join(f"{label} {number}" for label, number in illegal.items())
        lines.append(f"Illegal actions, each of which forwarded all arrivals: {counts}.")
    return lines


def _about_levels(replay: Replay) -> list[str]:
    """Return what teams lose by forwarding in levels that are coarser than a request."""
    what = "cost" if has_costs(replay) else "lose"
    said: dict[tuple[int, str], list[str]] = {}
    for label, note in replay.teams.items():
        if note.unit == 1:
            continue
        beside = ""
        if note.on_levels is not None:
            best, cost, coarse = note.on_levels
            beside = (
                f" {best} would {what} {100 * coarse:.2f} % of the arrivals on these levels; to "
                f"the request, as references play, {100 * cost:.2f} %."
            )
        said.setdefault((note.unit, beside), []).append(label)
    return [
        f"Levels of action are up to {unit} requests apart in {'; '.join(labels)}.{beside}"
        for (unit, beside), labels in said.items()
    ]


def _words(settings: Mapping[str, Any]) -> str:
    """Return settings as "queue 5, route two", long lists by their ends."""

    def word(value: Any) -> str:
        if np.ndim(value) > 1:
            return "(a table)"
        if isinstance(value, list | tuple) and len(value) > FEW_AMOUNTS:
            first = ", ".join(map(str, value[: FEW_AMOUNTS - 2]))
            return f"[{first}, ..., {value[-1]}] ({len(value)} amounts)"
        return str(value)

    return ", ".join(f"{key} {word(value)}" for key, value in settings.items())


def _same(value: Any, other: Any) -> bool:
    """Return whether two settings are equal; tables may be lists or arrays."""
    if np.ndim(value) > 1 or np.ndim(other) > 1:
        return bool(np.array_equal(value, other))
    return bool(value == other)


def _as_played(replay: Replay) -> dict[str, Any]:
    """Return the settings that a team may bring, as they are where it brings none."""
    trace = replay.trace
    assert trace.capacity is not None  # a replay's trace has one
    defaults = inspect.signature(DfaasRules).parameters
    return {
        **{key: defaults[key].default for key in OWN},
        "load_scale": max(1, int(trace.arrivals.max())),
        "capacity_scale": max(1, int(trace.capacity.max())),
        **{key: value for key, value in replay.settings.items() if key in OWN},
    }


def _about_optimum(replay: Replay) -> str:
    if not replay.optimum_windows:
        return f"No optimum: {replay.optimum_method}."
    if replay.optimum_method == "closed form":
        best = reached_by(
            unit=1,  # of reference policies
            second_offer=replay.settings.get("second_offer", True),
            forward_cost=replay.settings.get("forward_cost", 0.0),
        )
        shown = any(s.policy.partition("/")[0] == best for s in replay.scores)
        reach = f"{best} reaches it" if shown else f"{best} would reach it"
        reach = "a bound, which no policy need reach" if best is None else reach
        return f"Optimum: closed form, over all windows; {reach}."
    queue = bool(replay.settings.get("queue"))
    waits = ", and what waits at a window's end as served" if queue else ""
    which = "all windows"
    if replay.optimum_is_partial:
        every = replay.windows + bool(replay.remainder)
        part = counted(len(replay.optimum_windows), "window")
        which = f"{part} of {every}, as are the shares of it"
    return (
        f"Optimum: {replay.optimum_method} over {which}. It knows the future: a bound, no policy. "
        f"Its row counts accepted forwards alone{waits}."
    )


def optimum_part(replay: Replay) -> str:
    """Return which windows the optimum covers, where these are not all: "1 window of 2, ..."."""
    places = ", ".join(str(k + 1) for k in replay.optimum_windows)
    every = replay.windows + bool(replay.remainder)
    count = counted(len(replay.optimum_windows), "window")
    return f"{count} of {every} (number {places})"


def counted(number: int, what: str) -> str:
    """Return "1 window", "2 windows", ..."""
    return f"{number} {what}" + ("" if number == 1 else "s")


# --- The terminal --------------------------------------------------------------------------------


def score_tables(result: Replay) -> Iterator[Table]:
    """Yield the tables of a replay, for 80 columns."""
    yield _score_table(result)
    if result.best_rule is not None:
        yield _paired_table(result)
    if result.optimum_is_partial:
        yield _optimum_table(result)
    tables = {"return per whole window": returns_table(result)}
    if len(result.trace.nodes) > 1:
        tables["lost, % of the node's arrivals"] = losses_table(result)
    if result.settings.get("queue"):
        tables["wait of served requests"] = waits_lines(ordered(result.scores))
    for what, (headings, lines) in tables.items():
        table = table_of(what, headings)
        for line in lines:
            table.add_row(*line, style=_style(result, line[0]))
        yield table


def losses_table(result: Replay) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of what share of its own arrivals each node lost."""
    scores = [score for score in ordered(result.scores) if score.policy != "optimum"]
    shares: list[Mapping[str, float]] = [
        {node: 100 * share for node, share in score.lost_by_node.items()} for score in scores
    ]
    headings, cells = returns_by_agent(shares)
    lines = [[s.policy, *own] for s, own in zip(scores, cells, strict=True)]
    return [heading.replace("\n", " ") for heading in headings], lines


def returns_table(result: Replay) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of what policies earned per whole window: team and agents."""
    scores = [score for score in ordered(result.scores) if score.policy != "optimum"]
    headings, cells = returns_by_agent([score.returns for score in scores])
    teams = [f"{score.return_team:.4g}" for score in scores]
    lines = [[s.policy, team, *own] for s, team, own in zip(scores, teams, cells, strict=True)]
    return ["team", *(heading.replace("\n", " ") for heading in headings)], lines


def _score_table(result: Replay) -> Table:
    """Return what policies served and lost over all windows; with costs, these are the main figure.
    The optimum has a row where it covers all windows, too."""
    costs = has_costs(result)
    main_figure = "cost" if costs else "served"
    headings = ["served\n%"] * costs + [f"{main_figure}\n%"]
    headings += [] if without_intervals(result) else ["95 %\ninterval"]
    headings += ["lost\n%", "forw.\n%", "wait-\ning"]
    partial = result.optimum_is_partial
    table = table_of("\npolicy", headings if partial else [*headings, "of\nopt. %"])
    for score in ordered(result.scores):
        if score.policy == "optimum":
            if partial:
                continue
            table.add_section()
        low, high = getattr(score, f"{main_figure}_low"), getattr(score, f"{main_figure}_high")
        between = "" if low is None else f"{100 * low:.2f}-{100 * high:.2f}"
        cells = [
            f"{100 * getattr(score, main_figure):.2f}",
            *([] if without_intervals(result) else [between]),
            f"{100 * score.lost:.2f}",
            f"{100 * score.forwarded:.2f}",
            f"{score.mean_waiting:.2f}",
        ]
        if not partial:
            cells.append(_percent(score.share_of_optimum))
        if costs:
            cells.insert(0, f"{100 * score.served:.2f}")
        table.add_row(score.policy, *cells, style=_style(result, score.policy))
    return _with_reason(table, result)


def _style(result: Replay, policy: str) -> str:
    """Return how a line stands out in a terminal: that of a learned team does."""
    return LEARNED if policy in result.teams else ""


def _paired_table(result: Replay) -> Table:
    """Return what policies cost, and more than the best rule in the same windows."""
    table = table_of("\npolicy", paired_headings(result))
    for policy, *cells in paired_lines(result):
        table.add_row(policy, *cells, style=_style(result, policy))
    return _with_reason(table, result)


def _with_reason(table: Table, result: Replay) -> Table:
    """Return a table that says below why it has no intervals, where it has none."""
    if without_intervals(result):
        reason = f"no intervals: fewer than {FEWEST_WINDOWS} windows"
        table.caption, table.caption_justify = reason, "left"
    return table


def _optimum_table(result: Replay) -> Table:
    """Return policies beside the optimum, in the windows that it covers."""
    heading = f"in {optimum_part(result)}"
    table = table_of(heading, ["cost %", "of opt. %"])
    for score in beside_optimum(result):
        if score.policy == "optimum":
            table.add_section()
        cells = _percent(score.cost_in_optimum_windows), _percent(score.share_of_optimum)
        table.add_row(score.policy, *cells, style=_style(result, score.policy))
    return table


def beside_optimum(result: Replay) -> list[Score]:
    """Return all scores by their cost in the windows that the optimum covers; it stands last."""

    def cost(score: Score) -> float:
        assert score.cost_in_optimum_windows is not None  # there is an optimum
        return score.cost_in_optimum_windows

    return sorted(result.scores, key=lambda score: (score.policy == "optimum", cost(score)))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"
