"""`prismask.score`: how far one cube is from its truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prismask.evaluation.metrics import score_cubes
from prismask.scenes.conversion import as_cube
from prismask.scenes.resample import check_same_bands
from prismask.wording import told_in_python, warn_caller

if TYPE_CHECKING:
    from prismask.scenes.conversion import CubeLike
    from prismask.scenes.records import Cube


SWAPPED = (
    "the truth has the history of a reconstruction, and the estimate has none: are the two swapped?"
)


def are_swapped(estimate: Cube, truth: Cube) -> bool:
    """Whether what is given as the truth was reconstructed, and the estimate was not."""

    def is_made(cube: Cube) -> bool:
        return cube.lower is not None or "recipe" in cube.attrs

    return is_made(truth) and not is_made(estimate)


@told_in_python
def score(
    estimate: CubeLike, truth: CubeLike, metrics: Iterable[str] | None = None
) -> dict[str, float]:
    """Metrics of `estimate` against `truth (C, H, W)`, in fractions of full scale.

    estimate, truth: records, paths of files, NumPy arrays, torch tensors or xarray objects.
    metrics: keys of `evaluation.metrics.METRICS`, where each is defined; None takes all.

    >>> import numpy as np
    >>> found = score(np.zeros((3, 16, 16)), np.full((3, 16, 16), 0.1), ["rmse"])
    >>> f"{found['rmse']:.3f}"
    '0.100'
    """
    first, second = as_cube(estimate, "estimate"), as_cube(truth, "truth")
    check_same_bands(first, second)
    if are_swapped(first, second):
        warn_caller(f"{SWAPPED} score(estimate, truth) is the order.")
    return score_cubes(first, second, metrics)
