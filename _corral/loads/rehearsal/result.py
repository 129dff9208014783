"""The result of a rehearsal."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.rehearsal import report, screen
from corral.loads.rehearsal.played import Sums
from corral.loads.rehearsal.setting import Setting
from corral.loads.rehearsal.summary import (
    PARTS,
    Promise,
    Summary,
    Units,
    difference_of,
    estimate,
    promise_summary,
    seconds,
    wait_at,
    waits_of,
)
from corral.loads.text import about_exceeding
from corral.results import Result, filled, plain
from corral.trainers.runs.run_config import versions

__all__ = ["FORMAT", "PARTS", "Promise", "Rehearsal", "wait_at"]

FORMAT = 1
"""Version of rehearsal.json."""

HOURS = 24


@dataclass(frozen=True, repr=False)
class Rehearsal(Result):
    """What policies cost, request by request, and how long requests wait. W windows."""

    json_file = "rehearsal.json"
    csv_file = "rehearsal.csv"

    trace: Trace
    settings: dict[str, Any]  # arguments of dfaas_v0
    setting: Setting
    rows: tuple[int, int]
    window: int  # steps
    windows: tuple[int, ...]  # numbers of the windows played
    requests: Array  # int64 [W]
    needs: dict[str, str]  # by policy
    sums: dict[str, Sums] = field(repr=False)
    promises: dict[str, Promise] = field(repr=False)  # of plans
    costs: dict[str, Array] = field(repr=False)  # float64 [W]
    seed: int = 0
    times: str = "uniform"
    has_log: bool = False  # whether the times of requests are those of a log
    has_sizes: bool = False  # whether the log has sizes
    beyond: dict[str, str] = field(default_factory=dict)
    """By team: its play of numbers above its scales, see ``DfaasRules``."""

    @property
    def baseline(self) -> str:
        """The first policy, with which all others are compared."""
        return next(iter(self.sums))

    @property
    def units(self) -> Units:
        return Units.of(self.trace, self.setting, self.window, self.windows)

    @functools.cached_property
    def summaries(self) -> list[Summary]:
        """The figures of all policies, the cheapest first; of equal costs the shorter waits."""
        ordered = sorted(
            self.sums,
            key=lambda policy: (self.costs[policy].sum(), self.sums[policy].mean_wait.sum()),
        )
        return [self._summary(policy) for policy in ordered]

    def _summary(self, policy: str) -> Summary:
        sums, cost, units = self.sums[policy], self.costs[policy], self.units
        promise = self.promises.get(policy)
        baseline, load = self.costs[self.baseline], self.requests
        return Summary(
            policy=policy,
            needs=self.needs[policy],
            cost=estimate(cost, load, units),
            difference=(
                None if policy == self.baseline else difference_of(cost, baseline, load, units)
            ),
            lost=estimate(sums.counts["lost"], load, units),
            refused=estimate(sums.counts["refused"], load, units),
            forwarded=estimate(sums.counts["forwarded"], load, units),
            lost_share=float(sums.counts["lost"].sum()) / max(1, int(self.requests.sum())),
            waits=waits_of(sums, self.setting, units),
            promise=None if promise is None else promise_summary(promise, cost, load, units),
        )

    # --- Text -------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return costs, losses and waits of all policies, for a terminal of 80 columns."""
        return screen.cost_table(self.summaries, self.baseline, self.units)

    def tables(self) -> list[Table]:
        """Return ``table``, the waits, and the promises of plans, for 80 columns each."""
        tables = [self.table(), screen.waits_table(self.summaries, self.units)]
        if self.promises:
            tables.append(screen.promise_table(self.summaries, self.units))
        return tables

    def verdict(self) -> list[str]:
        """Return sentences on the cheapest policy, and on the plan that is furthest from its
        promise."""
        return [
            *screen.cheapest(self.summaries, self.baseline, self.units),
            *screen.promise_lines(self.summaries, self.units),
        ]

    def about(self) -> list[str]:
        """Return sentences on how the rehearsal was played, and on the knowledge of nodes."""
        low, high = self.rows
        return [
            screen.about_load(self.trace, low, high, int(self.requests.sum())),
            screen.about_windows(self.windows, self.window, high - low, self.units),
            screen.about_setting(
                self.setting,
                self.units,
                work="sizes" if self.has_sizes else self.setting.work,
                times="log" if self.has_log else self.times,
                seed=self.seed,
            ),
            *screen.about_arguments(self.settings),
            screen.about_waits(self.units),
            *screen.about_knowledge(self.needs),
            *(
                f"{policy}: {about_exceeding(self.beyond[policy], number, self._steps)}"
                for policy, number in self.exceeding.items()
                if number
            ),
        ]

    @property
    def exceeding(self) -> dict[str, int]:
        """By team: the number of steps in which it observed a number above its scale."""
        return {policy: int(self.sums[policy].exceeding.sum()) for policy in self.beyond}

    @property
    def _steps(self) -> int:
        return len(self.windows) * self.window

    def lines(self) -> list[str]:
        """Return sentences on how the rehearsal was played, and the verdict."""
        return [*self.about(), *self.verdict()]

    # --- Files ------------------------------------------------------------------------------------

    def text(self, width: int = 80) -> str:
        """Return ``lines`` in lines of at most ``width``."""
        return filled(self.lines(), width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each policy and window: counts of requests, cost, mean times in
        steps, and for plans the promise of the replay and the parts of the difference."""
        frames = []
        first_row = self.rows[0] + self.window * np.array(self.windows)
        for label, sums in self.sums.items():
            frame = pd.DataFrame({"policy": label, "window": list(self.windows)})
            frame["first_row"] = first_row
            for name, values in sums.counts.items():
                frame[name] = values
            frame["held"], frame["in_flight"] = sums.held, sums.in_flight
            frame["mean_wait"], frame["mean_stay"] = sums.mean_wait, sums.mean_stay
            if self.beyond:
                frame["exceeding"] = sums.exceeding
            frame["cost"] = self.costs[label]
            frame["difference"] = self.costs[label] - self.costs[self.baseline]
            promise = self.promises.get(label)
            if self.promises:
                frame["promise"] = np.nan if promise is None else promise.cost
                for name in PARTS:
                    frame[name] = np.nan if promise is None else promise.parts[name]
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_json(self) -> dict[str, Any]:
        """Return the content of rehearsal.json: requests a window, and times in ``time_unit``."""
        trace, (low, high), units = self.trace, self.rows, self.units
        policies = []
        for summary in self.summaries:
            values = plain(summary)
            values["by_hour"] = self.by_hour(summary.policy)
            policies.append(values)
        values = {
            "format": FORMAT,
            "trace": {
                "name": trace.name,
                "digest": trace.digest,
                "nodes": list(trace.nodes),
                "rows": [low, high],
                "from": trace.clock_text(low),
                "to": trace.clock_text(high - 1),
            },
            "settings": {k: v for k, v in self.settings.items() if k != "trace"},
            "setting": dataclasses.asdict(self.setting),
            "window": self.window,
            "windows": list(self.windows),
            "requests": self.requests,
            "seed": self.seed,
            "times": self.times,
            "has_log": self.has_log,
            "has_sizes": self.has_sizes,
            "unit": units.a_day,
            "time_unit": units.time,
            "deadline": units.deadline,
            "baseline": self.baseline,
            "beyond": self.beyond,
            "exceeding": self.exceeding,
            "policies": policies,
            "lines": self.lines(),
            "versions": versions(learning=False),
        }
        plain_values: dict[str, Any] = plain(values)
        return plain_values

    def texts(self) -> dict[str, str]:
        """Return rehearsal.json, rehearsal.csv and report.html."""
        return {**super().texts(), "report.html": self._page()}

    def _page(self) -> str:
        by_hour = {policy: self.by_hour(policy) for policy in self.sums}
        return report.page_of(
            f"Rehearsal of {self.trace.name}",
            verdict=self.verdict(),
            about=self.about(),
            summaries=self.summaries,
            baseline=self.baseline,
            units=self.units,
            waits={policy: sums.waits.sum(axis=0) for policy, sums in self.sums.items()},
            by_hour={policy: hours for policy, hours in by_hour.items() if hours is not None},
            first_hour=self._hours(),
        )

    def _hours(self) -> str:
        """Return the label of the axis of hours."""
        low = self.rows[0]
        clock = self.trace.clock_text(low)[-5:]
        return "hour of the day, UTC" if clock == "00:00" else f"hours after {clock} UTC"

    @property
    def has_hours(self) -> bool:
        """Whether waits are known by the hour: windows are days of whole hours, and requests wait
        less than steps."""
        is_day = self.window == self.trace.steps_per_day and self.window % HOURS == 0
        return is_day and self.setting.service == "rate"

    def by_hour(self, policy: str) -> dict[str, list[float | None]] | None:
        """Return p50 and p95 of the waits by hours since the start of a day, 24 each; None if
        windows are not days."""
        if not self.has_hours:
            return None
        waits, units = self.sums[policy].waits, self.units
        return {
            name: [seconds(part, share, self.setting, units) for part in waits]
            for name, share in (("p50", 0.5), ("p95", 0.95))
        }
