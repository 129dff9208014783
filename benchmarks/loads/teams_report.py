"""The tables of teams.py, from its lines in results/."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import save

from corral.trainers.evaluation.intervals import difference_interval, student_quantile

__all__ = [
    *("chosen_of", "held", "jackknife", "key_of", "report", "restricted", "saving", "summary"),
    "worse",
]

WORSE = 0.1
"""Points that the choice may cost more than the best plain rule."""
ROUNDING = 0.005
"""Points: a later mean so near to a stated interval is in it."""
KNOWLEDGE = ("unknown", "known")
GROWS = ("trend",)
"""Laws with a growing load: savings on its history say little about later ones."""

Row = dict[str, Any]
Saving = Sequence[float | None]

ABOUT = """\
Savings are points, % of the arrivals, with a 95 % interval. *Choice*: the team or its rule, by
validation days of the history (`run.recommendation`), and the checkpoint of least cost there, in
env steps. 0: the rule itself. *Choice, later*: the saving of the choice beside the best plain rule
on the later days, paired by day; then in requests a day. The best plain rule is fitted to the whole
history, the team's rule to the days that `from_rule` does not hold out. *Stated*: the saving of the
best checkpoint beside its rule, on the days of validation. *Team, later*: the same on the later
days. **Not held**: the later mean lies outside the stated interval. *Held out*: the answer of
`corral advise` for the days that `from_rule` holds out, with the bar of 0.1 points, and its saving
there. *Beyond*: later steps in which a load or a capacity exceeds the scale of the training. *CPU*:
of `from_rule`, with the fit of its rule for seed 0; other seeds start from the same rule."""


# --- One line of the results ---------------------------------------------------------------------


def key_of(row: Row) -> tuple[str, str, int, int]:
    """Return the task of a line."""
    return row["load"], row["arrivals"], row["seed"], row["split"]


def restricted(row: Row) -> bool:
    """Return whether the team's rule is the best of route equal alone, see ``ABOUT_RESTRICTED``."""
    return "routes" in row


def chosen_of(row: Row) -> str:
    """Return the policy that validation chose: "team" or "rule", a key of ``row["daily"]``."""
    return str(row["play"])


def saving(row: Row, policy: str, other: str) -> tuple[float, float, float]:
    """Return the saving of a policy beside another on later days, in points, and its interval.

    Both are keys of ``row["daily"]``: "team", "rule", "plain".
    """
    load = np.array(row["loads"], dtype=np.float64)
    less = np.array(row["daily"][other]) - np.array(row["daily"][policy])
    mean = float(less.sum() / load.sum())
    if row["days"] is None:
        low, high = difference_interval(less, load, season=7)
    else:
        low, high = jackknife(less, load, np.array(row["days"]))
    ends = [mean if end is None else end for end in (low, high)]
    return 100 * mean, 100 * ends[0], 100 * ends[1]


def jackknife(
    less: np.ndarray[Any, Any], load: np.ndarray[Any, Any], days: np.ndarray[Any, Any]
) -> tuple[float, float]:
    """Return the 95 % interval of sum(less) / sum(load) over windows [W] that share days.

    ``days`` [W, N]: the day of each node. Each day is left out in turn, with all windows that it is
    in (Arvesen, 1969). Student's t has one degree of freedom less than there are days.
    """
    names = np.unique(days)
    without = []
    for day in names:
        kept = ~(days == day).any(axis=1)
        without.append(less[kept].sum() / load[kept].sum())
    count = len(names)
    spread = float(((np.array(without) - np.mean(without)) ** 2).sum()) * (count - 1) / count
    half = student_quantile(0.975, count - 1) * float(np.sqrt(spread))
    mean = float(less.sum() / load.sum())
    return mean - half, mean + half


def requests(row: Row, points: float) -> float:
    """Return points as requests in a window."""
    return points / 100 * float(np.mean(row["loads"]))


