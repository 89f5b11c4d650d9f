"""Connections that cannot be held open for nothing: time limits, and a bound on their number.

Uvicorn limits how long a connection may idle between requests, and nothing else: one that never
finishes its headers, sends its body a byte a minute or never reads its answer would stay for ever.
"""

from __future__ import annotations

import asyncio
import socket
from typing import ClassVar, Literal

from uvicorn.protocols.http.h11_impl import H11Protocol

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
