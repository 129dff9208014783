"""A replay in words: what was played, by whom, and the table of its scores."""

from __future__ import annotations

import inspect
from typing import Any

from rich.table import Table

from corral.envs.dfaas_v0 import DfaasRules
from corral.trainers.evaluation.tables import table_of
from corral.trainers.loads.replay import OWN, Replay
from corral.trainers.loads.scores import Score

__all__ = ["counted", "describe", "ordered", "score_table"]

FEW_WINDOWS = 10
"""With fewer windows than this, a bootstrap interval is called rough."""


def ordered(scores: list[Score]) -> list[Score]:
    """Return the policies from the least cost to the largest; the optimum, if there, at the end."""
    return sorted(scores, key=lambda score: (score.policy == "optimum", score.cost))


def describe(replay: Replay) -> list[str]:
    """Return what was played and how, in sentences."""
    trace, (low, high) = replay.trace, replay.rows
    settings = ", ".join(f"{key} {value}" for key, value in replay.settings.items())
    windows = replay.windows + bool(replay.remainder)
    played = f"{counted(replay.windows, 'window')} of {counted(replay.window, 'step')}"
    if replay.remainder:
        played += f" and one of {replay.remainder}"
    few = " (so few of them that intervals are rough)" if windows < FEW_WINDOWS else ""
    lines = [
        f"Trace {trace.name}: rows {low}:{high} of {len(trace)}, "
        f"{counted(len(trace.nodes), 'node')} "
        f"({trace.clock_text(low)} to {trace.clock_text(high - 1)}).",
        f"Played as {played}; queues and last-step information start empty in each. "
        f"95 % intervals by bootstrap over the windows{few}.",
        "Served, lost and forwarded (refused offers included) in % of the arrivals; waiting in "
        "requests per node and step.",
        f"Settings of dfaas_v0: {settings or 'default'}.",
    ]
    if replay.unit > 1:
        lines.append(
            f"An action stands for whole units of {replay.unit} requests: the load is larger than "
            "max_level. A higher max_level lets policies forward to the request."
        )
    return [*lines, *_about_teams(replay), _about_optimum(replay)]


def _about_teams(replay: Replay) -> list[str]:
    """Return how policies that are no references played, and illegal actions of any."""
    lines: list[str] = []
    if replay.teams:
        lines.append("Greedy play takes the likeliest action, sampled play draws one.")
    played = _as_played(replay)
    brought: dict[str, list[str]] = {}
    for label, note in replay.teams.items():
        own = {key: value for key, value in note.settings.items() if value != played[key]}
        words = ", ".join(f"{key} {value}" for key, value in own.items())
        brought.setdefault(words, []).append(label)
    for words, labels in brought.items():
        if words:
            lines.append(f"Trained with {words}, and replayed so: {'; '.join(labels)}.")
    for label, note in replay.teams.items():
        if note.unit != replay.unit:
            lines.append(
                f"One level of action stands for {counted(note.unit, 'request')} in {label}, "
                f"for {replay.unit} elsewhere."
            )
        if note.own_links:
            lines.append(
                f"{label} forwards along links of its own, not the replay's: no optimum bounds it."
            )
    illegal = {s.policy: s.illegal_actions for s in replay.scores if s.illegal_actions}
    if illegal:
        counts = "; ".join(f"{label} {number}" for label, number in illegal.items())
        lines.append(f"Illegal actions, each of which forwarded all arrivals: {counts}.")
    return lines


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
        exact = replay.unit == 1 and replay.settings.get("second_offer", True)
        reach = "overflow reaches it" if exact else "a bound, which no policy need reach"
        return f"Optimum: closed form, over all windows; {reach}."
    count = len(replay.optimum_windows)
    places = ", ".join(str(k + 1) for k in replay.optimum_windows)
    which = (
        "all whole windows"
        if count == replay.windows
        else f"{counted(count, 'window')} of {replay.windows} (number {places})"
    )
    return (
        f"Optimum: {replay.optimum_method} over {which}; its row, and the shares of it, are over "
        "these alone. It knows the future: a bound, no policy."
    )


def counted(number: int, what: str) -> str:
    """Return "1 window", "2 windows", ..."""
    return f"{number} {what}" + ("" if number == 1 else "s")


# --- The terminal --------------------------------------------------------------------------------


def score_table(result: Replay) -> Table:
    """Return the table of a replay, for 80 columns; with costs, they are the main figure."""
    costs = bool(result.settings.get("forward_cost") or result.settings.get("wait_cost"))
    main_figure = "cost" if costs else "served"
    headings = ["served\n%"] * costs + [f"{main_figure}\n%", "95 %\ninterval", "lost\n%"]
    table = table_of("\npolicy", [*headings, "forw.\n%", "wait-\ning", "of\nopt. %"])
    for score in ordered(result.scores):
        if score.policy == "optimum":
            table.add_section()
        low, high = getattr(score, f"{main_figure}_low"), getattr(score, f"{main_figure}_high")
        cells = [
            f"{100 * getattr(score, main_figure):.2f}",
            "" if low is None else f"{100 * low:.2f}-{100 * high:.2f}",
            f"{100 * score.lost:.2f}",
            f"{100 * score.forwarded:.2f}",
            f"{score.mean_waiting:.2f}",
            "" if score.share_of_optimum is None else f"{100 * score.share_of_optimum:.2f}",
        ]
        if costs:
            cells.insert(0, f"{100 * score.served:.2f}")
        label, some = score.policy, len(result.optimum_windows)
        if label == "optimum" and some < result.windows:
            label = f"optimum, {some} of {result.windows}"
        table.add_row(label, *cells)
    return table
