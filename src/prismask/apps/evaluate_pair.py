"""`prismask evaluate-pair`: an estimate against the truth, in every convention by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from prismask.apps.terminal import say, table


def evaluate_pair(
    truth: Path,
    estimate: Path,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Score an estimated cube against the true one.

    Parameters
    ----------
    truth
        The true cube.
    estimate
        The estimated cube, of the same size and bands.
    as_json
        Print one JSON object instead of a table.
    """
    from prismask.evaluation.metrics import score
    from prismask.scenes.files import load_cube

    scores = score(load_cube(estimate), load_cube(truth))
    if as_json:
        say(json.dumps(scores, indent=2))
    else:
        say(table([(name, f"{value:.4f}") for name, value in scores.items()]))
