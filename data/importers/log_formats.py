"""The formats of request logs: how a line becomes the time and the node of a request.

To add a format, insert a ``LogFormat`` into ``FORMATS``. A user adds one by ``--pattern``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.data.headers import words_of
from corral.data.importers.tables.columns import choose
from corral.data.importers.tables.documents import table_of_records
from corral.data.importers.tables.entries import flat
from corral.data.importers.tables.roles import NODE, RequestedColumns, same_groups, time_columns
from corral.data.importers.tables.times import UNDATED, style_of
from corral.data.source import HEAD, fault_error, head_of

__all__ = [
    "FORMATS",
    "LINE",
    "NO_SERVER",
    "LogFormat",
    "Split",
    "find_format",
    "log_rows",
    "recognized",
]

GROUPS = ("time", "zone", "node", "count")

Fields = Sequence[Any] | None
"""The time, the node and the number of requests of a line (1 without it): None for a malformed
line, an empty sequence for a comment. A node that is None or "-" means that no server had it."""

Split = Callable[[Sequence[bytes]], list[Fields]]
"""Returns the fields of each line."""

# The patterns match bytes, as requests may be in any encoding. The first time of a line counts:
# (?>...) does not backtrack to a later one. Backtracking never helps here, and would take time
# quadratic in the length of a line.
_CLIENT = rb"\S+ \S+ (?>.*?\[(?P<time>[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9:]{8} [+-][0-9]{4})\] )"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_COMBINED = _CLIENT + _TEXT + rb" (?:[0-9]{3}|-) (?:[0-9]+|-) " + _TEXT + rb" " + _TEXT
_SERVER = rb"(?P<node>(?:[\w.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}|unix:[^\s\",]+)"
_LENGTHS = rb"(?: [-0-9., ]+)?(?: [0-9a-f-]{20,36})?"  # and durations, then an id

LINE = re.compile(_CLIENT + rb'".*" (?:[0-9]{3}|-) (?:[0-9]+|-)(?: .*)?')
"""host ident user [day/month/year:hour:minute:second zone] "request" status bytes, and the other
fields of the Combined format."""


@dataclass(frozen=True)
class LogFormat:
    """One format of log lines: its name, its description, and the pattern of a line.

    The groups of ``pattern`` are ``time``, ``node``, ``count`` (1 without it) and ``zone``, which
    is appended to the time; other groups are unused. A time without its fraction is parsed once a
    second. The pattern ``certain``, by default the same, recognizes the format.
    """

    name: str
    title: str
    pattern: re.Pattern[bytes]
    certain: re.Pattern[bytes] | None = None

    @property
    def names_nodes(self) -> bool:
        return "node" in self.pattern.groupindex

    def recognizes(self, rows: Sequence[bytes]) -> bool:
        """Return True if most of these lines are in the format, and name few nodes."""
        matches = [(self.certain or self.pattern).fullmatch(row) for row in rows]
        nodes = [match["node"] for match in matches if match and match["node"] is not None]
        few = len(rows) < 20 or 2 * len(set(nodes)) <= len(nodes)
        return 2 * len(nodes) > len(rows) and few


FORMATS = {
    log_format.name: log_format
    for log_format in (
        LogFormat(
            "nginx-amplify",
            'NGINX with ua="$upstream_addr" us="$upstream_status"',
            re.compile(_COMBINED + rb' .* ua="(?P<node>[^"]*)" us="[^"]*"(?: .*)?'),
        ),
        LogFormat(
            "nginx-upstream",
            "the Combined log format with $upstream_addr at the end",
            re.compile(
                _COMBINED + rb'(?: (?:.* )?"?' + _SERVER + rb'"?' + _LENGTHS + rb"|(?: .*)?)"
            ),
            re.compile(_COMBINED + rb" (?:.* )?" + _SERVER + _LENGTHS),
        ),
        LogFormat(
            "vhost",
            "the Combined log format after the virtual host",
            re.compile(rb"(?P<node>\S+) " + LINE.pattern),
            re.compile(
                rb"(?P<node>[\w.-]+:[0-9]{1,5}) (?=[^\s.:]*[.:]\S* \S+ \S+ )" + LINE.pattern
            ),
        ),
        LogFormat(
            "alb",
            "the log of an AWS load balancer",
            re.compile(
                rb"(?:(?:https?|h2|grpcs?|wss?) )?(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8})"
                rb"(?:\.[0-9]+)?(?P<zone>Z) \S+ \S+:[0-9]+ (?P<node>\S+)(?: -?[0-9.]+){3}"
                rb'(?: (?:[0-9]+|-)){2} [0-9]+ [0-9]+ ".*'
            ),
        ),
        LogFormat(
            "haproxy",
            "the log of HAProxy",
            re.compile(
                rb"(?>.*?\[(?P<time>[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9:]{8})(?:\.[0-9]+)?\] )"
                rb"\S+ [^\s/]+/(?P<node>\S+) [-+0-9]+(?:/[-+0-9]+){2,4} .*"
            ),
        ),
        LogFormat(
            "envoy",
            "the log of Envoy or Istio",
            re.compile(
                rb"\[(?P<time>[0-9T:-]{19})(?:\.[0-9]+)?(?P<zone>Z|[+-][0-9:]+)\] %b [0-9]+ \S+ "
                rb"(?:\S+ \S+ %b )?[0-9]+ [0-9]+ [0-9]+ \S+(?: %b){4} "
                rb'"(?P<node>[^"]*)"(?: .*)?' % (_TEXT, _TEXT, _TEXT)
            ),
        ),
        LogFormat("combined", "the Common or Combined log format", LINE),
    )
}
"""The formats that are patterns, in order of precedence. Others are ``w3c`` and ``json``."""

NO_SERVER = frozenset(["", "-", "<NOSRV>", "<STATS>"])


def find_format(
    path: Path,
    name: str | None,
    pattern: str | None,
    time_column: str | None,
    node_column: str | None,
    max_bytes: int,
) -> tuple[str, Split, bool]:
    """Return the description of a file's format, its splitter, and if its lines name nodes.

    Raises ValueError for an unknown format, or a pattern that is not a regular expression with a
    group ``time``.
    """
    if pattern is not None:
        if name is not None:
            raise ValueError("pass format= or pattern=, not both")
        try:
            regex = re.compile(pattern.encode())
        except re.error as error:
            raise ValueError(f"pattern={pattern!r} is not a regular expression: {error}") from None
        if "time" not in regex.groupindex:
            raise ValueError(f"pattern={pattern!r} has no group (?P<time>...)")
        unused = [group for group in regex.groupindex if group not in GROUPS]
        title = "the pattern" + (f"; unused groups: {', '.join(unused)}" if unused else "")
        return title, _split(regex, regex.search), "node" in regex.groupindex
    rows = log_rows(head_of(path, max_bytes=max_bytes))
    name = name or recognized(rows) or "combined"
    if name == "w3c":
        fields = _Fields(path, node_column, rows)
        return "the format of #Fields", fields, fields.named
    if name == "json":
        return _json_lines(path, rows, time_column, node_column)
    if time_column is not None or node_column is not None:
        raise ValueError(
            "time_column= is for JSON lines, node_column= for JSON lines and the W3C format; "
            "pass format= or pattern= for other logs"
        )
    if name not in FORMATS:
        raise ValueError(f"format={name!r} must be one of {', '.join(FORMATS)}, w3c, json")
    log_format = FORMATS[name]
    split = _split(log_format.pattern, log_format.pattern.fullmatch)
    return log_format.title, split, log_format.names_nodes


def log_rows(head: bytes) -> list[bytes]:
    """Return the lines of the beginning of a file that are complete and not blank."""
    rows = head.splitlines()
    if len(head) == HEAD:
        rows.pop()
    return [row for row in rows if row.strip()]


def recognized(rows: Sequence[bytes]) -> str | None:
    """Return the name of the format of these first lines; None if it is unknown."""
    if any(row.lower().startswith(b"#fields:") for row in rows[:8]):
        return "w3c"
    if rows and rows[0].startswith(b"{"):
        return "json" if _is_json_log(rows) else None
    for name, log_format in FORMATS.items():
        if name != "combined" and log_format.recognizes(rows[:200]):
            return name
    return "combined" if any(map(LINE.fullmatch, rows[:20])) else None


def _split(pattern: re.Pattern[bytes], match: Callable[[bytes], re.Match[bytes] | None]) -> Split:
    """Return the splitter of a pattern. Without a group for the node, it is None."""
    groups = ["time", "node" if "node" in pattern.groupindex else "time"]
    groups += ["count"] * ("count" in pattern.groupindex)

    def split(rows: Sequence[bytes]) -> list[Fields]:
        return [matched and matched.group(*groups) for matched in map(match, rows)]

    def split_zone(rows: Sequence[bytes]) -> list[Fields]:
        matches = list(map(match, rows))
        return [m and (m["time"] + (m["zone"] or b""), *m.group(*groups)[1:]) for m in matches]

    return split_zone if "zone" in pattern.groupindex else split


class _Fields:
    """The splitter of the W3C format, where lines such as ``#Fields: date time s-ip`` name fields.

    The times are UTC, as the format requires. ``named`` tells if a field names the node.
    """

    def __init__(self, path: Path, node: str | None, rows: Sequence[bytes]) -> None:
        self.path = path
        self.nodes = ["x-edge-location", "s-computername", "s-ip"] if node is None else [node]
        self.required = node is not None
        self.width = self.date = self.clock = -1
        self.node: int | None = None
        self(rows)
        self.width, self.named = -1, self.node is not None

    def __call__(self, rows: Sequence[bytes]) -> list[Fields]:
        return list(map(self._split, rows))

    def _split(self, line: bytes) -> Fields:
        if line.startswith(b"#"):
            if line.lower().startswith(b"#fields:"):
                self._read(line[8:].decode(errors="replace").split())
            return ()
        fields = line.split()
        if len(fields) != self.width:
            return None
        node = None if self.node is None else fields[self.node]
        return fields[self.date] + b"T" + fields[self.clock] + b"Z", node

    def _read(self, names: list[str]) -> None:
        missing = [name for name in ("date", "time") if name not in names]
        present = [name for name in self.nodes if name in names]
        if missing or (self.required and not present):
            rule = f"no field {[*missing, *self.nodes][0]!r}; the fields are {', '.join(names)}"
            raise fault_error(self.path, rule)
        self.width = len(names)
        self.date, self.clock = names.index("date"), names.index("time")
        self.node = names.index(present[0]) if present else None


# --- JSON lines ----------------------------------------------------------------------------------

HTTP = re.compile(
    "status(code)?|(request)?(method|ur[il])|verb|path|useragent|(remote|client)(ip|addr)|latency"
    "|bytes|bodybytessent|size|duration|requesttime"
)
"""Keys of requests, without underscores. An entry with two of them, and no count, is a request."""

COUNT = re.compile("requests|count|hits|calls|arrivals|invocations|value|total|n")

TIMES = (
    *("ts", "time", "timestamp", "@timestamp", "time_iso8601", "msec", "time_local"),
    *("StartUTC", "datetime", "date"),
)
"""Keys of the time of a request, in order of preference."""

UPSTREAMS = ("upstream_addr", "upstream", "upstream_host", "backend")
SERVERS = ("hostname", "host", "server", "instance", "pod", "node")


def _records(rows: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for row in rows:
        try:
            record = json.loads(row)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _is_json_log(rows: Sequence[bytes]) -> bool:
    """Return True if most lines are entries of a request log: of a server, or of Loki."""
    logs = 0
    for record in _records(rows[:20]):
        lists: dict[str, list[Any]] = {}
        try:
            leaves = flat(record, "", lists).items()
        except RecursionError:
            return False
        keys = [(path.rpartition(".")[2].lower().replace("_", ""), v) for path, v in leaves]
        is_request = sum(HTTP.fullmatch(key) is not None for key, _ in keys) > 1
        has_count = any(COUNT.fullmatch(key) and isinstance(v, int | float) for key, v in keys)
        has_entries = any(isinstance(items[0], dict) for items in lists.values())
        of_loki = "labels" in record and {"line", "timestamp"} <= record.keys()
        logs += of_loki or (is_request and not has_count and not has_entries)
    return 2 * logs > len(rows[:20])


def _json_lines(
    path: Path, rows: Sequence[bytes], time: str | None, node: str | None
) -> tuple[str, Split, bool]:
    """Return the description and the splitter of JSON lines, one request each.

    Raises TraceError if several keys could name the node.
    """
    table = table_of_records(path, map(flat, _records(rows[:200])))
    columns = table.columns
    if time is None:
        usual = [name for name in TIMES if name in columns]
        styles = [name for name in usual if style_of(columns[name].sample()) not in UNDATED]
        time = next(iter(styles), None) or time_columns(table, RequestedColumns())[0]
    upstreams = [name for name in columns if name.rpartition(".")[2] in UPSTREAMS]
    if node is None and "request.host" in columns:  # Caddy
        upstreams.append("request.host")
    if node is None and not upstreams:
        named = [name for name in columns if name != time and words_of(name) & NODE]
        several = [name for name in named if _is_few(len(columns[name].cells), len(table))]
        distinct = [
            name
            for at, name in enumerate(several)
            if not any(same_groups(columns[name], columns[m]) for m in several[:at])
        ]
        if len(distinct) > 1:
            rule = f"several keys could name the node; pass {choose('node_column', distinct)}"
            raise fault_error(path, rule)
        usual = [name for key in SERVERS for name in named if name.rpartition(".")[2] == key]
        upstreams = distinct or usual
    node = node or next(iter(upstreams), None)
    title = f"JSON lines with the time in {time}" + (f" and the node in {node}" if node else "")
    get_time, get_node = _getter(time), _getter(node or time)
    decoder = json.JSONDecoder()

    def split(line: bytes) -> Fields:
        try:
            text = line.decode().strip()
            record, end = decoder.raw_decode(text)  # json.loads looks for spaces twice
            if end < len(text):
                return None
            fields = get_time(record), get_node(record)
            hash(fields)  # refuses objects and lists
            return fields
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    return title, lambda rows: list(map(split, rows)), node is not None


def _is_few(nodes: int, rows: int) -> bool:
    """Return True for several nodes, but not one for each request or two."""
    return nodes > 1 and (rows < 20 or 2 * nodes <= rows)


def _getter(path: str) -> Callable[[Any], Any]:
    """Return a function that takes the value at a path such as ``request.host``."""
    keys = path.split(".")

    def get(record: Any) -> Any:
        if path in record:
            return record[path]
        for key in keys:
            record = record[key]
        return record

    return get
