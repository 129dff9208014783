"""The settings of a rehearsal, in the units of the trace's clock, and in steps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from corral.data import Trace
from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of

__all__ = ["Service", "Setting", "Work"]

Service = Literal["rate", "step"]
Work = Literal["deterministic", "exponential"]

MAX_BOARDS = 10_000
"""Maximum number of boards on their way: the age of reports divided by their period."""


@dataclass(frozen=True)
class Setting:
    """How servers, links and reports behave in a rehearsal; docs/rehearsal.md defines it exactly.

    Times are in seconds if the trace has a clock, else in steps. Raises ValueError for a value out
    of range.
    """

    service: Service = "rate"
    """"rate": a server serves one request after the other. "step": the game of the replay, in which
    a node serves its capacity at the end of each step."""
    work: Work = "deterministic"
    """Work of requests without sizes: 1 each, or exponentially distributed with mean 1."""
    servers: int = 1
    """Servers of a node, which share its capacity."""
    places: int | None = None
    """Waiting places of a node, in addition to its servers. None: the queue limit counts."""
    latency: float = 0.0
    """Time that a forwarded request takes to its target."""
    deadline: float | None = None
    """Waits above it are counted. None: one step."""
    report_period: float = 0.0
    """Time between two reports of backlogs to balancers. 0: backlogs of the moment."""
    report_age: float = 0.0
    """Age at which a report arrives. Needs a ``report_period``."""

    def __post_init__(self) -> None:
        one_of("service", self.service, ("rate", "step"))
        one_of("work", self.work, ("deterministic", "exponential"))
        nonnegative_int("servers", self.servers, least=1)
        if self.places is not None:
            nonnegative_int("places", self.places)
        for name in ("latency", "report_period", "report_age"):
            nonnegative_float(name, getattr(self, name))
        if self.deadline is not None:
            nonnegative_float("deadline", self.deadline)
        if self.report_age and not self.report_period:
            raise ValueError(
                f"report_age={self.report_age:g} needs report_period=, the time between two reports"
            )
        if self.report_period and self.report_age / self.report_period > MAX_BOARDS:
            raise ValueError(
                f"report_age={self.report_age:g} is more than {MAX_BOARDS:,} times "
                f"report_period={self.report_period:g}; give a longer period"
            )
        changed = [
            field.name
            for field in fields(self)
            if field.name not in ("service", "deadline") and vars(self)[field.name] != field.default
        ]
        if self.service == "step" and changed:
            raise ValueError(
                f"service='step' is the game of the replay, without {', '.join(changed)}; leave "
                "them out, or pass service='rate'"
            )

    def in_steps(self, time: float, trace: Trace) -> float:
        """Return a time of these settings in steps of ``trace``."""
        return time / trace.step if trace.clock == "utc" else time
