"""Keep the requests that an importer counts, and write them as a request log."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np

from corral.data.importers.binning import counted
from corral.data.request_log import RequestLog, write_request_log
from corral.data.trace import Trace
from corral.data.write import check_csv_path

__all__ = ["KeptRequests"]

MICRO = 10**6
"""Microseconds per second. Times are kept as whole microseconds, so that steps are exact."""


class KeptRequests:
    """The requests of an import, to be written to ``path`` when the range of the trace is known.

    They take 12 bytes each, or 20 with their work. Raises ValueError for a suffix other than .csv
    and .csv.gz, FileExistsError if ``path`` exists and ``overwrite`` is not set.
    """

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        self.path, self.overwrite = Path(path), overwrite
        check_csv_path(self.path, overwrite=overwrite)
        self.codes: dict[str, int] = {}  # node -> its number, by first appearance
        self.time, self.node, self.work = array("q"), array("i"), array("d")
        self.is_truncated = False  # whether a time had a fraction of a microsecond

    def add(self, node: str, seconds: int, nanoseconds: int, work: float | None) -> None:
        """Add a request at ``seconds`` since 1970-01-01 UTC; ``work`` for all requests or none."""
        micros, rest = divmod(nanoseconds, 1000)
        self.is_truncated = self.is_truncated or rest > 0
        self.time.append(seconds * MICRO + micros)
        self.node.append(self.codes.setdefault(node, len(self.codes)))
        if work is not None:
            self.work.append(work)

    def write(self, trace: Trace, step: int) -> list[str]:
        """Write the requests in the time range of ``trace``, sorted by time. Return notes.

        Requests with equal times stay in the order in which they were added.
        """
        time = np.frombuffer(self.time, dtype=np.int64)
        begin, end = int(trace.times[0]) * MICRO, (int(trace.times[-1]) + step) * MICRO
        rows = np.flatnonzero((time >= begin) & (time < end))
        rows = rows[np.argsort(time[rows], kind="stable")]
        place = {node: index for index, node in enumerate(trace.nodes)}
        index_of = np.array([place[node] for node in self.codes], dtype=np.int32)
        work = np.frombuffer(self.work)[rows] if self.work else None
        log = RequestLog(
            nodes=trace.nodes,
            node=index_of[np.frombuffer(self.node, dtype=np.int32)[rows]],
            time=time[rows] / MICRO,
            work=work,
        )
        write_request_log(log, self.path, overwrite=self.overwrite)
        columns = "time and node" if work is None else "time, node and work"
        notes = [f"{self.path}: {columns} of {counted(len(log), 'request')}"]
        if self.is_truncated:
            notes.append(f"{self.path}: times were truncated to microseconds")
        return notes
