"""Error bars whose widths are predicted value by value, made honest by conformal calibration.

A small regressor (`WidthHead`) predicts from what is known without the truth (`intervals.evidence`)
how far above and below each estimate the truth may lie. That alone promises nothing. So it is
fitted as many times as there are folds of scenes, each time without one fold, and on the scenes
that it has not seen the factor q is read off by which its reaches have to be multiplied,

    [estimate − q · below, estimate + q · above],

conformalised quantile regression (Romano et al., 2019) with a factor instead of a summand. q is the
conformal quantile for a little more than the level (`aim_of`), for scenes differ by more than what
is known of them foretells, and most of them are to hold it. Raising q until the worst of a few
scenes hold the level was tried: the scene that is left out is then missed the more the worse it is.
Reaches are raised to a power a little above 1 before (`contrast`): what a regressor says of scenes
that it has not seen is too even. The regressor that is stored has seen all scenes. Cameras that are
not the training's, and masks that their snapshot contradicts, are classes with factors of their own
(Mondrian).

What this promises: over scenes, lights, noise, masks and cameras like those of the fit
(`intervals.snapshots`) the level holds on average, and nearly for most scenes; what was found for
each scene, quarter of the intensities, band and condition is stored with it. It promises nothing
about a single pixel, nor about worlds unlike those.

How both are fitted is in `intervals.learn`; their numbers are stored with the weights as plain
lists, with a hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import two_digits
from prismask.errors import ConfigError, PrismaskError, ValuesError, WeightsError
from prismask.inference.alignment.search import Probe
from prismask.inference.camera_match import CameraMatch
from prismask.inference.intervals.evidence import VALUES, Evidence
from prismask.inference.options import Options
from prismask.wording import Finding

VERSION = 3
"""Of the record; those before it had other features or another form."""
OTHER_CAMERAS, INCONSISTENT_MASKS = "other_cameras", "inconsistent_masks"
"""Classes of snapshots that have factors of their own."""
LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Coverages that are fitted."""
REACH_BITS = 10
"""Bits that the reach of an end is known to: a thousandth of it. What lies beyond is as good as
random, and would be a good part of a cube's file."""
CHUNK = 1 << 16
"""Values whose reach is computed at a time: what they pass through stays in the cache."""
BEYOND = 4.0
"""Standard deviations beyond which a feature is taken to be no further: nothing was learned
there."""


def aim_of(level: float) -> float:
    """Share of the values of known scenes that a factor is to hold: 92 % at a level of 90 %."""
    return 1 - 0.8 * (1 - level)


@dataclass(frozen=True)
class Factors:
    """By what reaches are multiplied, for one class of snapshots."""

    quantiles: dict[float, float]
    """Coverage → factor on the reach that was predicted for it."""
    about: dict[str, Any] = field(default_factory=dict)
    """What it was fitted on."""


