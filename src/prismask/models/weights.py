"""Trained weights: files with a record of what they are, found by name or by path.

Weights are safetensors; no pickle is ever loaded. The record is JSON in the file's own header under
the key `prismask`: architecture, bands, wavelengths, step, mask set, data, protocol, scores with
their convention, licence note, and the cameras that the network was trained with. It also
holds the hash of the tensors and a hash of itself, so that a file that was damaged or edited
anywhere is refused by name before anything in it is believed; the record can be checked without
reading the tensors. Checkpoints are sealed the same way (`training.checkpoint`).

Weights that ship with the package lie in `prismask/weights`; a file's name without its extension is
the name people use (`lumen.m2m`). One of them may say `"default": true` in its record: that is what
`reconstruct` uses by default.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import nearest
from prismask.errors import ConfigError, DataMissingError, PrismaskError, WeightsError
from prismask.models.network import Reconstructor
from prismask.models.registry import WITHOUT_PLANES, backbone, from_record, list_models
from prismask.optics.camera import CASSI
from prismask.optics.shear import offsets_from_step
from prismask.scenes.atomic import write_beside
from prismask.scenes.defaults import STEP
from prismask.scenes.records import check_wavelengths

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "prismask"
TENSORS, RECORD = "sha256", "record_sha256"
"""Keys of the two hashes."""
UNREADABLE = (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError)
"""What the safetensors library raises for files that are not what they say."""


def write_sealed(
    path: Path, tensors: dict[str, Tensor], record: Mapping[str, Any], *, overwrite: bool
) -> dict[str, Any]:
    """Write the file whole or not at all; give back the record with its hashes."""
    sealed = {**record, TENSORS: tensors_hash(tensors)}
    sealed[RECORD] = record_hash(sealed)
    with write_beside(path, overwrite=overwrite) as beside:
        save_file(tensors, str(beside), metadata={KEY: json.dumps(sealed)})
    return sealed


def read_sealed_record(path: Path, wanted: str, what: str) -> dict[str, Any]:
    """The record of a file of format `wanted`, checked; `what` it should be, for messages."""
    with _opened(path) as file:
        text = (file.metadata() or {}).get(KEY)
    if text is None:
        raise WeightsError(
            f"{path} is a safetensors file without a Prismask record: it is no {what} that "
            "Prismask wrote."
        )
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is damaged: its record is not JSON ({error}).") from error
    form = record.get("format") if isinstance(record, dict) else None
    if form != wanted:
        raise WeightsError(
            f"{path} has format {str(form)[:60]!r}; this version reads {wanted!r}. Use the version "
            "of Prismask that wrote it, or make the file again."
        )
    if record.get(RECORD) != record_hash(record):
        raise WeightsError(
            f"{path} is damaged or was edited: its record does not match the record's SHA-256."
        )
    sealed: dict[str, Any] = record
    return sealed


def read_sealed(path: Path, wanted: str, what: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Record and tensors, each checked against its hash."""
    record = read_sealed_record(path, wanted, what)
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if tensors_hash(tensors) != record.get(TENSORS):
        raise WeightsError(f"{path} is damaged: its values do not match its record's SHA-256.")
    return record, tensors


