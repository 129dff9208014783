"""Requests of a gateway, and responses: JSON, checked field by field.

With known arrivals:

```json
{"nodes": {"milan": {"arrivals": 12, "capacity": 10, "queue": 0}, "oslo": {...}},
 "previous": {"milan": {"spare": 0, "lost": 2}, "oslo": {...}},
 "state": null}
```

With unknown arrivals, "last_arrivals" replaces "arrivals": the count of the last step, or a list of
counts, newest first; and "time" is the start of the step.

Numbers are integers from 0 to a billion. ``queue`` (default 0), ``previous`` (default: as at a
start) and ``state`` are optional. Duplicate keys are refused. Requests become dictionaries, which
are faster to create than objects. Nodes are checked one by one, so that each call of pydantic is
short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NotRequired,  # before Python 3.12, pydantic supports only this one
    TypeVar,
)

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from corral.files import strict_json
from corral.loads.export.inputs import MAX_COUNTS, DecisionError, slot_of, wrong_form
from corral.loads.serve.guard import Answer

__all__ = ["MAX_BYTES", "MAX_FAULTS", "MAX_NODES", "SMALL", "BadRequest", "Form", "refused"]

MAX_BYTES = 1 << 20
"""Maximum bytes of a request: a thousand nodes take about 150 kB."""
MAX_NODES = 1_000
MAX_ANSWER = 1 << 25
"""Maximum bytes of a response: a thousand nodes that all forward to each other take 10 to 25 MB."""
MAX_FAULTS = 20
"""Maximum number of faults in one response."""
SMALL = 4_096
"""Maximum bytes of a request that is decided at once: a hundred nodes, a few milliseconds."""
MARKS = {b":": 40 * MAX_NODES, b"{": 4 * MAX_NODES, b"[": 4 * MAX_NODES}
"""Maximum number of these characters in a request, including those in names. A body of a megabyte
with many more of them would take a hundred megabytes as Python objects."""
DEPTH = 4
"""Maximum nesting of objects and lists in a request."""
TOGETHER = 32
"""Number of nodes with decisions that are serialized in one call."""

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Counts = Annotated[
    Annotated[Count, Tag("count")]
    | Annotated[list[Count], Field(max_length=MAX_COUNTS), Tag("counts")],
    Discriminator(lambda given: "counts" if isinstance(given, list) else "count"),
]
"""The count of the last step, or of several steps, newest first."""
Name = Annotated[str, Field(max_length=200)]
STRICT = ConfigDict(extra="forbid")


class Known(TypedDict):
    """The numbers of a node at the start of a step with known arrivals."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    arrivals: Count
    capacity: Count
    queue: NotRequired[Count]


class KnownAndPast(Known):
    """The same, with counts of past steps."""

    last_arrivals: Counts


class Unknown(TypedDict):
    """The numbers of a node at the start of a step with unknown arrivals."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    last_arrivals: Counts
    capacity: Count
    queue: NotRequired[Count]


class Ended(TypedDict):
    """The report of a node after its last step."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    spare: Count
    lost: Count


Node = TypeVar("Node")
Report = TypeVar("Report")


