"""Error bars that cover what they say: a learned scale for each value, made honest by conformal
calibration.

The scale of the error of a value is predicted from what is known without the truth, as a product
of powers (a linear model of logarithms):

    scale = e^(a_band) · brightness^b₁ · gradient^b₂ · residual^b₃ · std^b₄ · disagreement^b₅

where brightness and gradient are those of the estimate around the pixel, residual is how badly
the re-projected cube explains the snapshot there, std is the spread over mask samples, and
disagreement that of the answers of a network that is asked more than once (the last two are left
out where there are none). The exponents are fitted by least squares to log |error| on one half of
the validation scenes. On the other half the quantile q of |error| / scale is read off, and the
interval is estimate ± q · scale (split conformal prediction with a local scale).

What this promises: over scenes and masks like those it was fitted on, 90 % of the values lie
inside, on average over values, scenes and masks. It promises nothing about a single pixel, and
errors of neighbouring pixels go together, so what counts as independent evidence is the number of
scenes and masks, not of pixels; the spread of coverage over the scenes is stored beside it.

All of that holds behind the camera of the training. Cameras that are not like it are a class of
their own with quantiles of their own, where those were fitted (`inference.other_cameras`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape
from prismask.errors import ConfigError, WeightsError
from prismask.inference.strips import project, throughput
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
    "disagreement": "ask the network twice (`ways` of its record is 2)",
}
"""What makes an estimate have them."""
LEAST_LIGHT = 0.1
"""Throughput by which a residual is divided at least; at the ends of the dispersion it is 0."""
WINDOW = 5
"""Side of the neighbourhood that features are averaged over."""


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
    other_quantiles: dict[float, float] = field(default_factory=dict)
    """The same as `quantiles` behind cameras that are not the training's; empty: never fitted."""
    other_about: dict[str, Any] = field(default_factory=dict)
    """What those were fitted on, and the coverage by camera."""

    @property
    def knows_other_cameras(self) -> bool:
        """Whether it was fitted for cameras that are not the training's."""
        return bool(self.other_quantiles)

    def for_camera(self, is_another: bool) -> Interval:
        """The interval of one class of cameras: the training's, or any other.

        As it is, where nothing was fitted for the others: too narrow is better than none, and
        whoever uses it says so.
        """
        if not (is_another and self.knows_other_cameras):
            return self
        return replace(self, quantiles=self.other_quantiles)

    @property
    def spreads(self) -> set[str]:
        """What it needs of `SPREADS`."""
        return set(self.exponents) & set(SPREADS)

    def check(self, level: float, spreads: Collection[str]) -> None:
        """Raise `ConfigError` unless there is a quantile for `level` and it needs no other spread.

        To be asked before an estimate is made, which takes time.
        """
        self.quantile(level)
        _require(self.spreads - set(spreads))

    def half_width(self, features: dict[str, Tensor], band: int, level: float) -> Tensor:
        """q · scale for one band; each feature is `(…, H, W)`."""
        scale = _scale(features, self.exponents, self.bands[band])
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
        if self.knows_other_cameras:
            record["other_quantiles"] = _named(self.other_quantiles)
            record["other_about"] = dict(self.other_about)
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any], bands: int) -> Interval:
        """Read what `to_record` wrote, for a network of `bands` bands."""
        try:
            made = cls(
                tuple(float(a) for a in record["bands"]),
                {str(name): float(b) for name, b in record["exponents"].items()},
                _read(record["quantiles"]),
                dict(record.get("about", {})),
                _read(record.get("other_quantiles", {})),
                dict(record.get("other_about", {})),
            )
            if made.knows_other_cameras and set(made.other_quantiles) != set(made.quantiles):
                raise ValueError("its levels behind other cameras are not those behind its own")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WeightsError(
                f"the interval stored with the weights is damaged: {error}."
            ) from error
        unknown = set(made.exponents) - {*FEATURES, *SPREADS}
        if unknown or len(made.bands) != bands:
            raise WeightsError(
                f"the interval stored with the weights is for {len(made.bands)} bands and "
                f"{sorted(made.exponents)}; the network has {bands} bands and this version knows "
                f"{sorted((*FEATURES, *SPREADS))}. Calibrate again."
            )
        return made


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
        "gradient": _average(_slope(estimate)),
        "residual": _average(residual.abs()),
    }
    if std is not None:
        features["std"] = std
    if disagreement is not None:
        # Two answers can be equal by chance, and nothing follows from that for the pixel.
        features["disagreement"] = _average(disagreement)
    return features


