"""One snapshot to one cube: files, arrays or records in, a cube with error bar and history out.

    cube = reconstruct("snapshot.mat", "mask.mat", samples=16)

`Reconstruction` is the same in two steps, for many snapshots: prepare once, call often.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from prismask import __version__
from prismask.errors import ConfigError, DivergedError, ValuesError
from prismask.inference import inspection
from prismask.inference.alignment.pose import KnownPose
from prismask.inference.delivery import (
    Residual,
    aligned,
    observations,
    reproject,
    sources,
    spread_attrs,
    spread_findings,
    straightened,
    with_own_spread,
)
from prismask.inference.findings import Finding, warn_in_python
from prismask.inference.inspection import inspect, with_noted_noise
from prismask.inference.methods.network import NETWORK
from prismask.inference.methods.protocol import Estimate, Method
from prismask.inference.methods.registry import FALLBACK, Choice
from prismask.inference.options import DEFAULTS, Options
from prismask.inference.raw_frames import averaged
from prismask.models.machine import choose_device
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI
from prismask.optics.resolve import CameraDescription, camera_attrs, camera_notes, resolve_camera
from prismask.optics.simulate import unscaled
from prismask.progress import Progress, as_progress
from prismask.scenes.conversion import as_mask, as_measurement
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement, array_hash, check_wavelengths
from prismask.scenes.units import check_nanometres, noted_counts
from prismask.solvers.registry import list_solvers, solver_options
from prismask.wording import told_in_python

if TYPE_CHECKING:
    from prismask.scenes.conversion import MaskLike, MeasurementLike

RESIDUAL_WARNING_RATIO = 3.0
"""Residual in units of the noise from which a network's cube does not explain its snapshot."""
USUALLY_UNEXPLAINED = 0.04
"""Share of the snapshot's rms below which a residual is what networks leave of any scene: of 77
validation snapshots with right masks, without noise and with up to 5 %, 98 % left less than 0.035
beyond the noise (`prismask calibrate srn-looks.m2m`)."""

CLOSE_SPELLING = 0.75
"""Likeness from which an unknown word is taken for a misspelt argument."""

Wavelengths = Sequence[float] | NDArray[np.float64]
Camera = CASSI | CameraDescription | None


@told_in_python
def reconstruct(
    measurement: MeasurementLike,
    mask: MaskLike,
    camera: Camera = None,
    method: Any = None,
    *,
    model: str | Path | Reconstructor | None = None,
    wavelengths: Wavelengths | None = None,
    pose: Cube | KnownPose | None = None,
    progress: Progress | bool | None = None,
    options: Options = DEFAULTS,
    **changes: Any,
) -> Cube:
    """The cube `(C, H, W)` behind a `measurement (H, L)` taken through `mask (H, W)`.

    measurement, mask: records, paths of files, NumPy arrays, torch tensors or xarray objects.
        Integers are counts, and 1 is the largest of their type, unless `bits=12` says how far the
        sensor counts; floating point is taken as it stands. With `average=True`, the measurement
        is a stack `(N, H, L)` or a list of exposures of one scene.
    camera: None takes the one noted in the measurement or the mask, else the default one, else the
        band count that fits the two sizes.
    method, model: a solver or a registered method by name, or any `f(measurement, mask, camera)`;
        or trained weights by name or path, or a network. With neither, the weights that ship for
        such a camera, or gap-tv where none do (`inference.methods.registry`).
    wavelengths: of the camera's bands in nm; None takes those noted in the measurement or the
        mask, or the default ones for the default band count; otherwise the cube has none.
    pose: a cube made with `align` from another snapshot of the same camera: the mask is used in the
        pose that was found then.
    progress: True shows a bar, in notebooks too; or a function `progress(done, total, info)`.
    options, changes: everything else that decides the result, as a whole or one by one
        (`inference.options.Options`): `samples=16`, `level=0.95`, `align=True`, `mask_std=0.03` …
        Names that are not known there are options of the solver, such as `iterations`.

    The cube is in the scene's units: a scale noted in the measurement, `scale` with `scale_rule`
    beside it, is divided out. What was noticed on the way is in `attrs["findings"]`; of that, what
    makes the cube doubtful is also a `PrismaskWarning`.
    """
    given: Any = None
    named = {"method": method, "model": model}
    for name, value in named.items():
        if isinstance(value, str | Path):
            changes[name] = str(value)
        elif value is not None:
            given = value
    if isinstance(pose, Cube):
        pose = KnownPose.from_attrs(pose.attrs, "the cube")
    if pose is not None:
        changes["pose"] = pose
    chosen = options.with_changes(changes)
    _check_spelling(dict(chosen.method_options), chosen, given)
    shot, aperture = _snapshot(measurement, chosen), as_mask(mask)
    cube = Reconstruction(chosen, given).run(
        shot, aperture, camera, wavelengths, as_progress(progress, "reconstructing")
    )
    warn_in_python(cube.attrs["findings"], stacklevel=3)
    return cube


