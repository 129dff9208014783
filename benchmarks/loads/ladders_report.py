"""The tables of ladders.py, from its lines in results/."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import save
from ladders_loads import GRID, REAL
from operators_laws import COUNT
from operators_more import OPERATORS
from teams_report import chosen_of, restricted, saving, text_of

__all__ = ["SCHEDULE", "contradictions", "quoted", "report", "savings"]

Row = dict[str, Any]
Saving = tuple[float, float | None, float | None]

SCHEDULE = "schedule"
"""The seed in lines of schedules, which are not trained."""

STEPS = ("rule", SCHEDULE, "arrivals", "reports", "future", "capacity")
HEADINGS = {
    "rule": "1 best rule",
    SCHEDULE: "schedule",
    "arrivals": "3 + arrivals",
    "reports": "4 + present spare",
    "future": "5 + the future",
    "capacity": "20 % more capacity",
}

ABOUT = """\
Savings over the rung below on the days that judge, in requests a day, with a 95 % interval; then in
points, % of the arrivals. Arrivals are unknown before rung 3. No team was trained for these tables,
so rung 3 is compared with rung 1. 0: the policy of the rung below. Three columns are compared with
rung 1: *schedule*, a rule that caps forwarding by each neighbor's usual spare at this time of day;
more capacity; and *optimum*, the most that learning can bring. NASA's days are drawn several times:
its intervals leave out each recorded day in turn, except for the optimum and for more capacity,
which take draws as independent (too narrow). (-): fewer than six days have an optimum."""


# --- One line of the results ---------------------------------------------------------------------


def savings(row: Row) -> dict[str, Saving]:
    """Return the saving of each step, in requests a day: mean, low, high; absent rungs omitted."""
    ladder = row["ladder"]
    steps = {rung["name"]: rung["saving"] for rung in ladder["rungs"]}
    steps |= {"capacity": ladder["capacity"], "optimum": ladder["beyond_rule"]}
    result = {
        name: (step["requests"], step["requests_low"], step["requests_high"])
        for name, step in steps.items()
        if step is not None
    }
    for name, values in (row["by_days"] or {}).items():
        result[name] = tuple(values)
    return result


def with_schedule(row: Row, schedules: Sequence[Row]) -> dict[str, Saving]:
    """Return the savings of a line, with that of the schedule over rung 1 if it was played."""
    result = savings(row)
    for line in schedules:
        if line["load"] == row["load"]:
            every = float(np.mean(line["loads"])) / 100
            mean, low, high = saving(line, SCHEDULE, "plain")
            result[SCHEDULE] = (every * mean, every * low, every * high)
    return result


def contradictions(row: Row) -> Iterator[tuple[str, Saving, float | None]]:
    """Yield the rungs that cost more than the rung below on the days that judge.

    Each has its saving there, and the saving on the days of the fit, both in requests a day.
    """
    found = savings(row)
    for rung in row["ladder"]["rungs"]:
        if rung["name"] in found and found[rung["name"]][0] < 0:
            yield rung["name"], found[rung["name"]], rung["saving_fitted"]


def title(name: str) -> str:
    """Return the name of a load for a reader."""
    if not name.isdigit():
        return {"nasa": "NASA's hard days"}.get(name, name)
    number = int(name)
    return f"{number}, {OPERATORS[number - COUNT].name}" if number >= COUNT else name


def cell(values: Saving | None, share: float | None = None) -> str:
    """Return a saving with its interval; ``share``: requests of a point, else in requests."""
    if values is None:
        return ""
    mean, low, high = (None if each is None else each / (share or 1.0) for each in values)
    assert mean is not None
    if mean == 0 and low == high:
        return "0"
    digits = 2 if share else 1 if abs(mean) < 10 else 0
    ends = " (-)" if low is None or high is None else f" ({low:,.{digits}f} to {high:,.{digits}f})"
    return f"{mean:,.{digits}f}{ends}"


# --- Tables --------------------------------------------------------------------------------------


def table(rows: Sequence[Row], schedules: Sequence[Row], *, points: bool) -> list[str]:
    """Return the ladders of some loads, one line for each."""
    first = "today, % of arrivals" if points else "arrivals a day | 0 today, cost"
    steps = (*STEPS, "optimum") if points else STEPS
    heads = [HEADINGS.get(name, name) for name in steps]
    lines = [f"| load | {first} | {' | '.join(heads)} |"]
    lines.append("|---|" + "--:|" * (len(steps) + (1 if points else 2)))
    for row in rows:
        found, every = with_schedule(row, schedules), row["arrivals"]
        today = row["ladder"]["rungs"][0]["cost"]
        cells = [f"{100 * today / every:.2f}"] if points else [f"{every:,.0f}", f"{today:,.0f}"]
        share = every / 100 if points else None
        cells += [cell(found.get(name), share) for name in steps]
        lines.append(f"| {title(row['load'])} | {' | '.join(cells)} |")
    return lines


def policies(rows: Sequence[Row]) -> list[str]:
    """Return the policies of the rungs, and what a load is."""
    lines = [
        "| load | nodes | settings | 1 | 3 | 4 | CPU s |",
        "|---|--:|---|---|---|---|--:|",
    ]
    for row in rows:
        rungs = {rung["name"]: rung for rung in row["ladder"]["rungs"]}
        cells = [title(row["load"]), str(row["nodes"])]
        settings = row["changes"] or ", ".join(f"{k} {v}" for k, v in row["settings"].items())
        cells.append("; ".join(text for text in (settings, row["shortened"]) if text))
        for name in ("rule", "arrivals", "reports"):
            same = name != "rule" and rungs[name]["saving_fitted"] == 0
            cells.append("the same" if same else rungs[name]["policy"])
        lines.append(f"| {' | '.join(cells)} | {row['cpu']:.0f} |")
    return lines


def higher_costs(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each rung that costs more than the rung below."""
    lines = []
    for row in rows:
        for name, (mean, low, high), fitted in contradictions(row):
            chance = low is None or high is None or high >= 0
            why = (
                "the interval contains 0, so this may be chance"
                if chance
                else "the interval excludes 0, so the days that judge differ from those of the fit"
            )
            on_fit = "" if fitted is None else f"; it saves {fitted:,.1f} on the days of the fit"
            lines.append(
                f"- {title(row['load'])}, {HEADINGS[name]}: {cell((mean, low, high))} requests a "
                f"day{on_fit}; {why}."
            )
    return lines or ["- None."]


