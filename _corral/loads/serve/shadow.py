"""A shadow: the rule decides, and a log records the team's decisions.

One JSON object a line:

| key | value |
|---|---|
| ``time`` | time of the decision, UTC |
| ``nodes``, ``previous`` | from the request |
| ``step_time`` | the time in the request, if there was one |
| ``rule``, ``team`` | requests by node and other node, or plans; ``team`` may be null |
| ``reason``, ``detail`` | why the team's decision would be refused, see ``guard``; else null |
| ``difference`` | requests that the team would have placed differently; else null |

For two plans, the difference is computed on the requests of the last step, as if they repeated: see
``corral.loads.serve.placed``.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.files import append_to
from corral.loads.serve.guard import Answer, Decision, Guard, Numbers
from corral.loads.serve.placed import Placing

__all__ = ["Shadow", "ShadowLog", "difference"]

LARGEST = 100_000_000
"""Bytes after which a new log file starts; the full one replaces FILE.1."""


def difference(one: Decision, other: Decision) -> int:
    """Return the number of requests that the two decisions place on different nodes. 5 requests
    that are forwarded instead of kept count as 5, and so do 5 that go to another neighbor."""
    total = 0
    for name in one.keys() | other.keys():
        one_parts, other_parts = one.get(name, {}), other.get(name, {})
        changes = [
            one_parts.get(to, 0) - other_parts.get(to, 0)
            for to in one_parts.keys() | other_parts.keys()
        ]
        total += max(sum(d for d in changes if d > 0), sum(-d for d in changes if d < 0))
    return total


class ShadowLog:
    """A file of JSON lines for appending; a new file starts when it has become large.

    ``failures`` counts lines that could not be written: a full disk must not stop decisions.
    """

    def __init__(self, path: str | Path, largest: int = LARGEST) -> None:
        """Open the file, and create it if missing. Raises OSError, FileError if it is not a regular
        file."""
        self.path, self.largest = Path(path), largest
        self.failures = 0
        self._lock = threading.Lock()  # a server decides in two threads
        self._open()

    def write(self, line: dict[str, Any]) -> None:
        """Append a line and flush it, so that a killed process loses no lines."""
        text = json.dumps(line, separators=(",", ":")) + "\n"
        with self._lock:
            try:
                self._append(text)
            except OSError:
                self.failures += 1

    def close(self) -> None:
        self._file.close()

    def _append(self, text: str) -> None:
        if self._file.closed:
            self._open()
        if self._size and self._size + len(text) > self.largest:  # ASCII: one byte per character
            self._file.close()
            os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))
            self._open()
        self._file.write(text)
        self._file.flush()
        self._size += len(text)

    def _open(self) -> None:
        self._file = append_to(self.path)
        self._size = os.fstat(self._file.fileno()).st_size


class Shadow:
    """Decides by the rule, and logs the team's decision. ``guard`` has both; ``placing`` applies
    their plans, if arrivals are unknown."""

    def __init__(self, guard: Guard, log: ShadowLog, placing: Placing | None = None) -> None:
        self.guard, self.log, self.placing = guard, log, placing

    def decide(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return the rule's decision, with the team's memory and the reason for refusing the
        team."""
        arguments = (nodes, previous, None) if time is None else (nodes, previous, None, time)
        decision, _ = self.guard.rule(*arguments)
        team = self.guard.team_answer(nodes, previous, state, time)
        placed_differently = None
        if team.reason is None:
            answers = [team.decision, decision]
            if self.placing is not None:
                answers = [
                    self.placing.offers(decision_of, nodes, previous) for decision_of in answers
                ]
            placed_differently = difference(*answers)
        self.log.write(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                **({} if time is None else {"step_time": time}),
                "nodes": nodes,
                "previous": previous,
                "rule": decision,
                "team": None if team.reason else team.decision,
                "reason": team.reason,
                "detail": team.detail,
                "difference": placed_differently,
            }
        )
        return replace(team, decision=decision, by="rule", difference=placed_differently)
