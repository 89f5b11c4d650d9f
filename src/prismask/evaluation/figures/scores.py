"""Figures of scores: at a glance, scene by scene, mask by mask, against the size of a fault.

Those of a test of spectra show what became of a structure in one pixel, and how much is left:
examples are dictionaries with `model, feature, size, truth, estimate, lower, upper`, each spectrum
a list of C values, `lower` and `upper` None where a method has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismask.evaluation.figures.style import (
    DOTS,
    FAINT,
    GRID,
    INK,
    WIDTH,
    figure_png,
    hide_rest,
    legend_above,
    series,
    styled,
    wrapped,
)
from prismask.evaluation.protocol.spectra import feature_title

COLUMNS = 3
Example = Mapping[str, Any]


def example_figure(examples: Sequence[Example], wavelengths: Sequence[float]) -> bytes:
    """A panel for each structure: the truth, every method's spectrum, and its interval."""
    panels = list(dict.fromkeys((one["feature"], one["size"]) for one in examples))
    models = list(dict.fromkeys(one["model"] for one in examples))
    rows = -(-len(panels) // COLUMNS)
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.6 + 2.1 * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True).ravel()
        for panel, (feature, size) in zip(axes, panels, strict=False):
            here = [one for one in examples if (one["feature"], one["size"]) == (feature, size)]
            _panel(panel, here, models, wavelengths)
            panel.set_title(feature_title(feature, size))
        hide_rest(axes, len(panels))
        figure.supxlabel("wavelength [nm]", fontsize=9)
        figure.supylabel("value, fraction of full scale", fontsize=9)
        legend_above(figure, axes[0])
        return figure_png(figure, DOTS)


def _panel(
    axes: Any, examples: Sequence[Example], models: Sequence[str], wavelengths: Sequence[float]
) -> None:
    for one in examples:
        colour, _ = series(models.index(one["model"]))
        if one["lower"] is not None:
            axes.fill_between(
                wavelengths, one["lower"], one["upper"], color=colour, alpha=0.2, linewidth=0,
                label=f"{one['model']}, interval",
            )  # fmt: skip
        axes.plot(wavelengths, one["estimate"], color=colour, linewidth=1.3, label=one["model"])
    truth = examples[0]["truth"]
    axes.plot(wavelengths, truth, color=INK, linewidth=1.1, linestyle="--", label="truth")
    axes.set_ylim(bottom=min(0.0, *(min(one["estimate"]) for one in examples)))
    axes.grid(color=GRID, linewidth=0.6)


def amplitude_figure(
    shares: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], labels: Mapping[str, str]
) -> bytes:
    """Amplitude kept against the size of a structure: kind → model → (size, share) pairs.

    labels: what the size of each kind is.
    """
    models = list(dict.fromkeys(model for curves in shares.values() for model in curves))
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 2.9), layout="constrained")
        panels = figure.subplots(1, len(shares), squeeze=False, sharey=True)[0]
        for axes, (kind, curves) in zip(panels, shares.items(), strict=True):
            for model, points in curves.items():
                colour, marker = series(models.index(model))
                sizes, values = zip(*sorted(points), strict=True)
                percent = [100 * value for value in values]
                axes.plot(sizes, percent, color=colour, marker=marker, markersize=4, label=model)
            axes.axhline(100, color=FAINT, linewidth=0.8, linestyle=":")
            axes.set_xlabel(labels[kind])
            axes.grid(color=GRID, linewidth=0.6)
        panels[0].set_ylabel("amplitude kept [%]")
        panels[0].set_ylim(bottom=min(0.0, panels[0].get_ylim()[0]), top=115)
        legend_above(figure, panels[0])
        return figure_png(figure, DOTS)


LINES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Scores:
    """One method's numbers, one for each scene or size."""

    label: str
    at: Sequence[float | str]
    """Scenes, or sizes of a fault."""
    means: Sequence[float]
    stds: Sequence[float]
    """NaN or 0: no bar is drawn."""
    published: bool = False
    """Whether others measured it: drawn hollow and grey."""
    source: str = ""
    """Which test it is from, where curves of several are drawn together."""


