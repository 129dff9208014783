"""Whether ``corral serve`` goes on answering while it is attacked: right answers, memory, time.

    python benchmarks/loads/serving_attack.py [--minutes 10] [--nodes any|run] [--rate 60]

A small team of edge3 is trained, exported and served. For so many minutes a second process attacks
the server in all of these ways at once, a thread for each:

- a thousand new names a request (with ``--nodes any`` they are legal, and the largest requests that
  there are; with ``run`` they are refused), and an autoscaler that renames one of thirty nodes;
- bodies of 2 MB, endless chunks, bodies of 1 MB full of faults, keys that stand twice, brackets
  100,000 deep, numbers that are none, bodies that are cut off;
- headers without end, what is no HTTP, foreign Host, Origin and Content-Type;
- 400 connections at a time, headers and bodies that drip, clients that do not read their answer,
  clients that go away, 500 requests sent at once.

In between right requests come at a steady rate, three in four on connections that stay open and the
rest on new ones, and /healthz is asked ten times a second. Every right answer is compared with
``run.decide``, whose own policies play, in this process; one in fifty of those for other names with
the rule. The same rate without an attack is measured before and after, and the peak of 8 clients as
well, in the attack for 5 s in every minute. An attack that is answered as it should be is held; if
the server ended the connection instead, it was closed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save
from serving import Case, Client, Server, cases_of, load, percentile

import corral

RIGHT_CLIENTS = 4
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
OWN = "Host: localhost\r\nContent-Type: application/json\r\n"
ALLOWED_MB = 50


# --- Attacks -------------------------------------------------------------------------------------


class Attacker:
    """Tries of every kind against one port. A try returns the status that it got, b"" if the
    connection ended without one."""

    def __init__(self, port: int, nodes: list[str], rule: Any, refuses_names: bool) -> None:
        self.port, self.nodes, self.rule, self.refuses_names = port, nodes, rule, refuses_names
        self.numbers = itertools.count()
        self.body = json.dumps(asked_of(nodes)).encode()
        self.faults = [json.dumps(body).encode() for body in faults_of(nodes)]

    def send(self, *parts: bytes, end: bool = False, seconds: float = 30.0) -> tuple[bytes, bytes]:
        """Send the parts, and return status and body of the answer."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                if end:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before it was all sent: the answer may be there
            try:
                while (place := got.find(b"\r\n\r\n")) < 0:
                    if not (more := connection.recv(1 << 18)):
                        return b"", b""
                    got += more
                length = got[:place].lower().partition(b"content-length:")[2]
                size = place + 4 + int(length.partition(b"\r\n")[0])
                while len(got) < size and (more := connection.recv(1 << 18)):
                    got += more
                return got[9:12], got[place + 4 :]
            except (ConnectionError, TimeoutError):
                return b"", b""

    def post(self, body: bytes, head: str = OWN, **options: Any) -> tuple[bytes, bytes]:
        return self.send(post_of(body, head), **options)

    # Tries: each returns a status and the ones that hold.

    def thousand_names(self) -> tuple[bytes, tuple[bytes, ...]]:
        k = next(self.numbers)
        nodes = asked_of([f"node-{k}-{i}" for i in range(1000)])["nodes"]
        return self._names(nodes, compare=k % 50 == 0)

    def autoscaler(self) -> tuple[bytes, tuple[bytes, ...]]:
        k = next(self.numbers)
        return self._names(asked_of([f"node-{k + i}" for i in range(30)])["nodes"], compare=True)

    def _names(self, nodes: Any, compare: bool) -> tuple[bytes, tuple[bytes, ...]]:
        status, body = self.post(json.dumps({"nodes": nodes}).encode())
        if self.refuses_names:
            return status, (b"422", b"503")
        if status == b"200":
            decision = json.loads(body)["forward"]
            if decision.keys() != nodes.keys():
                return b"wrong", (b"200",)
            if compare and decision != self.rule.decide(nodes)[0]:
                return b"wrong", (b"200",)
        return status, (b"200", b"503")

    def large_body(self) -> tuple[bytes, tuple[bytes, ...]]:
        return self.post(b" " * (2 << 20))[0], (b"413", b"503")

    def endless_chunks(self) -> tuple[bytes, tuple[bytes, ...]]:
        head = f"POST /decide HTTP/1.1\r\n{OWN}Transfer-Encoding: chunked\r\n\r\n".encode()
        chunks = [b"10000\r\n" + b" " * 65_536 + b"\r\n"] * 40
        return self.send(head, *chunks)[0], (b"413", b"503")

    def full_of_faults(self) -> tuple[bytes, tuple[bytes, ...]]:
        return self.post(random.choice(self.faults))[0], (b"422", b"503")

    def twice(self) -> tuple[bytes, tuple[bytes, ...]]:
        name = json.dumps(self.nodes[0]).encode()
        body = self.body[:-2] + b"," + name + b': {"arrivals": 0, "capacity": 1}}}'
        return self.post(body)[0], (b"422",)

    def brackets(self) -> tuple[bytes, tuple[bytes, ...]]:
        deep = random.choice((b"[", b'{"nodes":', b'{"nodes":{"a":{"arrivals":' + b"[" * 90_000))
        return self.post(deep * (100_000 if len(deep) < 20 else 1))[0], (b"422", b"503")

    def no_numbers(self) -> tuple[bytes, tuple[bytes, ...]]:
        number = random.choice((b"NaN", b"-1", b"1e999", b"1.5", b"9" * 5000, b"true", b'"1"'))
        name = json.dumps(self.nodes[0]).encode()
        body = b'{"nodes": {%s: {"arrivals": %s, "capacity": 1}}}' % (name, number)
        return self.post(body)[0], (b"422",)

    def cut_body(self) -> tuple[bytes, tuple[bytes, ...]]:
        whole = post_of(self.body, OWN)
        if random.random() < 0.5:  # a whole request without its last chunk
            head = f"POST /decide HTTP/1.1\r\n{OWN}Transfer-Encoding: chunked\r\n\r\n".encode()
            whole = head + b"%x\r\n%s\r\n" % (len(self.body), self.body) + b"0"
        return self.send(whole[:-1], end=True)[0], (b"400",)

    def endless_headers(self) -> tuple[bytes, tuple[bytes, ...]]:
        head = random.choice((b"GET /", HEALTH[:-2] + b"X: ", HEALTH[:-2]))
        parts = [(b"A: b\r\n" if head == HEALTH[:-2] else b"xxxxxx") * 2000] * 30
        return self.send(head, *parts)[0], (b"431",)

    def no_http(self) -> tuple[bytes, tuple[bytes, ...]]:
        part = random.choice(
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", os.urandom(200) + b"\r\n\r\n")
        )
        return self.send(part)[0], (b"400",)

    def foreign_host(self) -> tuple[bytes, tuple[bytes, ...]]:
        head = OWN.replace("localhost", random.choice(("evil.example", "localhost.evil.example")))
        return self.post(self.body, head)[0], (b"421",)

    def foreign_origin(self) -> tuple[bytes, tuple[bytes, ...]]:
        origin = random.choice(("https://evil.example", "null", "http://localhost:3000"))
        return self.post(self.body, f"{OWN}Origin: {origin}\r\n")[0], (b"403",)

    def foreign_type(self) -> tuple[bytes, tuple[bytes, ...]]:
        kind = random.choice(("text/plain", "application/x-www-form-urlencoded", "*/*"))
        head = f"Host: localhost\r\nContent-Type: {kind}\r\n"
        return self.post(self.body, head)[0], (b"415",)

    def many_connections(self) -> tuple[bytes, tuple[bytes, ...]]:
        opened = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(400)]
        for connection in opened:
            connection.setblocking(False)
        began = time.perf_counter()
        while len(opened) > 256 and time.perf_counter() - began < 8:  # before their time is over
            time.sleep(0.2)
            for connection in [*opened]:
                try:
                    ended = connection.recv(1) == b""
                except BlockingIOError:
                    ended = False
                except ConnectionError:
                    ended = True
                if ended:
                    connection.close()
                    opened.remove(connection)
        left = len(opened)
        for connection in opened:
            connection.close()
        return (b"room" if left <= 256 else b"full"), (b"room",)

    def slow_headers(self) -> tuple[bytes, tuple[bytes, ...]]:
        return self._drip(b"GET /healthz HTTP/1.1\r\nX: ", b"x")

    def slow_body(self) -> tuple[bytes, tuple[bytes, ...]]:
        head = f"POST /decide HTTP/1.1\r\n{OWN}Content-Length: 200000\r\n\r\n".encode()
        return self._drip(head + b" " * random.choice((0, 100_000)), b" ")

    def _drip(self, begin: bytes, part: bytes) -> tuple[bytes, tuple[bytes, ...]]:
        """Twenty connections at once, until the server has ended them all, within 20 s."""
        opened = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(20)]
        for connection in opened:
            connection.sendall(begin)
        began = time.perf_counter()
        while opened and time.perf_counter() - began < 20:
            time.sleep(0.2)
            for connection in [*opened]:
                try:
                    connection.sendall(part)
                except OSError:
                    connection.close()
                    opened.remove(connection)
        for connection in opened:
            connection.close()
        return (b"open" if opened else b"ended"), (b"ended",)

    def no_reader(self) -> tuple[bytes, tuple[bytes, ...]]:
        """Ask for large answers again and again, and read none of them."""
        names = [f"n{i}" for i in range(1000)] if not self.refuses_names else self.nodes
        request = post_of(json.dumps(asked_of(names)).encode(), OWN)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self.port))
            connection.settimeout(2)
            began = time.perf_counter()
            while time.perf_counter() - began < 120:
                try:
                    connection.sendall(request)
                except TimeoutError:
                    continue
                except OSError:
                    return b"ended", (b"ended",)
        return b"open", (b"ended",)

    def gone(self) -> tuple[bytes, tuple[bytes, ...]]:
        """Ask for the largest answer, and reset the connection."""
        request = post_of(json.dumps(asked_of([f"n{i}" for i in range(1000)])).encode(), OWN)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(request[: random.choice((len(request), 20_000))])
        return b"ended", (b"ended",)

    def at_once(self) -> tuple[bytes, tuple[bytes, ...]]:
        return self.send(HEALTH * 500)[0], (b"200",)


