"""Inspection of a snapshot: everything that is known before anything is computed.

`prepare` reads the levels of any number of snapshots through one mask at once; `inspect` does that
for one record and looks for its mask as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.inference import checks
from prismask.inference.alignment.registration import Registration, register
from prismask.inference.engine.tiling import throughput
from prismask.inference.findings import Finding
from prismask.inference.options import DEFAULTS, Options
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise
from prismask.optics.simulate import noted_scale, unscaled
from prismask.scenes.records import Mask, Measurement


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A snapshot that has passed the checks; float32 on the CPU."""

    signal: Tensor
    """`(H, L)` in the cube's units: scale divided out, dark level subtracted."""
    mask: Tensor
    """`(1, 1|C, H, W)`."""
    camera: CASSI
    noise_std: float
    """Noise in the units of `signal`."""
    brightness: float
    """How bright white would be (`checks.brightness`)."""
    is_aligned: bool = False
    """Whether the mask is in the pose that this very snapshot says."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Snapshots through one mask, ready to be reconstructed; on any device."""

    signal: Tensor
    """`(B, H, L)`, the dark level subtracted."""
    mask: Tensor
    """`(1, 1|C, H, W)`."""
    camera: CASSI
    dark: Tensor
    """What was subtracted, `(B,)`."""
    noise_std: Tensor
    """`(B,)`; zeros where nobody asked."""
    brightness: Tensor
    """`(B,)`."""

    def snapshots(self) -> Iterator[Snapshot]:
        """One by one, on the CPU."""
        mask = self.mask.cpu()
        numbers = zip(self.noise_std.tolist(), self.brightness.tolist(), strict=True)
        for signal, (noise, level) in zip(self.signal.cpu(), numbers, strict=True):
            yield Snapshot(signal, mask, self.camera, noise, level)


def prepare(
    signal: Tensor,
    mask: Tensor,
    camera: CASSI,
    options: Options = DEFAULTS,
    unit: float = 1.0,
    with_noise: bool = True,
) -> Prepared:
    """Dark level, noise and brightness of snapshots `(B, H, L)` through `mask (1, 1|C, H, W)`.

    unit: what 1 of the signal is in the units in which `options` states noise and dark level.
    with_noise: whether the noise, which takes longest to estimate, matters.
    """
    mask = camera.check_measurement_and_mask(signal, mask)
    checks.check_light(mask)
    light = throughput(mask, camera)
    dark = checks.dark_level(signal, light)
    if options.dark is not None:
        dark = torch.full_like(dark, options.dark / unit)
    signal = signal - dark[:, None, None]
    if options.noise_std is not None:
        noise = torch.full_like(dark, options.noise_std / unit)
    elif with_noise:
        noise = estimate_noise(signal, mask, camera).to(dark)
    else:
        noise = torch.zeros_like(dark)
    return Prepared(signal, mask, camera, dark, noise, checks.brightness(signal, light))


@dataclass(frozen=True, eq=False)
class Inspection:
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
    """How the mask lies on the snapshot; None where nobody asked or it is too small to tell."""


def inspect(
    measurement: Measurement, mask: Mask, camera: CASSI, options: Options, device: torch.device
) -> Inspection:
    """Dark level, noise, brightness and registration of a snapshot that fits mask and camera."""
    signal = torch.tensor(unscaled(measurement))
    aperture = as_mask_batch(torch.tensor(mask.values))
    # What people state and are told is in the measurement's own units, all else in the signal's.
    unit = noted_scale(measurement)
    ready = prepare(signal[None], aperture, camera, options, unit)
    dark = unit * float(ready.dark) if options.dark is None else options.dark
    found = None
    if options.check_mask:
        found = register(signal.to(device), aperture[0].to(device), camera)
    findings = (
        *checks.scale_findings(measurement.attrs),
        *checks.exposure_findings(signal, dark if options.dark is None else 0.0),
        *checks.registration_findings(found),
    )
    source = "as estimated" if options.noise_std is None else "given"
    (snapshot,) = ready.snapshots()
    return Inspection(snapshot, findings, unit, dark, source, found)
