"""Figures of cubes, of their uncertainty, and of a measured camera.

Colour, zoomed regions, error maps, single bands and their spectra; maps of uncertainty, whether
they are true, and the noise on the mask; what was measured of a camera, and how its mask has moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.evaluation.figures.style import (
    DOTS,
    ERROR_COLOURS,
    FAINT,
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
from prismask.inference.refinement.check import MaskCheck
from prismask.optics.measured import MeasuredCamera
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


def maps_figure(maps: Mapping[str, Mapping[str, Values]]) -> bytes:
    """Maps `(H, W)` by row and column on one logarithmic scale, in % of full scale, as PNG."""
    from matplotlib.colors import LogNorm

    titles = list(dict.fromkeys(title for row in maps.values() for title in row))
    everything = np.concatenate([100 * m.ravel() for row in maps.values() for m in row.values()])
    top = max(float(np.percentile(everything, 99.5)), 1e-4)
    low = max(float(np.percentile(everything, 2)), top / 1000)
    height, width = next(iter(next(iter(maps.values())).values())).shape
    side = min(WIDTH / len(titles), 2.7)
    tall = (side * height / width + 0.06) * len(maps) + 0.25
    with styled() as figure_class:
        figure = figure_class(figsize=(side * len(titles) + 0.9, tall), layout="constrained")
        panels = figure.subplots(len(maps), len(titles), squeeze=False)
        for row, (label, found) in enumerate(maps.items()):
            for column, title in enumerate(titles):
                axes = panels[row, column]
                bare(axes)
                if title in found:
                    percent = 100 * np.maximum(found[title], 1e-12)
                    shown = axes.imshow(percent, cmap=ERROR_COLOURS, norm=LogNorm(low, top),
                                        interpolation="nearest")  # fmt: skip
                else:
                    axes.text(0.5, 0.5, "none", ha="center", color=FAINT, transform=axes.transAxes)
                if row == 0:
                    axes.set_title(title)
            panels[row, 0].set_ylabel(wrapped(label, 22))
        bar = figure.colorbar(shown, ax=list(panels.flat), fraction=0.04, pad=0.02, extend="both")
        bar.set_label("% of full scale, RMS over bands")
        bar.ax.yaxis.set_major_formatter("{x:g}")
        bar.outline.set_visible(False)
        return figure_png(figure, DOTS)


def calibration_figure(found: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Coverage, reliability and sparsification of each kind of error bar, as PNG."""
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 3.5), layout="constrained")
        first, second, third = figure.subplots(1, 3)
        for number, (label, record) in enumerate(found.items()):
            colour, marker = series(number)
            _coverage(first, record["coverage"], label, colour, marker)
            spread, error = (100 * np.array(record["reliability"][k]) for k in ("std", "error"))
            second.plot(spread, error, color=colour, marker=marker, markersize=3, linewidth=1.2)
            _sparsification(third, record["sparsification"], colour, number == 0)
        _finish_coverage(first)
        _finish_reliability(second)
        third.axhline(1.0, color=FAINT, linewidth=1, linestyle=":")
        third.text(0.98, 1.02, "chance", ha="right", va="bottom", fontsize=8, color="#5a6172",
                   transform=third.get_yaxis_transform())  # fmt: skip
        third.set_title("Sparsification", loc="left")
        third.set_xlabel("most uncertain pixels dropped, %")
        third.set_ylabel("RMS error of the rest / of all")
        third.set_ylim(0, max(1.15, third.get_ylim()[1]))
        legend_above(figure, first, columns=2)
        return figure_png(figure, DOTS)


TARGET, LEAST = (88.0, 93.0), 80.0
"""Where the mean coverage of a 90 % interval is to lie, and what every scene is to have, in %."""


