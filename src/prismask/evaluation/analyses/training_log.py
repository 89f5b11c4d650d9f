"""What a training wrote down while it ran: metrics.jsonl, and run.json beside it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismask.errors import DataMissingError, FormatError

log = logging.getLogger(__name__)

SCORE = "psnr_"
"""How the scores of a validation begin, one for each kind of snapshots."""
KINDS = {
    "seen": "seen masks",
    "fabricated": "fabricated masks",
    "noisy": "fabricated masks, with noise",
}
"""Kinds of snapshots in words."""


@dataclass(frozen=True)
class TrainingCourse:
    """How far a training went, and how it was scored on the way."""

    minutes: float
    steps: int
    samples: int | None
    """Crops that it saw; None: the size of its batches is not known."""
    checked: tuple[float, ...] = ()
    """Minutes at which it was validated."""
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """PSNR paper at those minutes, by kind of snapshots in words; not a number where none."""


def read_course(path: str | Path) -> TrainingCourse | None:
    """The course of the training that wrote this metrics file; None where it made no step."""
    lines = [line for line in read_lines(path) if "step" in line and "seconds" in line]
    if not lines:
        return None
    checks = [line for line in lines if line.get("event") == "validation"]
    kinds = dict.fromkeys(key for line in checks for key in line if key.startswith(SCORE))
    steps, batch = int(lines[-1]["step"]), _batch(Path(path).with_name("run.json"))
    return TrainingCourse(
        lines[-1]["seconds"] / 60,
        steps,
        None if batch is None else steps * batch,
        tuple(line["seconds"] / 60 for line in checks),
        {_kind(kind): tuple(_number(line.get(kind)) for line in checks) for kind in kinds},
    )  # fmt: skip


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


def _kind(key: str) -> str:
    name = key.removeprefix(SCORE)
    return KINDS.get(name, name)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _batch(record: Path) -> int | None:
    """Crops a step, from a run's record."""
    try:
        batch = json.loads(record.read_text(encoding="utf-8")).get("batch")
    except (OSError, ValueError):
        return None
    return batch if isinstance(batch, int) else None
