"""The HTTP server: POST /decide, GET /healthz, GET /metrics.

A response depends only on its request, so a restarted server answers as before: the request carries
the other nodes' reports and the team's memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

import corral
from corral.loads.export.inputs import DecisionError
from corral.loads.serve.connections import Config, Server
from corral.loads.serve.door import Door, send_answer
from corral.loads.serve.guard import Numbers
from corral.loads.serve.limits import Limits, refusal
from corral.loads.serve.memory import MemoryTextError
from corral.loads.serve.messages import MAX_BYTES, MAX_FAULTS, SMALL, BadRequest, Form, refused
from corral.loads.serve.metrics import Metrics
from corral.loads.serve.service import Service

__all__ = ["app_of", "listen", "serve", "server_of"]

Headers = Iterable[tuple[bytes, bytes]]

JSON = "application/json"
KEPT = 900
"""Seconds that an idle connection stays open: a gateway sends one request per step."""
MAX_REST = 1.0
"""Maximum pause after a large request, in seconds."""
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def app_of(service: Service, limits: Limits | None = None) -> Application:
    """Return the application that answers with ``service``. The server that runs it checks hosts,
    origins and connections, see ``serve``."""
    info = {"run": service.run, "deciding": service.deciding, "rule": service.rule}
    log = service.log
    metrics = Metrics(info, lambda: 0 if log is None else log.failures, service.plans)
    health = {"status": "ok", **info, "nodes": [*service.nodes], "version": corral.__version__}
    if service.plans:
        health["arrivals"] = "unknown"
    if service.recommended is not None:
        health["recommended"] = service.recommended
    app = Application(Deciding(service, metrics, limits or Limits()))

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        return health

    @app.get("/metrics")
    async def read_metrics() -> Response:
        return Response(metrics.text(), media_type=PLAIN)

    return app


class Application(FastAPI):
    """An application that answers POST /decide before FastAPI's routing, because routing and
    request objects take longer than a decision."""

    def __init__(self, deciding: Deciding) -> None:
        # FastAPI's documentation pages load scripts from other sites.
        super().__init__(title="corral", version=corral.__version__, docs_url=None, redoc_url=None)
        self.deciding = deciding
        self.add_api_route(
            "/decide",
            deciding.routed,
            methods=["POST"],
            openapi_extra={"requestBody": {"content": {JSON: {"schema": deciding.form.schema()}}}},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/decide" and scope["method"] == "POST":
            await self.deciding(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class Deciding:
    """POST /decide, as a plain ASGI application.

    Slow decisions run one at a time in a thread, so that the event loop stays responsive.
    """

    def __init__(self, service: Service, metrics: Metrics, limits: Limits) -> None:
        self.service, self.metrics, self.limits = service, metrics, limits
        self.refusals = metrics.refusals
        self.form = Form.of(service.about, rule=service.deciding == "rule")
        self.thread = ThreadPoolExecutor(1, "corral-decide")
        self.waiting = self.held_bytes = 0
        self.rests_until = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope["headers"], receive, send)
        except asyncio.CancelledError:
            return  # the server is stopping, and has closed the connection

    async def routed(self, request: Request) -> Response:
        """Return the decision for each node as an HTTP response."""
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self._serve(request.scope["headers"], request.receive, keep)
        if not messages:
            return Response(status_code=400)  # the client has disconnected
        text = b"".join(message.get("body", b"") for message in messages)
        return Response(text, messages[0]["status"], media_type=JSON)

    async def _serve(self, headers: Headers, receive: Receive, send: Send) -> None:
        body = b""
        try:
            _require_json(headers)
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                part = message.get("body", b"")
                body = body + part if body else part
                self.held_bytes += len(part)
                if len(body) > SMALL:
                    self._require_size(body)
                if not message.get("more_body"):
                    break
            if len(body) <= SMALL and self.service.quick:
                status, text = self.answer(body)
            else:
                outcome = await self._in_turn(body, receive)
                if outcome is None:
                    return
                status, text = outcome
            self.held_bytes += len(text)
            try:
                await send_answer(send, status, text)
            finally:
                self.held_bytes -= len(text)
        except Refused as error:
            self.refusals.refused[error.status].inc()
            self.refusals.bite(error.limit, str(error))
            text = refusal(error.field, str(error))
            await send_answer(send, error.status, text, close=error.status == 413)
        finally:
            self.held_bytes -= len(body)

    def _require_size(self, body: bytes) -> None:
        """Raise Refused if the body is too large, or no more large bodies fit into memory."""
        if len(body) > MAX_BYTES:
            raise Refused(413, "body_bytes", f"the body has more than {MAX_BYTES:,} bytes")
        self._require_room()

    async def _in_turn(self, body: bytes, receive: Receive) -> tuple[int, bytes] | None:
        """Return the thread's response; None if the client disconnected. Raises Refused."""
        large = len(body) > SMALL
        if large:
            self._require_room()
        self.waiting += large
        answer = asyncio.get_running_loop().run_in_executor(self.thread, self._rested, body)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            self.waiting -= large
            answer.cancel()  # no effect if it has started
            gone.cancel()

    def _rested(self, body: bytes) -> tuple[int, bytes]:
        """Call ``answer``. After a large request the thread pauses for twice the time it took, so
        that small requests get at least two thirds of the interpreter's time."""
        if len(body) <= SMALL:
            return self.answer(body)
        time.sleep(max(0.0, self.rests_until - time.monotonic()))
        begin = time.monotonic()
        try:
            return self.answer(body)
        finally:
            end = time.monotonic()
            self.rests_until = end + min(2 * (end - begin), MAX_REST)

    def _require_room(self) -> None:
        """Raise Refused if no more large requests can be held."""
        most_bytes, most_waiting = self.limits.held_bytes, self.limits.waiting
        if self.held_bytes > most_bytes or self.waiting >= most_waiting:
            text = f"{most_waiting} large requests, or {most_bytes:,} bytes, are waiting; try later"
            raise Refused(503, "busy", text)

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the response to a request body."""
        memory = self.service.memory
        try:
            request = self.form.read(body)
            nodes, previous = request["nodes"], request.get("previous")
            self._require_names(nodes)
            state = memory.read(request.get("state"), begins=previous is None) if memory else None
            begin = time.perf_counter()
            try:
                answer = self.service.decide(nodes, previous, state, request.get("time"))
            except DecisionError as error:  # more requests than a rule can draw for
                raise BadRequest.of(error.field, str(error).partition(": ")[2]) from None
            seconds = time.perf_counter() - begin
            text = self.form.answered(answer, memory.text_of(answer.state) if memory else None)
        except MemoryTextError as error:
            return self._bad(BadRequest.of("state", str(error)))
        except BadRequest as error:
            return self._bad(error)
        self.metrics.count(nodes, answer, seconds)
        return 200, text

    def _bad(self, error: BadRequest) -> tuple[int, bytes]:
        self.refusals.refused[422].inc()
        return 422, refused(error)

    def _require_names(self, nodes: Numbers) -> None:
        """Raise BadRequest for unknown node names."""
        names = self.service.names
        if names is None or nodes.keys() <= names:
            return
        unknown = [name for name in nodes if name not in names][:MAX_FAULTS]
        served_names, more = self.service.nodes[:8], len(self.service.nodes) - 8
        message = f"unknown node: the run has {', '.join(served_names)}"
        message += f" and {more} more" * (more > 0)
        message += "; add names with corral serve --nodes"
        raise BadRequest([{"field": f"nodes.{name}", "message": message} for name in unknown])


class Refused(Exception):
    """A request that was refused because of a limit."""

    def __init__(self, status: int, limit: str, text: str, field: str = "body") -> None:
        super().__init__(text)
        self.status, self.limit, self.field = status, limit, field


async def _disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _require_json(headers: Headers) -> None:
    """Raise Refused if the body is not declared as JSON: any web page can send other types."""
    for name, value in headers:
        if name == b"content-type":
            if value.partition(b";")[0].strip().lower() == JSON.encode():
                return
            break
    raise Refused(415, "content_type", f"send the header Content-Type: {JSON}", "content-type")


# --- Listening -----------------------------------------------------------------------------------


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address; port 0: a free port.

    Raises ValueError if it cannot be bound.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"port={port}: pass 1 to 65535, or 0 for a free port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ValueError(f"--host {host}: unknown address: {error}") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ValueError(
            f"port {port} of {host}: {error.strerror or error}; pass another --port, or 0 for a "
            "free port"
        ) from None
    return bound


def serve(
    service: Service,
    bound: socket.socket,
    begun: Callable[[str], None] = lambda url: None,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
) -> None:
    """Answer until SIGTERM or Ctrl-C; ``begun`` is called with the address when it listens.

    The Host header must name this server: a loopback name, the address of ``bound``, or one of
    ``hosts``. Pages of other sites may send requests if they are among ``origins``, such as
    "https://ops.example.com". Raises ArgumentError for malformed ``hosts`` or ``origins``.
    """
    server = server_of(service, bound, begun, hosts=hosts, origins=origins)
    _return_memory()
    try:
        server.run(sockets=[bound])
    finally:
        if service.log is not None:
            service.log.close()


def _return_memory() -> None:
    """Let the system reclaim large arrays when they are freed: glibc would keep their memory, twice
    if two threads allocate."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, 1 << 20)
            mallopt(M_ARENA_MAX, 1)


M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of malloc.h


def server_of(
    service: Service,
    bound: socket.socket,
    begun: Callable[[str], None] = lambda url: None,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: Limits | None = None,
) -> Server:
    """Return the server for ``serve``. Raises ArgumentError."""
    limits = limits or Limits()
    app = app_of(service, limits)
    refusals = app.deciding.refusals
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    config = Config(
        Door(app, refusals, host, hosts, origins),
        limits,
        refusals,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=1,
    )
    return Server(config, lambda: begun(f"http://{shown}:{port}"))
