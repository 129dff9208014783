"""The server: POST /decide, GET /healthz, GET /metrics.

An answer depends on its request alone, so that a server that is killed and started again answers as
before: what others reported, and a team's memory, come with the request.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

import corral
from corral.loads.export.inputs import DecisionError
from corral.loads.serve import messages
from corral.loads.serve.memory import MemoryTextError
from corral.loads.serve.messages import BadRequest, Form
from corral.loads.serve.metrics import Metrics
from corral.loads.serve.service import Service

__all__ = ["app_of", "listen", "serve"]

JSON = "application/json"
KEPT = 900
"""Seconds that a connection stays open without a request: a gateway asks once a step."""
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def app_of(service: Service) -> FastAPI:
    """Return the application that answers by ``service``."""
    info = {"run": service.run, "deciding": service.deciding, "rule": service.rule}
    log = service.log
    metrics = Metrics(info, lambda: 0 if log is None else log.failures, service.plans)
    health = {"status": "ok", **info, "nodes": [*service.nodes], "version": corral.__version__}
    if service.plans:
        health["arrivals"] = "unknown"
    app = Application(Deciding(service, metrics))

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        return health

    @app.get("/metrics")
    async def read_metrics() -> Response:
        return Response(metrics.text(), media_type=PLAIN)

    return app


class Application(FastAPI):
    """An application that decides before anything else: FastAPI's routing, and its objects for
    request and response, take longer than a decision."""

    def __init__(self, deciding: Deciding) -> None:
        # Its pages for people load scripts from elsewhere.
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
    """POST /decide, as a plain ASGI application."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics
        self.form = Form.of(service.about, rule=service.deciding == "rule")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, text = self.answer(await _body(receive))
        size = str(len(text)).encode()
        headers = [(b"content-type", JSON.encode()), (b"content-length", size)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def routed(self, request: Request) -> Response:
        """Say what each node does with its requests."""
        status, text = self.answer(await request.body())
        return Response(text, status, media_type=JSON)

    def answer(self, body: bytes | None) -> tuple[int, bytes]:
        """Return status and body for the body of a request; None: one that is too large."""
        memory = self.service.memory
        try:
            if body is None:
                raise BadRequest.of("body", f"more than {messages.MOST_BYTES:,} bytes", status=413)
            asked = self.form.read(body)
            nodes, previous = asked["nodes"], asked.get("previous")
            state = memory.read(asked.get("state"), begins=previous is None) if memory else None
        except BadRequest as error:
            self.metrics.refused[error.status].inc()
            return error.status, messages.refused(error)
        except MemoryTextError as error:
            self.metrics.refused[422].inc()
            return 422, messages.refused(BadRequest.of("state", str(error)))
        begin = time.perf_counter()
        try:
            answer = self.service.decide(nodes, previous, state, asked.get("time"))
        except DecisionError as error:  # more requests than a rule draws for
            self.metrics.refused[422].inc()
            return 422, messages.refused(BadRequest.of(error.field, str(error).partition(": ")[2]))
        self.metrics.count(nodes, answer, time.perf_counter() - begin)
        return 200, self.form.answered(answer, memory.text_of(answer.state) if memory else None)


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None where it is too large."""
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > messages.MOST_BYTES:
            return None
        if not message.get("more_body"):
            return body


# --- Listening -----------------------------------------------------------------------------------


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to that address; port 0: a free one.

    Raises ValueError, with what to do, where it cannot be.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"port={port}: give 1 to 65535, or 0 for a free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ValueError(f"--host {host}: no such address: {error}") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ValueError(
            f"port {port} of {host}: {error.strerror or error}; --port takes another one, 0 a free "
            "one"
        ) from None
    return bound


def serve(
    service: Service, bound: socket.socket, begun: Callable[[str], None] = lambda url: None
) -> None:
    """Answer until SIGTERM or Ctrl-C; ``begun`` is called with the address when it listens."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        app_of(service),
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=5,
    )
    try:
        _Server(config, lambda: begun(f"http://{shown}:{port}")).run(sockets=[bound])
    finally:
        if service.log is not None:
            service.log.close()


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self.begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun()
