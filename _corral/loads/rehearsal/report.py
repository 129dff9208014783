"""The report of a rehearsal: one self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from corral.envs.core import Array
from corral.loads.rehearsal.pictures import drawn, hours_chart, kinds_of, waits_chart
from corral.loads.rehearsal.screen import between, number, percent, signed, time_text
from corral.loads.rehearsal.summary import Estimate, Summary, Units, rounded_parts
from corral.trainers.report.page import controls, note, page, table
from corral.trainers.report.plots import Bar, bar_chart, data
from corral.trainers.runs.run_config import versions

__all__ = ["page_of"]

HOW_TO_READ = """<h2>How to read this</h2>
<p>Each request is played in order of its time. <b>Lost</b> requests were served by no node.
<b>Forwarded</b> counts requests that were sent to another node, also if it refused them.
<b>Refused</b> counts offers: a request may be refused twice. <b>Cost</b> is lost + forward_cost *
forwarded + wait_cost * waiting, in lost requests. Requests that a node holds at the end of a
window are neither served nor lost. The <b>difference</b> is that of the same windows: if its
interval excludes 0, it is significant, even if the policies' own intervals overlap.
<b>Waits</b> are those of requests that entered service; a policy that loses more requests may have
shorter waits.</p>
<p>A plan (a rule or a team) is also played in the game of the replay, in which all requests of a
step come at once. The difference has three parts, in this order. <b>Times within the step</b>:
requests come one after the other, and servers take time; own requests still come before forwarded
ones. <b>Competition for spare capacity</b>: own and forwarded requests are served in order of
arrival. <b>Latency</b>: forwarded requests take time.</p>
"""


def page_of(
    title: str,
    *,
    verdict: Sequence[str],
    about: Sequence[str],
    summaries: Sequence[Summary],
    baseline: str,
    units: Units,
    waits: Mapping[str, Array],
    by_hour: Mapping[str, Mapping[str, Sequence[float | None]]],
    first_hour: str,
) -> str:
    """Return the page.

    Args:
        title: of the page.
        verdict: sentences at the top.
        about: sentences on how the rehearsal was played.
        summaries: of all policies, the cheapest first.
        baseline: the first policy.
        units: of all figures.
        waits: int64 [BINS] of each policy.
        by_hour: "p50" and "p95" of each policy, 24 waits each; empty if windows are not days.
        first_hour: label of the axis of hours.
    """
    policies = drawn(summaries, baseline)
    kinds = kinds_of(policies)
    body = [
        f"<h2>Requests {units.a_day}</h2>",
        table(*_cost_lines(summaries, baseline, units)),
        controls(),
        bar_chart(_bars(summaries), f"cost {units.a_day}, in lost requests"),
        "<h2>Waits</h2>",
        table(*_wait_lines(summaries, units)),
        *_charts(policies, kinds, units, waits, by_hour, first_hour),
        *_promises(summaries, units),
        "<h2>Knowledge of a node</h2>",
        _knowledge(summaries),
    ]
    return page(title, about, "\n".join(body), versions(), verdict=verdict, end=HOW_TO_READ)


def _knowledge(summaries: Sequence[Summary]) -> str:
    rows = "".join(
        f"<tr{data(policy=s.policy)}><td>{html.escape(s.policy)}</td><td>{html.escape(s.needs)}</td>"
        "</tr>"
        for s in summaries
    )
    return f"<div class='wide'><table class='words'>{rows}</table></div>"


def _cost_lines(
    summaries: Sequence[Summary], baseline: str, units: Units
) -> tuple[list[str], list[list[str]]]:
    headings = ["policy", "cost", f"above {baseline}", "lost", "lost %", "refused offers"]
    lines = []
    for s in summaries:
        more = "" if s.difference is None else _signed_cell(s.difference)
        cells = [_cell(s.cost), more, _cell(s.lost), percent(s.lost_share), _cell(s.refused)]
        lines.append([s.policy, *cells, _cell(s.forwarded)])
    return [*headings, "forwarded"], lines


def _cell(estimate: Estimate) -> str:
    interval = between(estimate)
    return number(estimate.mean) + (f"\n{interval}" if interval else "")


def _signed_cell(estimate: Estimate) -> str:
    interval = between(estimate, signs=True)
    return signed(estimate.mean) + (f"\n{interval}" if interval else "")


def _bars(summaries: Sequence[Summary]) -> list[Bar]:
    return [Bar(s.policy, s.cost.mean, s.cost.low, s.cost.high) for s in summaries]


def _wait_lines(summaries: Sequence[Summary], units: Units) -> tuple[list[str], list[list[str]]]:
    headings = ["policy", *(f"{name}, {units.time}" for name in ("mean", "p50", "p95", "p99"))]
    late = f"over {units.deadline:g} {units.time}, %"
    lines = [
        [
            s.policy,
            *map(time_text, (s.waits.mean, s.waits.p50, s.waits.p95, s.waits.p99)),
            percent(s.waits.late),
        ]
        for s in summaries
    ]
    return [*headings, late], lines


def _charts(
    policies: Sequence[str],
    kinds: Mapping[str, str],
    units: Units,
    waits: Mapping[str, Array],
    by_hour: Mapping[str, Mapping[str, Sequence[float | None]]],
    first_hour: str,
) -> list[str]:
    charts = []
    if len(policies) < len(waits):
        charts.append(
            note(
                f"Drawn: the first policy, the plan of least cost, and the cheapest of the rest; "
                f"{len(policies)} of {len(waits)}."
            )
        )
    for share, words in (("p95", "95 % of requests wait at most"), ("p50", "half wait at most")):
        if by_hour:
            values = {policy: by_hour[policy][share] for policy in policies}
            charts.append(hours_chart(words, values, kinds=kinds, units=units, below=first_hour))
    charts.append(waits_chart({policy: waits[policy] for policy in policies}, kinds, units))
    return charts


def _promises(summaries: Sequence[Summary], units: Units) -> list[str]:
    lines = []
    for s in summaries:
        if s.promise is not None:
            promised, difference, parts = rounded_parts(s.promise, s.cost.mean)
            interval = between(s.promise.difference, signs=True)
            more = f"{difference:+,}" + (f"\n{interval}" if interval else "")
            cells = [f"{promised:,}", *(f"{part:+,}" for part in parts), f"{round(s.cost.mean):,}"]
            lines.append([s.policy, *cells, more])
    if not lines:
        return []
    headings = ["policy", "replay", "times within the step", "competition for spare capacity"]
    headings += ["latency", "rehearsal", "difference"]
    return [
        f"<h2>Cost {units.a_day}: from the replay to the rehearsal</h2>",
        table(headings, lines),
    ]
