"""One snapshot to one cube: files, arrays or records in, a cube with error bar and history out.

    cube = reconstruct("snapshot.mat", "mask.mat", samples=16)

`Reconstruction` is the same in two steps, for many snapshots: prepare once, call often. `evaluate`
comes through here as well, with many snapshots and without their history (`deliver_batch`), so what
is scored is what is delivered.

On the way the mask is brought into its pose, the method is called, and the bands are put back.

How far the mask may be wrong is stated (`Options.mask_std`), or comes with the mask (`Mask.std`);
otherwise it is unknown, and a network that can estimates it. What is stated takes precedence.

The history that a cube carries says what made it, from what, and how well it explains that. The
last is a check that needs no truth: re-project the cube and compare with the snapshot. A cube
that explains its snapshot leaves a residual of the size of the noise. A residual far above it means
that something about camera, mask or method is not as assumed; one far below means that noise was
fitted. A small residual is necessary for a good cube, not sufficient.
"""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask import __version__
from prismask.checks import two_digits
from prismask.errors import ConfigError, DivergedError, ValuesError
from prismask.inference import inspection
from prismask.inference.alignment.pose import KnownPose, MaskPose
from prismask.inference.alignment.search import Alignment
from prismask.inference.engine import project
from prismask.inference.inspection import Inspection, Snapshot, inspect, prepare, with_noted_noise
from prismask.inference.methods.network import NETWORK
from prismask.inference.methods.protocol import Aligner, Array, Estimate, Method
from prismask.inference.methods.registry import FALLBACK, Choice
from prismask.inference.options import DEFAULTS, MaskStd, Options
from prismask.inference.raw_frames import averaged, bad_findings
from prismask.models.machine import choose_device, versions
from prismask.models.network import Reconstructor
from prismask.optics.camera import (
    CASSI,
    CameraDescription,
    camera_attrs,
    camera_notes,
    resolve_camera,
)
from prismask.progress import Progress, as_progress
from prismask.scenes.conversion import as_mask, as_measurement
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement, array_hash, check_wavelengths
from prismask.scenes.units import check_nanometres, noted_counts, unscaled
from prismask.solvers.registry import list_solvers, solver_options
from prismask.wording import Finding, told_in_python, warn_in_python, worded

