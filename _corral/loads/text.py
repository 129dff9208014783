"""A replay as text: sentences about the settings, and the tables of scores."""

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
    "about_exceeding",
    "about_knowledge",
    "compared_with_optimum",
    "counted",
    "describe",
    "losses_table",
    "optimum_part",
    "ordered",
    "returns_table",
    "score_tables",
]

UNIX = 10**9
"""Integers from here on look like seconds since 1970: this is the year 2001."""

MAX_NAMES = 12
"""At most this many node names are listed."""

FEW_AMOUNTS = 6
"""Lists of up to this many entries are written out."""


def describe(replay: Replay, *, agents: bool = True) -> list[str]:
    """Return sentences about the trace, the policies and the meaning of the figures.

    ``agents``: also the names of agents, and the meaning of their returns.
    """
    trace, (low, high) = replay.trace, replay.rows
    settings = _words(replay.settings)
    windows = replay.windows + bool(replay.remainder)
    played = f"{counted(replay.windows, 'window')} of {counted(replay.window, 'step')}"
    if replay.remainder:
        played += f" and one of {replay.remainder}"
    intervals = without_intervals(replay)
    if not intervals:
        kinds = ", compared by weekday" if replay.days and windows >= 14 else ""
        intervals = f"95 %: Student's t intervals over {counted(windows, 'window')}{kinds}."
    lines = [
        f"Trace {trace.name}: rows {low}:{high} of {len(trace)}, "
        f"{counted(len(trace.nodes), 'node')} "
        f"({trace.clock_text(low)} to {trace.clock_text(high - 1)}).",
        *about_clock(trace),
        *(_about_names(trace.nodes) if agents else []),
        f"Played as {played}; each starts with empty queues and without reports. {intervals}",
        about_knowledge(replay.settings),
        "Served, lost and forwarded (with refused offers) in % of the arrivals; waiting in "
        f"requests per node and step.{_about_rest(replay)}",
        *_about_cost(replay),
        *about_best_rule(replay),
        *([_about_returns(replay)] if agents else []),
        f"Settings of dfaas_v0: {settings or 'default'}.",
    ]
    return [*lines, *_about_choice(replay), *_about_teams(replay), _about_optimum(replay)]


def about_knowledge(settings: Mapping[str, Any]) -> str:
    """Return a sentence on whether nodes knew a step's arrivals before the step."""
    if settings.get("arrivals", "known") == "unknown":
        return (
            "Arrivals: unknown until the end of a step, as for a gateway. Rules count requests as "
            "they arrive."
        )
    return "Arrivals: known to each node before a step, unlike in a real gateway."


def about_clock(trace: Trace) -> list[str]:
    """Return a hint if the trace's integer times look like seconds since 1970."""
    unix = trace.clock == "integer" and trace.times[0] >= UNIX
    advice = "These times look like Unix times. Write them as ISO-8601 (2026-01-05T00:05:00Z): "
    return [f"{advice}the replay then uses days as windows."] if unix else []


def _about_names(nodes: tuple[str, ...]) -> list[str]:
    """Return the mapping of nodes to server names, if they differ."""
    named = [f"node_{i} {name}" for i, name in enumerate(nodes) if name != f"node_{i}"]
    more = f" and {len(named) - MAX_NAMES} more" if len(named) > MAX_NAMES else ""
    return [f"Nodes: {', '.join(named[:MAX_NAMES])}{more}."] if named else []


def _about_choice(replay: Replay) -> list[str]:
    """Return a sentence if all policies must do the same, and one if all steps are equal."""
    played = replay.trace.section(*replay.rows)
    neighbours = replay.settings.get("neighbours")
    links = adjacency([f"node_{i}" for i in range(len(played.nodes))], played.nodes, neighbours)
    reason = no_choice(played, links)
    lines = [f"{played.name}: {reason}, so all policies serve and lose the same."] if reason else []
    loads = (played.arrivals, played.capacity)
    if len(played) > 1 and all((load == load[:1]).all() for load in loads if load is not None):
        lines.append(
            "Load and capacity are equal in all steps: an interval says nothing about other days."
        )
    return lines


def _about_rest(replay: Replay) -> str:
    if not replay.settings.get("queue"):
        return ""
    return (
        " Requests waiting at a window's end are neither served nor lost. Forwarded requests do "
        "not wait."
    )


def _about_cost(replay: Replay) -> list[str]:
    """Return sentences about the columns for cost and share of the optimum, if they are shown."""
    shown = has_costs(replay) or replay.optimum_is_partial
    lines = [f"Cost: {' + '.join(_costs(replay))}, in % of the arrivals."] * shown
    if replay.optimum_windows:
        less = "cost" if has_costs(replay) else "lost"
        lines.append(
            f"Of opt.: gain of a policy (arrivals minus {less}) in % of the optimum's gain."
        )
    return lines


