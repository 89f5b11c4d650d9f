"""A cell: the smallest piece of an evaluation, one model on all scenes through one mask."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """Which model, which mask, and what is wrong with the camera (nothing, in an evaluation)."""

    model: str
    """Label of the contender."""
    group: str
    """Name of the mask group."""
    trial: int
    """Number of the mask in its group's list."""
    fault: str = ""
    """What differs between the camera and its description; empty: nothing."""
    size: float = 0.0
    """How much it differs."""
    given: str = "nominal"
    """Which mask the model is given."""

    @property
    def key(self) -> str:
        """One line of text that no other cell has."""
        return json.dumps(list(asdict(self).values()), ensure_ascii=False)


@dataclass(frozen=True)
class CellResult:
    """What came out of a cell."""

    cell: Cell
    mask_id: str
    """Hash of the trial's mask, as the group lists it."""
    measurement_id: str
    """Hash of all measurements: equal for all models of a trial."""
    seconds: float
    """Seconds a sample, with the device's queue drained."""
    values: dict[str, list[float]]
    """Metric → value of each scene; NaN where the model gave no finite cube."""
    failed: dict[str, str] = field(default_factory=dict)
    """Scene → why it has no values."""

    def to_line(self) -> str:
        """One line of JSON; NaN and infinity as Python writes them."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> CellResult:
        """Read what `to_line` wrote."""
        facts: dict[str, Any] = json.loads(line)
        facts["cell"] = Cell(**facts["cell"])
        return cls(**facts)
