"""Step replays compared with rehearsals on the demo's held-out days, also with larger loads.

    OMP_NUM_THREADS=1 python benchmarks/loads/rehearsal_table.py [--part table] [--part sizes] ...

The load and the settings are those of ``make demo``; days 26 to 35 are held out. The parts:

- table: plans and balancers on the held-out days, with deterministic and exponential work.
- sizes: requests, capacities, queue and links times 10, 100 and 1,000, on three of these days.
- latency: forwarded requests arrive 1/100 or 1/10 of a step later.
- fitted: counters, and plans that spread forwarded requests over the step. The number of each
  family is fitted to the first 25 days twice: by step replays and by rehearsals. The held-out days
  judge both, and so do three of these days with 100 times the requests.

Every policy is a line of results/rehearsal_table.jsonl and is not played again (--part report:
only the table). Costs are in requests a day, divided by the factor of the load.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine, save
from rehearsal_common import Curve, between, chart, larger, row_of
from textbook import DEMO, DEMO_GAME, FITTED_DAYS

from corral.data import make_trace
from corral.envs.dfaas_v0 import Plan
from corral.loads.rehearsal import rehearse
from corral.loads.rehearsal.balancers import DEFAULT
from corral.loads.rehearsal.policies import Entry
from corral.loads.replay import replay
from corral.loads.textbook import fit
from corral.trainers.report import svg as pen

FILE = RESULTS / "rehearsal_table.jsonl"
PARTS = ("table", "sizes", "latency", "fitted")
SEED = 0
STEP = 288
FITTING = 0, FITTED_DAYS * STEP
HELD_OUT = FITTED_DAYS * STEP, DEMO.days * STEP

PLANS = ("backlog=1/equal", "backlog=0.75/equal", "backlog=0.75/least")
LOCAL: dict[str, Entry] = {"local": "local/equal"}
"""As a plan, so that it has a promise."""
ALL: dict[str, Entry] = {**LOCAL, **{name: name for name in (*PLANS, *DEFAULT)}}
SHORT = ("local", *PLANS, "least-requests", "shortest-queue", "overflow", "room")
"""Policies on larger loads and with latency."""
WORKS = ("deterministic", "exponential")
FACTORS = {"deterministic": (1, 10, 100, 1000), "exponential": (1, 10, 100)}
"""Of the requests, by work."""
LATENCIES = (3.0, 30.0)
"""Seconds; a step has 300."""
FEW_DAYS = 3
"""Of the held-out days, drawn by the seed: at most 48 million requests a policy."""


@dataclass(frozen=True)
class Spread:
    """Forwards the share of the arrivals that a counter would forward, evenly over the step.

    The counter keeps c + x Q - q of the arrivals. Their number is the mean of the last ``counts``.
    Links take at most ``link_limit``, as with a counter.
    """

    x: float
    counts: int
    route: str

    def plan(self, view: Any) -> Plan:
        last = list(view.last_counts[: self.counts])
        expected = sum(last) / len(last) if last else float(view.capacity)
        keep = max(0, int(view.capacity + self.x * view.queue_limit + 1e-9) - view.queue)
        share = max(0.0, expected - keep) / expected if expected > 0 else 0.0
        caps = None
        if view.link_limit is not None:
            caps = dict.fromkeys(view.capacities, view.link_limit)
        return Plan(share=share, caps=caps, route=self.route)


def families() -> dict[str, dict[str, Entry]]:
    """Return family -> label -> policy: the same kind of plan, with different numbers."""
    labels: dict[str, dict[str, Entry]] = {}
    for route in ("equal", "least"):
        numbers = {
            "backlog": np.linspace(0, 1, 9),
            "capacity": np.arange(0.5, 1.51, 0.1),
            "share": (0.01, 0.02, 0.05, *np.arange(0.1, 0.61, 0.05)),
        }
        for amount, values in numbers.items():
            rules = [f"{amount}={round(float(value), 3):g}/{route}" for value in values]
            labels[f"{amount}=x/{route}"] = {rule: rule for rule in rules}
        for counts in (1, 4):
            labels[f"spread, {counts} counts, /{route}"] = {
                f"spread={x:g}, {counts} counts, /{route}": Spread(x, counts, route)
                for x in (-0.25, 0, 0.25, 0.5, 0.75, 1)
            }
    return labels


# --- The parts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Play:
    """Policies with the same load and setting."""

    part: str
    policies: Mapping[str, Entry]
    rows: tuple[int, int] = HELD_OUT
    factor: int = 1
    work: str = "deterministic"
    latency: float = 0.0
    days: int | None = None  # None: all
    parts: bool = True

    @property
    def key(self) -> tuple[Any, ...]:
        return self.part, self.factor, self.work, self.latency

    def missing(self, lines: Sequence[Mapping[str, Any]]) -> dict[str, Entry]:
        """Return the policies that have no line yet."""
        played = {line["policy"] for line in lines if key_of(line) == self.key}
        return {label: entry for label, entry in self.policies.items() if label not in played}

    def write(self, policies: Mapping[str, Entry]) -> None:
        """Play policies, and write a line for each one."""
        trace, game = larger(make_trace(DEMO), DEMO_GAME, self.factor)
        for label, entry in policies.items():
            began = time.process_time()
            rehearsal = rehearse(
                trace,
                {label: entry},
                rows=self.rows,
                days=self.days,
                seed=SEED,
                parts=self.parts,
                compiled=True,
                work=self.work,
                latency=self.latency,
                **game,
            )
            line = row_of(rehearsal, label, self.factor)
            about = {"part": self.part, "factor": self.factor, "work": self.work}
            seconds = round(time.process_time() - began, 2)
            append_row(FILE, {**about, "latency": self.latency, **line, "cpu_s": seconds})
            print(*self.key, label, f"{np.mean(line['cost']):,.1f}", seconds, flush=True)


def key_of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["part"], line["factor"], line["work"], line["latency"]


def plays(part: str) -> Iterator[Play]:
    """Yield the plays of a part, except for "fitted"."""
    short = {name: ALL[name] for name in SHORT}
    for work in WORKS:
        if part == "table":
            yield Play(part, ALL, work=work)
        elif part == "sizes":
            for factor in FACTORS[work]:
                yield Play(part, short, factor=factor, work=work, days=FEW_DAYS)
        elif part == "latency" and work == "deterministic":
            for factor in (1, 100):
                days = None if factor == 1 else FEW_DAYS
                for latency in LATENCIES:
                    yield Play(part, short, factor=factor, latency=latency, days=days)


def fit_families() -> None:
    """Fit each family by step replays and by rehearsals, and judge the fitted policies."""
    lines = kept_rows(FILE)
    every = {label: entry for family in families().values() for label, entry in family.items()}
    play = Play("fitting", every, FITTING, parts=False)
    play.write(play.missing(lines))
    trace = make_trace(DEMO)
    promised = replayed(every)
    advised = str(fit(trace, rows=FITTING, arrivals="unknown", **DEMO_GAME).rule)
    rehearsed = {
        line["policy"]: float(np.sum(line["cost"]))
        for line in kept_rows(FILE)
        if line["part"] == "fitting"
    }
    chosen: dict[str, Entry] = {advised: advised}
    fits = []
    for family, policies in families().items():
        by_replay = min(policies, key=promised.__getitem__)
        by_rehearsal = min(policies, key=rehearsed.__getitem__)
        fits.append({"family": family, "by_replay": by_replay, "by_rehearsal": by_rehearsal})
        chosen |= {label: policies[label] for label in (by_replay, by_rehearsal)}
    grid = {
        label: {
            "replay": promised[label] / FITTED_DAYS,
            "rehearsal": rehearsed[label] / FITTED_DAYS,
        }
        for label in every
    }
    judges = [
        Play(
            "fitted",
            {**LOCAL, **chosen},
            work=work,
            factor=factor,
            days=None if factor == 1 else FEW_DAYS,
        )
        for factor in (1, 100)
        for work in WORKS
    ]
    for judge in judges:
        judge.write(judge.missing(kept_rows(FILE)))
    if not any(line["part"] == "fits" for line in kept_rows(FILE)):
        row = {"part": "fits", "factor": 1, "work": "", "latency": 0.0, "policy": ""}
        append_row(FILE, {**row, "fits": fits, "advised": advised, "grid": grid})


def replayed(policies: Mapping[str, Entry]) -> dict[str, float]:
    """Return the cost of policies in step replays of the fitting days."""
    result = replay(
        make_trace(DEMO),
        dict(policies),
        rows=FITTING,
        window=STEP,
        seed=SEED,
        optimum_windows=0,
        arrivals="unknown",
        **DEMO_GAME,
    )
    return {label: float(sums.cost.sum()) for label, sums in result.sums.items()}


# --- The report ----------------------------------------------------------------------------------


Lines = dict[str, dict[str, Any]]
"""Label -> line."""


def lines_of(part: str, factor: int, work: str, latency: float = 0.0) -> Lines:
    key = part, factor, work, latency
    return {line["policy"]: line for line in kept_rows(FILE) if key_of(line) == key}


def mean(values: Any) -> str:
    return f"{np.mean(values):,.0f}"


def promise_cells(line: Mapping[str, Any], latency: bool = False) -> str:
    """Return promise, parts and the cost of the rehearsal, as cells of a table."""
    names = ("times", "competition", *(("latency",) if latency else ()))
    if "promise" not in line:
        return " | ".join(["", *("" for _ in names), mean(line["cost"])])
    parts = [f"{np.mean(line['parts'][name]):+,.0f}" for name in names]
    return " | ".join([mean(line["promise"]), *parts, mean(line["cost"])])


def savings_cells(line: Mapping[str, Any], local: Mapping[str, Any]) -> str:
    """Return the promised and the rehearsed saving over local, with intervals over days."""
    promised = ""
    if "promise" in line:
        promised = between(np.subtract(local["promise"], line["promise"]))
    return f"{promised} | {between(np.subtract(local['cost'], line['cost']))}"


def table_part() -> list[str]:
    lines, drawn = lines_of("table", 1, "deterministic"), lines_of("table", 1, "exponential")
    local, requests = lines["local"], np.mean(lines["local"]["requests"])
    text = [
        "## Promise and rehearsal",
        "",
        f"Means of {len(local['cost'])} held-out days with {requests:,.0f} requests a day, in "
        "requests a day. Waits in seconds, of a step of 300.",
        "",
        "| policy | promise | times | competition | rehearsed | saves over local: promised | "
        "rehearsed | with exponential work: rehearsed | saves | mean wait | p99 |",
        "|---|--:|--:|--:|--:|---|---|--:|---|--:|--:|",
    ]
    for label in sorted(lines, key=lambda label: float(np.mean(lines[label]["cost"]))):
        line, exponential = lines[label], drawn[label]
        saves = between(np.subtract(drawn["local"]["cost"], exponential["cost"]))
        text.append(
            f"| {label} | {promise_cells(line)} | {savings_cells(line, local)} "
            f"| {mean(exponential['cost'])} | {saves} "
            f"| {300 * line['mean_wait']:,.0f} | {300 * line['p99_wait']:,.0f} |"
        )
    return [*text, ""]


def sizes_part() -> list[str]:
    text = ["## Larger loads", ""]
    for work in WORKS:
        first = lines_of("sizes", 1, work)["local"]
        text += [
            f"{len(first['cost'])} of these days (numbers {', '.join(map(str, first['windows']))} "
            f"from 0), {work} work; all numbers divided by the factor:",
            "",
            "| policy | factor | requests | promise | times | competition | rehearsed | saves over "
            "local: promised | rehearsed |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for label in SHORT:
            for factor in FACTORS[work]:
                lines = lines_of("sizes", factor, work)
                line, local = lines[label], lines["local"]
                saved = [mean(np.subtract(local["cost"], line["cost"]))]
                saved.insert(0, "")
                if "promise" in line:
                    saved[0] = mean(np.subtract(local["promise"], line["promise"]))
                text.append(
                    f"| {label} | {factor:,} | {sum(line['requests']):,} | {promise_cells(line)} "
                    f"| {' | '.join(saved)} |"
                )
        text.append("")
    draw_sizes()
    return [*text, "![parts of the difference, by size](rehearsal_table_sizes.svg)", ""]


COLORS = dict(zip(("local", *PLANS), (pen.GRAY, pen.BLUE, pen.GREEN, pen.RED), strict=True))


def draw_sizes() -> None:
    curves, factors = [], FACTORS["deterministic"]
    for label in ("local", *PLANS):
        lines = [lines_of("sizes", factor, "deterministic")[label] for factor in factors]
        for part, dash in (("times", ""), ("competition", "6 3")):
            y = [float(np.mean(line["parts"][part])) for line in lines]
            curves.append(Curve(f"{label}: {part}", factors, y, COLORS[label], dash))
    picture = chart(
        curves,
        title="Rehearsal less promise, by part, with larger loads",
        note=f"the demo's load, {FEW_DAYS} held-out days, deterministic work",
        across="factor of requests, capacities, queue and links",
        upwards="requests a day / factor",
    )
    (RESULTS / "rehearsal_table_sizes.svg").write_text(picture)


def latency_part() -> list[str]:
    text = [
        "## Latency",
        "",
        "Forwarded requests arrive later; deterministic work, all held-out days (factor 100: "
        f"{FEW_DAYS} of them), in requests a day / factor:",
        "",
        "| policy | factor | latency, s | promise | times | competition | latency | rehearsed | "
        "saves over local |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for label in SHORT[1:]:
        for factor in (1, 100):
            for latency in LATENCIES:
                lines = lines_of("latency", factor, "deterministic", latency)
                line, local = lines[label], lines["local"]
                text.append(
                    f"| {label} | {factor} | {latency:g} | {promise_cells(line, True)} "
                    f"| {between(np.subtract(local['cost'], line['cost']))} |"
                )
    return [*text, ""]


def fitted_part() -> list[str]:
    (row,) = [line for line in kept_rows(FILE) if line["part"] == "fits"]
    text = [
        "## Fitted by step replays, and by rehearsals",
        "",
        f"The number of each family is fitted to {FITTED_DAYS} days. The held-out days judge it.",
        "",
    ]
    for factor in (1, 100):
        lines = lines_of("fitted", factor, "deterministic")
        drawn = lines_of("fitted", factor, "exponential")
        local = lines["local"]
        text += [
            f"Factor {factor}, {len(local['cost'])} days; local costs {mean(local['promise'])} by "
            f"step replay and {mean(local['cost'])} by rehearsal.",
            "",
            "| family | fitted by | policy | promise | times | competition | rehearsed | saves "
            "over local: promised | rehearsed | exponential work: rehearsed |",
            "|---|---|---|--:|--:|--:|--:|---|---|--:|",
        ]
        cases = [("advised", "step replay", row["advised"])]
        for fits in row["fits"]:
            if fits["by_replay"] == fits["by_rehearsal"]:
                cases.append((fits["family"], "both", fits["by_replay"]))
                continue
            cases.append((fits["family"], "step replay", fits["by_replay"]))
            cases.append((fits["family"], "rehearsal", fits["by_rehearsal"]))
        for family, fitted_by, label in cases:
            text.append(
                f"| {family} | {fitted_by} | {label} | {promise_cells(lines[label])} "
                f"| {savings_cells(lines[label], local)} | {mean(drawn[label]['cost'])} |"
            )
        text.append("")
    text += lost_part(row)
    draw_grid(row["grid"])
    return [*text, "![cost by the number of a rule](rehearsal_table_fitted.svg)", ""]


def lost_part(row: Mapping[str, Any]) -> list[str]:
    """Return the part of the broken promise that comes from fitting by step replays."""
    lines = lines_of("fitted", 1, "deterministic")
    text = [
        "The rehearsed cost exceeds the promise by the second column. A number fitted by "
        "rehearsals regains the third on the held-out days:",
        "",
        "| family | rehearsed less promised | regained by fitting |",
        "|---|---|---|",
    ]
    for fits in row["fits"]:
        by_replay, by_rehearsal = lines[fits["by_replay"]], lines[fits["by_rehearsal"]]
        broken = between(np.subtract(by_replay["cost"], by_replay["promise"]))
        regained = between(np.subtract(by_replay["cost"], by_rehearsal["cost"]))
        text.append(f"| {fits['family']} | {broken} | {regained} |")
    best = {
        kind: min(
            (fits["by_replay"] for fits in row["fits"] if fits["family"].startswith(kind)),
            key=lambda label: float(np.sum(lines[label]["promise"])),
        )
        for kind in ("backlog", "spread")
    }
    counter, spread = lines[best["backlog"]], lines[best["spread"]]
    text += [
        "",
        f"The plan that spreads, {best['spread']}, less the counter {best['backlog']}, both chosen "
        f"by step replays: promised {between(np.subtract(spread['promise'], counter['promise']))}, "
        f"rehearsed {between(np.subtract(spread['cost'], counter['cost']))}.",
    ]
    return [*text, ""]


def draw_grid(grid: Mapping[str, Mapping[str, float]]) -> None:
    curves = []
    families = {"backlog=": pen.BLUE, "capacity=": pen.RED, "spread=": pen.GREEN}
    for family, color in families.items():
        labels = [label for label in grid if label.startswith(family) and label.endswith("/least")]
        labels = [label for label in labels if "1 counts" not in label]
        numbers = [float(re.split("[=,/]", label)[1]) for label in labels]
        for source, dash in (("replay", "6 3"), ("rehearsal", "")):
            y = [grid[label][source] for label in labels]
            curves.append(Curve(f"{family}x/least, {source}", numbers, y, color, dash))
    picture = chart(
        curves,
        title="Cost by the number of a rule, in step replays and in rehearsals",
        note=f"the demo's first {FITTED_DAYS} days, deterministic work; spread: 4 counts",
        across="x",
        upwards="requests a day",
        log_x=False,
    )
    (RESULTS / "rehearsal_table_fitted.svg").write_text(picture)


SECTIONS = {
    "table": table_part,
    "sizes": sizes_part,
    "latency": latency_part,
    "fitted": fitted_part,
}


def report() -> None:
    rows = kept_rows(FILE)
    text = ["# Step replays compared with rehearsals", ""]
    for part, section in SECTIONS.items():
        if any(line["part"] == part for line in rows):
            text += section()
    seconds = sum(line.get("cpu_s", 0) for line in rows)
    text.append(f"Seed {SEED}. All plays took {seconds:,.0f} CPU s, with compiling.")
    save("rehearsal_table", "\n".join(text), {"cpu_s": seconds}, machine("numba"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", action="append", choices=(*PARTS, "report"))
    for part in parser.parse_args().part or PARTS:
        if part == "fitted":
            fit_families()
        for play in plays(part):
            play.write(play.missing(kept_rows(FILE)))
    report()


if __name__ == "__main__":
    main()
