"""Loads of ladders.py: each has days to fit on, and days after them that judge.

- The load of ``make demo``, NASA's hard days, and ten of the thirty operators.
- A grid of made loads: a base, and settings that change one thing, or a few.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from teams_loads import nasa, operator_split
from textbook import DEMO, DEMO_GAME

from corral.data import Trace, TraceSpec, make_trace
from corral.loads.advise.team import divide

__all__ = ["GRID", "NAMED", "REAL", "Judged", "Setting", "grid_load", "judged_load"]

NAMED = ("21", "22", "23", "28")
"""Operators with a law of one name: one hot server, correlated bursts, weekdays, two time zones."""

REAL = ("demo", "nasa", "0", "19", "18", "8", "16", "20", "27", "25", *NAMED)
"""Loads outside the grid; the six after nasa are ``SIX`` of teams.py."""

NASA_JUDGED = 40
"""Draws that judge, as in hard_days.py."""

LONGEST = {"16": 14}
"""Days of a history that are enough: 12 servers by minutes take more than a CPU minute."""

GRID_DAYS = 21
"""Days of the fit of a made load, and days after them that judge."""


@dataclass(frozen=True)
class Judged:
    """A load with its division, and the settings of dfaas_v0."""

    name: str
    load: Trace
    cut: int  # rows of the fit; the others judge
    window: int
    settings: dict[str, Any]
    days: np.ndarray[Any, Any] | None = None
    """int64 [W, N]: the recorded day of each node in each window that judges; None: its own."""
    shortened: str = ""  # which days of the load were omitted


# --- Demo, NASA, operators -----------------------------------------------------------------------


def judged_load(name: str) -> Judged:
    """Return a load by its name in ``REAL``; arrivals are unknown, so reports have an age."""
    if name == "demo":
        return divided(name, make_trace(DEMO, name="demo"), DEMO_GAME)
    if name == "nasa":
        return nasa_load()
    split = operator_split(int(name), 1)
    settings = {**split.settings, "report_delay": max(1, split.settings["report_delay"])}
    history, most = split.history, LONGEST.get(name)
    shortened = ""
    if most is not None:
        shortened = f"the last {most} of {len(history) // split.window} days"
        history = history.section(len(history) - most * split.window, len(history))
    return divided(name, history, settings, shortened)


def divided(name: str, load: Trace, settings: dict[str, Any], shortened: str = "") -> Judged:
    """Return a load with the division of ``corral advise``."""
    day = load.steps_per_day
    assert day is not None
    division = divide(len(load), day)
    assert division is not None
    return Judged(name, load, division.held_out[0], day, settings, None, shortened)


def nasa_load() -> Judged:
    """Return the first division of NASA's hard days: no day is in two parts."""
    split = nasa(0)
    assert split.days is not None
    later = split.later.arrivals[: NASA_JUDGED * split.window]
    both = np.concatenate([split.history.arrivals, later])
    load = dataclasses.replace(
        split.history,
        arrivals=both,
        capacity=np.full_like(both, split.later.capacity[0, 0]),
        times=np.arange(len(both)),
        name="nasa",
    )
    days = split.days[:NASA_JUDGED]
    return Judged("nasa", load, len(split.history), split.window, split.settings, days)


# --- The grid ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A made load, and its settings of dfaas_v0."""

    name: str
    nodes: int = 5
    mean: float = 60.0  # requests of a node and step
    daily: float = 0.6
    peak_spread: float = 10.0  # hours between the first and the last node's busiest hour
    noise: float = 0.15
    memory: float = 0.7
    shared: float = 0.0
    bursts: float = 0.0  # a node and day
    spread: float = 0.2  # of sizes
    uneven: float = 0.0  # of headrooms
    queue: float = 0.5  # in multiples of ``mean``
    forward_cost: float = 0.2
    report_delay: int = 1
    step: int = 600  # seconds
    ring: bool = False  # whether nodes forward to their two neighbors alone

    def spec(self) -> TraceSpec:
        """Return the law of the load."""
        return TraceSpec(
            nodes=self.nodes,
            days=2 * GRID_DAYS,
            step=self.step,
            seed=31,
            mean=self.mean,
            largest=round(12 * self.mean),
            daily=self.daily,
            peak_spread=self.peak_spread,
            noise=self.noise,
            memory=self.memory,
            shared=self.shared,
            bursts=self.bursts,
            spread=self.spread,
            uneven=self.uneven,
            headroom=1.25,
            weekend=1.0,
            flash_crowds=(0, 0),
            scaling=0.0,
            maintenance=0.0,
        )

    def game(self) -> dict[str, Any]:
        """Return the settings of dfaas_v0."""
        ring = {
            f"node_{k}": [f"node_{(k + step) % self.nodes}" for step in (1, self.nodes - 1)]
            for k in range(self.nodes)
        }
        return {
            "queue": round(self.queue * self.mean),
            "forward_cost": self.forward_cost,
            "second_offer": False,
            "report_delay": self.report_delay,
            **({"neighbours": ring} if self.ring else {}),
        }

    def changes(self) -> str:
        """Return the fields that differ from the base, in words."""
        base = {field.name: field.default for field in dataclasses.fields(self)}
        changed = [
            f"{key} {value}"
            for key, value in vars(self).items()
            if key != "name" and value != base[key]
        ]
        return ", ".join(changed)


@functools.cache
def _grid() -> dict[str, Setting]:
    settings = (
        Setting("base"),
        Setting("3 nodes", nodes=3),
        Setting("20 nodes", nodes=20),
        Setting("ring of 10 nodes", nodes=10, ring=True),
        Setting("unlike capacities", spread=0.8, uneven=0.5),
        Setting("10 requests", mean=10.0),
        Setting("10,000 requests", mean=10_000.0),
        Setting("busy together", peak_spread=0.0, shared=0.8),
        Setting("bursts", daily=0.2, noise=0.5, bursts=6.0),
        Setting("reports of 5 steps", report_delay=5),
        Setting("reports of 10 steps", report_delay=10),
        Setting("costly forwarding", forward_cost=0.5),
        Setting("predictable", daily=0.75, noise=0.05, report_delay=10, forward_cost=0.5),
        Setting(
            "reports of 5 hours",
            nodes=3,
            daily=0.75,
            noise=0.05,
            report_delay=10,
            forward_cost=0.5,
            step=1800,
        ),
    )
    return {setting.name: setting for setting in settings}


GRID = _grid()


def grid_load(setting: Setting) -> Judged:
    """Return a made load: the first 21 days fit, the last 21 judge."""
    load = make_trace(setting.spec(), name=setting.name.replace(" ", "_"))
    day = load.steps_per_day
    assert day is not None
    return Judged(setting.name, load, GRID_DAYS * day, day, setting.game())
