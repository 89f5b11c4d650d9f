"""From one snapshot file to one cube file with its quick look: what a worker does."""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from prismask.apps.cli.camera_options import CameraOptions
from prismask.apps.cli.raw_options import RawFrameOptions
from prismask.timings import part
from prismask.wording import speaking_flags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prismask.inference.folder import Finished, Job
    from prismask.inference.options import Options
    from prismask.inference.reconstruct import Reconstruction
    from prismask.progress import Progress
    from prismask.scenes.records import Cube, Mask, Measurement

QUICK_LOOK = ".quicklook.png"
"""How the picture beside a cube ends; not .png alone, which people give their own pictures."""

BYTES_PER_VALUE = 4
"""Of a cube in any file: float32, which is not compressed."""


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
        from prismask.models.catalogue import is_path

        model = self.options.model
        if model is not None and is_path(model):
            model = os.fspath(Path(model).expanduser().absolute())
        options = replace(self.options, model=model)
        masks = tuple(mask.absolute() for mask in self.masks)
        return replace(self, options=options, masks=masks, camera=self.camera.spelled_out())

    @property
    def identity(self) -> str:
        """The same for all runs that would make the same cubes of the same snapshots."""
        told = replace(self.absolute(), run_id="", quick_look=True)
        return hashlib.sha256(repr(told).encode()).hexdigest()

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
        from prismask.errors import OutputExistsError
        from prismask.inference.folder import Finished
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
        return Finished(job, "done", _summary(job.out, cube), _remarks(cube), _seconds(cube))

    def _recipe(self, ready: Reconstruction, measurement: Measurement, mask: Mask) -> str:
        from prismask.inference.reconstruct import find_wavelengths

        camera, _ = ready.camera_for(measurement, mask, self.camera.description())
        at, _ = find_wavelengths(measurement, mask, camera, self.camera.wavelength_list())
        return ready.recipe(measurement, mask, camera, at)

    def _add_picture(self, out: Path) -> None:
        """The picture of a finished cube, if it was deleted or not wanted the first time."""
        from prismask.scenes.formats.files import load_cube
        from prismask.scenes.pictures import write_png

        if self.quick_look and not quick_look_path(out).exists():
            write_png(quick_look(load_cube(out)), quick_look_path(out), overwrite=True)

    def _save(self, cube: Cube, out: Path) -> None:
        from prismask.scenes.formats.files import save
        from prismask.scenes.pictures import write_png

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
    from prismask.scenes.colour import to_srgb
    from prismask.scenes.pictures import grey_picture

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
    from prismask.optics.calibrations import combine_calibrations

    return raw.mask(combine_calibrations(found))


def _is_made_by(recipe: str | None, out: Path) -> bool:
    """Whether a cube is there and everything that decides the result was the same."""
    from prismask.errors import PrismaskError
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


def _remarks(cube: Cube) -> tuple[str, ...]:
    remarks = list(cube.attrs["findings"])
    if cube.wavelengths is None:
        remarks.append("note: without wavelengths the quick look is grey.")
    if "method_chosen" in cube.attrs:
        remarks.append(f"chosen from the snapshot: {cube.attrs['method_chosen']}")
    if "interval" in cube.attrs:
        remarks.append(f"interval: {cube.attrs['interval']}")
    if "trust" in cube.attrs:
        grade, because = cube.attrs["trust_grade"], cube.attrs["trust_because"]
        remarks.append(f"trust: {cube.attrs['trust']:.2f}, {grade}: {because}")
    return (*remarks, f"self-check: {cube.attrs['residual']}")


def _seconds(cube: Cube) -> float:
    return float(cube.attrs["seconds"])
