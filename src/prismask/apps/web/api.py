"""The HTTP API, what is read: the server and its results. `api_jobs` has what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse

from prismask import __version__
from prismask.apps.web.layers import BANDED, Layer, Scale, layers_of, render
from prismask.apps.web.places import places_of
from prismask.apps.web.results import Result
from prismask.apps.web.schemas import About, LayerFacts, Other, ResultFacts, Spectrum
from prismask.apps.web.site import Site
from prismask.apps.web.spectra import Region, spectra_csv, spectrum
from prismask.apps.web.uploads import safe_name
from prismask.scenes.formats.attributes import plain

# A result never changes under its id, but it may go: browsers keep pictures for an hour.
KEEP = {"Cache-Control": "private, max-age=3600, immutable"}
LONGEST_NOTE = 300
TITLES: Mapping[Layer, str] = {
    "rgb": "Colour",
    "band": "Band",
    "uncertainty": "Uncertainty",
    "error": "Error",
    "snapshot": "Snapshot",
    "mask": "Mask",
}

router = APIRouter(prefix="/api", tags=["results"])
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
    )


@router.get("/results/{key}")
def result_facts(site: Here, key: str) -> ResultFacts:
    """Size, wavelengths, layers and history of a result."""
    result = site.results.get(key)
    height, width = result.cube.size
    at = result.cube.wavelengths
    return ResultFacts(
        id=result.id,
        name=result.name,
        bands=result.cube.bands,
        height=height,
        width=width,
        wavelengths=None if at is None else [float(w) for w in at],
        layers=[_layer_facts(result, layer) for layer in layers_of(result)],
        others=[Other(id=other, name=name) for other, name in result.others],
        history=_history(result),
    )


@router.get(
    "/results/{key}/layers/{layer}.png",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}},
)
async def picture(
    site: Here, key: str, layer: Layer, band: int = 0, scale: Scale = "band", download: bool = False
) -> Response:
    """A layer as PNG, one pixel for each of the cube's."""
    result = site.results.get(key)
    shown = (key, layer, band if layer in BANDED else 0, scale if layer == "band" else "")
    content = await site.pictures.get(shown, partial(render, result, layer, band, scale))
    headers = dict(KEEP)
    if download:
        headers["Content-Disposition"] = _attachment(result, f"{layer}.png")
    return Response(content, media_type="image/png", headers=headers)


@router.get("/results/{key}/spectrum")
def one_spectrum(
    site: Here, key: str, region: Annotated[str, Query(description="left,top,right,bottom")]
) -> Spectrum:
    """The mean spectrum of a region with its error band."""
    return Spectrum(**spectrum(site.results.get(key), Region.parse(region)))


@router.get(
    "/results/{key}/spectra.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}}},
)
def several_spectra(
    site: Here, key: str, region: Annotated[list[str], Query(description="one for each column")]
) -> Response:
    """Spectra of regions as a table: one row a band."""
    result = site.results.get(key)
    text = spectra_csv(result, [Region.parse(one) for one in region])
    headers = {"Content-Disposition": _attachment(result, "spectra.csv")}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


@router.get(
    "/results/{key}/cube.nc",
    response_class=FileResponse,
    responses={200: {"content": {"application/x-netcdf": {}}}},
)
def cube_file(site: Here, key: str) -> FileResponse:
    """The cube as NetCDF-4, with error bars and history."""
    result = site.results.get(key)
    headers = {"Content-Disposition": _attachment(result, "cube.nc")}
    path = site.results.netcdf(key)
    return FileResponse(path, media_type="application/x-netcdf", headers=headers)


def _attachment(result: Result, ending: str) -> str:
    stem = safe_name(result.name).rsplit(".", 1)[0] or "cube"
    plain_stem = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in stem)
    return f'attachment; filename="{plain_stem}-{ending}"'


def _layer_facts(result: Result, layer: Layer) -> LayerFacts:
    height, width = result.cube.size
    record = {"snapshot": result.snapshot, "mask": result.mask}.get(layer)
    if record is not None:
        height, width = record.size
    low = high = None
    if layer == "uncertainty":
        low, high = 0.0, result.uncertainty_top
    elif layer == "error":
        low, high = -result.error_top, result.error_top
    return LayerFacts(
        name=layer, title=TITLES[layer], banded=layer in BANDED, width=width, height=height,
        low=low, high=high, offsets=places_of(result, layer),
    )  # fmt: skip


def _history(result: Result) -> dict[str, Any]:
    """Attributes that a person can read; long lists stay in the file."""
    return {
        str(key): value
        for key, value in plain(result.cube.attrs).items()
        if len(str(value)) <= LONGEST_NOTE or key == "findings"
    }
