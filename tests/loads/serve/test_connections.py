"""A server's connections: limits of number, bytes and time, each counted and logged."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("httptools", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")

from corral.envs.dfaas_v0 import DfaasRules
from corral.loads.export.decider import about_rules
from corral.loads.serve.app import listen, server_of
from corral.loads.serve.connections import Server
from corral.loads.serve.limits import LIMITS, LOG_SECONDS, Limits, Refusals
from corral.loads.serve.rule import Rule
from corral.loads.serve.service import Service
from support.loads import small_trace

NAMES = small_trace().nodes
NODES = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}
SHORT = Limits(header_bytes=2000, connections=4, seconds=0.4, waiting=2, held_bytes=300_000)
HEAD = b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def service_of(rule: str = "overflow/capacity", **changes: Any) -> Service:
    decides = Rule(rule, about_rules(DfaasRules(small_trace())))
    service = Service(
        decides.answer, "rule", "run", decides.name, NAMES, (), decides.about, names=None
    )
    return replace(service, **changes)


def post(asked: Any) -> bytes:
    body = json.dumps(asked).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


RIGHT = post({"nodes": NODES})
PADDED = json.dumps({"nodes": NODES}).encode() + b" " * 5000
LARGE = HEAD + b"Content-Length: %d\r\n\r\n" % len(PADDED) + PADDED


class Running:
    """A server in a thread."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self.refusals: Refusals = server.config.refusals

    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(sent)
        return connection

    def ask(self, request: bytes) -> bytes:
        with self.connect(request) as connection:
            return received(connection)

    def phases(self) -> list[str]:
        """The phases of all connections."""
        return sorted(connection.phase for connection in [*self.server.server_state.connections])

    def held_bytes(self) -> int:
        return int(self.server.config.app.app.deciding.held_bytes)  # type: ignore[union-attr]

    def bites(self) -> dict[str, float]:
        """How often each limit bit that did."""
        counters = self.refusals.limited
        found = {limit: counters[limit]._value.get() for limit in LIMITS}
        return {limit: count for limit, count in found.items() if count}


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once it holds; within a minute, however busy the machine is."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 60
        time.sleep(0.01)


def received(connection: socket.socket) -> bytes:
    """One answer; what came where the connection ended."""
    answer, end = bytearray(), 1 << 60
    while len(answer) < end:
        try:
            part = connection.recv(1 << 20)
        except ConnectionResetError:
            break
        if not part:
            break
        answer += part
        if end == 1 << 60 and (place := answer.find(b"\r\n\r\n")) >= 0:
            length = answer[:place].lower().partition(b"content-length:")[2]
            end = place + 4 + int(length.partition(b"\r\n")[0])
    return bytes(answer)


