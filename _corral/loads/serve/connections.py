"""Connections: how many, how long they may take, and the end of a server.

uvicorn limits neither the bytes of headers (with httptools) nor the time of headers, bodies and
readers; its ``limit_concurrency`` refuses everybody while idle connections fill it. So a connection
has a phase, and since when:

| phase | ends in |
|---|---|
| "headers": it is new, or the headers of a request have begun | ``Limits.seconds`` |
| "body" | ``Limits.seconds`` |
| "rest": of a body whose request was refused before its end | ``Limits.seconds`` |
| "deciding": the answer is not ready, or not sent yet | no limit; the client has to read in time |
| "idle": between requests | the keep-alive time |
| "closing": refused | a second |

If there are too many, those go that have never been answered, the one that has waited longest
first. At twice as many those that have been idle longest go too.
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
"""Seconds that answers may still take after SIGTERM."""
UNREAD = 1.0
"""Seconds that a connection stays although there are too many, up to twice as many."""
TICKS = 5
"""Between two looks at the connections, of 0.1 s each."""


class Config(uvicorn.Config):
    """Settings of uvicorn, with the limits of ours."""

    def __init__(self, app: Any, limits: Limits, refusals: Refusals, **options: Any) -> None:
        super().__init__(app, http=Connection, ws="none", **options)
        self.limits, self.refusals = limits, refusals


class Connection(HttpToolsProtocol):
    """The connection of a client, with limits."""

    config: Config

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.limits, self.refusals = self.config.limits, self.config.refusals
        self.phase, self.since = "headers", self.loop.time()
        self.head_bytes = self.answers = 0
        self.unread_since: float | None = None  # the client does not take its answer
        if len(self.connections) >= 2 * self.limits.connections:
            make_room(
                [each for each in self.connections if isinstance(each, Connection)], self.since
            )
        if len(self.connections) >= 2 * self.limits.connections:
            self._refuse(503, "connections", "all connections wait for decisions")

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
            self._refuse(400, "cut", "the client ended the connection amid a body")
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.phase == "body":
            self.refusals.bite("cut", "the connection was lost amid a body")
        super().connection_lost(exc)

    # --- Phases ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._enter("headers")

    def on_headers_complete(self) -> None:
        if self.head_bytes > self.limits.header_bytes:  # maybe with a part of the body
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.limits.header_bytes:
                self._refuse_headers()
                raise ValueError("the headers are too large")  # which ends the parser
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
            self.refusals.bite("answer_seconds", f"an answer was not read within {seconds:g} s")
            self.end()
        elif self.phase == "closing" and now - self.since > 1:
            self.end()
        elif self.phase in ("headers", "body", "rest") and now - self.since > seconds:
            part = "header" if self.phase == "headers" else "body"
            self._refuse(408, f"{part}_seconds", f"its {part} took more than {seconds:g} s")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP: uvicorn calls it."""
        if self.phase != "closing":
            self._refuse(400, "http", msg)

    def _refuse_headers(self) -> None:
        text = f"the headers have more than {self.limits.header_bytes:,} bytes"
        self._refuse(431, "header_bytes", text)

    def _refuse(self, status: int, limit: str, text: str) -> None:
        """Count, answer where no answer has begun, and close the connection."""
        self.refusals.bite(limit, text)
        if self.phase == "body":
            free = not self.cycle.response_started and not self.pipeline
        else:  # no other answer is due
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
        """End the connection at once, whatever is on its way."""
        self._enter("closing")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()
        self.connections.discard(self)


def make_room(connections: list[Connection], now: float) -> None:
    """End those of too many connections that have the least claim to their places."""
    limits, refusals = connections[0].limits, connections[0].refusals
    excess = len(connections) - limits.connections
    waiting = [each for each in connections if each.phase != "deciding"]
    if excess < limits.connections:  # clients that were answered stay, and new ones have a second
        waiting = [each for each in waiting if not each.answers and now - each.since > UNREAD]
    waiting.sort(key=lambda each: (each.answers > 0, each.since))
    for each in waiting[:excess]:
        text = f"more than {limits.connections:,}: the one that waited longest was ended"
        refusals.bite("connections", text)
        each.end()


class Server(uvicorn.Server):
    """A server that looks at the time of its connections, and ends within a second."""

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
        """End what still runs: slow clients, decisions that take long."""
        for connection in self._connections():
            connection.end()
        for task in [*self.server_state.tasks]:
            task.cancel()

    def _connections(self) -> list[Connection]:
        return [each for each in self.server_state.connections if isinstance(each, Connection)]