def scene_coverage_figure(scores: Mapping[str, Any]) -> bytes:
    """Coverage of every scene that was left out of a fit, with its quarters and bands, as PNG.

    scores: of the 90 % interval, `about.left_out` of a learned one in a weights record.
    """
    names = list(scores["scenes"])
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 3.2), layout="constrained")
        axes = figure.subplots()
        _scenes_and_targets(axes, names)
        for number, name in enumerate(names):
            quarters = 100 * np.array(scores["quarters"][name])
            said = ("quarters of intensities", "scene", "worst part of the spectrum")
            said = said if number == 0 else ("", "", "")
            axes.plot([number, number], [quarters.min(), quarters.max()], color=series(0)[0],
                      linewidth=5, alpha=0.35, label=said[0])  # fmt: skip
            axes.plot(number, 100 * scores["scenes"][name], color=series(0)[0], marker="o",
                      linestyle="", label=said[1])  # fmt: skip
            axes.plot(number, 100 * scores["worst_bands"][name], color=series(1)[0], marker="v",
                      linestyle="", label=said[2])  # fmt: skip
        axes.set_ylim(min(60.0, axes.get_ylim()[0]), 100)
        legend_above(figure, axes, columns=3)
        return figure_png(figure, DOTS)


def coverage_figure(shares: Mapping[str, Mapping[str, float]]) -> bytes:
    """Coverage by scene of several methods or conditions, name → scene → %, as PNG."""
    scenes = list(dict.fromkeys(scene for found in shares.values() for scene in found))
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 3.4), layout="constrained")
        axes = figure.subplots()
        _scenes_and_targets(axes, scenes)
        step = 0.6 / max(len(shares), 2)
        for number, (name, found) in enumerate(shares.items()):
            colour, marker = series(number)
            shift = (number - (len(shares) - 1) / 2) * step
            axes.plot([scenes.index(scene) + shift for scene in found], list(found.values()),
                      color=colour, marker=marker, markersize=5, linestyle="",
                      label=wrapped(name, 52))  # fmt: skip
        axes.set_ylim(min(75.0, axes.get_ylim()[0]), 100)
        legend_above(figure, axes, columns=2)
        return figure_png(figure, DOTS)


def _scenes_and_targets(axes: Any, names: Sequence[str]) -> None:
    axes.axhspan(*TARGET, color=FAINT, alpha=0.25, linewidth=0, label="target of the mean")
    axes.axhline(LEAST, color=FAINT, linewidth=1, linestyle=":", label="least of a scene")
    axes.set_xticks(range(len(names)), [wrapped(name.replace("_", " "), 14) for name in names])
    axes.set_ylabel("inside the 90 % interval, %")


def _coverage(
    axes: Any, levels: Sequence[Mapping[str, float]], label: str, colour: str, marker: str
) -> None:
    nominal = [100 * level["nominal"] for level in levels]
    observed = np.array([100 * level["observed"] for level in levels])
    ends = np.array([[100 * level[end] for level in levels]
                     for end in ("lowest_scene", "highest_scene")])  # fmt: skip
    axes.errorbar(nominal, observed, yerr=np.abs(ends - observed), color=colour, marker=marker,
                  markersize=4, linewidth=1.2, capsize=2, label=label)  # fmt: skip


def _finish_coverage(axes: Any) -> None:
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=1, linestyle=":")
    axes.text(70, 73, "true", rotation=42, fontsize=8, color="#5a6172")
    axes.set_xlim(40, 100)
    axes.set_ylim(0, 102)
    axes.set_title("Coverage", loc="left")
    axes.set_xlabel("interval claims to hold, %")
    axes.set_ylabel("of the truth it holds, %")