def tensors_hash(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names, shapes, dtypes and bytes, in name order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def record_hash(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record as JSON with sorted keys, without the hash itself."""
    listed = {key: value for key, value in record.items() if key != RECORD}
    text = json.dumps(json.loads(json.dumps(listed)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except UNREADABLE as error:
        raise WeightsError(
            f"{path} is not a readable safetensors file; it may be damaged: {error}"
        ) from error


FORMAT = "prismask-weights-2"
ARCHITECTURE = ("backbone", "bands", "inputs", "options", "posterior")
"""The part of a record that says which network the tensors belong to."""
TABLES = ("interval", "masks", "data")
"""Facts of a record that are tables where they are there."""
INTERVAL_TABLES = ("learned", "trust")
"""Tables within `interval`; what they hold is checked by those who use it."""
MOST_STEPS = 100_000_000
"""More steps than any training has made; a file that claims more is not believed."""
LONGEST_SPECTRUM_PX = 100_000
"""Longer than any sensor."""
LONGEST_REASON = 300
"""Letters of why a record is not believed: it may hold numbers of any length."""


def save_weights(
    model: Reconstructor,
    path: Path | str,
    record: dict[str, Any],
    *,
    dtype: torch.dtype = torch.float16,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the model's tensors in `dtype` with `record`; give back the complete record."""
    tensors = {
        name: value.detach().to("cpu", dtype).contiguous()
        for name, value in model.state_dict().items()
    }
    complete = {
        **record,
        **{key: model.record[key] for key in ARCHITECTURE},
        "format": FORMAT,
        "dtype": str(dtype).removeprefix("torch."),
    }
    return write_sealed(Path(path), tensors, complete, overwrite=overwrite)


def read_record(path: Path | str) -> dict[str, Any]:
    """The record of a weights file, without its tensors."""
    path = _present(Path(path))
    record = read_sealed_record(path, FORMAT, "weights file")
    _check_facts(record, path)
    return record


def load_weights(path: Path | str) -> Reconstructor:
    """Build the network a weights file describes and fill it; `model.record` is the file's."""
    path = Path(path)
    record, tensors = _read(path)
    model = _built(record, path)
    _fill(model, tensors, path)
    model.record, model.source = record, str(path)
    return model.eval()


def fill_from(model: Reconstructor, path: Path | str) -> None:
    """Put a file's weights into a model that is to be trained on.

    The backbones must be the same, but one that sees more may go on from one that sees less: the
    weights of the new planes start at zero. One that can grow (`Backbone.grows_from`) may go on
    from what it was, or from less of itself: what the file does not know starts afresh. A variance
    network is taken over where both have one of the same kind, and stays as it is otherwise: with
    and without one, the backbone is the same.
    """
    path = Path(path)
    record, tensors = _read(path)
    before, now = tuple(record["inputs"]), tuple(model.record["inputs"])
    name = model.record["backbone"]
    smaller = backbone(name).grows_from
    for key, fits in (
        ("backbone", record["backbone"] in (name, smaller)),
        ("bands", record["bands"] == model.record["bands"]),
        ("inputs", now[: len(before)] == before),
    ):
        if not fits:
            raise WeightsError(
                f"{path} holds {key} {record[key]!r}, the network to train has "
                f"{model.record[key]!r}. Start from weights of the same network, or leave "
                "model.start_from empty."
            )
    own = model.state_dict()
    if record["posterior"].get("kind") != model.record["posterior"].get("kind"):
        tensors = {n: v for n, v in tensors.items() if not n.startswith("posterior.")}
        tensors |= {n: v for n, v in own.items() if n.startswith("posterior.")}
    if smaller != name:
        tensors = own | tensors
    if before != now:
        tensors = {n: _widened(v, own[n]) if n in own else v for n, v in tensors.items()}
    _fill(model, tensors, path)


def _widened(value: Tensor, like: Tensor) -> Tensor:
    """Weights `(out, in, …)` with zeros for the input planes that `like` has beyond them."""
    if value.ndim < 2 or value.shape[:1] + value.shape[2:] != like.shape[:1] + like.shape[2:]:
        return value
    more = like.shape[1] - value.shape[1]
    return value if more <= 0 else F.pad(value, (0, 0) * (value.ndim - 2) + (0, more))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Record and tensors of a file, checked against each other."""
    record, tensors = read_sealed(_present(path), FORMAT, "weights file")
    _check_facts(record, path)
    return record, tensors


def _built(record: dict[str, Any], path: Path) -> Reconstructor:
    """The network a record describes; where it describes none, the error names the file."""
    with _believed(path, "describes no network"):
        return from_record(record)


def _check_facts(record: dict[str, Any], path: Path) -> None:
    """Raise where a record lacks what every record has, or has a fact of the wrong kind.

    All that is computed with later is tried here, where the file can still be named.
    """
    missing = [key for key in ARCHITECTURE if key not in record]
    if missing:
        raise WeightsError(f"the record of {path} lacks {', '.join(missing)}.")
    _check_tables(record, ("posterior", "options", *TABLES), path)
    _check_tables(record.get("interval") or {}, INTERVAL_TABLES, path)
    with _believed(path, "says what cannot be"):
        camera = trained_camera(record)
        if camera.bands != int(record["bands"]):
            raise ConfigError(
                f"its camera has {camera.bands} bands and its network {record['bands']}."
            )
        if camera.extent > LONGEST_SPECTRUM_PX:
            raise ConfigError(f"its camera spreads the spectrum over {camera.extent} pixels.")
        trained_variation(record)
        level = float(record.get("input_level", 1.0))
        if not 0 < level < math.inf:
            raise ConfigError(f"input_level is {level:g}; it is a number above 0.")
        _check_number(record, "step", 0, MOST_STEPS)
        _check_number(record, "seconds", 0, sys.float_info.max)
        _check_number(record, "step_px", -LONGEST_SPECTRUM_PX, LONGEST_SPECTRUM_PX)
        if record.get("wavelengths_nm"):
            check_wavelengths(record["wavelengths_nm"], camera.bands)


def _check_tables(facts: Mapping[str, Any], names: tuple[str, ...], path: Path) -> None:
    """Raise where one of `names` is there and is no table."""
    for key in names:
        if not isinstance(facts.get(key), dict | None):
            raise WeightsError(f"the record of {path} has no table at {key!r}.")


def _check_number(record: Mapping[str, Any], key: str, least: float, most: float) -> None:
    """Raise where `key` is there and is no number from `least` to `most`."""
    value = record.get(key, least)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{key} is {value!r}; it is a number from {least:g} to {most:g}.")


@contextmanager
def _believed(path: Path, otherwise: str) -> Iterator[None]:
    """Turn what goes wrong with the facts of a record into an error that names its file."""
    try:
        yield
    except (*UNREADABLE, AttributeError, ArithmeticError, PrismaskError) as error:
        reason = str(error)[:LONGEST_REASON]
        raise WeightsError(f"the record of {path} {otherwise}: {reason}") from error


def _fill(model: Reconstructor, tensors: dict[str, Tensor], path: Path) -> None:
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in tensors.items()}
    if wanted != given:
        names = sorted(set(wanted.items()) ^ set(given.items()))
        listed = ", ".join(f"{name} {shape}" for name, shape in names[:4])
        raise WeightsError(
            f"{path} does not fit the architecture its record names "
            f"({model.record['backbone']}, {model.bands} bands): {listed}."
        )
    model.load_state_dict({name: value.float() for name, value in tensors.items()})


def _present(path: Path) -> Path:
    if not path.is_file():
        raise DataMissingError(
            f"no weights file at {path}. Give a path, or a name from `prismask models`."
        )
    return path


@dataclass(frozen=True)
class Measured:
    """Single-disperser cameras on which a network was scored and did well, in any spacing."""

    bands: tuple[int, int]
    """Fewest and most bands."""
    length_px: tuple[float, float]
    """Shortest and longest spectrum, in pixels."""

    def __post_init__(self) -> None:
        (fewest, most), (shortest, longest) = self.bands, self.length_px
        if not (1 <= fewest <= most and 0 <= shortest <= longest < math.inf):
            raise ConfigError(
                f"cameras of {fewest} to {most} bands over {shortest:g} to {longest:g} px were "
                "not measured."
            )


@dataclass(frozen=True)
class Variation:
    """How far the cameras of a training lay from the one in its record (`optics.varied_prism`)."""

    spread: tuple[float, float] = (1.0, 1.0)
    """Factors on the length of the spectrum."""
    bend: float = 0.0
    """Most that it was bent, either way."""
    jitter: float = 0.0
    """Most by which a band missed its place, as a share of half the way to its neighbour."""
    band_counts: tuple[int, ...] = ()
    """Into how many bands the spectrum was cut, besides that camera's own."""
    measured: Measured | None = None
    """What was found to be within reach, where somebody has looked."""

    def __post_init__(self) -> None:
        low, high = self.spread
        fits = 0 < low <= high < math.inf and 0 <= self.bend < math.inf and 0 <= self.jitter < 1
        if not fits or min(self.band_counts, default=1) < 1:
            raise ConfigError(
                f"cameras spread by {low:g} to {high:g}, bent by {self.bend:g}, with a jitter of "
                f"{self.jitter:g} and {self.band_counts} bands were not trained with."
            )

    def nearest_spread(self, factor: float) -> float:
        """The factor it learned that is nearest; the camera of the record is always among them."""
        low, high = self.spread
        if factor <= 0:
            return min(low, 1.0)
        known = min(max(factor, low), high)
        return min(known, 1.0, key=lambda each: max(each / factor, factor / each))


ONE_CAMERA = Variation()
"""What most trainings know."""


def trained_with(camera: CASSI) -> dict[str, Any]:
    """What a record says of the camera that measured the crops."""
    between = max(1, camera.bands - 1)
    return {
        "step_px": round((camera.offsets[-1] - camera.offsets[0]) / between, 9),
        "offsets_px": list(camera.offsets),
        "design": camera.design,
    }


def trained_camera(record: Mapping[str, Any]) -> CASSI:
    """The camera of a record; older ones know the step alone, or nothing."""
    known = record.get("offsets_px")
    equal = offsets_from_step(int(record["bands"]), float(record.get("step_px", STEP)))
    return CASSI(tuple(known) if known else equal, design=record.get("design", "single"))


def trained_variation(record: Mapping[str, Any]) -> Variation:
    """How far cameras lay from `trained_camera`, as `training.setup` tells it."""
    low, high = record.get("spread", ONE_CAMERA.spread)
    return Variation(
        (float(low), float(high)),
        float(record.get("bend", ONE_CAMERA.bend)),
        float(record.get("jitter", ONE_CAMERA.jitter)),
        tuple(int(count) for count in record.get("band_counts", ())),
        _measured(record.get("measured_cameras")),
    )


def _measured(found: Mapping[str, Any] | None) -> Measured | None:
    if found is None:
        return None
    fewest, most = found["bands"]
    shortest, longest = found["length_px"]
    return Measured((int(fewest), int(most)), (float(shortest), float(longest)))


def knows_wrong_masks(record: Mapping[str, Any]) -> bool:
    """Whether masks were wrong in the training, and the network was given how far."""
    masks = record.get("masks") or {}
    return bool(masks.get("fault_share")) and bool(masks.get("told_share"))


def serves_any_camera(record: Mapping[str, Any]) -> bool:
    """Whether the network of a record works from the snapshot itself, in the camera's own bands."""
    return record.get("backbone") in WITHOUT_PLANES


FOLDER = Path(__file__).resolve().parents[1] / "weights"
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Shipped:
    """One weights file that comes with the package."""

    name: str
    path: Path
    record: dict[str, Any]

    @property
    def is_default(self) -> bool:
        """Whether `reconstruct` takes it by default."""
        return self.record.get("default") is True


@cache
def shipped(folder: Path = FOLDER) -> tuple[Shipped, ...]:
    """All weights that come with the package, by name; damaged files are left out."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []:
        try:
            found.append(Shipped(path.name.removesuffix(SUFFIX), path, read_record(path)))
        except PrismaskError:
            continue
    return tuple(found)


def default_weights(folder: Path = FOLDER) -> Shipped | None:
    """The weights to use by default, if any are shipped for that."""
    return next((one for one in shipped(folder) if one.is_default), None)


def is_path(name_or_path: str | Path) -> bool:
    """Whether text speaks of a file: it has a slash or the extension."""
    text = os.fspath(name_or_path)
    separators = filter(None, (os.sep, os.altsep, "/"))
    return (
        isinstance(name_or_path, Path)
        or text.endswith(SUFFIX)
        or any(separator in text for separator in separators)
    )


def find_weights(name_or_path: str | Path, folder: Path = FOLDER) -> Path:
    """The file of a name from `prismask models` or a path to a .safetensors file.

    Text with a slash or the extension is a path; anything else is a name. A file that happens to
    be called like a name is not opened: the two never compete.
    """
    text = os.fspath(name_or_path)
    names = [one.name for one in shipped(folder)]
    forms = (
        f"Give a name from `prismask models` ({', '.join(names) or 'none is shipped yet'}) or the "
        f"path of a weights file, such as ./runs/mine/weights{SUFFIX}."
    )
    if is_path(name_or_path):
        path = Path(text).expanduser()
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise DataMissingError(f"the weights file {text} {what}. {forms}")
        return path
    for one in shipped(folder):
        if one.name == text:
            return one.path
    if text in list_models():
        raise ConfigError(f"{text!r} is an architecture, not trained weights. {forms}")
    if Path(text).exists():
        raise ConfigError(
            f"{text!r} is no name of shipped weights. If the file of that name is meant, write "
            f"its path: ./{text}. {forms}"
        )
    raise ConfigError(f"no weights are called {text!r}.{nearest(text, names)} {forms}")


def load_model(name_or_path: str | Path) -> Reconstructor:
    """The trained network of a name or path; its hash is checked."""
    return load_weights(find_weights(name_or_path))
