"""The options that `evaluate`, `stress` and `analyse` share, each written once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.optics.resolve import CameraDescription


@Parameter(name="*")
@dataclass(frozen=True)
class SceneOptions:
    """What the models see, and where they run."""

    data: Path | None = None
    """The data folder. [default: PRISMASK_DATA, or shared/data nearby]"""
    scenes: str | None = None
    """Scenes of the data folder, or files, separated by commas; validation and train stand for all
    scenes of that part. [default: the split's test]"""
    size: str | None = None
    """Height and width of the middle of each scene that is taken, as in 192,224 or 256. [default:
    all of it]"""
    split: Path | None = None
    """A TOML file that names scenes and masks instead of the data folder's splits.json."""
    camera: str | None = None
    """The camera, as in step=3,axis=height or bands=31,design=dual or offsets=FILE. [default: the
    split's, else 2 px per band along the width]"""
    resample: bool = False
    """Bring scenes to the bands of the models, or of --camera."""
    noise: float = 0.0
    """Measurement noise: std on 2/C times the snapshot of C bands, so relative to the cube's range
    (white is 1)."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""


@Parameter(name="*")
@dataclass(frozen=True)
class ProtocolOptions:
    """Which masks they are measured through: `evaluate` and `analyse`."""

    protocol: str = "many-to-many"
    """one-to-one, one-to-many or many-to-many."""
    groups: str | None = None
    """Mask groups of the split, or fabricated, separated by commas. [default: those of the
    protocol]"""


@Parameter(name="*")
@dataclass(frozen=True)
class DeliveryOptions:
    """What models do with every snapshot besides a single pass: `evaluate` and `stress`."""

    align: bool = False
    """First find the pose of the mask from every snapshot, as reconstruct --align does."""
    adapt: int = 0
    """Steps in which networks first learn every scene, as with reconstruct --adapt."""
    mask_std: float | None = None
    """How far every mask may be wrong, for networks that use it, as with reconstruct
    --mask-std. [default: nothing, they estimate it]"""


@Parameter(name="*")
@dataclass(frozen=True)
class WorkOptions:
    """How a long run is shared out and gone on with: `evaluate` and `stress`."""

    batch: int = 10
    """Scenes that go through a model at once."""
    workers: int = 1
    """Processes on this machine."""
    threads: int | None = None
    """CPU threads per process. [default: the cores shared out]"""
    dask: str | None = None
    """Address of a Dask scheduler, or local."""
    resume: bool = False
    """Go on with the run that the folder holds."""
    allow_overlap: bool = False
    """Test models on masks or scenes they were trained on, and mark it beside the score."""


Shared = SceneOptions | ProtocolOptions | DeliveryOptions | WorkOptions


def as_arguments(*given: Shared) -> dict[str, Any]:
    """All fields by name as the library takes them: lists of names instead of commas."""
    found = {name: value for options in given for name, value in vars(options).items()}
    if found.get("camera") is not None:
        found["camera"] = read_camera(found["camera"])
    if found.get("size") is not None:
        found["size"] = read_size(found["size"])
    return found | {name: words(found[name]) for name in {"scenes", "groups"} & found.keys()}


def read_size(text: str) -> tuple[int, int]:
    """`192,224` → height and width; one number is both."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--size is {text!r}; give height and width, as in 192,224 or 256.")
    return int(parts[0]), int(parts[-1])


def read_camera(text: str) -> CameraDescription:
    """`step=3,axis=height` → what it says; a piece without a name goes on with the one before."""
    from prismask.checks import choose
    from prismask.optics.resolve import CameraDescription

    known = [field.name for field in fields(CameraDescription)]
    parts: dict[str, str] = {}
    name = ""
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        first, equals, rest = (word.strip() for word in piece.partition("="))
        if not equals and not name:
            raise ConfigError(f"--camera is {text!r}; write it as in step=3,axis=height.")
        name = choose(first, known, "part of --camera") if equals else name
        parts[name] = rest if equals else f"{parts[name]},{piece}"
    return CameraDescription(**{name: _part(name, value) for name, value in parts.items()})


def read_faults(text: str | None) -> dict[str, Any]:
    """`shift=0.5,1,blur` → faults, and sizes for those that name some."""
    faults: list[str] = []
    sizes: dict[str, list[float]] = {}
    for piece in words(text) or ():
        name, equals, size = (part.strip() for part in piece.rpartition("="))
        goes_on = not equals and faults and faults[-1] in sizes
        try:
            number = float(size)
        except ValueError:
            if equals:
                raise ConfigError(
                    f"--faults {name} has the size {size!r}; write numbers, as in shift=0.5,1."
                ) from None
            faults.append(piece)
            continue
        if not (equals or goes_on):
            raise ConfigError(f"--faults names no fault for {piece}; write it as in shift=0.5,1.")
        if equals and name not in faults:
            faults.append(name)
        sizes.setdefault(name if equals else faults[-1], []).append(number)
    return {"faults": faults or None, "sizes": sizes}


def _part(name: str, text: str) -> Any:
    """One part of a camera: a word, a number, or several."""
    from prismask.apps.cli.camera_options import parse_numbers
    from prismask.checks import choose

    words_of = {"axis": ("width", "height"), "design": ("single", "dual")}
    if name in words_of:
        return choose(text, words_of[name], name)
    numbers = parse_numbers(text, f"--camera {name}")
    if name not in ("bands", "step"):
        return numbers
    if len(numbers) > 1 or (name == "bands" and numbers[0] % 1):
        raise ConfigError(f"--camera {name} is {text!r}; it is one number.")
    return int(numbers[0]) if name == "bands" else numbers[0]


def words(text: str | None) -> list[str] | None:
    """`a, b` → its parts; None of nothing."""
    return [word.strip() for word in (text or "").split(",") if word.strip()] or None
