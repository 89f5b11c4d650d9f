"""What stands before every request: our names, browsers, what may be sent, how long it may take.

How much may be sent is bounded, and how many send at a time; whoever stalls makes room for the
next. Connections cannot be held open for nothing. Uvicorn limits how long one may idle between
requests, and nothing else: one that never finishes its headers, sends its body a byte a minute or
never reads its answer would stay for ever. So there are time limits, and a bound on their number.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
LOOPBACK = ("127.0.0.1", "localhost", "::1")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # The plots set styles on their elements; no script can come in that way.
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class SafeHeaders:
    """Puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await self.app(scope, receive, send_safely)


class LastAnswer:
    """Says that the server ends to those whom it can no longer answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; what is called off at the end of the server is no fault."""
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except asyncio.CancelledError:
            if scope["type"] == "http" and not has_begun:
                answer = JSONResponse({"detail": "the server is shutting down."}, 503)
                await answer(scope, receive, send)


class KnownHost:
    """Refuses requests that a foreign web page sent here through somebody's browser.

    A name of the attacker's that resolves to this computer shows in the Host header (DNS
    rebinding), a form of the attacker's shows in the Origin header. `hosts` are the names that are
    ours; addresses in numbers cannot be rebound and are all taken where `numbers` is set.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], numbers: bool = False) -> None:
        self.app = app
        self.hosts = hosts
        self.numbers = numbers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            reason = self._refusal(scope["method"], Headers(scope=scope))
            if reason:
                await JSONResponse({"detail": reason}, 403)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> str:
        host = headers.get("host", "")
        name = _name(host)
        if name not in self.hosts and not (self.numbers and _is_number(name)):
            ours = ", ".join(self.hosts[:-1]) + " and " + self.hosts[-1]
            return (
                f"this server answers under {ours}; for another name start it with --name."
                if self.numbers
                else f"this server answers only under {ours}."
            )
        origin = headers.get("origin")
        if method not in SAFE_METHODS and origin is not None and _netloc(origin) != host:
            return "this request came from a page of another site."
        return ""


def _name(host: str) -> str:
    """`localhost:8000` → `localhost`, `[::1]:8000` → `::1`."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


SENDING = ("POST", "PUT", "PATCH")
SMALL_BODY = 2**12
"""All that a request which sends no files may bring along; such requests take no place."""
PATIENCE_SECONDS = 3.0
SLOWEST = 16 * 2**10
"""Bytes per second below which an upload gives its place to one that waits."""


@dataclass(eq=False)
class Upload:
    """One request that is sending."""

    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    received: int = 0
    is_complete: bool = False
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, message: Message) -> None:
        """Note what arrived."""
        self.last = time.monotonic()
        self.received += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)

    @property
    def is_slow(self) -> bool:
        """Whether it stands still, or all but."""
        now = time.monotonic()
        took = now - self.began
        if self.is_complete or took < PATIENCE_SECONDS:
            return False
        return now - self.last > PATIENCE_SECONDS or self.received < SLOWEST * took

    @property
    def rate(self) -> float:
        """Bytes per second up to now."""
        return self.received / max(time.monotonic() - self.began, 1e-3)


class UploadLimit:
    """Stops requests that send too much, by what they announce and by what arrives."""

    def __init__(self, app: ASGIApp, most_bytes: int, at_once: int) -> None:
        self.app = app
        self.most_bytes = most_bytes
        self.at_once = at_once
        self._uploads: set[Upload] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sends = scope["method"] in SENDING
        most = self.most_bytes if sends else SMALL_BODY
        headers = Headers(scope=scope)
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > most:
            await _too_large(most)(scope, receive, send)
            return
        # A body in chunks announces nothing.
        is_empty = announced == "0" and "transfer-encoding" not in headers
        if sends and not is_empty and not self._has_room():
            text = "other uploads are under way; try again in a moment."
            busy = JSONResponse({"detail": text}, 429, {"Retry-After": "5"})
            await busy(scope, receive, send)
            return
        upload = Upload()
        if sends:
            self._uploads.add(upload)
        try:
            await self.app(scope, _counted(receive, upload, most), send)
        finally:
            self._uploads.discard(upload)

    def _has_room(self) -> bool:
        """Whether another may begin; the slowest of those that stall is ended for it."""
        if len(self._uploads) < self.at_once:
            return True
        slow = [upload for upload in self._uploads if upload.is_slow]
        if not slow:
            return False
        ended = min(slow, key=lambda upload: upload.rate)
        ended.is_over.set()
        self._uploads.discard(ended)
        return True