PAUSES = {
    "thousand_names": 0.3,
    "autoscaler": 0.1,
    "large_body": 0.3,
    "endless_chunks": 0.5,
    "full_of_faults": 0.5,
    "twice": 0.1,
    "brackets": 0.3,
    "no_numbers": 0.1,
    "cut_body": 0.1,
    "endless_headers": 0.2,
    "no_http": 0.2,
    "foreign_host": 0.1,
    "foreign_origin": 0.1,
    "foreign_type": 0.1,
    "many_connections": 2.0,
    "slow_headers": 1.0,
    "slow_body": 1.0,
    "no_reader": 1.0,
    "gone": 1.0,
    "at_once": 2.0,
}
"""Kinds of attack, and seconds between two tries of each."""


def asked_of(names: list[str]) -> dict[str, Any]:
    rows = ({"arrivals": 9 * i % 50, "capacity": 7 * i % 40} for i in range(len(names)))
    return {"nodes": dict(zip(names, rows, strict=True))}


def faults_of(names: list[str]) -> list[dict[str, Any]]:
    """Return bodies of up to 1 MB whose faults take long to list."""
    many = {str(i): {} for i in range(70_000)}
    return [
        {**asked_of(names), "previous": many},
        {**asked_of(names), "previous": {str(i): {} for i in range(3_900)}},
        {"nodes": many},
        {"nodes": {f"n{i}": {"arrivals": [-1] * 190} for i in range(999)}},
        {"nodes": {"a": dict.fromkeys(map(str, range(39_000)), 0)}},
        {"nodes": {"a": {"arrivals": [[]] * 200_000}}},
    ]


