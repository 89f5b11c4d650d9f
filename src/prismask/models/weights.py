"""Weights as safetensors with a record of what they are. No pickle is ever loaded.

The record is JSON in the file's own header under the key `prismask`: architecture, bands,
wavelengths, step, mask set, data, protocol, scores with their convention, licence note. It also
holds the hash of the tensors and a hash of itself, so that a file that was damaged or edited
anywhere is refused by name before anything in it is believed; the record can be checked without
reading the tensors. Checkpoints are sealed the same way (`training.checkpoint`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import DataMissingError, WeightsError
from prismask.models.network import Reconstructor
from prismask.models.registry import backbone, from_record
from prismask.scenes.atomic import write_beside

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
    """SHA-256 of a record as JSON with sorted keys, but for the hash itself."""
    told = {key: value for key, value in record.items() if key != RECORD}
    text = json.dumps(json.loads(json.dumps(told)), sort_keys=True)
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


def save_weights(
    model: Reconstructor,
    path: Path | str,
    record: dict[str, Any],
    *,
    dtype: torch.dtype = torch.float16,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the model's tensors in `dtype` beside `record`; give back the complete record."""
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
    return read_sealed_record(_present(Path(path)), FORMAT, "weights file")


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
    missing = [key for key in ARCHITECTURE if key not in record]
    if missing:
        raise WeightsError(f"the record of {path} lacks {', '.join(missing)}.")
    return record, tensors


def _built(record: dict[str, Any], path: Path) -> Reconstructor:
    """The network a record describes; one that describes none is told by the file's name."""
    try:
        return from_record(record)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise WeightsError(f"the record of {path} describes no network: {error}") from error


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
