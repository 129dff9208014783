"""The table of verdicts.py, from its lines in results/."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import save

from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.trainers.evaluation.intervals import difference_interval

__all__ = ["above", "apart", "held", "judged_later", "later_saving", "report", "summary"]

WORSE = 0.1
"""Points that the best plain rule may cost more than another one."""
ROUNDING = 0.005
"""Points: a later mean so near to a stated interval is in it, for both are told to two digits."""
KNOWLEDGE = ("known", "unknown")
TREND = "trend"
BESIDE = {"rule": "local", "team": "team_rule"}
"""Whose saving is stated, and compared with what."""

Row = dict[str, Any]
Saving = Sequence[float | None]

ABOUT = """\
All figures are points: % of the arrivals. *Rule*: the best plain rule of the advice, chosen on the
history alone. *Above*: its cost on the later days minus that of the best other rule there (local,
random, static 40 %, six routes of load balancers, and all 31 rules that nothing was fitted in),
which is picked in hindsight. *Saves*: what the rule saves beside local play, as the advice states
it (95 % interval); after the semicolon, the mean of the later days. *Team*: the same of the team
beside its rule; after the semicolon, what it saves on the later days beside the best plain rule,
paired by day (Student's 95 % interval). A stated saving *held* if the later mean of the same
comparison lies in the stated interval. *Answer*: that of the advice, and whether it was right
later. Worth it is right if the later interval lies above 0 and the later mean above the bar of the
advice; not worth it if the mean is below the bar; an answer is open if the later interval holds the
bar and the mean is on the other side of it."""


# --- One line of the results ---------------------------------------------------------------------


def above(row: Row, other: str = "best_other") -> float:
    """Return what the best plain rule costs more later than another, in points."""
    return float(row["costs"][row["rule"]] - row["costs"][row[other]])


def later_saving(row: Row, own: str, beside: str) -> tuple[float, float, float]:
    """Return what ``own`` saves later beside another, in points: its mean, and the interval's ends.

    Both are keys of ``row["daily"]``: "rule", "local", "team", "team_rule", "best_other".
    """
    load = np.array(row["loads"], dtype=np.float64)
    less = np.array(row["daily"][beside]) - np.array(row["daily"][own])
    low, high = difference_interval(less, load, season=7)
    mean = float(less.sum() / load.sum())
    return 100 * mean, 100 * (mean if low is None else low), 100 * (mean if high is None else high)


def held(row: Row, what: str) -> bool | None:
    """Return whether a stated saving ("rule" beside local, "team" beside its rule) held later; None
    if none with an interval was stated."""
    saving: Saving | None = row[f"{what}_saves"]
    if saving is None or saving[1] is None or saving[2] is None:
        return None
    mean = later_saving(row, what, BESIDE[what])[0]
    return saving[1] - ROUNDING <= mean <= saving[2] + ROUNDING


def apart(row: Row, what: str) -> bool:
    """Return whether a stated interval and that of the later days have no point in common."""
    saving: Saving | None = row[f"{what}_saves"]
    if saving is None or saving[1] is None or saving[2] is None:
        return False
    _, low, high = later_saving(row, what, BESIDE[what])
    return high < saving[1] - ROUNDING or low > saving[2] + ROUNDING


def miss(row: Row, what: str) -> float:
    """Return how probable it is that an exact 95 % interval misses the mean of the later days,
    which varies too."""
    days = row["law"]["history_days"]
    windows = row.get("windows") or {"rule": days, "team": round(HELD_OUT * days)}
    wider = math.sqrt(1 + windows[what] / row["later_days"])
    return math.erfc(1.96 / wider / math.sqrt(2))


def judged_later(row: Row) -> str:
    """Return whether the answer on the team was "right", "wrong" or "open"; "" without a team."""
    if row["team_saves"] is None:
        return ""
    mean, low, high = later_saving(row, "team", "rule")
    if row["answer"] == "worth it":
        right = low > 0 and mean > row["worth"]
    elif row["answer"] == "not worth it":
        right = mean <= row["worth"]
    else:
        return "open"
    if right:
        return "right"
    return "open" if low <= row["worth"] <= high else "wrong"


# --- The page ------------------------------------------------------------------------------------


def report(rows: Sequence[Row], name: str, count: int) -> None:
    """Print the table of ``rows``, and keep it as results/<name>.md."""
    if not rows:
        return
    found = {(row["operator"], row["arrivals"]): row for row in rows}
    numbers = sorted({number for number, _ in found})
    later = rows[0]["later_days"]
    heads = ["rule", "above", "saves", "team", "answer"]
    lines = [
        f"# Advice for {count} operators, judged on {later} later days",
        "",
        ABOUT,
        "",
        f"| | law | days | {' | '.join(f'{k}: {head}' for k in KNOWLEDGE for head in heads)} |",
        f"|--:|---|--:|{'---|--:|---|---|---|' * 2}",
    ]
    for number in numbers:
        known, unknown = (found.get((number, knowledge)) for knowledge in KNOWLEDGE)
        law = (known or unknown or {})["law"]
        cells = [str(number), _law(law), str(law["history_days"]), *_cells(known), *_cells(unknown)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- {line}" for line in summary(rows))]
    if absent := 2 * count - len(found):
        lines += ["", f"Not played yet: {absent} of {2 * count}."]
    left_out = ("daily", "loads", "about", "law", "costs")
    kept = [
        {**{key: row[key] for key in row if key not in left_out}, "above": above(row)}
        for row in rows
    ]
    save(name, "\n".join(lines), {"rows": kept}, _about(rows))


def _about(rows: Sequence[Row]) -> Row:
    """Return versions, threads, steps, seeds and CPU time."""
    advice = [row["advice"]["cpu_seconds"] for row in rows]
    decisions = {row["decisions"] for row in rows} - {None}
    about = dict(rows[0]["about"])
    about["date"] = max(row["about"]["date"] for row in rows)
    return {
        **about,
        "decisions": " and ".join(map(str, decisions)) or "none (rules alone)",
        "seed": rows[0]["seed"],
        "CPU seconds": f"{sum(row['cpu_seconds'] for row in rows):,.0f} in all; of an advice "
        f"{np.median(advice):,.0f} (median), {max(advice):,.0f} (most)",
    }


def _law(law: Row) -> str:
    name = law.get("law") or f"{law['nodes']} servers, {law['step']} s"
    return str(name)


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return ["not played", "", "", "", ""]
    team, answer = "-", row["answer"] or "no team"
    if row["team_saves"] is not None:
        later = interval(later_saving(row, "team", "rule"))
        team = f"{interval(row['team_saves'])}; {later}{_broken(row, 'team')}"
        answer = f"{answer}: {judged_later(row)}"
    saves = "-"
    if row["rule_saves"] is not None:
        mean = later_saving(row, "rule", "local")[0]
        saves = f"{interval(row['rule_saves'])}; {mean:+.2f}{_broken(row, 'rule')}"
    return [row["rule"], f"{above(row):+.2f}", saves, team, answer]


def _broken(row: Row, what: str) -> str:
    return " **not held**" if held(row, what) is False else ""


def interval(found: Saving) -> str:
    """Return a mean with the ends of its interval: "+0.98 (+0.81 to +1.16)"."""
    mean, low, high = found
    ends = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
    return f"{mean:+.2f}{ends}"


# --- Sums ----------------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the sentences below the table."""
    told = [
        _each(rows, f"The best plain rule costs at most {WORSE} points more than {what}", good)
        for what, good in (
            ("the best other rule", lambda row: above(row) <= WORSE),
            (
                "the best other that a proxy can carry out",
                lambda row: above(row, "best_carried") <= WORSE,
            ),
            ("the best rule of one line", lambda row: above(row, "best_one_line") <= WORSE),
        )
    ]
    told.append(_most(rows))
    steady = [row for row in rows if row["law"].get("law") != TREND]
    for what, beside in (("rule", "local play"), ("team", "its rule")):
        stated = [row for row in steady if held(row, what) is not None]
        if stated:
            text = f"What the {what} saves beside {beside} held (no trends)"
            told.append(_each(stated, text, lambda row, what=what: held(row, what) is True))
            missed = sum(miss(row, what) for row in stated)
            told[-1] += f" Exact intervals would miss {missed:.1f} of these {len(stated)}."
            text = f"The later interval of what the {what} saves lies apart from the stated one"
            told.append(_each(stated, text, lambda row, what=what: apart(row, what), names=True))
            if any(what in row.get("alike", ()) for row in stated):
                text = f"The advice calls the interval of what the {what} saves too narrow"
                told.append(
                    _each(stated, text, lambda row, w=what: w in row.get("alike", ()), names=True)
                )
    told += _of_teams(rows)
    if any(row["trend"] is not None for row in rows):
        told.append(
            _each(rows, "A trend is told", lambda row: row["trend"] is not None, names=True)
        )
    played = sorted({row["operator"] for row in rows if row["law"]["report_delay"] == 0})
    if played:
        numbers = ", ".join(map(str, played))
        told.append(f"Reports without delay (operators {numbers}): one step old if unknown.")
    return told


def _of_teams(rows: Sequence[Row]) -> list[str]:
    """Return how often a team is worth it, and whether that was right later."""
    trained = [row for row in rows if row["team_saves"] is not None]
    if not trained:
        return []
    told = [_each(rows, "A team is worth it", lambda row: row["answer"] == "worth it", names=True)]
    for answer in dict.fromkeys(row["answer"] for row in trained):
        given = [row for row in trained if row["answer"] == answer]
        for verdict in ("right", "wrong", "open"):
            if any(judged_later(row) == verdict for row in given):
                text = f'"{answer.capitalize()}" is {verdict} later'
                told.append(
                    _each(given, text, lambda row, v=verdict: judged_later(row) == v, names=True)
                )
    worth = [row for row in trained if row["answer"] == "worth it"]
    beaten = [row for row in worth if _least_plain(row) < row["costs"]["team"]]
    if worth:
        text = "A team that is worth it costs more later than some plain rule that was played"
        told.append(_each(worth, text, lambda row: row in beaten, names=True))
    return told


def _least_plain(row: Row) -> float:
    return float(min(cost for label, cost in row["costs"].items() if label != "team"))


def _most(rows: Sequence[Row]) -> str:
    """Return the largest cost above the best other rule, by knowledge."""
    parts = []
    for knowledge in KNOWLEDGE:
        if own := [row for row in rows if row["arrivals"] == knowledge]:
            worst = max(own, key=above)
            parts.append(f"{knowledge} {above(worst):+.2f} (operator {worst['operator']})")
    return f"At most it costs, in points above the best other rule: {'; '.join(parts)}."


def _each(
    rows: Sequence[Row], text: str, good: Callable[[Row], bool], *, names: bool = False
) -> str:
    """Return how many rows are ``good``, by knowledge: and which are not; ``names``: which are."""
    parts = []
    for knowledge in KNOWLEDGE:
        own = [row for row in rows if row["arrivals"] == knowledge]
        if not own:
            continue
        own.sort(key=lambda row: int(row["operator"]))
        yes = [row for row in own if good(row)]
        named = yes if names else [row for row in own if row not in yes]
        which = ", ".join(str(row["operator"]) for row in named)
        which = f" ({'' if names else 'not '}{which})" if which else ""
        parts.append(f"{knowledge} {len(yes)} of {len(own)}{which}")
    return f"{text}: {'; '.join(parts)}."