class Asked(TypedDict, Generic[Node, Report]):
    """The body of POST /decide."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    nodes: Annotated[dict[Name, Node], Field(min_length=1, max_length=MAX_NODES)]
    previous: NotRequired[Annotated[dict[Name, Report], Field(max_length=MAX_NODES)] | None]
    state: NotRequired[str | None]


class AskedInTime(Asked[Node, Report], Generic[Node, Report]):
    """The same, with the time of the step."""

    time: NotRequired[str | None]


class BadRequest(ValueError):
    """A body that is not a valid request; ``faults`` has each invalid field with a message."""

    def __init__(self, faults: list[dict[str, str]], status: int = 422) -> None:
        super().__init__("; ".join(f"{fault['field']}: {fault['message']}" for fault in faults))
        self.faults, self.status = faults, status

    @classmethod
    def of(cls, field: str, message: str, status: int = 422) -> BadRequest:
        return cls([{"field": field, "message": message}], status)


@dataclass(frozen=True)
class Form:
    """The format of the requests and responses of one service."""

    arrivals: Literal["known", "unknown"] = "known"
    last_counts: int | None = 0  # number of past counts that are observed; None: any number
    timed: bool = False  # whether the time is observed

    @classmethod
    def of(cls, about: Mapping[str, Any], rule: bool = False) -> Form:
        """Return the form for a team, or for a ``rule`` on its nodes, from ``about_rules`` of
        ``corral.loads.export``."""
        counts = about.get("last_counts", 0)
        timed = not rule and about.get("daily_mean") is not None
        return cls(about.get("arrivals", "known"), None if rule and counts else counts, timed)

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the request in a body. Raises BadRequest."""
        request = self._small(body) if len(body) <= SMALL else self._large(body)
        for name in request.get("previous") or ():
            if name not in request["nodes"]:
                raise BadRequest.of(f"previous.{name}", "this node is missing in nodes")
        if self.last_counts:
            for name, node in request["nodes"].items():
                self._check_counts(name, node["last_arrivals"])
        if self.arrivals == "unknown" or self.timed:
            self._check_time(request.get("time"))
        return request

    def _small(self, body: bytes) -> dict[str, Any]:
        try:
            request: dict[str, Any] = self._adapter.validate_json(body)
        except ValidationError as error:
            raise BadRequest(self._faults(error)) from None
        keys, parts = len(request), (request["nodes"], request.get("previous") or {})
        for part in parts:
            keys += len(part) + sum(map(len, part.values()))
        if body.count(b":") != keys:  # more colons than keys: a duplicate key, or colons in texts
            _parsed(body)
        return request

    def _large(self, body: bytes) -> dict[str, Any]:
        """Return the same, using only short calls."""
        for mark, most in MARKS.items():
            if body.count(mark) > most:
                raise BadRequest.of("body", f"more than {most:,} times {mark.decode()}")
        request: dict[str, Any] = _parsed(body)
        _require_few(request)
        faults: list[dict[str, str]] = []
        try:
            self._outside.validate_python(request)
        except ValidationError as error:
            raise BadRequest(self._faults(error)) from None
        for key, adapter in (("nodes", self._node), ("previous", self._ended)):
            for name, part in (request.get(key) or {}).items():
                try:
                    adapter.validate_python(part)
                except ValidationError as error:
                    faults += self._faults(error, key, name)
                    if len(faults) >= MAX_FAULTS:
                        raise BadRequest(faults[:MAX_FAULTS]) from None
        if faults:
            raise BadRequest(faults)
        return request

    def answered(self, answer: Answer, state: str | None) -> bytes:
        """Return the body of a response. Raises BadRequest if it is too large."""
        key = b"forward" if self.arrivals == "known" else b"plan"
        decision = [*answer.decision.items()]
        parts, size = [], 0
        for first in range(0, len(decision), TOGETHER):  # other threads may run between the parts
            parts.append(to_json(dict(decision[first : first + TOGETHER]))[1:-1])
            size += len(parts[-1])
            if size > MAX_ANSWER:
                raise BadRequest.of(
                    "nodes", f"the response would take more than {MAX_ANSWER:,} bytes"
                )
        rest = {
            "by": answer.by,
            "reason": answer.reason,
            "detail": answer.detail,
            "state": state,
            "restarted": answer.state is not None and answer.state.restarted,
        }
        return b'{"%s":{%s},%s' % (key, b",".join(parts), to_json(rest)[1:])

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a request."""
        return self._adapter.json_schema()

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        """The adapter of a request."""
        kind, node = self._kinds
        return TypeAdapter(kind[node, Ended])

    @cached_property
    def _outside(self) -> TypeAdapter[Any]:
        """The adapter of a request with any nodes and reports."""
        return TypeAdapter(self._kinds[0][Any, Any])

    @cached_property
    def _node(self) -> TypeAdapter[Any]:
        return TypeAdapter(self._kinds[1])

    @cached_property
    def _ended(self) -> TypeAdapter[Any]:
        return TypeAdapter(Ended)

    @property
    def _kinds(self) -> tuple[Any, Any]:
        """The types of a request and of its nodes."""
        if self.arrivals == "unknown":
            return AskedInTime, Unknown
        node: Any = Known if self.last_counts == 0 else KnownAndPast
        return AskedInTime if self.timed else Asked, node

    def _faults(self, error: ValidationError, *path: str) -> list[dict[str, str]]:
        """Return the first faults of the value at ``path``."""
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        return [
            self._fault([*path, *error_part["loc"]], error_part)
            for error_part in errors[:MAX_FAULTS]
        ]

    def _fault(self, path: list[Any], error_part: Any) -> dict[str, str]:
        nodes = path[:1] == ["nodes"]
        if nodes and path[2:3] == ["last_arrivals"]:
            del path[3:4]  # pydantic's tag: count or counts
        message = error_part["msg"]
        if error_part["type"] == "extra_forbidden" and nodes and path[2:] in FIELDS:
            message = wrong_form(self.arrivals == "unknown")
        return {"field": (".".join(map(str, path)) or "body")[:300], "message": message}

    def _check_counts(self, name: str, counts: int | list[int]) -> None:
        assert self.last_counts is not None
        field, most = f"nodes.{name}.last_arrivals", self.last_counts
        if isinstance(counts, list) and len(counts) > most:
            raise BadRequest.of(field, f"{len(counts)} counts: send {most}, newest first")
        if isinstance(counts, int) and most > 1:
            raise BadRequest.of(field, f"send a list of {most} counts, newest first")

    def _check_time(self, time: str | None) -> None:
        if time is None and not self.timed:
            return
        try:
            slot_of(time, 1)
        except DecisionError as error:
            raise BadRequest.of("time", str(error).partition(": ")[2]) from None


FIELDS = (["arrivals"], ["last_arrivals"])
"""Fields of a node that exist only with known or only with unknown arrivals."""


def _parsed(body: bytes) -> Any:
    """Return the JSON value. Raises BadRequest, also for duplicate keys."""
    try:
        return strict_json(body.decode())
    except ValueError as error:  # invalid JSON or UTF-8
        raise BadRequest.of("body", str(error)) from None


def _require_few(value: Any, *path: Any) -> None:
    """Raise BadRequest for an object or a list with more entries than a valid request has: each
    entry could be a fault, and listing them takes long."""
    if not isinstance(value, dict | list) or len(path) == DEPTH:
        return
    if len(value) > MAX_NODES:
        field = ".".join(map(str, path))[:300] or "body"
        raise BadRequest.of(field, f"{len(value):,} entries: send at most {MAX_NODES:,}")
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        _require_few(part, *path, key)


def refused(error: BadRequest) -> bytes:
    """Return the body of a response with the faults of a request."""
    return to_json({"detail": error.faults})
