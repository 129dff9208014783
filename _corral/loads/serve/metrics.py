"""The metrics of a server, for Prometheus. docs/gateway.md explains which ones to watch."""

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
    """The counters of one server, in a separate registry."""

    def __init__(
        self, info: Mapping[str, str], unlogged: Callable[[], int], plans: bool = False
    ) -> None:
        """Create the counters.

        ``info``: labels of corral_info. ``unlogged``: returns the number of lines that could not be
        written to a shadow's log. ``plans``: arrivals are unknown; the number of forwarded requests
        is then unknown too, and corral_forwarded_total is omitted.
        """
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        options: dict[str, Any] = {"registry": self.registry}
        Gauge("corral_info", "The served run; always 1.", [*info], **options).labels(**info).set(1)
        decided = Counter("corral_decisions", "Decisions, by team or rule.", ["by"], **options)
        fallback = Counter(
            "corral_fallbacks",
            "Decisions by the rule instead of the team, and other nodes, by reason.",
            ["reason"],
            **options,
        )
        self.decided = {by: decided.labels(by=by) for by in ("team", "rule")}
        self.fallback = {reason: fallback.labels(reason=reason) for reason in REASONS}
        self.refusals = Refusals(self.registry)
        self.seconds = Histogram(
            "corral_decision_seconds", "Time to decide.", buckets=SECONDS, **options
        )
        arrived = "User requests that arrived."
        if plans:
            arrived = "User requests that arrived in the steps before the decisions."
        self.arrived = Counter("corral_arrivals", arrived, **options)
        self.forwarded: Counter | None = None
        if not plans:
            self.forwarded = Counter("corral_forwarded", "Forwarded user requests.", **options)
        self.differed = Counter(
            "corral_shadow_difference",
            "Requests the team would have placed differently.",
            **options,
        )
        lost = Gauge("corral_shadow_unlogged", "Log lines that could not be written.", **options)
        lost.set_function(unlogged)

    def count(self, nodes: Numbers, answer: Answer, seconds: float) -> None:
        """Count a decision that took ``seconds``."""
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
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self.registry)
