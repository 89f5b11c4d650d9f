"""The options that `evaluate`, `stress` and `analyse` share, each written once.

Plain dataclasses, because `apps.cli.bare` reads them where the command-line library is not
installed; `apps.cli.app` tells that library to take their fields for options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SceneOptions:
    """What the models see, and where they run."""

    data: Path | None = None
    """The data folder. [default: PRISMASK_DATA, or shared/data nearby]"""
    scenes: str | None = None
    """Scenes of the data folder, or files, separated by commas. [default: the split's test]"""
    split: Path | None = None
    """A TOML file that names scenes and masks instead of the data folder's splits.json."""
    resample: bool = False
    """Bring scenes to the bands of the models."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""


@dataclass(frozen=True)
class ProtocolOptions:
    """Which masks they are measured through, and how noisily: `evaluate` and `analyse`."""

    protocol: str = "many-to-many"
    """one-to-one, one-to-many or many-to-many."""
    groups: str | None = None
    """Mask groups of the split, separated by commas. [default: those of the protocol]"""
    noise: float = 0.0
    """Measurement noise, std relative to the cube's range."""


@dataclass(frozen=True)
class WorkOptions:
    """How a long run is shared out and gone on with: `evaluate` and `stress`."""

    batch: int = 10
    """Scenes that go through a model at once."""
    workers: int = 1
    """Processes on this machine."""
    threads: int | None = None
    """CPU threads a process. [default: the cores shared out]"""
    dask: str | None = None
    """Address of a Dask scheduler, or local."""
    resume: bool = False
    """Go on with the run that the folder holds."""
    allow_overlap: bool = False
    """Test models on masks or scenes they were trained on, and mark it beside the score."""


SHARED_OPTIONS = (SceneOptions, ProtocolOptions, WorkOptions)


def as_arguments(*given: SceneOptions | ProtocolOptions | WorkOptions) -> dict[str, Any]:
    """All fields by name as the library takes them: lists of names instead of commas."""
    found = {name: value for options in given for name, value in vars(options).items()}
    return found | {name: words(found[name]) for name in {"scenes", "groups"} & found.keys()}


def words(text: str | None) -> list[str] | None:
    """`a, b` → its parts; None of nothing."""
    return [word.strip() for word in (text or "").split(",") if word.strip()] or None
