"""Logs and JSON as operators export them, made from known loads: one function for each kind.

A kind writes the requests of ``Loads`` into files, and returns them with the options of
``import_trace`` and the arrivals that the import must find.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

START = datetime(2026, 3, 2, tzinfo=UTC)
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"


@dataclass(frozen=True)
class Loads:
    """``arrivals`` [T, N], requests per minute, of the servers ``nodes``."""

    arrivals: np.ndarray
    nodes: tuple[str, ...] = ("ams-02", "fra-01", "lon-01")
    seed: int = 0

    @classmethod
    def draw(cls, minutes: int, mean: float = 6.0) -> Loads:
        """Return loads with a request of each server in each minute."""
        rng = np.random.default_rng(7)
        return cls(1 + rng.poisson(mean, (minutes, 3)))

    @cached_property
    def requests(self) -> list[tuple[datetime, str]]:
        """The time and the server of each request, in order of time."""
        rng = np.random.default_rng(self.seed)
        rows = [
            (START + timedelta(minutes=minute, milliseconds=int(ms)), node)
            for minute, row in enumerate(self.arrivals.tolist())
            for node, load in zip(self.nodes, row, strict=True)
            for ms in rng.integers(0, 60_000, load)
        ]
        return sorted(rows)

    @property
    def minutes(self) -> list[datetime]:
        return [START + timedelta(minutes=minute) for minute in range(len(self.arrivals))]


@dataclass(frozen=True)
class Export:
    """The files of one kind, the options that read them, and the loads in them."""

    files: list[Path]
    nodes: tuple[str, ...]
    arrivals: np.ndarray
    options: dict[str, Any]


Kind = Callable[[Path, Loads], Export]
LOGS: dict[str, Kind] = {}
DOCUMENTS: dict[str, Kind] = {}


def clf(at: datetime) -> str:
    return f"{at:%d/%b/%Y:%H:%M:%S} +0000"


def ms(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}"


def log(
    name: str, port: str = "", head: str = "", **options: Any
) -> Callable[[Callable[[datetime, str], str]], None]:
    """Add a kind with one line per request. Nodes are named after the server and ``port``."""

    def add(line: Callable[[datetime, str], str]) -> None:
        def write(folder: Path, loads: Loads) -> Export:
            path = folder / "balancer.log"
            rows = [line(at, node) for at, node in loads.requests]
            path.write_text(head + "".join(f"{row}\n" for row in rows))
            nodes = tuple(node + port for node in loads.nodes)
            return Export([path], nodes, loads.arrivals, options)

        LOGS[name] = write

    return add


def combined(at: datetime, status: int = 200) -> str:
    request = f'"GET /cart/items?page=2 HTTP/1.1" {status} 8712 "https://example.com/cart"'
    return f'10.0.0.29 - - [{clf(at)}] {request} "{AGENT} \\"x\\""'


# --- Logs of web servers -------------------------------------------------------------------------


def _kind(kinds: dict[str, Kind], name: str) -> Callable[[Kind], Kind]:
    def add(write: Kind) -> Kind:
        kinds[name] = write
        return write

    return add


@_kind(LOGS, "combined, a file a server, gzip")
def _combined(folder: Path, loads: Loads) -> Export:
    files = []
    for node in loads.nodes:
        rows = [combined(at) for at, server in loads.requests if server == node]
        files.append(folder / f"{node}.log.gz")
        files[-1].write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))
    names = [file.name.removesuffix(".log.gz") for file in files]
    return Export(files, loads.nodes, loads.arrivals, {"names": names})


@_kind(LOGS, "NGINX, an agent with a port")
def _agent(folder: Path, loads: Loads) -> Export:
    path = folder / "web.log"
    path.write_text("".join(f'{combined(at)} ua="10.0.0.0:80"\n' for at, _ in loads.requests))
    return Export([path], ("web",), loads.arrivals.sum(axis=1, keepdims=True), {})


@_kind(LOGS, "NGINX with upstream, some without")
def _no_upstream(folder: Path, loads: Loads) -> Export:
    path = folder / "balancer.log"
    rows = []
    for number, (at, node) in enumerate(loads.requests):
        rows.append(f"{combined(at)} 0.029 {node}:8080\n")
        if number % 5 == 0:  # answered by NGINX itself, or by the second server that it asked
            rows.append(f"{combined(at, 304)} 0.000 -\n")
    path.write_text("".join(rows))
    nodes = tuple(f"{node}:8080" for node in loads.nodes)
    return Export([path], nodes, loads.arrivals, {})


log("NGINX with upstream", ":8080")(lambda at, node: f"{combined(at)} 0.029 {node}:8080")
log("NGINX with upstream, retried", ":8080")(
    lambda at, node: f"{combined(at)} 0.029 10.9.9.9:8080, {node}:8080 0.001, 0.028"
)
log("NGINX ingress", ":8080")(
    lambda at, node: (
        f"{combined(at)} 612 0.029 [default-web-80] [] {node}:8080 8712 0.028 200 "
        "b7d1c0e4a5f64e2f9c3d8a1b2e5f6071"
    )
)
log("NGINX with upstream in quotes", ":8080", format="nginx-upstream")(
    lambda at, node: f'{combined(at)} "0.029" "{node}:8080"'
)
log("NGINX Amplify", ":8080")(
    lambda at, node: (
        f'{combined(at)} "-" "example.com" sn="_" rt=0.029 ua="{node}:8080" us="200" ut="0.028" '
        'ul="87" cs=-'
    )
)
log("Apache with vhost", ":443")(lambda at, node: f"{node}:443 {combined(at)}")
log("Apache with vhost, no port", format="vhost")(lambda at, node: f"{node} {combined(at)}")
log("AWS ALB", ":80")(
    lambda at, node: (
        f"https {ms(at)}123Z app/my-lb/50dc 192.168.131.39:2817 {node}:80 0.001 0.029 0.000 "
        f'200 200 34 366 "GET https://example.com/ HTTP/1.1" "{AGENT}" ECDHE TLSv1 arn:x "Root" '
        f'"-" "-" 0 {ms(at)}000Z "forward" "-" "-" "{node}:80" "200" "-" "-"'
    )
)
log("AWS classic balancer", ":80")(
    lambda at, node: (
        f"{ms(at)}123Z my-lb 192.168.131.39:2817 {node}:80 0.001 0.029 0.000 200 200 0 29 "
        '"GET http://www.example.com:80/ HTTP/1.1" "curl/8" - -'
    )
)
log("HAProxy", zone="Z")(
    lambda at, node: (
        f"{at:%b} {at.day:2} {at:%H:%M:%S} lb haproxy[14389]: 10.0.1.2:33317 "
        f"[{at:%d/%b/%Y:%H:%M:%S}.192] http-in~ static/{node} 10/0/30/29/109 200 2750 - - ---- "
        '1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"'
    )
)
log("HAProxy, TCP, local time", zone="Europe/Rome")(
    lambda at, node: (
        f"10.0.1.2:33317 [{at + timedelta(hours=1):%d/%b/%Y:%H:%M:%S}.192] fnt bck/{node} "
        "0/0/5007 212 -- 0/0/0/0/3 0/0"
    )
)
log("Envoy", ":8080")(
    lambda at, node: (
        f'[{ms(at)}Z] "GET /a HTTP/2" 200 - 0 11 29 28 "-" "{AGENT}" "b6a1" "svc" "{node}:8080"'
    )
)
log("Istio", ":8080")(
    lambda at, node: (
        f'[{ms(at)}Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 11 29 28 "-" "{AGENT}" "b6a1" '
        f'"svc" "{node}:8080" outbound|8080||svc 10.1.2.3:1 10.1.2.4:2 10.1.2.5:3 - default'
    )
)
IIS = (
    "#Software: IIS 10.0\n#Version: 1.0\n#Date: 2026-03-02\n#Fields: date time s-ip cs-method "
    "cs-uri-stem cs-uri-query s-port c-ip cs(User-Agent) cs(Referer) sc-status time-taken\n"
)
log("IIS", head=IIS)(
    lambda at, node: (
        f"{at:%Y-%m-%d %H:%M:%S} {node} GET /cart/items page=2 443 10.0.0.29 "
        f"{AGENT.replace(' ', '+')} https://example.com/cart 200 29"
    )
)
log(
    "CloudFront",
    head="#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) "
    "cs-uri-stem sc-status cs(Referer) cs(User-Agent)\n",
)(
    lambda at, node: (
        f"{at:%Y-%m-%d}\t{at:%H:%M:%S}\t{node}\t2750\t10.0.0.1\tGET\td111.cloudfront.net\t/cart\t200\t"
        f"https://example.com/cart\t{AGENT.replace(' ', '%20')}"
    )
)
log("CSV, a row per request", head="time,server,path,status\n", node_column="server")(
    lambda at, node: f"{ms(at)}Z,{node},/cart/items,200"
)
log("own pattern", pattern=r"^(?P<time>\S+ \S+) \w+ backend=(?P<node>\S+)")(
    lambda at, node: f"{at:%Y-%m-%d} {at:%H:%M:%S},123 INFO backend={node} GET /cart/items {AGENT}"
)


# --- Logs as JSON --------------------------------------------------------------------------------


def json_log(name: str, port: str = "", **options: Any) -> Callable[[Callable[..., Any]], None]:
    def add(entry: Callable[[datetime, str], Any]) -> None:
        log(name, port, **options)(lambda at, node: json.dumps(entry(at, node)))

    return add


json_log("NGINX, JSON lines", ":80")(
    lambda at, node: {
        "time_local": clf(at),
        "msec": f"{at.timestamp():.3f}",
        "remote_addr": "10.0.0.29",
        "request": "GET / HTTP/1.1",
        "status": "200",
        "request_time": "0.029",
        "host": "www.example.com",
        "upstream_addr": f"{node}:80",
    }
)
json_log("Caddy")(
    lambda at, node: {
        "level": "info",
        "ts": at.timestamp(),
        "logger": "http.log.access",
        "msg": "handled request",
        "request": {
            "remote_ip": "10.0.0.29",
            "method": "GET",
            "host": node,
            "uri": "/",
            "headers": {"User-Agent": [AGENT]},
            "tls": {"version": 772, "server_name": "x"},
        },
        "duration": 0.029,
        "size": 87,
        "status": 200,
    }
)
json_log("application, JSON lines")(
    lambda at, node: {
        "timestamp": f"{ms(at)}Z",
        "level": "info",
        "server": node,
        "method": "GET",
        "path": "/cart/items",
        "status": 200,
        "user_agent": AGENT,
        "request_id": f"{hash(at) % 2**64:016x}",
    }
)
json_log("Google Cloud load balancer, JSON lines")(
    lambda at, node: {
        "timestamp": f"{ms(at)}Z",
        "httpRequest": {"requestMethod": "GET", "requestUrl": "/", "status": 200},
        "resource": {"labels": {"backend_service_name": node, "project_id": "x"}},
        "agent": AGENT,
    }
)
json_log("JSON lines by paths", time_column="meta.at", node_column="meta.by", format="json")(
    lambda at, node: {"meta": {"at": int(at.timestamp() * 1000), "by": node}, "x": [1, AGENT, 2]}
)
json_log("Loki, logcli")(
    lambda at, node: {
        "labels": {"app": "web", "pod": node},
        "line": combined(at),
        "timestamp": f"{ms(at)}000000Z",
    }
)


@_kind(LOGS, "Loki, query_range")
def _loki(folder: Path, loads: Loads) -> Export:
    streams = [
        {
            "stream": {"app": "web", "pod": node},
            "values": [
                [f"{int(at.timestamp() * 1000)}000000", combined(at)]
                for at, server in loads.requests
                if server == node
            ],
        }
        for node in loads.nodes
    ]
    answer = {"status": "success", "data": {"resultType": "streams", "result": streams}}
    return document(folder, "loki", answer, loads)


# --- Answers of programs -------------------------------------------------------------------------


def document(folder: Path, name: str, content: Any, loads: Loads, **options: Any) -> Export:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return Export([path], loads.nodes, loads.arrivals, options)


def series(loads: Loads) -> Iterator[tuple[str, list[tuple[datetime, int]]]]:
    for node, column in zip(loads.nodes, loads.arrivals.T.tolist(), strict=True):
        yield node, list(zip(loads.minutes, column, strict=True))


@_kind(DOCUMENTS, "CloudWatch, get-metric-data")
def _cloudwatch(folder: Path, loads: Loads) -> Export:
    results = [
        {
            "Id": f"m{number}",
            "Label": node,
            "Timestamps": [f"{at:%Y-%m-%dT%H:%M:%S}+00:00" for at, _ in reversed(points)],
            "Values": [float(value) for _, value in reversed(points)],
            "StatusCode": "Complete",
        }
        for number, (node, points) in enumerate(series(loads))
    ]
    return document(folder, "cw", {"MetricDataResults": results, "Messages": []}, loads)


@_kind(DOCUMENTS, "CloudWatch, get-metric-statistics, a file a server")
def _statistics(folder: Path, loads: Loads) -> Export:
    files = []
    for node, points in series(loads):
        order = np.random.default_rng(0).permutation(len(points))
        data = [
            {
                "Timestamp": f"{points[i][0]:%Y-%m-%dT%H:%M:%S}Z",
                "Sum": float(points[i][1]),
                "Average": 1.0,
                "Unit": "Count",
            }
            for i in order
        ]
        answer = {"Label": "RequestCount", "Datapoints": data}
        files += document(folder, node, answer, loads).files
    return Export(files, loads.nodes, loads.arrivals, {"names": list(loads.nodes)})


@_kind(DOCUMENTS, "Azure Monitor")
def _azure(folder: Path, loads: Loads) -> Export:
    timeseries = [
        {
            "metadatavalues": [{"name": {"value": "instance", "x": "y"}, "value": node}],
            "data": [{"timeStamp": f"{at:%Y-%m-%dT%H:%M:%S}Z", "total": n} for at, n in points],
        }
        for node, points in series(loads)
    ]
    metric = {"name": {"value": "Requests"}, "unit": "Count", "timeseries": timeseries}
    return document(folder, "azure", {"interval": "PT1M", "value": [metric]}, loads)


@_kind(DOCUMENTS, "Google Cloud Monitoring")
def _google(folder: Path, loads: Loads) -> Export:
    answer = [
        {
            "metric": {"type": "requests", "labels": {"code": "200"}},
            "resource": {"type": "gce", "labels": {"instance": node, "zone": "eu"}},
            "metricKind": "DELTA",
            "valueType": "INT64",
            "points": [
                {
                    "interval": {
                        "startTime": f"{at:%Y-%m-%dT%H:%M:%S}Z",
                        "endTime": f"{at + timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}Z",
                    },
                    "value": {"int64Value": str(n)},
                }
                for at, n in reversed(points)
            ],
        }
        for node, points in series(loads)
    ]
    return document(folder, "gcp", {"timeSeries": answer, "unit": "1"}, loads)


@_kind(DOCUMENTS, "Wikimedia pageviews, a file an article")
def _wikimedia(folder: Path, loads: Loads) -> Export:
    files = []
    for node, points in series(loads):
        items = [
            {
                "project": "en.wikipedia",
                "article": node,
                "timestamp": f"{START + timedelta(days=day):%Y%m%d}00",
                "views": n,
            }
            for day, (_, n) in enumerate(points)
        ]
        files += document(folder, node, {"items": items}, loads).files
    return Export(files, loads.nodes, loads.arrivals, {})


def records(loads: Loads) -> list[dict[str, Any]]:
    return [
        {"time": f"{at:%Y-%m-%dT%H:%M:%S}Z", "host": node, "requests": n}
        for node, points in series(loads)
        for at, n in points
    ]


@_kind(DOCUMENTS, "a list of records")
def _records(folder: Path, loads: Loads) -> Export:
    return document(folder, "records", records(loads), loads)


@_kind(DOCUMENTS, "records in an object")
def _wrapped(folder: Path, loads: Loads) -> Export:
    return document(folder, "wrapped", {"took": 3, "hits": {"rows": records(loads)}}, loads)


@_kind(DOCUMENTS, "JSON lines of records, gzip")
def _lines(folder: Path, loads: Loads) -> Export:
    path = folder / "records.jsonl.gz"
    text = "".join(f"{json.dumps(record)}\n" for record in records(loads))
    path.write_bytes(gzip.compress(text.encode()))
    return Export([path], loads.nodes, loads.arrivals, {})


@_kind(DOCUMENTS, "JSON lines of nested records, by paths")
def _nested(folder: Path, loads: Loads) -> Export:
    path = folder / "nested.jsonl"
    rows = [
        {"at": {"iso": r["time"]}, "by": r["host"], "n": {"in": r["requests"], "out": 9}}
        for r in records(loads)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = {"time_column": "at.iso", "node_column": "by", "arrivals": "n.in"}
    return Export([path], loads.nodes, loads.arrivals, options)


@_kind(DOCUMENTS, "series of points, by paths")
def _points(folder: Path, loads: Loads) -> Export:
    answer = {
        "series": [
            {
                "server": {"name": node},
                "points": [{"t": f"{at:%Y-%m-%dT%H:%M:%S}Z", "v": n} for at, n in points],
                "tags": [{"k": 1}, {"k": 2}],
            }
            for node, points in series(loads)
        ]
    }
    options = {
        "time_column": "series[].points[].t",
        "node_column": "series[].server.name",
        "arrivals": "series[].points[].v",
    }
    return document(folder, "points", answer, loads, **options)


@_kind(DOCUMENTS, "Graphite")
def _graphite(folder: Path, loads: Loads) -> Export:
    answer = [
        {"target": node, "datapoints": [[n, int(at.timestamp())] for at, n in points]}
        for node, points in series(loads)
    ]
    return document(folder, "graphite", answer, loads, time_column="datapoints[][1]")
