"""Trained weights by name or by path.

Weights that ship with the package lie in `prismask/weights` as safetensors; a file's name without
its extension is the name people use (`srn-gst.m2m`). One of them may say `"default": true` in its
record: that is what `reconstruct` uses when nobody chooses. Others may take its place: behind
cameras that it does not know those that say `"default": "other_cameras"`, and with masks that are
aligned with the snapshot first, or drawn from a posterior, those that say `"exact_masks"`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prismask.checks import nearest
from prismask.errors import ConfigError, DataMissingError, PrismaskError
from prismask.models.network import Reconstructor
from prismask.models.registry import list_models
from prismask.models.weights import load_weights, read_record

FOLDER = Path(__file__).resolve().parents[1] / "weights"
SUFFIX = ".safetensors"
ELSEWHERE, EXACT = "other_cameras", "exact_masks"
"""What `default` in a record says of weights for cameras that are not the default's, and of those
that feel a wrong mask most and make the most of a right one."""


@dataclass(frozen=True)
class Shipped:
    """One weights file that comes with the package."""

    name: str
    path: Path
    record: dict[str, Any]

    @property
    def is_default(self) -> bool:
        """Whether `reconstruct` takes it when nobody chooses."""
        return self.record.get("default") is True

    @property
    def is_default_elsewhere(self) -> bool:
        """Whether it does so behind cameras that are not that of the default's training."""
        return self.record.get("default") == ELSEWHERE

    @property
    def is_default_for_exact_masks(self) -> bool:
        """Whether it does so with masks that are aligned first, or drawn from its posterior."""
        return self.record.get("default") == EXACT


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
    """The weights to use when nobody chooses, if any are shipped for that."""
    return next((one for one in shipped(folder) if one.is_default), None)


def defaults(folder: Path = FOLDER) -> tuple[Shipped, ...]:
    """The weights that serve when nobody chooses, `default_weights` first."""
    first = default_weights(folder)
    others = (
        one for one in shipped(folder) if one.is_default_elsewhere or one.is_default_for_exact_masks
    )
    return () if first is None else (first, *others)


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
    """The file behind a name from `prismask models` or a path to a .safetensors file.

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
    """The trained network behind a name or path; its hash is checked."""
    return load_weights(find_weights(name_or_path))
