"""A shadow: the rule decides, and a log tells what the team would have done.

One JSON object a line:

| key | value |
|---|---|
| ``time`` | when it was decided, UTC |
| ``nodes``, ``previous`` | what was asked |
| ``step_time`` | the time that was sent with it, if one was |
| ``rule``, ``team`` | requests by node and other node, or plans; ``team`` is null if not asked |
| ``reason``, ``detail`` | why the team's answer would not have counted, see ``guard``; else null |
| ``difference`` | requests that the team would have placed elsewhere, here or there; else null |

Between two plans the difference is of the requests of the last step, as if they came again: see
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
"""Bytes after which a log goes on in a new file; the full one is kept as FILE.1, one of them."""


def difference(one: Decision, other: Decision) -> int:
    """Return the requests that ``one`` places elsewhere than ``other``, a node of their own
    included: 5 that are forwarded and not kept are 5, as are 5 that go to another neighbour."""
    total = 0
    for name in one.keys() | other.keys():
        mine, theirs = one.get(name, {}), other.get(name, {})
        more = [mine.get(to, 0) - theirs.get(to, 0) for to in mine.keys() | theirs.keys()]
        total += max(sum(d for d in more if d > 0), sum(-d for d in more if d < 0))
    return total


class ShadowLog:
    """A file of JSON lines that is appended to, and starts anew where it has become large.

    ``failures`` counts lines that could not be written: a full disk must not stop decisions.
    """

    def __init__(self, path: str | Path, largest: int = LARGEST) -> None:
        """Open the file, which is made where there is none. Raises OSError, FileError for what is
        no regular file."""
        self.path, self.largest = Path(path), largest
        self.failures = 0
        self._lock = threading.Lock()  # a server decides in two threads
        self._open()

    def write(self, line: dict[str, Any]) -> None:
        """Append a line, so that a process that is killed has lost none."""
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
        if self._size and self._size + len(text) > self.largest:  # ASCII: as many bytes
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
    """Decides by the rule, and logs the team's answer as well. ``guard`` holds both; ``placing``
    carries their answers out if they are plans."""

    def __init__(self, guard: Guard, log: ShadowLog, placing: Placing | None = None) -> None:
        self.guard, self.log, self.placing = guard, log, placing

    def decide(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return the rule's answer, with the team's memory, and why its answer would not count."""
        given = (nodes, previous, None) if time is None else (nodes, previous, None, time)
        decision, _ = self.guard.rule(*given)
        team = self.guard.asked(nodes, previous, state, time)
        elsewhere = None
        if team.reason is None:
            answers = [team.decision, decision]
            if self.placing is not None:
                answers = [self.placing.offers(each, nodes, previous) for each in answers]
            elsewhere = difference(*answers)
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
                "difference": elsewhere,
            }
        )
        return replace(team, decision=decision, by="rule", difference=elsewhere)
