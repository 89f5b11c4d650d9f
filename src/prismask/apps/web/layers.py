"""The pictures of a result: what each layer is, and its pixels as PNG."""

from __future__ import annotations

import io
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from prismask.apps.cli.pictures import grey_picture
from prismask.apps.web.results import Result, top_of
from prismask.errors import ConfigError, DataMissingError

Layer = Literal["rgb", "band", "uncertainty", "error", "snapshot", "mask"]
Scale = Literal["band", "cube"]
LAYERS: tuple[Layer, ...] = get_args(Layer)
BANDED: tuple[Layer, ...] = ("band", "uncertainty", "error")
"""Layers with one picture a band."""

HEAT = ((0.05, 0.03, 0.15), (0.35, 0.10, 0.45), (0.80, 0.25, 0.35), (0.98, 0.62, 0.20),
        (1.00, 0.96, 0.72))  # fmt: skip
"""Dark to light, so that it also reads without colour."""
DIVERGING = ((0.08, 0.25, 0.60), (0.45, 0.68, 0.90), (0.96, 0.96, 0.96), (0.95, 0.62, 0.40),
             (0.65, 0.08, 0.12))  # fmt: skip
"""Too dark is blue, right is white, too bright is red."""


def layers_of(result: Result) -> list[Layer]:
    """The layers that a result has."""
    present: dict[Layer, bool] = {
        "rgb": True,
        "band": True,
        "uncertainty": result.has_uncertainty,
        "error": result.reference is not None,
        "snapshot": result.snapshot is not None,
        "mask": result.mask is not None,
    }
    return [layer for layer in LAYERS if present[layer]]


def render(result: Result, layer: Layer, band: int = 0, scale: Scale = "band") -> bytes:
    """A layer as PNG; `scale` says whether white is that of the band or of the whole cube."""
    if layer not in layers_of(result):
        raise DataMissingError(f"this result has no {layer} layer.")
    if layer in BANDED and not 0 <= band < result.cube.bands:
        raise ConfigError(f"band is {band}; this cube has bands 0 to {result.cube.bands - 1}.")
    return encode(_pixels(result, layer, band, scale))


def encode(picture: NDArray[np.uint8]) -> bytes:
    """PNG, packed lightly: it is looked at once or twice, and now."""
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(held, format="PNG", compress_level=3)
    return held.getvalue()


def colours(values: NDArray[Any], low: float, high: float, anchors: Any) -> NDArray[np.uint8]:
    """Values `(H, W)` between `low` and `high` as colours `(H, W, 3)`."""
    stops = np.linspace(0, 1, len(anchors))
    steps = np.linspace(0, 1, 256)
    table = np.stack([np.interp(steps, stops, channel) for channel in zip(*anchors, strict=True)])
    lookup = np.round(255 * table.T).astype(np.uint8)
    where = np.clip((values - low) / (high - low), 0, 1)
    return np.asarray(lookup[np.round(255 * where).astype(np.uint8)])


def _pixels(result: Result, layer: Layer, band: int, scale: Scale) -> NDArray[np.uint8]:
    if layer == "rgb":
        from prismask.apps.cli.reconstruct_job import quick_look

        return quick_look(result.cube)
    if layer == "band":
        return _band(result, band, scale)
    if layer == "uncertainty":
        return colours(result.uncertainty(band), 0, result.uncertainty_top, HEAT)
    if layer == "error":
        top = result.error_top
        return colours(result.error(band), -top, top, DIVERGING)
    record = result.snapshot if layer == "snapshot" else result.mask
    assert record is not None
    plane = record.values if record.values.ndim == 2 else record.values.mean(axis=0)
    return grey_picture(plane)


def _band(result: Result, band: int, scale: Scale) -> NDArray[np.uint8]:
    from prismask.scenes.colour import encode_srgb, wavelength_to_rgb

    values, at = result.cube.values[band], result.cube.wavelengths
    top = result.white if scale == "cube" else top_of(values)
    level = encode_srgb(values / top)
    if at is None:
        return np.asarray(np.round(255 * level), dtype=np.uint8)
    # From black through the band's own colour; grey would hide which band is shown.
    colour = tuple(float(part) for part in wavelength_to_rgb(at[band]))
    return colours(level, 0, 1, ((0.0, 0.0, 0.0), colour))
