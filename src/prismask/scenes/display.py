"""Records for the eye: one line, a card in a notebook, a plot."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import PrismaskError
from prismask.scenes.pictures import BRIGHT_PERCENTILE, grey_picture, png_bytes
from prismask.scenes.records import Cube, Mask, Measurement, Record
from prismask.scenes.spectra import axes_for

THUMBNAIL_SIDE = 160
"""Largest side of a thumbnail in pixels."""
MOST_FINDINGS = 5
_CARD = "display:flex;gap:1em;align-items:flex-start"


def summary(record: Record) -> str:
    """A record in one line."""
    kind, size = type(record).__name__, size_text(record.size)
    if isinstance(record, Cube):
        return ", ".join([f"{kind} {record.bands} bands × {size}", *_cube_facts(record)])
    low, high = float(record.values.min()), float(record.values.max())
    if isinstance(record, Mask):
        planes = f"{len(record.values)} planes × " if record.values.ndim == 3 else ""
        spread = "" if record.std is None else ", with spread"
        return f"{kind} {planes}{size}, {100 * float(record.values.mean()):.0f} % open{spread}"
    return f"{kind} {size}, {low:.3g} to {high:.3g}"


def as_html(record: Record) -> str:
    """A thumbnail beside the facts, with nothing loaded from elsewhere."""
    picture = base64.b64encode(png_bytes(thumbnail(record))).decode()
    lines = [f"<b>{escape(summary(record))}</b>"]
    shown = ("title", "model", "method", "interval", "residual", "trust_grade", "trust_because",
             "source")  # fmt: skip
    lines += [
        f"{escape(key)}: {escape(str(record.attrs[key])[:200])}"
        for key in shown
        if record.attrs.get(key)
    ]
    findings = record.attrs.get("findings", [])
    if isinstance(findings, list | tuple):
        lines += [escape(str(line)) for line in findings[:MOST_FINDINGS]]
    return (
        f'<div style="{_CARD}"><img alt="{type(record).__name__}" '
        f'src="data:image/png;base64,{picture}"><div>{"<br>".join(lines)}</div></div>'
    )


def thumbnail(record: Record) -> NDArray[np.uint8]:
    """A small picture `(H, W)` or `(H, W, 3)`: in colour where the wavelengths allow it."""
    values = record.values
    step = -(-max(record.size) // THUMBNAIL_SIDE)
    if isinstance(record, Cube):
        small = Cube(values[:, ::step, ::step], record.wavelengths, attrs=record.attrs)
        try:
            return small.rgb()
        except PrismaskError:  # wavelengths that are unknown, or that nobody sees
            values = small.values
    elif step > 1:
        values = values[..., ::step, ::step]
    return grey_picture(values.mean(axis=0) if values.ndim == 3 else values)


def plot_cube(cube: Cube, wavelength: float | None, ax: Any) -> Any:
    """The cube in colour, or one band of it with its scale."""
    if wavelength is None:
        ax = axes_for(ax)
        ax.imshow(cube.rgb(), interpolation="nearest")
        return _labelled(ax, summary(cube))
    band = cube.band(wavelength)
    assert cube.wavelengths is not None  # `band` has refused the others
    return _grey(cube.values[band], f"{cube.wavelengths[band]:g} nm", ax)


def plot_plane(record: Mask | Measurement, ax: Any) -> Any:
    """A mask or a measurement in grey."""
    values = record.values
    return _grey(values.mean(axis=0) if values.ndim == 3 else values, summary(record), ax)


def _grey(values: NDArray[Any], title: str, ax: Any) -> Any:
    ax = axes_for(ax)
    top = float(np.percentile(values, BRIGHT_PERCENTILE)) or 1.0
    low = min(0.0, float(values.min()))
    shown = ax.imshow(values, cmap="gray", vmin=low, vmax=top, interpolation="nearest")
    ax.figure.colorbar(shown, ax=ax, label="fraction of full scale")
    return _labelled(ax, title)


def _labelled(ax: Any, title: str) -> Any:
    ax.set(title=title, xlabel="x in pixels", ylabel="y in pixels")
    return ax


def _cube_facts(cube: Cube) -> list[str]:
    facts = []
    if cube.wavelengths is not None:
        facts.append(f"{cube.wavelengths[0]:.0f}–{cube.wavelengths[-1]:.0f} nm")
    if cube.lower is not None and cube.upper is not None:
        facts.append("with interval")
    if cube.std is not None:
        facts.append("with spread")
    return facts
