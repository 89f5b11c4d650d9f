"""What the API answers, as its OpenAPI description shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


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


class JobStatus(BaseModel):
    """How far a job is."""

    id: str
    name: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    position: int = Field(description="jobs before it in the queue")
    done: int
    total: int = Field(description="steps in all; 0 as long as nobody knows")
    seconds: float
    message: str
    findings: list[str] = Field(description="what was noticed about the snapshot; show it")
    result: str | None = Field(description="id of the result once the job is done")


class LayerFacts(BaseModel):
    """One kind of picture of a result."""

    name: str
    title: str
    banded: bool = Field(description="whether there is one for each band")
    width: int
    height: int
    low: float | None = None
    high: float | None = None
    offsets: list[tuple[float, float]] | None = Field(
        description="pixels to the right and down by which each band lies beside its place in the "
        "cube; empty: none does, null: nobody knows"
    )


class Other(BaseModel):
    """A result that is compared with."""

    id: str
    name: str


class ResultFacts(BaseModel):
    """A result: its size and everything that can be asked of it."""

    id: str
    name: str
    bands: int
    height: int
    width: int
    wavelengths: list[float] | None = Field(description="in nm")
    layers: list[LayerFacts]
    others: list[Other]
    history: dict[str, Any]


class Spectrum(BaseModel):
    """The mean spectrum of a region."""

    region: list[int] = Field(description="left, top, right, bottom; both ends included")
    pixels: int
    wavelengths: list[float] | None
    values: list[float]
    lower: list[float] | None
    upper: list[float] | None
    band_meaning: str | None = Field(description="what lower and upper are")
    reference: list[float] | None
