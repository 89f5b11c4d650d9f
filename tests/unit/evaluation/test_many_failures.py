"""A model that fails all the time: every failure is counted, some are listed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from prismask.evaluation.run.cells import Cell, CellResult, Journal
from prismask.evaluation.run.plan import NOTHING_WRONG
from prismask.evaluation.tables.summaries import MOST_FAILURES, summarise

TRIALS, SCENES = MOST_FAILURES // 2 + 15, ("one", "two")


def _plan() -> Any:
    scenes = SimpleNamespace(names=SCENES)
    groups = {"test": range(TRIALS)}
    work = SimpleNamespace(
        contenders={"bad": None, "good": None}, groups=groups, scenes=scenes, metrics=("rmse",)
    )
    return SimpleNamespace(
        kind="evaluation",
        work=work,
        conditions={"test": (NOTHING_WRONG,)},
        verdicts={("bad", "test"): "", ("good", "test"): ""},
        shown_as=lambda group, condition: (condition,),
    )


def test_those_beyond_the_list_are_counted_too() -> None:
    journal = Journal()
    for trial in range(TRIALS):
        for model, value in (("bad", math.nan), ("good", 0.1)):
            failed = dict.fromkeys(SCENES, "it is NaN") if model == "bad" else {}
            cell = Cell(model, "test", trial, *NOTHING_WRONG)
            values = {"rmse": [value, value]}
            journal.append(CellResult(cell, "m", f"y{trial}", 0.5, values, failed))
    found = summarise(_plan(), journal)
    assert found.failed == 2 * TRIALS > MOST_FAILURES
    assert len(found.failures) == MOST_FAILURES
    assert found.find("bad", "test", "rmse").failed == TRIALS
    assert found.find("good", "test", "rmse").failed == 0
