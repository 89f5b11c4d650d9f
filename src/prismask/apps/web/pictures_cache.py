"""Rendered pictures, each made once however many people ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

AT_ONCE = 2
"""More renderers would only keep each other, and those who wait for what is ready, from Python."""
Made = TypeVar("Made", bound=Sized)


class PictureCache(Generic[Made]):
    """Pictures by key, `len` being their bytes, within a bound of memory; used from one loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[Hashable, Made] = OrderedDict()
        self._bytes = 0
        self._renderers = ThreadPoolExecutor(AT_ONCE, "prismask-render")
        self._making: dict[Hashable, asyncio.Task[Made]] = {}

    async def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is held under `key`, else what `make` returns, run in a thread."""
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
            return held
        task = self._making.get(key)
        if task is None:
            task = asyncio.create_task(self._make(key, make))
            self._making[key] = task
        # Somebody who goes away must not take the picture from the others who wait for it.
        return await asyncio.shield(task)

    async def _make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        try:
            made = await asyncio.get_running_loop().run_in_executor(self._renderers, make)
        finally:
            del self._making[key]
        self._held[key] = made
        self._bytes += len(made)
        while self._bytes > self._most_bytes and len(self._held) > 1:
            _, old = self._held.popitem(last=False)
            self._bytes -= len(old)
        return made

    def close(self) -> None:
        """Render nothing more."""
        self._renderers.shutdown(wait=False, cancel_futures=True)
