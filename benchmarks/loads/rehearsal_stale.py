"""Herding: mean time in the system when balancers see reports that are out of date.

    OMP_NUM_THREADS=1 python benchmarks/loads/rehearsal_stale.py [--share 1]

The setting of Mitzenmacher (How useful is old information?, 2000) and Dahlin (Interpreting stale
load information, 1999): N equal servers with exponential work and Poisson requests at 0.9 of their
capacity. All balancers see one board, which is written every so many service times. Requests begin
at a server of their own, without cost for forwarding. Ties go to this server first.

A run has a warm-up that does not count: a rehearsal of the warm-up alone has the same requests, and
its sums are subtracted. Times are in mean service times.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from rehearsal_common import Curve, chart

from corral.data import Trace
from corral.loads.rehearsal import rehearse
from corral.trainers.report import svg as pen

RHO = 0.9
PER_STEP = 100
"""Service times in a step."""
PERIODS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Service times between two boards."""
REPORTED = ("shortest-of=2", "shortest-queue")
UNREPORTED = ("random", "choices=2", "least-requests")
"""Balancers without reports: one run for all periods."""
STEPS = {100: (50, 250), 10: (200, 1500)}
"""Servers -> steps of the warm-up, and of warm-up and run."""
SEEDS = (0, 1, 2)
COLORS = {
    "random": pen.GRAY,
    "choices=2": pen.ORANGE,
    "least-requests": pen.GREEN,
    "shortest-of=2": pen.BLUE,
    "shortest-queue": pen.RED,
}

Times = dict[str, dict[float, list[float]]]
"""Balancer -> period -> mean time in the system for each seed."""


def load_of(servers: int, steps: int) -> Trace:
    counts = np.full((steps, servers), round(RHO * PER_STEP), dtype=np.int64)
    names = tuple(f"n{server}" for server in range(servers))
    return Trace(
        nodes=names,
        arrivals=counts,
        capacity=np.full_like(counts, PER_STEP),
        times=np.arange(steps),
        name="stale",
    )


def time_in_system(servers: int, balancer: str, period: float, seed: int, share: float) -> float:
    """Return the mean time in the system of requests served after the warm-up."""
    warm, whole = (max(2, round(share * steps)) for steps in STEPS[servers])
    load = load_of(servers, whole)
    totals = []
    for steps in (warm, whole):
        rehearsal = rehearse(
            load,
            [balancer],
            rows=(0, steps),
            window=steps,
            seed=seed,
            times="poisson",
            work="exponential",
            places=1_000_000,
            report_period=period / PER_STEP,
            compiled=True,
        )
        (sums,) = rehearsal.sums.values()
        assert int(sums.counts["lost"].sum()) == 0
        served = float(sums.counts["served"].sum())
        totals.append((served, served * float(sums.mean_stay[0])))
    served, stay = np.subtract(totals[1], totals[0])
    return PER_STEP * float(stay / served)


def measured(servers: int, share: float) -> Times:
    times: Times = {}
    for balancer in (*UNREPORTED, *REPORTED):
        periods = PERIODS if balancer in REPORTED else (0.0,)
        times[balancer] = {}
        for period in periods:
            began = time.process_time()
            times[balancer][period] = [
                time_in_system(servers, balancer, period, seed, share) for seed in SEEDS
            ]
            mean = np.mean(times[balancer][period])
            seconds = time.process_time() - began
            print(f"{servers}, {balancer}, {period:g}: {mean:.3f}, {seconds:.1f} s", flush=True)
    return times


def crossing(one: Mapping[float, float], two: Mapping[float, float]) -> str:
    """Return the first period from which ``one`` takes longer than ``two``, interpolated."""
    for low, high in itertools.pairwise(PERIODS):
        before, after = one[low] - two[low], one[high] - two[high]
        if before <= 0 < after:
            part = -before / (after - before)
            if low == 0:
                return f"below {high:g}" if part > 0 else "0"
            return f"{np.exp(np.log(low) + part * (np.log(high) - np.log(low))):.1f}"
    return "at none of them" if one[PERIODS[-1]] <= two[PERIODS[-1]] else "at all of them"


def text_of(servers: int, times: Times) -> list[str]:
    first, last = STEPS[servers]
    requests = round(RHO * PER_STEP * servers * (last - first))
    text = [
        f"## {servers} servers",
        "",
        f"About {requests:,} requests a run, after {first * PER_STEP:,} service times of warm-up; "
        f"means of {len(SEEDS)} seeds (lowest to highest).",
        "",
        "| period | " + " | ".join(REPORTED) + " |",
        "|--:|--:|--:|",
    ]
    for period in PERIODS:
        cells = [shown(times[balancer][period]) for balancer in REPORTED]
        text.append(f"| {period:g} | {' | '.join(cells)} |")
    flat = "; ".join(f"{name} {shown(times[name][0.0])}" for name in UNREPORTED)
    text += [
        "",
        f"Without reports: {flat}. A single queue of this kind (M/M/1): {1 / (1 - RHO):.0f}.",
    ]
    means = {
        name: {period: float(np.mean(by_period.get(period, by_period[0.0]))) for period in PERIODS}
        for name, by_period in times.items()
    }
    text += ["", "Periods from which one takes longer than another:", ""]
    pairs = (
        ("shortest-queue", "shortest-of=2"),
        ("shortest-queue", "least-requests"),
        ("shortest-queue", "random"),
        ("shortest-of=2", "least-requests"),
        ("shortest-of=2", "random"),
    )
    text += [f"- {one} than {two}: {crossing(means[one], means[two])}" for one, two in pairs]
    return [*text, "", f"![time by period](rehearsal_stale_{servers}.svg)", ""]


def shown(times: Sequence[float]) -> str:
    return f"{np.mean(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def draw(servers: int, times: Times) -> None:
    curves = [
        Curve(
            name,
            PERIODS,
            [float(np.mean(by_period.get(period, by_period[0.0]))) for period in PERIODS],
            COLORS[name],
            "" if name in REPORTED else "6 3",
        )
        for name, by_period in times.items()
    ]
    picture = chart(
        curves,
        title=f"{servers} servers at {RHO:g} of their capacity: mean time in the system",
        note="dashed: balancers without reports; leftmost: present backlogs",
        across="service times between two reports",
        upwards="service times",
        log_y=True,
        zero=0.05,
    )
    (RESULTS / f"rehearsal_stale_{servers}.svg").write_text(picture)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0, help="of the requests")
    share = parser.parse_args().share
    began = time.process_time()
    text = ["# Herding by reports that are out of date", ""]
    data = {}
    for servers in STEPS:
        times = measured(servers, share)
        draw(servers, times)
        text += text_of(servers, times)
        data[str(servers)] = times
    seconds = time.process_time() - began
    text.append(f"Seeds {SEEDS[0]} to {SEEDS[-1]}; {seconds:,.0f} CPU s with compiling.")
    save("rehearsal_stale", "\n".join(text), {"times": data, "cpu_s": seconds}, machine("numba"))


if __name__ == "__main__":
    main()
