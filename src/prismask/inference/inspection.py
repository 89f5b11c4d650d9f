"""Inspection of a snapshot: everything that is known before anything is computed.

`prepare` reads the levels of any number of snapshots through one mask at once; `inspect` does that
for one record and looks for its mask as well.

Sizes that cannot fit are an error that names what would. Everything else (exposure, dark level,
scale, registration) is a `Finding`: a sentence for the person and for the result's history. What
can be put right without guessing (a dark level, a scale the network does not know) is put right,
and the finding says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.checks import size_text, two_digits
from prismask.errors import ShapeError, ValuesError
from prismask.inference import raw_frames
from prismask.inference.alignment.pose import (
    REACH,
    SMALLEST,
    MaskPose,
    Registration,
    register,
)
from prismask.inference.alignment.search import Probe
from prismask.inference.engine import project, throughput
from prismask.inference.options import DEFAULTS, MaskStd, Options
from prismask.optics.camera import CASSI, as_mask_batch, bands_between
from prismask.optics.noise import estimate_noise
from prismask.optics.shear import whole_step
from prismask.progress import part
from prismask.scenes.records import Mask, Measurement, check_mask_std
from prismask.scenes.units import noted_counts, noted_scale
from prismask.wording import Finding


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
    """How bright white would be (`brightness` of this module)."""
    mask_std: Tensor | None = None
    """How far the mask may be wrong, `(1, 1|C, H, W)`; None where unknown."""
    is_aligned: bool = False
    """Whether the mask is in the pose that this very snapshot says."""
    probe: Probe | None = None
    """What other poses of the mask would explain, if they were tried before the cube is made."""
    is_searched: bool = False
    """Whether a better pose of its mask was searched for."""
    bad: Tensor | None = None
    """Pixels `(H, L)` that say nothing about the light; `signal` is their neighbours' there, which
    methods with the capability `bad_pixels` do not look at. None: there are none."""

    def seen_by(self, cube: Tensor) -> Tensor:
        """The signal `(H, L)` with whatever `cube (C, H, W)` says at bad pixels."""
        if self.bad is None:
            return self.signal
        return torch.where(self.bad, project(cube, self.mask, self.camera), self.signal)


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
    """`(B,)`; zeros where it is not wanted."""
    brightness: Tensor
    """`(B,)`."""
    mask_std: Tensor | None = None
    """Of the mask, `(1, 1|C, H, W)`; None where unknown."""

    def snapshots(self) -> Iterator[Snapshot]:
        """One by one, on the CPU."""
        mask = self.mask.cpu()
        stated = None if self.mask_std is None else self.mask_std.cpu()
        numbers = zip(self.noise_std.tolist(), self.brightness.tolist(), strict=True)
        for signal, (noise, level) in zip(self.signal.cpu(), numbers, strict=True):
            yield Snapshot(signal, mask, self.camera, noise, level, stated)


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
    check_light(mask)
    light = throughput(mask, camera)
    dark = dark_level(signal, light)
    if options.dark_level is not None:
        dark = torch.full_like(dark, options.dark_level / unit)
    signal = signal - dark[:, None, None]
    if options.noise_std is not None:
        noise = torch.full_like(dark, options.noise_std / unit)
    elif with_noise:
        noise = estimate_noise(signal, mask, camera).to(dark)
    else:
        noise = torch.zeros_like(dark)
    level, stated = brightness(signal, light), stated_spread(options, mask)
    return Prepared(signal, mask, camera, dark, noise, level, stated)


@dataclass(frozen=True, eq=False)
class Inspection:
    """A snapshot that can be worked on, and what was noticed."""

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    unit: float
    """What 1 of the signal is in the snapshot's own units, or in counts: what was divided out."""
    dark: float
    """Dark level that was subtracted, in those units."""
    noise_from: str
    """Where the noise level comes from."""
    registration: Registration | None
    """How the mask lies on the snapshot; None where it is not wanted or cannot be seen."""
    in_counts: bool = False
    """Whether the snapshot's own units are counts."""

    def findings_in(self, pose: MaskPose) -> tuple[Finding, ...]:
        """What was noticed, less that the mask lies elsewhere if that is where `pose` has it."""
        at = self.registration
        if at is None or at.is_longer or not at.is_met_by(pose):
            return self.findings
        gone = registration_findings(at)
        return tuple(finding for finding in self.findings if finding not in gone)


