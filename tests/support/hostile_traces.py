"""Files that a stranger hands in as a trace: to hang, to fill the memory, to burn the processor.

Each case is a function (folder) that makes the file and returns its path. ``meet`` lets every
reader of traces open it in a process of its own, with a limit on memory and on time.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import forked

SECONDS = 5.0
"""CPU seconds that one reader may take for one file."""

IMPORTS = ("pandas", "corral.data", "corral.envs.registry")
"""Modules of all readers, which are no part of their seconds."""

MEGABYTES = 1000
"""Resident memory that a process may take for one file, with all its readers."""

GIB = 2**30
BOMB = 1500 * 2**20  # bytes that a packed file of about 1.5 MB unpacks to
MANY = 10**7  # rows


@dataclass(frozen=True)
class Case:
    """One hostile file. ``slow``: making or reading it takes seconds."""

    kind: str
    build: Callable[[Path], Path]
    slow: bool


CASES: dict[str, Case] = {}
KINDS: list[str] = []  # the last is that of the cases below it


def case(name: str, *, slow: bool = False) -> Callable[[Callable[[Path], Path]], None]:
    def keep(build: Callable[[Path], Path]) -> None:
        CASES[name] = Case(KINDS[-1], build, slow)

    return keep


def content(name: str, data: Callable[[], bytes], *, slow: bool = False, file: str = "x.csv"):
    """Keep a case whose file holds what ``data`` returns."""

    def build(folder: Path) -> Path:
        path = folder / file
        path.write_bytes(data())
        return path

    CASES[name] = Case(KINDS[-1], build, slow)


# --- No regular files ----------------------------------------------------------------------------

KINDS.append("pipes, sockets, devices, folders, sparse files")


@case("a named pipe")
def _(folder: Path) -> Path:
    os.mkfifo(folder / "x.csv")
    return folder / "x.csv"


@case("a link to a named pipe")
def _(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    (folder / "x.csv").symlink_to(folder / "pipe")
    return folder / "x.csv"


@case("a socket")
def _(folder: Path) -> Path:
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(folder)  # the names of sockets are short
    try:
        server.bind("x.csv")
    finally:
        os.chdir(here)
        server.close()
    return folder / "x.csv"


@case("an endless device")
def _(folder: Path) -> Path:
    (folder / "x.csv").symlink_to("/dev/zero")
    return folder / "x.csv"


@case("a folder")
def _(folder: Path) -> Path:
    (folder / "x.csv").mkdir()
    return folder / "x.csv"


@case("a link to itself")
def _(folder: Path) -> Path:
    (folder / "x.csv").symlink_to(folder / "x.csv")
    return folder / "x.csv"


def sparse(head: bytes) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / "x.csv"
        path.write_bytes(head)
        os.truncate(path, 4 * GIB)
        return path

    return build


TRACE = b"time,node,arrivals\n"
case("4 GB of nothing")(sparse(b""))
case("4 GB of nothing below a header")(sparse(TRACE + b"0,a,1\n" * 200_000))
case("4 GB of nothing in gzip")(sparse(gzip.compress(TRACE + b"0,a,1\n1,a,1\n")))
case("4 GB of nothing below JSON")(
    sparse(b'{"status": "success", "data": {"result": [' + b" " * 2**21)
)


# --- Bombs of gzip -------------------------------------------------------------------------------

KINDS.append("gzip bombs")


def bomb(name: str, head: bytes, row: bytes, *, file: str = "x.csv") -> None:
    """Keep a case of gzip members that repeat ``row`` below ``head``."""

    def data() -> bytes:
        block = row * (16 * 2**20 // len(row))
        return gzip.compress(head) + gzip.compress(block, 9) * (BOMB // len(block))

    content(name, data, file=file)


LOG_LINE = b'1.2.3.4 - - [05/Jan/2026:00:00:05 +0000] "GET / HTTP/1.1" 200 87\n'
SERIES = b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":['
bomb("gzip of zeros", b"", b"\0")
bomb("gzip of line ends", b"", b"\n")
bomb("gzip of line ends below a header", TRACE, b"\n")
bomb("gzip of one letter", b"", b"a")
bomb("gzip of one line of commas", TRACE, b",")
bomb("gzip of one row of a trace", TRACE, b"0,a,1\n")
bomb("gzip of one row of a trace with days", TRACE, b"2026-01-05T00:00:00Z,a,1\n")
bomb("gzip of one row of a series", b"time,value\n", b"2026-01-05T00:00:00Z,1\n")
bomb("gzip of one request", b"time,server,path\n", b"1767571200,a,/\n")
bomb("gzip of one request, one column", b"time\n", b"1767571200\n")
bomb("gzip of one row of a request log", b"time,node,work\n", b"1767571200,a,1\n")
bomb(
    "gzip of a wide row",
    b"time" + b",n%d" * 500 % tuple(range(500)) + b"\n",
    b"2026-01-05T00:00:00Z" + b",1" * 500 + b"\n",
)
bomb("gzip of one line of a log", LOG_LINE, LOG_LINE)
bomb("gzip of lines that are no log", LOG_LINE * 20, b"x\n")
bomb("gzip of one value of JSON", SERIES, b'[1767571200,"1"],', file="x.json")
bomb("gzip of brackets", SERIES, b"[", file="x.json")
bomb("gzip of one long text of JSON", b'{"status":"', b"a", file="x.json")
bomb("gzip of spaces in JSON", b"{", b" ", file="x.json")
bomb("gzip of open quotes", b'time,node,arrivals\n0,"', b"a\n")
bomb(
    "gzip of one row of Prometheus in CSV",
    b'Time,{instance="a"},{instance="b"}\n',
    b"2026-01-05T00:00:00Z,1,2\n",
)
bomb(
    "gzip of one row of Azure Functions",
    b"HashOwner,HashApp,HashFunction,Trigger,"
    + b",".join(b"%d" % i for i in range(1, 1441))
    + b"\n",
    b"a,b,c,http" + b",1" * 1440 + b"\n",
)
content("gzip of a million empty members", lambda: gzip.compress(b"") * 10**6)
content("gzip in gzip", lambda: gzip.compress(gzip.compress(bytes(2**26)) * 100))


# --- Lines and columns ---------------------------------------------------------------------------

KINDS.append("huge lines, columns and numbers of rows")

content("one huge line", lambda: b"a" * 150_000_000)
content("one huge line below a header", lambda: TRACE + b"1" * 150_000_000)
content("one huge row of commas", lambda: TRACE + b"," * 150_000_000)
content("long rows of commas", lambda: TRACE + (b"," * 60_000 + b"\n") * 3000)
content(
    "long rows of commas below a table",
    lambda: (
        b"time,a,b\n2026-01-05,1,2\n2026-01-06,1,2\n"
        b"2026-01-07,1,2\n" + (b"," * 60_000 + b"\n") * 3000
    ),
)
content("a million columns", lambda: b"time," + b",".join(b"%d" % i for i in range(10**6)) + b"\n")
content(
    "a million columns and rows",
    lambda: b"time" + b",a" * 10**6 + b"\n" + (b"2026-01-05" + b",1" * 10**6 + b"\n") * 9,
)
content(
    "20,000 columns",
    lambda: (
        b"time,"
        + b",".join(b"%d" % i for i in range(11_000))
        + b"\n"
        + (b"2026-01-05T00:%02d:00Z" + b",1" * 11_000 + b"\n") * 60 % tuple(range(60))
    ),
)
content("10,000,000 tiny lines", lambda: b"1\n" * MANY)
content("10,000,000 tiny rows", lambda: b"a,b\n" * MANY)
content("10,000,000 blank lines", lambda: TRACE + b"\n" * MANY)
content("10,000,000 lines of a trace", lambda: TRACE + b"0,a,1\n" * MANY)
content("10,000,000 lines of a series", lambda: b"time,value\n" + b"1767571200,1\n" * MANY)
content(
    "10,000,000 times of a series",
    lambda: b"time,value\n" + b"".join(b"%d,1\n" % t for t in range(1767571200, 1767571200 + MANY)),
    slow=True,
)
content("10,000,000 requests", lambda: b"time,server\n" + b"1767571200,a\n" * MANY)
content("a header, ten million times", lambda: b"time,value\n" * MANY)
content(
    "every row of a trace another node",
    lambda: TRACE + b"".join(b"0,n%d,1\n" % i for i in range(3_000_000)),
    slow=True,
)
content(
    "every request another server",
    lambda: b"time,server\n" + b"".join(b"1767571200,n%d\n" % i for i in range(2_000_000)),
    slow=True,
)
content(
    "a trace of as many rows as are taken",
    lambda: TRACE + b"".join(b"%d,a,1\n" % i for i in range(6_240_000)),
    slow=True,
)
content(
    "the same, backwards",
    lambda: TRACE + b"".join(b"%d,a,1\n" % -i for i in range(6_240_000)),
    slow=True,
)
content(
    "the same, in quotes",
    lambda: TRACE + b"".join(b'"%d",a,1\n' % i for i in range(6_240_000)),
    slow=True,
)
content("old Mac line ends", lambda: (TRACE + b"0,a,1\n" * MANY).replace(b"\n", b"\r"))


# --- Cells that patterns are slow with -----------------------------------------------------------

KINDS.append("cells that patterns are slow with")

WIDE = 60_000
DAYS = [b"2026-01-%02d" % day for day in range(5, 25)]


def table(cell: bytes, header: bytes = b"time,value\n") -> Callable[[], bytes]:
    return lambda: header + b"".join(b"%s,%s\n" % (day, cell) for day in DAYS)


content("a number, then many spaces", table(b"1" + b" " * WIDE + b"!"))
content(
    "a clock, then many spaces",
    lambda: (
        b"clock,day,value\n" + b"".join(b"00:00%s!,%s,1\n" % (b" " * WIDE, day) for day in DAYS)
    ),
)
content("a number of 60,000 digits", table(b"9" * WIDE))
content("a number of 60,000 commas", table(b'"' + b"1," * (WIDE // 2) + b'"'))
content("a title of many spaces", table(b"1", b"time,a" + b" " * WIDE + b"b\n"))
content("a title of brackets", table(b"1", b"time," + b"(" * WIDE + b"\n"))
content("a title of one word", table(b"1", b"time," + b"a" * WIDE + b"\n"))
content("a title of equals signs", table(b"1", b"time," + b'a="' * (WIDE // 3) + b"\n"))
content(
    "a log of quotes",
    lambda: (
        LOG_LINE * 20
        + (b'1 - - [05/Jan/2026:00:00:05 +0000] "' + b'" ' * (WIDE // 2) + b"\n") * 200
    ),
)
content("a log of brackets", lambda: LOG_LINE * 20 + (b"1 - - " + b"[05/Jan/" * 7000 + b"\n") * 200)


# --- JSON ----------------------------------------------------------------------------------------

KINDS.append("JSON")

content("deep lists of JSON", lambda: b"[" * 10**7, file="x.json")
content("deep objects of JSON", lambda: b'{"data":' * 10**6, file="x.json")
content(
    "many keys of JSON",
    lambda: b'{"status":"success",' + b",".join(b'"%x":1' % i for i in range(5_500_000)) + b"}",
    slow=True,
    file="x.json",
)
content(
    "many numbers of JSON", lambda: b'{"status":[' + b"1.5," * 15_000_000 + b"1]}", file="x.json"
)
content(
    "many series of JSON",
    lambda: (
        b'{"status":"success","data":{"result":['
        + b",".join(
            b'{"metric":{"a":"%d"},"values":[[1767571200,"1"]]}' % i for i in range(1_000_000)
        )
        + b"]}}"
    ),
    slow=True,
    file="x.json",
)
content(
    "as many values of JSON as are taken",
    lambda: (
        SERIES
        + b",".join(b'[%d,"1"]' % t for t in range(1767571200, 1767571200 + 1_600_000))
        + b"]}]}}"
    ),
    slow=True,
    file="x.json",
)
content(
    "a number of JSON without end",
    lambda: SERIES + b"[1767571200," + b"9" * 10**7 + b"]]}]}}",
    file="x.json",
)


# --- A gap of 26 years ---------------------------------------------------------------------------

KINDS.append("times 26 years apart")

EARLY, LATE = "2000-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
YEARS = [EARLY, LATE, LATE.replace("00:00Z", "01:00Z"), LATE.replace("00:00Z", "02:30Z")]


def years(name: str, lines: list[str], *, file: str = "x.csv") -> None:
    content(f"26 years: {name}", lambda: "".join(f"{line}\n" for line in lines).encode(), file=file)


years("two times", ["time,value", f"{EARLY},1", f"{LATE},2"])
years("a series", ["time,value", *(f"{when},1" for when in YEARS)])
years("requests", ["time,server,path", *(f"{when},a,/" for when in YEARS)])
years("requests of one column", ["time", *YEARS])
years("a long table", ["time,server,requests", *(f"{w},{n},1" for w in YEARS for n in "ab")])
years("a wide table", ["time,a,b", *(f"{when},1,2" for when in YEARS)])
years(
    "a log",
    [
        f'h - - [01/Jan/{year}:00:0{m}:05 +0000] "GET / HTTP/1.1" 200 87'
        for year, m in ((2000, 0), (2026, 0), (2026, 1), (2026, 2))
    ],
)
years(
    "counters of Prometheus",
    [
        json.dumps(
            {
                "status": "success",
                "data": {
                    "resultType": "matrix",
                    "result": [
                        {
                            "metric": {},
                            "values": [
                                [t, str(i)]
                                for i, t in enumerate((946684800, *range(1767225600, 1767225610)))
                            ],
                        }
                    ],
                },
            }
        )
    ],
    file="x.json",
)
years("Prometheus in CSV", ['Time,{instance="a"},{instance="b"}', *(f"{w},1,2" for w in YEARS)])


# --- Meeting them --------------------------------------------------------------------------------

GAPS = ("refuse", "zero", "previous", "interpolate")


def readers() -> dict[str, Callable[[str], Any]]:
    """Return every way into a file: by name, a function of its path."""
    from corral import data

    calls: dict[str, Callable[[str], Any]] = {
        "read_trace": data.read_trace,
        "load_trace": data.load_trace,
        "import_trace": data.import_trace,
        "import_table": data.import_table,
        "import_series": data.import_series,
        "import_requests": lambda path: data.import_requests(path, step=60),
        "import_access_log": lambda path: data.import_access_log(path, step=60),
        "read_request_log": data.read_request_log,
        "import_prometheus": data.import_prometheus,
        "import_azure_functions": lambda path: data.import_azure_functions(path, nodes=4),
        "capacity": lambda path: data.import_table(
            Path(__file__).with_name("small_table.csv"), capacity=path
        ),
        "rows": lambda path: data.import_table(path, one_node=True),
        "requests of servers": lambda path: data.import_requests(
            path, step=60, node_column="server"
        ),
        "malformed lines": lambda path: data.import_access_log(path, step=60, skip_malformed=True),
    }
    for gaps in GAPS[1:]:
        calls[f"table, {gaps}"] = lambda path, gaps=gaps: data.import_table(path, gaps=gaps)
        calls[f"series, {gaps}"] = lambda path, gaps=gaps: data.import_series(path, gaps=gaps)
        calls[f"prometheus, {gaps}"] = lambda path, gaps=gaps: data.import_prometheus(
            path, gaps=gaps
        )
        calls[f"counters, {gaps}"] = lambda path, gaps=gaps: data.import_prometheus(
            path, gaps=gaps, counter=True
        )
    return calls


READERS = (
    "read_trace",
    "import_trace",
    "import_table",
    "import_series",
    "import_requests",
    "import_access_log",
    "read_request_log",
    "import_prometheus",
    "import_azure_functions",
    "capacity",
    "rows",
)
"""What meets every file."""

GAP_READERS = tuple(
    f"{kind}, {gaps}" for kind in ("table", "series", "prometheus", "counters") for gaps in GAPS[1:]
)
"""What meets the files with a gap besides."""


def readers_of(name: str) -> tuple[str, ...]:
    return READERS + (GAP_READERS if name.startswith("26 years") else ())


@dataclass(frozen=True)
class Meeting:
    """What one reader made of a file: ``outcome`` is "refused", "read", or what went wrong."""

    reader: str
    outcome: str
    seconds: float  # of the processor
    message: str
    steps: int = 0  # of the trace that was read


def meet(path: Path, names: tuple[str, ...], *, wall: float = 300) -> tuple[list[Meeting], float]:
    """Let readers open a file in one process; return what they made of it, and its peak in MB.

    The meetings end with one that went wrong where the process dies or hangs.
    """
    call = "import sys; from support.hostile_traces import main; main(*sys.argv[1:])"
    try:
        done = forked.run(["-c", call, path, *names], timeout=wall, imports=IMPORTS)
        text, code = done.stdout, f"exit status {done.returncode}: {done.stderr[-300:]}"
    except subprocess.TimeoutExpired as error:
        text, code = error.stdout, f"nothing within {wall} s"  # type: ignore[assignment]  # text
    met = [json.loads(line) for line in text.splitlines()]
    meetings = [Meeting(**each) for each in met if "reader" in each]
    peak = max([each["peak"] for each in met if "peak" in each], default=0.0)
    if len(meetings) < len(names):
        lost = names[len(meetings)]
        meetings.append(Meeting(lost, "died or hung", SECONDS + 1, code))
    return meetings, peak


def failures(
    name: str, meetings: list[Meeting], peak: float, seconds: float = SECONDS
) -> list[str]:
    """Return what did not hold, a line for each reader; ``seconds`` are CPU seconds of a file."""
    bad = [
        f"{name}, {each.reader}: {each.outcome} in {each.seconds:.1f} s: {each.message[:200]}"
        for each in meetings
        if each.outcome not in ("read", "refused") or each.seconds > seconds
    ]
    if peak > MEGABYTES:
        bad.append(f"{name}: {peak:.0f} MB of memory")
    return bad


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    if os.path.exists("/proc/self/status"):  # unlike ru_maxrss it knows nothing of the parent
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1000
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def worker(path: str, names: list[str]) -> Iterator[dict[str, Any]]:
    import pandas  # noqa: F401 - what all readers load is no part of their seconds

    from corral.errors import CorralError

    resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB))  # a machine outlives its tests
    calls = readers()
    for name in names:
        begin = time.process_time()
        steps = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read = calls[name](path)
                trace = getattr(read, "trace", read)
                outcome, message, steps = "read", repr(trace), len(trace)
            except (CorralError, ValueError) as error:
                outcome, message = "refused", str(error)
            except BaseException as error:
                outcome, message = f"raw {type(error).__name__}", str(error)
        seconds = time.process_time() - begin
        yield {
            "reader": name,
            "outcome": outcome,
            "seconds": round(seconds, 3),
            "message": message[:2000],
            "steps": steps,
        }
        yield {"peak": peak_memory()}


def main(path: str, *names: str) -> None:
    for answer in worker(path, [*names]):
        print(json.dumps(answer), flush=True)