def residual_planes(residual: Tensor, light: Tensor, camera: CASSI) -> Tensor:
    """The residual `(H, L)` where each band looks, in the cube's units, `(C, H, W)`, a view.

    light: the throughput `(H, L)` of the mask.
    """
    return camera.unshear((residual / light.clamp_min(LEAST_LIGHT))[None])[0]


def fit_interval(
    errors: Tensor, features: dict[str, Tensor], band: Tensor, scene: Tensor, bands: int
) -> Interval:
    """Fit an interval to pooled values.

    errors: estimate − truth, `(N,)`; features: each `(N,)`; band and scene: which one each value
    belongs to, `(N,)`. Values of every scene must be equally many for the quantiles to weigh
    scenes alike. Scenes with an even number shape the scale, the others calibrate it.
    """
    check_shape(errors, ("N",), "errors")
    scenes = sorted(set(scene.tolist()))
    if len(scenes) < 2:
        raise ConfigError("an interval needs at least two validation scenes: one half fits the "
                          "scale, the other calibrates it.")  # fmt: skip
    half = torch.tensor([place % 2 == 0 for place in range(len(scenes))])
    first = half[torch.bucketize(scene, torch.tensor(scenes))]
    intercepts, exponents = _least_squares(errors, features, band, bands, first)
    logs = torch.tensor(intercepts)[band]
    ratio = errors.abs() / _scale(features, exponents, logs)
    rest = ~first
    quantiles = {level: float(conformal_quantile(ratio[rest], level)) for level in LEVELS}
    about = {"values": int(errors.numel()), "scenes": len(scenes)}
    about |= _coverage_by_scene(ratio[rest], scene[rest])
    return Interval(tuple(intercepts), exponents, quantiles, about)


def coverage(truth: Tensor, lower: Tensor, upper: Tensor) -> float:
    """Share of the values that lie inside."""
    return float(((truth >= lower) & (truth <= upper)).float().mean())


def conformal_quantile(values: Tensor, level: float) -> Tensor:
    """The conformal quantile: the ⌈(n + 1)·level⌉-th smallest value."""
    count = values.numel()
    rank = min(count, -int(-(count + 1) * level // 1))
    return values.kthvalue(max(1, rank)).values


def _least_squares(
    errors: Tensor, features: dict[str, Tensor], band: Tensor, bands: int, use: Tensor
) -> tuple[list[float], dict[str, float]]:
    """log |error| on the logs of the features and one constant a band."""
    names = list(features)
    target = (errors[use].abs() + FLOOR).log().double()
    columns = torch.stack([(features[name][use] + FLOOR).log() for name in names], 1).double()
    which = F.one_hot(band[use], bands).double()
    matrix = torch.cat([columns, which], 1)
    # A touch of ridge keeps bands without values, and features that move together, in hand.
    gram = matrix.T @ matrix + 1e-6 * len(target) * torch.eye(matrix.shape[1]).double()
    solution = torch.linalg.solve(gram, matrix.T @ target)
    slopes = {name: float(value) for name, value in zip(names, solution, strict=False)}
    return [float(value) for value in solution[len(names) :]], slopes


def _scale(
    features: dict[str, Tensor], exponents: dict[str, float], constant: float | Tensor
) -> Tensor:
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


def _coverage_by_scene(ratio: Tensor, scene: Tensor) -> dict[str, Any]:
    """Each calibration scene against the quantile of the others: what a new scene may expect."""
    found = []
    for one in sorted(set(scene.tolist())):
        others = ratio[scene != one]
        if others.numel():
            here = ratio[scene == one]
            found.append(float((here <= conformal_quantile(others, 0.9)).float().mean()))
    if not found:
        return {}
    mean = sum(found) / len(found)
    return {"coverage_90_left_out": [round(value, 4) for value in (min(found), mean, max(found))]}


def _average(plane: Tensor) -> Tensor:
    """Mean over a window, of the pixels there are at the border."""
    return F.avg_pool2d(plane[None, None], WINDOW, 1, WINDOW // 2, count_include_pad=False)[0, 0]


def _slope(plane: Tensor) -> Tensor:
    """|∂y| + |∂x| of `(H, W)`, forward differences, 0 at the far border."""
    down = F.pad(plane.diff(dim=0).abs(), (0, 0, 0, 1))
    right = F.pad(plane.diff(dim=1).abs(), (0, 1))
    return down + right
