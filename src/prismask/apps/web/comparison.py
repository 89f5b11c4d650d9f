"""Two cubes of one scene side by side, and their difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from prismask.apps.web.layers import (
    DIVERGING,
    Display,
    Picture,
    band_limits,
    check_band,
    hue_of,
    mapped,
)  # fmt: skip
from prismask.apps.web.results import Result, top_of
from prismask.checks import size_text
from prismask.errors import ShapeError
from prismask.scenes.resample import check_same_bands

Side = Literal["other", "difference"]


def render_beside(result: Result, other: Result, side: Side, shown: Display) -> Picture:
    """A band of `other` with the limits and the colour that `result` has, or their difference."""
    mine, theirs = result.cube.values, other.cube.values
    if mine.shape != theirs.shape:
        raise ShapeError(
            f"{result.name} is {size_text(mine.shape)} and {other.name} {size_text(theirs.shape)}: "
            "pictures side by side need the same bands and size."
        )
    check_same_bands(result.cube, other.cube)
    check_band(result, shown.band)
    if side == "other":
        low, high = band_limits(result, shown)
        return mapped(theirs[shown.band], low, high, shown, hue_of(result, shown.band))
    top = difference_top(result, other)
    return mapped(mine[shown.band] - theirs[shown.band], -top, top, shown, DIVERGING)


def difference_top(result: Result, other: Result) -> float:
    """The largest difference on the colour scale, the same for all bands."""
    name = f"difference to {other.id}"

    def largest() -> tuple[float, float]:
        pairs = zip(result.cube.values, other.cube.values, strict=True)
        return 0.0, max(top_of(np.abs(mine - theirs)) for mine, theirs in pairs)

    return result.remembered(name, largest)[1]


def plain(shown: Display, side: Side) -> Display:
    """`shown` without what makes no difference to this picture."""
    return shown if side == "other" else replace(Display(), band=shown.band)
