"""How much may be sent, and how many at a time; whoever stalls makes room for the next."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal() or int(announced) > most:
            await _too_large(most)(scope, receive, send)
            return
        if sends and announced != "0" and not self._has_room():
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
