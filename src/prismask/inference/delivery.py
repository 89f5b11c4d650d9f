"""Delivery: the mask is brought into its pose, the method is called, the bands are put back.

Everybody who wants a cube as people get it comes through here, `reconstruct` with one snapshot and
its history, `evaluate` with many and without.

How far the mask may be wrong is stated (`Options.mask_std`), or comes with the mask (`Mask.std`);
else nobody knows, and a network that can estimates it. What is stated counts before what the mask
brings along.

The history that a cube carries says what made it, from what, and how well it explains that. The
last is a check that needs no truth: re-project the cube and compare with the snapshot. A cube
that explains its snapshot leaves a residual of the size of the noise. A residual far above it means
that something about camera, mask or method is not as assumed; one far below means that noise was
fitted. A small residual is necessary for a good cube, not sufficient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.checks import two_digits
from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import Alignment
from prismask.inference.engine import project
from prismask.inference.findings import Finding
from prismask.inference.inspection import Inspection, Snapshot, prepare
from prismask.inference.methods.protocol import Aligner, Array, Estimate, Method
from prismask.inference.options import MaskStd, Options
from prismask.models.machine import versions
from prismask.optics.camera import CASSI
from prismask.optics.resolve import camera_attrs
from prismask.progress import Progress
from prismask.scenes.records import Mask, Measurement
from prismask.wording import worded


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
    text = found.text((mask.shape[-2], mask.shape[-1]), camera)
    return Aligned(
        replace(_moved(snapshot, found.found), is_aligned=found.is_worth_it),
        found.found,
        {"mask_pose": list(found.found.numbers), "mask_pose_by": aligner.name},
        (Finding("note", text),),
    )


def in_pose(snapshot: Snapshot, pose: MaskPose) -> Aligned:
    """The same in a pose that was found before."""
    mask, camera = snapshot.mask, snapshot.camera
    where = pose.text((mask.shape[-2], mask.shape[-1]), camera)
    text = (
        f"the mask is read {where}, as was found before."
        if any(pose.numbers)
        else "the mask is read as it was calibrated, as was found before."
    )
    return Aligned(
        _moved(snapshot, pose),
        pose,
        {"mask_pose": list(pose.numbers), "mask_pose_by": "given"},
        (Finding("note", text),),
    )


def _moved(snapshot: Snapshot, pose: MaskPose) -> Snapshot:
    """The snapshot with its mask in a pose, and with it what is known of its errors."""
    camera, told = snapshot.camera, snapshot.mask_std
    spread = None if told is None else pose.position.read(told, camera)
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
    """The snapshot with its mask in its pose, if that is asked for."""
    if options.pose is not None:
        return in_pose(snapshot, options.pose.pose)
    if not options.align:
        return Aligned(snapshot)
    if aligner is None:
        raise ConfigError(
            f"{method.name} cannot find the pose of a mask, and no network fits this camera: leave "
            "align out."
        )
    return align(snapshot, aligner, progress)


def deliver_batch(
    method: Method,
    aligner: Aligner | None,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    options: Options,
) -> Tensor:
    """Cubes `(B, C, H, W)` behind `measurement (B, H, L)`, the numbers that `reconstruct` gives."""
    if not options.align and options.pose is None:
        return method.batch(measurement, mask, camera, options)
    cubes = []
    for snapshot in prepare(measurement, mask, camera, options).snapshots():
        ready = aligned(snapshot, method, aligner, options)
        made = straightened(method(ready.snapshot, options), ready.pose, camera)
        cubes.append(torch.from_numpy(made.values))
    return torch.stack(cubes).to(measurement.device)


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
    """What a mask that is as wrong as was told does to the measurement, rms."""

    @property
    def over_expected(self) -> float | None:
        """The residual in units of what noise and the told errors of the mask leave."""
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
            line += f"; a mask as wrong as told leaves {self.mask_error:.2g}{unit}"
        return line


def reproject(cube: Tensor, snapshot: Snapshot, noise_from: str, unit: float = 1.0) -> Residual:
    """Compare `A cube` of `cube (C, H, W)` with the snapshot.

    unit: what 1 of the snapshot's signal is in its own units.
    """
    signal = snapshot.signal
    left = signal - project(cube, snapshot.mask, snapshot.camera)
    rms = float(left.square().mean().sqrt())
    scale = float(signal.square().mean().sqrt())
    relative = rms / scale if scale > 0 else 0.0
    told = snapshot.mask_std
    # Pixels that err independently: the variances of all that land on a sensor pixel add up.
    wrong = 0.0 if told is None else float(_variance(cube, told, snapshot.camera).mean().sqrt())
    return Residual(unit * rms, relative, unit * snapshot.noise_std, noise_from, unit * wrong)


def _variance(cube: Tensor, mask_std: Tensor, camera: CASSI) -> Tensor:
    return project(cube.square(), mask_std.square(), camera)


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
    told = options.mask_std
    if told is None:
        return {"mask_std_from": "estimated by the network"}
    if isinstance(told, MaskStd):
        rms = float(np.sqrt(np.mean(np.square(told.values, dtype=np.float64))))
        return {"mask_std": rms, "mask_std_from": told.source}
    return {"mask_std": told, "mask_std_from": "given"}


def spread_findings(stated: Options, mask: Mask, method: str, uses_it: bool) -> list[Finding]:
    """Which of two spreads counts, and that a method cannot be told any."""
    found = []
    if stated.mask_std is not None and mask.std is not None:
        text = (
            "the mask brings its own mask_std along, which is not used: the one that is given "
            "counts. Leave --mask-std out to use the mask's."
        )
        found.append(Finding("note", text))
    if not uses_it and with_own_spread(stated, mask).mask_std is not None:
        text = (
            f"{method} cannot be told how far the mask may be wrong: mask_std is not used. "
            "`prismask models` names the networks that can."
        )
        found.append(Finding("note", text))
    return found