def _about_returns(replay: Replay) -> str:
    """Return a sentence about the rewards and returns in this replay."""
    cost = " + ".join(_costs(replay))
    scale = _as_played(replay)["load_scale"]
    largest = max(1, int(replay.trace.arrivals.max()))
    scale_note = (
        f"; {scale:g} is the largest load of a node" if scale == largest else " (load_scale)"
    )
    over = f"({cost})" if "+" in cost else cost
    team_mean = "the team's mean of " if replay.settings.get("reward") == "team" else ""
    return (
        "Return: the mean over windows of the sum of a node's rewards; team: the sum over nodes. A "
        f"reward is minus {team_mean}{over} / {scale:g}{scale_note}."
    )


def _costs(replay: Replay) -> list[str]:
    """Return the parts of a cost: "lost", "0.1 x forwarded", ..."""
    prices = {what: replay.settings.get(name) for name, what in COSTS.items()}
    return ["lost", *(f"{price:g} x {what}" for what, price in prices.items() if price)]


def _about_teams(replay: Replay) -> list[str]:
    """Return how teams and user policies played, and the illegal actions of all policies."""
    lines: list[str] = []
    if replay.teams:
        lines.append("Greedy play takes the most likely action; sampled play draws one.")
    played = _as_played(replay)
    brought: dict[str, list[str]] = {}
    for label, note in replay.teams.items():
        differing = {k: v for k, v in note.settings.items() if not _same(v, played[k])}
        brought.setdefault(_words(differing), []).append(label)
    for words, labels in brought.items():
        if words:
            lines.append(f"Trained with {words}, and replayed with it: {'; '.join(labels)}.")
    for label, note in replay.teams.items():
        if note.own_links:
            lines.append(
                f"{label} forwards along other links than the replay's: no optimum bounds it."
            )
    lines += _about_levels(replay)
    lines += _about_scales(replay)
    illegal = {s.policy: s.illegal_actions for s in replay.scores if s.illegal_actions}
    if illegal:
        counts = "; ".join(f"{label} {number}" for label, number in illegal.items())
        lines.append(f"Illegal actions, which forwarded all arrivals: {counts}.")
    return lines


def _about_levels(replay: Replay) -> list[str]:
    """Return the loss of teams from action levels that are coarser than a request."""
    what = "cost" if has_costs(replay) else "lose"
    lines_of: dict[tuple[int, str], list[str]] = {}
    for label, note in replay.teams.items():
        if note.unit == 1:
            continue
        reference = ""
        if note.on_levels is not None:
            best, cost, coarse = note.on_levels
            reference = (
                f" With these levels {best} would {what} {100 * coarse:.2f} % of the arrivals; "
                f"forwarding to the request, as the rules do, {100 * cost:.2f} %."
            )
        lines_of.setdefault((note.unit, reference), []).append(label)
    return [
        f"Action levels are up to {unit} requests apart in {'; '.join(labels)}.{reference}"
        for (unit, reference), labels in lines_of.items()
    ]


def _about_scales(replay: Replay) -> list[str]:
    """Return the number of steps in which teams observed numbers above their scales."""
    low, high = replay.rows
    labels_of: dict[tuple[str | None, int], list[str]] = {}
    for label, note in replay.teams.items():
        if note.exceeding:
            labels_of.setdefault((note.beyond, note.exceeding), []).append(label)
    return [
        f"{'; '.join(labels)}: {about_exceeding(beyond, exceeding, high - low)}"
        for (beyond, exceeding), labels in labels_of.items()
    ]


def about_exceeding(beyond: str | None, exceeding: int, steps: int) -> str:
    """Return a sentence on the steps with numbers above the scales of a team."""
    played = "all nodes followed the rule" if beyond == "rule" else "observations were limited to 1"
    verb = "has" if exceeding == 1 else "have"
    return f"{exceeding:,} of {steps:,} steps {verb} a number above its scale; there {played}."


def _words(settings: Mapping[str, Any]) -> str:
    """Return settings as "queue 5, route two"; long lists are shortened."""

    def word(value: Any) -> str:
        if np.ndim(value) > 1:
            return "(a table)"
        if isinstance(value, list | tuple) and len(value) > FEW_AMOUNTS:
            first = ", ".join(map(str, value[: FEW_AMOUNTS - 2]))
            return f"[{first}, ..., {value[-1]}] ({len(value)} amounts)"
        return str(value)

    return ", ".join(f"{key} {word(value)}" for key, value in settings.items())