def headline_figure(panels: Mapping[str, Sequence[Scores]], kinds: Sequence[str]) -> bytes:
    """Scores of few methods as dots, a panel per convention, a marker per kind, as PNG.

    kinds: all that `Scores.at` may name, in the order of the legend.
    """
    rows = [len(scores) for scores in panels.values()]
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 1.3 + 0.27 * sum(rows)), layout="constrained")
        grid = figure.subplots(len(rows), 1, squeeze=False, sharex=True, height_ratios=rows)[:, 0]
        for axes, (title, scores) in zip(grid, panels.items(), strict=True):
            for row, one in enumerate(scores):
                for kind, mean in zip(one.at, one.means, strict=True):
                    colour, marker = series(kinds.index(str(kind)))
                    axes.plot(mean, row, marker, color=colour, markersize=6,
                              markerfacecolor="white" if one.published else colour)  # fmt: skip
            axes.set_yticks(range(len(scores)), [one.label for one in scores])
            axes.set_ylim(len(scores) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
            axes.grid(color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_title(f"{title} [dB]", loc="left")
        for number, kind in enumerate(kinds):
            colour, marker = series(number)
            grid[0].plot([], [], marker, color=colour, markersize=6, label=wrapped(kind, 44))
        legend_above(figure, grid[0], columns=2)
        return figure_png(figure, DOTS)


def scene_figure(scores: Sequence[Scores], title: str) -> bytes:
    """Scores scene by scene, mean with one std over masks, as PNG."""
    scenes = list(dict.fromkeys(str(name) for one in scores for name in one.at))
    width = max(WIDTH, 0.62 * len(scenes))
    with styled() as figure_class:
        figure = figure_class(figsize=(width, 3.6), layout="constrained")
        axes = figure.add_subplot()
        step = 0.7 / max(len(scores), 2)
        for number, one in enumerate(scores):
            shift = (number - (len(scores) - 1) / 2) * step
            at = [scenes.index(str(name)) + shift for name in one.at]
            colour, marker = ("#707683", "o") if one.published else series(number)
            axes.errorbar(
                at, one.means, yerr=_bars(one.stds), linestyle="none", marker=marker,
                markersize=5, color=colour, capsize=2, linewidth=1,
                markerfacecolor="white" if one.published else colour, label=one.label,
            )  # fmt: skip
        for scene in range(len(scenes) - 1):
            axes.axvline(scene + 0.5, color=GRID, linewidth=0.8, zorder=0)
        axes.set_xticks(
            range(len(scenes)), [wrapped(name.replace("_", " "), 11) for name in scenes]
        )
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.5, len(scenes) - 0.5)
        axes.set_ylabel(title)
        legend_above(figure, axes)
        return figure_png(figure, DOTS)


def trial_figure(values: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> bytes:
    """Every trial's average score as a dot, group → model → values, as PNG."""
    models = list(dict.fromkeys(model for found in values.values() for model in found))
    rows = [(group, model) for group, found in values.items() for model in found]
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.9 + 0.42 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for row, (group, model) in enumerate(rows):
            numbers = np.array([v for v in values[group][model] if math.isfinite(v)])
            if not len(numbers):
                continue
            colour, marker = series(models.index(model))
            # The golden ratio spreads dots evenly without dice.
            height = row + 0.5 * ((np.arange(len(numbers)) * 0.618) % 1.0 - 0.5)
            axes.plot(numbers, height, marker, color=colour, markersize=4, alpha=0.55,
                      markeredgewidth=0)  # fmt: skip
            axes.plot([numbers.mean()] * 2, [row - 0.38, row + 0.38], color=INK, linewidth=1.6)
        axes.set_yticks(
            range(len(rows)), [wrapped(f"{model}, {group}", 42) for group, model in rows]
        )
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xlabel(title)
        return figure_png(figure, DOTS)


@dataclass(frozen=True)
class FaultPanel:
    """One fault's curves."""

    name: str
    text: str
    """What it is, with its unit: the label under the panel."""
    neutral: float
    """Where nothing is wrong."""
    curves: Sequence[Scores]


def stress_figure(panels: Sequence[FaultPanel], title: str) -> bytes:
    """Score against the size of one fault, a panel for each fault, all on one scale, as PNG.

    A label has one colour and marker, a source one kind of line: the same model before and after a
    change has a line style of its own.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.5 + 2.45 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        curves = [one for panel in panels for one in panel.curves]
        models = list(dict.fromkeys(one.label for one in curves))
        sources = list(dict.fromkeys(one.source for one in curves))
        for number, panel in enumerate(panels):
            axes = grid.flat[number]
            axes.axvline(panel.neutral, color=FAINT, linewidth=0.8, linestyle=":", zorder=0)
            for one in panel.curves:
                colour, marker = series(models.index(one.label))
                axes.errorbar(
                    [float(size) for size in one.at], one.means, yerr=_bars(one.stds),
                    color=colour, marker=marker, markersize=3.5, linewidth=1.2, capsize=1.5,
                    linestyle=LINES[sources.index(one.source) % len(LINES)],
                    label=f"{one.label} ({one.source})" if one.source else one.label,
                )  # fmt: skip
            axes.set_title(panel.name.replace("_", " "), loc="left")
            axes.set_xlabel(wrapped(panel.text, 36), fontsize=8)
            axes.grid(axis="y", color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
        hide_rest(list(grid.flat), len(panels))
        figure.supylabel(title, fontsize=9)
        fullest = max(range(len(panels)), key=lambda number: len(panels[number].curves))
        legend_above(figure, grid.flat[fullest], columns=4 if len(sources) < 2 else 2)
        return figure_png(figure, DOTS)


def _bars(stds: Sequence[float]) -> list[float] | None:
    """Bars where there is a spread at all."""
    bars = [0.0 if math.isnan(std) else std for std in stds]
    return bars if any(bars) else None
