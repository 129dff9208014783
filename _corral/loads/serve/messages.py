"""Requests of a gateway, and answers: JSON, checked field by field.

With known arrivals:

```json
{"nodes": {"milan": {"arrivals": 12, "capacity": 10, "queue": 0}, "oslo": {...}},
 "previous": {"milan": {"spare": 0, "lost": 2}, "oslo": {...}},
 "state": null}
```

With unknown arrivals "last_arrivals" takes the place of "arrivals": the count of the last step, or
a list of counts, newest first; and "time" says when the step begins.

Numbers are whole, from 0 to a billion. ``queue`` may be left out (0), as may ``previous`` (as at a
start) and ``state``. No key stands twice. Dictionaries come out of it, which are quicker to make
than objects. Nodes are checked one by one, so that no call of pydantic takes long.
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
    NotRequired,  # pydantic reads no other before Python 3.12
    TypeVar,
)

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from corral.files import strict_json
from corral.loads.export.inputs import MOST_COUNTS, DecisionError, slot_of, wrong_form
from corral.loads.serve.guard import Answer

__all__ = ["MOST_BYTES", "MOST_FAULTS", "MOST_NODES", "SMALL", "BadRequest", "Form", "refused"]

MOST_BYTES = 1 << 20
"""Of a request: a thousand nodes take about 150 kB."""
MOST_NODES = 1_000
MOST_ANSWER = 1 << 25
"""Bytes of an answer: a thousand nodes that all forward to each other take 10 to 25 MB."""
MOST_FAULTS = 20
"""That one answer tells."""
SMALL = 4_096
"""Bytes of a request that is read and decided at once: a hundred nodes, a few milliseconds."""
MARKS = {b":": 40 * MOST_NODES, b"{": 4 * MOST_NODES, b"[": 4 * MOST_NODES}
"""Marks that a request may have, in its names too: as Python's values, a body of a megabyte that
has many more takes a hundred."""
DEPTH = 4
"""Levels of objects and lists in a request."""
TOGETHER = 32
"""Nodes whose decisions are written at once."""

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Counts = Annotated[
    Annotated[Count, Tag("count")]
    | Annotated[list[Count], Field(max_length=MOST_COUNTS), Tag("counts")],
    Discriminator(lambda given: "counts" if isinstance(given, list) else "count"),
]
"""The count of the last step, or of several steps, newest first."""
Name = Annotated[str, Field(max_length=200)]
STRICT = ConfigDict(extra="forbid")


class Known(TypedDict):
    """What a node has before it: requests in this step."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    arrivals: Count
    capacity: Count
    queue: NotRequired[Count]


class KnownAndPast(Known):
    """The same with counts of past steps."""

    last_arrivals: Counts


class Unknown(TypedDict):
    """The numbers of a node before the requests of a step arrive."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    last_arrivals: Counts
    capacity: Count
    queue: NotRequired[Count]


class Ended(TypedDict):
    """How a node ended its last step."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    spare: Count
    lost: Count


Node = TypeVar("Node")
Report = TypeVar("Report")


