"""Statistics of load traces: the public ones beside our own, to calibrate the generator.

    CORRAL_TRACES=FOLDER python benchmarks/loads/trace_statistics.py

FOLDER holds azure_llm_2023/, nab/ and nasa_http_1995/ as described in data/README.md. Definitions
are in the docstring of ``statistics``.
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TRACES, machine, save

from corral.data import Trace, import_requests, import_series, load_trace

HEAD = (
    "trace",
    "nodes",
    "step s",
    "mean",
    "peak/mean",
    "day CV",
    "weekend",
    "residual CV",
    "lag-1",
    "dispersion",
    "bursts/day",
    "burst size",
    "burst min",
    "correlation",
)


def statistics(trace: Trace) -> dict[str, float]:
    """Figures of one trace, each the mean over its nodes.

    ``mean``: requests per step. ``peak/mean``: largest over mean. ``day CV``: standard deviation
    over mean of the profile, which is the mean load at each time of day. ``weekend``: mean load on
    Saturdays and Sundays over that on other days. Residual = load minus profile: ``residual CV``
    (its deviation over the mean load), ``lag-1`` (its autocorrelation one step apart),
    ``dispersion`` (its variance over the mean load; 1 for independent Poisson arrivals) and
    ``correlation`` (mean over pairs of nodes). A burst is a run of steps with more than twice the
    median load of the three hours around them: ``bursts/day``, ``burst size`` (mean of the
    peak over that median) and ``burst min`` (mean length in minutes). NaN where a trace of less
    than two days, of one node, or without bursts has no such figure.
    """
    days = len(trace) * trace.step / 86_400
    whole_days = days >= 2 and trace.steps_per_day is not None
    residuals, rows = [], []
    for load in trace.arrivals.T.astype(float):
        row: dict[str, float] = {"mean": load.mean(), "peak/mean": load.max() / load.mean()}
        profile = np.full(len(load), load.mean())
        if whole_days:
            slot = trace.times % 86_400 // trace.step
            means = pd.Series(load).groupby(slot).mean()
            profile = means.to_numpy()[np.searchsorted(means.index, slot)]
            weekend = (trace.times // 86_400 + 3) % 7 >= 5  # 1970-01-01 was a Thursday
            row["day CV"] = float(means.std() / means.mean())
            if weekend.any() and not weekend.all():
                row["weekend"] = load[weekend].mean() / load[~weekend].mean()
        residual = load - profile
        residuals.append(residual)
        row["residual CV"] = residual.std() / load.mean()
        row["lag-1"] = float(np.corrcoef(residual[1:], residual[:-1])[0, 1])
        row["dispersion"] = residual.var() / load.mean()
        rows.append(row | _bursts(load, trace.step, days))
    figures = pd.DataFrame(rows, columns=list(HEAD[3:])).mean().to_dict()
    pairs = [np.corrcoef(a, b)[0, 1] for a, b in combinations(residuals, 2)]
    return {str(name): value for name, value in figures.items()} | {
        "correlation": float(np.mean(pairs)) if pairs else float("nan")
    }


def _bursts(load: np.ndarray, step: int, days: float) -> dict[str, float]:
    window = max(3, 3 * 3600 // step) | 1
    usual = pd.Series(load).rolling(window, center=True, min_periods=1).median().to_numpy()
    usual = np.maximum(usual, 1)
    high = load > 2 * usual
    begins = np.flatnonzero(high & ~np.r_[False, high[:-1]])
    ends = np.flatnonzero(high & ~np.r_[high[1:], False]) + 1
    figures = {"bursts/day": len(begins) / days}
    if len(begins):
        peaks = [(load[a:b] / usual[a:b]).max() for a, b in zip(begins, ends, strict=True)]
        figures["burst size"] = float(np.mean(peaks))
        figures["burst min"] = float((ends - begins).mean() * step / 60)
    return figures


def public_traces(folder: Path) -> dict[str, Trace]:
    """The public traces, resampled as each allows."""
    nab, llm = folder / "nab", folder / "azure_llm_2023"
    nasa = [folder / "nasa_http_1995" / "nasa_http_jul1995_per_minute.csv"]
    twitter = [nab / f"Twitter_volume_{name}.csv" for name in ("AAPL", "AMZN", "GOOG")]
    services = [llm / f"AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")]
    elb = [nab / "elb_request_count_8c0756.csv"]
    return {
        "NAB load balancer": import_series(elb, gaps="interpolate").trace,
        "NAB Twitter": import_series(twitter).trace,
        "NASA web server": import_series(nasa).trace,
        "NASA, 5 minutes": import_series(nasa, step=300).trace,
        "Azure LLM": import_requests(services, step=5).trace,
    }


def main() -> None:
    traces = public_traces(TRACES)
    traces |= {name: load_trace(name) for name in ("edge3", "edge8")}
    lines = ["# Load traces, public and bundled", ""]
    lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    found = {}
    for name, trace in traces.items():
        figures = found[name] = statistics(trace)
        cells = [name, str(len(trace.nodes)), str(trace.step)]
        cells += ["" if np.isnan(figures[key]) else f"{figures[key]:.2f}" for key in HEAD[3:]]
        lines.append(f"| {' | '.join(cells)} |")
    known = {name: {k: v for k, v in f.items() if not np.isnan(v)} for name, f in found.items()}
    save("trace_statistics", "\n".join(lines), {"traces": known}, machine("pandas"))


if __name__ == "__main__":
    main()
