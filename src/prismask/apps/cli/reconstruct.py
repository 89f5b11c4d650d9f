"""`prismask reconstruct`: a snapshot, or a folder of them, to cubes with error bars."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from prismask.apps.cli.camera_options import CameraOptions
from prismask.apps.cli.raw_options import RawFrameOptions
from prismask.apps.cli.terminal import remark, reporter, say
from prismask.errors import ConfigError, OutputExistsError
from prismask.inference.options import MethodOptions, Options
from prismask.progress import measured

if TYPE_CHECKING:
    from prismask.apps.cli.reconstruct_job import SnapshotWork
    from prismask.inference.folder import Finished

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
        The measurement in any format that Prismask reads; or several, a folder, or a pattern
        such as `'shots/*.mat'`. A run that was interrupted goes on where it stopped.
    mask
        The calibrated mask they were taken through. Repeat it for several calibrations of one mask:
        their mean counts, and their spread is taken for how far it may be wrong, unless --mask-std
        says it.
    out
        The cube to write (.nc, .mat, .hdr, .tif by extension); a folder for several snapshots.
    iterations
        Iterations of the solver. [default: its own]
    pose
        A cube made with --align: use the mask in the pose that was found then. For all other
        snapshots of a camera that stays as it is.
    workers
        Processes that work on a folder at the same time.
    dask
        Share a folder out to the workers of a Dask cluster: the address of its scheduler, such
        as `tcp://host:8786` (every worker must find the files under the same names), or local for
        one of --workers processes on this machine.
    extension
        Format of the cubes of a folder: nc, mat, hdr, tif …
    quick_look
        Write a picture beside the cube as well, as the eye would see it.
    timings
        Say where the time went, by part: table, or the .json file to write as well.
    variable
        The variable that is the measurement, in a file that holds several.
    mask_variable
        The variable that is the mask, in a file that holds several.
    overwrite
        Replace outputs that exist.
    """
    from prismask.apps.cli.reconstruct_job import SnapshotWork
    from prismask.inference.folder import find_snapshots, is_many

    if not snapshots:
        raise ConfigError("give a snapshot, a folder of them, or a pattern in quotes.")
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
            raise ConfigError("--timings is about one snapshot, and these are several.")
        return _many(list(snapshots), work, out, extension, workers, dask, read)
    if dask is not None:
        raise ConfigError(
            f"--dask shares several snapshots out, and {snapshots[0]} is one: leave --dask away."
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
    from prismask.apps.cli.reconstruct_job import quick_look_path
    from prismask.inference.folder import Job
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


def _many(
    given: list[Path],
    work: SnapshotWork,
    out: Path,
    extension: str,
    workers: int,
    dask: str | None,
    read: Read,
) -> int:
    from prismask.inference.folder import find_snapshots, plan, run_jobs
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
        # Here it is needed anyway: what is wrong for all snapshots is then told once.
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
    """Refuse a format without history: nobody could tell afterwards which cubes are finished."""
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
    left = f"; about {_duration(seconds_left)} left" if done < total and seconds_left else ""
    remark(f"{done} of {total}: {' '.join(text.split())}{left}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
