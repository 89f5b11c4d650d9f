"""Many snapshots: one bad one does not stop the others, and what is finished is not done again.

The work on one snapshot is a callable that is handed in; here it is only given out (by
`prismask.parallel`: in this process, to several, or to a cluster) and kept account of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from prismask.errors import ConfigError, DataMissingError, PrismaskError
from prismask.parallel.workers import Outcome, Workers, run_tasks
from prismask.scenes.atomic import is_leftover
from prismask.scenes.formats.registry import stored

READABLE = (
    ".nc", ".nc4", ".mat", ".npy", ".npz", ".tif", ".tiff", ".png", ".hdr", ".h5", ".hdf5",
)  # fmt: skip
"""Extensions of the files that are taken from a folder."""


@dataclass(frozen=True)
class Job:
    """One snapshot and where its cube goes."""

    source: Path
    out: Path

    def absolute(self) -> Job:
        """The same files, whatever folder one is in."""
        return Job(self.source.absolute(), self.out.absolute())


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
    """The files behind names, folders and patterns (`shots/*.mat`), each once, in order.

    leave_out: files that are no snapshots, such as the mask, with all that belongs to them.
    """
    excluded = {file.resolve() for path in leave_out for file in stored(path)}
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


def run_jobs(
    jobs: Sequence[Job], work: Work, workers: int, report: Report, dask: str | None = None
) -> list[Finished]:
    """Do all jobs, in this process, in `workers` others or on a cluster; in the jobs' order.

    dask: address of a Dask scheduler whose workers find the files under the same names, or
        "local" for a cluster of `workers` processes on this machine.
    """
    doers = Workers(workers, dask=dask)
    # A worker on another machine starts in a folder of its own.
    given = {job if dask is None else job.absolute(): job for job in jobs}
    started = time.monotonic()
    results: dict[Job, Finished] = {}
    worked = 0
    with closing(run_tasks(given, Attempts(work), doers)) as outcomes:
        for outcome in outcomes:
            finished = replace(_finished(outcome), job=given[outcome.task])
            results[finished.job] = finished
            # Skipped jobs take no time; counting them would promise too early an end.
            worked += finished.status != "skipped"
            left = len(jobs) - len(results)
            pace = (time.monotonic() - started) / worked if worked else 0.0
            report(finished, len(results), len(jobs), pace * left)
    return [results[job] for job in jobs]


@dataclass(frozen=True)
class Attempts:
    """Does jobs; whatever goes wrong with one is its result."""

    work: Work

    def __call__(self, number: int | None) -> Work:
        """The same for every worker."""
        return self.attempt

    def attempt(self, job: Job) -> Finished:
        """Do one job."""
        started = time.monotonic()
        try:
            return self.work(job)
        except Exception as error:  # one bad file, whatever is wrong with it, stops no other
            return Finished(job, "failed", _reason(error), seconds=time.monotonic() - started)


def _finished(outcome: Outcome[Job, Finished]) -> Finished:
    """What a worker said; a worker that could not say anything has failed."""
    if isinstance(outcome.error, Exception):
        return Finished(outcome.task, "failed", _reason(outcome.error))
    return outcome.get()


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, PrismaskError) else f"{type(error).__name__}: {error}"


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
