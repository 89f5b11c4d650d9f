"""`prismask reconstruct`: a snapshot, or a folder of them, to cubes with error bars.

What a worker does, from one snapshot file to one cube file with its quick look, is `SnapshotWork`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from prismask.apps.cli.camera_options import CameraOptions, RawFrameOptions
from prismask.apps.cli.terminal import remark, reporter, say
from prismask.errors import ConfigError, DataMissingError, OutputExistsError, PrismaskError
from prismask.inference.options import MethodOptions, Options
from prismask.parallel.workers import Outcome, Workers, run_tasks
from prismask.progress import duration, measured, part
from prismask.scenes.atomic import is_leftover
from prismask.scenes.formats.registry import stored
from prismask.wording import speaking_flags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prismask.inference.reconstruct import Reconstruction
    from prismask.progress import Progress
    from prismask.scenes.records import Cube, Mask, Measurement

SOME_FAILED = 1

Read = tuple[Path | str | None, ...]
"""What a run reads besides its snapshots: files, texts that may name one, or nothing."""
METHOD_GROUP = Group("Method", sort_key=5)


def reconstruct(
    *snapshots: Path,
    mask: Annotated[list[Path], Parameter(negative="")],
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    method: Annotated[MethodOptions | None, Parameter(name="*", group=METHOD_GROUP)] = None,
    iterations: Annotated[int | None, Parameter(group=METHOD_GROUP)] = None,
    pose: Annotated[Path | None, Parameter(group=METHOD_GROUP)] = None,
    camera: CameraOptions | None = None,
    raw: RawFrameOptions | None = None,
    workers: int = 1,
    dask: str | None = None,
    extension: str = "nc",
    quick_look: bool = True,
    timings: str | None = None,
    variable: str | None = None,
    mask_variable: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Reconstruct the cube behind a snapshot, or behind every snapshot of a folder.

    Parameters
    ----------
    snapshots
        A snapshot in any format that Prismask reads; or several, a folder, or a pattern such as
        `'shots/*.mat'`. Repeat the command to resume an interrupted run.
    mask
        The calibrated mask. Give several calibrations of the same mask by repeating the option:
        their mean is used, and their spread as --mask-std unless you set it.
    out
        The cube to write (.nc, .mat, .hdr, .tif by extension); a folder for several snapshots.
    iterations
        Iterations of the solver. [default: depends on the solver]
    pose
        A cube made with --align, whose mask pose is used again. For further snapshots as long as
        nothing in the camera moves.
    workers
        Number of processes for a folder.
    dask
        Distribute a folder over a Dask cluster: the address of its scheduler, such as
        `tcp://host:8786` (every worker must see the files under the same paths), or local for a
        cluster of --workers processes on this machine.
    extension
        Format of the cubes from a folder: nc, mat, hdr, tif …
    quick_look
        Also write a picture of the cube in true colour.
    timings
        Show how long each part took: table, or the name of a .json file to write it to as well.
    variable
        The variable that is the measurement, in a file that holds several.
    mask_variable
        The variable that is the mask, in a file that holds several.
    overwrite
        Replace outputs that exist.
    """
    if not snapshots:
        raise ConfigError("give a snapshot, a folder of snapshots, or a pattern in quotes.")
    frames = raw or RawFrameOptions()
    described = camera or CameraOptions()
    chosen = _options(method or MethodOptions(), frames, iterations, pose)
    masks = tuple(mask)
    work = SnapshotWork(
        chosen, masks, described, variable, mask_variable, quick_look, overwrite, frames
    )
    read = (*masks, pose, chosen.model, *described.files(), *frames.files())
    if frames.average:
        work = replace(work, exposures=tuple(find_snapshots(snapshots, [*masks, *frames.files()])))
        read = (*read, *work.exposures)
    elif is_many(snapshots):
        if timings is not None:
            raise ConfigError("--timings works for a single snapshot, and these are several.")
        return _many(list(snapshots), work, out, extension, workers, dask, read)
    if dask is not None:
        raise ConfigError(
            f"--dask is for several snapshots, and {snapshots[0]} is only one: leave it out."
        )
    _one(snapshots[0], work, out, read, _timings_file(timings))
    return 0


def _options(
    typed: MethodOptions, frames: RawFrameOptions, iterations: int | None, pose: Path | None
) -> Options:
    """What was typed, as the library takes it."""
    changes: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
    if pose is not None:
        from prismask.inference.alignment.pose import KnownPose
        from prismask.scenes.formats.files import load_cube

        changes["pose"] = KnownPose.from_attrs(load_cube(pose).attrs, str(pose))
    return Options(**vars(typed), **frames.options()).with_changes(changes)


