"""Figures that compare one reconstruction with the truth: error map, spectra, bands, overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import ShapeError, ValuesError
from prismask.evaluation.figures import cubes
from prismask.evaluation.figures.cubes import SceneView
from prismask.evaluation.figures.style import ERROR_COLOURS, FAINT, INK, bare, figure_png, styled
from prismask.scenes.colour import wavelength_to_rgb
from prismask.scenes.records import Cube

Picture = NDArray[np.uint8]
Box = tuple[slice, slice]

ESTIMATE_COLOUR = "#0072b2"
"""Blue that stays apart from the dark truth for every kind of colour vision."""


def error_map(estimate: Cube, truth: Cube) -> NDArray[np.float64]:
    """Root mean square error over the bands of each pixel `(H, W)`, in percent of full scale."""
    if estimate.values.shape != truth.values.shape:
        raise ShapeError(
            f"estimate {estimate.values.shape} and truth {truth.values.shape} differ in size."
        )
    difference = estimate.values.astype(np.float64) - truth.values
    return np.asarray(100 * np.sqrt(np.mean(difference**2, axis=0)))


def error_figure(estimate: Cube, truth: Cube) -> bytes:
    """The error map with its colour bar, as PNG."""
    errors = error_map(estimate, truth)
    top = max(float(np.percentile(errors, 99)), 1e-6)
    height, width = errors.shape
    with styled() as figure_class:
        figure = figure_class(figsize=(5.4, 0.35 + 4.4 * height / width), layout="constrained")
        axes = figure.add_subplot()
        shown = axes.imshow(errors, cmap=ERROR_COLOURS, vmin=0, vmax=top, interpolation="nearest")
        axes.set_axis_off()
        bar = figure.colorbar(shown, ax=axes, fraction=0.05, pad=0.02, extend="max")
        bar.set_label("error over all bands (RMS), % of full scale")
        bar.outline.set_visible(False)
        return figure_png(figure)


def spectra_figure(
    estimate: Cube,
    truth: Cube,
    patches: Mapping[str, Box],
    swatches: Mapping[str, Sequence[float]] | None = None,
    columns: int = 3,
) -> bytes:
    """Mean spectra of the patches, estimate against truth, as PNG.

    `patches` gives rows and columns by name; `swatches` a colour in [0, 1] for each, shown beside
    its name. The shaded band is the interval of a pixel, averaged over the patch; for an estimate
    without one, one standard deviation over its pixels.
    """
    at = _wavelengths(truth)
    rows = -(-len(patches) // columns)
    with styled() as figure_class:
        figure = figure_class(figsize=(8.2, 0.5 + 2.05 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (name, box) in zip(panels.flat, patches.items(), strict=False):
            _one_spectrum(axes, at, estimate, truth, box)
            colour = None if swatches is None else swatches.get(name)
            _title(axes, name, colour)
        for axes in panels.flat[len(patches) :]:
            axes.set_axis_off()
        for axes in panels.flat:
            axes.set_ylim(bottom=0)
            _rainbow(axes, at)
        figure.supxlabel("wavelength, nm", fontsize=9)
        figure.supylabel("radiance, fraction of full scale", fontsize=9)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        order = (0, 2, 1)
        figure.legend(
            [handles[index] for index in order],
            [labels[index] for index in order],
            loc="outside upper right",
            ncols=3,
        )
        return figure_png(figure)


def bands_figure(estimate: Cube, truth: Cube, count: int = 5) -> bytes:
    """A few bands in their own colours, truth above estimate, as PNG."""
    at = _wavelengths(truth).tolist()
    errors = {"reconstruction": error_map(estimate, truth)}
    view = SceneView({"reconstruction": estimate.values}, errors, at, truth.values)
    return cubes.bands_figure(view, count)


def overview_figure(
    snapshot: Picture,
    reconstruction: Picture,
    estimate: Cube,
    truth: Cube,
    patches: Mapping[str, Box],
    swatches: Mapping[str, Sequence[float]],
) -> bytes:
    """Snapshot, reconstruction and a few spectra side by side, as PNG: the demo at a glance."""
    at = _wavelengths(truth)
    wide = snapshot.shape[1] / snapshot.shape[0]
    square = reconstruction.shape[1] / reconstruction.shape[0]
    with styled() as figure_class:
        figure = figure_class(figsize=(10.2, 3.05), layout="constrained")
        first, second, third = figure.subplots(1, 3, width_ratios=(wide, square, 1.15))
        first.imshow(snapshot, cmap="gray", vmin=0, vmax=255)
        first.set_title("One coded snapshot …")
        second.imshow(reconstruction)
        second.set_title(f"… becomes {estimate.bands} bands, shown as colour …")
        for axes in (first, second):
            bare(axes)
        for name, box in patches.items():
            _spectrum_in_short(third, at, estimate, truth, box, tuple(swatches[name]))
        third.set_ylim(bottom=0)
        third.set_title("… a spectrum and error bar in every pixel")
        third.set_xlabel("wavelength, nm")
        third.set_ylabel("radiance, fraction of full scale")
        # The first patch stands for all.
        handles, labels = third.get_legend_handles_labels()
        third.legend(handles[:3], labels[:3], loc="upper left", fontsize=8)
        _rainbow(third, at)
        return figure_png(figure, 110)


def _one_spectrum(
    axes: Any, at: NDArray[np.float64], estimate: Cube, truth: Cube, box: Box
) -> None:
    axes.plot(at, _mean(truth.values, box), color=INK, linewidth=2.2, label="truth")
    low, high, label = _interval(estimate, box)
    axes.fill_between(at, low, high, color=ESTIMATE_COLOUR, alpha=0.22, linewidth=0, label=label)
    axes.plot(
        at, _mean(estimate.values, box), color=ESTIMATE_COLOUR, linewidth=1.2, marker="o",
        markersize=2.6, label="reconstruction",
    )  # fmt: skip


def _spectrum_in_short(
    axes: Any,
    at: NDArray[np.float64],
    estimate: Cube,
    truth: Cube,
    box: Box,
    colour: tuple[float, ...],
) -> None:
    low, high, label = _interval(estimate, box)
    axes.plot(at, _mean(truth.values, box), color=colour, linewidth=4.5, alpha=0.7, label="truth")
    axes.plot(at, _mean(estimate.values, box), color=INK, linewidth=1.0, marker="o",
              markersize=2.2, label="reconstruction")  # fmt: skip
    axes.fill_between(at, low, high, color=FAINT, alpha=0.25, linewidth=0, label=label, zorder=0.5)


def _interval(estimate: Cube, box: Box) -> tuple[NDArray[Any], NDArray[Any], str]:
    """Lower and upper end over a box, and what they are."""
    if estimate.lower is not None and estimate.upper is not None:
        return _mean(estimate.lower, box), _mean(estimate.upper, box), "interval of a pixel"
    mean, spread = _mean(estimate.values, box), estimate.values[:, *box].std(axis=(1, 2))
    return mean - spread, mean + spread, "± 1 std over the patch"


def _mean(values: NDArray[np.float32], box: Box) -> NDArray[Any]:
    """Mean spectrum of a box."""
    return np.asarray(values[:, *box].mean(axis=(1, 2)))


def _title(axes: Any, name: str, colour: Sequence[float] | None) -> None:
    if colour is not None:
        axes.plot(
            [0.02], [1.075], marker="s", markersize=8, color=tuple(colour), clip_on=False,
            transform=axes.transAxes, markeredgecolor=FAINT, markeredgewidth=0.5,
        )  # fmt: skip
    axes.set_title(f"     {name}" if colour is not None else name, loc="left")


def _rainbow(axes: Any, at: NDArray[np.float64]) -> None:
    """A strip along the bottom that shows the colour of each wavelength."""
    fine = np.linspace(at[0], at[-1], 256)
    strip = axes.inset_axes((0.0, 0.0, 1.0, 0.03), transform=axes.transAxes, zorder=0)
    strip.imshow(wavelength_to_rgb(fine)[None], aspect="auto", extent=(at[0], at[-1], 0, 1))
    strip.set_axis_off()
    axes.set_xlim(at[0], at[-1])


def _wavelengths(cube: Cube) -> NDArray[np.float64]:
    if cube.wavelengths is None:
        raise ValuesError("spectra need wavelengths: give them with the cube.")
    return cube.wavelengths
