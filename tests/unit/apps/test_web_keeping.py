"""How long a job can be asked for once it has ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra web is not installed")

from prismask.apps.web import jobs
from prismask.apps.web.limits import Limits
from prismask.apps.web.results import ResultStore
from prismask.apps.web.work import Order
from prismask.errors import ConfigError, DataMissingError

KEPT, TAKES = 1.0, 1.4
"""Seconds that an end is kept, and that the work takes: longer."""


class SlowWorker:
    """Works for a while, to no avail."""

    is_ready = True

    def __init__(self, folder: Path) -> None: ...

    def call(self, *_: Any) -> Any:
        time.sleep(TAKES)
        raise ConfigError("nothing came of it.")

    def close(self) -> None: ...


def test_a_long_job_is_kept_from_its_end_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "StandingCage", SlowWorker)
    queue = jobs.JobQueue(Limits(keep_seconds=KEPT), ResultStore(tmp_path, 10**6), tmp_path)
    try:
        job = queue.submit("a", queue.new_folder(), Order(), 10)
        deadline = time.monotonic() + 30
        while job.state != "failed":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(KEPT / 2)
        assert queue.get(job.id) is job
        while time.monotonic() < deadline:
            try:
                queue.get(job.id)
            except DataMissingError:
                break
            time.sleep(0.05)
        else:
            raise AssertionError("it should have been forgotten")
    finally:
        queue.close()