def worse(row: Row) -> bool:
    """Whether the choice costs more than the best plain rule, by more than ``WORSE``."""
    return saving(row, chosen_of(row), "plain")[0] < -WORSE


def held(row: Row, stated: str) -> bool | None:
    """Return whether the later saving of the team beside its rule lies in a stated interval; None
    if there is none.

    ``stated``: "validation_saves" or "held_out_saves".
    """
    interval: Saving | None = row[stated]
    if interval is None or interval[1] is None or interval[2] is None:
        return None
    mean = saving(row, "team", "rule")[0]
    return interval[1] - ROUNDING <= mean <= interval[2] + ROUNDING


def worth_it(row: Row) -> bool:
    return row["answer"] == "worth it"


def learned(row: Row) -> bool:
    """Whether the best checkpoint is not the first one, the rule itself."""
    return bool(row["checkpoint"])


# --- The page ------------------------------------------------------------------------------------


def report(rows: Sequence[Row], six: Sequence[str]) -> None:
    """Print the tables of ``rows``, and keep them as results/teams.md."""
    if not rows:
        return
    every = sorted(rows, key=lambda row: (not row["load"].isdigit(), order(row)))
    rows = [row for row in every if not restricted(row)]
    again = {key_of(row) for row in rows}
    earlier = [row for row in every if restricted(row) and key_of(row) not in again]
    every = [*rows, *earlier]
    operators = [row for row in rows if row["load"].isdigit()]
    first = [row for row in operators if row["seed"] == 0]
    later = rows[0]["later_days"]
    lines = ["# Teams that start from a rule, on days that come later", "", ABOUT]
    for knowledge in KNOWLEDGE:
        part = [row for row in first if row["arrivals"] == knowledge]
        lines += ["", f"## Operators, arrivals {knowledge}, seed 0: {later} later days", ""]
        lines += table(part)
    lines += [
        "",
        "## Real loads",
        "",
        ABOUT_REAL,
        "",
        *table([r for r in rows if r not in operators]),
    ]
    lines += ["", "## Seeds", "", ABOUT_SEEDS, ""]
    lines += seeds_table([row for row in every if row["load"].isdigit()], six)
    lines += ["", "## Sums", "", *(f"- {line}" for line in summary(rows))]
    if earlier:
        lines += ["", "## Rules of route equal alone", "", ABOUT_RESTRICTED, "", *table(earlier)]
    left_out = ("daily", "loads", "days", "about", "law")
    slim = [{key: row[key] for key in row if key not in left_out} for row in every]
    save("teams", "\n".join(lines), {"rows": slim}, about(every))


ABOUT_SEEDS = """\
Seeds of one load start from the same rule. For 8, 18, 25 and 27 this rule was restricted to route
equal; see the end of this page."""

ABOUT_RESTRICTED = """\
These teams were trained before a defect of `from_rule` was mended: their rule is the best of route
equal alone, though the best plain rule has another route. They were not trained again. They show
how a team compares with its rule, but the choice cannot be compared with the best plain rule, and
they do not count in the sums."""


ABOUT_REAL = """\
`nasa`: a node is a day of NASA's web server, turned by a random shift, as in hard_days.py; later
windows are 200 draws of three of nine held-out days. Their intervals leave out one day at a time,
because draws share days. Stated intervals do not: `from_rule` counts 18 draws of six days as
independent. `twitter`: volumes of three companies, 10 days after 24, 34 or 44 days; capacity is
1.25 times the mean load of each node in the days before."""


def order(row: Row) -> tuple[Any, ...]:
    load = row["load"]
    number = int(load) if load.isdigit() else 0
    return number, load, KNOWLEDGE.index(row["arrivals"]), row["split"], row["seed"]


def table(rows: Sequence[Row]) -> list[str]:
    """Return one line for each row."""
    heads = (
        *("", "load", "seed", "arrivals", "team's rule", "choice", "choice, later", "a day"),
        *("stated", "team, later", "held out", "beyond", "CPU, s"),
    )
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    return lines