def _timings_file(text: str | None) -> Path | bool:
    """The file to write; True for a table alone, False for nothing."""
    if text is None or text == "table":
        return text is not None
    if Path(text).suffix.lower() != ".json":
        raise ConfigError(f"--timings is {text!r}; give table, or a .json file to write as well.")
    return Path(text)


def _one(
    snapshot: Path, work: SnapshotWork, out: Path, read: Read, timings: Path | bool = False
) -> None:
    from prismask.scenes.atomic import (
        check_inputs,
        check_output,
        check_record,
        refuse_existing,
        refuse_read,
    )
    from prismask.scenes.colour import write_bytes

    check_inputs(*(work.exposures or (snapshot,)), *work.masks)
    check_record(out, work.overwrite, snapshot, *read)
    if isinstance(timings, Path):
        check_output(timings, work.overwrite)
        refuse_read([timings], snapshot, *read)
    if work.quick_look:
        refuse_existing(quick_look_path(out), work.overwrite)
        refuse_read([quick_look_path(out)], snapshot, *read)
    with measured() as found, reporter() as report:
        finished = work.run(Job(snapshot, out), progress=report("reconstructing"))
    for line in finished.remarks:
        remark(line)
    if timings:
        remark(found.table())
    if isinstance(timings, Path):
        write_bytes(json.dumps(found.as_dict(), indent=2).encode(), timings, work.overwrite)
    say(finished.text)


# --- one snapshot ---------------------------------------------------------------------------------


QUICK_LOOK = ".quicklook.png"
"""How the picture beside a cube ends; not .png alone, which people give their own pictures."""

BYTES_PER_VALUE = 4
"""Of a cube in any file: float32, which is not compressed."""


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


@dataclass(frozen=True)
class SnapshotWork:
    """Everything that all snapshots of a run share; small, so it travels to other processes."""

    options: Options
    masks: tuple[Path, ...]
    """The mask, or several calibrations of it."""
    camera: CameraOptions
    variable: str | None = None
    mask_variable: str | None = None
    quick_look: bool = True
    overwrite: bool = False
    raw: RawFrameOptions = field(default_factory=RawFrameOptions)
    exposures: tuple[Path, ...] = ()
    """Files to average, instead of the one snapshot of a job."""
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))
    """What a process keeps in memory, it keeps for this run: a cluster's workers see many runs,
    and a mask may be replaced between two of them."""

    def absolute(self) -> SnapshotWork:
        """The same work with every file under a name that does not depend on the folder."""
        from prismask.models.weights import is_path

        model = self.options.model
        if model is not None and is_path(model):
            model = os.fspath(Path(model).expanduser().absolute())
        options = replace(self.options, model=model)
        masks = tuple(mask.absolute() for mask in self.masks)
        return replace(self, options=options, masks=masks, camera=self.camera.spelled_out())

    @property
    def identity(self) -> str:
        """The same for all runs that would make the same cubes of the same snapshots."""
        decisive = replace(self.absolute(), run_id="", quick_look=True)
        return hashlib.sha256(repr(decisive).encode()).hexdigest()

    def written(self, job: Job) -> tuple[Path, ...]:
        """The files that a job makes."""
        from prismask.scenes.formats.registry import format_for_writing

        cube = format_for_writing(job.out).written(job.out)
        return (*cube, quick_look_path(job.out)) if self.quick_look else cube

    def prepare(self) -> None:
        """Make ready what all snapshots share; options that cannot work raise."""
        _reconstruction(self.options, self.run_id)

    def __call__(self, job: Job) -> Finished:
        """Do one job of a folder, unless its cube is there already and made the same way."""
        return self.run(job, resume=True)

    @speaking_flags()
    def run(self, job: Job, resume: bool = False, progress: Progress | None = None) -> Finished:
        """Load, check, reconstruct, save; `resume` skips what is finished."""
        from prismask.scenes.atomic import check_room
        from prismask.scenes.formats.registry import check_writable

        with part("imports"):
            import prismask.inference.reconstruct  # noqa: F401  # a second or more
        with part("reading"):
            measurement = self.raw.measurement(self.exposures or (job.source,), self.variable)
            aperture = _mask(self.masks, self.mask_variable, self.raw, self.run_id)
        with part("weights"):
            ready = _reconstruction(self.options, self.run_id)
        camera = self.camera.description()
        recipe = None
        if resume and not self.overwrite:
            recipe = self._recipe(ready, measurement, aperture)
        if _is_made_by(recipe, job.out):
            self._add_picture(job.out)
            return Finished(job, "skipped", f"{job.out}: finished before")
        check_writable(job.out, self.overwrite)
        seen, _ = ready.camera_for(measurement, aperture, camera)
        values = prod((seen.bands, *seen.scene_size(measurement.size)))
        check_room(job.out, BYTES_PER_VALUE * values)
        at = self.camera.wavelength_list()
        cube = ready.run(measurement, aperture, camera, at, progress)
        try:
            self._save(cube, job.out)
        except OutputExistsError:
            # Another process was faster; what it made the same way is as good.
            if not _is_made_by(recipe, job.out):
                raise
            return Finished(job, "skipped", f"{job.out}: finished meanwhile by another process")
        return Finished(
            job, "done", _summary(job.out, cube), _remarks(cube, self.quick_look), _seconds(cube)
        )

    def _recipe(self, ready: Reconstruction, measurement: Measurement, mask: Mask) -> str:
        from prismask.inference.reconstruct import find_wavelengths

        camera, _ = ready.camera_for(measurement, mask, self.camera.description())
        at, _ = find_wavelengths(measurement, mask, camera, self.camera.wavelength_list())
        return ready.recipe(measurement, mask, camera, at)

    def _add_picture(self, out: Path) -> None:
        """The picture of a finished cube, if it was deleted or not wanted the first time."""
        from prismask.scenes.colour import write_png
        from prismask.scenes.formats.files import load_cube

        if self.quick_look and not quick_look_path(out).exists():
            write_png(quick_look(load_cube(out)), quick_look_path(out), overwrite=True)

    def _save(self, cube: Cube, out: Path) -> None:
        from prismask.scenes.colour import write_png
        from prismask.scenes.formats.files import save

        # The cube comes last: where it is, the run is finished and the picture is there too.
        if self.quick_look:
            with part("quick look"):
                write_png(quick_look(cube), quick_look_path(out), overwrite=True)
        with part("writing"):
            save(cube, out, overwrite=self.overwrite)