@contextmanager
def running(service: Service, limits: Limits = SHORT) -> Iterator[Running]:
    begun = threading.Event()
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        server = server_of(service, bound, lambda url: begun.set(), limits=limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            assert begun.wait(60)
            yield Running(server, port)
        finally:
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("request_", "status", "limit"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2000, b"431", "header_bytes"),
        (HEALTH[:-2] + b"X: " + b"x" * 2000 + b"\r\n\r\n", b"431", "header_bytes"),
        (b"GET /" + b"x" * 3000, b"431", "header_bytes"),
        (HEALTH[:-2] + b"A: b\r\n" * 500 + b"\r\n", b"431", "header_bytes"),
        (HEAD + b"Content-Length: 2000000\r\n\r\n" + b" " * 1_100_000, b"413", "body_bytes"),
        (b"", b"408", "header_seconds"),
        (b"GET /healthz HTTP/1.1\r\nHost: local", b"408", "header_seconds"),
        (HEAD + b"Content-Length: 100\r\n\r\n{", b"408", "body_seconds"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", b"408", "body_seconds"),
        (b"\x16\x03\x01\x02\x00\x01", b"400", "http"),
    ],
)
def test_limits_of_one_request(
    request_: bytes,
    status: bytes,
    limit: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = limit.endswith("seconds")
    limits = replace(SHORT, held_bytes=10**7, seconds=SHORT.seconds if late else 60)
    with running(service_of(), limits) as server, caplog.at_level(logging.WARNING, "corral.serve"):
        answer = server.ask(request_)
        assert (answer[9:12], b"connection: close" in answer) == (status, True)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["detail"][0]["message"]
        assert server.bites() == {limit: 1}
        assert server.refusals.refused[int(status)]._value.get() == 1
        assert [
            record.getMessage().startswith(f"limit {limit}: ") for record in caplog.records
        ] == [True]
        assert late or server.ask(RIGHT)[9:12] == b"200"


def test_a_client_that_drips_bytes_has_no_longer() -> None:
    with running(service_of()) as server:
        for number, begin in enumerate((b"GET /hea", HEAD + b"Y: "), 1):
            with server.connect(begin) as connection, suppress(OSError):
                began = time.monotonic()
                while time.monotonic() - began < 60:
                    connection.sendall(b"X")
                    time.sleep(0.05)
            assert server.bites() == {"header_seconds": number}


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    plans = Rule(
        "capacity=1/shortest", about_rules(DfaasRules(small_trace(), link_limit=5)), "unknown"
    )
    service = replace(service_of(), decide=plans.answer, about=plans.about)
    nodes = {f"node-{i}": {"last_arrivals": 9, "capacity": 4} for i in range(700)}
    limits = replace(SHORT, seconds=3.0, held_bytes=10**8)
    with running(service, limits) as server:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(post({"nodes": nodes}))
            wait_until(lambda: bool(server.bites()))
        assert server.bites() == {"answer_seconds": 1}
        whole = server.ask(post({"nodes": nodes}))
        plan = json.loads(whole.partition(b"\r\n\r\n")[2])["plan"]
        assert plan == plans.answer(nodes).decision


def test_the_connection_that_waited_longest_makes_room() -> None:
    """Clients that have been answered stay, as long as there are others."""
    strangers = []
    with running(service_of(), replace(SHORT, seconds=60)) as server:
        own = server.connect()
        for _ in range(3):
            own.sendall(RIGHT)
            assert received(own)[9:12] == b"200"
            strangers += [server.connect(b"GET /he") for _ in range(6)]
        own.sendall(RIGHT)
        assert received(own)[9:12] == b"200"
        # The request of a new connection may be there, unread, for a second.
        wait_until(lambda: server.bites().get("connections", 0) >= 15)
        own.sendall(RIGHT)
        assert received(own)[9:12] == b"200"
        assert server.bites() == {"connections": 15}
        assert len(server.server.server_state.connections) == SHORT.connections
        assert received(strangers[0]) == b""
        for connection in (own, *strangers):
            connection.close()


def test_large_requests_wait_in_a_line_of_bounded_length() -> None:
    go = threading.Event()
    right = service_of()

    def decide(*given: Any) -> Any:
        go.wait(60)
        return right.decide(*given)

    slow = replace(right, decide=decide, quick=False)
    with running(slow, replace(SHORT, connections=20, seconds=60)) as server:
        clients = [server.connect(LARGE) for _ in range(5)]
        wait_until(lambda: server.bites().get("busy", 0) >= 3)
        assert server.ask(HEALTH)[9:12] == b"200"  # the loop waits for nothing
        go.set()
        answers = sorted(received(client)[9:12] for client in clients)
        assert answers == [b"200", b"200", b"503", b"503", b"503"]
        assert server.bites() == {"busy": 3}
        for client in clients:
            client.close()


def test_a_request_whose_client_went_away_is_not_decided() -> None:
    go, decided, right = threading.Event(), [], service_of()

    def decide(nodes: Any, *given: Any) -> Any:
        decided.append([*nodes])
        go.wait(60)
        return right.decide(nodes, *given)

    slow = replace(right, decide=decide, quick=False)
    with running(slow, replace(SHORT, seconds=60)) as server:
        first = server.connect(RIGHT)
        wait_until(lambda: bool(decided))
        second = server.connect(post({"nodes": {"gone": NODES["site-0"]}}))
        wait_until(lambda: server.phases() == ["deciding"] * 2)
        second.close()
        wait_until(lambda: server.phases() == ["deciding"])
        assert server.ask(HEALTH)[9:12] == b"200"  # the loop has been at what it was told
        go.set()
        assert received(first)[9:12] == b"200"
        assert server.ask(RIGHT)[9:12] == b"200"
        first.close()
    assert decided == [[*NAMES], [*NAMES]]


def test_bodies_are_held_up_to_so_many_bytes() -> None:
    """Small requests are answered all the same."""
    half = HEAD + b"Content-Length: 1000000\r\n\r\n" + b" " * 280_000
    with running(service_of(), replace(SHORT, seconds=60)) as server, server.connect(half):
        wait_until(lambda: server.held_bytes() >= 280_000)
        with server.connect(half) as second:
            assert received(second)[9:12] == b"503"
            assert server.ask(RIGHT)[9:12] == b"200"


def test_health_is_told_while_the_largest_requests_are_decided() -> None:
    with running(service_of(), Limits()) as server:
        over = threading.Event()
        large, small = [], []  # seconds

        def load(number: int) -> None:
            nodes = {f"{number}-{i}": {"arrivals": 9, "capacity": i % 9} for i in range(1000)}
            while not over.is_set():
                begin = time.perf_counter()
                assert server.ask(post({"nodes": nodes}))[9:12] == b"200"
                large.append(time.perf_counter() - begin)

        threads = [threading.Thread(target=load, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            time.sleep(0.02)
            begin = time.perf_counter()
            assert server.ask(HEALTH)[9:12] == b"200"
            small.append(time.perf_counter() - begin)
        over.set()
        for thread in threads:
            thread.join()
    # A thousandth on an idle machine. This process is its own client: not all are in time.
    assert sorted(small)[20] < min(large) / 5


def test_a_limit_has_one_line_in_the_log_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    from prometheus_client import CollectorRegistry

    now = 0.0
    refusals = Refusals(CollectorRegistry(), lambda: now)
    with caplog.at_level(logging.WARNING, "corral.serve"):
        for _ in range(1000):
            refusals.bite("host", "evil")
        refusals.bite("origin", "evil")
        assert len(caplog.records) == 2
        now = LOG_SECONDS
        refusals.bite("host", "evil")
    assert [record.args for record in caplog.records][2] == (
        "host",
        "evil",
        " (999 more since the last line)",
    )
    assert refusals.limited["host"]._value.get() == 1001