def _cells(row: Row) -> Iterator[str]:
    split = "" if row["load"].isdigit() else f" {row['split']}"
    yield f"{row['load']}{split}"
    yield _law(row["law"])
    yield str(row["seed"])
    yield row["arrivals"]
    yield row["rule"] if row["rule"] == row["plain"] else f"{row['rule']} (plain: {row['plain']})"
    yield f"{chosen_of(row)}, {row['checkpoint'] or 0:,}"
    later = saving(row, chosen_of(row), "plain")
    yield text_of(later) + " **worse**" * worse(row)
    yield f"{requests(row, later[0]):+,.1f}"
    yield text_of(row["validation_saves"]) + " **not held**" * (
        held(row, "validation_saves") is False
    )
    yield text_of(saving(row, "team", "rule"))
    answer = "-"
    if row["answer"] is not None:
        answer = f"{row['answer']}: {text_of(row['held_out_saves'])}"
        answer += " **not held**" * (held(row, "held_out_saves") is False)
    yield answer
    yield f"{row['beyond']:,} of {row['later_steps']:,}"
    yield f"{row['cpu']['from_rule']:.0f}"


def _law(law: Row) -> str:
    return str(law.get("law") or f"{law['nodes']} servers, {law['step']} s")


def text_of(values: Saving | None) -> str:
    """Return a mean with its interval: "+0.98 (+0.81 to +1.16)"."""
    if values is None:
        return "-"
    mean, low, high = values
    ends = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
    return f"{mean:+.2f}{ends}"


