"""How long a job will take: a first guess from the size, corrected by every job that ends here."""

from __future__ import annotations

import threading
from dataclasses import replace

from prismask.apps.web.work import Order

COLD_SECONDS = 6.0
"""Until a fresh worker process is ready."""
NETWORK = "network"
FIRST_RATES = {NETWORK: 2.0, "gap-tv": 2.0}
"""Seconds for a million values of the cube, on two CPU cores, until jobs here have told better."""
OTHER_SOLVER = 20.0
ALIGN_SECONDS = 90.0
ADAPT_SECONDS = 1.0
"""Per step; neither grows with the frame."""
MEMORY = 0.5
"""Weight of the newest job."""


class Estimates:
    """Seconds by method and size."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self.extra: dict[str, float] = {"align": ALIGN_SECONDS, "adapt": ADAPT_SECONDS}
        """Seconds on top: of aligning, and of each step of adapting."""
        self._lock = threading.Lock()

    def seconds(self, order: Order, values: int, is_cold: bool = False) -> float:
        """What a job will take, `values` being those of its cube."""
        kind = _kind(order)
        rate = self._rates.get(kind, FIRST_RATES.get(kind, OTHER_SOLVER))
        pure = rate * values / 1e6 * _passes(order)
        return pure + self._on_top(order) + (COLD_SECONDS if is_cold else 0.0)

    def learn(self, order: Order, values: int, seconds: float) -> None:
        """Take in how long a job took."""
        with self._lock:
            if not order.align and not order.adapt:
                self._move(self._rates, _kind(order), seconds / (values / 1e6 * _passes(order)))
                return
            plain = self.seconds(replace(order, align=False, adapt=0), values)
            extra = max(seconds - plain, 0.1)
            if order.align and not order.adapt:
                self._move(self.extra, "align", extra)
            elif order.adapt and not order.align:
                self._move(self.extra, "adapt", extra / order.adapt)

    def _on_top(self, order: Order) -> float:
        return order.align * self.extra["align"] + order.adapt * self.extra["adapt"]

    @staticmethod
    def _move(held: dict[str, float], key: str, found: float) -> None:
        known = held.get(key)
        held[key] = found if known is None else (1 - MEMORY) * known + MEMORY * found


def _kind(order: Order) -> str:
    """Jobs that cost alike; where nobody chose, a network is likely."""
    return order.method or NETWORK


def _passes(order: Order) -> float:
    if order.method is None:
        return max(1, order.samples)
    return 1.0 if order.iterations is None else order.iterations / 60
