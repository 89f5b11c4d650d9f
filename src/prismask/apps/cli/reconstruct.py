"""`prismask reconstruct`: a snapshot, or a folder of them, to cubes with error bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from prismask.apps.cli.camera_options import CameraOptions
from prismask.apps.cli.progress import reporter
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError, OutputExistsError

if TYPE_CHECKING:
    from prismask.apps.cli.reconstruct_job import SnapshotWork
    from prismask.inference.alignment.known_pose import KnownPlace
    from prismask.inference.folder import Finished
    from prismask.inference.options import Settings

SOME_FAILED = 1


@Parameter(name="*", group=Group("Method", sort_key=5))
@dataclass(frozen=True)
class MethodOptions:
    """How the cube is made."""

    model: str | None = None
    """Trained weights: a name from `prismask models` or the path of a file. [default: those that
    ship for such a camera; gap-tv where none do]"""
    method: str | None = None
    """A solver that needs no training, such as gap-tv, instead of a network."""
    iterations: int | None = None
    """Iterations of the solver. [default: its own]"""
    samples: int = 0
    """Masks to draw from the network's posterior for the spread of the cube; 0: one fast pass."""
    level: float = 0.9
    """Share of the values that the error bars are to cover."""
    seed: int = 0
    """Seed of the samples."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "half", "float32"] = "auto"
    """Arithmetic of a network; auto is half where its error is below the noise."""
    tile: int | None = None
    """Largest side of a tile in pixels, for less memory. [default: what suits the device]"""
    noise_std: float | None = None
    """Noise of the snapshot, in its own units. [default: estimated from it]"""
    dark: float | None = None
    """Dark level of the snapshot, in its own units. [default: read from it]"""
    check_mask: bool = True
    """Look for the mask in the snapshot first, and say if another way round, or one a fraction of a
    pixel elsewhere, fits better."""

    align: bool = False
    """Move the mask by fractions of a pixel to where the snapshot says it lies; takes some hundred
    runs of a network, for solvers a default one."""

    place: Path | None = None
    """A cube made with --align: read the mask where it was found then. For all other snapshots of
    a camera that stays as it is."""

    adapt: int = 0
    """Steps in which the network first learns the scene from its own cube; 60 take a minute on two
    CPU cores, whatever the size of the frame."""

    def settings(self) -> Settings:
        """As the library takes them."""
        from prismask.inference.options import Settings

        known = None if self.place is None else _known_place(self.place)
        options = () if self.iterations is None else (("iterations", self.iterations),)
        method = self.method
        if self.iterations is not None and self.model is None and method is None:
            method = "gap-tv"
        return Settings(
            method, self.model, self.samples, self.level, self.seed, self.device, self.precision,
            self.tile, self.noise_std, self.dark, self.check_mask, options, self.align,
            self.adapt, known,
        )  # fmt: skip


def _known_place(path: Path) -> KnownPlace:
    from prismask.inference.alignment.known_pose import KnownPlace
    from prismask.scenes.formats.files import load_cube

    return KnownPlace.from_attrs(load_cube(path).attrs, str(path))


def reconstruct(
    *snapshots: Path,
    mask: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    method: MethodOptions | None = None,
    camera: CameraOptions | None = None,
    workers: int = 1,
    dask: str | None = None,
    extension: str = "nc",
    quick_look: bool = True,
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
        The calibrated mask they were taken through.
    out
        The cube to write (.nc, .mat, .hdr, .tif by extension); a folder for several snapshots.
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
    variable
        The variable that is the measurement, in a file that holds several.
    mask_variable
        The variable that is the mask, in a file that holds several.
    overwrite
        Replace outputs that exist.
    """
    from prismask.apps.cli.reconstruct_job import SnapshotWork
    from prismask.inference.folder import is_many

    if not snapshots:
        raise ConfigError("give a snapshot, a folder of them, or a pattern in quotes.")
    options = camera or CameraOptions()
    settings = (method or MethodOptions()).settings()
    work = SnapshotWork(settings, mask, options, variable, mask_variable, quick_look, overwrite)
    if is_many(snapshots):
        return _many(list(snapshots), work, out, extension, workers, dask)
    if dask is not None:
        raise ConfigError(
            f"--dask shares several snapshots out, and {snapshots[0]} is one: leave --dask away."
        )
    _one(snapshots[0], work, out)
    return 0


def _one(snapshot: Path, work: SnapshotWork, out: Path) -> None:
    from prismask.apps.cli.reconstruct_job import quick_look_path
    from prismask.inference.folder import Job
    from prismask.scenes.atomic import refuse_existing
    from prismask.scenes.formats.registry import check_writable

    check_writable(out, work.overwrite)
    if work.quick_look:
        refuse_existing(quick_look_path(out), work.overwrite)
    with reporter() as report:
        finished = work.run(Job(snapshot, out), progress=report("reconstructing"))
    for line in finished.remarks:
        remark(line)
    say(finished.text)


def _many(
    given: list[Path],
    work: SnapshotWork,
    out: Path,
    extension: str,
    workers: int,
    dask: str | None,
) -> int:
    from prismask.inference.folder import find_snapshots, plan, run_jobs

    if out.exists() and not out.is_dir():
        raise OutputExistsError(f"{out} is a file; several snapshots need a folder for -o.")
    jobs = plan(find_snapshots(given, [work.mask]), out, extension)
    if any(job.source.parent.resolve() == out.resolve() for job in jobs):
        raise ConfigError(f"{out} is the folder of the snapshots: give the cubes another one.")
    _refuse_forgetful(jobs[0].out)
    if workers == 1 and dask is None:
        # Here it is needed anyway: what is wrong for all snapshots is then told once.
        work.prepare()
    with _folder(out):
        remark(f"{len(jobs)} snapshots to {out} …")
        sent = work if dask is None else work.absolute()
        finished = run_jobs(jobs, sent, workers, _tell, dask)
    return _account(finished)


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


@contextmanager
def _folder(out: Path) -> Iterator[None]:
    """The folder `out`; one that was made for nothing goes away again."""
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # it is not empty: what is finished stays
                out.rmdir()
        raise


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
