"""What a training wrote down while it ran: metrics.jsonl, and run.json beside it.

Every line of metrics.jsonl is one event: `step` (phase, loss, the range of g …) or `validation`
(`psnr_seen`, `psnr_fabricated` …, and their mean, `score`), with `step` and `seconds`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prismask.errors import DataMissingError, FormatError

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
SCORE = "psnr_"
"""How the scores of a validation begin, one for each kind of snapshots."""
KINDS = {
    "seen": "seen masks",
    "fabricated": "fabricated masks",
    "noisy": "fabricated masks, with noise",
    "misplaced": "mask half a pixel aside",
    "lamp": "lamp FL11",
}
"""Kinds of snapshots in words."""


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


@dataclass(frozen=True)
class TrainingLog:
    """The lines of one training: how far it went, how it was scored on the way, what g did."""

    lines: tuple[Mapping[str, Any], ...]
    """Those that have a step and a time."""
    batch: int | None = None
    """Crops per step; None where the run's record does not say."""

    @cached_property
    def step_lines(self) -> list[Mapping[str, Any]]:
        """One for every logged step of the optimiser."""
        return [line for line in self.lines if line.get("event") == "step"]

    @cached_property
    def validations(self) -> list[Mapping[str, Any]]:
        """One for every validation."""
        return [line for line in self.lines if line.get("event") == "validation"]

    @property
    def minutes(self) -> float:
        """How long it ran."""
        return minutes_of(self.lines[-1]) if self.lines else 0.0

    @property
    def steps(self) -> int:
        """Steps that it made."""
        return int(self.lines[-1]["step"]) if self.lines else 0

    @property
    def samples(self) -> int | None:
        """Crops that it saw."""
        return None if self.batch is None else self.steps * self.batch

    @property
    def checked(self) -> tuple[float, ...]:
        """Minutes at which it was validated."""
        return tuple(minutes_of(line) for line in self.validations)

    @cached_property
    def scores(self) -> dict[str, tuple[float, ...]]:
        """PSNR paper at those minutes, by kind of snapshots in words; NaN where there is none."""
        keys = dict.fromkeys(k for line in self.validations for k in line if k.startswith(SCORE))
        return {
            _kind(key): tuple(_number(line.get(key)) for line in self.validations) for key in keys
        }

    @property
    def g_history(self) -> GHistory | None:
        """How g moved; None where the run had no mask posterior."""
        steps = [line for line in self.step_lines if "g_mean" in line]
        checks = [line for line in self.validations if "score" in line]
        if not steps:
            return None
        return GHistory(
            steps=tuple(int(line["step"]) for line in steps),
            minutes=tuple(minutes_of(line) for line in steps),
            phases=tuple(str(line.get("phase", "")) for line in steps),
            low=tuple(float(line["g_min"]) for line in steps),
            mean=tuple(float(line["g_mean"]) for line in steps),
            high=tuple(float(line["g_max"]) for line in steps),
            validation_minutes=tuple(minutes_of(line) for line in checks),
            validation=tuple(_number(line["score"]) for line in checks),
        )


def read_training_log(path: str | Path) -> TrainingLog:
    """The log of the training that wrote this metrics file."""
    lines = [line for line in read_lines(path) if "step" in line and "seconds" in line]
    return TrainingLog(tuple(lines), _batch(Path(path).with_name("run.json")))


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """All whole lines; a run that was killed may have left half of one at the end."""
    path = Path(path)
    if not path.is_file():
        raise DataMissingError(f"there is no {path}; a run folder of `prismask train` has one.")
    texts = path.read_text(encoding="utf-8").splitlines()
    found: list[dict[str, Any]] = []
    for number, text in enumerate(texts, start=1):
        try:
            found.append(json.loads(text))
        except ValueError as error:
            if number < len(texts):
                raise FormatError(f"{path}, line {number} is not JSON: {error}.") from error
            log.warning("%s: its last line is torn and was left out.", path)
    return found


def minutes_of(line: Mapping[str, Any]) -> float:
    """When a line was written, in minutes of training."""
    return float(line["seconds"]) / 60


def _kind(key: str) -> str:
    name = key.removeprefix(SCORE)
    return KINDS.get(name, name)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _batch(record: Path) -> int | None:
    """Crops per step, from a run's record."""
    try:
        batch = json.loads(record.read_text(encoding="utf-8")).get("batch")
    except (OSError, ValueError):
        return None
    return batch if isinstance(batch, int) else None
