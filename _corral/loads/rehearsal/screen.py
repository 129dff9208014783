"""Tables and sentences of a rehearsal, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from corral.data import Trace
from corral.loads.rehearsal.setting import Setting
from corral.loads.rehearsal.summary import Estimate, Summary, Units, rounded_parts
from corral.loads.text import counted
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.tables import COLUMNS, table_of

__all__ = [
    "about_arguments",
    "about_knowledge",
    "about_load",
    "about_setting",
    "about_waits",
    "about_windows",
    "cheapest",
    "cost_table",
    "number",
    "promise_lines",
    "promise_table",
    "signed",
    "time_text",
    "waits_table",
]

PART_NAMES = {
    "times": "times within the step",
    "competition": "competition for spare capacity",
    "latency": "latency",
}


# --- Numbers -------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number of requests: "1,509", "4.2"; small numbers with a digit after the point."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:,.1f}"


def signed(value: float) -> str:
    """Return a difference in requests, with its sign."""
    text = number(abs(value))
    return f"-{text}" if value < 0 and text.strip("0.") else f"+{text}"


def between(estimate: Estimate, *, signs: bool = False) -> str:
    """Return an interval as "1,258 to 1,525"; "" without one."""
    if estimate.low is None or estimate.high is None:
        return ""
    if signs and estimate.low == estimate.high == 0:
        return "the same"
    write = signed if signs else number
    return f"{write(estimate.low)} to {write(estimate.high)}"


def time_text(value: float | None) -> str:
    """Return a wait in the unit of the clock; "" for None."""
    if value is None:
        return ""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


# --- Tables --------------------------------------------------------------------------------------


def cost_table(summaries: Sequence[Summary], baseline: str, units: Units) -> Table:
    """Return the table of costs; columns that do not fit into 80 are left out, the least important
    one first."""
    has_difference = len(summaries) > 1
    has_interval = summaries[0].cost.low is not None
    columns: dict[str, list[str]] = {
        f"cost\n{units.a_day}": [number(s.cost.mean) for s in summaries]
    }
    interval = "95 %\ninterval"
    if has_difference:
        columns[f"above\n{_short(baseline, 20)}"] = [
            "" if s.difference is None else signed(s.difference.mean) for s in summaries
        ]
    if has_interval:
        columns[interval] = [
            between(s.cost) if not has_difference else _of_difference(s) for s in summaries
        ]
    lost, refused, forwarded = "lost\n%", "re-\nfused", f"forw.\n{units.a_day}"
    columns[lost] = [percent(s.lost_share) for s in summaries]
    columns[refused] = [number(s.refused.mean) for s in summaries]
    columns[forwarded] = [number(s.forwarded.mean) for s in summaries]
    columns[f"wait p95\n{units.time}"] = [time_text(s.waits.p95) for s in summaries]
    names = [s.policy for s in summaries]
    table = _filled("\npolicy", names, columns)
    for dispensable in (refused, forwarded, interval, lost):
        if _width(table) <= COLUMNS:
            break
        columns.pop(dispensable, None)
        table = _filled("\npolicy", names, columns)
    if not has_interval:
        table.caption = f"no intervals: fewer than {FEWEST_WINDOWS} windows"
        table.caption_justify = "left"
    return table


def _of_difference(summary: Summary) -> str:
    return "" if summary.difference is None else between(summary.difference, signs=True)


LONGEST = 28
"""Longest name of a policy in a table; a longer one loses its beginning."""


def _short(name: str, length: int = LONGEST) -> str:
    return name if len(name) <= length else f"…{name[1 - length :]}"


def waits_table(summaries: Sequence[Summary], units: Units) -> Table:
    """Return the table of waits of the requests that entered service."""
    late = f"over {time_text(units.deadline)}\n{units.time}, %"
    columns = {
        f"mean\n{units.time}": [time_text(s.waits.mean) for s in summaries],
        f"p50\n{units.time}": [time_text(s.waits.p50) for s in summaries],
        f"p95\n{units.time}": [time_text(s.waits.p95) for s in summaries],
        f"p99\n{units.time}": [time_text(s.waits.p99) for s in summaries],
        late: [percent(s.waits.late) for s in summaries],
    }
    return _filled("wait before\nservice", [s.policy for s in summaries], columns)


def promise_table(summaries: Sequence[Summary], units: Units) -> Table:
    """Return the table of plans: the cost in a replay, and the parts up to the rehearsal."""
    names, rows = [], []
    for summary in summaries:
        if summary.promise is not None:
            promised, _, parts = rounded_parts(summary.promise, summary.cost.mean)
            names.append(summary.policy)
            costs = [f"{promised:,}", *(f"{part:+,}" for part in parts)]
            rows.append([*costs, f"{round(summary.cost.mean):,}"])
    headings = [
        f"replay\n{units.a_day}",
        "times in\nthe step",
        "compe-\ntition",
        "\nlatency",
        f"rehearsal\n{units.a_day}",
    ]
    columns = dict(zip(headings, map(list, zip(*rows, strict=True)), strict=True))
    title = "cost of a plan,\nfrom the replay on"
    table = _filled(title, names, columns)
    excess = _width(table) - COLUMNS
    return _filled(title, names, columns, LONGEST - excess) if excess > 0 else table


def _filled(
    names: str, policies: Sequence[str], columns: Mapping[str, Sequence[str]], length: int = LONGEST
) -> Table:
    """Return a table; names of policies have at most ``length`` characters."""
    table = table_of(names, columns)
    for row, policy in enumerate(policies):
        table.add_row(_short(policy, length), *(cells[row] for cells in columns.values()))
    return table


def _width(table: Table) -> int:
    return Console(width=1000, markup=False, emoji=False).measure(table).maximum


# --- Sentences -----------------------------------------------------------------------------------


def about_load(trace: Trace, low: int, high: int, requests: int) -> str:
    nodes = counted(len(trace.nodes), "node")
    times = f"{trace.clock_text(low)} to {trace.clock_text(high - 1)}"
    return (
        f"Load {trace.name}: rows {low}:{high} of {len(trace)}, {nodes} ({times}), "
        f"{requests:,} requests played."
    )


def about_windows(windows: Sequence[int], window: int, steps: int, units: Units) -> str:
    """Return a sentence on the windows, and on the rows that fill none."""
    whole, unit = steps // window, units.a_day.removeprefix("a ")
    number_of = counted(len(windows), unit)
    played = number_of if len(windows) == whole else f"{len(windows)} of {counted(whole, unit)}"
    rest = steps - whole * window
    skipped = f" The last {counted(rest, 'step')} fill no {unit} and are not played." * bool(rest)
    if len(windows) < FEWEST_WINDOWS:
        intervals = f"No intervals: they need {FEWEST_WINDOWS} {unit}s."
    else:
        kinds = ", compared by weekday" if units.season > 1 and len(windows) >= 14 else ""
        intervals = f"95 %: Student's t intervals over {number_of}{kinds}."
    return (
        f"Played: {played} of {counted(window, 'step')}; each begins without requests.{skipped} "
        f"{intervals}"
    )


WORKS = {
    "deterministic": "each request has work 1",
    "exponential": "exponential work of mean 1",
    "sizes": "sizes of the request log",
}
TIMES = {
    "uniform": "uniform within a step",
    "poisson": "of a Poisson process in each step",
    "log": "those of the request log",
}


def about_setting(setting: Setting, units: Units, *, work: str, times: str, seed: int) -> str:
    """Return sentences on service, times, latency and reports; ``work`` and ``times`` are keys of
    the tables above."""
    if setting.service == "step":
        return (
            f"Service: step. A node serves its capacity at the end of each step, as in a replay. "
            f"Seed {seed}."
        )
    servers = f"{counted(setting.servers, 'server')} per node"
    parts = [f"Service: {servers}, {WORKS[work]}."]
    if setting.places is not None:
        parts.append(f"Waiting places: {setting.places} per node.")
    parts.append(f"Times of requests: {TIMES[times]}; seed {seed}.")
    parts.append(f"Latency of a forwarded request: {_time(setting.latency, units)}.")
    if setting.report_period:
        parts.append(
            f"Backlogs are reported every {_time(setting.report_period, units)}, and are "
            f"{_time(setting.report_age, units)} old on arrival."
        )
    else:
        parts.append("Balancers know the backlogs of the moment.")
    return " ".join(parts)


def _time(value: float, units: Units) -> str:
    return f"{value:g} {units.time if units.time == 's' or value != 1 else 'step'}"


def about_arguments(settings: Mapping[str, Any]) -> list[str]:
    shown = {k: v for k, v in settings.items() if k not in ("trace", "arrivals")}
    words = ", ".join(f"{key}={value}" for key, value in shown.items())
    cost = "Cost: lost + forward_cost x forwarded + wait_cost x waiting, in lost requests."
    return [f"{cost} Settings: {words or 'default'}."]


def about_waits(units: Units) -> str:
    return (
        f"Waits: from the arrival of a request to the beginning of its service, in {units.time}; "
        f"deadline {units.deadline:g} {units.time}. Lost requests have none. Refused counts "
        "offers of forwarded requests."
    )


def about_knowledge(needs: Mapping[str, str]) -> list[str]:
    """Return one line for each kind of knowledge, with the policies that need it."""
    policies: dict[str, list[str]] = {}
    for policy, need in needs.items():
        policies.setdefault(need, []).append(policy)
    return [f"Needs {need}: {', '.join(names)}." for need, names in policies.items()]


def cheapest(summaries: Sequence[Summary], baseline: str, units: Units) -> list[str]:
    """Return a sentence on the policy of least cost, compared with the baseline, and one on its
    knowledge; nothing for a single policy."""
    if len(summaries) == 1:
        return []
    if summaries[0].cost.mean == summaries[-1].cost.mean:
        return [same_costs(summaries, baseline, units)]
    best, second = summaries[:2]
    other = second if best.difference is None else best
    assert other.difference is not None  # only the first policy has none
    less = abs(other.difference.mean)
    ends = [end for end in (other.difference.low, other.difference.high) if end is not None]
    if best is other:
        ends = [-end for end in reversed(ends)]
    interval = f" (95 %: {number(ends[0])} to {number(ends[1])})" if ends else ""
    compared = second.policy if best.difference is None else baseline
    sentences = [
        f"{best.policy} costs least: {number(best.cost.mean)} {units.a_day}, {number(less)} less "
        f"than {compared}{interval}. A node needs {best.needs}."
    ]
    (versus,) = [summary for summary in summaries if summary.policy == compared]
    return sentences + waits_lines(best, versus, units)


def waits_lines(best: Summary, other: Summary, units: Units) -> list[str]:
    """Return a sentence on the waits of two policies; nothing if no request was served."""
    if best.waits.mean is None or other.waits.mean is None:
        return []
    assert best.waits.late is not None
    assert other.waits.late is not None
    return [
        f"Its requests wait {time_text(best.waits.mean)} {units.time} on average, "
        f"{time_text(other.waits.mean)} with {other.policy}. Longer than "
        f"{units.deadline:g} {units.time} wait {100 * best.waits.late:.3g} % and "
        f"{100 * other.waits.late:.3g} %."
    ]


def same_costs(summaries: Sequence[Summary], baseline: str, units: Units) -> str:
    """Return a sentence on policies of equal cost: the one with the shortest mean wait."""
    text = f"All policies cost the same: {number(summaries[0].cost.mean)} {units.a_day}."
    served = {s.policy: s for s in summaries if s.waits.mean is not None}
    if baseline not in served:
        return text
    best = min(served.values(), key=lambda summary: summary.waits.mean or 0.0)
    if best.policy == baseline:
        return f"{text} {baseline} has the shortest mean wait."
    (waits,) = waits_lines(best, served[baseline], units)
    return f"{text} {best.policy} has the shortest mean wait; a node needs {best.needs}. {waits}"


def promise_lines(summaries: Sequence[Summary], units: Units) -> list[str]:
    """Return a sentence on the plan that costs most above its promise; nothing without plans."""
    plans = [summary for summary in summaries if summary.promise is not None]
    if not plans:
        return []

    def excess(summary: Summary) -> float:
        assert summary.promise is not None
        return summary.promise.difference.mean

    plan = max(plans, key=excess)
    assert plan.promise is not None
    _, difference, parts = rounded_parts(plan.promise, plan.cost.mean)
    compared = f"{abs(difference):,} {'more' if difference >= 0 else 'less'} than"
    named = [f"{part:+,} {name}" for part, name in zip(parts, PART_NAMES.values(), strict=True)]
    return [
        f"{plan.policy} costs {round(plan.cost.mean):,} {units.a_day}, {compared} the replay "
        f"promises: {', '.join(named)}."
    ]
