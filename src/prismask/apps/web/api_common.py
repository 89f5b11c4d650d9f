"""What the parts of the HTTP API share: the site, what may be refused, names of downloads,
whether a browser already holds what it asks for, and what the API answers, as its OpenAPI
description shows it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field

from prismask.apps.web.remedies import FixedField, RemedyName
from prismask.apps.web.results import Result
from prismask.apps.web.site import Site
from prismask.apps.web.uploads import safe_name


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str = Field(description="a sentence for people")


class About(BaseModel):
    """The server: what it offers and what it allows."""

    version: str
    uploads: bool
    methods: list[str] = []
    models: list[str] = []
    default: str | None = Field(
        default=None, description="what a job without method and model gets behind the usual camera"
    )
    limits: dict[str, float] = {}
    seconds: dict[str, float] = Field(
        default={},
        description="what a snapshot of 256×256 takes here, by method, network standing for all of "
        "them; align, adapt (per step) and start come on top",
    )


class FieldFix(BaseModel):
    """A field of `POST /api/jobs` and what to enter there."""

    field: FixedField
    value: str


class JobStatus(BaseModel):
    """How far a job is."""

    id: str
    name: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    position: int = Field(description="jobs before it in the queue")
    done: int
    total: int = Field(description="steps in all; 0 as long as nobody knows")
    seconds: float
    seconds_left: float = Field(description="an estimate, with the jobs before it")
    message: str
    findings: list[str] = Field(description="what was noticed about the snapshot; show it")
    fixes: list[FieldFix] = Field(description="fields that would mend a job that failed")
    result: str | None = Field(description="id of the result once the job is done")


class LayerFacts(BaseModel):
    """One kind of picture of a result."""

    name: str
    title: str
    banded: bool = Field(description="whether there is one for each band")
    meaning: str = Field(description="what its values are; empty where it has none")
    width: int
    height: int
    offsets: list[tuple[float, float]] | None = Field(
        description="pixels to the right and down by which each band lies beside its place in the "
        "cube; empty: none does, null: nobody knows"
    )


class Other(BaseModel):
    """A result that is compared with."""

    id: str
    name: str


class RemedyFacts(BaseModel):
    """Something that may mend what was noticed; `POST …/again` runs it."""

    name: RemedyName
    title: str
    seconds: float = Field(description="what it will take, an estimate")


class NoticeFacts(BaseModel):
    """Something that was noticed about the snapshot or its cube."""

    level: Literal["warning", "note"]
    text: str
    remedies: list[RemedyFacts]


class ResultSummary(BaseModel):
    """A result in the list of all."""

    id: str
    name: str
    made: float = Field(description="seconds since 1970")
    bands: int
    height: int
    width: int
    warnings: int


class ResultFacts(BaseModel):
    """A result: its size and everything that can be asked of it."""

    id: str
    name: str
    bands: int
    height: int
    width: int
    wavelengths: list[float] | None = Field(description="in nm")
    wavelengths_assumed: bool = Field(description="whether no file and no person gave them")
    unit: str = Field(description="of the values")
    colours: list[str] | None = Field(description="each band's at its brightest, as #rrggbb")
    interval: str | None = Field(description="what the error bars are")
    notices: list[NoticeFacts]
    layers: list[LayerFacts]
    others: list[Other]
    history: dict[str, Any]


class Material(BaseModel):
    """A material of the library that a spectrum resembles."""

    name: str
    angle: float = Field(description="between the two spectra, in degrees")
    values: list[float] = Field(description="at the brightness of the spectrum")


class Spectrum(BaseModel):
    """The mean spectrum of a region."""

    region: list[float] = Field(
        description="left, top, right, bottom, both ends included; or the corners of a polygon"
    )
    pixels: int
    wavelengths: list[float] | None
    values: list[float]
    lower: list[float] | None
    upper: list[float] | None
    band_meaning: str | None = Field(description="what lower and upper are")
    reference: list[float] | None
    materials: list[Material] = Field(description="of the library, the nearest first")


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


def is_held(request: Request, etag: str) -> bool:
    """Whether `If-None-Match` names `etag`: the answer is then 304, without a body."""
    named = request.headers.get("if-none-match", "")
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in named.split(","))
