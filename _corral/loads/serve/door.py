"""Check the Host and Origin headers: only requests to this server's names, from allowed pages.

A browser sends requests for any page that a user visits. An attacker's name may resolve to this
machine (DNS rebinding), so that the browser treats the server as part of the attacker's page; the
Host header then has that name. A cross-site request has its page in the Origin header. Starlette's
TrustedHostMiddleware checks only Host, and counts nothing.
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
"""A name, or an IPv4 or IPv6 address, optionally with a port."""
NAME = re.compile(r"[\w.-]+|[0-9a-fA-F:.]+")
ORIGIN = re.compile(r"https?://[^/\s]+")


class Door:
    """Passes requests to ``app`` if Host names this server and Origin is allowed.

    ``bound`` is the address on which the server listens; if it listens on all addresses, the local
    address of a connection is also a valid host. ``hosts`` are further names, ``origins`` sites
    with pages that may send requests. Raises ArgumentError.
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
                    f"allow_host={host!r}: pass a name or an address, without scheme and port"
                )
        for origin in origins:
            if not ORIGIN.fullmatch(origin):
                raise ArgumentError(
                    f"allow_origin={origin!r}: pass scheme and host, as in https://ops.example.com"
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
        """Return status, limit and reason of a refusal; None for an allowed request."""
        host = origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    return 400, "host", "duplicate Host header"
                host = value.lower()
            elif name == b"origin":
                origin = value.lower()
        if host is None:
            return 400, "host", "missing Host header"
        if host not in self.hosts:
            match = HOST.fullmatch(host)
            if match is None:
                return 400, "host", "invalid Host header"
            hostname = match[1] or match[2]
            if hostname not in self.hosts and not self._arrived_at(hostname, scope):
                text = f"{_text(hostname)} is not a name of this server; --allow-host adds one"
                return 421, "host", text
        if origin is None or origin in self.origins or origin.partition(b"://")[2] == host:
            return None
        return 403, "origin", f"pages of {_text(origin)} are not allowed; --allow-origin adds them"

    def _arrived_at(self, host: bytes, scope: Scope) -> bool:
        """Whether ``host`` is the address of this machine to which the client connected."""
        server = scope.get("server")
        return self.any_address and server is not None and host == str(server[0]).encode()


async def send_answer(send: Send, status: int, text: bytes, *, close: bool = False) -> None:
    """Send a JSON response, and wait until the client has read nearly all of it."""
    size = str(len(text)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", size)]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if len(text) > LARGE_ANSWER:  # uvicorn waits until the previous part is sent
        await send({"type": "http.response.body", "body": text, "more_body": True})
        text = b""
    await send({"type": "http.response.body", "body": text})


LARGE_ANSWER = 65_536
"""Bytes above which a response may stay in memory for long, waiting for its client."""


def _text(value: bytes) -> str:
    """Return a part of a header for a message: shortened, without control characters."""
    return ascii(value.decode("latin-1")[:80])
