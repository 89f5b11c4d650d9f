"""A first look at a snapshot: everything that is known before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from prismask.inference import checks
from prismask.inference.alignment.registration import Registration, register
from prismask.inference.camera_match.view import Snapshot
from prismask.inference.checks import Finding
from prismask.inference.engine.strips import throughput
from prismask.inference.options import Settings
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise
from prismask.optics.simulate import noted_scale, unscaled
from prismask.scenes.records import Mask, Measurement


@dataclass(frozen=True, eq=False)
class Look:
    """A snapshot that can be worked on, and what was noticed."""

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    unit: float
    """What 1 of the signal is in the snapshot's own units: the scale that was divided out."""
    dark: float
    """Dark level that was subtracted, in the snapshot's own units."""
    noise_from: str
    """Where the noise level comes from."""
    registration: Registration | None
    """How the mask lies on the snapshot; None where nobody looked or it is too small to tell."""


def look(
    measurement: Measurement, mask: Mask, camera: CASSI, settings: Settings, device: torch.device
) -> Look:
    """Dark level, noise, brightness and registration of a snapshot that fits mask and camera."""
    signal = torch.tensor(unscaled(measurement))
    aperture = as_mask_batch(torch.tensor(mask.values))
    camera.check_measurement_and_mask(signal[None], aperture)
    checks.check_light(aperture)
    # What people state and are told is in the measurement's own units, all else in the signal's.
    unit = noted_scale(measurement)
    light = throughput(aperture, camera)
    dark = unit * checks.dark_level(signal, light) if settings.dark is None else settings.dark
    found = None
    if settings.registration:
        found = register(signal.to(device), aperture[0].to(device), camera)
    findings = checks.scale_findings(measurement.attrs)
    findings += checks.exposure_findings(signal, dark if settings.dark is None else 0.0)
    findings += checks.registration_findings(found)
    signal = signal - dark / unit
    if settings.noise_std is not None:
        noise, source = settings.noise_std / unit, "given"
    else:
        noise, source = float(estimate_noise(signal[None], aperture, camera)), "as estimated"
    level = checks.brightness(signal, light)
    snapshot = Snapshot(signal, aperture, camera, noise, level)
    return Look(snapshot, tuple(findings), unit, dark, source, found)
