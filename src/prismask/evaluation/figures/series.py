"""Colours and markers that stay apart for every kind of colour vision, and small helpers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

SERIES: tuple[tuple[str, str], ...] = (
    ("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#e69f00", "v"),
    ("#56b4e9", "P"), ("#000000", "X"),
)  # fmt: skip
"""The colours of Okabe and Ito, each with a marker of its own."""
WIDTH = 8.2
"""Inches: what a page shows without scrolling."""
DOTS = 120


def series(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th method; they begin again after seven."""
    return SERIES[number % len(SERIES)]


def wrapped(text: str, width: int) -> str:
    """Broken into lines of at most `width` letters."""
    return "\n".join(textwrap.wrap(text, width)) or text


def bare(axes: Any) -> None:
    """No ticks, no frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def legend_above(figure: Any, axes: Any, columns: int = 4) -> None:
    """One legend for all panels, above them, out of everything's way."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def hide_rest(panels: Sequence[Any], used: int) -> None:
    """Panels that nothing was drawn into."""
    for axes in panels[used:]:
        axes.set_axis_off()
