"""How long the first import takes, of nine kinds of exports that operators have.

    python benchmarks/loads/exports.py [FOLDER]

Draws loads of four servers over 14 days of minutes from a seed of its own, writes them as nine
programs would (into FOLDER, to look at), imports each in a process of its own, and checks the trace
against the loads. Prints for each: its size, the options that it took, seconds of the whole
command (of processors, and by the clock), and how far the total of requests is off (of cells with a
unit three digits are shown).
"""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

SEED = 18
MINUTES = 14 * 1440
SERVERS = ("web-1", "web-2", "edge-1", "edge-2")
START = datetime(2026, 10, 18, 22, 0, tzinfo=UTC)  # midnight in Rome; DST ends on day 7
ROME = ZoneInfo("Europe/Rome")


def draw() -> tuple[np.ndarray, np.ndarray]:
    """Return arrivals and capacity [T, N], requests per minute."""
    rng = np.random.default_rng(SEED)
    hour = (np.arange(MINUTES) / 60)[:, None] + np.array([0.0, 3.0, 6.0, 9.0])
    rate = 40 + 25 * np.sin(2 * np.pi * hour / 24)
    capacity = np.broadcast_to(np.array([60, 70, 50, 55]), rate.shape)
    return rng.poisson(rate), capacity


ARRIVALS, CAPACITY = draw()
INSTANTS = [START + timedelta(minutes=minute) for minute in range(MINUTES)]

Written = tuple[str, list[str], np.ndarray]  # name of the file, options, arrivals as they must be


def grafana(folder: Path) -> Written:
    """A column per server, titled by labels; rates with a unit; local times without a zone."""
    titles = ",".join(f'"{{instance=""{name}:8080"", job=""gw""}}"' for name in SERVERS)
    with (folder / "grafana.csv").open("w", encoding="utf-8") as file:
        file.write(f'"Time",{titles}\n')
        for at, row in zip(INSTANTS, ARRIVALS, strict=True):
            cells = ",".join(f"{load / 60:.3g} req/s" for load in row.tolist())
            file.write(f"{at.astimezone(ROME):%Y-%m-%d %H:%M:%S},{cells}\n")
    return "grafana.csv", ["--zone", "Europe/Rome"], ARRIVALS


def request_log(folder: Path) -> Written:
    """One row per request, of the first day."""
    rng = np.random.default_rng(SEED)
    rows = []
    for minute in range(1440):
        for name, load in zip(SERVERS, ARRIVALS[minute].tolist(), strict=True):
            for second in rng.random(load).tolist():
                at = INSTANTS[minute] + timedelta(seconds=59.999 * second)
                rows.append(f"{at:%Y-%m-%dT%H:%M:%S.%f}Z,{name},GET,/item,200\n")
    head = "timestamp,host,method,path,status\n"
    (folder / "requests.csv").write_text(head + "".join(sorted(rows)))
    return "requests.csv", ["--node-column", "host"], ARRIVALS[:1440]


def epoch_ms(folder: Path) -> Written:
    """A row per server and minute, milliseconds since 1970."""
    with (folder / "epoch.csv").open("w") as file:
        file.write("ts,server,hits,latency_ms\n")
        for at, row in zip(INSTANTS, ARRIVALS.tolist(), strict=True):
            stamp = int(at.timestamp() * 1000)
            file.writelines(
                f"{stamp},{n},{load},{12 + load % 7}\n"
                for n, load in zip(SERVERS, row, strict=True)
            )
    return "epoch.csv", [], ARRIVALS


def autoscaler(folder: Path) -> Written:
    """Two clusters, each in the offset of its own clock, with holes of 7 minutes and 3 hours."""
    expected = ARRIVALS.copy()
    for low, high in ((500, 507), (9000, 9180)):
        expected[low:high] = expected[low - 1]
    with (folder / "hpa.csv").open("w") as file:
        file.write("timestamp,hpa,cluster,requests_per_minute,limit,replicas\n")
        for minute, at in enumerate(INSTANTS):
            if 500 <= minute < 507 or 9000 <= minute < 9180:
                continue
            for i, name in enumerate(SERVERS):
                hpa, cluster = name.split("-")
                zone = UTC if hpa == "web" else ROME
                stamp = at.astimezone(zone).isoformat()
                load, limit = ARRIVALS[minute, i], CAPACITY[minute, i]
                file.write(f"{stamp},{hpa},eu-{cluster},{load},{limit},{load // 20}\n")
    return "hpa.csv", ["--node-column", "hpa+cluster", "--gaps", "previous"], expected


def other_names(folder: Path) -> Written:
    """A row per server and minute, under names of columns that tell nothing."""
    with (folder / "names.csv").open("w") as file:
        file.write("x_when;x_who;x_much;x_most\n".replace(";", ","))
        for at, loads, roofs in zip(INSTANTS, ARRIVALS, CAPACITY, strict=True):
            stamp = f"{at:%Y-%m-%dT%H:%M:%SZ}"
            cells = zip(SERVERS, loads.tolist(), roofs.tolist(), strict=True)
            file.writelines(f"{stamp},{name},{load},{roof}\n" for name, load, roof in cells)
    rename = "time=x_when,node=x_who,arrivals=x_much,capacity=x_most"
    return "names.csv", ["--rename", rename], ARRIVALS


