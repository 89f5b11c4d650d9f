"""The HTTP API, facts and files of results; `api_pictures` and `api_jobs` have the rest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import FileResponse

from prismask import __version__
from prismask.apps.web.api_common import (
    KNOWN,
    NONE,
    WRONG,
    About,
    Here,
    LayerFacts,
    NoticeFacts,
    Other,
    RemedyFacts,
    ResultFacts,
    ResultSummary,
    Spectrum,
    attachment,
    bearer,
)
from prismask.apps.web.layers import BANDED, Layer, hue_of, layer_size, layers_of
from prismask.apps.web.remedies import notices
from prismask.apps.web.results import Result
from prismask.apps.web.site import Site
from prismask.apps.web.spectra import places_of, spectra_csv, spectrum
from prismask.scenes.formats.contents import plain
from prismask.scenes.regions import parse_region

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

router = APIRouter(
    prefix="/api", tags=["results"], dependencies=[Depends(bearer)], responses=KNOWN | WRONG
)
# What computes is a plain `def`, which runs in a thread: a large cube must not stop the others.


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
    headers = {"Content-Disposition": attachment(result, "spectra.csv")}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


@router.get(
    "/results/{key}/cube.nc",
    response_class=FileResponse,
    responses={200: {"content": {"application/x-netcdf": {}}}, **NONE},
)
def cube_file(site: Here, key: str) -> FileResponse:
    """The cube as NetCDF-4, with error bars and history."""
    result = site.results.get(key)
    headers = {"Content-Disposition": attachment(result, "cube.nc")}
    path = site.results.netcdf(key)
    return FileResponse(path, media_type="application/x-netcdf", headers=headers)


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
        else "half-width of the interval",
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