@part("checks")
def inspect(
    measurement: Measurement, mask: Mask, camera: CASSI, options: Options, device: torch.device
) -> Inspection:
    """Corrections, dark level, noise, brightness and registration of a snapshot that fits."""
    aperture = as_mask_batch(torch.tensor(mask.values))
    check_light(aperture)
    corrected, scale, findings = _corrected(measurement, aperture, camera, options)
    signal = torch.from_numpy(np.asarray(corrected.values / np.float32(scale), np.float32))
    # What people state and read is in the measurement's own units, or in counts where those
    # were its pixels; all else is in the signal's.
    counts = noted_counts(measurement.attrs)
    unit = scale * (counts or 1)
    ready = prepare(signal[None], aperture, camera, options, unit)
    given = options.dark_level
    dark = unit * float(ready.dark) if given is None else given
    check_signal(unit * signal, dark, given is not None, counts is not None)
    check_noise(unit * signal, options.noise_std, counts is not None)
    found = None
    if options.check_mask:
        found = register(signal.to(device), aperture[0].to(device), camera)
        check_orientation(found, camera, _turned(measurement, mask))
    findings = (
        *scale_findings(measurement.attrs),
        *findings,
        *(number_findings(options, measurement) if counts is not None else ()),
        *exposure_findings(signal, dark if given is None else 0.0, counts is not None),
        *registration_findings(found),
        *(small_findings(measurement) if options.check_mask and found is None else ()),
    )
    (snapshot,) = ready.snapshots()
    if corrected.bad.any():
        snapshot = replace(snapshot, bad=torch.from_numpy(corrected.bad))
    source = _noise_source(measurement, options)
    if found is not None and not found.fits and options.noise_std is None:
        # What a wrong mask does not explain is taken for noise, and the self-check looks better.
        source = "as estimated through a mask that does not fit: too large"
    return Inspection(snapshot, findings, unit, dark, source, found, counts is not None)


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
) -> tuple[raw_frames.Corrected, float, tuple[Finding, ...]]:
    """The frame after its corrections, its scale, and what to say about them."""
    light = throughput(mask, camera).numpy()
    unit = noted_scale(measurement)
    # Ours are in fractions of full scale already.
    bits, said = (1.0, []) if unit != 1.0 else raw_frames.full_scale(measurement, options.bits)
    if options.check_mask:
        raw_frames.check_grey(measurement.values, light)
    made = raw_frames.correct(measurement, light, options)
    return made, unit * bits, (*said, *made.findings)


def _turned(measurement: Measurement, mask: Mask) -> dict[str, str]:
    """What a command turned, and how (`RawFrameOptions`)."""
    both = {"mask": mask.attrs, "snapshot": measurement.attrs}
    return {what: str(attrs["turned"]) for what, attrs in both.items() if "turned" in attrs}


def _noise_source(measurement: Measurement, options: Options) -> str:
    noted = raw_frames.noted_noise(measurement)
    if noted is not None and options.noise_std == noted:
        return f"from {measurement.attrs.get('exposures')} exposures"
    return "as estimated" if options.noise_std is None else "given"


def stated_spread(options: Options, mask: Tensor) -> Tensor | None:
    """What the options say of `mask (1, 1|C, H, W)`, `(1, 1|C, H, W)`; None: nothing."""
    stated = options.mask_std
    if stated is None:
        return None
    if not isinstance(stated, MaskStd):
        return torch.full_like(mask[:, :1], stated)
    planes = tuple(mask.shape[1:]) if mask.shape[1] > 1 else tuple(mask.shape[2:])
    values = as_mask_batch(torch.tensor(check_mask_std(stated.values, planes))).to(mask)
    if values.shape == mask.shape and torch.equal(values, mask):
        raise ValuesError(
            "mask_std is the mask itself. Give how far each of its pixels may be wrong: the "
            "standard deviation of repeated calibrations, or a number such as 0.03."
        )
    return values


