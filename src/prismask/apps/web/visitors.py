"""Who may come in: whoever has the link that the command printed.

The link carries a token. The first visit with it leaves a cookie, so that addresses within the
page need none; scripts send `Authorization: Bearer TOKEN`. Without it, other users of the same
computer could fetch results from 127.0.0.1 as well.
"""

from __future__ import annotations

import os
import secrets
import time
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from prismask.apps.web.assets import text_of
from prismask.errors import ConfigError

VARIABLE = "PRISMASK_TOKEN"
SHORTEST = 16
TICKET_SECONDS = 60.0
OPEN_PATHS = ("/static/",)
"""Files of the package itself; the page that asks for the token needs its styles."""


class Visitors:
    """The token, and tickets that are good for one visit."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._tickets: dict[str, float] = {}

    @classmethod
    def from_environment(cls) -> Visitors:
        """With the token in PRISMASK_TOKEN where it is set, else a fresh one."""
        given = os.environ.get(VARIABLE)
        if given is not None and (len(given) < SHORTEST or not given.isascii()):
            raise ConfigError(
                f"{VARIABLE} has {len(given)} letters; a token has {SHORTEST} or more, of ASCII."
            )
        return cls(given)

    def ticket(self) -> str:
        """A token for one visit within a minute, for what other users may see on their screens.

        The address that a browser is started with shows in the list of processes.
        """
        made = secrets.token_urlsafe(24)
        self._tickets[made] = time.monotonic() + TICKET_SECONDS
        return made

    def knows(self, token: str) -> bool:
        """Whether this is the token."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def admits(self, token: str) -> bool:
        """Whether this is the token, or a ticket, which is then used up."""
        return self.knows(token) or self._tickets.pop(token, 0.0) > time.monotonic()


class KnownVisitor:
    """Lets requests with the token through; pages ask for it, the API answers 401."""

    def __init__(self, app: ASGIApp, visitors: Visitors) -> None:
        self.app = app
        self.visitors = visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or ask for the token."""
        if scope["type"] != "http" or scope["path"].startswith(OPEN_PATHS):
            await self.app(scope, receive, send)
            return
        is_known = self._is_known(scope, Headers(scope=scope))
        is_page = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith("/api/")
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in asked if name == "token"] if is_page else []
        if given and (self.visitors.admits(given[-1]) or is_known):
            rest = urlencode([pair for pair in asked if pair[0] != "token"])
            await self._enter(scope, rest)(scope, receive, send)
        elif is_known:
            await self.app(scope, receive, send)
        else:
            await _refuse(is_page, bool(given))(scope, receive, send)

    def _is_known(self, scope: Scope, headers: Headers) -> bool:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.visitors.knows(token.strip()):
            return True
        # Lenient: other servers on this host may have left cookies of any form.
        held = cookie_parser(headers.get("cookie", "")).get(_cookie(scope))
        return held is not None and self.visitors.knows(held)

    def _enter(self, scope: Scope, rest: str) -> Response:
        """On to the same address without the token, which can be shown and bookmarked."""
        # One slash: two would lead to another server.
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        answer.set_cookie(
            _cookie(scope), self.visitors.token, path="/", httponly=True, samesite="lax"
        )
        return answer


def _refuse(is_page: bool, was_given: bool) -> Response:
    headers = {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}
    if is_page:
        page = text_of("token.html").replace("<!-- wrong -->", WRONG if was_given else "")
        return HTMLResponse(page, 401, headers)
    text = (
        "this server needs its token: send `Authorization: Bearer TOKEN` with the one in the link "
        "that the command printed."
    )
    return JSONResponse({"detail": text}, 401, headers)


WRONG = '<p class="bad" role="alert">That is not the token of this server, or no longer.</p>'


def _cookie(scope: Scope) -> str:
    """Cookies are shared by all ports of a host, and several servers may run on them."""
    server = scope.get("server") or ("", 0)
    return f"prismask-{server[1]}"
