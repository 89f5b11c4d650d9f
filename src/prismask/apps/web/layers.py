"""The pictures of a result: what each layer is, and its pixels as PNG."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from prismask.apps.web.results import Result, Stretch
from prismask.errors import ConfigError, DataMissingError

Layer = Literal["rgb", "band", "uncertainty", "error", "snapshot", "mask"]
Scale = Literal["band", "cube"]
LAYERS: tuple[Layer, ...] = get_args(Layer)
BANDED: tuple[Layer, ...] = ("band", "uncertainty", "error")
"""Layers with one picture per band."""

Anchors = tuple[tuple[float, float, float], ...]
HEAT: Anchors = ((0.05, 0.03, 0.15), (0.35, 0.10, 0.45), (0.80, 0.25, 0.35), (0.98, 0.62, 0.20),
                 (1.00, 0.96, 0.72))  # fmt: skip
"""Dark to light, so that it also reads without colour."""
DIVERGING: Anchors = ((0.08, 0.25, 0.60), (0.45, 0.68, 0.90), (0.96, 0.96, 0.96),
                      (0.95, 0.62, 0.40), (0.65, 0.08, 0.12))  # fmt: skip
"""Too dark is blue, right is white, too bright is red."""
WHITE = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Display:
    """How a layer is shown."""

    band: int = 0
    scale: Scale = "band"
    """Whether the limits are those of the band or of the whole cube."""
    stretch: Stretch = "top"
    low: float | None = None
    high: float | None = None
    """Limits by hand, in the cube's units; both or neither."""
    reduction: int = 1
    """Pixels of the layer, in each direction, to one of the picture."""

    def __post_init__(self) -> None:
        limits = (self.low, self.high)
        if limits == (None, None):
            return
        if self.low is None or self.high is None or not np.isfinite([self.low, self.high]).all():
            raise ConfigError("contrast limits are two numbers: give low and high.")
        if not self.low < self.high:
            raise ConfigError(
                f"contrast limits are {self.low:g} to {self.high:g}; the second is to be larger."
            )


@dataclass(frozen=True)
class Picture:
    """A rendered layer: PNG, and the values at the ends of its colours where it has such."""

    content: bytes
    low: float | None = None
    high: float | None = None

    def __len__(self) -> int:
        return len(self.content)


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


def layer_size(result: Result, layer: Layer) -> tuple[int, int]:
    """Height and width of a layer in its own pixels."""
    record = {"snapshot": result.snapshot, "mask": result.mask}.get(layer)
    return result.cube.size if record is None else record.size


def render(result: Result, layer: Layer, shown: Display | None = None) -> Picture:
    """A layer as PNG."""
    shown = shown or Display()
    if layer not in layers_of(result):
        raise DataMissingError(f"this result has no {layer} layer.")
    if layer in BANDED:
        check_band(result, shown.band)
    if layer == "rgb":
        return Picture(encode(_colour(result, shown)))
    if layer == "band":
        low, high = band_limits(result, shown)
        return mapped(result.cube.values[shown.band], low, high, shown, hue_of(result, shown.band))
    if layer == "uncertainty":
        top = result.uncertainty_top
        return mapped(result.uncertainty(shown.band), 0.0, top, shown, HEAT)
    if layer == "error":
        top = result.error_top
        return mapped(result.error(shown.band), -top, top, shown, DIVERGING)
    record = result.snapshot if layer == "snapshot" else result.mask
    assert record is not None
    plane = record.values if record.values.ndim == 2 else record.values.mean(axis=0)
    low, high = result.plane_limits(layer, plane, shown.stretch)
    return mapped(plane, low, high, shown, WHITE)


def check_band(result: Result, band: int) -> None:
    """Raise unless the cube has this band."""
    if not 0 <= band < result.cube.bands:
        raise ConfigError(f"band is {band}; this cube has bands 0 to {result.cube.bands - 1}.")


def hue_of(result: Result, band: int) -> tuple[float, float, float]:
    """The colour of a band at its brightest: grey would hide which band is shown."""
    from prismask.scenes.colour import wavelength_to_rgb

    at = result.cube.wavelengths
    if at is None:
        return WHITE
    red, green, blue = (float(part) for part in wavelength_to_rgb(at[band]))
    return red, green, blue


def encode(picture: NDArray[np.uint8], table: NDArray[np.uint8] | None = None) -> bytes:
    """PNG, packed lightly: it is looked at once or twice, and now.

    With a `table` `(256, 3)` the picture `(H, W)` holds its rows: a third of the bytes.
    """
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    if table is not None:
        image.putpalette(table.tobytes())
    held = io.BytesIO()
    image.save(held, format="PNG", compress_level=3)
    return held.getvalue()


@lru_cache(maxsize=512)
def colour_table(colours: Anchors | tuple[float, float, float]) -> NDArray[np.uint8]:
    """256 colours `(256, 3)`: along `Anchors`, else from black to one colour on the sRGB curve.

    Each is the colour of a value on a linear scale.
    """
    from prismask.scenes.colour import encode_srgb

    steps = np.linspace(0, 1, 256)
    if isinstance(colours[0], float):
        table = encode_srgb(steps)[:, None] * np.asarray(colours)
    else:
        anchors = np.asarray(colours)
        stops = np.linspace(0, 1, len(anchors))
        table = np.stack([np.interp(steps, stops, channel) for channel in anchors.T], axis=1)
    return np.asarray(np.round(255 * table), dtype=np.uint8)


def mapped(
    values: NDArray[Any],
    low: float,
    high: float,
    shown: Display,
    colours: Anchors | tuple[float, float, float],
) -> Picture:
    """Values `(H, W)` between `low` and `high` in the colours of a table."""
    small = _reduced(np.asarray(values, dtype=np.float32), shown.reduction)
    level = (small - np.float32(low)) * np.float32(255 / (high - low))
    rows = np.round(np.clip(level, 0, 255)).astype(np.uint8)
    return Picture(encode(rows, colour_table(colours)), low, high)


def _reduced(values: NDArray[np.float32], factor: int) -> NDArray[np.float32]:
    """The means of blocks of `factor` × `factor`; those at the right and below may be smaller."""
    from PIL import Image

    if factor == 1:
        return values
    return np.asarray(Image.fromarray(np.ascontiguousarray(values)).reduce(factor))


def band_limits(result: Result, shown: Display) -> tuple[float, float]:
    """The values of a band shown black and brightest."""
    if shown.low is not None and shown.high is not None:
        return shown.low, shown.high
    return result.limits(None if shown.scale == "cube" else shown.band, shown.stretch)


def _colour(result: Result, shown: Display) -> NDArray[np.uint8]:
    """The cube as the eye would see it `(H, W, 3)`, or `(H, W)` where that is not known."""
    from PIL import Image

    from prismask.apps.cli.reconstruct import quick_look
    from prismask.errors import ValuesError
    from prismask.scenes.colour import encode_srgb, to_linear_srgb

    if shown.stretch == "top":
        picture = quick_look(result.cube)
    else:
        try:
            linear = to_linear_srgb(result.cube)
        except ValuesError:
            linear = result.cube.values.mean(axis=0, dtype=np.float64)
        brightest = linear.max(axis=-1) if linear.ndim == 3 else linear
        low, high = result.plane_limits("rgb", brightest, shown.stretch)
        picture = np.round(255 * encode_srgb((linear - low) / (high - low))).astype(np.uint8)
    if shown.reduction == 1:
        return picture
    return np.asarray(Image.fromarray(picture).reduce(shown.reduction))
