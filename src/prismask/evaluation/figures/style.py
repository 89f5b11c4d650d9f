"""The style that all figures share: colours, sizes and small helpers; PNG bytes out.

matplotlib is used in this folder only, through `Figure` objects: no window system, no pyplot, no
global state.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from prismask.errors import MissingPartError

INK = "#1f2430"
FAINT = "#8a90a0"
GRID = "#e4e7ee"
DOTS_PER_INCH = 150
SERIES: tuple[tuple[str, str], ...] = (
    ("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#e69f00", "v"),
    ("#56b4e9", "P"), ("#000000", "X"),
)  # fmt: skip
"""The colours of Okabe and Ito, each with a marker of its own."""
WIDTH = 8.2
"""Inches: what a page shows without scrolling."""
DOTS = 120
"""Dots per inch of a figure on a page."""

ERROR_COLOURS = "cividis"
"""Reads the same with and without colour-blindness, and in grey."""

STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


def check_available() -> None:
    """Raise unless figures can be drawn; ask before hours of work, not after."""
    if find_spec("matplotlib") is None:
        raise MissingPartError(
            "matplotlib is needed for figures; install it with `pip install prismask[report]`."
        )


@contextmanager
def styled() -> Iterator[Any]:
    """The figure class, inside our style."""
    check_available()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure


def figure_png(figure: Any, dots_per_inch: int = DOTS_PER_INCH) -> bytes:
    """A finished figure as PNG; the same figure gives the same bytes."""
    held = io.BytesIO()
    # Without this matplotlib writes its version into the file.
    figure.savefig(held, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return held.getvalue()


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