SATURATED_SHARE = 1e-3
"""Share of pixels at the largest value from which a snapshot counts as clipped."""
LEAST_SATURATED = 4
"""Pixels there at least: every snapshot has one that is the brightest."""
CLOSED = 0.05
"""Throughput below which a sensor pixel counts as not lit."""
LEAST_CLOSED = 8
"""Closed pixels from which their median says something."""
LEAST_NOISE_COUNTS = 0.1
"""Noise in counts that no single exposure is below: rounding to counts alone leaves 0.29."""
LEAST_DARK = 2e-3
"""Dark level, as a fraction of the bright parts, below which there is none to speak of."""
TYPICAL_LEVEL = 0.45
"""Bright parts (99.5 %) of y / Σ shear(m) in the scenes that networks are trained on."""
WRONG_ORIENTATION_SCORE, CHANCE_SCORE = 16.0, 6.0
"""Score of another orientation from which a file is the wrong way round, if the mask as given
scores no more than chance does."""
KNOWN_LEVELS = (0.1, 1.3)
"""Range of that number which networks have seen; outside it snapshots are brought to typical."""

MISPLACED_PLANE, LEAST_MISPLACED_NM = 0.5, 1.0
"""Distance of a mask's plane from its band, in steps from band to band and in nm, from which
somebody has mixed something up."""


Crop = tuple[int, int, int, int]
"""Top, left, height and width of a part of a mask."""
CROP_STEP, MOST_CROPS, MOST_REFINED = 12, 60, 3
"""Pixels between the parts of a large mask that are looked for in a snapshot, how many are at most,
and how many of the best are looked at once more."""

ORIENTATION_OPTIONS = {
    "as given": "as-given",
    "flipped left-right": "flipped-left-right",
    "flipped top-bottom": "flipped-top-bottom",
    "turned by 180°": "turned-180",
    "transposed": "transposed",
    "transposed along the other diagonal": "transposed-other-diagonal",
    "turned by 90° counterclockwise": "turned-90-counterclockwise",
    "turned by 90° clockwise": "turned-90-clockwise",
}
"""What each orientation is called on the command line."""


def check_fit(
    measurement: tuple[int, int],
    mask: tuple[int, int],
    camera: CASSI,
    look: Callable[[], Crop | None] = lambda: None,
) -> None:
    """Raise `ShapeError` with what would fit, unless the sizes go together.

    look: finds the part of a mask that is too large; called only then.
    """
    if camera.design == "single":
        fits = camera.measurement_size(mask) == measurement
    else:
        fits = camera.mask_size(measurement) == mask
    if fits:
        return
    wanted = (
        f"a measurement of {size_text(camera.measurement_size(mask))} for that mask"
        if camera.design == "single"
        else f"a mask of {size_text(camera.mask_size(measurement))} for that measurement"
    )
    raise ShapeError(
        f"the measurement is {size_text(measurement)} and the mask {size_text(mask)}; "
        f"{_dispersion(camera)} need {wanted}. {_advice(measurement, mask, camera, look)}"
    )


def find_crop(measurement: Measurement, mask: Mask, camera: CASSI) -> Crop | None:
    """Top, left, height and width of the part of a mask that is in the snapshot; None: no part is.

    The registration finds shifts of some pixels, so crops that far apart are tried.
    """
    height, width = _needed(measurement.size, camera)
    spare = mask.size[0] - height, mask.size[1] - width
    if min(height, width) <= 0 or min(spare) < 0:
        return None
    signal, planes = torch.tensor(measurement.values), torch.tensor(mask.values)

    def look(top: int, left: int) -> Registration | None:
        return register(signal, planes[..., top : top + height, left : left + width], camera)

    starts = [sorted({*range(0, room, CROP_STEP), room}) for room in spare]
    if len(starts[0]) * len(starts[1]) > MOST_CROPS:
        return None
    tried: list[tuple[float, int, int]] = []
    for top, left in product(*starts):
        found = look(top, left)
        if found is None:
            return None
        if found.found and found.orientation == "as given":
            rows, columns = found.shift
            at = min(max(top - rows, 0), spare[0]), min(max(left - columns, 0), spare[1])
            tried.append((found.best_score, *at))
    for _, top, left in sorted(tried, reverse=True)[:MOST_REFINED]:
        found = look(top, left)
        if found is not None and found.fits:
            return top, left, height, width
    return None


