"""The HTTP API, pictures: layers of a result, of two side by side, and of their difference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response

from prismask.apps.web.api_common import (
    KNOWN,
    NONE,
    WRONG,
    Here,
    Refusals,
    attachment,
    bearer,
    is_held,
)
from prismask.apps.web.layers import (
    BANDED,
    DIVERGING,
    Display,
    Layer,
    Picture,
    Scale,
    band_limits,
    check_band,
    hue_of,
    layer_size,
    mapped,
    render,
)  # fmt: skip
from prismask.apps.web.results import Result, Stretch, top_of
from prismask.apps.web.site import Site
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


def plain_beside(shown: Display, side: Side) -> Display:
    """`shown` without what makes no difference to this picture."""
    return shown if side == "other" else replace(Display(), band=shown.band)


# A result never changes under its id, but it may go: browsers keep pictures for an hour.
KEEP = {"Cache-Control": "private, max-age=3600, immutable"}
WIDEST = 16_384

router = APIRouter(
    prefix="/api", tags=["pictures"], dependencies=[Depends(bearer)], responses=KNOWN | WRONG
)


async def display_of(
    band: Annotated[int, Query(ge=0)] = 0,
    scale: Annotated[Scale, Query(description="whose limits: the band's or the cube's")] = "band",
    stretch: Annotated[
        Stretch, Query(description="0 to the 99.5th percentile, percentiles, or all values")
    ] = "top",
    low: Annotated[float | None, Query(description="shown black; with high")] = None,
    high: Annotated[float | None, Query(description="shown brightest; with low")] = None,
) -> Display:
    """How a band is to be shown."""
    return Display(band, scale, stretch, low, high)


Seen = Annotated[Display, Depends(display_of)]
Width = Annotated[int | None, Query(ge=1, le=WIDEST, description="pixels that are needed across")]
PNG: Refusals = {
    200: {"content": {"image/png": {}}},
    304: {"description": "the browser holds it already"},
    **NONE,
}


@router.get("/results/{key}/layers/{layer}.png", response_class=Response, responses=PNG)
async def picture(
    request: Request,
    site: Here,
    key: str,
    layer: Layer,
    seen: Seen,
    width: Width = None,
    download: bool = False,
) -> Response:
    """A layer as PNG, one pixel for each of the cube's, or fewer where `width` needs fewer.

    Display-Low and Display-High are the values at the ends of its colours, Display-Reduction the
    pixels of the layer, in each direction, to one of the picture.
    """
    result = site.results.get(key)
    shown = replace(_plain(layer, seen), reduction=_reduction(result, layer, width))
    name = f"{layer}.png" if download else None
    return await _sent(
        request, site, result, (key, layer, shown), partial(render, result, layer, shown), name
    )


@router.get("/results/{key}/beside/{other}/{side}.png", response_class=Response, responses=PNG)
async def picture_beside(
    request: Request, site: Here, key: str, other: str, side: Side, seen: Seen, width: Width = None
) -> Response:
    """A band of another result, with the limits of this one; or what this has more than that."""
    result, second = site.results.get(key), site.results.get(other)
    shown = replace(plain_beside(seen, side), reduction=_reduction(result, "band", width))
    make = partial(render_beside, result, second, side, shown)
    return await _sent(request, site, result, (key, other, side, shown), make)


async def _sent(
    request: Request,
    site: Site,
    result: Result,
    shown: tuple[Any, ...],
    make: Callable[[], Picture],
    download: str | None = None,
) -> Response:
    """A picture, rendered where nobody has asked for it before; `shown` tells it from others."""
    etag = f'"{hashlib.sha256(repr(shown).encode()).hexdigest()[:20]}"'
    headers = KEEP | {"ETag": etag}
    if download is not None:
        headers["Content-Disposition"] = attachment(result, download)
    elif is_held(request, etag):
        return Response(status_code=304, headers=headers)
    made = await site.pictures.get(shown, make)
    headers["Display-Reduction"] = str(shown[-1].reduction)
    if made.low is not None and made.high is not None:
        headers |= {"Display-Low": f"{made.low:.6g}", "Display-High": f"{made.high:.6g}"}
    return Response(made.content, media_type="image/png", headers=headers)


def _reduction(result: Result, layer: Layer, width: int | None) -> int:
    return 1 if width is None else max(1, layer_size(result, layer)[1] // width)


def _plain(layer: Layer, seen: Display) -> Display:
    """`seen` without what makes no difference to a layer: one picture for all who see it so."""
    if layer != "band":
        is_banded = layer in BANDED
        return Display(seen.band if is_banded else 0, stretch="top" if is_banded else seen.stretch)
    return seen if seen.low is None else Display(seen.band, low=seen.low, high=seen.high)