def post_of(body: bytes, head: str) -> bytes:
    return f"POST /decide HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def attack(port: int, about: Any, rule: str, refuses: bool, over: Any, results: Any) -> None:
    """Try all kinds until it is over, and put the counts into ``results``."""
    from corral.loads.serve.rule import Rule

    counts: dict[str, Counter[str]] = {kind: Counter() for kind in PAUSES}

    def work(kind: str, pause: float) -> None:
        attacker = Attacker(port, about["nodes"], Rule(rule, about), refuses)
        while not over.is_set():
            try:
                status, right = getattr(attacker, kind)()
            except OSError as error:
                counts[kind][f"closed ({type(error).__name__})"] += 1
            else:
                word = status.decode("latin-1")
                outcome = "held" if status in right else f"not held ({word})"
                counts[kind][outcome if status else "closed"] += 1
            over.wait(pause)

    threads = [threading.Thread(target=work, args=item) for item in PAUSES.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put({kind: dict(found) for kind, found in counts.items()})


# --- Right requests ------------------------------------------------------------------------------


class Persistent(Client):
    """One that connects anew, once, if the connection ends."""

    retried = 0

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        try:
            return super().ask(request)
        except OSError:
            Persistent.retried += 1
            self.close()
            return super().ask(request)


class Right:
    """Right requests at a steady rate, and /healthz, until it is stopped."""

    def __init__(self, port: int, cases: list[Case], rate: float) -> None:
        self.port, self.cases, self.rate = port, cases, rate
        self.latencies: list[float] = []
        self.health: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.over, self.pause = threading.Event(), threading.Event()
        self.began = time.perf_counter()
        works = [lambda i=i: self._ask(i) for i in range(RIGHT_CLIENTS)]
        self.threads = [threading.Thread(target=work) for work in (*works, self._health)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> dict[str, Any]:
        self.over.set()
        for thread in self.threads:
            thread.join()
        seconds = time.perf_counter() - self.began
        return {
            "rate": sum(self.outcomes.values()) / seconds,
            **percentiles("", self.latencies),
            **percentiles("health_", self.health),
            "outcomes": dict(self.outcomes),
        }

    def _ask(self, number: int) -> None:
        client, rng = Client(self.port), random.Random(number)
        for due in self._moments(RIGHT_CLIENTS / self.rate, number):
            case = rng.choice(self.cases)
            try:
                right = case.is_right(*client.ask(case.request))
            except OSError as error:
                self.outcomes[f"no answer ({type(error).__name__})"] += 1
                client.close()
                continue
            self.latencies.append(time.perf_counter() - due)
            self.outcomes["right" if right else "wrong"] += 1
            if number == 0:  # a new connection for each
                client.close()
        client.close()

    def _health(self) -> None:
        client = Client(self.port)
        for due in self._moments(0.1, 0):
            try:
                status, _ = client.ask(HEALTH)
                assert status == b"200", status
                self.health.append(time.perf_counter() - due)
            except OSError:
                self.outcomes["no health"] += 1
                client.close()
        client.close()

    def _moments(self, pause: float, number: int) -> Iterator[float]:
        """Yield fixed moments; a late one at once."""
        due = time.perf_counter() + pause * number / RIGHT_CLIENTS
        while not self.over.is_set():
            while self.pause.is_set():  # clients at the peak need this process
                time.sleep(0.05)
                due = time.perf_counter()
            if (now := time.perf_counter()) < due:
                time.sleep(due - now)
            yield due
            due += pause


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "most": 1.0}
    return {f"{name}{key}_ms": percentile(ordered, share) for key, share in shares.items()}


def resident_mb(server: Server) -> float:
    import psutil

    return float(psutil.Process(server.process.pid).memory_info().rss) / 1e6


def measure(
    server: Server, cases: list[Case], about: Any, rule: str, given: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures before, during and after the attack."""

    def calm() -> dict[str, Any]:
        peak = [load(server.port, cases, 5.0, None) for _ in range(3)]
        right = Right(server.port, cases, given.rate)
        time.sleep(given.calm)
        found = right.stop()
        speeds = [rate for rate, _, _ in peak]
        wrong = sum(each for _, _, each in peak)
        return {**found, "peak": statistics.median(speeds), "peak_wrong": wrong}

    server.start()
    load(server.port, cases, 2.0, None)
    found: dict[str, Any] = {"before": calm(), "start_mb": resident_mb(server)}
    context = multiprocessing.get_context("spawn")
    over, results = context.Event(), context.Queue()
    words = (server.port, about, rule, given.nodes == "run", over, results)
    attacker = context.Process(target=attack, args=words)
    attacker.start()
    time.sleep(5)  # its imports
    right, ends = Right(server.port, cases, given.rate), time.time() + 60 * given.minutes
    memory, peaks, wrong, minute = [], [], 0, time.time() + 30
    while time.time() < ends:
        time.sleep(1)
        memory.append(resident_mb(server))
        if time.time() > minute:
            minute += 60
            right.pause.set()
            rate, _, odd = load(server.port, cases, 5.0, None, Persistent)
            right.pause.clear()
            peaks.append(rate)
            wrong += odd
    found["during"] = {
        **right.stop(),
        "peak": statistics.median(peaks) if peaks else 0.0,
        "peak_wrong": wrong,
    }
    found["retried"] = Persistent.retried
    over.set()
    found["kinds"] = results.get(timeout=180)
    attacker.join()
    time.sleep(15)  # until the last slow ones are closed
    found |= {"memory_mb": memory, "most_mb": max(memory), "end_mb": resident_mb(server)}
    found["after"] = calm()
    found["after_mb"] = resident_mb(server)
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics").read().decode()
    lines = [line.rpartition(" ") for line in text.splitlines()]
    found["limited"] = {n: float(v) for n, _, v in lines if n.startswith("corral_limited_total")}
    began = time.perf_counter()
    server.stop()
    found["sigterm_s"] = time.perf_counter() - began
    return found


# --- The page ------------------------------------------------------------------------------------


def page_of(found: dict[str, Any], minutes: float, nodes: str) -> str:
    answered = sum(found[when]["outcomes"].get("right", 0) for when in WHEN)
    others = Counter[str]()
    for when in WHEN:
        others.update({k: v for k, v in found[when]["outcomes"].items() if k != "right"})
        others["wrong at the peak"] += found[when]["peak_wrong"]
    odd = ", ".join(f"{count} {name}" for name, count in others.items() if count) or "none else"
    lines = [
        f"# corral serve under attack for {minutes:g} minutes (--nodes {nodes})",
        "",
        f"Of the right requests at a steady rate {answered:,} were answered rightly; {odd}.",
        f"Clients at the peak had to connect again {found['retried']} times.",
        f"Memory: {found['start_mb']:.0f} MB at the start, {found['most_mb']:.0f} MB at most, "
        f"{found['end_mb']:.0f} MB 15 s after the attack, {found['after_mb']:.0f} MB at the end. "
        f"SIGTERM took {found['sigterm_s']:.2f} s, the log has {found['log_lines']:,} lines.",
        "",
        "| right requests | per s | p50, ms | p99 | most | peak of 8 clients, per s | /healthz: "
        "p50, ms | p99 | most |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for when in WHEN:
        row = found[when]
        lines.append(
            f"| {when} | {row['rate']:.0f} | {row['p50_ms']:.1f} | {row['p99_ms']:.1f} | "
            f"{row['most_ms']:.0f} | {row['peak']:,.0f} | {row['health_p50_ms']:.1f} | "
            f"{row['health_p99_ms']:.1f} | {row['health_most_ms']:.0f} |"
        )
    lines += ["", "| attack | tries | held | closed | not held |", "|---|--:|--:|--:|---|"]
    for kind, counts in found["kinds"].items():
        closed = sum(count for name, count in counts.items() if name.startswith("closed"))
        bad = [f"{count} {name}" for name, count in counts.items() if name.startswith("not")]
        lines.append(
            f"| {kind.replace('_', ' ')} | {sum(counts.values()):,} | {counts.get('held', 0):,} | "
            f"{closed:,} | {', '.join(bad) or 0} |"
        )
    lines += ["", "| limit | times that it bit |", "|---|--:|"]
    for name, count in found["limited"].items():
        lines.append(f"| {name.partition(chr(34))[2].partition(chr(34))[0]} | {count:,.0f} |")
    return "\n".join(lines)


WHEN = ("before", "during", "after")


def failures(found: dict[str, Any]) -> list[str]:
    """Return what was not held."""
    odd = []
    for when in WHEN:
        outcomes = found[when]["outcomes"]
        if outcomes.keys() - {"right"} or found[when]["peak_wrong"]:
            odd.append(f"{when}: {outcomes}")
    if found["end_mb"] > found["start_mb"] + ALLOWED_MB:
        odd.append("memory")
    odd += [k for k, counts in found["kinds"].items() if any(c.startswith("not") for c in counts)]
    return odd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--nodes", choices=["any", "run"], default="any")
    parser.add_argument("--rate", type=float, default=60.0, help="right requests per second")
    parser.add_argument("--calm", type=float, default=20.0, help="seconds before and after")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "team"
        corral.train("dfaas_v0", trainer="mappo", steps=20_000, num_envs=8, out=place)
        run = corral.load_run(place)
        cases = cases_of(run, None)
        run.export("numpy", Path(folder) / "export")
        from corral.loads.export.decider import about_rules, rules_of
        from corral.loads.serve.service import service_of

        rule = service_of(run).rule
        about = about_rules(rules_of(run))
        with open(Path(folder) / "log", "w+") as log:
            server = Server(str(Path(folder) / "export"), ["--nodes", given.nodes], errors=log)
            found = measure(server, cases, about, rule, given)
            log.seek(0)
            found["log_lines"] = sum(1 for _ in log)
    packages = ["fastapi", "uvicorn", "starlette", "httptools", "pydantic", "psutil"]
    about_run = {**machine(*packages), "rate": given.rate, "load_average": os.getloadavg()[1]}
    name = "serving_attack" if given.nodes == "any" else "serving_attack_run"
    save(name, page_of(found, given.minutes, given.nodes), found, about_run)
    if odd := failures(found):
        sys.exit(f"not held: {', '.join(odd)}")


if __name__ == "__main__":
    main()
