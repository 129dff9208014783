"""Connections: their number, their time limits, and the shutdown of a server.

uvicorn does not limit the bytes of headers (with httptools), nor the time for headers, bodies and
reading clients; its ``limit_concurrency`` refuses all requests while idle connections fill it. So
each connection has a phase with a start time:

| phase | time limit |
|---|---|
| "headers": the connection is new, or the headers of a request have begun | ``Limits.seconds`` |
| "body" | ``Limits.seconds`` |
| "rest": remaining body of a refused request | ``Limits.seconds`` |
| "deciding": the response is not ready or not sent | none; the client must read it in time |
| "idle": between requests | the keep-alive time |
| "closing": refused | one second |

If there are too many connections, those without any response are closed, the longest waiting first.
At twice the limit, the longest idle connections are closed as well.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from corral.loads.serve.limits import Limits, Refusals, refusal

__all__ = ["Config", "Connection", "Server"]

GRACE = 0.3
"""Seconds for unfinished responses after SIGTERM."""
UNREAD = 1.0
"""Seconds before an excess connection is closed, up to twice the limit."""
TICKS = 5
"""Ticks of 0.1 s between two checks of the connections."""


class Config(uvicorn.Config):
    """uvicorn's settings, with our limits."""

    def __init__(self, app: Any, limits: Limits, refusals: Refusals, **options: Any) -> None:
        super().__init__(app, http=Connection, ws="none", **options)
        self.limits, self.refusals = limits, refusals


class Connection(HttpToolsProtocol):
    """A client connection with limits."""

    config: Config

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.limits, self.refusals = self.config.limits, self.config.refusals
        self.phase, self.since = "headers", self.loop.time()
        self.head_bytes = self.answers = 0
        self.unread_since: float | None = None  # since when the client does not read its response
        if len(self.connections) >= 2 * self.limits.connections:
            make_room(
                [
                    connection
                    for connection in self.connections
                    if isinstance(connection, Connection)
                ],
                self.since,
            )
        if len(self.connections) >= 2 * self.limits.connections:
            self._refuse(503, "connections", "all connections wait for decisions; try later")

    def data_received(self, data: bytes) -> None:
        if self.phase == "closing":
            return
        if self.phase in ("headers", "idle"):
            self.head_bytes += len(data)
        super().data_received(data)
        if self.phase == "headers" and self.head_bytes > self.limits.header_bytes:
            self._refuse_headers()

    def eof_received(self) -> None:
        if self.phase == "body":
            self._refuse(400, "cut", "the client closed the connection within a body")
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.phase == "body":
            self.refusals.bite("cut", "the connection was lost within a body")
        super().connection_lost(exc)

    # --- Phases ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._enter("headers")

    def on_headers_complete(self) -> None:
        if self.head_bytes > self.limits.header_bytes:  # may include a part of the body
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.limits.header_bytes:
                self._refuse_headers()
                raise ValueError("the headers are too large")  # stops the parser
        self.head_bytes = 0
        self._enter("body")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._enter("idle" if self.cycle.response_complete else "deciding")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.answers += 1
        if self.phase == "body":
            self._enter("rest")
        elif self.phase == "deciding" and not self.pipeline:
            self._enter("idle")
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.unread_since = None
        super().resume_writing()

    def _enter(self, phase: str) -> None:
        self.phase, self.since = phase, self.loop.time()

    # --- Limits ----------------------------------------------------------------------------------

    def check_time(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        seconds = self.limits.seconds
        if self.unread_since is not None and now - self.unread_since > seconds:
            self.refusals.bite("answer_seconds", f"a response was not read within {seconds:g} s")
            self.end()
        elif self.phase == "closing" and now - self.since > 1:
            self.end()
        elif self.phase in ("headers", "body", "rest") and now - self.since > seconds:
            part = "header" if self.phase == "headers" else "body"
            self._refuse(408, f"{part}_seconds", f"its {part} took more than {seconds:g} s")

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed HTTP request; called by uvicorn."""
        if self.phase != "closing":
            self._refuse(400, "http", msg)

    def _refuse_headers(self) -> None:
        text = f"the headers have more than {self.limits.header_bytes:,} bytes"
        self._refuse(431, "header_bytes", text)

    def _refuse(self, status: int, limit: str, text: str) -> None:
        """Count the refusal, send a response unless another has begun, and close the connection."""
        self.refusals.bite(limit, text)
        if self.phase == "body":
            free = not self.cycle.response_started and not self.pipeline
        else:  # no other response is pending
            free = self.phase != "rest" and (self.cycle is None or self.cycle.response_complete)
        if free:
            self.refusals.refused[status].inc()
            body = refusal(limit, text)
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json"
                f"\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._enter("closing")
        self.transport.close()

    def end(self) -> None:
        """End the connection at once, whatever is being sent."""
        self._enter("closing")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()
        self.connections.discard(self)


def make_room(connections: list[Connection], now: float) -> None:
    """End connections in excess of the limit, the least important first."""
    limits, refusals = connections[0].limits, connections[0].refusals
    excess = len(connections) - limits.connections
    waiting = [connection for connection in connections if connection.phase != "deciding"]
    if excess < limits.connections:  # keep clients with a response, and give new ones a second
        waiting = [
            connection
            for connection in waiting
            if not connection.answers and now - connection.since > UNREAD
        ]
    waiting.sort(key=lambda connection: (connection.answers > 0, connection.since))
    for connection in waiting[:excess]:
        text = f"more than {limits.connections:,}: the longest waiting connection was closed"
        refusals.bite("connections", text)
        connection.end()


class Server(uvicorn.Server):
    """A server that checks the time of its connections, and stops within a second."""

    config: Config

    def __init__(self, config: Config, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self.begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            now = asyncio.get_running_loop().time()
            connections = self._connections()
            for connection in connections:
                connection.check_time(now)
            connections = self._connections()
            if connections and len(connections) > connections[0].limits.connections:
                make_room(connections, now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE, self._abort)
        await super().shutdown(sockets)

    def _abort(self) -> None:
        """End slow clients and long decisions."""
        for connection in self._connections():
            connection.end()
        for task in [*self.server_state.tasks]:
            task.cancel()

    def _connections(self) -> list[Connection]:
        return [
            connection
            for connection in self.server_state.connections
            if isinstance(connection, Connection)
        ]
