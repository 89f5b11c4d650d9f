"""The HTTP API, pictures: layers of a result, and of two side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from prismask.apps.web.api_common import KNOWN, NONE, WRONG, Here, Refusals, attachment, bearer
from prismask.apps.web.comparison import Side, render_beside
from prismask.apps.web.comparison import plain as plain_beside
from prismask.apps.web.etags import is_held
from prismask.apps.web.layers import BANDED, Display, Layer, Picture, Scale, layer_size, render
from prismask.apps.web.results import Result, Stretch
from prismask.apps.web.site import Site

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