def _same(value: Any, other: Any) -> bool:
    """Whether two settings are equal; tables may be lists or arrays."""
    if np.ndim(value) > 1 or np.ndim(other) > 1:
        return bool(np.array_equal(value, other))
    return bool(value == other)


def _as_played(replay: Replay) -> dict[str, Any]:
    """Return the settings of the replay that a team may override, with their defaults."""
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
        reach = "a bound that policies may not reach" if best is None else reach
        return f"Optimum: closed form, over all windows; {reach}."
    queue = bool(replay.settings.get("queue"))
    waits = ", and requests waiting at a window's end as served" if queue else ""
    covered = "all windows"
    if replay.optimum_is_partial:
        total = replay.windows + bool(replay.remainder)
        part = counted(len(replay.optimum_windows), "window")
        covered = f"{part} of {total}, and so are the shares of the optimum"
    return (
        f"Optimum: {replay.optimum_method} over {covered}. It knows the future: a bound, not a "
        f"policy. Its row counts only accepted forwards{waits}."
    )


def optimum_part(replay: Replay) -> str:
    """Return the windows of a partial optimum: "1 window of 2 (number 1)"."""
    places = ", ".join(str(k + 1) for k in replay.optimum_windows)
    total = replay.windows + bool(replay.remainder)
    count = counted(len(replay.optimum_windows), "window")
    return f"{count} of {total} (number {places})"


def counted(number: int, what: str) -> str:
    """Return "1 window", "2,000 windows", ..."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


# --- The terminal --------------------------------------------------------------------------------


def score_tables(result: Replay) -> Iterator[Table]:
    """Yield the tables of a replay, at most 80 columns wide."""
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
    """Return headings and lines: the lost share of each node's own arrivals."""
    scores = [score for score in ordered(result.scores) if score.policy != "optimum"]
    shares: list[Mapping[str, float]] = [
        dict(zip(result.trace.nodes, (100 * s for s in score.lost_by_node.values()), strict=True))
        for score in scores
    ]
    headings, cells = returns_by_agent(shares)
    lines = [[s.policy, *row] for s, row in zip(scores, cells, strict=True)]
    return [heading.replace("\n", " ") for heading in headings], lines


def returns_table(result: Replay) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines: the return of team and agents per whole window."""
    scores = [score for score in ordered(result.scores) if score.policy != "optimum"]
    headings, cells = returns_by_agent([score.returns for score in scores])
    teams = [f"{score.return_team:.4g}" for score in scores]
    lines = [[s.policy, team, *row] for s, team, row in zip(scores, teams, cells, strict=True)]
    return ["team", *(heading.replace("\n", " ") for heading in headings)], lines


def _score_table(result: Replay) -> Table:
    """Return the table of served and lost requests over all windows. With costs, the cost is the
    main figure. The optimum has a row if it covers all windows."""
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
    """Return the style of a line in a terminal: lines of learned teams stand out."""
    return LEARNED if policy in result.teams else ""


def _paired_table(result: Replay) -> Table:
    """Return the table of costs, and of the differences to the best rule in the same windows."""
    table = table_of("\npolicy", paired_headings(result))
    for policy, *cells in paired_lines(result):
        table.add_row(policy, *cells, style=_style(result, policy))
    return _with_reason(table, result)


def _with_reason(table: Table, result: Replay) -> Table:
    """Add the reason for missing intervals below the table, if they are missing."""
    if without_intervals(result):
        reason = f"no intervals: fewer than {FEWEST_WINDOWS} windows"
        table.caption, table.caption_justify = reason, "left"
    return table


def _optimum_table(result: Replay) -> Table:
    """Return the table of policies and optimum in the windows that the optimum covers."""
    heading = f"in {optimum_part(result)}"
    table = table_of(heading, ["cost %", "of opt. %"])
    for score in compared_with_optimum(result):
        if score.policy == "optimum":
            table.add_section()
        cells = _percent(score.cost_in_optimum_windows), _percent(score.share_of_optimum)
        table.add_row(score.policy, *cells, style=_style(result, score.policy))
    return table


def compared_with_optimum(result: Replay) -> list[Score]:
    """Return all scores by their cost in the windows that the optimum covers; the optimum last."""

    def cost(score: Score) -> float:
        assert score.cost_in_optimum_windows is not None  # there is an optimum
        return score.cost_in_optimum_windows

    return sorted(result.scores, key=lambda score: (score.policy == "optimum", cost(score)))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"
