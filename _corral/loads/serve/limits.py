"""Limits on requests and connections, with counters and log lines for refusals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter
from pydantic_core import to_json

__all__ = ["LIMITS", "STATUSES", "Limits", "Refusals", "refusal"]

LIMITS = (
    "host",  # the Host header has no allowed name
    "origin",  # a request from a page of another site
    "content_type",  # the body is not declared as JSON
    "header_bytes",
    "header_seconds",
    "body_bytes",
    "body_seconds",
    "cut",  # the client disconnected within a body
    "answer_seconds",  # the client does not read its response
    "connections",  # a connection was closed for a newer one
    "busy",  # too many large requests are waiting
    "http",  # not HTTP
)
STATUSES = (400, 403, 408, 413, 415, 421, 422, 431, 503)
"""Status codes of refusals."""

LOG_SECONDS = 10.0
"""Seconds between two log lines of one limit, so that refusals cannot fill the log."""

_log = logging.getLogger("corral.serve")


@dataclass(frozen=True)
class Limits:
    """The limits of one server."""

    header_bytes: int = 16_384
    connections: int = 256
    seconds: float = 10.0
    """For the headers of a request, for its body, and for the client to read the response."""
    waiting: int = 32
    """Number of large requests that may wait for their turn."""
    held_bytes: int = 32 << 20
    """Bytes of bodies and responses in memory; above this, further large requests are refused."""


class Refusals:
    """Counts refusals by limit, and logs them."""

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        refused = Counter(
            "corral_refused", "Requests that were refused.", ["status"], registry=registry
        )
        limited = Counter("corral_limited", "Refusals by limit.", ["limit"], registry=registry)
        self.refused = {status: refused.labels(status=str(status)) for status in STATUSES}
        self.limited = {limit: limited.labels(limit=limit) for limit in LIMITS}
        self._clock = clock
        self._logged = dict.fromkeys(LIMITS, -LOG_SECONDS)
        self._silent = dict.fromkeys(LIMITS, 0)

    def bite(self, limit: str, detail: str) -> None:
        """Count a refusal by ``limit``; log ``detail``, unless a line was logged recently."""
        self.limited[limit].inc()
        now = self._clock()
        if now - self._logged[limit] < LOG_SECONDS:
            self._silent[limit] += 1
            return
        more = f" ({self._silent[limit]:,} more since the last line)" if self._silent[limit] else ""
        self._logged[limit], self._silent[limit] = now, 0
        _log.warning("limit %s: %s%s", limit, detail, more)


def refusal(field: str, message: str) -> bytes:
    """Return the body of a refusal: JSON with the field and the message."""
    return bytes(to_json({"detail": [{"field": field, "message": message}]}))
