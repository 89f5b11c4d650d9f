"""A safetensors file with a record beside its tensors, both sealed by SHA-256.

The record is JSON in the file's own header under the key `prismask`. It holds the hash of the
tensors and a hash of itself, so that a file that was damaged or edited anywhere is refused by name
before anything in it is believed; the record can be checked without reading the tensors.
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

from prismask.errors import WeightsError
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
