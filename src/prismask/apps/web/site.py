"""Everything that one running server owns."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from prismask.apps.web.jobs import JobQueue
from prismask.apps.web.layers import Picture
from prismask.apps.web.limits import Limits
from prismask.apps.web.pictures_cache import PictureCache
from prismask.apps.web.process import KillableProcess
from prismask.apps.web.results import ResultStore
from prismask.apps.web.visitors import Visitors


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
        self._reader: KillableProcess | None = None
        self._closing = threading.Lock()
        if choices is not None:
            self._jobs = JobQueue(self.limits, self.results, self.root)
            self._reader = KillableProcess("reader", self.root, self.limits.reader_memory)

    @property
    def jobs(self) -> JobQueue:
        """The queue; only asked for where uploads are taken."""
        assert self._jobs is not None
        return self._jobs

    @property
    def reader(self) -> KillableProcess:
        """The process that reads uploads."""
        assert self._reader is not None
        return self._reader

    def close(self) -> None:
        """Stop the processes and remove every file; may be called twice."""
        with self._closing:
            for part in (self._jobs, self._reader):
                if part is not None:
                    part.close()
            self.pictures.close()
            self.intake.shutdown(wait=False, cancel_futures=True)
            self._folder.cleanup()
