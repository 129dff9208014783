"""How many decisions a second ``corral serve`` makes, how soon, and what a kill does to them.

    python benchmarks/loads/serving.py [RUN] [--rule NAME] [--export] [--seconds 5] [--rounds 3]
    python benchmarks/loads/serving.py --unknown [--rule NAME] [--export]
    python benchmarks/loads/serving.py [RUN] [--export] --kill 20

Server and clients share the machine: one process each, 8 clients with a connection of their own
that stays open, threads over plain sockets. Without RUN a small team of edge3 is trained first;
``--unknown``: one that does not know the arrivals of a step, and answers by plans.
Every answer is compared with ``run.decide``, whose own policies play, in this process.

1. Peak: each client asks again as soon as it is answered. The best of some rounds.
2. Half of it: each asks at fixed moments. A latency begins at that moment, so that a client which
   is still waiting for the answer before does not hide a slow one.

``--kill N``: the server is killed (SIGKILL) N times under load, and started again on the same port;
the clients connect again and go on. Counted are answers, wrong ones, and requests without answer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

import corral

CLIENTS = 8
MOMENTS = 256  # different requests, drawn from the rows of the training


class Case:
    """A request, the decision that is right, and bytes of bodies that were found to be."""

    def __init__(self, asked: dict[str, Any], decision: dict[str, Any]) -> None:
        body = json.dumps(asked).encode()
        head = "POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.decision = decision
        self.right: set[bytes] = set()

    def is_right(self, status: bytes, body: bytes) -> bool:
        """Tell whether this is the answer; equal bytes are compared once."""
        if status != b"200":
            return False
        if body not in self.right:
            found = json.loads(body)
            if found.get("forward", found.get("plan")) != self.decision:
                return False
            self.right.add(body)
        return True


def cases_of(run: Any, rule: str | None) -> list[Case]:
    """Return requests of the rows that ``run`` was trained on, with drawn reports."""
    from corral.loads.export.decider import Decider, decider_of, rules_of

    rules, rng = rules_of(run), np.random.default_rng(0)
    decider = decider_of(run) if rule is None else Decider.of_rule(rule, rules)
    section = rules.trace.section(*rules.rows)
    found = []
    for row in rng.integers(len(section), size=MOMENTS).tolist():
        nodes, previous = {}, {}
        for i, name in enumerate(section.nodes):
            arrivals, capacity = int(section.arrivals[row, i]), int(section.capacity[row, i])
            queue = int(rng.integers(rules.queue + 1))
            count = "arrivals" if rules.arrivals == "known" else "last_arrivals"
            nodes[name] = {count: arrivals, "capacity": capacity, "queue": queue}
            spare, lost = int(rng.integers(capacity + 1)), int(rng.integers(arrivals + 1))
            previous[name] = {"spare": spare, "lost": lost}
        asked = {"nodes": nodes, "previous": previous}
        found.append(Case(asked, decider.decide(nodes, previous)))
    return found


# --- The server ----------------------------------------------------------------------------------


class Server:
    """``corral serve`` in a process of its own, on one port; its log goes to ``errors``."""

    def __init__(self, run: str, options: list[str], errors: IO[str] | None = None) -> None:
        self.errors = errors
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ["-m", "corral", "serve", run, "--port", str(self.port), *options]
        self.words = [sys.executable, *words]

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.process = subprocess.Popen(
            self.words, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("POST "):
                return
        sys.exit("the server did not start")

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait()

    def cpu_seconds(self) -> float:
        import psutil

        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection: socket.socket | None = None

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Return status and body of the answer. Raises OSError where the connection ends."""
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.sendall(request)
        got = b""
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self._more()
        head = got[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(got) < end + 4 + length:
            got += self._more()
        return got[9:12], got[end + 4 :]

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def _more(self) -> bytes:
        assert self.connection is not None
        if not (part := self.connection.recv(65536)):
            raise ConnectionError("the connection ended")
        return part


def together(work: Callable[[int], None]) -> None:
    """Let all clients work at once."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def load(
    port: int,
    cases: list[Case],
    seconds: float,
    rate: float | None,
    client_of: Callable[[int], Client] | None = None,
) -> tuple[float, list[float], int]:
    """Return answers per second, latencies in seconds, and how many answers were wrong; ``rate``
    is of all clients, None: as many as they can."""
    latencies: list[list[float]] = [[] for _ in range(CLIENTS)]
    wrong = [0] * CLIENTS
    began = time.perf_counter() + 0.1

    def work(number: int) -> None:
        client, rng = (client_of or Client)(port), random.Random(number)
        pause = 0.0 if rate is None else CLIENTS / rate
        due = began + pause * number / CLIENTS
        while True:
            if (now := time.perf_counter()) < due:
                time.sleep(due - now)
            asked_at = due if rate is not None else time.perf_counter()
            if asked_at > began + seconds:
                break
            case = rng.choice(cases)
            right = case.is_right(*client.ask(case.request))
            latencies[number].append(time.perf_counter() - asked_at)
            wrong[number] += not right
            due += pause
        client.close()

    together(work)
    every = sorted(each for own in latencies for each in own)
    return len(every) / seconds, every, sum(wrong)


def percentile(ordered: list[float], share: float) -> float:
    return 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def measure(server: Server, cases: list[Case], seconds: float, rounds: int) -> dict[str, Any]:
    """Return the peak and the latencies at half of it, of each round."""
    server.start()
    load(server.port, cases, 1.0, None)
    found: list[dict[str, Any]] = []
    for _ in range(rounds):
        cpu = server.cpu_seconds()
        peak, at_peak, wrong = load(server.port, cases, seconds, None)
        cpu = (server.cpu_seconds() - cpu) / max(len(at_peak), 1)
        rate, at_half, wrong_too = load(server.port, cases, seconds, peak / 2)
        found.append(
            {
                "peak": peak,
                "peak_p50_ms": percentile(at_peak, 0.5),
                "peak_p99_ms": percentile(at_peak, 0.99),
                "server_cpu_us": 1e6 * cpu,
                "half": rate,
                "half_p50_ms": percentile(at_half, 0.5),
                "half_p99_ms": percentile(at_half, 0.99),
                "answers": len(at_peak) + len(at_half),
                "wrong": wrong + wrong_too,
                "load_average": os.getloadavg()[0],
            }
        )
    server.stop()
    return {"rounds": found}


def kill(server: Server, cases: list[Case], kills: int) -> dict[str, Any]:
    """Kill the server again and again while the clients ask, and count."""
    server.start()
    over = threading.Event()
    answers, wrong, cut, refused = ([0] * CLIENTS for _ in range(4))
    away: list[float] = []

    def work(number: int) -> None:
        client, rng = Client(server.port), random.Random(number)
        while not over.is_set():
            case = rng.choice(cases)
            try:
                found = client.ask(case.request)
            except OSError as error:
                counted = refused if isinstance(error, ConnectionRefusedError) else cut
                counted[number] += 1
                client.close()
                time.sleep(0.02)
                continue
            answers[number] += 1
            wrong[number] += not case.is_right(*found)
        client.close()

    def killing() -> None:
        rng = random.Random(0)
        for _ in range(kills):
            time.sleep(0.3 + rng.random())
            server.stop(signal.SIGKILL)
            began = time.perf_counter()
            server.start()
            away.append(time.perf_counter() - began)
        time.sleep(0.5)
        over.set()

    killer = threading.Thread(target=killing)
    killer.start()
    together(work)
    killer.join()
    server.stop()
    return {
        "kills": kills,
        "answers": sum(answers),
        "wrong": sum(wrong),
        "cut": sum(cut),
        "refused": sum(refused),
        "away_s": statistics.median(away),
    }


# --- The page ------------------------------------------------------------------------------------


def speed_page(found: dict[str, Any], what: str) -> str:
    lines = [
        f"# Decisions of corral serve: {what}",
        "",
        f"{CLIENTS} clients, one connection each, on the machine of the server.",
        "",
        "| round | peak, decisions/s | p50, p99 there, ms | server's CPU, µs | at half the peak | "
        "p50, ms | p99, ms | wrong answers | load average |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for i, row in enumerate(found["rounds"], start=1):
        lines.append(
            f"| {i} | {row['peak']:,.0f} | {row['peak_p50_ms']:.1f}, {row['peak_p99_ms']:.1f} | "
            f"{row['server_cpu_us']:.0f} | {row['half']:,.0f} | {row['half_p50_ms']:.2f} | "
            f"{row['half_p99_ms']:.2f} | {row['wrong']} of {row['answers']:,} | "
            f"{row['load_average']:.1f} |"
        )
    return "\n".join(lines)


def kill_page(found: dict[str, Any], what: str) -> str:
    return (
        f"# corral serve killed under load: {what}\n\n"
        f"{found['kills']} kills (SIGKILL): {found['answers']:,} answers, {found['wrong']} wrong; "
        f"{found['cut']} requests were cut off without an answer, {found['refused']:,} attempts to "
        f"connect were refused meanwhile. It was away for {found['away_s']:.1f} s (median)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?")
    parser.add_argument("--rule")
    parser.add_argument("--export", action="store_true", help="serve an export, without torch")
    parser.add_argument("--unknown", action="store_true", help="of unknown arrivals, by plans")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", type=int, default=0)
    given = parser.parse_args()
    packages = ["fastapi", "uvicorn", "starlette", "pydantic", "prometheus-client", "psutil"]
    with tempfile.TemporaryDirectory() as folder:
        place = given.run
        if place is None:
            place = str(Path(folder) / "team")
            kwargs = {}
            if given.unknown:
                kwargs = {"arrivals": "unknown", "amount": "keep", "route": "least", "queue": 5}
            corral.train(
                "dfaas_v0",
                trainer="mappo",
                steps=20_000,
                num_envs=8,
                out=place,
                env_kwargs=kwargs,
            )
        run = corral.load_run(place)
        cases = cases_of(run, given.rule)
        if given.export:
            place = str(Path(folder) / "export")
            run.export("numpy", place)
        server = Server(place, [] if given.rule is None else ["--rule", given.rule])
        what = "a team of edge3" if given.run is None else f"the team of {Path(place).name}"
        what = what if given.rule is None else f"the rule {given.rule}"
        what += ", exported" if given.export else ""
        what += ", unknown arrivals" if given.unknown else ""
        page = "serving_unknown" if given.unknown else "serving"
        if given.kill:
            found = kill(server, cases, given.kill)
            save(f"{page}_kills", kill_page(found, what), found, machine(*packages))
        else:
            found = measure(server, cases, given.seconds, given.rounds)
            save(page, speed_page(found, what), found, machine(*packages))
        if found.get("wrong") or any(row["wrong"] for row in found.get("rounds", ())):
            sys.exit("there were wrong answers")


if __name__ == "__main__":
    main()
