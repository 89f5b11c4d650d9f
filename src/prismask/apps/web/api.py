"""The HTTP API, what is read: the server and its results. `api_jobs` has what is sent."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.security import HTTPBearer

from prismask import __version__
from prismask.apps.web.etags import is_held
from prismask.apps.web.layers import (
    BANDED,
    Display,
    Layer,
    Picture,
    Scale,
    hue_of,
    layer_size,
    layers_of,
    render,
)  # fmt: skip
from prismask.apps.web.places import places_of
from prismask.apps.web.regions import parse_region
from prismask.apps.web.remedies import notices
from prismask.apps.web.results import Result, Stretch
from prismask.apps.web.schemas import (
    About,
    LayerFacts,
    NoticeFacts,
    Other,
    Problem,
    RemedyFacts,
    ResultFacts,
    ResultSummary,
    Spectrum,
)  # fmt: skip
from prismask.apps.web.site import Site
from prismask.apps.web.spectra import spectra_csv, spectrum
from prismask.apps.web.uploads import safe_name
from prismask.scenes.formats.attributes import plain

# A result never changes under its id, but it may go: browsers keep pictures for an hour.
KEEP = {"Cache-Control": "private, max-age=3600, immutable"}
LONGEST_NOTE, LONGEST_UNIT = 300, 40
TITLES: Mapping[Layer, str] = {
    "rgb": "Colour",
    "band": "Band",
    "uncertainty": "Uncertainty",
    "error": "Error",
    "snapshot": "Snapshot",
    "mask": "Mask",
}

MOST_PIXELS = 2_000_000
"""Values of a region that are averaged at once; more are left to a thread."""
WIDEST = 16_384

Refusals = dict[int | str, dict[str, Any]]
KNOWN: Refusals = {
    401: {"model": Problem, "description": "the token is missing or wrong"},
    403: {"model": Problem, "description": "a foreign host or page"},
}
"""What every request may be answered."""
NONE: Refusals = {404: {"model": Problem, "description": "there is none, or no more"}}
WRONG: Refusals = {422: {"model": Problem, "description": "what was asked for does not fit"}}

bearer = HTTPBearer(auto_error=False, description="the token in the link that was printed")
"""For the description only: `visitors.KnownVisitor` stands before every request."""
router = APIRouter(
    prefix="/api", tags=["results"], dependencies=[Depends(bearer)], responses=KNOWN | WRONG
)
# What computes is a plain `def`, which runs in a thread: a large cube must not stop the others.


async def site_of(request: Request) -> Site:
    """The site that this application serves."""
    site: Site = request.app.state.site
    return site


Here = Annotated[Site, Depends(site_of)]


@router.get("/about")
async def about(site: Here) -> About:
    """What this server offers and allows."""
    choices = site.choices
    if choices is None:
        return About(version=__version__, uploads=False)
    limits = site.limits
    return About(
        version=__version__,
        uploads=True,
        methods=list(choices.methods),
        models=list(choices.models),
        default=choices.default,
        limits={
            "upload_bytes": limits.upload_bytes,
            "values": limits.values,
            "seconds": limits.seconds,
            "keep_seconds": limits.keep_seconds,
        },
        seconds=site.jobs.typical_seconds(choices.methods),
    )


@router.get("/results")
def result_list(site: Here) -> list[ResultSummary]:
    """All results that are kept, the newest first."""
    return [
        ResultSummary(
            id=one.id,
            name=one.name,
            made=one.made,
            bands=one.cube.bands,
            height=one.cube.size[0],
            width=one.cube.size[1],
            warnings=sum(notice.level == "warning" for notice in notices(one, None)),
        )
        for one in site.results.listed()
    ]


@router.get("/results/{key}", responses=NONE)
def result_facts(site: Here, key: str) -> ResultFacts:
    """Size, wavelengths, layers and history of a result."""
    result = site.results.get(key)
    height, width = result.cube.size
    at, attrs = result.cube.wavelengths, result.cube.attrs
    return ResultFacts(
        id=result.id,
        name=result.name,
        bands=result.cube.bands,
        height=height,
        width=width,
        wavelengths=None if at is None else [float(w) for w in at],
        wavelengths_assumed=attrs.get("wavelengths_from") == "default",
        unit=_unit(result),
        colours=None if at is None else [_hex(hue_of(result, b)) for b in range(len(at))],
        interval=_interval(result),
        notices=_notices(site, result),
        layers=[_layer_facts(result, layer) for layer in layers_of(result)],
        others=[Other(id=other, name=name) for other, name in result.others],
        history=_history(result),
    )


@router.get(
    "/results/{key}/layers/{layer}.png",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {}}},
        304: {"description": "the browser holds it already"},
        **NONE,
    },
)
async def picture(
    request: Request,
    site: Here,
    key: str,
    layer: Layer,
    band: Annotated[int, Query(ge=0)] = 0,
    scale: Annotated[Scale, Query(description="whose limits: the band's or the cube's")] = "band",
    stretch: Annotated[
        Stretch, Query(description="0 to the 99.5th percentile, percentiles, or all values")
    ] = "top",
    low: Annotated[float | None, Query(description="shown black; with high")] = None,
    high: Annotated[float | None, Query(description="shown brightest; with low")] = None,
    width: Annotated[
        int | None, Query(ge=1, le=WIDEST, description="pixels that are needed across")
    ] = None,
    download: bool = False,
) -> Response:
    """A layer as PNG, one pixel for each of the cube's, or fewer where `width` needs fewer.

    Display-Low and Display-High are the values at the ends of its colours, Display-Reduction the
    pixels of the layer, in each direction, to one of the picture.
    """
    result = site.results.get(key)
    shown = _display(result, layer, Display(band, scale, stretch, low, high), width)
    etag = f'"{zlib.crc32(repr((key, layer, shown)).encode()):08x}"'
    headers = KEEP | {"ETag": etag}
    if download:
        headers["Content-Disposition"] = _attachment(result, f"{layer}.png")
    elif is_held(request, etag):
        return Response(status_code=304, headers=headers)
    made: Picture = await site.pictures.get(
        (key, layer, shown), partial(render, result, layer, shown)
    )
    headers["Display-Reduction"] = str(shown.reduction)
    if made.low is not None and made.high is not None:
        headers |= {"Display-Low": f"{made.low:.6g}", "Display-High": f"{made.high:.6g}"}
    return Response(made.content, media_type="image/png", headers=headers)


REGION = "left,top,right,bottom in pixels, or x,y,x,y,x,y… for the corners of a polygon"


@router.get("/results/{key}/spectrum", responses=NONE)
async def one_spectrum(
    site: Here, key: str, region: Annotated[str, Query(description=REGION, examples=["0,0,0,0"])]
) -> Spectrum:
    """The mean spectrum of a region with its error band."""
    result = site.results.get(key)
    place = parse_region(region)
    place.check(result.cube.size)
    if place.pixels * result.cube.bands > MOST_PIXELS:
        return Spectrum(**await asyncio.to_thread(spectrum, result, place))
    return Spectrum(**spectrum(result, place))


@router.get(
    "/results/{key}/spectra.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}}, **NONE},
)
def several_spectra(
    site: Here,
    key: str,
    region: Annotated[list[str], Query(description=REGION + "; one for each column")],
) -> Response:
    """Spectra of regions as a table, one row per band, with the bounds of each."""
    result = site.results.get(key)
    text = spectra_csv(result, [parse_region(one) for one in region])
    headers = {"Content-Disposition": _attachment(result, "spectra.csv")}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


@router.get(
    "/results/{key}/cube.nc",
    response_class=FileResponse,
    responses={200: {"content": {"application/x-netcdf": {}}}, **NONE},
)
def cube_file(site: Here, key: str) -> FileResponse:
    """The cube as NetCDF-4, with error bars and history."""
    result = site.results.get(key)
    headers = {"Content-Disposition": _attachment(result, "cube.nc")}
    path = site.results.netcdf(key)
    return FileResponse(path, media_type="application/x-netcdf", headers=headers)


def _display(result: Result, layer: Layer, asked: Display, width: int | None) -> Display:
    """`asked` without what makes no difference to this layer: one picture for all who see it so."""
    factor = 1 if width is None else max(1, layer_size(result, layer)[1] // width)
    if layer == "band":
        by_hand = asked.low is not None
        return replace(
            asked, scale="band" if by_hand else asked.scale,
            stretch="top" if by_hand else asked.stretch, reduction=factor,
        )  # fmt: skip
    band = asked.band if layer in BANDED else 0
    stretch: Stretch = "top" if layer in BANDED else asked.stretch
    return Display(band, stretch=stretch, reduction=factor)


def _attachment(result: Result, ending: str) -> str:
    stem = safe_name(result.name).rsplit(".", 1)[0] or "cube"
    plain_stem = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in stem)
    return f'attachment; filename="{plain_stem}-{ending}"'


def _unit(result: Result) -> str:
    """The units in a few words for an axis; the history has all of them."""
    told = str(result.cube.attrs.get("units", "fraction of full scale"))
    first = re.split("[:;]", told)[0].strip()[:LONGEST_UNIT]
    return f"units {first}" if first.startswith("of ") else first


def _layer_facts(result: Result, layer: Layer) -> LayerFacts:
    height, width = layer_size(result, layer)
    meanings: dict[Layer, str] = {
        "rgb": "",
        "band": _unit(result),
        "uncertainty": "one standard deviation"
        if result.cube.std is not None
        else "half the width of the interval",
        "error": "cube − reference",
        "snapshot": "as it was recorded",
        "mask": "transmission",
    }
    return LayerFacts(
        name=layer, title=TITLES[layer], banded=layer in BANDED, meaning=meanings[layer],
        width=width, height=height,
        offsets=places_of(result, layer),
    )  # fmt: skip


def _notices(site: Site, result: Result) -> list[NoticeFacts]:
    estimates = None if site.choices is None else site.jobs.estimates
    return [
        NoticeFacts(
            level=one.level,
            text=one.text,
            remedies=[
                RemedyFacts(name=r.name, title=r.title, seconds=round(r.seconds, 1))
                for r in one.remedies
            ],
        )
        for one in notices(result, estimates)
    ]


def _interval(result: Result) -> str | None:
    if result.has_interval:
        return str(result.cube.attrs.get("interval", "interval"))[:LONGEST_NOTE]
    return "one standard deviation" if result.cube.std is not None else None


def _hex(colour: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def _history(result: Result) -> dict[str, Any]:
    """Attributes that a person can read; long lists stay in the file."""
    return {
        str(key): value
        for key, value in plain(result.cube.attrs).items()
        if len(str(value)) <= LONGEST_NOTE and key != "findings"
    }
