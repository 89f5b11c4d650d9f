"""Error bars that cover what they say: a learned scale for each value, made honest by conformal
calibration.

The scale of the error of a value is predicted from what is known without the truth, as a product
of powers (a linear model of logarithms):

    scale = e^(a_band) · brightness^b₁ · gradient^b₂ · residual^b₃ · std^b₄ · disagreement^b₅

where brightness and gradient are those of the estimate around the pixel, residual is how badly
the re-projected cube explains the snapshot there, std is the spread over mask samples, and
disagreement that of the two answers of a mirror ensemble (the last two are left out where there are
none). The exponents are fitted by least squares to log |error| on one half of
the validation scenes. On the other half the quantile q of |error| / scale is read off, and the
interval is estimate ± q · scale (split conformal prediction with a local scale).

What this promises: over scenes and masks like those it was fitted on, 90 % of the values lie
inside, on average over values, scenes and masks. It promises nothing about a single pixel, and
errors of neighbouring pixels go together, so what counts as independent evidence is the number of
scenes and masks, not of pixels; the spread of coverage over the scenes is stored beside it.

All of that holds behind the camera of the training, with masks like those of the fit, of which
some may have been misplaced. Behind other cameras, and where a snapshot contradicts its mask,
errors grow by more than their predicted scale does. These are classes with quantiles of their own,
where those were fitted (`other_cameras`, `inconsistent_masks` beside this file), after conformal
prediction by class (Mondrian).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError, ValuesError, WeightsError
from prismask.inference.engine.tiling import project, throughput
from prismask.optics.camera import CASSI

FLOOR = 1e-3
"""Added before logarithms, in the network's units (white is 1)."""
LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Coverages whose quantiles are stored."""
FEATURES = ("brightness", "gradient", "residual")
SPREADS = ("std", "disagreement")
"""Features that only some estimates have."""
HOW_TO_GET = {
    "std": "draw samples",
    "disagreement": "make the network a mirror ensemble (`mirror_ensemble` of its record is 2)",
}
"""What makes an estimate have them."""
LEAST_LIGHT = 0.1
"""Throughput by which a residual is divided at least; at the ends of the dispersion it is 0."""
WINDOW = 5
"""Side of the neighbourhood that features are averaged over."""
OTHER_CAMERAS, INCONSISTENT_MASKS = "other_cameras", "inconsistent_masks"
"""Classes of snapshots that have quantiles of their own."""
OLD_NAMES = {"doubted_masks": INCONSISTENT_MASKS}
"""What weights of the first versions call them."""


@dataclass(frozen=True)
class Size:
    """How many times its predicted scale an interval reaches, for one class of snapshots."""

    quantiles: dict[float, float]
    """Coverage → q, of the same coverages as the interval's own."""
    about: dict[str, Any] = field(default_factory=dict)
    """What it was fitted on, and the coverage of what was left out."""

    def __post_init__(self) -> None:
        _check_quantiles(self.quantiles)


@dataclass(frozen=True)
class Interval:
    """A fitted interval; everything is in the network's units and bands."""

    bands: tuple[float, ...]
    """a_band, one for each band."""
    exponents: dict[str, float]
    """b of each feature; names a spread (`SPREADS`) if that is needed."""
    quantiles: dict[float, float]
    """Coverage → q."""
    about: dict[str, Any] = field(default_factory=dict)
    """What it was fitted on, and the coverage by scene."""
    classes: dict[str, Size] = field(default_factory=dict)
    """Other sizes, for classes of snapshots that it was fitted for."""

    def __post_init__(self) -> None:
        _check_quantiles(self.quantiles)
        for what, numbers in (("constant", self.bands), ("exponent", self.exponents.values())):
            for number in numbers:
                if not math.isfinite(number):
                    raise ValuesError(f"{what} {number:g} of an interval is no finite number.")

    def for_classes(self, names: Collection[str]) -> Interval:
        """The interval of snapshots that belong to the classes `names`.

        The widest where they belong to several. As it is, where none of them was fitted: too narrow
        is better than none, and whoever uses it says so.
        """
        known = [self.classes[name].quantiles for name in names if name in self.classes]
        if not known:
            return self
        return replace(
            self, quantiles={level: max(of[level] for of in known) for level in self.quantiles}
        )

    @property
    def spreads(self) -> set[str]:
        """What it needs of `SPREADS`."""
        return set(self.exponents) & set(SPREADS)

    def check(self, level: float, spreads: Collection[str]) -> None:
        """Raise `ConfigError` unless there is a quantile for `level` and it needs no other spread.

        To be called before an estimate is made, which takes time.
        """
        self.quantile(level)
        _require(self.spreads - set(spreads))

    def half_width(self, features: dict[str, Tensor], band: int, level: float) -> Tensor:
        """q · scale for one band; each feature is `(…, H, W)`."""
        scale = predicted_scale(features, self.exponents, self.bands[band])
        return scale * self.quantile(level)

    def quantile(self, level: float) -> float:
        """q for a coverage that was stored."""
        for known, value in self.quantiles.items():
            if abs(known - level) < 1e-6:
                return value
        stored = ", ".join(f"{100 * known:g} %" for known in sorted(self.quantiles))
        raise ConfigError(f"no interval of {100 * level:g} % is stored; there are {stored}.")

    def to_record(self) -> dict[str, Any]:
        """Plain values for a weights record."""
        record = {
            "bands": list(self.bands),
            "exponents": dict(self.exponents),
            "quantiles": _named(self.quantiles),
            "about": dict(self.about),
        }
        if self.classes:
            record["classes"] = {
                name: {"quantiles": _named(size.quantiles), "about": dict(size.about)}
                for name, size in self.classes.items()
            }
        return record

    @classmethod
    def from_record(
        cls, record: dict[str, Any], bands: int, source: str = "the weights"
    ) -> Interval:
        """Read what `to_record` wrote, for a network of `bands` bands.

        source: what it is stored with, for messages: the name of a file, where there is one.
        """
        try:
            made = cls(
                tuple(float(a) for a in record["bands"]),
                {str(name): float(b) for name, b in record["exponents"].items()},
                _read(record["quantiles"]),
                dict(record.get("about", {})),
                {
                    OLD_NAMES.get(name, name): Size(
                        _read(size["quantiles"]), dict(size.get("about", {}))
                    )
                    for name, size in record.get("classes", {}).items()
                },
            )
            for name, size in made.classes.items():
                if set(size.quantiles) != set(made.quantiles):
                    raise ValueError(f"its levels for {name} are not its own")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WeightsError(
                f"the interval stored with {source} is damaged: {str(error).rstrip('.')}. "
                "Calibrate again (`prismask calibrate`), or get the file anew."
            ) from error
        unknown = set(made.exponents) - {*FEATURES, *SPREADS}
        if unknown or len(made.bands) != bands:
            raise WeightsError(
                f"the interval stored with {source} is for {len(made.bands)} bands and "
                f"{sorted(made.exponents)}; the network has {bands} bands and this version knows "
                f"{sorted((*FEATURES, *SPREADS))}. Calibrate again."
            )
        return made