def _snapshot(given: MeasurementLike, options: Options) -> Measurement:
    """The measurement, or the mean of the exposures that were given for it."""
    return averaged(given) if options.average else as_measurement(given)


SYNONYMS = {
    "mask_uncertainty": "mask_std", "mask_error": "mask_std", "noise": "noise_std",
    "dark_frame": "dark", "flat_field": "flat", "bit_depth": "bits", "confidence": "level",
}  # fmt: skip
"""Other words for arguments, which their letters do not show."""

OF_THE_CAMERA = frozenset(field.name for field in fields(CameraDescription))
"""Words that describe a camera, not a reconstruction."""


def _check_spelling(words: Iterable[str], options: Options, given: Any) -> None:
    """Refuse what is no option of the solver and looks like an argument of `reconstruct`."""
    solver = options.method or FALLBACK
    if solver not in list_solvers():
        return  # a registered method knows its own options
    is_solver = given is None and options.model is None
    is_named = options.method is not None or not is_solver
    known = solver_options(solver) if is_solver else []
    own = ("camera", "method", "model", "wavelengths", "pose", "progress", "options")
    arguments = [*own, *(field.name for field in fields(Options))]
    for word in words:
        if word not in known and word in OF_THE_CAMERA:
            raise ConfigError(
                f"{word} belongs to the camera: camera=CASSI.from_step(bands=28, step=2.0), or "
                f"camera=CameraDescription({word}=…) from prismask.optics.resolve."
            )
        near = [SYNONYMS[word]] if word in SYNONYMS else []
        near = near or difflib.get_close_matches(word, arguments, n=1, cutoff=CLOSE_SPELLING)
        # A solver that nobody named is not what somebody means who says `noise`.
        is_known = word in known and (is_named or word not in SYNONYMS)
        if not is_known and (near or not is_named):
            near = near or difflib.get_close_matches(word, known, n=1, cutoff=CLOSE_SPELLING)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"reconstruct has no argument {word!r}.{meant} Others are "
                f"{', '.join(sorted(set(arguments)))}, and the options of a solver."
            )


class Reconstruction:
    """Options with their method ready.

    method: a network, a method or a function; None: what the options say.
    """

    def __init__(self, options: Options = DEFAULTS, method: Any = None) -> None:
        self.options = options
        self.device = choose_device(options.device)
        self._choice = Choice(options, self.device, method)

    @told_in_python
    def __call__(
        self,
        measurement: MeasurementLike,
        mask: MaskLike,
        camera: Camera = None,
        wavelengths: Wavelengths | None = None,
        progress: Progress | bool | None = None,
    ) -> Cube:
        """`run` on whatever `reconstruct` takes; doubts about the cube become warnings too."""
        bar = as_progress(progress, "reconstructing")
        shot = _snapshot(measurement, self.options)
        cube = self.run(shot, as_mask(mask), camera, wavelengths, bar)
        warn_in_python(cube.attrs["findings"], stacklevel=3)
        return cube

    def recipe(
        self, measurement: Measurement, mask: Mask, camera: CASSI, at: Wavelengths | None
    ) -> str:
        """Short id of everything that decides the result."""
        listed = None if at is None else [float(value) for value in at]
        counts = noted_counts(measurement.attrs)
        return with_own_spread(self.options, mask).recipe(
            version=__version__,
            measurement=array_hash(unscaled(measurement)),
            mask=mask.hash,
            wavelengths=listed,
            **({} if counts is None else {"counts": counts}),
            **camera_attrs(camera),
            **self._identity(camera),
        )

    def _identity(self, camera: CASSI) -> dict[str, Any]:
        method, aligner = self._choice.for_camera(camera), self._choice.aligner(camera)
        # What tells the result from one that another network aligned.
        other = {} if aligner is None or aligner is method else {"aligner": aligner.identity()}
        # What tells it from one whose network was asked for.
        settled = {"may_take_solver": True} if self._choice.may_take_solver(camera) else {}
        return {**method.identity(self.options), **other, **settled}

    def run(
        self,
        measurement: Measurement,
        mask: Mask,
        camera: Camera = None,
        wavelengths: Wavelengths | None = None,
        progress: Progress | None = None,
    ) -> Cube:
        """Check, reconstruct, check again; what is noticed is in the history only."""
        camera, assumed = self.camera_for(measurement, mask, camera)
        at, at_source = find_wavelengths(measurement, mask, camera, wavelengths)
        started = time.perf_counter()
        options = with_own_spread(with_noted_noise(self.options, measurement), mask)
        if options.pose is not None:
            options.pose.check(mask)
        method = self._choice.for_camera(camera)
        method.check(options)
        uses_spread = "uncertain_mask" in method.capabilities
        seen = inspect(measurement, mask, camera, options, self.device)
        aligner = self._choice.aligner(camera)
        ready = aligned(seen.snapshot, method, aligner, options, progress)
        made = self._choice.settle(method(ready.snapshot, options, progress), options)
        _check_finite(made, method.name)
        residual = reproject(
            torch.from_numpy(made.values), ready.snapshot, seen.noise_from, seen.unit
        )
        findings = [
            *assumed,
            *inspection.plane_findings(mask, at),
            *spread_findings(self.options, mask, method.name, uses_spread),
            *seen.findings,
            *self._choice.findings(camera),
            *ready.findings,
            *made.findings,
            *_residual_findings(residual, made, method, options),
            *inspection.wavelength_findings(at, at_source, camera.bands),
        ]
        attrs = {
            "title": "Reconstructed cube",
            "made_by": f"prismask {__version__}",
            **made.attrs,
            **spread_attrs(options, uses_spread),
            **ready.attrs,
            **({} if made.verdict is None else made.verdict.attrs()),
            "device": str(self.device),
            "seconds": round(time.perf_counter() - started, 3),
            "wavelengths_from": at_source,
            **sources(measurement, mask, camera),
            **observations(seen, residual, findings),
            "recipe": self.recipe(measurement, mask, camera, at),
        }
        made = straightened(made, ready.pose, camera)
        return Cube(made.values, at, made.std, made.lower, made.upper, attrs)

    def camera_for(
        self, measurement: Measurement, mask: Mask, camera: Camera
    ) -> tuple[CASSI, list[Finding]]:
        """The camera to use, and the remark if it was guessed; sizes that do not fit raise."""
        notes, sizes = camera_notes(measurement, mask), (measurement.size, mask.size)
        found = resolve_camera(camera, notes, sizes=sizes)
        look = partial(inspection.find_crop, measurement, mask, found.camera)
        inspection.check_fit(*sizes, found.camera, look)
        return found.camera, [Finding("note", found.assumed)] if found.assumed else []


