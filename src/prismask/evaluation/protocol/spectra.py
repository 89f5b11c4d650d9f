"""The protocol `spectra`: which structures are planted, and what is measured about each.

- **amplitude kept**: the estimate minus the scene without the structure, projected on the structure
  (its mean over the bands taken off, so that an even offset does not count). 1: all of it is there;
  0: smoothed away; negative: upside down.
- **position error** in nm: where the strongest band around a line, or the weakest around each dip,
  lies in the mean spectrum of the pixels concerned, against the same for the truth, to fractions of
  a band by a parabola; of a cosine, its phase. NaN where no peak is found.
- **found**: 1 where every line or dip has a peak of its own, 0 where not.
- **inside**: share of the true values inside the interval, over the whole cube; **inside at the
  feature**: over the pixels and bands of the structure; **worst band**: of the band with fewest.
- **width**: mean width of the interval relative to the largest true value.

NaN where a method has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from prismask.checks import choose
from prismask.evaluation.metrics import score
from prismask.scenes.colour import lamp_names
from prismask.scenes.records import Cube
from prismask.scenes.synthetic.spectra import KINDS, Feature, Planted

Values = NDArray[np.float64]

LINES_NM = (5.0, 10.0, 20.0, 40.0)
PERIODS = (4.0, 7.0, 14.0, 28.0)
DISTANCES_NM = (20.0, 30.0, 40.0)
FAMILIES = ("FL", "HP", "LED")
"""How the names of the lamps begin."""
METRICS: dict[str, str] = {
    "kept": "amplitude kept",
    "position_nm": "position error [nm]",
    "found": "found",
    "sam": "SAM [°]",
    "psnr_paper": "PSNR paper [dB]",
    "inside": "inside",
    "inside_feature": "inside at the feature",
    "inside_worst_band": "inside, worst band",
    "width": "interval width",
}
"""Metrics and what people call them."""
REACH_NM = 25.0
"""Nanometres around a line in which its peak is looked for."""
QUICK = (
    Feature("smooth"), Feature("line", 10.0), Feature("cosine", 7.0), Feature("dips", 30.0),
    Feature("lamp", lamp="FL11"),
)  # fmt: skip
"""One of each, to try things out."""


def features(kinds: Sequence[str] | None = None) -> tuple[Feature, ...]:
    """All structures of these kinds, or of all kinds, in the order of the tables."""
    wanted = KINDS if kinds is None else [choose(kind, KINDS, "kind of feature") for kind in kinds]
    # The twelve of FL; FL3.1 to FL3.15 are a newer set of the same.
    lamps = [name for name in lamp_names() if name.startswith(FAMILIES) and "." not in name]
    listed = {
        "smooth": [Feature("smooth")],
        "line": [Feature("line", width) for width in LINES_NM],
        "cosine": [Feature("cosine", period) for period in PERIODS],
        "dips": [Feature("dips", distance) for distance in DISTANCES_NM],
        "laser": [Feature("laser")],
        "lamp": [Feature("lamp", lamp=name) for name in lamps],
    }
    return tuple(feature for kind in KINDS if kind in wanted for feature in listed[kind])


def feature_title(name: str, size: float) -> str:
    """`line` and 10 → line of 10 nm."""
    titles = {
        "line": f"line of {size:g} nm",
        "cosine": f"cosine of {size:g} bands",
        "dips": f"two dips {size:g} nm apart",
        "smooth": "smooth, nothing planted",
        "laser": "laser line",
    }
    return titles.get(name, name)


def measure(cube: Cube, planted: Planted) -> dict[str, float]:
    """All metrics of a reconstructed cube `(C, H, W)`."""
    assert cube.wavelengths is not None, "a planted structure lies at wavelengths"
    estimate, truth = (torch.tensor(part)[None] for part in (cube.values, planted.values))
    scores = score(estimate, truth, ("sam", "psnr_paper"))
    position, found = _position(cube.values, planted, cube.wavelengths)
    return {
        "kept": amplitude_kept(cube.values, planted),
        "position_nm": position,
        "found": found,
        **{name: float(value) for name, value in scores.items()},
        **_coverage(cube, planted),
    }


def amplitude_kept(estimate: NDArray[np.floating], planted: Planted) -> float:
    """Share of the structure that the estimate `(C, H, W)` has; NaN where none was planted."""
    smooth = planted.smooth[:, planted.where].astype(np.float64)
    structure = planted.values[:, planted.where] - smooth
    direction = structure - structure.mean(0)
    length = float((structure * direction).sum())
    if not length > 0:
        return math.nan
    return float(((estimate[:, planted.where] - smooth) * direction).sum()) / length


def _position(
    estimate: NDArray[np.floating], planted: Planted, wavelengths: Values
) -> tuple[float, float]:
    """Error in nm, and whether every line or dip was found."""
    feature = planted.feature
    if feature.kind == "smooth" or not planted.where.any():
        return math.nan, math.nan
    found, true = (
        (part[:, planted.where] - planted.smooth[:, planted.where]).mean(1, dtype=np.float64)
        for part in (estimate, planted.values)
    )
    if feature.kind == "cosine":
        return _phase_error(found, true, feature.size, wavelengths), math.nan
    # Dips point down, and what lies in the middle between two of them is neither.
    sign, reach = (-1.0, 0.4 * feature.size) if feature.kind == "dips" else (1.0, REACH_NM)
    errors = []
    for centre in planted.centres:
        there = peak_position(sign * true, wavelengths, centre, reach)
        if not math.isnan(there):  # the bands may be too wide to show it at all
            errors.append(abs(peak_position(sign * found, wavelengths, centre, reach) - there))
    known = [error for error in errors if not math.isnan(error)]
    is_found = float(len(known) == len(errors)) if errors else math.nan
    return (math.fsum(known) / len(known) if known else math.nan), is_found


def peak_position(curve: Values, wavelengths: Values, centre: float, reach: float) -> float:
    """Wavelength of the highest positive peak within `reach` nm of `centre`; NaN without one."""
    near = np.flatnonzero(np.abs(wavelengths - centre) <= reach)
    inner = near[(near > 0) & (near < len(curve) - 1)]
    peaks = [k for k in inner if curve[k] >= curve[k - 1] and curve[k] >= curve[k + 1]]
    peaks = [k for k in peaks if curve[k] > 0]
    if not peaks:
        return math.nan
    top = max(peaks, key=lambda k: float(curve[k]))
    left, middle, right = curve[top - 1 : top + 2]
    bend = left - 2 * middle + right
    offset = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return float(np.interp(top + offset, np.arange(len(curve)), wavelengths))


def _phase_error(found: Values, true: Values, period: float, wavelengths: Values) -> float:
    """How far a cosine's crests lie from where they belong, in nm (mean distance of bands)."""
    wave = np.exp(-2j * np.pi * np.arange(len(true)) / period)
    turn = np.angle(((found - found.mean()) @ wave) * np.conj((true - true.mean()) @ wave))
    step = float(wavelengths[-1] - wavelengths[0]) / (len(wavelengths) - 1)
    return abs(float(turn)) / (2 * np.pi) * period * step


def _coverage(cube: Cube, planted: Planted) -> dict[str, float]:
    names = ("inside", "inside_feature", "inside_worst_band", "width")
    if cube.lower is None or cube.upper is None:
        return dict.fromkeys(names, math.nan)
    inside = (planted.values >= cube.lower) & (planted.values <= cube.upper)
    feature = inside[planted.bands][:, planted.where]
    shares = (
        inside.mean(),
        feature.mean() if feature.size else math.nan,
        inside.mean((1, 2)).min(),
        (cube.upper - cube.lower).mean() / planted.values.max(),
    )
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
