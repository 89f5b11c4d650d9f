"""The application: routes, guards, and errors as sentences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.middleware import Middleware
from starlette.routing import Match

from prismask import __version__
from prismask.apps.web import api, api_jobs, api_pictures, pages
from prismask.apps.web.guards import KnownHost, LastAnswer, SafeHeaders, UploadLimit
from prismask.apps.web.jobs import QueueFullError, told
from prismask.apps.web.remedies import page_words
from prismask.apps.web.site import Site
from prismask.apps.web.visitors import KnownVisitor
from prismask.errors import DataMissingError, PrismaskError
from prismask.parallel.cage import CancelledError, TimeLimitError

DESCRIPTION = (
    "Send a snapshot and its mask to `POST /api/jobs`, ask `GET /api/jobs/{id}` until it is done, "
    "and fetch `GET /api/results/{result}/cube.nc`."
)


def create_app(site: Site, hosts: tuple[str, ...], numbers: bool = False) -> FastAPI:
    """The application for `site`, which it closes at its end; the rest is as in `KnownHost`."""

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
            Middleware(LastAnswer),
            Middleware(KnownHost, hosts=hosts, numbers=numbers),
            Middleware(KnownVisitor, visitors=site.visitors),
            Middleware(UploadLimit, most_bytes=limits.upload_bytes, at_once=limits.uploads),
        ],
    )
    app.state.site = site
    app.openapi = partial(_description, app)  # type: ignore[method-assign]
    routers = [api.router, api_pictures.router, pages.router]
    if site.choices is not None:
        routers.append(api_jobs.router)
    for router in routers:
        app.include_router(router)
    app.state.all_routes = [*app.routes, *(route for router in routers for route in router.routes)]
    app.add_exception_handler(PrismaskError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(405, _wrong_method)
    app.add_exception_handler(Exception, _broken)
    return app


def _description(app: FastAPI) -> dict[str, Any]:
    """What OpenAPI says: fields of forms and of addresses can be left out, but not be null."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        bodies = [
            schema["properties"]
            for name, schema in made["components"]["schemas"].items()
            if name.startswith("Body_")
        ]
        fields = [field for body in bodies for field in body.values()]
        for path in made["paths"].values():
            for operation in path.values():
                fields += [one["schema"] for one in operation.get("parameters", ())]
        for field in fields:
            kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
            if len(kinds) == 1:
                del field["anyOf"]
                field.update(kinds[0])
        app.openapi_schema = made
    return app.openapi_schema


async def _refused(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, PrismaskError)
    status, headers = 422, {}
    if isinstance(problem, DataMissingError):
        status = 404
    elif isinstance(problem, QueueFullError):
        status, headers = 429, {"Retry-After": "30"}
    elif isinstance(problem, TimeLimitError | CancelledError):
        status = 408
    return JSONResponse({"detail": page_words(" ".join(told(problem).split()))}, status, headers)


async def _invalid(_: Request, problem: Exception) -> JSONResponse:
    # FastAPI's own answer repeats what was sent, which need not even be text.
    errors: list[Any] = list(getattr(problem, "errors", list)())
    parts = [f"{error['loc'][-1]}: {error['msg']}" for error in errors if error.get("loc")]
    return JSONResponse({"detail": "; ".join(parts) or "the request is not valid."}, 422)


async def _wrong_method(request: Request, _: Exception) -> JSONResponse:
    # Each function is a route of its own, and knows nothing of another method's.
    scope = request.scope
    allowed = {
        method
        for route in request.app.state.all_routes
        if route.matches(scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    listed = ", ".join(sorted(allowed))
    text = f"{request.method} is nothing that can be done here; {listed} is."
    return JSONResponse({"detail": text}, 405, {"Allow": listed})


async def _broken(_: Request, problem: Exception) -> JSONResponse:
    # The log has the traceback; a stranger gets none of it.
    return JSONResponse({"detail": "something went wrong in the server; its log says what."}, 500)
