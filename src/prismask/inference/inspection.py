"""Inspection of a snapshot: everything that is known before anything is computed.

`prepare` reads the levels of any number of snapshots through one mask at once; `inspect` does that
for one record and looks for its mask as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from prismask.inference import checks, raw_frames
from prismask.inference.alignment.registration import Registration, register
from prismask.inference.engine.tiling import throughput
from prismask.inference.findings import Finding
from prismask.inference.mask_spread import told_spread
from prismask.inference.options import DEFAULTS, Options
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise
from prismask.optics.simulate import noted_scale
from prismask.progress import part
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
    mask_std: Tensor | None = None
    """How far the mask may be wrong, `(1, 1|C, H, W)`; None where nobody knows."""
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
    mask_std: Tensor | None = None
    """Of the mask, `(1, 1|C, H, W)`; None where nobody knows."""

    def snapshots(self) -> Iterator[Snapshot]:
        """One by one, on the CPU."""
        mask = self.mask.cpu()
        told = None if self.mask_std is None else self.mask_std.cpu()
        numbers = zip(self.noise_std.tolist(), self.brightness.tolist(), strict=True)
        for signal, (noise, level) in zip(self.signal.cpu(), numbers, strict=True):
            yield Snapshot(signal, mask, self.camera, noise, level, told)


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
    if options.dark_level is not None:
        dark = torch.full_like(dark, options.dark_level / unit)
    signal = signal - dark[:, None, None]
    if options.noise_std is not None:
        noise = torch.full_like(dark, options.noise_std / unit)
    elif with_noise:
        noise = estimate_noise(signal, mask, camera).to(dark)
    else:
        noise = torch.zeros_like(dark)
    level, told = checks.brightness(signal, light), told_spread(options, mask)
    return Prepared(signal, mask, camera, dark, noise, level, told)


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


@part("checks")
def inspect(
    measurement: Measurement, mask: Mask, camera: CASSI, options: Options, device: torch.device
) -> Inspection:
    """Corrections, dark level, noise, brightness and registration of a snapshot that fits."""
    aperture = as_mask_batch(torch.tensor(mask.values))
    checks.check_light(aperture)
    corrected, unit, findings = _corrected(measurement, aperture, camera, options)
    signal = torch.from_numpy(np.asarray(corrected / np.float32(unit), np.float32))
    # What people state and are told is in the measurement's own units, all else in the signal's.
    ready = prepare(signal[None], aperture, camera, options, unit)
    given = options.dark_level
    dark = unit * float(ready.dark) if given is None else given
    checks.check_signal(unit * signal, dark, is_given=given is not None)
    found = None
    if options.check_mask:
        found = register(signal.to(device), aperture[0].to(device), camera)
        checks.check_orientation(found, camera, _turned(measurement, mask))
    findings = (
        *checks.scale_findings(measurement.attrs),
        *findings,
        *checks.exposure_findings(signal, dark if given is None else 0.0),
        *checks.registration_findings(found),
    )
    (snapshot,) = ready.snapshots()
    source = _noise_source(measurement, options)
    return Inspection(snapshot, findings, unit, dark, source, found)


def with_noted_noise(options: Options, measurement: Measurement) -> Options:
    """The options with the noise that exposures have shown, unless one is stated."""
    noise = raw_frames.noted_noise(measurement)
    return (
        options
        if noise is None or options.noise_std is not None
        else replace(options, noise_std=noise)
    )


def _corrected(
    measurement: Measurement, mask: Tensor, camera: CASSI, options: Options
) -> tuple[raw_frames.Array, float, tuple[Finding, ...]]:
    """The frame `(H, L)` after its corrections, its scale, and what to say about them."""
    light = throughput(mask, camera).numpy()
    values, unit = measurement.values, noted_scale(measurement)
    # Ours are in fractions of full scale already.
    bits, said = (1.0, []) if unit != 1.0 else raw_frames.full_scale(values, options.bits)
    if options.check_mask:
        raw_frames.check_grey(values, light)
    made = raw_frames.correct(values, light, options)
    return made.values, unit * bits, (*said, *made.findings)


def _turned(measurement: Measurement, mask: Mask) -> dict[str, str]:
    """What a command was asked to turn, and how (`RawFrameOptions`)."""
    both = {"mask": mask.attrs, "snapshot": measurement.attrs}
    return {what: str(attrs["turned"]) for what, attrs in both.items() if "turned" in attrs}


def _noise_source(measurement: Measurement, options: Options) -> str:
    noted = raw_frames.noted_noise(measurement)
    if noted is not None and options.noise_std == noted:
        return f"from {measurement.attrs.get('exposures')} exposures"
    return "as estimated" if options.noise_std is None else "given"