@dataclass(frozen=True, eq=False)
class WidthHead:
    """A regressor of how far an error reaches, value by value.

    From the features of a value it gives, for every level, how far above the estimate and how far
    below it the truth may lie: two hidden layers of a few dozen units, in logarithms, so that
    reaches are positive, and as running sums, so that a higher level never reaches less far.
    """

    names: tuple[str, ...]
    """Features that it takes, in order."""
    levels: tuple[float, ...]
    """Coverages, ascending."""
    centre: Tensor
    """Mean of each feature `(K,)`."""
    scale: Tensor
    """Its standard deviation `(K,)`."""
    layers: tuple[tuple[Tensor, Tensor], ...]
    """Weight `(out, in)` and bias `(out,)` of each layer; the last has two outputs per level."""
    contrast: float = 1.0
    """Exponent on the reach (`intervals.learn`)."""

    def __post_init__(self) -> None:
        sizes = [len(self.names), *(len(bias) for _, bias in self.layers)]
        fits = all(
            weight.shape == (out, into)
            for (weight, _), into, out in zip(self.layers, sizes, sizes[1:], strict=False)
        )
        if not (self.layers and fits and sizes[-1] == 2 * len(self.levels)):
            raise ValuesError("the layers of an interval's regressor do not fit each other.")
        if {len(self.centre), len(self.scale)} != {len(self.names)} or not self._is_finite:
            raise ValuesError("an interval's regressor holds numbers that are none.")
        if not 0 < self.contrast < math.inf:
            raise ValuesError(f"the contrast {self.contrast:g} of an interval is not above 0.")
        if list(self.levels) != sorted(set(self.levels)) or not all(0 < x < 1 for x in self.levels):
            raise ValuesError(f"levels {self.levels} of an interval do not ascend between 0 and 1.")

    @property
    def _is_finite(self) -> bool:
        parts = (self.centre, self.scale, *(part for layer in self.layers for part in layer))
        return all(bool(torch.isfinite(part).all()) for part in parts) and bool(
            (self.scale > 0).all()
        )

    def reach(self, features: Tensor, levels: int | None = None) -> tuple[Tensor, Tensor]:
        """`(K, N)` → how far above and below at the first `levels`, each `(levels, N)`, positive.

        Values lie side by side, not one below the other: products of such narrow matrices are
        several times faster that way.
        """
        hidden = (features - self.centre[:, None]).div_(self.scale[:, None])
        hidden.clamp_(-BEYOND, BEYOND)
        *inner, (weight, bias) = self.layers
        for one, offset in inner:
            hidden = F.silu(torch.addmm(offset[:, None], one, hidden), inplace=True)
        reach = ascending(torch.addmm(bias[:, None], weight, hidden), levels)
        above, below = reach.mul_(self.contrast).exp_()
        return above, below

    def to_record(self) -> dict[str, Any]:
        """Plain numbers, with a hash of them."""
        record = {
            "names": list(self.names),
            "levels": list(self.levels),
            "centre": plain(self.centre),
            "scale": plain(self.scale),
            "layers": [[plain(weight), plain(bias)] for weight, bias in self.layers],
            "contrast": self.contrast,
        }
        return {**record, "sha256": _hash(record)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> WidthHead:
        """Read what `to_record` wrote; raises `ValueError` where it is damaged."""
        numbers = {key: value for key, value in record.items() if key != "sha256"}
        if _hash(numbers) != record["sha256"]:
            raise ValuesError("the regressor's numbers are not those that were fitted")
        return cls(
            tuple(str(name) for name in record["names"]),
            tuple(float(level) for level in record["levels"]),
            torch.tensor(record["centre"], dtype=torch.float32),
            torch.tensor(record["scale"], dtype=torch.float32),
            tuple(
                (torch.tensor(w, dtype=torch.float32), torch.tensor(b, dtype=torch.float32))
                for w, b in record["layers"]
            ),
            float(record["contrast"]),
        )


def ascending(outputs: Tensor, levels: int | None = None) -> Tensor:
    """Two outputs per level, `(2 · all, N)` → logarithms of the reach above and below at the first
    `levels`, `(2, levels, N)`, ascending."""
    pairs = outputs.reshape(2, -1, outputs.shape[-1])[:, :levels]
    return torch.cat([pairs[:, :1], F.softplus(pairs[:, 1:])], 1).cumsum(1)


def plain(values: Tensor) -> Any:
    """Nested lists of numbers with six digits."""
    if values.ndim:
        return [plain(row) for row in values]
    return float(f"{float(values):.6g}")


def _hash(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class LearnedInterval:
    """A fitted interval."""

    head: WidthHead
    quantiles: dict[float, float]
    """Coverage → factor on the reach that was predicted for it."""
    classes: dict[str, Factors] = field(default_factory=dict)
    """Other factors, for classes of snapshots."""
    about: dict[str, Any] = field(default_factory=dict)
    """What it was fitted on, and how it did on what was left out."""

    def for_classes(self, names: Collection[str]) -> LearnedInterval:
        """The interval of snapshots that belong to the classes `names`; the widest of several."""
        known = [self.classes[name].quantiles for name in names if name in self.classes]
        if not known:
            return self
        widest = {level: max(of[level] for of in known) for level in self.quantiles}
        return replace(self, quantiles=widest)

    def place(self, level: float) -> int:
        """Which of the fitted levels it is."""
        for number, known in enumerate(self.head.levels):
            if abs(known - level) < 1e-6:
                return number
        stored = ", ".join(f"{100 * known:g} %" for known in self.head.levels)
        raise ConfigError(f"no interval of {100 * level:g} % is stored; there are {stored}.")

    def width_ratio(self, level: float) -> float:
        """Width of the 90 % interval over that of another level, on average over the fit."""
        widths: Mapping[str, float] = self.about.get("mean_widths", {})
        wanted, here = widths.get(f"{0.9:g}"), widths.get(f"{level:g}")
        return wanted / here if wanted and here else 1.0

    def reach(self, evidence: Evidence, level: float) -> tuple[Tensor, Tensor]:
        """How far above and below the truth may lie, each `(C, H, W)`, in the cube's units."""
        place = self.place(level)
        columns = [VALUES.index(name) for name in self.head.names]
        levels = self.head.levels[: place + 1]
        factors = torch.tensor([self.quantiles[one] for one in levels])[:, None] * evidence.level
        above, below = torch.empty_like(evidence.values), torch.empty_like(evidence.values)
        for band, features in enumerate(evidence.features()):
            ends = above[band].view(-1), below[band].view(-1)
            for start in range(0, len(ends[0]), CHUNK):
                here = slice(start, start + CHUNK)
                found = self.head.reach(features.flatten(1)[columns, here], place + 1)
                for reach, end in zip(found, ends, strict=True):
                    # Never less far than at a lower level, whatever the factors are.
                    end[here] = (reach * factors).amax(0)
        return above, below

    def ends(self, evidence: Evidence, level: float) -> tuple[Tensor, Tensor]:
        """Lower and upper end; light is not negative, so neither is the lower end."""
        above, below = self.reach(evidence, level)
        values = evidence.values
        lower, upper = torch.maximum(values - below, values.clamp_max(0)), values + above
        return rounded(lower, values), rounded(upper, values)

    def to_record(self) -> dict[str, Any]:
        """Plain values for a weights record."""
        return {
            "version": VERSION,
            "head": self.head.to_record(),
            "quantiles": {f"{level:g}": q for level, q in self.quantiles.items()},
            "classes": {
                name: {
                    "quantiles": {f"{level:g}": q for level, q in size.quantiles.items()},
                    "about": dict(size.about),
                }
                for name, size in self.classes.items()
            },
            "about": dict(self.about),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], source: str = "the weights") -> LearnedInterval:
        """Read what `to_record` wrote; source: what it is stored with, for messages."""
        try:
            if record["version"] != VERSION:
                raise ValueError(
                    f"it has version {record['version']}, and this program knows {VERSION}"
                )
            head = WidthHead.from_record(record["head"])
            sizes = {
                str(name): Factors(_read(size["quantiles"], head), dict(size.get("about", {})))
                for name, size in record["classes"].items()
            }
            own = Factors(_read(record["quantiles"], head))
            unknown = set(head.names) - set(VALUES)
            if unknown:
                raise ValueError(f"it needs {', '.join(sorted(unknown))}, which is not computed")
            return cls(head, own.quantiles, sizes, dict(record["about"]))
        except (KeyError, TypeError, ValueError, AttributeError, PrismaskError) as error:
            said = str(error).rstrip(".") or type(error).__name__
            raise WeightsError(
                f"the interval stored with {source} is damaged: {said}. Calibrate again "
                "(`prismask calibrate`), or get the file anew."
            ) from error


def rounded(ends: Tensor, values: Tensor) -> Tensor:
    """Ends of intervals around `values`, a little further out, with bits that mean nothing zero.

    What counts is how far an end lies from its value, so steps are a part of that: an error bar of
    a thousandth on a bright value is not widened.
    """
    reach = ends - values
    exponent = torch.frexp(reach)[1]
    step = torch.ldexp(torch.ones_like(ends), exponent - (REACH_BITS + 1))
    out = torch.where(reach > 0, (ends / step).ceil(), (ends / step).floor()) * step
    return torch.where(reach == 0, ends, out)


def coverage(truth: Tensor, lower: Tensor, upper: Tensor) -> float:
    """Share of the true values that lie inside."""
    return float(((truth >= lower) & (truth <= upper)).float().mean())


def _read(quantiles: Mapping[str, Any], head: WidthHead) -> dict[float, float]:
    """Factors by level; those of the head, no other ones, and all of them positive."""
    found = {float(level): float(q) for level, q in quantiles.items()}
    if set(found) != set(head.levels):
        raise ValueError("its levels are not those of its regressor")
    if not all(0 < q < math.inf for q in found.values()):
        raise ValueError("a factor on its reach is not above 0, or not finite")
    return {level: found[level] for level in head.levels}


# --- what is said about an interval --------------------------------------------------------------


def classes_of(match: CameraMatch, probe: Probe | None) -> list[str]:
    """The classes whose quantiles an interval is to have."""
    other = [OTHER_CAMERAS] if match.is_other_camera else []
    inconsistent = [INCONSISTENT_MASKS] if probe is not None and probe.is_inconsistent else []
    return other + inconsistent


def calibration_words(match: CameraMatch, interval: LearnedInterval, probe: Probe | None) -> str:
    """What an interval was fitted on, and what that has to do with this snapshot."""
    about = interval.about
    text = f"{about.get('snapshots')} snapshots of {about.get('scenes')} scenes"
    if probe is not None and probe.is_inconsistent:
        return f"{text}, including wrong masks"
    if not match.is_other_camera:
        return text
    if OTHER_CAMERAS not in interval.classes:
        return f"{text} with the training's camera, not this one"
    text = f"{text}, including {about.get('cameras')} other cameras"
    return text if match.is_within_reach else f"{text}, none of them like this one"


def interval_findings(
    match: CameraMatch, interval: LearnedInterval | None, stored: Mapping[str, Any] | None
) -> list[Finding]:
    """A remark where the interval was not made for the camera, or is of an older kind."""
    if interval is None and stored:
        text = (
            "there are no error bars: the interval stored with the weights is of an older kind, "
            "which held too little. `prismask calibrate` fits a new one."
        )
        return [Finding("note", text)]
    if interval is None or OTHER_CAMERAS in interval.classes or not match.is_other_camera:
        return []
    text = (
        "the interval was fitted behind the camera of the network's training, which is not this "
        "one: expect it to be too narrow. `prismask calibrate` fits it for others."
    )
    return [Finding("note", text)]


def probe_findings(
    probe: Probe | None, options: Options, is_searched: bool, is_widened: bool
) -> list[Finding]:
    """What to do about a mask that its snapshot contradicts.

    is_searched: whether a better pose was searched for already, and not found.
    is_widened: whether the interval knows of such masks.
    """
    if probe is None or not probe.is_inconsistent:
        return []
    bars = "widened" if is_widened else "those of a right mask"
    advice = "--align finds its pose."
    if options.pose is not None:
        advice = "The pose may no longer be right: leave --pose out."
    elif is_searched:
        advice = "No pose was found that explains it clearly better."
    text = (
        "the snapshot contradicts its mask: a mask shifted by a fraction of a pixel or blurred, or "
        f"a slightly different dispersion, would leave {two_digits(100 * probe.gain)} % less of it "
        f"unexplained. The cube may be worse than necessary; its error bars are {bars}. {advice}"
    )
    return [Finding("warning", text)]