def _residual_findings(
    residual: Residual, made: Estimate, method: Method, options: Options
) -> list[Finding]:
    """What to do about a cube that leaves much of its snapshot unexplained."""
    if made.attrs.get("method") != NETWORK:
        return []
    if made.verdict is not None:
        return made.verdict.findings(options.align, bool(options.adapt))
    left = residual.over_expected
    can_adapt = "adapt" in method.capabilities
    if left is None or left < RESIDUAL_WARNING_RATIO or not can_adapt:
        return []
    if residual.relative < USUALLY_UNEXPLAINED:  # networks leave that much of any snapshot
        return []
    if made.attrs.get("mask_inconsistent"):  # which is a finding of its own
        return []
    # Also where the snapshot agrees with its mask: a few lines do not show all that can be wrong.
    learn = "" if options.adapt else " (--adapt 60 learns it)"
    aligned = "--align has found no pose that explains all of it."
    tells = aligned if options.align else "--align tells which."
    head = f"the cube leaves {left:.2g} times the noise of its snapshot unexplained"
    if residual.mask_error:
        head = (
            f"the cube leaves {left:.2g} times as much of its snapshot unexplained as noise and a "
            "mask as wrong as told would"
        )
    text = (
        f"{head}: the scene is harder than what the network knows{learn}, its spectra have lines "
        "or narrow bands (compare with --method gap-tv), or the mask lies a fraction of a pixel "
        f"beside where it was calibrated. {tells}"
    )
    return [Finding("note", text)]


def find_wavelengths(
    measurement: Measurement, mask: Mask, camera: CASSI, given: Any
) -> tuple[NDArray[np.float64] | None, str]:
    """The wavelengths of the bands and where they were found."""
    if given is not None:
        if np.ndim(given) == 1 and np.size(given) > 1 and np.all(np.diff(given) < 0):
            raise ValuesError(
                "the wavelengths descend; list them from the shortest on. If the shortest one "
                "lands at the far end of the dispersion, the camera has a negative step, such as "
                "--step -2."
            )
        checked = check_wavelengths(given, camera.bands)
        check_nanometres(checked)
        return checked, "given"
    for source, attrs in (("measurement", measurement.attrs), ("mask", mask.attrs)):
        noted = attrs.get("wavelengths_nm")
        if noted is not None and np.size(noted) == camera.bands:
            return check_wavelengths(np.atleast_1d(noted), camera.bands), source
    if camera.bands == BANDS:
        return check_wavelengths(WAVELENGTHS_NM, BANDS), "default"
    return None, "unknown"


def _check_finite(made: Estimate, name: str) -> None:
    if not np.isfinite(made.values).all():
        raise DivergedError(
            f"{name} did not stay finite on this snapshot. Check that mask and dispersion "
            "belong to it, and that its values are fractions of full scale."
        )
