"""What stands before every request: under which names we answer, what browsers may do."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
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
