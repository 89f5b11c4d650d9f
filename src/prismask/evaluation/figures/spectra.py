"""Figures of spectra: correlation matrices, and curves of even blocks against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.evaluation.figures.series import DOTS, WIDTH, hide_rest, legend_above, series, wrapped
from prismask.evaluation.figures.style import INK, figure_png, styled

Values = NDArray[Any]


def correlation_figure(
    matrices: Mapping[str, Values], wavelengths: Sequence[float] | None
) -> bytes:
    """Matrices `(C, C)` side by side on one scale, as PNG."""
    count = len(matrices)
    lowest = min(float(matrix.min()) for matrix in matrices.values())
    side = min(WIDTH / count, 2.9)
    with styled() as figure_class:
        figure = figure_class(figsize=(side * count + 0.9, side + 0.5), layout="constrained")
        panels = figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0]
        for axes, (label, matrix) in zip(panels, matrices.items(), strict=True):
            shown = axes.imshow(matrix, cmap="cividis", vmin=lowest, vmax=1, origin="lower")
            axes.set_title(wrapped(label, 24))
            _band_ticks(axes, len(matrix), wavelengths)
        bar = figure.colorbar(shown, ax=list(panels), fraction=0.05, pad=0.02)
        bar.set_label("correlation over pixels")
        bar.outline.set_visible(False)
        name = "band" if wavelengths is None else "wavelength, nm"
        figure.supxlabel(name, fontsize=9)
        panels[0].set_ylabel(name)
        return figure_png(figure, DOTS)


def blocks_figure(
    truth: Values,
    estimates: Mapping[str, Values],
    spreads: Mapping[str, Values],
    wavelengths: Sequence[float] | None,
    correlations: Mapping[str, Sequence[float | None]],
) -> bytes:
    """Mean spectra of blocks `(K, C)`, each model against the truth, as PNG."""
    count, bands = truth.shape
    at = np.arange(bands) if wavelengths is None else np.asarray(wavelengths)
    columns = min(3, count)
    rows = -(-count // columns)
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.7 + 2.2 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
        for block in range(count):
            axes = panels.flat[block]
            axes.plot(at, truth[block], color=INK, linewidth=2.4, label="truth")
            for number, (label, values) in enumerate(estimates.items()):
                colour, marker = series(number)
                spread = spreads[label][block]
                axes.fill_between(at, values[block] - spread, values[block] + spread,
                                  color=colour, alpha=0.13, linewidth=0)  # fmt: skip
                axes.plot(at, values[block], color=colour, marker=marker, markersize=2.4,
                          linewidth=1, label=label)  # fmt: skip
            found = [correlations[label][block] for label in estimates]
            told = ", ".join("flat" if value is None else f"{value:.3f}" for value in found)
            axes.set_title(f"block {block + 1}: r = {told}", loc="left", fontsize=8.5)
            axes.set_ylim(bottom=min(0.0, float(axes.get_ylim()[0])))
        hide_rest(list(panels.flat), count)
        name = "band" if wavelengths is None else "wavelength, nm"
        figure.supxlabel(name, fontsize=9)
        figure.supylabel("radiance, fraction of full scale", fontsize=9)
        legend_above(figure, panels.flat[0])
        return figure_png(figure, DOTS)


def _band_ticks(axes: Any, bands: int, wavelengths: Sequence[float] | None) -> None:
    places = np.unique(np.linspace(0, bands - 1, 4).round().astype(int))
    names = [str(p) if wavelengths is None else f"{wavelengths[p]:.0f}" for p in places]
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
