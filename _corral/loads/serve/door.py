"""Who may ask: requests to this server by its names, from no page of another site.

A browser sends requests for any page that a person visits. A name of the attacker may lead to this
machine (DNS rebinding), so that the browser takes the server for a part of the page: the header
Host then has that name. A request across sites names the page in Origin. Starlette's
TrustedHostMiddleware looks at Host alone, and counts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from corral.errors import ArgumentError
from corral.loads.serve.limits import Refusals, refusal

__all__ = ["LOOPBACK", "Door", "send_answer"]

LOOPBACK = ("127.0.0.1", "::1", "localhost")
ANY_ADDRESS = ("0.0.0.0", "::")

HOST = re.compile(rb"(?:\[([0-9a-f:.]+)\]|([^\[\]:/@\s]+))(?::\d{1,5})?")
"""A name, or an address of either kind, and maybe a port."""
NAME = re.compile(r"[\w.-]+|[0-9a-fA-F:.]+")
ORIGIN = re.compile(r"https?://[^/\s]+")


class Door:
    """Lets requests through to ``app`` that name a host of this server, and no other origin.

    ``bound`` is the address it listens on; if that is every one, the address that a connection
    came in by is a host of this server. ``hosts`` are further names, ``origins`` sites whose pages
    may ask. Raises ArgumentError.
    """

    def __init__(
        self,
        app: ASGIApp,
        refusals: Refusals,
        bound: str,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> None:
        hosts, origins = [*hosts], [*origins]
        for host in hosts:
            if not NAME.fullmatch(host):
                raise ArgumentError(
                    f"allow_host={host!r}: give a name or an address, without scheme and port"
                )
        for origin in origins:
            if not ORIGIN.fullmatch(origin):
                raise ArgumentError(
                    f"allow_origin={origin!r}: give scheme and host, as in https://ops.example.com"
                )
        self.app, self.refusals = app, refusals
        self.any_address = bound in ANY_ADDRESS
        self.hosts = {host.lower().encode() for host in (*LOOPBACK, bound, *hosts)}
        self.origins = {origin.lower().encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._refused(scope)) is not None:
            status, limit, text = refused
            self.refusals.refused[status].inc()
            self.refusals.bite(limit, text)
            await send_answer(send, status, refusal(limit, text))
        else:
            await self.app(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return status, limit and reason; None for a request that may come in."""
        host = origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    return 400, "host", "more than one header Host"
                host = value.lower()
            elif name == b"origin":
                origin = value.lower()
        if host is None:
            return 400, "host", "no header Host"
        if host not in self.hosts:
            found = HOST.fullmatch(host)
            if found is None:
                return 400, "host", "no name of a host in the header Host"
            called = found[1] or found[2]
            if called not in self.hosts and not self._arrived_at(called, scope):
                text = f"{_text(called)} is no name of this server; --allow-host adds one"
                return 421, "host", text
        if origin is None or origin in self.origins or origin.partition(b"://")[2] == host:
            return None
        return 403, "origin", f"pages of {_text(origin)} may not ask; --allow-origin lets them"

    def _arrived_at(self, host: bytes, scope: Scope) -> bool:
        """Return whether ``host`` is the address of this machine that the client connected to."""
        server = scope.get("server")
        return self.any_address and server is not None and host == str(server[0]).encode()


async def send_answer(send: Send, status: int, text: bytes, *, close: bool = False) -> None:
    """Send an answer of JSON, and wait until the client has taken nearly all of it."""
    size = str(len(text)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", size)]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if len(text) > LARGE_ANSWER:  # uvicorn waits for the part before
        await send({"type": "http.response.body", "body": text, "more_body": True})
        text = b""
    await send({"type": "http.response.body", "body": text})


LARGE_ANSWER = 65_536
"""Bytes above which an answer may lie in memory for long, waiting for its client."""


def _text(value: bytes) -> str:
    """Return a part of a header for people: shortened, without control characters."""
    return ascii(value.decode("latin-1")[:80])
