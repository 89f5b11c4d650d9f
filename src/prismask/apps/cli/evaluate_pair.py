"""`prismask evaluate-pair`: an estimate against the truth, in every convention by its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.terminal import remark, say

if TYPE_CHECKING:
    from prismask.scenes.records import Array, Cube

SCALE_NOTE_DEVIATION = 0.1
"""How far the best factor may be from 1 before a note says so."""


def evaluate_pair(
    truth: Path,
    estimate: Path,
    /,
    *,
    truth_variable: str | None = None,
    variable: str | None = None,
    fit_scale: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Score an estimated cube against the true one.

    Parameters
    ----------
    truth
        The true cube.
    estimate
        The estimated cube, of the same size and bands.
    truth_variable
        The variable that is the true cube, in a file that holds several.
    variable
        The variable that is the estimate, in a file that holds several.
    fit_scale
        Multiply the estimate by the factor that fits the truth best, for cubes in the units of a
        snapshot of unknown scale.
    as_json
        Print one JSON object instead of a table.
    """
    from prismask.evaluation.scoring import SWAPPED, are_swapped
    from prismask.scenes.formats.files import load_cube
    from prismask.scenes.resample import check_same_bands

    true_cube = load_cube(truth, truth_variable)
    guess = load_cube(estimate, variable)
    check_same_bands(guess, true_cube)
    if are_swapped(guess, true_cube):
        remark(f"warning: {SWAPPED} The order is TRUTH ESTIMATE.")
    factor = best_factor(guess, true_cube)
    if fit_scale:
        guess = scaled(guess, factor)
        remark(f"note: the estimate is multiplied by {factor:.4g}.")
    elif abs(factor - 1) > SCALE_NOTE_DEVIATION:
        remark(
            f"note: the estimate would fit the truth best multiplied by {factor:.4g}: are they in "
            "the same units? --fit-scale scores it so."
        )
    rows = [*score_rows(guess, true_cube), *_interval_rows(guess, true_cube)]
    say(json.dumps({row.pop("name"): row for row in rows}, indent=2) if as_json else _table(rows))


def score_rows(estimate: Cube, truth: Cube) -> list[dict[str, Any]]:
    """Every metric: name, label, value, text with unit, and convention."""
    from prismask.evaluation.metrics import METRICS, score_cubes
    from prismask.scenes.formats.contents import plain

    return [
        {
            "name": name,
            "label": METRICS[name].label,
            # JSON has no infinity, which is the PSNR of two equal cubes.
            "value": plain(value),
            "text": METRICS[name].text(value),
            "convention": METRICS[name].convention,
        }
        for name, value in score_cubes(estimate, truth).items()
    ]


def best_factor(estimate: Cube, truth: Cube) -> float:
    """⟨truth, estimate⟩ / ⟨estimate, estimate⟩; 1 for an estimate of nothing."""
    import numpy as np

    if estimate.values.shape != truth.values.shape:
        return 1.0  # the scores will say what is wrong
    size = float(np.vdot(estimate.values, estimate.values))
    return float(np.vdot(truth.values, estimate.values)) / size if size > 0 else 1.0


def scaled(cube: Cube, factor: float) -> Cube:
    """The cube and everything that goes with it in other units."""

    def times(part: Array | None, by: float = factor) -> Array | None:
        return None if part is None else (part * by).astype(part.dtype)

    # A negative factor, as between a cube and its negative, turns the interval over.
    ends = (cube.lower, cube.upper) if factor >= 0 else (cube.upper, cube.lower)
    lower, upper = (times(end) for end in ends)
    values = (cube.values * factor).astype(cube.values.dtype)
    return replace(cube, values=values, std=times(cube.std, abs(factor)), lower=lower, upper=upper)


def _interval_rows(estimate: Cube, truth: Cube) -> list[dict[str, Any]]:
    """How much of the truth lies inside the interval, where the estimate has one."""
    if estimate.lower is None or estimate.upper is None:
        return []
    import torch

    from prismask.inference.intervals.learned import coverage

    share = coverage(*(torch.tensor(v) for v in (truth.values, estimate.lower, estimate.upper)))
    which = estimate.attrs.get("interval", "its coverage is not noted")
    return [
        {
            "name": "inside",
            "label": "Inside interval",
            "value": share,
            "text": f"{100 * share:.1f} %",
            "convention": f"true values inside the estimate's interval ({which})",
        }
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    label, text = (max(len(row[key]) for row in rows) for key in ("label", "text"))
    return "\n".join(
        f"{row['label']:<{label}}  {row['text']:>{text}}  {row['convention']}" for row in rows
    )
