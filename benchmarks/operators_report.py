"""The tables of operators.py, from its lines in results/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from common import save
from operators_laws import COUNT, FRESH_DAYS

from corral.trainers.evaluation.intervals import difference_interval

WORSE = 0.1
"""Points that the recommendation may cost more than the best rule."""

Row = dict[str, Any]


def report(rows: Sequence[Row], missing: Sequence[int]) -> None:
    """Print the table of the recommendations, and keep it."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: int(row["operator"]))
    lines = [
        f"# {COUNT} operators: what is recommended, on {FRESH_DAYS} fresh days",
        "",
        "Costs in points (% of arrivals). *best rule*: the one of least cost on the fresh days, "
        "which nobody can know before; *rule of the history*: the best one on the training days. "
        "Differences are the recommendation's, day by day, with their 95 % intervals.",
        "",
        "| | servers | load | days | recommended | costs | best rule | costs | minus best rule "
        "| minus rule of the history |",
        "|--:|--:|--:|--:|---|--:|---|--:|--:|--:|",
    ]
    lines += [_line(row) for row in rows]
    lines += ["", *summary(rows)]
    if missing:
        lines += ["", f"Not played yet: {', '.join(map(str, missing))}."]
    minutes = sorted({row["minutes"] for row in rows})
    about = {**rows[0]["about"], "minutes": " and ".join(f"{each:g}" for each in minutes)}
    save("operators", "\n".join(lines), {"rows": [_figures(row) for row in rows]}, about)


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the sentences below the table."""
    over = [row for row in rows if difference(row, "best_rule")[0] > WORSE]
    teams = [row for row in rows if row["recommended"] == "team"]
    wrong = [row for row in teams if difference(row, "best_rule")[0] > 0]
    lines = [
        f"The recommendation costs at most {WORSE} points more than the best rule there: "
        f"{len(rows) - len(over)} of {len(rows)}{_named('not ', over)}."
    ]
    if not teams:
        return [*lines, "A team is recommended nowhere."]
    won = [-difference(row, "history_rule")[0] for row in teams]
    sure = [row for row in teams if difference(row, "history_rule")[2] < 0]
    lines.append(
        f"A team is recommended for {len(teams)}: it costs {np.mean(won):.2f} points less than the "
        f"rule of the history on average ({min(won):+.2f} to {max(won):+.2f}; the interval lies "
        f"on the team's side for {len(sure)}), and more than the best rule there for "
        f"{len(wrong)}{_named('', wrong)}."
    )
    return lines


def difference(row: Row, other: str) -> tuple[float, float, float]:
    """Return what the recommendation costs more than ``other`` ("best_rule", "history_rule") on the
    same days, in points, and the ends of its interval."""
    load = np.array(row["arrivals"], dtype=np.float64)
    more = np.array(row["daily"]["recommended"]) - np.array(row["daily"][other])
    low, high = difference_interval(more, load)
    return 100 * float(more.sum() / load.sum()), 100 * (low or 0.0), 100 * (high or 0.0)


def _line(row: Row) -> str:
    law = row["law"]
    cells = [str(row["operator"]), *_law(law), row["recommended"], _points(row, "recommended")]
    cells += [row["best_rule"], _points(row, "best_rule")]
    cells += [_interval(difference(row, other)) for other in ("best_rule", "history_rule")]
    return f"| {' | '.join(cells)} |"


def _law(law: Row) -> list[str]:
    return [str(law["nodes"]), f"{law['mean']:,.0f} in {law['step']} s", str(law["history_days"])]


def _interval(found: tuple[float, float, float]) -> str:
    middle, low, high = found
    return "0" if low == high == 0 else f"{middle:+.2f} ({low:+.2f} to {high:+.2f})"


def _points(row: Row, what: str) -> str:
    return f"{100 * sum(row['daily'][what]) / sum(row['arrivals']):.2f}"


def _figures(row: Row) -> Row:
    """Return a line's figures without those of single days."""
    left_out = ("daily", "arrivals", "about", "law")
    more = {f"minus_{other}": difference(row, other) for other in ("best_rule", "history_rule")}
    return {**{key: value for key, value in row.items() if key not in left_out}, **more}


def _named(word: str, rows: Sequence[Row]) -> str:
    return f" ({word}{', '.join(str(row['operator']) for row in rows)})" if rows else ""


# --- Rules alone ---------------------------------------------------------------------------------


def report_rules(rows: Sequence[Row]) -> None:
    """Print what the rules cost and what there is to win, and keep it."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: int(row["operator"]))
    lines = [
        f"# {COUNT} operators: what rules cost on {FRESH_DAYS} fresh days",
        "",
        "Costs in points (% of arrivals). The optimum knows the future, and is that of a few of "
        "the days; *to win* is what the best rule costs more than it on the same ones.",
        "",
        "| | servers | load | days | queue | fwd. | wait | limit | offers | delay | local | "
        "overflow/equal | best rule | costs | rule of the history | costs | optimum | to win |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|---|--:|--:|--:|",
    ]
    for row in rows:
        law, costs = row["law"], row["costs"]
        rules = [row["best_rule"], row["history_rule"]]
        settings = [law[key] for key in ("queue", "forward_cost", "wait_cost", "link_limit")]
        cells = [row["operator"], *_law(law), *("-" if each is None else each for each in settings)]
        cells += [1 + law["second_offer"], law["report_delay"]]
        cells += [f"{costs[rule]:.2f}" for rule in ("local/equal", "overflow/equal")]
        cells += [cell for rule in rules for cell in (rule, f"{costs[rule]:.2f}")]
        optimum, best = (row["few_days"][name] for name in ("optimum", row["best_rule"]))
        cells += [f"{optimum:.2f}", f"{best - optimum:.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    chosen = [row["costs"][row["history_rule"]] - row["costs"][row["best_rule"]] for row in rows]
    lines += [
        "",
        f"The rule of the history costs at most {max(chosen):.2f} points more than the best there; "
        f"it is another one for {sum(row['best_rule'] != row['history_rule'] for row in rows)}.",
    ]
    kept = [{key: row[key] for key in row if key not in ("about", "law")} for row in rows]
    save("operators_rules", "\n".join(lines), {"rows": kept}, rows[0]["about"])
