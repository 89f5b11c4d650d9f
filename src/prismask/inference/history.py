"""The history that a cube carries: what made it, from what, and how well it explains that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismask.inference.checks import Finding
from prismask.inference.inspection import Look
from prismask.inference.selfcheck import Residual
from prismask.models.provenance import versions
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


def observations(looked: Look, residual: Residual, findings: Sequence[Finding]) -> dict[str, Any]:
    """What was noticed before and after; levels are in the snapshot's own units."""
    found = looked.registration
    return {
        "units": units_text(looked.unit),
        "dark_level": looked.dark,
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
