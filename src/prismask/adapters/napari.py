"""Cubes, masks and snapshots in napari: `napari cube.nc`, or dropped onto its window.

A cube is one layer whose slider runs over the bands, counted from 0; the wavelength of the band is
written over the picture, because bands are not evenly spaced and a slider of napari is. Its error
bar is a second layer, hidden at first. napari finds the reader through `napari.yaml`, which this
package names as an entry point.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prismask.errors import PrismaskError
from prismask.scenes.formats.files import load
from prismask.scenes.formats.registry import identify
from prismask.scenes.records import Cube, Record

Layer = tuple[Any, dict[str, Any], str]
"""Values, how to show them, and napari's name of the kind."""
Paths = str | Sequence[str]

UNIT = " nm"
BRIGHT = 99.5
"""Percentile of the values at which the grey scale ends."""


def get_reader(path: Paths) -> Callable[[Paths], list[Layer]] | None:
    """A function that reads these files; None where one of them is in no format of ours."""
    try:
        for one in _listed(path):
            identify(Path(one))
    except PrismaskError:
        return None
    return read_layers


def read_layers(path: Paths) -> list[Layer]:
    """The layers of one file or of several; an open window tells their wavelengths from now on."""
    layers = [layer for one in _listed(path) for layer in layers_of(load(one), Path(one).stem)]
    viewer = _viewer()
    if viewer is not None:
        for event in (viewer.dims.events.current_step, viewer.layers.events):
            event.connect(tell_wavelength)  # connected twice it is still called once
    return layers


def tell_wavelength(event: Any = None) -> None:
    """Write the wavelength of the band that is shown over the picture; `event` says nothing new."""
    viewer = _viewer()
    if viewer is None:
        return
    text = next(filter(None, map(partial(_wavelength, viewer), reversed(viewer.layers))), "")
    if text or viewer.text_overlay.text.endswith(UNIT):  # what others write there is theirs
        viewer.text_overlay.text = text
        viewer.text_overlay.visible = bool(text)


def _wavelength(viewer: Any, layer: Any) -> str:
    """Of the band of `layer` that is shown, if it is a visible cube that knows it."""
    listed = layer.metadata.get("wavelengths_nm", ())
    if not layer.visible or not listed:
        return ""
    # Layers of fewer axes have the last ones of the window.
    point = viewer.dims.point[-layer.ndim :]
    band = round(float(layer.world_to_data(point)[0]))
    return f"{listed[band]:.1f}{UNIT}" if 0 <= band < len(listed) else ""


def _viewer() -> Any:
    """The window that is open; None without napari, or without one."""
    napari = sys.modules.get("napari")
    return None if napari is None else napari.current_viewer()


def layers_of(record: Record, name: str) -> list[Layer]:
    """The layers of a record: its values, and for a cube the width of its interval."""
    metadata: dict[str, Any] = {"prismask": dict(record.attrs)}
    axes = ("band", "y", "x")[-record.values.ndim :]
    if isinstance(record, Cube) and record.wavelengths is not None:
        metadata["wavelengths_nm"] = [float(at) for at in record.wavelengths]
    layers = [_layer(record.values, name, axes, metadata)]
    if isinstance(record, Cube) and record.lower is not None and record.upper is not None:
        width = record.upper - record.lower
        layers.append(
            _layer(width, f"{name}: width of the interval", axes, metadata, visible=False)
        )
    return layers


def _layer(
    values: Any, name: str, axes: tuple[str, ...], metadata: dict[str, Any], visible: bool = True
) -> Layer:
    low, high = float(min(0.0, values.min())), float(np.percentile(values, BRIGHT))
    limits = (low, high if high > low else low + 1.0)
    told = {"name": name, "contrast_limits": limits, "visible": visible, "metadata": metadata}
    return values, {**told, "axis_labels": axes}, "image"


def _listed(path: Paths) -> list[str]:
    return [path] if isinstance(path, str) else list(path)
