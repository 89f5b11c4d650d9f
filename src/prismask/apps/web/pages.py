"""The pages and what they are made of; all of it comes with the package."""

from __future__ import annotations

import asyncio
import gzip
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from prismask.apps.web.api import Here
from prismask.errors import DataMissingError

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PLOTLY = "plotly.js"

router = APIRouter(include_in_schema=False)


@router.get("/")
async def front(site: Here) -> Response:
    """The upload form, or the one file that is looked at."""
    if site.choices is not None:
        return _asset("upload.html")
    return RedirectResponse(f"/results/{site.first}", 303)


@router.get("/results/{key}")
async def result_page(site: Here, key: str) -> Response:
    """The page of a result; it asks the API for everything."""
    try:
        site.results.get(key)
    except DataMissingError:
        response = _asset("gone.html")
        response.status_code = 404
        return response
    return _asset("view.html")


@router.get("/static/{name}")
async def asset(request: Request, name: str) -> Response:
    """Styles and scripts."""
    if name != PLOTLY:
        return _asset(name)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    content = await asyncio.to_thread(_plotly, packed)
    headers = {"Cache-Control": "private, max-age=86400", "Vary": "Accept-Encoding"}
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=TYPES[".js"], headers=headers)


def _asset(name: str) -> Response:
    held = _assets().get(name)
    if held is None:
        raise DataMissingError("there is no such file.")
    kind = TYPES[Path(name).suffix]
    return Response(held, media_type=kind, headers={"Cache-Control": "no-cache"})


@cache
def _assets() -> dict[str, bytes]:
    """All of them by name; a name that is not among them leads nowhere."""
    return {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in TYPES}


@cache
def _plotly(packed: bool) -> bytes:
    """The script that comes in plotly's wheel."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return gzip.compress(text.encode(), 6) if packed else text.encode()
