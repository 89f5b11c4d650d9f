"""Figures of a test of spectra: what became of a structure in one pixel, and how much is left.

Examples are dictionaries with `model, feature, size, truth, estimate, lower, upper`, each spectrum
a list of C values, `lower` and `upper` None where a method has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