def teams_table(rows: Sequence[Row]) -> list[str]:
    """Return the teams that were trained on loads of the grid."""
    lines = [
        "| load | seed | rule | choice in validation | validation, points | saves a day | points "
        "| CPU s |",
        "|---|--:|---|---|---|--:|--:|--:|",
    ]
    for row in sorted(rows, key=lambda row: (row["load"], row["seed"])):
        found = saving(row, "team", "rule")
        every = float(np.mean(row["loads"])) / 100
        mean, low, high = (every * value for value in found)
        lines.append(
            f"| {row['load']} | {row['seed']} | {row['rule']} | {row['play']} | "
            f"{text_of(row['validation_saves'])} | {cell((mean, low, high))} | {text_of(found)} | "
            f"{row['cpu']:.0f} |"
        )
    return lines


def quoted(rows: Sequence[Row]) -> list[Row]:
    """Return rows of teams.py for a rung 2: unknown arrivals, seed 0, the first division.

    Lines of a restricted rule are left out: they are not comparable with the best plain rule.
    """
    return [
        row
        for row in rows
        if row["load"] in REAL
        and (row["arrivals"], row["seed"], row["split"]) == ("unknown", 0, 0)
        and not restricted(row)
    ]


def quoted_table(rows: Sequence[Row]) -> list[str]:
    """Return what teams of teams.py save beyond the best plain rule on later days."""
    lines = ["| load | rule | choice in validation | saves, points |", "|---|---|---|--:|"]
    for row in sorted(quoted(rows), key=lambda row: REAL.index(row["load"])):
        found = saving(row, chosen_of(row), "plain")
        lines.append(
            f"| {title(row['load'])} | {row['plain']} | {chosen_of(row)} | {text_of(found)} |"
        )
    return lines


def report(rows: Sequence[Row], teams: Sequence[Row]) -> None:
    """Write results/ladders.md; ``teams``: rows of teams.py."""
    ladders = {row["load"]: row for row in rows if row["seed"] is None}
    grid = [ladders[name] for name in GRID if name in ladders]
    real = [ladders[name] for name in REAL if name in ladders]
    schedules = [row for row in rows if row["seed"] == SCHEDULE]
    trained = [row for row in rows if row["seed"] not in (None, SCHEDULE)]
    lines = ["# Ladders: what each step of knowledge saves", "", ABOUT, ""]
    for heading, part in (("Demo, NASA, ten operators", real), ("The grid", grid)):
        lines += [f"## {heading}", "", *table(part, schedules, points=False), ""]
        lines += table(part, schedules, points=True)
        lines += ["", "Settings and rules:", "", *policies(part), ""]
    lines += ["## Rungs that cost more than the rung below", "", *higher_costs([*real, *grid]), ""]
    lines += [
        "## Teams on the grid",
        "",
        "Trained on the days of the fit from the rule of rung 1, judged on the days that judge the",
        "ladder. Savings over the rule, paired by day, of the best checkpoint in validation.",
        "",
        *teams_table(trained),
        "",
    ]
    if quoted(teams):
        lines += [
            "## Teams of teams.py",
            "",
            "Rung 2 on 200 later days (NASA: 200 draws), other days than those of the ladder: the",
            "choice of validation, team or rule, compared with the best plain rule.",
            "",
            *quoted_table(teams),
            "",
        ]
    about = {**rows[0]["about"], "date": max(row["about"]["date"] for row in rows)}
    about["CPU seconds"] = f"{sum(row['cpu'] for row in rows):,.0f} in all"
    save("ladders", "\n".join(lines), {"rows": len(rows)}, about)