def check_signal(signal: Tensor, dark: float, is_given: bool, in_counts: bool = False) -> None:
    """Raise `ValuesError` if nothing is left of a snapshot `(H, L)` without its dark level.

    dark: what was subtracted, in the units of `signal`; is_given: whether it was stated.
    """
    left = signal - dark
    if float(left.max()) > 0 and float(left.mean()) > 0:
        return
    low, high = float(signal.min()), float(signal.max())
    if is_given and dark > 0 and high > 0:
        raise ValuesError(
            f"the dark level leaves nothing of the snapshot: it is {dark:.4g}, and the values run "
            f"from {low:.4g} to {high:.4g}{' counts' * in_counts}. It is {_units(in_counts)}; "
            "without --dark it is estimated from the snapshot."
        )
    raise ValuesError(
        f"there is no light in the snapshot: its values run from {low:.4g} to {high:.4g}. Is it a "
        "dark frame, was the wrong variable read, or too much background subtracted?"
    )


def check_noise(signal: Tensor, noise: float | None, in_counts: bool = False) -> None:
    """Raise `ValuesError` if a noise is stated that the snapshot `(H, L)` cannot have."""
    low, high = float(signal.min()), float(signal.max())
    if noise is not None and noise > high - low:
        raise ValuesError(
            f"--noise-std is {noise:.4g}, more than the whole range of the snapshot ({low:.4g} to "
            f"{high:.4g}{' counts' * in_counts}). It is a standard deviation {_units(in_counts)}; "
            "without it the noise is estimated from the snapshot."
        )


def _units(in_counts: bool) -> str:
    return "in counts, as the snapshot's pixels" if in_counts else "in the snapshot's own units"


def check_light(mask: Tensor) -> None:
    """Raise `ValuesError` if a mask is closed everywhere."""
    if not float(mask.max()) > 0:
        raise ValuesError(
            "the mask lets no light through. Check that the right variable of the file was read."
        )


def _advice(
    measurement: tuple[int, int],
    mask: tuple[int, int],
    camera: CASSI,
    look: Callable[[], Crop | None],
) -> str:
    if camera.design == "single" and camera.measurement_size(measurement) == mask:
        return "They would fit the other way round: are snapshot and mask swapped?"
    step = whole_step(camera.offsets)
    bands = bands_between(measurement, mask, camera.axis, abs(step)) if step else None
    if camera.design == "single" and bands is not None and bands > 1:
        return _other_dispersion(camera, bands, abs(step or 1))
    for turned, what in ((mask[::-1], "mask"), (mask, "measurement")):
        seen = measurement if what == "mask" else measurement[::-1]
        if camera.design == "single" and camera.measurement_size(turned) == seen:
            return (
                f"Turned by 90° the {what} would fit: transpose its file, or give "
                f"--turn-{'mask' if what == 'mask' else 'snapshot'} transposed."
            )
    other: Literal["width", "height"] = "height" if camera.axis == "width" else "width"
    sideways = CASSI(camera.offsets, other, camera.design)
    if sideways.design == "single" and sideways.measurement_size(mask) == measurement:
        return f"They would fit a prism that disperses along the {other}: give --axis {other}."
    smaller = any(m < s for m, s in zip(mask, _scene(measurement, camera), strict=True))
    if smaller and step is None and measurement[0] - mask[0] + measurement[1] - mask[1] > 0:
        along = 0 if camera.axis == "height" else 1
        if measurement[1 - along] == mask[1 - along]:
            return (
                f"These two sizes fit bands that spread over {measurement[along] - mask[along]} px:"
                " check the band offsets, or the polynomial that gives them."
            )
    other_spread = _other_spread(measurement, mask, camera)
    if smaller:
        text = "the mask is smaller than the scene: use the mask of the whole frame, or crop both."
        return f"{other_spread} Otherwise {text}" if other_spread else f"T{text[1:]}"
    height, width = _needed(measurement, camera)
    if not height or not width:
        return "Is one of them cropped? Crop the mask to the scene, or give the right dispersion."
    over = {"tall": mask[0] - height, "wide": mask[1] - width}
    listed = " and ".join(f"{more} px too {how}" for how, more in over.items() if more)
    what = "as large as the sensor" if mask == measurement else listed
    begins = f"{other_spread} Otherwise the mask" if other_spread else "The mask"
    found = look()
    if found is not None:
        return (
            f"{begins} is {what}. The part of it that matches this snapshot is --crop-mask "
            f"{','.join(map(str, found))} (TOP,LEFT,HEIGHT,WIDTH)."
        )
    return (
        f"{begins} is {what}, and this snapshot does not show which part of it covers the scene. "
        f"If it is the top left part, give --crop-mask 0,0,{height},{width} "
        "(TOP,LEFT,HEIGHT,WIDTH), otherwise another part of that size."
    )


