"""What a gateway sends, and what it is answered: JSON, checked field by field.

```json
{"nodes": {"milan": {"arrivals": 12, "capacity": 10, "queue": 0}, "oslo": {...}},
 "previous": {"milan": {"spare": 0, "lost": 2}, "oslo": {...}},
 "state": null}
```

Numbers are whole, from 0 to a billion. ``queue`` may be left out (0), as may ``previous`` (as at a
start) and ``state``. Dictionaries come out of it, which are quicker to make than objects: a request
of three nodes takes 8 µs.
"""

from __future__ import annotations

from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic reads no other before Python 3.12
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from corral.trainers.loads.serve.guard import Answer

__all__ = [
    "MOST_BYTES",
    "MOST_NODES",
    "Asked",
    "BadRequest",
    "answered",
    "read",
    "refused",
    "schema",
]

MOST_BYTES = 1 << 20
"""Of a request: a thousand nodes take about 150 kB."""
MOST_NODES = 1_000

Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Name = Annotated[str, Field(max_length=200)]


class Now(TypedDict):
    """What a node has before it: requests in this step."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    arrivals: Count
    capacity: Count
    queue: NotRequired[Count]


class Ended(TypedDict):
    """How a node ended its last step."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    spare: Count
    lost: Count


class Asked(TypedDict):
    """The body of POST /decide."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    nodes: Annotated[dict[Name, Now], Field(min_length=1, max_length=MOST_NODES)]
    previous: NotRequired[dict[Name, Ended] | None]
    state: NotRequired[str | None]


_ASKED = TypeAdapter(Asked)


class BadRequest(ValueError):
    """A body that is no request; ``faults`` names each wrong field, and says what is wrong."""

    def __init__(self, faults: list[dict[str, str]], status: int = 422) -> None:
        super().__init__("; ".join(f"{fault['field']}: {fault['message']}" for fault in faults))
        self.faults, self.status = faults, status

    @classmethod
    def of(cls, field: str, message: str, status: int = 422) -> BadRequest:
        return cls([{"field": field, "message": message}], status)


def read(body: bytes) -> Asked:
    """Return the request that a body holds. Raises BadRequest."""
    try:
        asked = _ASKED.validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise BadRequest([_fault(each) for each in found[:20]]) from None
    for name in asked.get("previous") or ():
        if name not in asked["nodes"]:
            raise BadRequest.of(f"previous.{name}", "no node of this name is among nodes")
    return asked


def _fault(found: Any) -> dict[str, str]:
    field = ".".join(map(str, found["loc"])) or "body"
    return {"field": field[:300], "message": found["msg"]}


def refused(error: BadRequest) -> bytes:
    """Return the body that says what is wrong with a request."""
    return to_json({"detail": error.faults})


def answered(answer: Answer, state: str | None) -> bytes:
    """Return the body of an answer."""
    return to_json(
        {
            "forward": answer.forward,
            "by": answer.by,
            "reason": answer.reason,
            "detail": answer.detail,
            "state": state,
        }
    )


def schema() -> dict[str, Any]:
    """Return the JSON schema of a request."""
    return _ASKED.json_schema()
