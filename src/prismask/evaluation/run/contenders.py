"""Who is compared: weights files, fresh networks, solvers, and anything that can be called.

A contender is named as

    srn-looks.m2m                     weights that come with the package
    srn-looks.m2m:adapt=60            the same, learning every scene first for 60 steps
    srn-looks.m2m:ways=1              the same, asked one way round (`models.mirror_ensemble`)
    runs/mine/weights.safetensors     a weights file, or the run folder that holds one
    srn  or  srn:mask_posterior=gst   a network with fresh, seeded weights
    gap-tv  or  gap-tv:iterations=30  a solver

with options after a colon, and with `LABEL=` before it to choose what tables call it. In Python a
dictionary `{label: model}` takes the same names and any `model(measurement, mask, camera) → cube`.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prismask.checks import nearest
from prismask.errors import ConfigError, DataMissingError
from prismask.models.catalogue import shipped
from prismask.models.mirror_ensemble import ways_of
from prismask.models.registry import create_model, list_models
from prismask.models.weights import load_weights, read_record, tensors_hash
from prismask.optics.camera import CASSI
from prismask.solvers import create_solver, list_solvers

Kind = Literal["weights", "untrained", "solver", "callable"]
Method = Callable[[Tensor, Tensor, CASSI], Tensor]
"""`(measurement (B, H, L), mask (1, 1|C, H, W), camera) → cube (B, C, H, W)`."""

Models = str | Path | Sequence[str | Path] | Mapping[str, Any]

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
    """A method ready to be moved to a device."""

    label: str
    """What tables call it."""
    kind: Kind
    model: Any
    """Network on the CPU, solver, or callable."""
    identity: str
    """What makes it the same contender in a later run: a hash or its options."""
    record: Mapping[str, Any]
    """The record of a weights file; empty otherwise."""
    adapt: int = 0
    """Steps in which a network learns each scene before it gives its cube."""

    def build(self, device: torch.device, half: bool = False) -> Method:
        """The method on `device`, networks in half precision if so asked."""
        from prismask.inference.methods.adaptation import Adapting
        from prismask.models.fast import FastReconstructor, Precision
        from prismask.models.network import Reconstructor

        if isinstance(self.model, Reconstructor):
            precision: Precision = "half" if half else "float32"
            if self.adapt:
                return Adapting(self.model, device, precision, self.adapt)
            return FastReconstructor(self.model, device, precision)
        if isinstance(self.model, nn.Module):
            # A copy: the caller's network stays where it is.
            return copy.deepcopy(self.model).to(device).eval()
        method: Method = self.model
        return method

    @property
    def is_network(self) -> bool:
        """Whether half precision is a question at all."""
        from prismask.models.network import Reconstructor

        return isinstance(self.model, Reconstructor)

    @property
    def training_masks(self) -> Mapping[str, Any] | None:
        """What the record says about training masks; None where nobody knows."""
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


def build_contender(entry: Entry, bands: int, seed: int) -> Contender:
    """Load or make the contender; fresh networks get `bands` bands and seeded weights."""
    adapt = 0
    if entry.kind == "weights":
        model: Any = load_weights(entry.what)
        adapt = int(entry.options.get("adapt", 0))
        model.record["ways"] = ways = ways_of({**model.record, **entry.options})
        identity = str(entry.record["sha256"])
        if ways > 1:
            identity += f", asked {ways} ways"
        if adapt:
            identity += f", learning for {adapt} steps"
    elif entry.kind == "untrained":
        model = create_model(entry.what, bands=bands, seed=seed, **entry.options).eval()
        identity = tensors_hash(model.state_dict())
    elif entry.kind == "solver":
        model = create_solver(entry.what, **entry.options)
        identity = repr(model)
    else:
        model, identity = entry.what, _identity_of(entry.what)
    return Contender(entry.label, entry.kind, model, identity, entry.record, adapt)


def weights_of(identity: str) -> str:
    """The hash of the weights alone in a network's identity, however it is asked."""
    return identity.partition(", ")[0]


def _identity_of(model: Any) -> str:
    """A name for something that can be called, and a hash of all it holds where there is one."""
    name = str(getattr(model, "__qualname__", type(model).__name__))
    if isinstance(model, nn.Module):
        return f"{name}, {tensors_hash(model.state_dict())}"
    try:
        held = pickle.dumps(model)
    except Exception:  # whatever a stranger's object raises: it cannot be compared
        return name
    return f"{name}, {hashlib.sha256(held).hexdigest()[:12]}"


def _split_label(model: str | Path) -> tuple[str | None, Any]:
    # A path may have "=" in it; what is there is what is meant.
    if not isinstance(model, str) or Path(model).exists():
        return None, model
    found = _LABELLED.fullmatch(model)
    return (found[1].strip(), found[2]) if found else (None, model)


def _entry(model: Any, label: str | None) -> Entry:
    if not isinstance(model, str | Path):
        if not callable(model):
            raise ConfigError(f"{label}: {type(model).__name__} is no model; it cannot be called.")
        return Entry(label or "model", "callable", model)
    path = Path(model)
    name, _, options_text = str(model).partition(":")
    if name in list_solvers():
        return Entry(label or str(model), "solver", name, _options(options_text, str(model)))
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
        known = [*ours, *list_models(), *list_solvers()]
        raise DataMissingError(
            f"{str(model)!r} is neither a weights file nor a name.{nearest(name, known)} "
            f"Names: {', '.join(known)}; a weights file ends in .safetensors."
        )
    record = read_record(path)
    _check_trained(options, str(model))
    called = str(record.get("name") or path.stem) + (f":{options_text}" if options else "")
    return Entry(label or called, "weights", path, options, record)


def _check_trained(options: Mapping[str, Any], model: str) -> None:
    steps = options.get("adapt", 0)
    if set(options) - {"adapt", "ways"} or type(steps) is not int or steps < 0:
        raise ConfigError(
            f"{model}: trained weights take the options adapt=STEPS, how long they learn a scene, "
            "and ways=1 or 2, how often they are asked."
        )
    ways_of(options)


def _options(text: str, model: str) -> dict[str, Any]:
    """`iterations=30,coupling=band` → values as TOML reads them, else as text."""
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise ConfigError(f"{model}: {part!r} is no option; write NAME:key=value,key=value.")
        try:
            options[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            options[key] = value
    return options
