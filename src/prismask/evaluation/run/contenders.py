"""Who is compared: weights files, fresh networks, solvers, and anything that can be called.

A contender is named as

    lumen.m2m                         weights that come with the package
    lumen.m2m:adapt=60                the same, learning every scene first for 60 steps
    lumen.m2m:align=true              the same, finding the pose of every mask first
    runs/mine/weights.safetensors     a weights file, or the run folder that holds one
    srn  or  srn:mask_posterior=gst   a network with fresh, seeded weights
    gap-tv  or  gap-tv:iterations=30  a solver, or a registered method (`methods.registry`)

with options after a colon, and with `LABEL=` before it to choose what tables call it. In Python a
dictionary `{label: model}` takes the same names, networks, methods, and any
`model(measurement, mask, camera) → cube`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from prismask.checks import nearest
from prismask.errors import ConfigError, DataMissingError
from prismask.inference.methods.protocol import Capabilities, Method
from prismask.inference.methods.registry import (
    as_method,
    capabilities_of,
    create_method,
    function_identity,
    list_methods,
)
from prismask.inference.options import DEFAULTS, MaskStd, Options
from prismask.models.registry import create_model, list_models
from prismask.models.weights import load_weights, read_record, shipped, tensors_hash
from prismask.solvers import create_solver, list_solvers

Kind = Literal["weights", "untrained", "solver", "method", "callable"]

Models = str | Path | Sequence[str | Path] | Mapping[str, Any]

OF_WEIGHTS = ("adapt", "align", "mask_std")
"""Options that trained weights take, by the names of `Options`."""
_LABELLED = re.compile(r"([^:=]+)=(.+)")


@dataclass(frozen=True)
class Entry:
    """A contender that is named but not built yet."""

    label: str
    """What tables call it."""
    kind: Kind
    what: Any
    """Path, name, or the callable itself."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of a network or solver."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The record of a weights file."""

    @property
    def bands(self) -> int | None:
        """Bands it is built for; None: any."""
        return int(self.record["bands"]) if self.kind == "weights" else None

    @property
    def wavelengths(self) -> tuple[float, ...] | None:
        """Wavelengths in nm it was trained at, where its record says so."""
        noted = self.record.get("wavelengths_nm")
        return None if noted is None else tuple(float(w) for w in noted)


@dataclass(frozen=True)
class Contender:
    """A method that can be built on any device. It travels between processes."""

    label: str
    """What tables call it."""
    kind: Kind
    model: Any
    """Network on the CPU, the name of a method, a method, or a function."""
    identity: str
    """What makes it the same contender in a later run: a hash or its options."""
    record: Mapping[str, Any]
    """The record of a weights file; empty otherwise."""
    options: Options = DEFAULTS
    """What it is to do with every snapshot: align, adapt …"""
    capabilities: Capabilities = frozenset()
    """What it can do (`methods.protocol.Capability`)."""

    def build(self, device: torch.device, half: bool = False) -> Method:
        """The method on `device`, networks in half precision if `half`."""
        if self.kind in ("solver", "method"):
            return create_method(self.model, device, **dict(self.options.method_options))
        options = replace(self.options, precision="half" if half else "float32")
        return as_method(self.model, device, options, self.label)

    @property
    def training_masks(self) -> Mapping[str, Any] | None:
        """What the record says about training masks; None where unknown."""
        if self.kind in ("untrained", "solver"):
            return {"source": "none"}
        masks = self.record.get("masks")
        return masks if isinstance(masks, Mapping) else None

    @property
    def earlier_trainings(self) -> tuple[Mapping[str, Any], ...]:
        """Records of the weights that the training went on from, the latest first."""
        found: list[Mapping[str, Any]] = []
        before = self.record.get("started_from")
        while isinstance(before, Mapping):
            found.append(before)
            before = before.get("started_from")
        return tuple(found)


def read_entries(models: Models) -> list[Entry]:
    """Understand the names; weights records are read, nothing is built."""
    if isinstance(models, Mapping):
        named: list[tuple[str | None, Any]] = [(str(label), m) for label, m in models.items()]
    else:
        listed = [models] if isinstance(models, str | Path) else models
        named = [_split_label(model) for model in listed]
    if not named:
        raise ConfigError("name at least one model: a weights file, srn, gap-tv …")
    entries: list[Entry] = []
    for label, model in named:
        entry = _entry(model, label)
        taken = {other.label for other in entries}
        if entry.label in taken:
            raise ConfigError(
                f"two models are called {entry.label!r}: name one of them, as in "
                f"'other={model}', so that tables keep them apart."
            )
        entries.append(entry)
    return entries


def build_contender(entry: Entry, bands: int, seed: int, options: Options = DEFAULTS) -> Contender:
    """Load or make the contender; fresh networks get `bands` bands and seeded weights.

    options: what all contenders are to do with every snapshot; those that cannot adapt, or have no
        input for how far the mask may be wrong, do not.
    """
    model, identity = _load(entry, bands, seed)
    if entry.kind == "method":
        able = create_method(model, torch.device("cpu"), **entry.options).capabilities
    else:
        able = capabilities_of(model)
    if entry.kind == "weights":
        chosen = {name: entry.options[name] for name in OF_WEIGHTS if name in entry.options}
        options = replace(options, **chosen)
    if entry.kind in ("solver", "method"):
        options = replace(options, method_options=tuple(entry.options.items()))
    if "adapt" not in able:
        options = replace(options, adapt=0)
    if "uncertain_mask" not in able:
        options = replace(options, mask_std=None)
    identity += "".join(f", {text}" for text in _extras(options))
    return Contender(entry.label, entry.kind, model, identity, entry.record, options, able)


def _load(entry: Entry, bands: int, seed: int) -> tuple[Any, str]:
    """The model of an entry, and what makes it the same one in a later run."""
    if entry.kind == "weights":
        return load_weights(entry.what), str(entry.record["sha256"])
    if entry.kind == "untrained":
        fresh = create_model(entry.what, bands=bands, seed=seed, **entry.options).eval()
        return fresh, tensors_hash(fresh.state_dict())
    if entry.kind == "solver":
        return entry.what, repr(create_solver(entry.what, **entry.options))
    if entry.kind == "method":
        given = ", ".join(f"{key}={value!r}" for key, value in entry.options.items())
        return entry.what, f"{entry.what}({given})"
    return entry.what, function_identity(entry.what)


def _extras(options: Options) -> list[str]:
    """What a contender does besides a single pass, for its identity."""
    found = []
    if options.adapt:
        found.append(f"learning for {options.adapt} steps")
    if options.align:
        found.append("aligned")
    if options.mask_std is not None:
        found.append(f"told a mask_std of {options.mask_std:g}")
    return found


def weights_of(identity: str) -> str:
    """The hash of the weights alone in a network's identity, however it is used."""
    return identity.partition(", ")[0]


