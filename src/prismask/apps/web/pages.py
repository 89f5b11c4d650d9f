"""The pages, and the files they are made of."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from prismask.apps.web.api_common import Here, is_held
from prismask.apps.web.assets import PLOTLY, Asset, find_asset
from prismask.errors import DataMissingError

router = APIRouter(include_in_schema=False)


@router.get("/")
async def front(request: Request, site: Here) -> Response:
    """The upload form, or the one file that is looked at."""
    if site.choices is not None:
        return _answer(request, find_asset("upload.html"))
    return RedirectResponse(f"/results/{site.first}", 303)


@router.get("/results/{key}")
async def result_page(request: Request, site: Here, key: str) -> Response:
    """The page of a result; it asks the API for everything."""
    try:
        site.results.get(key)
    except DataMissingError:
        gone = find_asset("gone.html")
        return Response(gone.content, 404, {"Cache-Control": "no-store"}, gone.kind)
    return _answer(request, find_asset("view.html"))


@router.get("/static/{name}")
async def asset(request: Request, name: str) -> Response:
    """Styles and scripts."""
    if name != PLOTLY:
        return _answer(request, find_asset(name))
    # Reading and packing it takes a second, once.
    return _answer(request, await asyncio.to_thread(find_asset, name), "private, max-age=86400")


def _answer(request: Request, asset: Asset, keep: str = "no-cache") -> Response:
    headers = {"Cache-Control": keep, "ETag": asset.etag, "Vary": "Accept-Encoding"}
    if is_held(request, asset.etag):
        return Response(status_code=304, headers=headers)
    if asset.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.packed, media_type=asset.kind, headers=headers)
    return Response(asset.content, media_type=asset.kind, headers=headers)
