"""Tables as operators and public data sets have them, made from known loads: a function per kind.

A kind writes ``Loads`` into files, and returns them with the options of the command line that read
them, and the arrivals that the import must find.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

START = datetime(2026, 3, 2, tzinfo=UTC)
NODES = ("fra-01", "lon-01")


@dataclass(frozen=True)
class Loads:
    """``arrivals`` [T, N], requests per minute of the nodes ``NODES``, at least 1."""

    arrivals: np.ndarray

    @classmethod
    def draw(cls, minutes: int) -> Loads:
        rng = np.random.default_rng(11)
        return cls(1 + rng.poisson(6.0, (minutes, 2)))

    @property
    def minutes(self) -> list[datetime]:
        return [START + timedelta(minutes=minute) for minute in range(len(self.arrivals))]

    @cached_property
    def requests(self) -> list[tuple[datetime, int]]:
        """The time and the node (0, 1) of each request, in order of time."""
        rng = np.random.default_rng(12)
        return sorted(
            (at + timedelta(milliseconds=int(ms)), node)
            for at, row in zip(self.minutes, self.arrivals.tolist(), strict=True)
            for node, load in enumerate(row)
            for ms in rng.integers(0, 60_000, load)
        )

    @property
    def cells(self) -> Iterator[tuple[datetime, int, int]]:
        """Yield the time, node (0, 1) and load of each cell."""
        for at, row in zip(self.minutes, self.arrivals.tolist(), strict=True):
            for node, load in enumerate(row):
                yield at, node, load


@dataclass(frozen=True)
class Export:
    """The files of a kind, the options that read them, and the result that they must have.

    ``nodes`` are in the order of the columns of ``arrivals`` [T, N]. None for ``arrivals`` is a
    file that must be refused with all texts of ``names``.
    """

    files: list[Path]
    options: str
    arrivals: np.ndarray | None
    nodes: tuple[str, ...] = NODES
    step: int = 60
    names: tuple[str, ...] = ()


Kind = Callable[[Path, Loads], Export]
DASHBOARDS: dict[str, Kind] = {}
TABLES: dict[str, Kind] = {}
PUBLIC: dict[str, Kind] = {}


def kind(
    group: dict[str, Kind],
    name: str,
    file: str,
    options: str = "",
    nodes: tuple[str, ...] = NODES,
    names: tuple[str, ...] = (),
    is_refused: bool = False,
) -> Callable[[Callable[[Loads], str]], None]:
    """Add a kind of one file of text."""

    def add(text: Callable[[Loads], str]) -> None:
        def write(folder: Path, loads: Loads) -> Export:
            path = folder / file
            data = text(loads).encode()
            path.write_bytes(gzip.compress(data) if file.endswith(".gz") else data)
            arrivals = None if is_refused else loads.arrivals
            if len(nodes) == 1 and arrivals is not None:
                arrivals = arrivals.sum(axis=1, keepdims=True)
            return Export([path], options, arrivals, nodes, names=names)

        group[name] = write

    return add


def wide(loads: Loads, head: str, form: Callable[[datetime], str], cell: str = "{}") -> str:
    rows = zip(map(form, loads.minutes), loads.arrivals.tolist(), strict=True)
    mark = ";" if ";" in head else ","
    lines = [mark.join([time, *(cell.format(load) for load in row)]) for time, row in rows]
    return head + "".join(f"{line}\n" for line in lines)


def lines(head: str, rows: Iterator[str]) -> str:
    return head + "".join(f"{row}\n" for row in rows)


def iso(at: datetime) -> str:
    return at.isoformat()


def plain(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def offset(at: datetime, unit: int = 1) -> int:
    """Return the time since ``START``, in seconds divided by ``unit``."""
    return int((at - START) / timedelta(seconds=1) * unit)


# --- Dashboards and monitoring -------------------------------------------------------------------

kind(DASHBOARDS, "Grafana, series joined", "grafana.csv")(
    lambda x: wide(x, '"Time","fra-01","lon-01"\n', plain)
)
kind(DASHBOARDS, "Grafana, units in cells", "units.csv")(
    lambda x: wide(x, '"Time","fra-01","lon-01"\n', plain, '"{} req/min"')
)
SERIES = tuple(f'requests {{instance="{name}:9100"}}' for name in NODES)
kind(DASHBOARDS, "Grafana, Series;Time;Value", "series.csv", nodes=SERIES)(
    lambda x: lines(
        'sep=;\n"Series";"Time";"Value"\n',
        (
            f'"requests {{instance=""{NODES[n]}:9100""}}";"{iso(at)}";{load}'
            for at, n, load in x.cells
        ),
    )
)
kind(DASHBOARDS, "Datadog, long", "datadog.csv")(
    lambda x: lines(
        "timestamp,host,avg:nginx.net.request_per_s\n",
        (f"{at.timestamp() * 1000:.0f},{NODES[n]},{load / 60:.6f}" for at, n, load in x.cells),
    )
)
HOSTS = tuple(f"host:{name}" for name in NODES)
kind(DASHBOARDS, "Datadog, wide", "hosts.csv", nodes=HOSTS)(
    lambda x: wide(
        x, "timestamp,host:fra-01,host:lon-01\n", lambda at: str(int(at.timestamp()) * 1000)
    )
)
kind(DASHBOARDS, "CloudWatch console", "cloudwatch.csv")(
    lambda x: wide(
        x,
        '"Label","fra-01","lon-01"\n"ID","m1","m2"\n"Units","None","None"\n"Period","60","60"\n',
        lambda at: f'"{at:%Y/%m/%d %H:%M:%S}"',
        '"{}.0"',
    )
)
INFLUX = "{},result,table,_start,_stop,_time,_value,_field,host\n"
TYPES = (
    "#group,false,false,true,true,false,false,true,true\n#datatype,string,long,dateTime:RFC3339,"
    "dateTime:RFC3339,dateTime:RFC3339,double,string,string\n#default,_result,,,,,,,\n"
)


def influx(loads: Loads, head: str) -> str:
    tables = []
    for node, name in enumerate(NODES):
        rows = (
            f",,{node},2026-03-02T00:00:00Z,2026-03-03T00:00:00Z,{iso(at)},{load},requests,{name}"
            for at, n, load in loads.cells
            if n == node
        )
        tables.append(lines(head + INFLUX.format(""), rows))
    return "\n".join(tables)


kind(DASHBOARDS, "Influx, annotated", "annotated.csv")(lambda x: influx(x, TYPES))
kind(DASHBOARDS, "Influx, plain", "influx.csv")(lambda x: influx(x, ""))
kind(DASHBOARDS, "k6", "k6.csv", "--where metric_name=http_reqs", nodes=("k6",))(
    lambda x: lines(
        "metric_name,timestamp,metric_value,method,status,url\n",
        (
            f"{metric},{int(at.timestamp())},{value},GET,200,https://a"
            for at, n in x.requests
            for metric, value in (("http_reqs", 1.0), ("http_req_duration", 12.5 + n))
        ),
    )
)
kind(DASHBOARDS, "Kibana", "kibana.csv")(
    lambda x: lines(
        '"@timestamp","host.name","Count"\n',
        (
            f'"{at:%b} {at.day}, {at:%Y @ %H:%M:%S}.000","{NODES[n]}","{load}"'
            for at, n, load in x.cells
        ),
    )
)

# --- Tables --------------------------------------------------------------------------------------

LONG = "time,host,requests\n"
kind(TABLES, "long, gzip", "long.csv.gz")(
    lambda x: lines(LONG, (f"{iso(at)},{NODES[n]},{load}" for at, n, load in x.cells))
)
for unit, size in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
    kind(TABLES, f"epochs in {unit}", f"epoch_{unit}.csv")(
        lambda x, size=size: wide(
            x, "ts,fra-01,lon-01\n", lambda at: str(int(at.timestamp()) * size)
        )
    )
kind(TABLES, "epochs, fractions", "float.csv")(
    lambda x: wide(x, "ts,fra-01,lon-01\n", lambda at: str(at.timestamp()))
)
kind(TABLES, "scrapes with jitter", "jitter.csv", "--snap 60")(
    lambda x: wide(
        x,
        "time,fra-01,lon-01\n",
        lambda at: iso(at + timedelta(seconds=(at.minute * 7) % 3)),
    )
)
kind(TABLES, "Excel, decimal commas", "excel.csv", "--scale 60")(
    lambda x: lines(
        "Zeit;fra-01;lon-01\n",
        (
            ";".join(
                [f"{at:%d.%m.%Y %H:%M}", *(f"{load / 60:.6f}".replace(".", ",") for load in row)]
            )
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(TABLES, "Excel, capacity with a thousands point", "capacity.csv", "--decimal ,")(
    lambda x: lines(
        "Zeit;Knoten;Last;Kapazität\n",
        (f"{at:%d.%m.%Y %H:%M};{NODES[n]};{load};2.200" for at, n, load in x.cells),
    )
)
kind(TABLES, "US dates with AM and PM", "us.csv", "--date-order mdy")(
    lambda x: wide(x, "Date,fra-01,lon-01\n", lambda at: f"{at:%m/%d/%Y %I:%M:%S %p}")
)
kind(TABLES, "date and clock in two columns", "clock.csv")(
    lambda x: wide(x, "Datum,Uhrzeit,fra-01,lon-01\n", lambda at: f"{at:%d.%m.%Y},{at:%H:%M}")
)
ROME = ZoneInfo("Europe/Rome")
kind(TABLES, "local time", "rome.csv", "--zone Europe/Rome")(
    lambda x: wide(x, "time,fra-01,lon-01\n", lambda at: plain(at.astimezone(ROME)))
)
kind(TABLES, "pandas, with its index", "pandas.csv")(
    lambda x: wide(x, ",time,fra-01,lon-01\n", lambda at: f"{offset(at) // 60},{iso(at)}")
)
kind(
    TABLES,
    "a constant column",
    "constant.csv",
    "--arrivals fra-01,lon-01",
    names=("--arrivals 'fra-01,lon-01'", "'version'"),
)(lambda x: wide(x, "version,time,fra-01,lon-01\n", lambda at: f"7,{iso(at)}"))
for column, values in (("status", ("200", "500")), ("path", ("/a", "/b"))):
    kind(TABLES, f"rows by {column}", f"{column}.csv", "--combine sum", names=("--combine sum",))(
        lambda x, column=column, values=values: lines(
            f"time,host,{column},requests\n",
            (
                f"{iso(at)},{NODES[n]},{value},{load}"
                for at, n, total in x.cells
                for value, load in zip(values, (total - 1, 1), strict=True)
            ),
        )
    )
kind(
    TABLES,
    "a sum and the CPU beside",
    "total.csv",
    "--arrivals fra-01,lon-01",
    names=("--arrivals 'fra-01,lon-01'", "'Total'"),
)(
    lambda x: lines(
        "time,fra-01,lon-01,Total,cpu_pct\n",
        (
            f"{iso(at)},{row[0]},{row[1]},{sum(row)},{at.minute}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(TABLES, "CPU alone", "cpu.csv", names=("cpu_percent", "--arrivals"), is_refused=True)(
    lambda x: lines(
        "time,host,cpu_percent,latency_ms\n",
        (f"{iso(at)},{NODES[n]},{load},100" for at, n, load in x.cells),
    )
)
kind(TABLES, "two rows by mistake", "twice.csv", names=("--combine sum",), is_refused=True)(
    lambda x: lines(
        LONG,
        (f"{iso(at)},{NODES[n]},{load}" for at, n, load in (*x.cells, next(iter(x.cells)))),
    )
)
kind(TABLES, "pods renamed", "pods.csv", "--node-pattern '([a-z]+-[0-9]+)-'")(
    lambda x: lines(
        "time,pod,requests\n",
        (f"{iso(at)},{NODES[n]}-{at.minute // 5}ab,{load}" for at, n, load in x.cells),
    )
)
kind(TABLES, "a row per node, a column per minute", "minutes.csv")(
    lambda x: lines(
        f"function,{','.join(f'{at:%Y-%m-%d %H:%M}' for at in x.minutes)}\n",
        (f"{name},{','.join(map(str, x.arrivals[:, n]))}" for n, name in enumerate(NODES)),
    )
)
kind(TABLES, "no header", "bare.csv", "--columns time,host,requests", names=("--columns",))(
    lambda x: lines("", (f"{iso(at)},{NODES[n]},{load}" for at, n, load in x.cells))
)
kind(TABLES, "spaces, comments", "gnuplot.dat")(
    lambda x: lines(
        "# loads\n# time   fra-01  lon-01\n",
        (
            f"{at.timestamp():.0f}   {row[0]}  {row[1]}"
            for at, row in zip(x.minutes, x.arrivals.tolist(), strict=True)
        ),
    )
)
kind(TABLES, "requests, numeric id", "ids.csv", "--node-column server", names=("server",))(
    lambda x: lines(
        "request_id,start,duration_ms,server\n",
        (f"{i},{iso(at)},{i % 90},{NODES[n]}" for i, (at, n) in enumerate(x.requests)),
    )
)
kind(TABLES, "requests, uuid", "uuid.csv", "--node-column server", names=("server",))(
    lambda x: lines(
        "id,time,server,path,status\n",
        (f"{i:032x},{iso(at)},{NODES[n]},/a,200" for i, (at, n) in enumerate(x.requests)),
    )
)


def _frame(suffix: str) -> Kind:
    def write(folder: Path, loads: Loads) -> Export:
        import pandas as pd

        times = [at.replace(tzinfo=None) for at in loads.minutes]
        frame = pd.DataFrame(loads.arrivals, columns=list(NODES))
        frame.insert(0, "time", times)
        path = folder / f"loads.{suffix}"
        if suffix == "xlsx":
            frame.to_excel(path, index=False)
        else:
            (frame.to_parquet if suffix == "parquet" else frame.to_feather)(path)
        return Export([path], "", loads.arrivals)

    return write


BINARY = {suffix: _frame(suffix) for suffix in ("xlsx", "parquet", "feather")}


def pods(folder: Path, loads: Loads) -> Export:
    """A pod that is away in some steps, with its capacity."""
    away = np.zeros(loads.arrivals.shape, dtype=bool)
    away[1:-1:3, 1] = True
    rows = (
        f"{iso(at)},{NODES[n]},{load},100"
        for at, n, load in loads.cells
        if not away[offset(at) // 60, n]
    )
    (folder / "away.csv").write_text(lines("time,pod,requests,capacity\n", rows))
    arrivals = np.where(away, 0, loads.arrivals)
    return Export([folder / "away.csv"], "--gaps zero", arrivals, names=("--gaps zero",))


TABLES["pods that come and go"] = pods

# --- Public traces -------------------------------------------------------------------------------


def public(
    name: str, file: str, nodes: tuple[str, ...]
) -> Callable[[Callable[[Loads], str]], None]:
    """Add a public trace. Its options are those of data/README.md."""
    return kind(PUBLIC, name, file, nodes=nodes)


public("Azure Functions 2021", "invocations.txt", ("fra-01", "lon-01"))(
    lambda x: lines(
        "app,func,end_timestamp,duration\n",
        (f"{NODES[n]},f{n},{(at - START).total_seconds():.6f},0.109" for at, n in x.requests),
    )
)
public(
    "Azure LLM inference 2023, 2024",
    "AzureLLMInferenceTrace_code.csv",
    ("AzureLLMInferenceTrace_code",),
)(
    lambda x: lines(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        (f"{plain(at)}.{at.microsecond:06d}0,{374 + n},44" for at, n in x.requests),
    )
)
public("BurstGPT", "BurstGPT_1.csv", ("fra-01", "lon-01"))(
    lambda x: lines(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
        (f"{offset(at)},{NODES[n]},472,18,490,Conversation log" for at, n in x.requests),
    )
)
public("Google cluster 2011, task events", "part-00000-of-00500.csv.gz", ("0", "1"))(
    lambda x: lines(
        "",
        (
            f"{600_000_000 + offset(at, 10**6)},,3418309,0,{n},{event},uxpb,2,9,0.1,0.2,0.1,0"
            for at, n in x.requests
            for event in (0, 1)
        ),
    )
)
public("Google cluster 2019, machine usage", "usage.csv", ("0", "1"))(
    lambda x: lines(
        "start_time,end_time,machine_id,cpu_usage\n",
        (
            f"{300_000_000 + offset(at, 10**6)},{360_000_000 + offset(at, 10**6)},{n},{load}"
            for at, n, load in x.cells
        ),
    )
)
public("Alibaba cluster 2018, batch tasks", "batch_task.csv", ("0", "1"))(
    lambda x: lines(
        "",
        (
            f"M{i}_x,1,j_{i},{n},Terminated,{86_400 + offset(at)},{86_410 + offset(at)},100,0.3"
            for i, (at, n) in enumerate(x.requests)
        ),
    )
)
public("Alibaba microservices 2021, MSRTQps", "MSRTQps_0.csv", ("fra-01", "lon-01"))(
    lambda x: lines(
        ",timestamp,msname,msinstanceid,metric,value\n",
        (
            f"{offset(at)},{offset(at, 1000)},{NODES[n]},{NODES[n]}_{i},{metric},{part}"
            for at, n, load in x.cells
            for metric in ("providerRPC_MCR", "http_MCR")
            for i, part in enumerate((load - 1, 1))
        ),
    )
)
public("Alibaba microservices 2021, MSCallGraph", "MSCallGraph_0.csv", ("fra-01", "lon-01"))(
    lambda x: lines(
        ",traceid,timestamp,rpcid,um,rpctype,dm,interface,rt\n",
        (
            f"{i},0b13{i:x},{offset(at, 1000)},0.1.{i % 3},USER,http,{NODES[n]},a0,{i % 9}"
            for i, (at, n) in enumerate(x.requests)
        ),
    )
)
public("Huawei 2023, requests per minute", "day_000.csv", ("0", "1"))(
    lambda x: wide(x, "day,time,0,1\n", lambda at: f"0,{offset(at)}")
)
public("Huawei 2025, cold starts and requests", "requests.csv", ("fra-01", "lon-01"))(
    lambda x: lines(
        "day,time,clusterName,funcName,podID,userID,totalCost\n",
        (
            f"0,{(at - START).total_seconds():.5f},{NODES[n]},f{i % 9},p{i % 7},u1,{i % 50}"
            for i, (at, n) in enumerate(x.requests)
        ),
    )
)
public("WikiBench 2007", "wiki.1190153705.gz", ("wiki",))(
    lambda x: lines(
        "",
        (
            f"{i} {at.timestamp() - 600_000_000:.3f} http://en.wikipedia.org/wiki/Page_{i % 9} -"
            for i, (at, _) in enumerate(x.requests)
        ),
    )
)


def pageviews(folder: Path, loads: Loads) -> Export:
    """The pageviews tool: a column per page, a row per day."""
    days = [START + timedelta(days=day) for day in range(len(loads.arrivals))]
    rows = zip(days, loads.arrivals.tolist(), strict=True)
    text = lines("Date,Cat,Dog\n", (f"{at:%Y-%m-%d},{row[0]},{row[1]}" for at, row in rows))
    (folder / "pageviews.csv").write_text(text)
    return Export([folder / "pageviews.csv"], "", loads.arrivals, ("Cat", "Dog"), 86_400)


def pagecounts(folder: Path, loads: Loads) -> Export:
    """Hourly page counts: a file an hour, a row per page."""
    paths = []
    for hour, row in enumerate(loads.arrivals[:5].tolist()):
        paths.append(folder / f"pagecounts-20260302-{hour:02d}0000.gz")
        rows = (
            f"{code} Page_{i} {part} 9{i}"
            for code, load in zip(("en", "de"), row, strict=True)
            for i, part in enumerate((load - 1, 1))
        )
        paths[-1].write_bytes(gzip.compress(lines("", rows).encode()))
    return Export(paths, "", loads.arrivals[:5], ("en", "de"), 3600)


def azure_2019(folder: Path, loads: Loads) -> Export:
    """A row per function, a column per minute of a day."""
    minutes = np.zeros((1440, 2), dtype=np.int64)
    minutes[: len(loads.arrivals)] = loads.arrivals[:1440]
    path = folder / "invocations_per_function_md.anon.d01.csv"
    head = f"HashOwner,HashApp,HashFunction,Trigger,{','.join(map(str, range(1, 1441)))}\n"
    rows = (f"o,a{n},f{n},http,{','.join(map(str, minutes[:, n]))}" for n in range(2))
    path.write_text(lines(head, rows))
    return Export([path], "", minutes, ("hashed",) * 2)


PUBLIC["Wikipedia, pageviews tool"] = pageviews
PUBLIC["Wikipedia, hourly pagecounts"] = pagecounts
PUBLIC["Azure Functions 2019"] = azure_2019

KINDS: dict[str, Kind] = {**DASHBOARDS, **TABLES, **BINARY, **PUBLIC}


def right(export: Export, nodes: Sequence[str], arrivals: np.ndarray, step: int) -> bool:
    """Return True if a trace has the loads of an export, cell by cell."""
    if export.arrivals is None or step != export.step:
        return False
    if export.nodes[0] == "hashed":  # only the sum over all nodes is known
        return bool((arrivals.sum(axis=1) == export.arrivals.sum(axis=1)).all())
    if sorted(nodes) != sorted(export.nodes):
        return False
    columns = [list(nodes).index(node) for node in export.nodes]
    return arrivals[:, columns].tolist() == export.arrivals.tolist()
