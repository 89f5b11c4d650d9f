"""A summary.csv, to be asked for one score at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prismask.evaluation.run.plan import NOTHING_WRONG, Condition
from prismask.evaluation.tables.markdown import spread_text
from prismask.evaluation.tables.summaries import AVERAGE


class ScoreTable:
    """Mean, spread and trials by model, group, metric, scene and condition."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        listed = list(rows)
        self._rows = {
            (r["model"], r["group"], r["metric"], r["scene"], _condition(r)): r for r in listed
        }
        self.models = list(dict.fromkeys(r["model"] for r in listed))
        self.scenes = [s for s in dict.fromkeys(r["scene"] for r in listed) if s != AVERAGE]
        self.metrics = list(dict.fromkeys(r["metric"] for r in listed))

    def conditions(self, group: str, fault: str) -> list[Condition]:
        """All sizes of a fault that were tried in a group, in order, with the mask given."""
        return sorted({c for _, of, _, _, c in self._rows if (of, c[0]) == (group, fault)})

    def find(
        self,
        model: str,
        group: str,
        metric: str,
        scene: str = AVERAGE,
        condition: Condition = NOTHING_WRONG,
    ) -> Mapping[str, Any] | None:
        """One row; None where there is none."""
        return self._rows.get((model, group, metric, scene, condition))

    def text(
        self,
        model: str,
        group: str,
        metric: str,
        scene: str = AVERAGE,
        condition: Condition = NOTHING_WRONG,
        with_error: bool = False,
    ) -> str:
        """`33.02 ± 0.11 (0.011)`."""
        row = self.find(model, group, metric, scene, condition)
        if row is None:
            return "–"
        error = row["standard_error"] if with_error else None
        failed = row["failed"]
        lost = f" [{failed} of {failed + row['trials']} failed]" if failed else ""
        return spread_text(metric, row["mean"], row["std"], error) + lost


def _condition(row: Mapping[str, Any]) -> Condition:
    default_fault, default_size, default_given = NOTHING_WRONG
    return (
        row.get("fault", default_fault),
        row.get("size", default_size),
        row.get("given", default_given),
    )
