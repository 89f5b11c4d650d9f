"""What the parts of the HTTP API share: the site, what may be refused, names of downloads."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from prismask.apps.web.results import Result
from prismask.apps.web.schemas import Problem
from prismask.apps.web.site import Site
from prismask.apps.web.uploads import safe_name

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


async def site_of(request: Request) -> Site:
    """The site that this application serves."""
    site: Site = request.app.state.site
    return site


Here = Annotated[Site, Depends(site_of)]


def attachment(result: Result, ending: str) -> str:
    """The header that makes an answer a file with a harmless name."""
    stem = safe_name(result.name).rsplit(".", 1)[0] or "cube"
    plain_stem = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in stem)
    return f'attachment; filename="{plain_stem}-{ending}"'