if TYPE_CHECKING:
    from prismask.scenes.conversion import MaskLike, MeasurementLike

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

    measurement, mask: records, file paths, NumPy arrays, torch tensors or xarray objects.
        Integers are counts, with the largest value of their type as full scale (1), or that of a
        sensor with `bits=12`; floating-point values are used unchanged. With `average=True` the
        measurement is a stack `(N, H, L)` or a list of exposures of one scene.
    camera: by default the one noted in the measurement or the mask; otherwise the usual one, or
        the number of bands that fits the two sizes.
    method, model: a solver or a registered method by name, or any `f(measurement, mask, camera)`;
        or trained weights by name or path, or a network. By default the weights that suit the
        camera, or gap-tv if there are none (`inference.methods.registry`).
    wavelengths: of the camera's bands in nm. By default those noted in the measurement or the
        mask, or the usual ones for the usual number of bands; otherwise the cube has none.
    pose: a cube made with `align` from another snapshot of the same camera, whose mask pose is
        used again.
    progress: True shows a bar, in notebooks too; or a function `progress(done, total, info)`.
    options, changes: all other options, as one object or one by one
        (`inference.options.Options`): `samples=16`, `level=0.95`, `align=True`, `mask_std=0.03` …
        Names that are unknown there are options of the solver, such as `iterations`.

    The cube is in the units of the scene if the measurement notes its exposure (`scale` together
    with `scale_rule`), otherwise in those of the measurement. Notes and warnings are listed in
    `attrs["findings"]`; anything that makes the cube doubtful is also a `PrismaskWarning`.
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
                f"camera=CameraDescription({word}=…) from prismask.optics.camera."
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
        """`run` on whatever `reconstruct` takes; warnings among the findings are raised as such."""
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
        # Distinguishes the result from one that another network aligned.
        other = {} if aligner is None or aligner is method else {"aligner": aligner.identity()}
        # Distinguishes it from one whose network was chosen by the user.
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
            *seen.findings_in(ready.pose),
            *_bad_findings(seen.snapshot, options, method),
            *self._choice.findings(camera),
            *ready.findings,
            *made.findings,
            *_level_findings(made, method, options),
            *_residual_findings(residual, made, method, options, ready.snapshot.is_searched),
            *inspection.wavelength_findings(at, at_source, camera.bands),
        ]
        attrs = {
            "title": "Reconstructed cube",
            "made_by": f"prismask {__version__}",
            "interval": f"none: {method.name} has no error bars",
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


# --- the mask in its pose -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Aligned:
    """A snapshot whose mask is in its pose."""

    snapshot: Snapshot
    pose: MaskPose = field(default_factory=MaskPose)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


def align(snapshot: Snapshot, aligner: Aligner, progress: Progress | None) -> Aligned:
    """Have a method find the pose of the snapshot's mask."""
    found: Alignment = aligner.align(snapshot, progress)
    mask, camera = snapshot.mask, snapshot.camera
    finding = Finding("note", found.text((mask.shape[-2], mask.shape[-1]), camera))
    searched = replace(snapshot, is_searched=True)
    if snapshot.probe is not None:  # the snapshot asked for the search, not the user
        if not found.is_worth_it:
            return Aligned(searched)
        text = (
            f"the snapshot contradicts its mask as calibrated: {finding.text} For further "
            "snapshots of this camera give this cube as --pose; --no-align keeps the mask as it is."
        )
        finding = Finding("warning", text)
    return Aligned(
        replace(_moved(searched, found.pose), is_aligned=found.is_worth_it, probe=None),
        found.pose,
        {
            "mask_pose": list(found.pose.numbers),
            "mask_pose_std": list(found.std.numbers),
            "mask_pose_by": aligner.name,
        },
        (finding,),
    )


def in_pose(snapshot: Snapshot, pose: MaskPose) -> Aligned:
    """The same in a pose that was found before."""
    mask, camera = snapshot.mask, snapshot.camera
    where = pose.text((mask.shape[-2], mask.shape[-1]), camera)
    text = (
        f"the mask lies {where}, as was found before."
        if any(pose.numbers)
        else "the mask lies where it was calibrated, as was found before."
    )
    return Aligned(
        _moved(snapshot, pose),
        pose,
        {"mask_pose": list(pose.numbers), "mask_pose_by": "given"},
        (Finding("note", text),),
    )


def _moved(snapshot: Snapshot, pose: MaskPose) -> Snapshot:
    """The snapshot with its mask in a pose, and with it what is known of its errors."""
    camera, stated = snapshot.camera, snapshot.mask_std
    spread = None if stated is None else pose.position.read(stated, camera)
    return replace(snapshot, mask=pose.read(snapshot.mask, camera), mask_std=spread)


def straightened(estimate: Estimate, pose: MaskPose, camera: CASSI) -> Estimate:
    """The estimate with its bands where the scene has them."""
    if not any(pose.shifts(camera)):
        return estimate

    def back(values: Array) -> Array:
        moved = pose.straightened(torch.from_numpy(values)[None], camera)[0]
        return np.ascontiguousarray(moved.numpy())

    values = back(estimate.values)
    ends: list[Array | None] = []
    for end in (estimate.lower, estimate.upper):
        # Moved as a distance: a cubic of its own could put an end on the wrong side.
        away = None if end is None else np.maximum(back(np.abs(end - estimate.values)), 0)
        ends.append(away)
    lower = None if ends[0] is None else np.maximum(values - ends[0], np.minimum(values, 0))
    upper = None if ends[1] is None else values + ends[1]
    std = None if estimate.std is None else np.maximum(back(estimate.std), 0)
    return replace(estimate, values=values, std=std, lower=lower, upper=upper)


def aligned(
    snapshot: Snapshot,
    method: Method,
    aligner: Aligner | None,
    options: Options,
    progress: Progress | None = None,
) -> Aligned:
    """The snapshot with its mask in its pose, if the options or the snapshot itself want that."""
    if options.pose is not None:
        return in_pose(snapshot, options.pose.pose)
    if options.align is None and aligner is not None:
        snapshot = replace(snapshot, probe=aligner.probe(snapshot, options))
        if snapshot.probe is not None and snapshot.probe.is_inconsistent:
            return align(snapshot, aligner, progress)
    if not options.align:
        return Aligned(snapshot)
    if aligner is None:
        raise ConfigError(
            f"{method.name} cannot find the pose of a mask, and no network fits this camera: leave "
            "align out."
        )
    return align(snapshot, aligner, progress)


def _may_move(options: Options, aligner: Aligner | None) -> bool:
    """Whether masks may be read in another pose than they were calibrated in."""
    may_search = options.align is None and options.check_mask and aligner is not None
    return bool(options.align) or may_search or options.pose is not None


def delivered(
    method: Method,
    aligner: Aligner | None,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    options: Options,
) -> Iterator[Estimate]:
    """What `reconstruct` gives for each of the snapshots `(B, H, L)`, without its history."""
    for snapshot in prepare(measurement, mask, camera, options).snapshots():
        ready = aligned(snapshot, method, aligner, options)
        yield straightened(method(ready.snapshot, options), ready.pose, camera)


def deliver_batch(
    method: Method,
    aligner: Aligner | None,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    options: Options,
) -> Tensor:
    """Cubes `(B, C, H, W)` behind `measurement (B, H, L)`, the numbers that `reconstruct` gives."""
    if not _may_move(options, aligner):
        return method.batch(measurement, mask, camera, options)
    made = delivered(method, aligner, measurement, mask, camera, options)
    return torch.stack([torch.from_numpy(one.values) for one in made]).to(measurement.device)


# --- how far the mask may be wrong ----------------------------------------------------------------


OF_THE_MASK = "the mask"
"""Where a spread comes from that the mask brings along."""


def with_own_spread(options: Options, mask: Mask) -> Options:
    """The options with what the mask says of its own errors, unless something is stated."""
    if mask.std is None or options.mask_std is not None:
        return options
    count = mask.attrs.get("calibrations")
    source = OF_THE_MASK if count is None else f"{count} calibrations of the mask"
    return replace(options, mask_std=MaskStd(mask.std, source))


def spread_attrs(options: Options, uses_it: bool) -> dict[str, Any]:
    """What the history says of the mask's errors, where the method makes use of them."""
    if not uses_it:
        return {}
    stated = options.mask_std
    if stated is None:
        return {"mask_std_from": "estimated by the network"}
    if isinstance(stated, MaskStd):
        rms = float(np.sqrt(np.mean(np.square(stated.values, dtype=np.float64))))
        return {"mask_std": rms, "mask_std_from": stated.source}
    return {"mask_std": stated, "mask_std_from": "given"}


def spread_findings(stated: Options, mask: Mask, method: str, uses_it: bool) -> list[Finding]:
    """Which of two spreads counts, and that a method has no use for either."""
    found = []
    if stated.mask_std is not None and mask.std is not None:
        text = (
            "the mask brings its own mask_std along, which is not used: the one that is given "
            "counts. Leave --mask-std out to use the mask's."
        )
        found.append(Finding("note", text))
    if not uses_it and with_own_spread(stated, mask).mask_std is not None:
        text = (
            f"{method} has no input for how far the mask may be wrong: mask_std is not used. "
            "`prismask models` names the networks that can."
        )
        found.append(Finding("note", text))
    return found


# --- what the history says ------------------------------------------------------------------------


def sources(measurement: Measurement, mask: Mask, camera: CASSI) -> dict[str, Any]:
    """What a cube was made from and with."""
    attrs: dict[str, Any] = {
        "measurement_hash": measurement.hash,
        "mask_hash": mask.hash,
        **camera_attrs(camera),
        "versions": versions(),
    }
    for name, record in (("measurement_source", measurement), ("mask_source", mask)):
        if "source" in record.attrs:
            attrs[name] = record.attrs["source"]
    return attrs


def observations(
    inspection: Inspection, residual: Residual, findings: Sequence[Finding]
) -> dict[str, Any]:
    """What was noticed before and after; levels are in the snapshot's own units."""
    found = inspection.registration
    return {
        "units": units_text(inspection.unit, inspection.in_counts),
        "dark_level": inspection.dark,
        "noise_std": residual.noise_std,
        "noise_from": residual.noise_from,
        "residual_rms": residual.rms,
        "residual_relative": residual.relative,
        "residual_over_noise": residual.over_noise,
        "residual": residual.text(" counts" * inspection.in_counts),
        "registration_score": None if found is None else round(found.score, 2),
        "findings": [f"{finding.weight}: {worded(finding.text)}" for finding in findings],
    }


def units_text(unit: float, in_counts: bool = False) -> str:
    """The units of a cube whose snapshot was divided by the scale `unit`."""
    if in_counts:
        return (
            f"of the snapshot's full scale: re-projecting the cube and multiplying by {unit:.6g} "
            "gives the snapshot's counts less their dark level; dark level, noise and residual are "
            "in counts"
        )
    if unit == 1.0:
        return "of the snapshot: re-projecting the cube gives the snapshot less its dark level"
    return (
        "of the scene: re-projecting the cube and multiplying by the snapshot's scale "
        f"({unit:.6g}) gives the snapshot less its dark level; dark level, noise and residual are "
        "in the snapshot's own units"
    )


# --- how well a cube explains its snapshot --------------------------------------------------------


RESIDUAL_WARNING_RATIO = 3.0
"""Residual in units of the noise from which a network's cube does not explain its snapshot."""
USUALLY_UNEXPLAINED = 0.04
"""Share of the snapshot's rms below which a residual is what networks leave of any scene: of 77
validation snapshots with right masks, without noise and with up to 5 %, 98 % left less than 0.035
beyond the noise (the fit of an earlier network, `prismask calibrate`)."""


@dataclass(frozen=True)
class Residual:
    """How well a cube explains its snapshot, in the snapshot's own units."""

    rms: float
    """Root mean square of y − A x."""
    relative: float
    """The same over the root mean square of y."""
    noise_std: float
    """The noise it is compared with."""
    noise_from: str
    """Where that number comes from."""
    mask_error: float = 0.0
    """What a mask that is as wrong as was stated does to the measurement, rms."""

    @property
    def over_expected(self) -> float | None:
        """The residual in units of what noise and the stated errors of the mask leave."""
        expected = math.hypot(self.noise_std, self.mask_error)
        return self.rms / expected if expected > 0 else None

    @property
    def over_noise(self) -> float | None:
        """The residual in units of the noise; None where there is no noise to compare with."""
        return self.rms / self.noise_std if self.noise_std > 0 else None

    def text(self, unit: str = "") -> str:
        """One line for the person; unit: what follows a number."""
        share = two_digits(100 * self.relative)
        line = f"residual {self.rms:.3g}{unit} rms, {share} % of the signal"
        if self.over_noise is not None:
            times = two_digits(self.over_noise)
            line += f", {times} × the noise ({self.noise_std:.2g}{unit}, {self.noise_from})"
        if self.mask_error:
            line += f"; a mask as wrong as stated leaves {self.mask_error:.2g}{unit}"
        return line


def reproject(cube: Tensor, snapshot: Snapshot, noise_from: str, unit: float = 1.0) -> Residual:
    """Compare `A cube` of `cube (C, H, W)` with the snapshot.

    unit: what 1 of the snapshot's signal is in its own units.
    """
    signal = snapshot.signal
    left = signal - project(cube, snapshot.mask, snapshot.camera)
    if snapshot.bad is not None:
        left, signal = left[~snapshot.bad], signal[~snapshot.bad]
    rms = float(left.square().mean().sqrt())
    scale = float(signal.square().mean().sqrt())
    relative = rms / scale if scale > 0 else 0.0
    stated = snapshot.mask_std
    # Pixels that err independently: the variances of all that land on a sensor pixel add up.
    wrong = 0.0 if stated is None else float(_variance(cube, stated, snapshot.camera).mean().sqrt())
    return Residual(unit * rms, relative, unit * snapshot.noise_std, noise_from, unit * wrong)


def _variance(cube: Tensor, mask_std: Tensor, camera: CASSI) -> Tensor:
    return project(cube.square(), mask_std.square(), camera)


def _bad_findings(snapshot: Snapshot, options: Options, method: Method) -> list[Finding]:
    count = 0 if snapshot.bad is None else int(snapshot.bad.sum())
    return bad_findings(count, options, method.name, "bad_pixels" in method.capabilities)


def _level_findings(made: Estimate, method: Method, options: Options) -> list[Finding]:
    """A remark where a level was asked for that nothing can promise to hold."""
    if made.lower is not None or options.level == Options.level:
        return []
    text = (
        f"an interval of {100 * options.level:g} % was asked for, and {method.name} has nothing "
        "that such a promise could rest on: the cube comes without error bars. `prismask models` "
        "names weights that have an interval."
    )
    return [Finding("note", text)]


def _residual_findings(
    residual: Residual, made: Estimate, method: Method, options: Options, is_searched: bool
) -> list[Finding]:
    """What to do about a cube that leaves much of its snapshot unexplained."""
    if made.attrs.get("method") != NETWORK:
        return []
    if made.verdict is not None:
        return made.verdict.findings(is_searched, bool(options.adapt))
    left = residual.over_expected
    can_adapt = "adapt" in method.capabilities
    if left is None or left < RESIDUAL_WARNING_RATIO or not can_adapt:
        return []
    if residual.relative < USUALLY_UNEXPLAINED:  # networks leave that much of any snapshot
        return []
    if made.attrs.get("mask_inconsistent"):  # which is a finding of its own
        return []
    # Also where the snapshot agrees with its mask: a few lines do not show all that can be wrong.
    learn = "" if options.adapt else " (try --adapt 60)"
    decides = "--align shows whether it is the mask."
    if is_searched:
        decides = "No pose was found that explains all of it."
    head = f"the cube leaves {left:.2g} times the noise of its snapshot unexplained"
    if residual.mask_error:
        head = (
            f"the cube leaves {left:.2g} times as much of its snapshot unexplained as noise and a "
            "mask as wrong as stated would"
        )
    text = (
        f"{head}: the scene is unlike those of the training{learn}, its spectra have lines or "
        "narrow bands (compare with --method gap-tv), or the mask has moved by a fraction of a "
        f"pixel since its calibration. {decides}"
    )
    return [Finding("note", text)]


def _check_finite(made: Estimate, name: str) -> None:
    if not np.isfinite(made.values).all():
        raise DivergedError(
            f"{name} did not stay finite on this snapshot. Check that mask and dispersion "
            "belong to it, and that its values are fractions of full scale."
        )
