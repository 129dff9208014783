"""Exports of further tools and locales, without a reader of their own, as unlisted_exports.py."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import numpy as np

from support.table_exports import NODES, Export, Kind, Loads, iso, kind, lines, plain
from support.unlisted_exports import epoch, of_nodes, per_request, two

DOCUMENTS: dict[str, Kind] = {}
TABLES: dict[str, Kind] = {}
LOGS: dict[str, Kind] = {}
MISREAD: dict[str, Kind] = {}


def document(name: str, options: str = "", names: tuple[str, ...] = (), **more: Any) -> Any:
    def add(content: Any) -> None:
        kind(DOCUMENTS, name, "answer.json", options, names=names, **more)(
            lambda loads: json.dumps(content(loads))
        )

    return add


# --- JSON of monitoring --------------------------------------------------------------------------

document(
    "Elasticsearch, hosts in minutes",
    "--time-column 'aggregations.minutes.buckets[].key_as_string' "
    "--node-column 'aggregations.minutes.buckets[].hosts.buckets[].key' "
    "--arrivals 'aggregations.minutes.buckets[].hosts.buckets[].doc_count'",
    ("--time-column 'aggregations.minutes.buckets[].key_as_string'", "--node-column"),
)(
    lambda x: {
        "took": 3,
        "aggregations": {
            "minutes": {
                "buckets": [
                    {
                        "key_as_string": iso(at),
                        "key": epoch(at) * 1000,
                        "doc_count": sum(row),
                        "hosts": {
                            "buckets": [
                                {"key": name, "doc_count": n}
                                for name, n in zip(NODES, row, strict=True)
                            ]
                        },
                    }
                    for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
                ]
            }
        },
    }
)
document(
    "Elasticsearch, minutes in hosts",
    "--arrivals 'aggregations.hosts.buckets[].minutes.buckets[].doc_count'",
    ("'aggregations.hosts.buckets[].minutes.buckets[].doc_count'",),
)(
    lambda x: {
        "aggregations": {
            "hosts": {
                "buckets": [
                    {
                        "key": name,
                        "doc_count": sum(n for _, n in points),
                        "minutes": {
                            "buckets": [
                                {
                                    "key_as_string": iso(at),
                                    "key": epoch(at) * 1000,
                                    "doc_count": n,
                                }
                                for at, n in points
                            ]
                        },
                    }
                    for name, points in of_nodes(x)
                ]
            }
        }
    }
)
document("Dynatrace, metrics API")(
    lambda x: {
        "totalCount": 2,
        "nextPageKey": None,
        "resolution": "1m",
        "result": [
            {
                "metricId": "builtin:service.requestCount.total",
                "data": [
                    {
                        "dimensions": [f"HOST-{name}"],
                        "dimensionMap": {"dt.entity.host": name},
                        "timestamps": [epoch(at) * 1000 for at, _ in points],
                        "values": [n for _, n in points],
                    }
                    for name, points in of_nodes(x)
                ],
            }
        ],
    }
)
document("Grafana, data frames")(
    lambda x: {
        "results": {
            "A": {
                "status": 200,
                "frames": [
                    {
                        "schema": {
                            "name": name,
                            "fields": [
                                {"name": "Time", "type": "time"},
                                {"name": "Value", "type": "number", "labels": {"instance": name}},
                            ],
                        },
                        "data": {
                            "values": [
                                [epoch(at) * 1000 for at, _ in points],
                                [n for _, n in points],
                            ]
                        },
                    }
                    for name, points in of_nodes(x)
                ],
            }
        }
    }
)
document("Datadog, query API", nodes=tuple(f"host:{node}" for node in NODES))(
    lambda x: {
        "status": "ok",
        "from_date": epoch(x.minutes[0]) * 1000,
        "to_date": epoch(x.minutes[-1]) * 1000,
        "series": [
            {
                "metric": "nginx.requests",
                "scope": f"host:{name}",
                "tag_set": [f"host:{name}"],
                "interval": 60,
                "length": len(points),
                "pointlist": [[epoch(at) * 1000.0, float(n)] for at, n in points],
            }
            for name, points in of_nodes(x)
        ],
    }
)
document("New Relic, NRQL", "--time-column beginTimeSeconds", ("--time-column beginTimeSeconds",))(
    lambda x: {
        "facets": [
            {
                "name": name,
                "timeSeries": [
                    {
                        "beginTimeSeconds": epoch(at),
                        "endTimeSeconds": epoch(at) + 60,
                        "results": [{"count": n}],
                    }
                    for at, n in points
                ],
            }
            for name, points in of_nodes(x)
        ]
    }
)
document(
    "RRDtool, xport",
    "--time-column row --time-unit min --epoch 2026-03-02 --arrivals fra-01,lon-01",
    ("--time-column row", "--time-unit"),
)(
    lambda x: {
        "meta": {"start": epoch(x.minutes[0]), "step": 60, "legend": list(NODES)},
        "data": x.arrivals.tolist(),
    }
)
document("pandas, to_json table")(
    lambda x: {
        "schema": {
            "fields": [{"name": name} for name in ("index", "time", *NODES)],
            "primaryKey": ["index"],
        },
        "data": [
            {
                "index": i,
                "time": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
                **dict(zip(NODES, row, strict=True)),
            }
            for i, (at, row) in enumerate(zip(x.minutes, x.arrivals.tolist(), strict=True))
        ],
    }
)
kind(DOCUMENTS, "Splunk, JSON", "splunk.json")(
    lambda x: lines(
        "",
        (
            json.dumps(
                {
                    "preview": False,
                    "offset": i,
                    "result": {
                        "_time": f"{at:%Y-%m-%dT%H:%M:%S}.000+0000",
                        "host": NODES[n],
                        "count": str(load),
                    },
                }
            )
            for i, (at, n, load) in enumerate(x.cells)
        ),
    )
)

# --- Tables --------------------------------------------------------------------------------------

kind(TABLES, "Dynatrace, CSV", "dynatrace.csv")(
    lambda x: lines(
        "metricId,dt.entity.host,time,value\n",
        (
            f"builtin:service.requestCount.total,{NODES[n]},{plain(at)},{load}"
            for at, n, load in x.cells
        ),
    )
)
kind(TABLES, "Netdata, newest first", "netdata.csv")(
    lambda x: lines(
        "time,fra-01,lon-01\n",
        (
            f"{plain(at)},{row[0]},{row[1]}"
            for at, row in reversed([*zip(x.minutes, x.arrivals.tolist(), strict=True)])
        ),
    )
)
kind(
    TABLES,
    "Nagios, perfdata",
    "perfdata.log",
    r"--pattern 'TIMET::(?P<time>\d+)\s+HOSTNAME::(?P<node>\S+).*requests=(?P<count>\d+)'",
    names=("--pattern",),
)(
    lambda x: lines(
        "",
        (
            f"DATATYPE::SERVICEPERFDATA\tTIMET::{epoch(at)}\tHOSTNAME::{NODES[n]}\t"
            f"SERVICEDESC::http\tSERVICEPERFDATA::requests={load};;;0"
            for at, n, load in x.cells
        ),
    )
)
kind(TABLES, "sar, text", "sar.txt", is_refused=True)(
    lambda x: lines(
        "Linux 5.10.0 (fra-01) \t03/02/26 \t_x86_64_\t(2 CPU)\n\n00:00:00     request/s\n",
        (
            f"{at:%H:%M:%S}       {sum(row) / 60:.2f}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(
    TABLES,
    "OpenMetrics, text",
    "metrics.txt",
    "--time-column gauge",
    tuple(f'requests{{instance="{node}"}}' for node in NODES),
    ("--time-column gauge",),
)(
    lambda x: lines(
        "# TYPE requests gauge\n",
        (f'requests{{instance="{NODES[n]}"}} {load} {epoch(at)}' for at, n, load in x.cells),
    )
)
kind(
    TABLES,
    "InfluxDB, line protocol",
    "influx.lp",
    r"--pattern 'host=(?P<node>\S+) value=(?P<count>\d+)i (?P<time>\d+)'",
    names=("--pattern",),
)(
    lambda x: lines(
        "",
        (f"requests,host={NODES[n]} value={load}i {epoch(at)}000000000" for at, n, load in x.cells),
    )
)
kind(TABLES, "Graphite, raw", "graphite.raw", is_refused=True)(
    lambda x: lines(
        "",
        (
            f"{name},{epoch(points[0][0])},{epoch(points[-1][0]) + 60},60|"
            + ",".join(f"{n}.0" for _, n in points)
            for name, points in of_nodes(x)
        ),
    )
)
kind(
    TABLES,
    "Windows, performance counters",
    "perfmon.csv",
    "--date-order mdy",
    (r"\\FRA-01\Web\Requests", r"\\LON-01\Web\Requests"),
    ("--date-order mdy",),
)(
    two(
        '"(PDH-CSV 4.0) (W. Europe Standard Time)(-60)","\\\\FRA-01\\Web\\Requests",'
        '"\\\\LON-01\\Web\\Requests"\n',
        "{:%m/%d/%Y %H:%M:%S.000}".format,
    )
)
kind(TABLES, "Markdown", "table.md", "--header 1", names=("--header 1",))(
    lambda x: lines(
        "| time | fra-01 | lon-01 |\n|---|--:|--:|\n",
        (
            f"| {plain(at)} | {row[0]} | {row[1]} |"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(TABLES, "Sheets, German", "sheets-de.csv")(
    lambda x: lines(
        "Zeit,fra-01,lon-01\n",
        (
            f'{at:%d.%m.%Y %H:%M:%S},"{row[0]},0","{row[1]},0"'
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)


def in_bytes(name: str, file: str, text: Any, encoding: str, factor: int = 1, **more: Any) -> None:
    def write(folder: Any, loads: Loads) -> Export:
        path = folder / file
        path.write_bytes(text(loads).encode(encoding))
        return Export([path], arrivals=factor * loads.arrivals, **{"options": "", **more})

    TABLES[name] = write


def thousands(mark: str, head: str, form: Any, quote: str = "") -> Any:
    delimiter = next(c for c in "\t;," if c in head)
    return lambda x: lines(
        head,
        (
            delimiter.join(
                [form(at), *(f"{quote}{1000 * n:,}{quote}".replace(",", mark) for n in row)]
            )
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )


DMY = "{:%d/%m/%Y %H:%M:%S}".format
in_bytes(
    "Excel, Unicode text",
    "utf16.txt",
    lambda x: two("time,fra-01,lon-01\n", plain)(x).replace(",", "\t"),
    "utf-16",
)
in_bytes(
    "Excel, Unicode text with tabs",
    "tabs16.txt",
    thousands(",", "time\tfra-01\tlon-01\n", plain, '"'),
    "utf-16",
    1000,
    options="--decimal .",
    names=("--decimal '.'",),
)
in_bytes(
    "Sheets, French",
    "sheets-fr.csv",
    thousands("\u202f", "Horodatage;fra-01;lon-01\n", DMY),
    "utf-8-sig",
    1000,
    options="--date-order dmy",
    names=("--date-order dmy",),
)
in_bytes(
    "Sheets, German thousands",
    "sheets-de.csv",
    thousands(".", "Zeit;fra-01;lon-01\n", "{:%d.%m.%Y %H:%M}".format),
    "utf-8-sig",
    1000,
    options="--decimal ,",
    names=("--decimal",),
)
in_bytes(
    "quoted thousands, tabs and a mark",
    "tabs.tsv",
    thousands(",", "time\tfra-01\tlon-01\n", plain, '"'),
    "utf-8-sig",
    1000,
    options="--decimal .",
    names=("--decimal '.'",),
)
in_bytes(
    "quoted thousands, commas",
    "commas.csv",
    thousands(",", "time,fra-01,lon-01\n", plain, '"'),
    "utf-8-sig",
    1000,
    options="--decimal .",
    names=("--decimal '.'",),
)
in_bytes(
    "German, old Excel",
    "cp1252.csv",
    lambda x: two("Zeit;Köln;Lübeck\n", plain)(x),
    "cp1252",
    options="--encoding cp1252",
    names=("--encoding",),
    nodes=("Köln", "Lübeck"),
)
in_bytes(
    "compact date and clock",
    "sap.csv",
    two("Datum;Uhrzeit;fra-01;lon-01\n", "{:%Y%m%d;%H:%M:%S}".format),
    "utf-8",
)
in_bytes(
    "hours 1 to 24",
    "stunden.csv",
    lambda x: lines(
        "Datum;Stunde;Minute;fra-01;lon-01\n",
        (
            f"{at:%d.%m.%Y};{at.hour};{at.minute};{row[0]};{row[1]}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    ),
    "utf-8",
)


# --- Requests ------------------------------------------------------------------------------------

ROUTED = tuple(f"{node}:80" for node in NODES)
CLF = "{:%d/%b/%Y:%H:%M:%S} +0000".format
kind(LOGS, "varnishncsa", "varnish.log", nodes=("varnish",))(
    per_request(
        "",
        lambda i, at, node: (
            f'10.0.0.1 - - [{CLF(at)}] "GET http://{node}/ HTTP/1.1" 200 612 "-" "curl/8"'
        ),
    )
)
kind(LOGS, "lighttpd", "lighttpd.log", nodes=("lighttpd",))(
    per_request(
        "",
        lambda i, at, node: f'10.0.0.1 {node} - [{CLF(at)}] "GET / HTTP/1.1" 200 612 "-" "curl/8"',
    )
)
kind(
    LOGS,
    "Fastly, syslog",
    "fastly.log",
    r"--pattern '<\d+>(?P<time>\S+) (?P<node>\S+) .*'",
    names=("--pattern",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f"<134>{at:%Y-%m-%dT%H:%M:%S}Z {node} s3[{i}]: 192.0.2.1 GET /a/b HTTP/1.1 200 612"
        ),
    )
)
kind(
    LOGS,
    "Heroku, router",
    "heroku.log",
    r"--pattern '(?P<time>\S+) heroku.* dyno=(?P<node>\S+)'",
    names=("--pattern",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f'{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 heroku[router]: at=info method=GET path="/" '
            f'host=a.example request_id={i:08x} fwd="192.0.2.3" dyno={node} connect=1ms '
            "service=18ms status=200 bytes=13"
        ),
    )
)
kind(
    LOGS,
    "Rails",
    "production.log",
    r"--pattern '^I, \[(?P<time>\S+) .* Started ' --skip-malformed",
    ("production",),
    ("--pattern",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f'I, [{at:%Y-%m-%dT%H:%M:%S.%f} #1234]  INFO -- : [{i:08x}] Started GET "/a" for '
            f"10.0.0.1 at {plain(at)} +0000\n"
            f"I, [{at:%Y-%m-%dT%H:%M:%S.%f} #1234]  INFO -- : [{i:08x}] Completed 200 OK in 9ms"
        ),
    )
)
kind(LOGS, "Django", "django.log", r"--pattern '\[(?P<time>[^]]+)\]'", ("django",), ("--pattern",))(
    per_request("", lambda i, at, node: f'[{at:%d/%b/%Y %H:%M:%S}] "GET /a HTTP/1.1" 200 612')
)
kind(LOGS, "AWS classic load balancer", "elb.log", nodes=ROUTED)(
    per_request(
        "",
        lambda i, at, node: (
            f"{at:%Y-%m-%dT%H:%M:%S.%f}Z my-elb 192.168.131.39:2817 {node}:80 0.000073 0.001048 "
            '0.000057 200 200 0 29 "GET http://a.example:80/ HTTP/1.1" "curl/7.38.0" - -'
        ),
    )
)


def gcp(at: Any, node: str, i: int) -> dict[str, Any]:
    return {
        "httpRequest": {
            "latency": "0.018s",
            "remoteIp": "192.0.2.3",
            "requestMethod": "GET",
            "requestSize": "87",
            "requestUrl": "https://a.example/",
            "responseSize": "612",
            "serverIp": "10.0.0.1",
            "status": 200,
        },
        "insertId": f"{i:08x}",
        "receiveTimestamp": f"{at + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S.%f}Z",
        "resource": {"labels": {"backend_service_name": node}, "type": "http_load_balancer"},
        "severity": "INFO",
        "timestamp": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
    }


kind(LOGS, "GCP load balancer, lines", "gcp.jsonl")(
    per_request("", lambda i, at, node: json.dumps(gcp(at, node, i)))
)
kind(
    LOGS,
    "GCP load balancer, array",
    "gcp.json",
    "--node-column resource.labels.backend_service_name",
    names=("--node-column resource.labels.backend_service_name",),
)(lambda x: json.dumps([gcp(at, NODES[n], i) for i, (at, n) in enumerate(x.requests)]))


def gateway(at: Any, node: str) -> dict[str, Any]:
    return {
        "resourceId": "/SUBSCRIPTIONS/X",
        "operationName": "ApplicationGatewayAccess",
        "time": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "properties": {
            "instanceId": "appgw_1",
            "clientIP": "192.0.2.3",
            "httpMethod": "GET",
            "requestUri": "/",
            "httpStatus": 200,
            "serverRouted": f"{node}:80",
            "timeTaken": 0.018,
        },
    }


kind(LOGS, "Azure Application Gateway, lines", "gateway.jsonl", nodes=ROUTED)(
    per_request("", lambda i, at, node: json.dumps(gateway(at, node)))
)
kind(
    LOGS,
    "Azure Application Gateway, records",
    "gateway.json",
    "--node-column properties.serverRouted",
    ROUTED,
    ("--node-column properties.serverRouted",),
)(lambda x: json.dumps({"records": [gateway(at, NODES[n]) for at, n in x.requests]}))
kind(
    LOGS,
    "journald, JSON",
    "journal.json",
    "--node-column _HOSTNAME",
    names=("--node-column _HOSTNAME",),
)(
    per_request(
        "",
        lambda i, at, node: json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(int(at.timestamp() * 1e6)),
                "_HOSTNAME": node,
                "_PID": "1234",
                "PRIORITY": "6",
                "SYSLOG_IDENTIFIER": "app",
                "MESSAGE": f"GET /a 200 {i % 90}",
            }
        ),
    )
)

# --- What counts twice, or counts up -------------------------------------------------------------

kind(MISREAD, "counters in a wide table", "counters.csv", names=("--counter",), is_refused=True)(
    lambda x: two("time,fra-01,lon-01\n", plain)(Loads(1000 + np.cumsum(x.arrivals, axis=0)))
)
kind(MISREAD, "counters in a long table", "counters.csv", names=("--counter",), is_refused=True)(
    lambda x: lines(
        "time,host,requests_total\n",
        (
            f"{plain(at)},{NODES[n]},{load}"
            for at, n, load in Loads(1000 + np.cumsum(x.arrivals, axis=0)).cells
        ),
    )
)
kind(
    MISREAD, "a node that is the sum of others", "sums.csv", names=("host!=all",), is_refused=True
)(
    lambda x: lines(
        "time,host,requests\n",
        (
            f"{plain(at)},{name},{n}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
            for name, n in zip((*NODES, "all"), (*row, sum(row)), strict=True)
        ),
    )
)
kind(
    MISREAD,
    "a column that is the sum of others",
    "sums.csv",
    names=("--arrivals",),
    is_refused=True,
)(
    lambda x: lines(
        "time,fra-01,lon-01,cluster\n",
        (
            f"{plain(at)},{row[0]},{row[1]},{sum(row)}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(MISREAD, "a sum below the rows", "sums.csv", is_refused=True)(
    lambda x: (
        two("time,fra-01,lon-01\n", plain)(x)
        + f"Total,{x.arrivals[:, 0].sum()},{x.arrivals[:, 1].sum()}\n"
    )
)
kind(
    MISREAD,
    "other aggregations of the same minutes",
    "several.csv",
    names=("aggregation=sum",),
    is_refused=True,
)(
    lambda x: lines(
        "time,host,aggregation,value\n",
        (
            f"{plain(at)},{NODES[n]},{how},{load}"
            for at, n, load in x.cells
            for how in ("sum", "max")
        ),
    )
)

FURTHER: dict[str, Kind] = {**DOCUMENTS, **TABLES, **LOGS, **MISREAD}
