"""The history that a cube carries: what made it, from what, and how well it explains that.

The last is a check that needs no truth: re-project the cube and compare with the snapshot. A cube
that explains its snapshot leaves a residual of the size of the noise. A residual far above it means
that something about camera, mask or method is not as assumed; one far below means that noise was
fitted. A small residual is necessary for a good cube, not sufficient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from prismask.checks import two_digits
from prismask.inference.engine.tiling import project
from prismask.inference.findings import Finding
from prismask.inference.inspection import Inspection, Snapshot
from prismask.models.machine import versions
from prismask.optics.camera import CASSI
from prismask.optics.simulate import camera_attrs
from prismask.scenes.records import Mask, Measurement


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
        "units": units_text(inspection.unit),
        "dark_level": inspection.dark,
        "noise_std": residual.noise_std,
        "noise_from": residual.noise_from,
        "residual_rms": residual.rms,
        "residual_relative": residual.relative,
        "residual_over_noise": residual.over_noise,
        "residual": residual.text(),
        "registration_score": None if found is None else round(found.score, 2),
        "findings": [f"{finding.weight}: {finding.text}" for finding in findings],
    }


def units_text(unit: float) -> str:
    """The units of a cube whose snapshot was divided by the scale `unit`."""
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

    def text(self) -> str:
        """One line for the person."""
        line = f"residual {self.rms:.3g} rms, {two_digits(100 * self.relative)} % of the signal"
        if self.over_noise is not None:
            times = two_digits(self.over_noise)
            line += f", {times} × the noise ({self.noise_std:.2g}, {self.noise_from})"
        if self.mask_error:
            line += f"; a mask as wrong as told leaves {self.mask_error:.2g}"
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
