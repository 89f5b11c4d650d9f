"""Everything that one running server owns.

Among it are rendered pictures, each made once however many people ask for it at the same time.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from prismask.apps.web.jobs import JobQueue
from prismask.apps.web.layers import Picture
from prismask.apps.web.limits import Limits
from prismask.apps.web.results import ResultStore
from prismask.apps.web.visitors import Visitors

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


@dataclass(frozen=True)
class Choices:
    """What a visitor can choose from."""

    methods: tuple[str, ...] = ("gap-tv",)
    models: Mapping[str, Path] = field(default_factory=dict)
    """Weights by the name that visitors see."""
    default: str = "gap-tv"
    device: str = "auto"


class Site:
    """Results, pictures and, where uploads are taken, jobs; with a folder that is removed."""

    def __init__(self, limits: Limits | None = None, choices: Choices | None = None) -> None:
        """Without `choices` there are only results to look at, and nothing can be uploaded."""
        self.visitors = Visitors.from_environment()
        self.limits = limits or Limits()
        self.choices = choices
        self._folder = tempfile.TemporaryDirectory(prefix="prismask-web-")
        self.root = Path(self._folder.name)
        self.results = ResultStore(self.root, self.limits.result_bytes)
        self.pictures: PictureCache[Picture] = PictureCache(self.limits.picture_bytes)
        # Reading files may take long; those who cancel or look at results must not wait for it.
        self.intake = ThreadPoolExecutor(self.limits.uploads, "prismask-intake")
        self.first: str | None = None
        """Id of the result that the front page shows, where there is just one."""
        self._jobs: JobQueue | None = None
        self.reading = threading.Lock()
        """Held while an upload is read: one at a time, so that memory is that of one."""
        self.is_closed = False
        self._closing = threading.Lock()
        if choices is not None:
            self._jobs = JobQueue(self.limits, self.results, self.root)

    @property
    def jobs(self) -> JobQueue:
        """The queue; only asked for where uploads are taken."""
        assert self._jobs is not None
        return self._jobs

    def close(self) -> None:
        """Stop the processes and remove every file; may be called twice."""
        self.is_closed = True
        with self._closing:
            if self._jobs is not None:
                self._jobs.close()
            self.pictures.close()
            self.intake.shutdown(wait=False, cancel_futures=True)
            self._folder.cleanup()