class Asked(TypedDict, Generic[Node, Report]):
    """The body of POST /decide."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    nodes: Annotated[dict[Name, Node], Field(min_length=1, max_length=MOST_NODES)]
    previous: NotRequired[Annotated[dict[Name, Report], Field(max_length=MOST_NODES)] | None]
    state: NotRequired[str | None]


class AskedInTime(Asked[Node, Report], Generic[Node, Report]):
    """The same with the time of the step."""

    time: NotRequired[str | None]


class BadRequest(ValueError):
    """A body that is no request; ``faults`` names each wrong field, and says what is wrong."""

    def __init__(self, faults: list[dict[str, str]], status: int = 422) -> None:
        super().__init__("; ".join(f"{fault['field']}: {fault['message']}" for fault in faults))
        self.faults, self.status = faults, status

    @classmethod
    def of(cls, field: str, message: str, status: int = 422) -> BadRequest:
        return cls([{"field": field, "message": message}], status)


@dataclass(frozen=True)
class Form:
    """What requests and answers of one service are made of."""

    arrivals: Literal["known", "unknown"] = "known"
    last_counts: int | None = 0  # past counts that are observed; None: any number may be sent
    timed: bool = False  # whether the time is observed

    @classmethod
    def of(cls, about: Mapping[str, Any], rule: bool = False) -> Form:
        """Return the form of a team, or of a ``rule`` for its nodes, with what ``about_rules`` of
        ``corral.loads.export`` tells."""
        counts = about.get("last_counts", 0)
        timed = not rule and about.get("daily_mean") is not None
        return cls(about.get("arrivals", "known"), None if rule and counts else counts, timed)

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the request that a body holds. Raises BadRequest."""
        asked = self._small(body) if len(body) <= SMALL else self._large(body)
        for name in asked.get("previous") or ():
            if name not in asked["nodes"]:
                raise BadRequest.of(f"previous.{name}", "no node of this name is among nodes")
        if self.last_counts:
            for name, node in asked["nodes"].items():
                self._check_counts(name, node["last_arrivals"])
        if self.arrivals == "unknown" or self.timed:
            self._check_time(asked.get("time"))
        return asked

    def _small(self, body: bytes) -> dict[str, Any]:
        try:
            asked: dict[str, Any] = self._adapter.validate_json(body)
        except ValidationError as error:
            raise BadRequest(self._faults(error)) from None
        keys, parts = len(asked), (asked["nodes"], asked.get("previous") or {})
        for part in parts:
            keys += len(part) + sum(map(len, part.values()))
        if body.count(b":") != keys:  # no fewer: a key twice, or colons in texts
            _parsed(body)
        return asked

    def _large(self, body: bytes) -> dict[str, Any]:
        """Return the same, by calls that are all short."""
        for mark, most in MARKS.items():
            if body.count(mark) > most:
                raise BadRequest.of("body", f"more than {most:,} times {mark.decode()}")
        asked: dict[str, Any] = _parsed(body)
        _require_few(asked)
        faults: list[dict[str, str]] = []
        try:
            self._outside.validate_python(asked)
        except ValidationError as error:
            raise BadRequest(self._faults(error)) from None
        for key, adapter in (("nodes", self._node), ("previous", self._ended)):
            for name, part in (asked.get(key) or {}).items():
                try:
                    adapter.validate_python(part)
                except ValidationError as error:
                    faults += self._faults(error, key, name)
                    if len(faults) >= MOST_FAULTS:
                        raise BadRequest(faults[:MOST_FAULTS]) from None
        if faults:
            raise BadRequest(faults)
        return asked

    def answered(self, answer: Answer, state: str | None) -> bytes:
        """Return the body of an answer. Raises BadRequest for one that is too large."""
        key = b"forward" if self.arrivals == "known" else b"plan"
        decision = [*answer.decision.items()]
        parts, size = [], 0
        for first in range(0, len(decision), TOGETHER):  # other threads may run in between
            parts.append(to_json(dict(decision[first : first + TOGETHER]))[1:-1])
            size += len(parts[-1])
            if size > MOST_ANSWER:
                raise BadRequest.of(
                    "nodes", f"the answer would take more than {MOST_ANSWER:,} bytes"
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
        """Of a request."""
        kind, node = self._kinds
        return TypeAdapter(kind[node, Ended])

    @cached_property
    def _outside(self) -> TypeAdapter[Any]:
        """Of a request with any nodes and reports."""
        return TypeAdapter(self._kinds[0][Any, Any])

    @cached_property
    def _node(self) -> TypeAdapter[Any]:
        return TypeAdapter(self._kinds[1])

    @cached_property
    def _ended(self) -> TypeAdapter[Any]:
        return TypeAdapter(Ended)

    @property
    def _kinds(self) -> tuple[Any, Any]:
        """Of a request, and of its nodes."""
        if self.arrivals == "unknown":
            return AskedInTime, Unknown
        node: Any = Known if self.last_counts == 0 else KnownAndPast
        return AskedInTime if self.timed else Asked, node

    def _faults(self, error: ValidationError, *where: str) -> list[dict[str, str]]:
        """Return the first faults of a value that stands at ``where``."""
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return [self._fault([*where, *each["loc"]], each) for each in found[:MOST_FAULTS]]

    def _fault(self, where: list[Any], found: Any) -> dict[str, str]:
        nodes = where[:1] == ["nodes"]
        if nodes and where[2:3] == ["last_arrivals"]:
            del where[3:4]  # whether it is a count or a list
        message = found["msg"]
        if found["type"] == "extra_forbidden" and nodes and where[2:] in FIELDS:
            message = wrong_form(self.arrivals == "unknown")
        return {"field": (".".join(map(str, where)) or "body")[:300], "message": message}

    def _check_counts(self, name: str, given: int | list[int]) -> None:
        assert self.last_counts is not None
        field, most = f"nodes.{name}.last_arrivals", self.last_counts
        if isinstance(given, list) and len(given) > most:
            raise BadRequest.of(field, f"{len(given)} counts: give {most}, newest first")
        if isinstance(given, int) and most > 1:
            raise BadRequest.of(field, f"give a list of {most} counts, newest first")

    def _check_time(self, time: str | None) -> None:
        if time is None and not self.timed:
            return
        try:
            slot_of(time, 1)
        except DecisionError as error:
            raise BadRequest.of("time", str(error).partition(": ")[2]) from None


FIELDS = (["arrivals"], ["last_arrivals"])
"""Of a node, one of which is of the other form."""


def _parsed(body: bytes) -> Any:
    """Return the JSON value. Raises BadRequest, for keys that stand twice too."""
    try:
        return strict_json(body.decode())
    except ValueError as error:  # no UTF-8 either
        raise BadRequest.of("body", str(error)) from None


def _require_few(value: Any, *where: Any) -> None:
    """Raise BadRequest for an object or a list with more entries than any request has: each could
    be a fault, and listing them takes long. A request has four levels."""
    if not isinstance(value, dict | list) or len(where) == DEPTH:
        return
    if len(value) > MOST_NODES:
        field = ".".join(map(str, where))[:300] or "body"
        raise BadRequest.of(field, f"{len(value):,} entries: give {MOST_NODES:,} at most")
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        _require_few(part, *where, key)


def refused(error: BadRequest) -> bytes:
    """Return the body that says what is wrong with a request."""
    return to_json({"detail": error.faults})
