"""The report of an advice: one self-contained HTML page that opens with its first screen."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

from corral.files import write_file
from corral.loads.advise.advice import LADDER, Advice
from corral.loads.advise.screen import Screen, losses_of, screen_of
from corral.loads.ladder.picture import picture_of
from corral.loads.plots import TimeAxis, course_data, node_chart
from corral.loads.replay import binned
from corral.loads.report import (
    about_teams,
    course,
    evaluation_of,
    how_to_read,
    losses_by_node,
    ranking,
)
from corral.loads.text import describe
from corral.trainers.report.page import folded, learning_section, note, page, table
from corral.trainers.report.plots import LearningCurve
from corral.trainers.runs.run_config import versions

__all__ = ["written"]

OPTION = re.compile(r"--[a-z-]+")

MAX_NAMES = 8
"""At most this many names of nodes are in the title of a chart."""

HEADINGS = {"post_mortem": "The costliest day", "rule_of_thumb": "A rule of thumb"}

LEARNING = "The team's return per episode during training, in episodes of the training rows."


def written(advice: Advice) -> Advice:
    """Write the report, the results and advice.json; return the advice. Raises OSError, FileError.

    results.json and results.csv hold the held-out days with a team, else all days.
    """
    replay = advice.replay if advice.team is None else advice.team.replay
    write_file(advice.folder / "report.html", _page(advice), folder=advice.folder)
    evaluation_of(replay, advice.notes).write(advice.folder)
    advice.write()
    return advice


def _page(advice: Advice) -> str:
    screen = screen_of(advice)
    cards = {
        "What it saves": screen.saves,
        "What it asks": screen.asks,
        "In NGINX, HAProxy and Envoy": screen.directive,
        "20 % more capacity": screen.capacity,
        "A learned team": screen.team,
    }
    boxes = "".join(
        f"<section><h2>{heading}</h2><p>{_text(text)}</p></section>"
        for heading, text in cards.items()
        if text
    )
    commands = [f"{command}  # {why}" for command, why in screen.commands]
    commands = [f"{screen.call}  # this advice", "", *commands]
    body = f"""<h2>Load and loss over time</h2>
{_picture(advice, screen)}<div class='cards'>{boxes}</div>
<h2>Policies</h2>
{note(f"{screen.about_rows()}.")}{_policies(screen)}{"".join(map(note, screen.notes))}
<h2>Next</h2>
{_commands(commands)}
{"".join(folded(heading, content) for heading, content in _more(advice))}"""
    name = advice.replay.trace.name
    notes = [*describe(advice.replay, agents=False), *advice.notes]
    notes += [f"Not considered: {line}" for line in advice.not_considered]
    return page(
        f"Advice for {name}",
        list(dict.fromkeys(notes)),
        body,
        versions(),
        verdict=[screen.run],
        end=how_to_read(),
    )


def _policies(screen: Screen) -> str:
    """Return the table of the policies that matter. The advised one stands out."""
    policy, _, *headings = (heading.replace("\n", " ") for heading in screen.headings())
    names = [f"{row.policy}\n{row.role}" if row.role else row.policy for row in screen.rows]
    lines = [[name, *cells[2:]] for name, cells in zip(names, screen.cells(), strict=True)]
    kinds = {f"{screen.advised.policy}\n{screen.advised.role}": "team"}
    return table([policy, *headings], lines, kinds=kinds, policies=False)


def _picture(advice: Advice, screen: Screen) -> str:
    """Return the load of all nodes together, with the losses of today's and the advised policy."""
    trace, today = advice.replay.trace, advice.chosen.today
    rows = {row.policy: row for row in screen.rows}
    losses = losses_of(advice, list(dict.fromkeys([today, screen.advised.policy])))
    assert trace.capacity is not None  # a replay's trace has one
    low, high = losses.rows
    load, capacity = (
        binned(values[low:high].sum(axis=1, keepdims=True), losses.width)[:, 0]
        for values in (trace.arrivals, trace.capacity)
    )
    names = {
        label: f"{label} ({rows[label].role}), {rows[label].lost:,.0f} {screen.unit}"
        for label in losses.lost
    }
    title = _together(trace.nodes)
    axis = TimeAxis.of(trace, losses.rows, losses.width, advice.replay.window)
    chart = node_chart(
        title,
        axis,
        arrivals=load,
        capacity=capacity,
        losses={names[label]: lost for label, lost in losses.lost.items()},
    )
    kept = course_data(axis, {title: [load, capacity, *losses.lost.values()]})
    part = ""
    if losses.played < losses.whole:
        part = note(f"Losses on {screen.days}; the other ones show none.")
    return f"<div class='course'>{part}{chart}<div class='zoomer'></div>{kept}</div>"


def _together(nodes: Sequence[str]) -> str:
    """Return the title of a chart of all nodes."""
    more = f" and {len(nodes) - MAX_NAMES} more" if len(nodes) > MAX_NAMES else ""
    names = f"{', '.join(nodes[:MAX_NAMES])}{more}"
    return names if len(nodes) == 1 else f"All {len(nodes)} servers: {names}"


def _code(lines: Sequence[str]) -> str:
    text = html.escape("\n".join(lines))
    return f"<div class='wide'><pre>{text}</pre></div>"


def _commands(lines: Sequence[str]) -> str:
    """Return commands as HTML that wraps between words, and never inside an option."""
    text = OPTION.sub(r"<span>\g<0></span>", html.escape("\n".join(lines)))
    return f"<div class='wide'><pre class='commands'>{text}</pre></div>"


def _text(sentences: str) -> str:
    """Return sentences as HTML, in which options and percentages are not broken."""
    return OPTION.sub(r"<code>\g<0></code>", html.escape(sentences).replace(" %", "&nbsp;%"))


def _more(advice: Advice) -> Iterator[tuple[str, str]]:
    """Yield the headings and the HTML of all further sections."""
    yield "The verdict in full, with pseudo-code", "".join(_verdict(advice))
    if advice.what_ifs:
        lines = [line for change in advice.what_ifs for line in change.lines()]
        yield "What if", "".join(f"<p>{_text(line)}</p>" for line in lines)
    played = advice.replay if advice.team is None else advice.team.replay
    yield "Each server over time, in the replay", course(played) + losses_by_node(played)
    if advice.ladder is not None:
        yield LADDER, picture_of(advice.ladder)
    yield "All rules, on all days, in the replay", ranking(advice.replay)
    if advice.rehearsed is not None:
        yield "Promise and rehearsal", _code(advice.rehearsed.lines())
    for name, part in advice.more.items():
        yield HEADINGS[name], _code(part.lines())
    yield from _learned(advice)


def _verdict(advice: Advice) -> Iterator[str]:
    for place, sentence in enumerate(advice.verdict):
        yield f"<p>{_text(sentence)}</p>"
        code = advice.code_below(place)
        yield _code(code) if code else ""


def _learned(advice: Advice) -> Iterator[tuple[str, str]]:
    team = advice.team
    if team is None:
        return
    from corral.loads.judge import learning_curves
    from corral.loads.policy_picture import team_pictures

    curves = learning_curves({"team": team.run})
    rules: Any = team.run.config.env_config.rules(reward_fn=None)
    pictures = team_pictures(rules, team.run.policies, label="team")
    yield "The learned team", _curves(curves) + about_teams(team.replay, pictures)


def _curves(curves: Sequence[LearningCurve]) -> str:
    return learning_section(curves, {}, LEARNING)