def _check_quantiles(quantiles: Mapping[float, float]) -> None:
    """Raise unless an interval of these has its lower end below and its upper end above."""
    before = 0.0
    for level, q in sorted(quantiles.items()):
        if not (0 < level < 1 and before <= q < math.inf):
            raise ValuesError(
                f"the {100 * level:g} % interval reaches {q:g} times its scale; coverages lie "
                "between 0 and 100 %, and none reaches less far than 0 or than a smaller one."
            )
        before = q


def _named(quantiles: Mapping[float, float]) -> dict[str, float]:
    return {f"{level:g}": value for level, value in quantiles.items()}


def _read(quantiles: Mapping[str, Any]) -> dict[float, float]:
    return {float(level): float(q) for level, q in quantiles.items()}


def cube_features(
    estimate: Tensor, signal: Tensor, mask: Tensor, camera: CASSI, spreads: Mapping[str, Tensor]
) -> Iterator[dict[str, Tensor]]:
    """Features of each band of `estimate (C, H, W)`.

    signal: the snapshot `(H, L)`; mask: `(1, 1|C, H, W)`; spreads: what there is of `SPREADS`, each
    `(C, H, W)`.
    """
    residual = signal - project(estimate, mask, camera)
    planes = residual_planes(residual, throughput(mask, camera), camera)
    for band, values in enumerate(estimate):
        here = {name: spread[band] for name, spread in spreads.items()}
        yield band_features(values, planes[band], **here)


def band_features(
    estimate: Tensor,
    residual: Tensor,
    std: Tensor | None = None,
    disagreement: Tensor | None = None,
) -> dict[str, Tensor]:
    """Features of one band: `estimate`, its share of the `residual`, its spreads, all `(H, W)`."""
    features = {
        "brightness": _average(estimate.abs()),
        "gradient": _average(_gradient(estimate)),
        "residual": _average(residual.abs()),
    }
    if std is not None:
        features["std"] = std
    if disagreement is not None:
        # Two answers can be equal by chance, and nothing follows from that for the pixel.
        features["disagreement"] = _average(disagreement)
    return features


def residual_planes(residual: Tensor, light: Tensor, camera: CASSI) -> Tensor:
    """The residual `(H, L)` where each band lands, in the cube's units, `(C, H, W)`, a view.

    light: the throughput `(H, L)` of the mask.
    """
    return camera.unshear((residual / light.clamp_min(LEAST_LIGHT))[None])[0]


def coverage(truth: Tensor, lower: Tensor, upper: Tensor) -> float:
    """Share of the values that lie inside."""
    return float(((truth >= lower) & (truth <= upper)).float().mean())


def predicted_scale(
    features: dict[str, Tensor], exponents: dict[str, float], constant: float | Tensor
) -> Tensor:
    """e^constant · Π feature^exponent, of features that are all of one shape."""
    _require(set(exponents) - set(features))
    some = next(iter(features.values()))
    logs = torch.zeros_like(some) + constant
    for name, exponent in exponents.items():
        logs = logs + exponent * (features[name] + FLOOR).log()
    return logs.exp()


def _require(missing: Collection[str]) -> None:
    """Raise `ConfigError` if features are missing."""
    if not missing:
        return
    names = sorted(missing)
    advice = ", ".join(HOW_TO_GET[name] for name in names if name in HOW_TO_GET)
    text = f"this interval needs {', '.join(names)}, which was not computed"
    how = f"{advice}, or calibrate again (`prismask calibrate`)" if advice else ""
    raise ConfigError(f"{text}: {how}." if how else f"{text}.")


def _average(plane: Tensor) -> Tensor:
    """Mean over a window, of the pixels there are at the border."""
    return F.avg_pool2d(plane[None, None], WINDOW, 1, WINDOW // 2, count_include_pad=False)[0, 0]


def _gradient(plane: Tensor) -> Tensor:
    """|∂y| + |∂x| of `(H, W)`, forward differences, 0 at the far border."""
    down = F.pad(plane.diff(dim=0).abs(), (0, 0, 0, 1))
    right = F.pad(plane.diff(dim=1).abs(), (0, 1))
    return down + right
