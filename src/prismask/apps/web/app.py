"""The application: routes, guards, and errors as sentences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.middleware import Middleware

from prismask import __version__
from prismask.apps.web import api, api_jobs, pages
from prismask.apps.web.guards import KnownHost, SafeHeaders, UploadLimit
from prismask.apps.web.jobs import QueueFullError
from prismask.apps.web.process import CancelledError, TimeLimitError
from prismask.apps.web.site import Site
from prismask.errors import DataMissingError, PrismaskError

DESCRIPTION = (
    "Send a snapshot and its mask to `POST /api/jobs`, ask `GET /api/jobs/{id}` until it is done, "
    "and fetch `GET /api/results/{result}/cube.nc`."
)


def create_app(site: Site, hosts: tuple[str, ...] | None) -> FastAPI:
    """The application for `site`, which it closes at its end; `hosts` as in `KnownHost`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            site.close()

    limits = site.limits
    app = FastAPI(
        title="Prismask",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        # Both fetch their scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        middleware=[
            Middleware(SafeHeaders),
            Middleware(KnownHost, hosts=hosts),
            Middleware(UploadLimit, most_bytes=limits.upload_bytes, at_once=limits.uploads),
        ],
    )
    app.state.site = site
    app.include_router(api.router)
    if site.choices is not None:
        app.include_router(api_jobs.router)
    app.include_router(pages.router)
    app.add_exception_handler(PrismaskError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _broken)
    return app


async def _refused(_: Request, problem: Exception) -> JSONResponse:
    status, headers = 422, {}
    if isinstance(problem, DataMissingError):
        status = 404
    elif isinstance(problem, QueueFullError):
        status, headers = 429, {"Retry-After": "30"}
    elif isinstance(problem, TimeLimitError | CancelledError):
        status = 408
    return JSONResponse({"detail": " ".join(str(problem).split())}, status, headers)


async def _invalid(_: Request, problem: Exception) -> JSONResponse:
    # FastAPI's own answer repeats what was sent, which need not even be text.
    errors: list[Any] = list(getattr(problem, "errors", list)())
    parts = [f"{error['loc'][-1]}: {error['msg']}" for error in errors if error.get("loc")]
    return JSONResponse({"detail": "; ".join(parts) or "the request is not valid."}, 422)


async def _broken(_: Request, problem: Exception) -> JSONResponse:
    # The log has the traceback; a stranger gets none of it.
    return JSONResponse({"detail": "something went wrong in the server; its log says what."}, 500)
