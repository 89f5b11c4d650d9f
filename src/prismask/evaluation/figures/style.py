"""The ground that all figures stand on: one style, no global state, PNG bytes out.

matplotlib is used in `figures*.py` only, through `Figure` objects; no window system, no pyplot.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from prismask.errors import MissingPartError

INK = "#1f2430"
FAINT = "#8a90a0"
DOTS_PER_INCH = 150

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
