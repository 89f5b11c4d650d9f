"""What stands before every request: who may ask, how much may be sent, what browsers may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class KnownHost:
    """Refuses requests that a foreign web page sent here through somebody's browser.

    A name of the attacker's that resolves to 127.0.0.1 shows in the Host header (DNS rebinding),
    a form of the attacker's shows in the Origin header. `hosts` None takes any Host.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None) -> None:
        self.app = app
        self.hosts = hosts

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
        if self.hosts is not None and _name(host) not in self.hosts:
            return "this server answers only under 127.0.0.1 and localhost."
        origin = headers.get("origin")
        if method not in SAFE_METHODS and origin is not None and _netloc(origin) != host:
            return "this request came from a page of another site."
        return ""


class UploadLimit:
    """Stops requests that send too much, by what they announce and by what arrives."""

    def __init__(self, app: ASGIApp, most_bytes: int, at_once: int) -> None:
        self.app = app
        self.most_bytes = most_bytes
        self.at_once = at_once
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        left = self.most_bytes

        async def receive_counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, self._too_large())
            return message

        self._running += 1
        try:
            await self.app(scope, receive_counted, send)
        finally:
            self._running -= 1

    def _refusal(self, headers: Headers) -> Any:
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > self.most_bytes:
            return JSONResponse({"detail": self._too_large()}, 413)
        if self._running >= self.at_once:
            text = "other uploads are under way; try again in a moment."
            return JSONResponse({"detail": text}, 429, {"Retry-After": "5"})
        return None

    def _too_large(self) -> str:
        return f"at most {self.most_bytes / 2**20:.4g} MiB can be sent; crop or pack the files."


def _name(host: str) -> str:
    """`localhost:8000` → `localhost`, `[::1]:8000` → `::1`."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
