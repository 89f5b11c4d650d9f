"""A measured camera as a picture: where light lands, how well a curve says so, and the mask."""

from __future__ import annotations

import numpy as np

from prismask.evaluation.figures.style import FAINT, INK, figure_png, styled
from prismask.optics.measured import MeasuredCamera

SHOWN = 200
"""Rows and columns of the mask's middle: all of it would show no cells."""


def camera_figure(found: MeasuredCamera) -> bytes:
    """PNG: the dispersion with its bands, what the curve misses, the middle of the mask."""
    nm = np.array([place.wavelength_nm for place in found.places])
    px = np.array([place.along for place in found.places])
    curve = found.curve
    fine = np.linspace(nm[0], nm[-1], 200)
    with styled() as figure_class:
        figure = figure_class(figsize=(9.6, 3.2), layout="constrained")
        places, misses, mask = figure.subplots(1, 3)
        places.plot(fine, curve(fine), color=FAINT, label="curve")
        places.plot(found.wavelengths, curve(found.wavelengths), "|", color=INK, label="bands")
        places.plot(nm, px, "o", color="#c0392b", markersize=4, label="measured")
        places.set(xlabel="wavelength [nm]", ylabel="position [px]", title="Where light lands")
        places.legend()
        misses.axhline(0, color=FAINT, linewidth=0.8)
        misses.plot(nm, px - curve(nm), "o", color="#c0392b", markersize=4, label="along")
        across = [place.across for place in found.places]
        misses.plot(nm, across, "x", color=INK, markersize=4, label="across the dispersion")
        most = max(0.1, 1.2 * float(np.abs([*(px - curve(nm)), *across]).max()))
        misses.set(xlabel="wavelength [nm]", ylabel="[px]", title="Measured − curve")
        misses.set_ylim(-most, most)
        misses.legend()
        height, width = found.mask.size
        top, left = max(0, (height - SHOWN) // 2), max(0, (width - SHOWN) // 2)
        cells = found.mask.values[top : top + SHOWN, left : left + SHOWN]
        mask.imshow(cells, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        mask.set_title(f"Middle of the mask, {height}×{width}")
        mask.set_axis_off()
        return figure_png(figure)
