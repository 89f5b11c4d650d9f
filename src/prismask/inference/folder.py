"""Many snapshots: one bad one does not stop the others, and what is finished is not done again.

The work on one snapshot is a callable that is handed in; here it is only given out, in this
process or to several, and kept account of.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prismask.errors import ConfigError, DataMissingError, PrismaskError
from prismask.scenes.atomic import is_leftover

READABLE = (
    ".nc", ".nc4", ".mat", ".npy", ".npz", ".tif", ".tiff", ".png", ".hdr", ".h5", ".hdf5",
)  # fmt: skip
"""Extensions of the files that are taken from a folder."""


@dataclass(frozen=True)
class Job:
    """One snapshot and where its cube goes."""

    source: Path
    out: Path


@dataclass(frozen=True)
class Finished:
    """What became of a job."""

    job: Job
    status: Literal["done", "skipped", "failed"]
    text: str
    """A sentence: the result, why it was skipped, or what went wrong."""
    remarks: tuple[str, ...] = ()
    """What was noticed on the way."""
    seconds: float = 0.0


Work = Callable[[Job], Finished]
Report = Callable[[Finished, int, int, float], None]
"""`report(finished, done, total, seconds_left)`, after each job."""


def find_snapshots(given: Sequence[Path], leave_out: Sequence[Path] = ()) -> list[Path]:
    """The files behind names, folders and patterns (`shots/*.mat`), each once, in order."""
    excluded = {path.resolve() for path in leave_out}
    found: dict[Path, Path] = {}
    for path in given:
        for one in _expand(path):
            if one.resolve() not in excluded:
                found.setdefault(one.resolve(), one)
    if not found:
        raise DataMissingError("there is no snapshot to reconstruct.")
    return list(found.values())


def is_many(given: Sequence[Path]) -> bool:
    """Whether the names speak of more than one file."""
    return len(given) > 1 or any(path.is_dir() or _is_pattern(path) for path in given)


def plan(sources: Sequence[Path], folder: Path, extension: str) -> list[Job]:
    """A job for each source; two sources that would write the same file are an error."""
    jobs: dict[Path, Job] = {}
    for source in sources:
        out = folder / f"{source.stem}.{extension.removeprefix('.')}"
        if out in jobs:
            raise ConfigError(
                f"{jobs[out].source} and {source} would both be written to {out}: reconstruct "
                "them into different folders."
            )
        jobs[out] = Job(source, out)
    return list(jobs.values())


def run_jobs(jobs: Sequence[Job], work: Work, workers: int, report: Report) -> list[Finished]:
    """Do all jobs, in this process or in `workers` others; the result is in the jobs' order."""
    if workers < 1:
        raise ConfigError(f"workers is {workers}; at least one has to work.")
    started = time.monotonic()
    results: dict[Job, Finished] = {}
    worked = 0
    stream = _in_processes(jobs, work, workers) if workers > 1 else map(_safely(work), jobs)
    for finished in stream:
        results[finished.job] = finished
        # Skipped jobs take no time; counting them would promise too early an end.
        worked += finished.status != "skipped"
        left = len(jobs) - len(results)
        pace = (time.monotonic() - started) / worked if worked else 0.0
        report(finished, len(results), len(jobs), pace * left)
    return [results[job] for job in jobs]


def _safely(work: Work) -> Work:
    """`work`, with every error as a result instead."""

    def attempt(job: Job) -> Finished:
        started = time.monotonic()
        try:
            return work(job)
        except PrismaskError as error:
            text = str(error)
        except Exception as error:  # one bad file, whatever is wrong with it, stops no other
            text = f"{type(error).__name__}: {error}"
        return Finished(job, "failed", text, seconds=time.monotonic() - started)

    return attempt


# --- several processes --------------------------------------------------------------------------


def _in_processes(jobs: Sequence[Job], work: Work, workers: int) -> Iterator[Finished]:
    left = dict.fromkeys(jobs)
    try:
        for finished in _pooled(jobs, work, workers):
            del left[finished.job]
            yield finished
    except BrokenProcessPool:
        # A worker died (out of memory, as a rule) and took the pool with it. Whoever is to blame
        # is among the rest: each of them gets a pool of its own.
        for job in list(left):
            try:
                yield from _pooled([job], work, 1)
            except BrokenProcessPool:
                yield Finished(job, "failed", "the worker process died; out of memory?")


def _pooled(jobs: Sequence[Job], work: Work, workers: int) -> Iterator[Finished]:
    threads = max(1, (os.cpu_count() or 1) // workers)
    # Fork would copy the state of torch's threads, which is not allowed.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _start_worker, (threads,)) as pool:
        futures: list[Future[Finished]] = [pool.submit(_attempt, work, job) for job in jobs]
        for future in as_completed(futures):
            yield future.result()


def _attempt(work: Work, job: Job) -> Finished:
    return _safely(work)(job)


def _start_worker(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        # A worker whose parent was killed would wait for work for ever.
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _is_pattern(path: Path) -> bool:
    return any(sign in str(path) for sign in "*?[") and not path.exists()


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        inside = sorted(other for other in path.iterdir() if _is_candidate(other))
        if not inside:
            raise DataMissingError(
                f"the folder {path} holds no file that can be read ({', '.join(READABLE)})."
            )
        return inside
    if _is_pattern(path):
        start = Path(path.anchor) if path.anchor else Path()
        inside = sorted(start.glob(str(path.relative_to(path.anchor) if path.anchor else path)))
        inside = [other for other in inside if other.is_file() and not _is_ours(other)]
        if not inside:
            raise DataMissingError(f"no file matches {path}.")
        return inside
    return [path]


def _is_candidate(path: Path) -> bool:
    return path.is_file() and not _is_ours(path) and path.suffix.lower() in READABLE


def _is_ours(path: Path) -> bool:
    """Whether a file is hidden, half written, or a picture that a run put there."""
    name = path.name
    return name.startswith(".") or is_leftover(path) or name.endswith(".quicklook.png")