def _other_spread(measurement: tuple[int, int], mask: tuple[int, int], camera: CASSI) -> str:
    """Over how many pixels the bands spread if the mask is right; empty if it cannot be.

    The camera may have been assumed: a mask that fits another one should not be cropped for it.
    """
    along = 0 if camera.axis == "height" else 1
    spread = measurement[along] - mask[along]
    if camera.design == "dual" or measurement[1 - along] != mask[1 - along] or spread <= 0:
        return ""
    step = f" ({camera.bands} bands would be {spread / (camera.bands - 1):.3g} px apart)"
    return (
        f"If the mask covers the scene, the spectrum spreads over {spread} px: give --bands and "
        f"--step{step if camera.bands > 1 else ''}."
    )


def _needed(measurement: tuple[int, int], camera: CASSI) -> tuple[int, int]:
    """Height and width of the mask for a measurement; 0 where none fits."""
    return camera.mask_size(measurement) if camera.design == "dual" else _scene(measurement, camera)


def _other_dispersion(camera: CASSI, bands: int, step: int) -> str:
    """The band count that fits, or the step at which the stated number of bands does."""
    spread = (bands - 1) * step
    other = spread / (camera.bands - 1) if camera.bands > 1 else 0.0
    if other and 2 * other == round(2 * other):
        return (
            f"These two sizes fit {camera.bands} bands at {other:g} px: give --step {other:g}, if "
            f"that is the camera. {bands} bands at {step} px would fit as well (--bands {bands})."
        )
    return (
        f"These two sizes fit {bands} bands at {step} px. If that is the camera, say "
        f"so: --bands {bands}."
    )


def _scene(measurement: tuple[int, int], camera: CASSI) -> tuple[int, int]:
    try:
        return camera.scene_size(measurement)
    except ShapeError:
        return (0, 0)


def _dispersion(camera: CASSI) -> str:
    step = whole_step(camera.offsets)
    how = f"at {abs(step)} px" if step is not None else f"over {max(camera.offsets):g} px"
    return f"{camera.bands} bands {how} along the {camera.axis}"


# --- exposure, dark level, scale ----------------------------------------------------------------


def saturated_share(signal: Tensor) -> float:
    """Share of the pixels that sit at the largest value, or 0 where they are too few to say."""
    count = int((signal >= signal.max()).sum()) if float(signal.max()) > 0 else 0
    return count / signal.numel() if count >= LEAST_SATURATED else 0.0


def dark_level(signal: Tensor, throughput: Tensor) -> Tensor:
    """What the sensor shows where no light is, or 0 where nothing speaks for an offset.

    signal: snapshots `(…, H, L)` → `(…,)`; throughput: of their mask, `(H, L)`.

    Two bounds from above, of which the lower one counts: the darkest half percent, and what is
    seen where the mask is closed for every band (near the ends of the dispersion few bands add
    up), less what leaks through closed openings into a scene of common brightness.
    """
    closed, lit = throughput < CLOSED, throughput > 0.5 * throughput.median()
    if int(closed.sum()) < LEAST_CLOSED or not bool(lit.any()):
        return signal.new_zeros(signal.shape[:-2])
    bright = _quantile(signal.flatten(-2), 0.999)
    darkest = _quantile(signal.flatten(-2), 0.005)
    common = _quantile(signal[..., lit] / throughput[lit], 0.5)
    leaked = common[..., None] * throughput[closed]
    level = torch.minimum(darkest, (signal[..., closed] - leaked).median(-1).values)
    is_offset = (bright > 0) & (level > LEAST_DARK * bright)
    return torch.where(is_offset, level, torch.zeros_like(level))


def brightness(signal: Tensor, throughput: Tensor) -> Tensor:
    """99.5 % quantile of y / Σ shear(m) where most bands add up: how bright white would be.

    signal: snapshots `(…, H, L)` → `(…,)`; throughput: of their mask, `(H, L)`.
    """
    lit = throughput > 0.5 * throughput.median()
    if not bool(lit.any()):
        return signal.new_zeros(signal.shape[:-2])
    return _quantile(signal[..., lit] / throughput[lit], 0.995)