def quick_look_path(out: Path) -> Path:
    """The picture beside a cube."""
    return out.with_suffix(QUICK_LOOK)


def quick_look(cube: Cube) -> NDArray[np.uint8]:
    """The cube as the eye would see it; grey where its wavelengths are unknown or invisible."""
    from prismask.errors import ValuesError
    from prismask.scenes.colour import grey_picture, to_srgb

    try:
        return to_srgb(cube)
    except ValuesError:
        return grey_picture(cube.values.mean(axis=0))


@lru_cache(maxsize=1)
def _reconstruction(options: Options, run_id: str) -> Reconstruction:
    """Network and device, prepared once per process and run."""
    from prismask.inference.reconstruct import Reconstruction

    return Reconstruction(options)


@lru_cache(maxsize=1)
def _mask(paths: tuple[Path, ...], variable: str | None, raw: RawFrameOptions, run_id: str) -> Mask:
    from prismask.scenes.formats.files import load_mask

    found = [load_mask(path, variable) for path in paths]
    if len(found) == 1:
        return raw.mask(found[0])
    from prismask.optics.masks import combine_calibrations

    return raw.mask(combine_calibrations(found))


def _is_made_by(recipe: str | None, out: Path) -> bool:
    """Whether a cube is there and everything that decides the result was the same."""
    from prismask.scenes.formats.registry import identify

    if recipe is None or not out.exists():
        return False
    try:
        attrs = identify(out).read(out).attrs or {}
    except PrismaskError:
        return False
    return attrs.get("recipe") == recipe


def _summary(out: Path, cube: Cube) -> str:
    height, width = cube.size
    how = cube.attrs.get("model") or cube.attrs["method"]
    return f"{out}: {cube.bands} bands of {height}×{width} by {how}, {_seconds(cube):.1f} s"


def _remarks(cube: Cube, quick_look: bool) -> tuple[str, ...]:
    remarks = list(cube.attrs["findings"])
    if quick_look and cube.wavelengths is None:
        remarks.append("note: the quick look is grey, because the wavelengths are unknown.")
    if "method_chosen" in cube.attrs:
        remarks.append(f"settings chosen from the snapshot: {cube.attrs['method_chosen']}")
    if "interval" in cube.attrs:
        remarks.append(f"interval: {cube.attrs['interval']}")
    if "trust" in cube.attrs:
        grade, because = cube.attrs["trust_grade"], str(cube.attrs["trust_because"])
        because = f"{because[:1].upper()}{because[1:]}"
        remarks.append(f"trust: {grade} ({cube.attrs['trust']:.2f} of 1). {because}")
    return (*remarks, f"self-check: {cube.attrs['residual']}")