def _split_label(model: str | Path) -> tuple[str | None, Any]:
    # A path may have "=" in it; what is there is what is meant.
    if not isinstance(model, str) or Path(model).exists():
        return None, model
    found = _LABELLED.fullmatch(model)
    return (found[1].strip(), found[2]) if found else (None, model)


def _entry(model: Any, label: str | None) -> Entry:
    if not isinstance(model, str | Path):
        if not callable(model):
            raise ConfigError(
                f"{label}: {type(model).__name__} is not a model; it cannot be called."
            )
        return Entry(label or "model", "callable", model)
    path = Path(model)
    name, _, options_text = str(model).partition(":")
    if name in list_solvers():
        return Entry(label or str(model), "solver", name, _options(options_text, str(model)))
    if name in list_methods():
        return Entry(label or str(model), "method", name, _options(options_text, str(model)))
    if name in list_models():
        options = _options(options_text, str(model))
        return Entry(label or f"{model} (untrained)", "untrained", name, options)
    ours = {one.name: one.path for one in shipped()}
    # A file may have a colon in its name; what is there is what is meant.
    path = path if path.exists() else Path(name)
    options = {} if path == Path(model) else _options(options_text, str(model))
    if name in ours:
        path = ours[name]
    elif path.is_dir():
        path = path / "weights.safetensors"
    if not path.is_file():
        known = [*ours, *list_models(), *list_methods()]
        raise DataMissingError(
            f"{str(model)!r} is neither a weights file nor a name.{nearest(name, known)} "
            f"Names: {', '.join(known)}; a weights file ends in .safetensors."
        )
    record = read_record(path)
    _check_trained(options, str(model))
    called = str(record.get("name") or path.stem) + (f":{options_text}" if options else "")
    return Entry(label or called, "weights", path, options, record)


def _check_trained(options: Mapping[str, Any], model: str) -> None:
    steps, align = options.get("adapt", 0), options.get("align", False)
    known = not set(options) - set(OF_WEIGHTS)
    stated = options.get("mask_std", 0.0)
    numbers = type(steps) is int and steps >= 0 and type(stated) in (int, float)
    if not known or not numbers or type(align) is not bool:
        raise ConfigError(
            f"{model}: trained weights take the options adapt=STEPS, how long they learn a scene, "
            "align=true, to find the pose of the mask first, and mask_std=NUMBER, how far the "
            "mask may be wrong, for networks that use it."
        )
    MaskStd.of(stated)


def _options(text: str, model: str) -> dict[str, Any]:
    """`iterations=30,coupling=band` → values as TOML reads them, else as text."""
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise ConfigError(
                f"{model}: {part!r} is not an option; write NAME:key=value,key=value."
            )
        try:
            options[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            options[key] = value
    return options
