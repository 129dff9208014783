"""Further exports of loads: other monitoring tools, languages of headers and forms of dates.

No reader was written for one of these kinds. They measure how far the general rules of
``corral.data.import_trace`` reach. See tests/support/table_exports.py for ``Export``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from support.table_exports import NODES, Export, Kind, Loads, iso, kind, lines, plain, wide

TOOLS: dict[str, Kind] = {}
LANGUAGES: dict[str, Kind] = {}
TIMES: dict[str, Kind] = {}
REQUESTS: dict[str, Kind] = {}


def epoch(at: datetime) -> int:
    return int(at.timestamp())


def long(
    head: str, form: Callable[[datetime], str], row: str = "{},{},{}"
) -> Callable[[Loads], str]:
    """Return the text of a table with the time, node and load in each row."""
    return lambda loads: lines(
        head, (row.format(form(at), NODES[node], load) for at, node, load in loads.cells)
    )


def two(head: str, form: Callable[[datetime], str]) -> Callable[[Loads], str]:
    """Return the text of a table with a column per node."""
    return lambda loads: wide(loads, head, form)


def per_request(head: str, row: Callable[[int, datetime, str], str]) -> Callable[[Loads], str]:
    return lambda loads: lines(
        head, (row(number, at, NODES[node]) for number, (at, node) in enumerate(loads.requests))
    )


def of_nodes(loads: Loads) -> Iterator[tuple[str, list[tuple[datetime, int]]]]:
    for name, column in zip(NODES, loads.arrivals.T.tolist(), strict=True):
        yield name, list(zip(loads.minutes, column, strict=True))


def document(
    name: str,
    file: str,
    nodes: tuple[str, ...] = NODES,
    options: str = "",
    names: tuple[str, ...] = (),
) -> Callable[[Callable[[Loads], Any]], None]:
    def add(content: Callable[[Loads], Any]) -> None:
        kind(TOOLS, name, file, options, nodes, names)(lambda loads: json.dumps(content(loads)))

    return add


# --- Other monitoring tools ----------------------------------------------------------------------

kind(TOOLS, "Splunk, stats", "splunk.csv")(
    long(
        '"_time","host","count"\n', lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.000+0000", '"{}","{}","{}"'
    )
)
kind(
    TOOLS,
    "Splunk, timechart",
    "timechart.csv",
    options="--arrivals fra-01,lon-01",
    names=("'_span'", "--arrivals 'fra-01,lon-01'"),
)(
    lambda x: lines(
        '"_time","fra-01","lon-01","_span"\n',
        (
            f'"{at:%Y-%m-%dT%H:%M:%S}.000+0000","{row[0]}","{row[1]}","60"'
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(
    TOOLS,
    "Graphite, CSV",
    "graphite.csv",
    options="--columns node,time,requests",
    names=("--columns",),
)(lambda x: lines("", (f"{NODES[n]},{plain(at)},{load}.0" for at, n, load in x.cells)))
kind(TOOLS, "rrdtool fetch", "rrd.txt")(
    lambda x: lines(
        "                         fra-01              lon-01\n\n",
        (
            f"{epoch(at)}: {row[0]:.10e} {row[1]:.10e}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(
    TOOLS,
    "New Relic, CSV",
    "relic.csv",
    options="--time-column 'Begin time (UTC)'",
    names=("--time-column 'Begin time (UTC)'",),
)(
    lambda x: lines(
        '"Begin time (UTC)","End time (UTC)","Host","Requests"\n',
        (
            f'"{plain(at)}","{plain(at + timedelta(minutes=1))}","{NODES[n]}","{load}"'
            for at, n, load in x.cells
        ),
    )
)
kind(TOOLS, "Zabbix, CSV", "zabbix.csv")(
    lambda x: lines(
        '"Host","Item","Timestamp","Value"\n',
        (f'"{NODES[n]}","nginx.requests","{plain(at)}","{load}"' for at, n, load in x.cells),
    )
)
kind(TOOLS, "sysstat, sadf -d", "sadf.csv")(
    lambda x: lines(
        "# hostname;interval;timestamp;request/min\n",
        (f"{NODES[n]};60;{plain(at)} UTC;{load}.00" for at, n, load in x.cells),
    )
)
kind(TOOLS, "Google Analytics", "ga.csv", nodes=("ga",))(
    lambda x: lines(
        "# ----------------------------------------\n# Requests\n# 20260302-20260302\n"
        "# ----------------------------------------\n\nDate + hour and minute,Requests\n",
        (
            f"{at:%Y%m%d%H%M},{sum(row)}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(TOOLS, "psql, aligned", "psql.txt")(
    lambda x: lines(
        "        time         |  host  | requests \n---------------------+--------+----------\n",
        (
            *(f" {plain(at)} | {NODES[n]} | {load:8}" for at, n, load in x.cells),
            f"({x.arrivals.size} rows)",
            "",
        ),
    )
)
kind(TOOLS, "MySQL, batch", "mysql.tsv")(long("time\thost\trequests\n", plain, "{}\t{}\t{}"))
kind(TOOLS, "PostgreSQL, copy", "copy.csv")(
    long("bucket,server,count\n", lambda at: f"{plain(at)}+00")
)
kind(TOOLS, "BigQuery", "bq.csv")(long("minute,instance,hits\n", lambda at: f"{plain(at)} UTC"))
kind(
    TOOLS,
    "Locust, history",
    "locust.csv",
    options="--arrivals Requests/s",
    names=("Requests/s",),
    nodes=("locust",),
)(
    lambda x: lines(
        '"Timestamp","User Count","Type","Name","Requests/s","Failures/s","Total Request Count"\n',
        (
            f"{epoch(at)},10,,Aggregated,{sum(row) / 60:.6f},0.000000,{9 * number}"
            for number, (at, row) in enumerate(zip(x.minutes, x.arrivals.tolist(), strict=True))
        ),
    )
)
kind(
    TOOLS,
    "VictoriaMetrics, export",
    "victoria.jsonl",
)(
    lambda x: lines(
        "",
        (
            json.dumps(
                {
                    "metric": {"__name__": "requests", "instance": name},
                    "values": [n for _, n in points],
                    "timestamps": [epoch(at) * 1000 for at, _ in points],
                }
            )
            for name, points in of_nodes(x)
        ),
    )
)
document("OpenTSDB", "tsdb.json")(
    lambda x: [
        {
            "metric": "requests",
            "tags": {"host": name},
            "dps": {str(epoch(at)): n for at, n in points},
        }
        for name, points in of_nodes(x)
    ]
)
document("InfluxDB 1, query", "influx1.json")(
    lambda x: {
        "results": [
            {
                "statement_id": 0,
                "series": [
                    {
                        "name": "requests",
                        "tags": {"host": name},
                        "columns": ["time", "sum"],
                        "values": [[f"{at:%Y-%m-%dT%H:%M:%S}Z", n] for at, n in points],
                    }
                    for name, points in of_nodes(x)
                ],
            }
        ]
    }
)
document(
    "Elasticsearch, buckets",
    "elastic.json",
    ("elastic",),
    options="--arrivals doc_count",
    names=("doc_count",),
)(
    lambda x: {
        "took": 3,
        "aggregations": {
            "minutes": {
                "buckets": [
                    {"key_as_string": f"{iso(at)}", "key": epoch(at) * 1000, "doc_count": sum(row)}
                    for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
                ]
            }
        },
    }
)
document(
    "ClickHouse, JSONCompact",
    "click.json",
)(
    lambda x: {
        "meta": [
            {"name": "time", "type": "DateTime"},
            {"name": "host", "type": "String"},
            {"name": "requests", "type": "UInt64"},
        ],
        "data": [[plain(at), NODES[n], load] for at, n, load in x.cells],
        "rows": int(x.arrivals.size),
    }
)
document(
    "Zabbix, API",
    "zabbix.json",
    ("23296", "23297"),
    options="--time-path clock --node-path itemid --value-path value",
    names=("clock",),
)(
    lambda x: {
        "jsonrpc": "2.0",
        "result": [
            {"itemid": str(23296 + n), "clock": str(epoch(at)), "value": str(load), "ns": "0"}
            for at, n, load in x.cells
        ],
        "id": 1,
    }
)
document("pandas, to_json split", "split.json")(
    lambda x: {
        "columns": list(NODES),
        "index": [epoch(at) * 1000 for at in x.minutes],
        "data": x.arrivals.tolist(),
    }
)


def collectd(folder: Path, loads: Loads) -> Export:
    """A file per server, with a column of values."""
    files = []
    for name, points in of_nodes(loads):
        files.append(folder / f"{name}.csv")
        files[-1].write_text(
            lines("epoch,value\n", (f"{epoch(at)}.000,{n}.000000" for at, n in points))
        )
    return Export(files, f"--names {','.join(NODES)}", loads.arrivals, names=("--names",))


TOOLS["collectd, a file a server"] = collectd

# --- Other languages -----------------------------------------------------------------------------

SLASHED = "{:%d/%m/%Y %H:%M:%S}".format
kind(LANGUAGES, "French, long", "fr.csv", options="--date-order dmy", names=("--date-order dmy",))(
    long("Horodatage;Serveur;Requêtes\n", SLASHED, "{};{};{}")
)
kind(LANGUAGES, "Spanish, wide", "es.csv", options="--date-order dmy", names=("--date-order dmy",))(
    two("Fecha y hora,fra-01,lon-01\n", "{:%d/%m/%Y %H:%M}".format)
)
kind(LANGUAGES, "Italian, long", "it.csv", options="--date-order dmy", names=("--date-order dmy",))(
    long("Data e ora;Nodo;Richieste\n", "{:%d-%m-%Y %H:%M}".format, "{};{};{}")
)
kind(LANGUAGES, "Dutch, wide", "nl.csv", options="--date-order dmy", names=("--date-order dmy",))(
    two("Tijdstip;fra-01;lon-01\n", "{:%d-%m-%Y %H:%M:%S}".format)
)
kind(LANGUAGES, "Russian, long", "ru.csv")(
    long("Время;Сервер;Запросы\n", "{:%d.%m.%Y %H:%M:%S}".format, "{};{};{}")
)
kind(LANGUAGES, "Chinese, long", "zh.csv")(long("时间,主机,请求数\n", "{:%Y/%m/%d %H:%M}".format))
kind(LANGUAGES, "Japanese, wide", "ja.csv")(
    two("日時,fra-01,lon-01\n", lambda at: f"{at.year}年{at.month}月{at.day}日 {at:%H:%M}")
)
kind(
    LANGUAGES,
    "Portuguese, rows per request",
    "pt.csv",
    options="--node-column Servidor",
    names=("--node-column Servidor",),
)(
    per_request(
        "Data/Hora,Servidor,Duração (ms)\n",
        lambda i, at, node: f"{plain(at)},{node},{i % 90}",
    )
)

# --- Other forms of dates ------------------------------------------------------------------------

PLAIN_HEAD = "time,fra-01,lon-01\n"
kind(TIMES, "ISO-8601, basic", "basic.csv")(two(PLAIN_HEAD, "{:%Y%m%dT%H%M%SZ}".format))
kind(TIMES, "RFC 2822", "mail.csv")(two(PLAIN_HEAD, lambda at: f'"{format_datetime(at)}"'))
kind(TIMES, "ctime", "ctime.csv")(two(PLAIN_HEAD, "{:%a %b %d %H:%M:%S %Y}".format))
kind(TIMES, "month in words", "month.csv")(two(PLAIN_HEAD, "{:%d %b %Y %H:%M}".format))
kind(
    TIMES,
    "ISO-8601, day of the year",
    "ordinal.csv",
    options="--time-format %Y-%jT%H:%M:%S",
    names=("--time-format",),
)(two(PLAIN_HEAD, "{:%Y-%jT%H:%M:%S}".format))
kind(
    TIMES,
    "serial days of Excel",
    "serial.csv",
    options="--time-unit d --epoch 1899-12-30",
    names=("--time-unit d", "--epoch 1899-12-30"),
)(two(PLAIN_HEAD, lambda at: f"{46083 + (at.hour * 60 + at.minute) / 1440:.6f}"))
kind(
    TIMES,
    "US, two-digit year",
    "short.csv",
    options="--time-format '%m/%d/%y %H:%M'",
    names=("--time-format",),
)(two(PLAIN_HEAD, "{:%m/%d/%y %H:%M}".format))
kind(
    TIMES,
    "date, hour and minute in columns",
    "parts.csv",
)(
    lambda x: wide(
        x,
        "date,hour,minute,fra-01,lon-01\n",
        lambda at: f"{at:%Y-%m-%d},{at.hour},{at.minute}",
    )
)
kind(TIMES, "ranges", "ranges.csv")(
    two("interval,fra-01,lon-01\n", lambda at: f"{plain(at)} - {plain(at + timedelta(minutes=1))}")
)

# --- A row per request ---------------------------------------------------------------------------

kind(
    REQUESTS, "JMeter", "jmeter.jtl", options="--one-node", names=("--one-node",), nodes=("jmeter",)
)(
    per_request(
        "timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,bytes\n",
        lambda i, at, node: (
            f"{int(at.timestamp() * 1000)},{i % 90},{node},200,OK,Group 1-{i % 7},text,true,612"
        ),
    )
)
kind(
    REQUESTS,
    "Squid",
    "squid.log",
    options="--pattern '(?P<time>[^ ]+) .*'",
    names=("--pattern",),
    nodes=("squid",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f"{at.timestamp():.3f}     {i % 90:2} 10.0.0.1 TCP_MISS/200 612 GET http://a/ - "
            f"HIER_DIRECT/{node} text/html"
        ),
    )
)
kind(
    REQUESTS,
    "Amazon S3",
    "s3.log",
    options="--pattern '.*?\\[(?P<time>[^]]+)\\]'",
    names=("--pattern",),
    nodes=("s3",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f"79a59df {node} [{at:%d/%b/%Y:%H:%M:%S} +0000] 192.0.2.3 79a59df 3E57 REST.GET.OBJECT "
            f'a.png "GET /a.png HTTP/1.1" 200 - 2662 2662 {i % 90} 10 "-" "S3Console/0.4" -'
        ),
    )
)
kind(REQUESTS, "Traefik, Common Log Format", "traefik.log", nodes=("traefik",))(
    per_request(
        "",
        lambda i, at, node: (
            f'10.0.0.1 - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET / HTTP/1.1" 200 87 "-" "-" {i} '
            f'"web@docker" "http://{node}:80" {i % 90}ms'
        ),
    )
)
kind(REQUESTS, "Traefik, JSON", "traefik.jsonl")(
    per_request(
        "",
        lambda i, at, node: json.dumps(
            {
                "ClientAddr": "10.0.0.1:443",
                "DownstreamStatus": 200,
                "Duration": 1000 * i,
                "RequestMethod": "GET",
                "RequestPath": "/",
                "ServiceAddr": node,
                "StartUTC": f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z",
                "level": "info",
                "msg": "",
                "time": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            }
        ),
    )
)
kind(
    REQUESTS,
    "Cloudflare, Logpush",
    "logpush.jsonl",
    options="--node-column EdgeColoCode",
    names=("EdgeColoCode",),
)(
    per_request(
        "",
        lambda i, at, node: json.dumps(
            {
                "ClientIP": "192.0.2.3",
                "ClientRequestMethod": "GET",
                "EdgeColoCode": node,
                "EdgeResponseStatus": 200,
                "EdgeStartTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
                "RayID": f"{i:016x}",
            }
        ),
    )
)
kind(
    REQUESTS,
    "journald, key=value",
    "journal.log",
    options="--pattern '(?P<time>[^ ]+) .* server=(?P<node>[^ ]+) .*'",
    names=("--pattern",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f"{at:%Y-%m-%dT%H:%M:%S}+0000 lb app[14389]: server={node} path=/a ms={i % 90}"
        ),
    )
)
kind(
    REQUESTS,
    "log4j",
    "log4j.log",
    options="--pattern '(?P<time>[^ ]+ [^,]+),.*'",
    names=("--pattern",),
    nodes=("log4j",),
)(
    per_request(
        "",
        lambda i, at, node: (
            f"{plain(at)},{at.microsecond // 1000:03d} [http-{i % 7}] INFO  Access - {node} GET /a"
        ),
    )
)

UNLISTED: dict[str, Kind] = {**TOOLS, **LANGUAGES, **TIMES, **REQUESTS}

REFUSED = ("rrdtool fetch", "psql, aligned", "ranges")
"""Kinds that no option reads."""
