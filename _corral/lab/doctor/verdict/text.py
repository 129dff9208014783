"""Format the verdict: its first line, the table of scores, and the next steps."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corral.lab.doctor.verdict.commands import Step
from corral.lab.doctor.verdict.learning import RANDOM, THIS, UNTRAINED, Lead, Learning, Score
from corral.trainers.runs.trends import Change

__all__ = ["change_lines", "headline", "learning_lines", "step_lines"]

PARTS = 6
"""Maximum number of policies and of agents with intervals shown."""

MODES = ("greedy", "sampled")


def headline(diagnosis: Any) -> str:
    """Return the verdict of a ``Diagnosis`` in one or two sentences."""
    faults = [
        finding for finding in diagnosis.findings if finding.certainty >= 2 and not finding.follows
    ]
    learning = diagnosis.learning
    count = f"{len(faults)} faults" if len(faults) > 1 else "one fault"
    order = ", most certain first" if len(faults) > 1 else ""
    if diagnosis.verdict == "learns":
        text = f"it learns: {_why(learning)}."
        return text if not faults else f"{text} But {count} found{order}."
    if faults:
        keeps = "keep" if len(faults) > 1 else "keeps"
        if learning is None:
            return f"{count} {keeps} it from learning{order}."
        return f"it does not learn: {count} {keeps} it from learning{order}."
    if not diagnosis.looked_at:
        return "no part could be examined."
    in_part = " in the examined parts" if diagnosis.not_looked_at else ""
    if learning is None or learning.hopeless:
        return f"unknown if it learns, see below. No fault found{in_part}. Do this next:"
    if learning.too_early:
        updates = f"{learning.updates} update{'s' * (learning.updates != 1)}"
        return (
            f"it does not learn yet, and {updates} are too few to tell. No fault found{in_part}. "
            "Do this next:"
        )
    return f"it does not learn, and no fault was found{in_part}. Do this next:"


def _why(learning: Learning) -> str:
    if learning.agreement is not None:
        start, now = learning.agreement
        return f"it agrees with its teacher in {now:.0%} of decisions, {start:.0%} at the start"
    data = [data for data in learning.data if learning.learns_on(data)]
    only = f" on {data[0]} data only" if len(data) < len(learning.data) else ""
    if learning.optimal_on(data[0]):
        return f"it plays optimally, and better than random play{only}"
    modes = [
        mode
        for mode in MODES
        if all(
            (lead := learning.lead(over, mode, data[0])) and lead.better
            for over in (RANDOM, UNTRAINED)
        )
    ]
    played = f" ({modes[0]} play)" if len(modes) == 1 else ""
    alone = ", each agent alone among random players" if learning.alone else ""
    return f"it plays better than random play and than its untrained policy{only}{alone}{played}"


def step_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the next steps; commands stay on one line, so that they can be pasted."""
    for step in steps:
        yield f"  # {step.reason}"
        yield f"  {step.command}"


# --- The table -----------------------------------------------------------------------------------


def learning_lines(learning: Learning, width: int = 80) -> Iterator[str]:
    """Yield the table of scores, at most 78 columns wide, and further lines of ``width``."""
    if learning.agreement is not None:
        start, now = learning.agreement
        yield f"Agreement with the teacher: {start:.0%} at the start, {now:.0%} now."
        return
    for data in learning.data:
        scores = [score for score in learning.scores if score.data == data]
        place = f" of {data} data" if data else ""
        cut = f", cut after {learning.limit:,} steps" if learning.limit else ""
        title = f"Returns in the same {scores[0].episodes} episodes{place}{cut}"
        yield from textwrap.wrap(title, width)
        heads = f"  {'':<{NAME}}{'return':>10}{'± 2 s.e.':>12}"
        lead = f"lead of this run ({learning.level:.0%} interval)".replace("%", " %")
        yield f"{heads}  {lead}" if width >= WIDE else heads
        for score in scores:
            yield from _row(learning, score, wide=width >= WIDE)
        if data in learning.optimum:
            yield f"  {'optimum':<{NAME}}{learning.optimum[data]:>10.4g}"
        if data in learning.responses:
            yield f"  {'best response':<{NAME}}{learning.responses[data].best:>10.4g}"
        yield from textwrap.wrap(_parts(learning, data), width, **INDENTED)
    if learning.seatwise:
        yield from textwrap.wrap(SEATWISE[bool(learning.alone)], width)
    if learning.hopeless:
        yield from textwrap.wrap(
            "Against these opponents, no policy earns more than random play on average: returns "
            "cannot show if this run learns.",
            width,
        )


SEATWISE = {
    False: "The returns of all agents sum to a constant: each agent plays against random play.",
    True: "Rewards differ between agents, and the sum of all returns is not better: each agent is "
    "judged by its own return, with the other learning agents replaced by random play.",
}
"""Reasons for the table seat by seat; the key is whether the sum was judged first."""

NAME, WIDE = 20, 78
INDENTED: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "  "}


def _row(learning: Learning, score: Score, *, wide: bool) -> Iterator[str]:
    spread = "1 distinct" if score.distinct == 1 else f"{2 * score.error:.2g}"
    mode = f", {score.mode}" if score.player in (THIS, UNTRAINED) else ""
    name = f"{score.player}{mode}"
    cells = []
    for this_mode in MODES:
        if score.player == UNTRAINED and this_mode != score.mode:
            continue
        lead = learning.lead(score.player, this_mode, score.data)
        if lead is not None:
            cells.append(f"{this_mode} {_interval(lead)}")
    first = f"  {name:<{NAME}.{NAME}}{score.mean:>10.4g}{spread:>12}  "
    if not wide:
        yield first.rstrip()
        yield from (f"    lead {cell}" for cell in cells)
        return
    yield (first + (cells[0] if cells else "")).rstrip()
    for cell in cells[1:]:
        yield " " * len(first) + cell


def _interval(lead: Lead) -> str:
    if lead.low is None or lead.high is None:
        return f"{lead.mean:+.3g}"
    if lead.low == lead.high == 0:
        return "equal in all"
    if lead.low == lead.high:
        return f"{lead.low:+.3g} in all"
    return f"{lead.low:+.3g} to {lead.high:+.3g}"


def _parts(learning: Learning, data: str) -> str:
    """Return the leads of single policies and agents over the untrained policies; may be ""."""
    mode = MODES[-1] if learning.lead(UNTRAINED, MODES[-1], data) else MODES[0]
    leads = [
        lead
        for lead in learning.leads
        if (lead.over, lead.mode, lead.data) == (UNTRAINED, mode, data) and lead.of != "team"
        if (lead.low, lead.high) != (0, 0)
    ]
    if not leads:
        return ""
    texts = [f"{lead.of} {_interval(lead)}" for lead in leads[:PARTS]]
    more = f", and {len(leads) - PARTS} more" if len(leads) > PARTS else ""
    return f"lead over untrained, {mode}: {', '.join(texts)}{more}"


# --- Over the run --------------------------------------------------------------------------------


def change_lines(changes: Mapping[str, Mapping[str, Change]]) -> Iterator[str]:
    """Yield a line for each policy: its quantities that differ in the first and the last third."""
    for policy, quantities in list(changes.items())[:PARTS]:
        parts = [
            f"{name} {change.first:.4g} to {change.last:.4g} ({change.direction()})"
            for name, change in quantities.items()
            if change.first != change.last
        ]
        if parts:
            of = f", policy {policy}" if len(changes) > 1 else ""
            yield f"First to last third of the run{of}: {', '.join(parts)}."
