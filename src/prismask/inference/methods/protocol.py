"""What a way from a snapshot to a cube is, and what it gives.

There are two: a solver (`inference.methods.solver`) and a network (`inference.methods.network`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prismask.inference.camera_match.view import Snapshot
from prismask.inference.checks import Finding
from prismask.inference.options import Settings

Array = NDArray[np.float32]
Progress = Callable[[int, int, Mapping[str, Any]], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A cube `(C, H, W)` and what goes with it, in the units of the snapshot's signal."""

    values: Array
    std: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


class Method(Protocol):
    """A way to reconstruct."""

    name: str

    def identity(self) -> dict[str, Any]:
        """What tells this method from others, for the recipe."""

    def check(self, settings: Settings) -> None:
        """Raise `ConfigError` where it cannot do what is asked for, before anything runs."""

    def run(self, snapshot: Snapshot, settings: Settings, progress: Progress | None) -> Outcome:
        """Reconstruct one snapshot."""