def network_gain(level: Tensor, typical: float = TYPICAL_LEVEL) -> Tensor:
    """The factors that bring snapshots of brightness `level (…,)` to what networks know.

    1 for those that have it.
    """
    low, high = KNOWN_LEVELS[0] / TYPICAL_LEVEL, KNOWN_LEVELS[1] / TYPICAL_LEVEL
    exact = level.double()
    is_known = ~(exact > 0) | ((low * typical <= exact) & (exact <= high * typical))
    return torch.where(is_known, 1.0, typical / torch.where(is_known, 1.0, exact))


def _quantile(values: Tensor, level: float) -> Tensor:
    """A quantile along the last axis, from about 200,000 values of each."""
    some = values[..., :: max(1, values.shape[-1] // 200_000)]
    return some.float().quantile(level, dim=-1)


# --- sentences ----------------------------------------------------------------------------------


def scale_findings(attrs: Mapping[str, Any]) -> list[Finding]:
    """A number that might be meant as an exposure, and is not divided out (`noted_scale`)."""
    scale = attrs.get("scale")
    if not isinstance(scale, Real) or "scale_rule" in attrs:
        return []
    text = (
        f"the snapshot's attribute scale ({float(scale):.6g}) is not divided out: nothing says "
        "that it is an exposure. If it is one, note a scale_rule as well, such as 'given'."
    )
    return [Finding("note", text)]


def number_findings(options: Options, shot: Measurement) -> list[Finding]:
    """Numbers given with a snapshot of counts that look like fractions of full scale."""
    counts = 2**options.bits - 1 if options.bits else noted_counts(shot.attrs) or 1
    dark = options.dark_level
    stated = [("dark level", "--dark", dark, 1.0)]
    if "exposures" not in shot.attrs:  # of many exposures the mean may have as little
        stated.append(("noise", "--noise-std", options.noise_std, LEAST_NOISE_COUNTS))
    return [
        Finding(
            "warning",
            f"the {what} is taken as {number:.4g} counts, because the snapshot holds integers. "
            f"If you meant a fraction of full scale, give {option} {number * counts:.4g}.",
        )
        for what, option, number, least in stated
        if number is not None and 0 < number < least
    ]


def exposure_findings(signal: Tensor, dark: float, in_counts: bool = False) -> list[Finding]:
    """Clipping, and the dark level that will be subtracted, in the snapshot's own units."""
    found = []
    share = saturated_share(signal)
    if share > SATURATED_SHARE:
        found.append(
            Finding(
                "warning",
                f"{two_digits(100 * share)} % of the snapshot's pixels are at its largest value: "
                "it is overexposed, and spectra there are too dark. Shorten the exposure.",
            )
        )
    if dark:
        found.append(
            Finding(
                "note",
                f"a dark level of {dark:.4g}{' counts' * in_counts} is subtracted, estimated where "
                "no light arrives. Use --dark 0 to subtract nothing, or another level.",
            )
        )
    return found


def plane_findings(mask: Mask, at: NDArray[np.float64] | None) -> list[Finding]:
    """Planes of a mask that state clearly other wavelengths than those of the camera's bands."""
    planes = mask.wavelengths
    if planes is None or at is None or len(planes) != len(at):
        return []
    spacing = float(np.ptp(at)) / max(1, len(at) - 1)
    off = float(np.abs(planes - at).max())
    if off <= max(MISPLACED_PLANE * spacing, LEAST_MISPLACED_NM):
        return []
    text = (
        f"the mask's planes are for {planes[0]:g} to {planes[-1]:g} nm, the bands lie at "
        f"{at[0]:g} to {at[-1]:g} nm, up to {off:.3g} nm away. They are matched by their order. "
        "Correct the bands with --wavelengths, or give a mask measured at these bands."
    )
    return [Finding("warning", text)]


def wavelength_findings(at: NDArray[np.float64] | None, source: str, bands: int) -> list[Finding]:
    """What is assumed where the wavelengths of the bands are not stated."""
    if at is None:
        text = (
            f"the wavelengths of these {bands} bands are unknown: the cube has none, and its bands "
            "are assumed to be evenly spaced. Give them with --wavelengths."
        )
        return [Finding("note", text)]
    if source != "default":
        return []
    text = f"wavelengths {at[0]:g} to {at[-1]:g} nm are assumed; use --wavelengths to set them."
    return [Finding("note", text)]


def check_orientation(
    found: Registration | None, camera: CASSI, turned: Mapping[str, Any] | None = None
) -> None:
    """Raise `ValuesError` with the option to give, if a file is clearly the wrong way round.

    Along the dispersion a mirrored snapshot looks like a mirrored mask: both are named.
    turned: what was turned by an option, `mask` or `snapshot`, and how; undoing that comes first.
    """
    if found is None or found.orientation == "as given":
        return
    if found.best_score < WRONG_ORIENTATION_SCORE or found.score > CHANCE_SCORE:
        return
    if turned:
        said = " and ".join(f"--turn-{what} {how}" for what, how in turned.items())
        raise ValuesError(
            f"turned by {said}, the mask does not fit this snapshot (score "
            f"{found.score:.0f}); it does {found.orientation} (score {found.best_score:.0f}). "
            "Leave that out if the files were right, or use --no-check-mask to continue anyway."
        )
    name = ORIENTATION_OPTIONS[found.orientation]
    # What was done to a snapshot has to be undone; only quarter turns are not their own inverse.
    turns = ("turned-90-counterclockwise", "turned-90-clockwise")
    back = turns[1 - turns.index(name)] if name in turns else name
    across = "flipped top-bottom" if camera.axis == "width" else "flipped left-right"
    spectra = (
        "" if found.orientation == across else ", which also corrects the direction of the spectra"
    )
    raise ValuesError(
        f"the mask is in this snapshot, but {found.orientation} (score {found.best_score:.0f}, as "
        f"given {found.score:.0f}): one of the two files is the wrong way round. Give --turn-mask "
        f"{name} if it is the mask's, --turn-snapshot {back} if it is the snapshot's{spectra}. "
        "Use --no-check-mask to continue anyway."
    )


def registration_findings(found: Registration | None) -> list[Finding]:
    """What the registration check says, in a sentence; nothing where the mask fits."""
    if found is None or found.fits:
        return []
    if not found.found:
        text = (
            f"the mask's pattern is not found in the snapshot (score {found.score:.1f}; the right "
            "mask gives 8 or more), not even flipped, turned or shifted. Is it the mask of this "
            "instrument, in the sensor's own pixels?"
        )
        return [Finding("warning", text)]
    if found.orientation == "as given" and found.is_longer:
        text = (
            f"the mask's pattern is found over {found.span} px along the dispersion, but the "
            f"camera's bands land on {found.extent + 1} px only. More bands, or a larger step?"
        )
        return [Finding("warning", text)]
    better = [] if found.orientation == "as given" else [found.orientation]
    rows, columns = found.shift
    if abs(rows) >= 1 or abs(columns) >= 2:
        # The search ends there: the right place may be further away.
        more = " or more" if max(abs(rows), abs(columns)) >= REACH else ""
        better.append(f"shifted by {rows:+d} rows and {columns:+d} columns{more}")
    text = (
        f"the mask fits this snapshot clearly better {' and '.join(better) or 'elsewhere'} (score "
        f"{found.best_score:.0f} instead of {found.score:.0f}). {_mend(found)}"
    )
    return [Finding("warning", text)]


def small_findings(measurement: Measurement) -> list[Finding]:
    """That the mask was not checked."""
    text = (
        f"the snapshot of {size_text(measurement.size)} is too small to check that this is its "
        f"mask, in the right orientation: that takes {SMALLEST} rows and columns."
    )
    return [Finding("note", text)]


ALIGNED_SHIFT = 3
"""Pixels up to which aligning finds a mask that is only shifted."""


def _mend(found: Registration) -> str:
    """What to do about a mask that fits better elsewhere."""
    rows, columns = found.shift
    moved = abs(rows) >= 1 or abs(columns) >= 2
    if found.orientation == "as given":
        move = "ove the mask in its file, or crop both files from the same corner."
        if max(abs(rows), abs(columns)) > ALIGNED_SHIFT:
            return f"M{move}"
        return f"--align corrects such a shift in this snapshot; to correct it for good, m{move}"
    name = ORIENTATION_OPTIONS[found.orientation]
    return f"Give --turn-mask {name}{', and move the mask in its file' if moved else ''}."
