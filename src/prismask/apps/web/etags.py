"""Whether a browser already holds what it asks for."""

from __future__ import annotations

from starlette.requests import Request


def is_held(request: Request, etag: str) -> bool:
    """Whether `If-None-Match` names `etag`: the answer is then 304, without a body."""
    named = request.headers.get("if-none-match", "")
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in named.split(","))