def excel(folder: Path) -> Written:
    """Semicolons, decimal commas, a byte-order mark, dd.mm.yyyy; two columns per server."""
    heads = [f"invoc_{name}" for name in SERVERS] + [f"max_{name}" for name in SERVERS]
    with (folder / "excel.csv").open("w", encoding="utf-8-sig", newline="\r\n") as file:
        file.write(f"Zeit;{';'.join(heads)}\n")
        for at, loads, roofs in zip(INSTANTS, ARRIVALS, CAPACITY, strict=True):
            cells = [f"{each / 60:.6f}".replace(".", ",") for each in [*loads, *roofs]]
            file.write(f"{at:%d.%m.%Y %H:%M};{';'.join(cells)}\n")
    options = ["--arrivals", "invoc_*", "--capacity", "max_*", "--scale", "60"]
    return "excel.csv", options, ARRIVALS


def prometheus(folder: Path) -> Written:
    """The answer of query_range."""
    series = [
        {
            "metric": {"instance": f"{name}:9090", "job": "gw"},
            "values": [
                [int(at.timestamp()), str(load)]
                for at, load in zip(INSTANTS, ARRIVALS[:, i].tolist(), strict=True)
            ],
        }
        for i, name in enumerate(SERVERS)
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    (folder / "prometheus.json").write_text(json.dumps(answer))
    return "prometheus.json", [], ARRIVALS


def daylight_saving(folder: Path) -> Written:
    """A column per server, times as a clock in Rome shows them: an hour comes twice."""
    with (folder / "rome.csv").open("w") as file:
        file.write(f"Datum,{','.join(SERVERS)}\n")
        for at, loads in zip(INSTANTS, ARRIVALS.tolist(), strict=True):
            file.write(f"{at.astimezone(ROME):%d/%m/%Y %H:%M},{','.join(map(str, loads))}\n")
    return "rome.csv", ["--zone", "Europe/Rome"], ARRIVALS


def frame(folder: Path) -> Written:
    """A pickled DataFrame, times as its index."""
    import pandas as pd

    table = pd.DataFrame(ARRIVALS, index=pd.DatetimeIndex(INSTANTS), columns=list(SERVERS))
    table.to_pickle(folder / "frame.pkl")
    return "frame.pkl", [], ARRIVALS


KINDS: dict[str, Callable[[Path], Written]] = {
    "Grafana, wide": grafana,
    "request log (a day)": request_log,
    "epoch ms": epoch_ms,
    "HPA, gaps, two zones": autoscaler,
    "other column names": other_names,
    "Excel with ;": excel,
    "Prometheus JSON": prometheus,
    "daylight saving": daylight_saving,
    "DataFrame": frame,
}

FROM_FRAME = (
    "import sys, pandas; from corral.data import Trace, write_trace; "
    "write_trace(Trace.from_dataframe(pandas.read_pickle(sys.argv[1])), sys.argv[2])"
)


def cpu_seconds() -> float:
    """Return the CPU seconds of the processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def measure(folder: Path) -> Iterator[list[str]]:
    """Yield a row of the table for each kind."""
    from corral.data import read_trace

    for kind, write in KINDS.items():
        file, options, expected = write(folder)
        out = folder / f"{file}.trace.csv"
        corral = [sys.executable, "-m", "corral", "trace", "import", str(folder / file)]
        command = [*corral, *options, "--out", str(out)]
        if file.endswith(".pkl"):
            command = [sys.executable, "-c", FROM_FRAME, str(folder / file), str(out)]
        begin, used = time.perf_counter(), cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds, used = time.perf_counter() - begin, cpu_seconds() - used
        if done.returncode:
            yield [kind, "", "", "", "", f"refused: {done.stderr.strip()}"]
            continue
        trace = read_trace(out)
        arrivals = trace.arrivals
        if set(trace.nodes) == set(SERVERS):  # in a log they stand as they come
            arrivals = arrivals[:, [trace.nodes.index(name) for name in SERVERS]]
        right = arrivals.shape == expected.shape
        off = abs(arrivals.sum() / expected.sum() - 1)
        if kind.startswith("Grafana"):  # its cells show three digits
            right = right and off < 0.002
        else:
            right = right and bool((arrivals == expected).all())
        if not right:
            yield [kind, "", "", "", "", f"{out.name} is not the load that was written"]
            continue
        size = (folder / file).stat().st_size / 1e6
        given = shlex.join(options) if options else "none"
        yield [kind, f"{size:.1f}", given, f"{used:.1f}", f"{seconds:.1f}", f"{100 * off:.3f} %"]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        folder.mkdir(parents=True, exist_ok=True)
        head = ["| export | MB | options | CPU s | s | total off by |", "|---|---|---|---|---|---|"]
        lines, rows = [], []
        for line in head:
            print(line)
        for row in measure(folder):
            rows.append(row)
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
        print()
        save("exports", "\n".join([*head, *lines]), {"rows": rows}, machine("pandas"))
        if not all(row[1] for row in rows):
            sys.exit("some exports were refused, or not read as they are")


if __name__ == "__main__":
    main()