def seeds_table(rows: Sequence[Row], six: Sequence[str]) -> list[str]:
    """Return the later savings of some operators over their seeds."""
    lines = [
        "| load | arrivals | seeds | team chosen | choice beside the best plain rule | deviation "
        "| team beside its rule | deviation |",
        "|---|---|--:|--:|---|--:|---|--:|",
    ]
    for load in six:
        for knowledge in KNOWLEDGE:
            part = [r for r in rows if (r["load"], r["arrivals"]) == (load, knowledge)]
            if len(part) < 2:
                continue
            cells = [f"{load}, {_law(part[0]['law'])}", knowledge, str(len(part))]
            cells.append(str(sum(chosen_of(row) == "team" for row in part)))
            for policy, other in ((None, "plain"), ("team", "rule")):
                means = [saving(row, policy or chosen_of(row), other)[0] for row in part]
                cells += [f"{min(means):+.3f} to {max(means):+.3f}", f"{np.std(means, ddof=1):.3f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def about(rows: Sequence[Row]) -> Row:
    """Return versions, threads, steps, and CPU time."""
    spent = [row["cpu"]["from_rule"] for row in rows]
    steps = {row["steps"] for row in rows}
    return {
        **rows[0]["about"],
        "date": max(row["about"]["date"] for row in rows),
        "steps": " and ".join("default" if s is None else f"{s:,}" for s in steps),
        "CPU seconds": f"{sum(row['cpu']['all'] for row in rows):,.0f} in all; of from_rule "
        f"{np.median(spent):,.0f} (median), {max(spent):,.0f} (most)",
    }


# --- Sums ----------------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> list[str]:
    """Return sentences that count what the tables show."""
    operators = [row for row in rows if row["load"].isdigit()]
    first = [row for row in operators if row["seed"] == 0]
    real = [row for row in rows if not row["load"].isdigit()]
    further = [row for row in operators if row["seed"]]
    named = {"operators, seed 0": first, "operators, other seeds": further, "real loads": real}
    return [line for name, part in named.items() for line in counts(name, part)]


def counts(name: str, rows: Sequence[Row]) -> list[str]:
    """Return sentences on some rows; none without rows."""
    if not rows:
        return []
    steady = [row for row in rows if row["law"].get("law") not in GROWS]
    lines = [
        _each(
            name, rows, f"the choice costs over {WORSE} points more than the best plain rule", worse
        ),
        _least(name, rows),
        _each(
            name,
            rows,
            f"the choice costs over {WORSE} points more than its own rule",
            lambda row: saving(row, chosen_of(row), "rule")[0] < -WORSE,
        ),
        _each(
            name,
            [row for row in rows if row["answer"] is not None],
            f"the team if worth it, else the best plain rule, costs over {WORSE} points more than "
            "the best plain rule",
            lambda row: worth_it(row) and saving(row, "team", "plain")[0] < -WORSE,
        ),
        _each(name, rows, "validation chooses the team", lambda row: chosen_of(row) == "team"),
    ]
    teams = [row for row in rows if chosen_of(row) == "team"]
    text = "a chosen team saves beside its rule later"
    lines.append(_each(name, teams, text, lambda r: saving(r, "team", "rule")[0] > 0, absent=True))
    answers = [row for row in rows if worth_it(row)]
    text = '"worth it" on held-out days saves beside the best plain rule later'
    lines.append(
        _each(name, answers, text, lambda r: saving(r, "team", "plain")[0] > 0, absent=True)
    )
    for stated, days in (("validation_saves", "validation"), ("held_out_saves", "held-out")):
        for kind, good in (("all", lambda row: True), ("later checkpoints alone", learned)):
            part = [row for row in steady if good(row) and held(row, stated) is not None]
            text = f"the interval of {days} days holds the later saving ({kind}; no trends)"
            lines.append(
                _each(name, part, text, lambda r, s=stated: held(r, s) is True, absent=True)
            )
    lines.append(
        _each(
            name,
            [row for row in rows if row["game"]["residual"] == row["rule"]],
            "checkpoint 0 costs as much as its rule in every validation window",
            lambda row: bool(row["starts_as_rule"]),
            absent=True,
        )
    )
    exceeding = [row for row in rows if row["beyond"]]
    share = max((row["beyond"] / row["later_steps"] for row in exceeding), default=0.0)
    lines.append(
        f"{name}: later steps exceed the scales in {len(exceeding)} of {len(rows)} lines, in at "
        f"most {100 * share:.2f} % of the steps."
    )
    return [line for line in lines if line]


def _least(name: str, rows: Sequence[Row]) -> str:
    """Return the least and the largest saving beside the best plain rule."""
    parts = []
    for knowledge in KNOWLEDGE:
        part = [row for row in rows if row["arrivals"] == knowledge]
        if part:
            means = {name_of(row): saving(row, chosen_of(row), "plain")[0] for row in part}
            low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
            parts.append(
                f"{knowledge} {means[low]:+.3f} ({low}) to {means[high]:+.3f} ({high}), mean "
                f"{np.mean(list(means.values())):+.3f}"
            )
    return f"{name}: the choice saves beside the best plain rule, in points: {'; '.join(parts)}."


def name_of(row: Row) -> str:
    """Return the name of a row within its knowledge: "23", "23 seed 1", "nasa 0 seed 1"."""
    split = "" if row["load"].isdigit() else f" {row['split']}"
    seed = f" seed {row['seed']}" if row["seed"] else ""
    return f"{row['load']}{split}{seed}"


def _each(
    name: str,
    rows: Sequence[Row],
    text: str,
    good: Callable[[Row], bool],
    *,
    absent: bool = False,
) -> str:
    """Return how many rows are ``good``, by knowledge, and which; ``absent``: which are not."""
    parts = []
    for knowledge in KNOWLEDGE:
        part = [row for row in rows if row["arrivals"] == knowledge]
        if not part:
            continue
        yes = [row for row in part if good(row)]
        names = ", ".join(
            name_of(r) for r in (part if absent else yes) if not absent or r not in yes
        )
        listed = f" ({'not ' * absent}{names})" if names else ""
        parts.append(f"{knowledge} {len(yes)} of {len(part)}{listed}")
    return f"{name}: {text}: {'; '.join(parts)}." if parts else ""
