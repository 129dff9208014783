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
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

import corral
from corral.trainers.loads.serve import messages
from corral.trainers.loads.serve.memory import MemoryTextError
from corral.trainers.loads.serve.messages import BadRequest
from corral.trainers.loads.serve.metrics import Metrics
from corral.trainers.loads.serve.service import Service

__all__ = ["app_of", "listen", "serve"]

JSON = "application/json"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def app_of(service: Service) -> FastAPI:
    """Return the application that answers by ``service``."""
    info = {"run": service.run, "deciding": service.deciding, "rule": service.rule}
    log, memory = service.log, service.memory
    metrics = Metrics(info, lambda: 0 if log is None else log.failures)
    health = {"status": "ok", **info, "nodes": [*service.nodes], "version": corral.__version__}
    app = FastAPI(
        title="corral", version=corral.__version__, docs_url=None, redoc_url=None
    )  # its pages for people load scripts from elsewhere

    async def decide(request: Request) -> Response:
        try:
            asked = messages.read(await _body(request))
            nodes, previous = asked["nodes"], asked.get("previous")
            state = memory.read(asked.get("state"), begins=previous is None) if memory else None
        except TooLarge as error:
            metrics.refused[413].inc()
            return JSONResponse({"detail": [{"field": "body", "message": str(error)}]}, 413)
        except BadRequest as error:
            metrics.refused[422].inc()
            return JSONResponse({"detail": error.faults}, 422)
        except MemoryTextError as error:
            metrics.refused[422].inc()
            return JSONResponse({"detail": [{"field": "state", "message": str(error)}]}, 422)
        begin = time.perf_counter()
        answer = service.decide(nodes, previous, state)
        metrics.count(nodes, answer, time.perf_counter() - begin)
        after = memory.text_of(answer.state) if memory else None
        return Response(messages.answered(answer, after), media_type=JSON)

    # A plain route: FastAPI's own way of reading a request takes longer than the decision.
    app.add_route("/decide", decide, methods=["POST"])

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        return health

    @app.get("/metrics")
    async def read_metrics() -> Response:
        return Response(metrics.text(), media_type=PLAIN)

    return app


class TooLarge(ValueError):
    """A body of more bytes than are read."""


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises TooLarge."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > messages.MOST_BYTES:
            raise TooLarge(f"more than {messages.MOST_BYTES:,} bytes")
    return b"".join(parts)


# --- Listening -----------------------------------------------------------------------------------


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to that address; port 0: a free one.

    Raises ValueError, with what to do, where it cannot be.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError) as error:
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
    app = app_of(service)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    try:
        _Server(config, lambda: begun(f"http://{shown}:{port}")).run(sockets=[bound])
    finally:
        bound.close()
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
