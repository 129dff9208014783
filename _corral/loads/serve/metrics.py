"""What a server counts, for Prometheus. docs/gateway.md says what to watch of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from corral.loads.serve.guard import REASONS, Answer, Numbers, newest
from corral.loads.serve.limits import Refusals

__all__ = ["Metrics"]

SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)


class Metrics:
    """The counters of one server, in a registry of their own."""

    def __init__(
        self, info: Mapping[str, str], unlogged: Callable[[], int], plans: bool = False
    ) -> None:
        """``info`` is told as labels of corral_info, ``unlogged`` asked for the lines of a shadow's
        log that could not be written. ``plans``: arrivals are unknown; then no one can tell how
        many requests a plan forwards, and corral_forwarded_total is left out."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        here: dict[str, Any] = {"registry": self.registry}
        Gauge("corral_info", "What is served; always 1.", [*info], **here).labels(**info).set(1)
        decided = Counter("corral_decisions", "Decisions by who made them.", ["by"], **here)
        fallback = Counter(
            "corral_fallbacks",
            "Answers a team had no say in, and other nodes, by why.",
            ["reason"],
            **here,
        )
        self.decided = {by: decided.labels(by=by) for by in ("team", "rule")}
        self.fallback = {reason: fallback.labels(reason=reason) for reason in REASONS}
        self.refusals = Refusals(self.registry)
        self.seconds = Histogram(
            "corral_decision_seconds", "Time to decide.", buckets=SECONDS, **here
        )
        arrived = "Requests of users that arrived."
        if plans:
            arrived = "Requests of users that arrived in the steps before decisions."
        self.arrived = Counter("corral_arrivals", arrived, **here)
        self.forwarded: Counter | None = None
        if not plans:
            self.forwarded = Counter("corral_forwarded", "Of these, forwarded.", **here)
        self.differed = Counter(
            "corral_shadow_difference", "Requests the team would have placed elsewhere.", **here
        )
        lost = Gauge("corral_shadow_unlogged", "Lines that could not be written.", **here)
        lost.set_function(unlogged)

    def count(self, nodes: Numbers, answer: Answer, seconds: float) -> None:
        """Count a decision that took so long."""
        self.decided[answer.by].inc()
        if answer.reason is not None:
            self.fallback[answer.reason].inc()
        self.seconds.observe(seconds)
        self.arrived.inc(sum(newest(node) for node in nodes.values()))
        if self.forwarded is not None:
            self.forwarded.inc(sum(sum(parts.values()) for parts in answer.forward.values()))
        if answer.difference:
            self.differed.inc(answer.difference)

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self.registry)