def _seconds(cube: Cube) -> float:
    return float(cube.attrs["seconds"])


# --- many snapshots: one bad one stops no other, and what is finished is not done again -----------


READABLE = (
    ".nc", ".nc4", ".mat", ".npy", ".npz", ".tif", ".tiff", ".png", ".hdr", ".h5", ".hdf5",
)  # fmt: skip
"""Extensions of the files that are taken from a folder."""

Work = Callable[[Job], Finished]
Report = Callable[[Finished, int, int, float], None]
"""`report(finished, done, total, seconds_left)`, after each job."""


def _many(
    given: list[Path],
    work: SnapshotWork,
    out: Path,
    extension: str,
    workers: int,
    dask: str | None,
    read: Read,
) -> int:
    from prismask.scenes.atomic import check_folder, check_inputs, refuse_read

    check_inputs(*work.masks)
    _check_cubes_folder(out)
    jobs = plan(find_snapshots(given, [*work.masks, *work.raw.files()]), out, extension)
    if any(job.source.parent.resolve() == out.resolve() for job in jobs):
        raise ConfigError(f"{out} is the folder of the snapshots: give the cubes another one.")
    _refuse_forgetful(jobs[0].out)
    check_folder(out)
    written = (file for job in jobs for file in work.written(job))
    refuse_read(written, *read, *(job.source for job in jobs))
    if workers == 1 and dask is None:
        # It is needed here anyway: what is wrong for all snapshots is then reported once.
        work.prepare()
    with _held(out, work):
        remark(f"{len(jobs)} snapshots to {out} …")
        sent = work if dask is None else work.absolute()
        finished = run_jobs(jobs, sent, workers, _tell, dask)
    return _account(finished)


def _check_cubes_folder(out: Path) -> None:
    """Refuse what is a file, or would be a folder that looks like one."""
    from prismask.scenes.formats.registry import FORMATS

    if out.is_dir():
        return
    if out.exists():
        raise OutputExistsError(f"{out} is a file; several snapshots need a folder for -o.")
    if out.suffix.lower() in {ending for one in FORMATS for ending in one.extensions}:
        raise ConfigError(
            f"-o is {out}, the name of a file; several snapshots need a folder: -o "
            f"{out.with_suffix('')}. --extension says in which format the cubes are."
        )


def _refuse_forgetful(out: Path) -> None:
    """Refuse a format without history: it would not show which cubes are finished."""
    from prismask.scenes.formats.registry import extensions_that_keep, format_for_writing

    chosen = format_for_writing(out)
    if "attrs" in chosen.loses:
        kept = ", ".join(ending.removeprefix(".") for ending in extensions_that_keep("attrs"))
        raise ConfigError(
            f"{chosen.title} does not keep how a cube was made, by which a folder knows what is "
            f"finished: give --extension {kept}, and `prismask convert` the cubes afterwards."
        )


def _held(out: Path, work: SnapshotWork) -> AbstractContextManager[None]:
    """Hold the folder: several runs may share the work, unless one replaces what others made."""
    from prismask.parallel.ownership import owned, shared

    what = "a reconstruction of a folder"
    return owned(out, what) if work.overwrite else shared(out, what, work.identity)


def _account(finished: list[Finished]) -> int:
    """Say what became of a folder; the exit code."""
    failed = [one for one in finished if one.status == "failed"]
    counts = {status: sum(one.status == status for one in finished) for status in _WORDS}
    say("; ".join(f"{count} {_WORDS[status]}" for status, count in counts.items() if count))
    for one in failed:
        say(f"failed: {one.job.source}: {' '.join(one.text.split())}")
    return SOME_FAILED if failed else 0


_WORDS = {"done": "reconstructed", "skipped": "finished before", "failed": "failed"}


def _tell(finished: Finished, done: int, total: int, seconds_left: float) -> None:
    name = finished.job.source.name
    for line in finished.remarks:
        remark(f"  {name}: {line}")
    text = finished.text if finished.status != "failed" else f"{name} failed: {finished.text}"
    left = f"; about {duration(seconds_left)} left" if done < total and seconds_left else ""
    remark(f"{done} of {total}: {' '.join(text.split())}{left}")


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
                f"{jobs[out].source} and {source} would both be written to {out}. Give a pattern "
                f"that takes one of them, such as '*{source.suffix}', or different output folders."
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
    return name.startswith(".") or is_leftover(path) or name.endswith(QUICK_LOOK)
