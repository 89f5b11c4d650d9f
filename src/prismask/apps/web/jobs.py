"""Jobs: a queue with a bound, one worker process, an end for each job, and then none of it left.

Where a process that worked for strangers gave no answer, `told` says what they hear.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from prismask.apps.web.limits import Limits
from prismask.apps.web.remedies import (
    COLD_SECONDS,
    NETWORK,
    Estimates,
    Fix,
    fixes_in,
    page_words,
)
from prismask.apps.web.results import Result, ResultStore
from prismask.apps.web.work import CUBE, MASK, SNAPSHOT, TRUTH, Order, reconstruct
from prismask.errors import DataMissingError, PrismaskError
from prismask.parallel.cage import (
    CancelledError,
    CrashError,
    MemoryLimitError,
    StandingCage,
    TaskFailedError,
)
from prismask.parallel.cage import Limits as CageLimits

State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")
LONGEST_SWEEP_PAUSE = 30.0
TYPICAL_VALUES = 28 * 256 * 256

_log = logging.getLogger(__name__)


class QueueFullError(PrismaskError, RuntimeError):
    """No further job is taken at the moment."""


@dataclass(eq=False)
class Job:
    """One reconstruction that somebody asked for."""

    name: str
    folder: Path
    order: Order
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    state: State = "waiting"
    done: int = 0
    total: int = 0
    message: str = ""
    findings: list[str] = field(default_factory=list)
    fixes: tuple[Fix, ...] = ()
    """What to change in the form, if it failed for that."""
    result: str | None = None
    started: float | None = None
    ended: float | None = None
    is_cancelled: bool = False
    values: int = 0
    """Of the cube, as far as one knows before it is there."""
    expected: float = 0.0
    """Seconds that it will take, as was thought when it began to wait."""
    others: tuple[tuple[str, str], ...] = ()
    """Id and name of results to compare the new one with."""
    drawn: tuple[int, int] | None = None
    """Size of a scene to draw, where no snapshot was sent."""
    stage_started: float | None = None

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        if self.started is None:
            return 0.0
        return (self.ended or time.monotonic()) - self.started

    def report(self, done: int, total: int) -> None:
        """Take in how far it is; another total is another stage."""
        if total != self.total or done < self.done:
            self.stage_started = time.monotonic()
        self.done, self.total = done, total

    @property
    def seconds_left(self) -> float:
        """By the clock at first, by its progress later."""
        if self.ended is not None:
            return 0.0
        by_clock = max(0.0, self.expected - self.seconds)
        if not self.total or not self.done or self.stage_started is None:
            return by_clock
        share = self.done / self.total
        by_stage = (time.monotonic() - self.stage_started) * (1 - share) / share
        both = share * by_stage + (1 - share) * by_clock
        # Further stages follow then, which only the clock knows of.
        return max(both, by_clock) if self.order.align or self.order.adapt else both


CANCEL_SECONDS = 2.0
"""How long calling off waits for the job to end."""


class JobQueue:
    """Takes jobs, does one after the other in a process, and forgets them after a while."""

    def __init__(self, limits: Limits, store: ResultStore, root: Path) -> None:
        self._limits = limits
        self._store = store
        self._root = root
        self.estimates = Estimates()
        self._worker = StandingCage(root)
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._jobs: dict[str, Job] = {}
        self._closed = False
        self._threads = [
            threading.Thread(target=target, name=f"prismask-{target.__name__}", daemon=True)
            for target in (self._run, self._sweep)
        ]
        for thread in self._threads:
            thread.start()

    def new_folder(self) -> Path:
        """An empty folder that only this server can read."""
        folder = self._root / secrets.token_urlsafe(16)
        folder.mkdir(mode=0o700)
        return folder

    def check_room(self) -> None:
        """Raise `QueueFullError` where no further job would be taken."""
        if len(self._waiting) >= self._limits.queue:
            raise QueueFullError(
                f"{len(self._waiting)} jobs are waiting, and no more are taken. Try again later."
            )

    def submit(
        self,
        name: str,
        folder: Path,
        order: Order,
        values: int,
        others: tuple[tuple[str, str], ...] = (),
        drawn: tuple[int, int] | None = None,
    ) -> Job:
        """Queue a job whose checked snapshot and mask are in `folder`, which is then ours."""
        with self._changed:
            self.check_room()
            job = Job(name, folder, order, values=values, others=others, drawn=drawn)
            job.expected = self.estimates.seconds(order, values, not self._worker.is_ready)
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._changed.notify_all()
        return job

    def get(self, key: str) -> Job:
        """The job with this id; `DataMissingError` where there is none (any more)."""
        job = self._jobs.get(key)
        if job is None:
            raise DataMissingError("there is no such job, or it has been removed since.")
        return job

    def position(self, job: Job) -> int:
        """How many are before it, the one that runs included."""
        with self._changed:
            if job not in self._waiting:
                return 0
            running = sum(one.state == "running" for one in self._jobs.values())
            return self._waiting.index(job) + running

    def typical_seconds(self, methods: tuple[str, ...]) -> dict[str, float]:
        """What a snapshot of a common size takes here, by method, and what is added to it."""
        seconds = {
            method or NETWORK: self.estimates.seconds(Order(method=method), TYPICAL_VALUES)
            for method in (None, *methods)
        }
        start = 0.0 if self._worker.is_ready else COLD_SECONDS
        return {
            name: round(value, 2)
            for name, value in {
                **seconds, **self.estimates.extra_at(TYPICAL_VALUES), "start": start,
            }.items()
        }  # fmt: skip

    def seconds_left(self, job: Job) -> float:
        """Until a job is done, with those before it."""
        with self._changed:
            if job not in self._waiting:
                return job.seconds_left
            before = list(self._waiting)[: self._waiting.index(job)]
            running = [one for one in self._jobs.values() if one.state == "running"]
            return sum(one.seconds_left for one in (*running, *before, job))

    def cancel(self, key: str) -> Job:
        """Call a job off; one that has ended is removed with its result."""
        with self._changed:
            job = self.get(key)
            job.is_cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)
                self._end(job, "cancelled", "cancelled before it began.")
            gone = job.state in ENDED and job.result is not None
        # A process is stopped at once, and whoever called it off should hear so.
        deadline = time.monotonic() + CANCEL_SECONDS
        while job.state == "running" and time.monotonic() < deadline:
            time.sleep(0.01)
        if gone:
            self._remove(job)
        return job

    def close(self) -> None:
        """Stop everything at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.close()
        for thread in self._threads:
            thread.join(timeout=10)

    # --- the two threads ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.state, job.started = "running", time.monotonic()
            try:
                self._do(job)
            except CancelledError:
                self._end(job, "cancelled", "cancelled.")
            except PrismaskError as problem:
                text = told(problem).replace(f"{job.folder}/", "").replace(str(job.folder), "")
                job.fixes = fixes_in(text)
                self._end(job, "failed", page_words(text))
            except Exception as problem:
                _log.exception("a job failed")
                self._end(job, "failed", f"it could not be done ({type(problem).__name__}).")

    def _do(self, job: Job) -> None:
        from prismask.scenes.formats.files import load_cube, load_mask, load_measurement

        is_warm = self._worker.is_ready
        answer = self._worker.call(
            f"{reconstruct.__module__}:{reconstruct.__name__}",
            (str(job.folder), job.order.facts(), self._limits.cube_values, job.drawn),
            CageLimits(self._limits.seconds, self._limits.memory),
            job.report,
            lambda: job.is_cancelled,
        )
        took = job.seconds
        truth = job.folder / TRUTH
        result = Result(
            job.name,
            load_cube(job.folder / CUBE),
            load_cube(truth) if truth.exists() else None,
            snapshot=load_measurement(job.folder / SNAPSHOT),
            mask=load_mask(job.folder / MASK),
            others=job.others,
            order=job.order,
            seconds=took,
        )
        if is_warm:
            self.estimates.learn(job.order, result.cube.values.size, took)
        self._store.add(result)
        job.result, job.findings = result.id, [page_words(line) for line in answer["findings"]]
        self._end(job, "done", page_words(str(answer["residual"])))
        if job.is_cancelled:  # somebody gave it up in the very moment it was finished
            self._remove(job)

    def _end(self, job: Job, state: State, message: str) -> None:
        # The result is in memory; what lies in the folder is not needed any more.
        shutil.rmtree(job.folder, ignore_errors=True)
        job.message, job.ended = message, time.monotonic()
        job.state = state

    def _sweep(self) -> None:
        pause = min(LONGEST_SWEEP_PAUSE, self._limits.keep_seconds / 4)
        while True:
            with self._changed:
                if self._closed or (self._changed.wait_for(lambda: self._closed, pause)):
                    return
            now = time.monotonic()
            for job in list(self._jobs.values()):
                if job.ended is not None and now - job.ended > self._limits.keep_seconds:
                    self._remove(job)

    def _remove(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        if job.result is not None:
            self._store.remove(job.result)


def told(problem: PrismaskError) -> str:
    """An error of a cage in words for people who neither see nor know the server."""
    if isinstance(problem, TaskFailedError):
        # A fault of ours: the log has it all, a stranger gets its name.
        _log.error("a task failed", exc_info=problem)
        return f"it could not be done ({str(problem).partition(':')[0]})."
    if isinstance(problem, MemoryLimitError):
        return "it needs more memory than is allowed here."
    if isinstance(problem, CrashError):
        return (
            "the process that worked on this ended without an answer; the file may be damaged, "
            "or memory ran out."
        )
    return str(problem)
