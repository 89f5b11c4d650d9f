"""Figures of cubes: colour, zoomed regions, error maps, single bands, and their spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.evaluation.figures.style import (
    DOTS,
    ERROR_COLOURS,
    INK,
    WIDTH,
    bare,
    figure_png,
    hide_rest,
    legend_above,
    series,
    styled,
    wrapped,
)
from prismask.scenes.colour import auto_exposure, band_image, to_srgb
from prismask.scenes.records import Cube

Values = NDArray[Any]
LARGEST = 2.7
"""Inches that one picture takes at most."""
ZOOM_COLOURS = ("#ffffff", "#f0e442")


@dataclass(frozen=True)
class Window:
    """A region shown larger."""

    row: int
    column: int
    side: int

    @property
    def box(self) -> tuple[slice, slice]:
        """Rows and columns."""
        return slice(self.row, self.row + self.side), slice(self.column, self.column + self.side)


@dataclass(frozen=True, eq=False)
class SceneView:
    """Reconstructions of one scene with their errors."""

    estimates: Mapping[str, Values]
    """Label → cube `(C, H, W)`."""
    errors: Mapping[str, Values]
    """Label → RMS error over the bands `(H, W)`, fractions of full scale."""
    wavelengths: Sequence[float]
    truth: Values | None = None
    """The true cube, where it may be shown."""
    exposure: float | None = None
    """Of the truth, so that all pictures are exposed alike; None: from the first estimate."""
    scores: Mapping[str, str] | None = None
    """Label → a word for its title, such as its PSNR."""

    @property
    def shown(self) -> dict[str, Values]:
        """Everything that has a picture."""
        return ({} if self.truth is None else {"truth": self.truth}) | dict(self.estimates)


def windows(error: Values, side: int | None = None) -> tuple[Window, ...]:
    """Two regions by rule: where the error is largest on average, and where it is in the middle."""
    side = side or max(8, 3 * min(error.shape) // 16)
    rows, columns = error.shape[0] // side, error.shape[1] // side
    if rows * columns < 2:
        return ()
    cut = error[: rows * side, : columns * side]
    mean = cut.reshape(rows, side, columns, side).mean((1, 3)).ravel()
    order = np.argsort(mean, kind="stable")
    chosen = (order[-1], order[len(order) // 2])
    return tuple(Window(int(p // columns) * side, int(p % columns) * side, side) for p in chosen)


def colours_figure(view: SceneView) -> bytes:
    """Colour, two zoomed regions and error maps; truth first where it may be shown, as PNG."""
    names = list(view.shown)
    first = next(iter(view.errors))
    zooms = windows(view.errors[first])
    top = max(float(np.percentile(100 * view.errors[first], 99.5)), 1e-3)
    rows = ("colour", *("zoom" for _ in zooms), "error")
    height, width = view.errors[first].shape
    side = min(WIDTH / len(names), LARGEST)
    sizes = [side * height / width if row != "zoom" else side for row in rows]
    with styled() as figure_class:
        figure = figure_class(figsize=(side * len(names) + 0.75, sum(sizes) + 0.5),
                              layout="constrained")  # fmt: skip
        panels = figure.subplots(len(rows), len(names), squeeze=False, height_ratios=sizes)
        for column, (label, picture) in enumerate(_pictures(view).items()):
            _colour_column(panels[:, column], picture, zooms)
            score = (view.scores or {}).get(label)
            panels[0, column].set_title(wrapped(label, 26) + (f"\n{score}" if score else ""))
            axes = panels[-1, column]
            if label in view.errors:
                shown = axes.imshow(100 * view.errors[label], cmap=ERROR_COLOURS, vmin=0, vmax=top,
                                    interpolation="nearest")  # fmt: skip
            else:
                axes.set_axis_off()
        for axes in panels.flat:
            bare(axes)
        bar = figure.colorbar(shown, ax=list(panels[-1]), fraction=0.05, pad=0.02, extend="max")
        bar.set_label("error, % of full scale")
        bar.outline.set_visible(False)
        return figure_png(figure, DOTS)


def bands_figure(view: SceneView, count: int = 5) -> bytes:
    """A few bands in their own colours, a row for each cube, as PNG."""
    at = np.asarray(view.wavelengths)
    chosen = np.unique(np.linspace(1, max(len(at) - 2, 1), count).round().astype(int))
    height, width = next(iter(view.errors.values())).shape
    side = WIDTH / len(chosen)
    rows = view.shown
    reference = view.truth if view.truth is not None else next(iter(view.estimates.values()))
    with styled() as figure_class:
        tall = 0.35 + len(rows) * side * height / width
        figure = figure_class(figsize=(WIDTH, tall), layout="constrained")
        panels = figure.subplots(len(rows), len(chosen), squeeze=False)
        for row, (label, cube) in enumerate(rows.items()):
            for column, band in enumerate(chosen):
                white = float(np.percentile(reference[band], 99.5))
                axes = panels[row, column]
                axes.imshow(band_image(cube[band], float(at[band]), white))
                bare(axes)
                if row == 0:
                    axes.set_title(f"{at[band]:.0f} nm")
            panels[row, 0].set_ylabel(wrapped(label, 22))
        return figure_png(figure, DOTS)


def _pictures(view: SceneView) -> dict[str, Values]:
    cubes = {
        label: Cube(np.asarray(values, np.float32), np.asarray(view.wavelengths))
        for label, values in view.shown.items()
    }
    exposure = view.exposure or auto_exposure(next(iter(cubes.values())))
    return {label: to_srgb(cube, exposure=exposure) for label, cube in cubes.items()}


def _colour_column(panels: Sequence[Any], picture: Values, zooms: Sequence[Window]) -> None:
    from matplotlib.patches import Rectangle

    panels[0].imshow(picture, interpolation="nearest")
    for axes, zoom, colour in zip(panels[1:], zooms, ZOOM_COLOURS, strict=False):
        panels[0].add_patch(
            Rectangle((zoom.column - 0.5, zoom.row - 0.5), zoom.side, zoom.side, fill=False,
                      edgecolor=colour, linewidth=1.2)
        )  # fmt: skip
        axes.imshow(picture[zoom.box], interpolation="nearest")


# --- spectra ------------------------------------------------------------------------------------


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
            listed = ", ".join("flat" if value is None else f"{value:.3f}" for value in found)
            axes.set_title(f"block {block + 1}: r = {listed}", loc="left", fontsize=8.5)
            axes.set_ylim(bottom=min(0.0, float(axes.get_ylim()[0])))
        hide_rest(list(panels.flat), count)
        name = "band" if wavelengths is None else "wavelength, nm"
        figure.supxlabel(name, fontsize=9)
        figure.supylabel("radiance, fraction of full scale", fontsize=9)
        legend_above(figure, panels.flat[0])
        return figure_png(figure, DOTS)


def _band_ticks(axes: Any, bands: int, wavelengths: Sequence[float] | None) -> None:
    ticks = np.unique(np.linspace(0, bands - 1, 4).round().astype(int))
    names = [str(p) if wavelengths is None else f"{wavelengths[p]:.0f}" for p in ticks]
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)
