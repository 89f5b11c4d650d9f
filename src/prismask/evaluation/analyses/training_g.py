"""How g moved during training, from a run's metrics.jsonl."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prismask.evaluation.analyses.training_log import read_lines


@dataclass(frozen=True)
class GHistory:
    """The range of g over the mask's pixels, step by step."""

    steps: tuple[int, ...]
    minutes: tuple[float, ...]
    phases: tuple[str, ...]
    """`theta`, `phi`, `joint` …"""
    low: tuple[float, ...]
    mean: tuple[float, ...]
    high: tuple[float, ...]
    validation_minutes: tuple[float, ...] = ()
    validation: tuple[float, ...] = ()
    """Validation score (PSNR paper, mean of the mask groups) at those minutes."""

    def to_record(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {**asdict(self), "numbers": self.numbers()}

    def numbers(self) -> dict[str, float]:
        """Range at the first and at the last step, and by how much it narrowed."""
        first, last = self.high[0] - self.low[0], self.high[-1] - self.low[-1]
        return {
            "first_min": self.low[0], "first_mean": self.mean[0], "first_max": self.high[0],
            "last_min": self.low[-1], "last_mean": self.mean[-1], "last_max": self.high[-1],
            "range_ratio": last / first if first else float("nan"),
        }  # fmt: skip


def read_g_history(path: str | Path) -> GHistory | None:
    """The history of g in a metrics file; None where the run had no g (no mask posterior)."""
    steps, checks = [], []
    for line in read_lines(path):
        if line.get("event") == "step" and "g_mean" in line:
            steps.append(line)
        elif line.get("event") == "validation" and "score" in line:
            checks.append(line)
    if not steps:
        return None
    return GHistory(
        tuple(int(line["step"]) for line in steps),
        tuple(line["seconds"] / 60 for line in steps),
        tuple(str(line.get("phase", "")) for line in steps),
        tuple(float(line["g_min"]) for line in steps),
        tuple(float(line["g_mean"]) for line in steps),
        tuple(float(line["g_max"]) for line in steps),
        tuple(line["seconds"] / 60 for line in checks),
        tuple(float(line["score"]) for line in checks),
    )
