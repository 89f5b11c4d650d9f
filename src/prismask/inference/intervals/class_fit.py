"""Quantiles for a class of snapshots, from cubes that `reconstruct` makes of known scenes.

    q′ = the quantile, over snapshots of the class, of |truth − cube| / (upper − cube at q = 1),

taken of the cube that people get: in the camera's own bands and pixels, after everything that
`reconstruct` does. The scale keeps its shape. Every snapshot weighs alike.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.probe import SMALLEST
from prismask.inference.engine.frame import Engine
from prismask.inference.intervals.fit import (
    VALUES_PER_PAIR,
    conformal_quantile,
    coverage_left_out,
)
from prismask.inference.intervals.model import Interval, Size
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.optics.camera import CASSI
from prismask.scenes.records import Cube, Mask, Measurement

STRIP = 3
"""The rows are cut into so many parts, and the middle one is reconstructed with samples, each of
which costs as much as a cube. In the camera rows know nothing of each other, so this is a snapshot
as well; it has at least as many as a snapshot needs to say something about its mask."""


@dataclass(frozen=True)
class Circumstances:
    """What the snapshots are like."""

    noise_std: tuple[float, float] = (0.0, 0.0)
    """Range of the noise, as in `fit.calibrate`."""
    misplaced: float = 0.0
    """Share of masks that are shifted from where they were calibrated (`fit.misplaced`)."""


@dataclass(frozen=True, eq=False)
class Shot:
    """A snapshot whose truth is known; dispersed along the width."""

    truth: Tensor
    """`(C, H, W)`."""
    signal: Tensor
    """`(H, L)`."""
    mask: Tensor
    """`(h, w)`, as it is given to `reconstruct`."""

    def of_kind(self, kind: str) -> Shot:
        """All of it for a single pass, its middle rows for samples."""
        if kind != "sampled":
            return self
        height = self.truth.shape[-2]
        few = max(height // STRIP, min(height, SMALLEST))
        rows = slice((height - few) // 2, (height - few) // 2 + few)
        return Shot(self.truth[:, rows], self.signal[rows], self.mask[rows])

    def cube(self, ready: Reconstruction, camera: CASSI) -> Cube:
        """What `reconstruct` makes of it."""
        return ready.run(Measurement(self.signal.numpy()), Mask(self.mask.numpy()), camera)

    def ratios(self, cube: Cube, generator: torch.Generator) -> Tensor:
        """|truth − cube| in units of the predicted scale, of values chosen at random."""
        assert cube.upper is not None
        values = torch.tensor(cube.values)
        scale = (torch.tensor(cube.upper) - values).flatten()
        chosen = torch.randint(values.numel(), (VALUES_PER_PAIR,), generator=generator)
        errors = (self.truth - values).abs().flatten()
        # Where the scale vanishes no interval helps, except for values that are exactly right.
        return errors[chosen] / scale[chosen].clamp_min(1e-12)


def crops_by_scene(scenes: Tensor, scene_of: Sequence[int] | None) -> dict[int, list[Tensor]]:
    """The crops `(N, C, H, W)` of each scene, by its number."""
    numbers = list(range(len(scenes)) if scene_of is None else scene_of)
    return {
        name: [scene for scene, number in zip(scenes, numbers, strict=True) if number == name]
        for name in sorted(set(numbers))
    }


def fitted_kinds(stored: Mapping[str, Any]) -> list[str]:
    """What the record `interval` of some weights has; raises where it has nothing."""
    kinds = [kind for kind in ("single", "sampled") if kind in stored]
    if not kinds:
        raise ConfigError("the weights have no interval that could be fitted further.")
    return kinds


def with_unit_interval(
    engine: Engine, stored: Mapping[str, Any], kind: str, classes: Collection[str] = ()
) -> Reconstruction:
    """`reconstruct` with an interval whose half width is the predicted scale itself.

    classes: those that it is to tell apart.
    """
    known = Interval.from_record(stored[kind], engine.bands)
    ones = dict.fromkeys(known.quantiles, 1.0)
    unit = replace(known, quantiles=ones, classes={name: Size(ones) for name in classes})
    network = copy.copy(engine.model)
    network.record = {**network.record, "interval": {kind: unit.to_record()}}
    samples = int(stored["samples"]) if kind == "sampled" else 0
    level = next(iter(known.quantiles))
    options = Options(
        samples=samples, level=level, device=str(engine.device), check_mask=bool(classes)
    )
    return Reconstruction(options, network)


def with_class(
    interval: Interval,
    name: str,
    ratios: Sequence[Tensor],
    groups: Mapping[str, Sequence[int]],
    about: Mapping[str, Any],
) -> Interval:
    """The interval with a size for one more class.

    ratios: of each snapshot, `(values,)`, equally many; groups: which camera, scene … each belongs
    to. Of each group every member's coverage by the quantile of the others is kept.
    """
    levels = list(interval.quantiles)
    together = torch.cat(list(ratios))
    counts = torch.tensor([len(values) for values in ratios])
    members = {group: torch.tensor(of).repeat_interleave(counts) for group, of in groups.items()}
    quantiles = {level: float(conformal_quantile(together, level)) for level in levels}
    found = {
        "values": together.numel(),
        **{group: len(set(of)) for group, of in groups.items()},
        **{f"left_out_{group}": _left_out(together, of, levels) for group, of in members.items()},
    }
    size = Size(quantiles, {**found, **about})
    return replace(interval, classes={**interval.classes, name: size})


def _left_out(together: Tensor, member: Tensor, levels: Sequence[float]) -> dict[str, list[float]]:
    """`coverage_left_out` at every level; nothing where there is only one member."""
    found = {f"{level:g}": coverage_left_out(together, member, level) for level in levels}
    return {level: coverage for level, coverage in found.items() if coverage}
