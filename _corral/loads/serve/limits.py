"""What a server takes from its clients, and what it does not: counted, and told in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter
from pydantic_core import to_json

__all__ = ["LIMITS", "STATUSES", "Limits", "Refusals", "refusal"]

LIMITS = (
    "host",  # no allowed name in the header Host
    "origin",  # a page of another site asks
    "content_type",  # the body is not sent as JSON
    "header_bytes",
    "header_seconds",
    "body_bytes",
    "body_seconds",
    "cut",  # the client went away amid a body
    "answer_seconds",  # the client does not read its answer
    "connections",  # one was closed for a newer one
    "busy",  # more large requests than can wait
    "http",  # not HTTP at all
)
STATUSES = (400, 403, 408, 413, 415, 421, 422, 431, 503)
"""Of answers that refuse a request."""

LOG_SECONDS = 10.0
"""A limit has one line in the log in this time, however often it bites: a log can be filled too."""

_log = logging.getLogger("corral.serve")


@dataclass(frozen=True)
class Limits:
    """Limits of one server."""

    header_bytes: int = 16_384
    connections: int = 256
    seconds: float = 10.0
    """For the headers of a request, for its body, and for the client to read the answer."""
    waiting: int = 32
    """Large requests that wait for their turn."""
    held_bytes: int = 32 << 20
    """Of bodies and answers in memory, above which no further large request is taken."""


class Refusals:
    """Counts how often each limit bites, and logs it."""

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        refused = Counter(
            "corral_refused", "Requests that were refused.", ["status"], registry=registry
        )
        limited = Counter("corral_limited", "Times that a limit bit.", ["limit"], registry=registry)
        self.refused = {status: refused.labels(status=str(status)) for status in STATUSES}
        self.limited = {limit: limited.labels(limit=limit) for limit in LIMITS}
        self._clock = clock
        self._logged = dict.fromkeys(LIMITS, -LOG_SECONDS)
        self._silent = dict.fromkeys(LIMITS, 0)

    def bite(self, limit: str, detail: str) -> None:
        """Count that ``limit`` bit; ``detail`` goes to the log, if it had no line of late."""
        self.limited[limit].inc()
        now = self._clock()
        if now - self._logged[limit] < LOG_SECONDS:
            self._silent[limit] += 1
            return
        more = f" ({self._silent[limit]:,} more since the last line)" if self._silent[limit] else ""
        self._logged[limit], self._silent[limit] = now, 0
        _log.warning("limit %s: %s%s", limit, detail, more)


def refusal(field: str, message: str) -> bytes:
    """Return the body of an answer that refuses a request: JSON with the field and its fault."""
    return bytes(to_json({"detail": [{"field": field, "message": message}]}))