def _counted(receive: Receive, upload: Upload, most: int) -> Receive:
    async def receive_counted() -> Message:
        if upload.is_complete:
            return await receive()
        arriving = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(upload.is_over.wait())
        try:
            await asyncio.wait((arriving, ending), return_when=asyncio.FIRST_COMPLETED)
            if not arriving.done():
                raise HTTPException(408, "the upload stalled, and another one took its place.")
            message = arriving.result()
        finally:
            arriving.cancel()
            ending.cancel()
        upload.count(message)
        if upload.received > most:
            raise HTTPException(413, _too_large_text(most))
        return message

    return receive_counted


def _too_large(most: int) -> Response:
    return JSONResponse({"detail": _too_large_text(most)}, 413)


def _too_large_text(most: int) -> str:
    return f"at most {most / 2**20:.4g} MiB can be sent; crop or pack the files."


HEADER_SECONDS = 10.0
"""How long the headers of a request may take."""
WINDOW_SECONDS = 15.0
"""Bodies and answers must get on within every such window …"""
WINDOW_BYTES = 64 * 2**10
"""… by at least this much."""
TICK_SECONDS = 0.5
MOST_CONNECTIONS = 512
"""Beyond it, the connection that has waited longest for its client makes room."""

Phase = Literal["headers", "idle", "body", "answering", "reading"]
WAITING: tuple[Phase, ...] = ("headers", "idle", "body", "reading")
"""Phases in which it is the client's turn."""


class GuardedConnection(H11Protocol):
    """One connection with its clock."""

    open_ones: ClassVar[dict[GuardedConnection, None]] = {}
    """All of this process, oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock; make room where there are too many."""
        super().connection_made(transport)
        # Headers and body are two writes: without this the second waits 40 ms for the first's
        # receipt. asyncio sets it only on sockets that were opened as TCP by name.
        held = transport.get_extra_info("socket")
        if held is not None and held.family in (socket.AF_INET, socket.AF_INET6):
            held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._phase: Phase = "headers"
        self._since = self.loop.time()
        self._moved = 0
        self._unsent = 0
        self.open_ones[self] = None
        self._timer = self.loop.call_later(TICK_SECONDS, self._tick)
        if len(self.open_ones) > MOST_CONNECTIONS:
            _make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._timer.cancel()
        self.open_ones.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what arrives."""
        self._moved += len(data)
        super().data_received(data)

    def resume_writing(self) -> None:
        """Count what is read: most of a full buffer has gone since writing was paused."""
        self._moved += WINDOW_BYTES
        super().resume_writing()

    def shutdown(self) -> None:
        """The server ends; a request that has not all arrived is not waited for."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()

    @property
    def waited(self) -> float:
        """Seconds for which it has been the client's turn; negative where it is ours."""
        return self.loop.time() - self._since if self._phase in WAITING else -1.0

    def _tick(self) -> None:
        now, phase = self.loop.time(), self._find_phase()
        if phase == "reading":
            unsent = self.transport.get_write_buffer_size()
            self._moved += max(0, self._unsent - unsent)
            self._unsent = unsent
        if phase != self._phase:
            self._phase, self._since, self._moved = phase, now, 0
        elif self._is_late(now - self._since):
            self.transport.abort()
            return
        elif phase in ("body", "reading") and now - self._since > WINDOW_SECONDS:
            self._since, self._moved = now, 0
        self._timer = self.loop.call_later(TICK_SECONDS, self._tick)

    def _is_late(self, seconds: float) -> bool:
        if self._phase == "headers":
            return seconds > HEADER_SECONDS
        stalls = self._phase in ("body", "reading") and self._moved < WINDOW_BYTES
        return stalls and seconds > WINDOW_SECONDS

    def _find_phase(self) -> Phase:
        # Uvicorn calls an answer complete once it is handed over, read or not.
        if self.transport.get_write_buffer_size() > 0:
            return "reading"
        if self.cycle is None or self.cycle.response_complete:
            # Uvicorn's own timer runs from an answer to the first byte of the next request.
            return "idle" if self.timeout_keep_alive_task is not None else "headers"
        # Where reading is paused, it is we who have not yet taken what was sent.
        return "body" if self.cycle.more_body and not self.flow.read_paused else "answering"


def _make_room(newest: GuardedConnection) -> None:
    """End the connection that has waited longest for its client, else the newest."""
    others = [one for one in GuardedConnection.open_ones if one is not newest and one.waited >= 0]
    longest = max(others, key=lambda one: one.waited, default=newest)
    GuardedConnection.open_ones.pop(longest, None)
    longest.transport.abort()