def _finish_reliability(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    top = max(axes.get_xlim()[1], axes.get_ylim()[1])
    # Values whose predicted std is next to nothing would squeeze all others into a corner.
    ends = [max(min(axes.get_xlim()[0], axes.get_ylim()[0]), top / 1e4), top]
    axes.plot(ends, ends, color=FAINT, linewidth=1, linestyle=":")
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_title("Reliability", loc="left")
    axes.set_xlabel("predicted std, % of full scale")
    axes.set_ylabel("RMS error, % of full scale")


def _sparsification(axes: Any, record: Mapping[str, Any], colour: str, first: bool) -> None:
    dropped = 100 * np.array(record["dropped"])
    axes.plot(dropped, record["curve"], color=colour, linewidth=1.4)
    axes.plot(dropped, record["oracle"], color=colour, linewidth=1, linestyle="--", alpha=0.7)
    if first:
        axes.text(dropped[12], record["oracle"][12] - 0.03, "oracle", fontsize=8, color="#5a6172",
                  ha="right", va="top")  # fmt: skip


def noise_figure(noises: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Prior against learned noise, and g against transmission; a row per model, as PNG."""
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.35 + 2.5 * len(noises)), layout="constrained")
        panels = figure.subplots(len(noises), 3, squeeze=False)
        for row, (label, found) in enumerate(noises.items()):
            colour, _ = series(row)
            _densities(panels[row, 0], found, colour, wide=True)
            _densities(panels[row, 1], found, colour, wide=False)
            panels[row, 0].set_title(wrapped(label, 34), loc="left")
            panels[row, 1].set_title("the same, closer", loc="left")
            by = found["by_transmission"]
            panels[row, 2].fill_between(by["at"], by["low"], by["high"], color=colour, alpha=0.2,
                                        linewidth=0, label="least to largest")  # fmt: skip
            panels[row, 2].plot(by["at"], by["mean"], color=colour, marker=".", label="mean")
            panels[row, 2].set_title("g against the mask", loc="left")
            panels[row, 2].set_xlabel("transmission m of the pixel")
            panels[row, 2].set_ylabel("g")
            panels[row, 2].set_ylim(bottom=0)
            panels[row, 2].legend(fontsize=7.5)
            panels[row, 0].legend(fontsize=7.5, loc="upper right")
        return figure_png(figure, DOTS)


def _densities(axes: Any, found: Mapping[str, Any], colour: str, wide: bool) -> None:
    """Both densities, each relative to its own peak: they can differ a hundredfold in height."""
    learned = np.array(found["learned"])
    at = np.array(found["at"])
    mean, std = found["prior_mean"], found["prior_std"]
    reach = 3.5 * max(std, found["learned_std"]) if wide else float(np.abs(at).max())
    fine = np.linspace(-reach, reach, 400) + (mean if wide else found["learned_mean"])
    # At the prior's scale the learned noise can be a needle between two points of the grid.
    fine = np.sort(np.concatenate([fine, at[np.abs(at - fine.mean()) <= reach]]))
    prior = np.exp(-0.5 * ((fine - mean) / std) ** 2)
    shown = np.interp(fine, at, learned / learned.max(), left=0, right=0)
    axes.fill_between(fine, prior, color=FAINT, alpha=0.25, linewidth=0)
    axes.plot(fine, prior, color="#5a6172", linewidth=1.2, label=f"prior N({mean:g}, {std:g})")
    axes.plot(fine, shown, color=colour, linewidth=1.5,
              label=f"learned, std {found['learned_std']:.3g}")  # fmt: skip
    axes.set_ylim(0, 1.5 if wide else 1.08)
    axes.set_yticks([0, 0.5, 1])
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("noise on the mask")
    axes.set_ylabel("density / its peak")


# --- a measured camera as a picture: where light lands, how well a curve says so, and the mask ----


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


def drift_figure(found: MaskCheck) -> bytes:
    """PNG: shifts, and what snapshots leave unexplained, over their dates."""
    shots = found.dated
    dates = np.array([shot.date for shot in shots], dtype="datetime64[s]")
    with styled() as figure_class:
        figure = figure_class(figsize=(8.0, 4.4), layout="constrained")
        moved, left = figure.subplots(2, 1, sharex=True)
        moved.axhline(0, color=FAINT, linewidth=0.8)
        moved.plot(
            dates, [-shot.pose.right for shot in shots], "o-", color="#c0392b", label="right"
        )
        moved.plot(dates, [-shot.pose.down for shot in shots], "s-", color=INK, label="down")
        moved.set(ylabel="mask has moved [px]", title="Drift of the mask")
        moved.legend()
        left.plot(dates, [100 * shot.unexplained for shot in shots], "o-", color=INK)
        against = [not shot.fits for shot in shots]
        if any(against):
            shares = np.array([100 * shot.unexplained for shot in shots])
            left.plot(
                dates[against], shares[against], "o", color="#c0392b", label="contradicts the mask"
            )
            left.legend()
        left.set(ylabel="unexplained [%]")
        left.set_ylim(bottom=0)
        left.tick_params(axis="x", rotation=30)
        return figure_png(figure)
