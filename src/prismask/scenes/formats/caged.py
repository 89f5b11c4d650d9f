"""Reading a file in the cage: what it holds as facts, then each array when asked for.

Parsers written in C crash, loop and overflow on damaged files, so they only ever run in a process
of their own (`prismask.parallel.cage`). What comes back is data: a `Contents` whose variables
read their arrays the same way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.parallel.cage import (
    CrashError,
    MemoryLimitError,
    TaskFailedError,
    TimeLimitError,
    is_supported,
    run_caged,
)
from prismask.scenes.formats.attributes import plain
from prismask.scenes.formats.contents import Contents, Listed, Variable, as_kind, reading
from prismask.scenes.formats.limits import (
    SECONDS_VARIABLE,
    ReadLimits,
    bytes_text,
    file_size,
    how_to_raise,
    limits_for,
    using,
)
from prismask.scenes.units import kaist_to_fraction, to_fraction

if TYPE_CHECKING:
    from prismask.scenes.formats.registry import Format

SMALL, FEW = 2**20, 16
"""A file of fewer bytes, values and arrays is read at once: a second call would cost more."""

_SCALES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "fraction": to_fraction,
    "kaist": kaist_to_fraction,
    "none": np.asarray,
}


def read_caged(form: Format, path: Path) -> Contents:
    """What a file holds; nothing of it is parsed in this process."""
    if not is_supported():
        return form.read_here(path)
    facts, arrays = _run(form, path, "list_contents", [])
    return _contents(form, path, facts, arrays)


def _read_array(form: Format, path: Path, name: str) -> NDArray[Any]:
    _, (array,) = _run(form, path, "read_array", [name])
    return array


def _run(
    form: Format, path: Path, task: str, arguments: list[Any]
) -> tuple[Any, list[NDArray[Any]]]:
    limits = limits_for(path)
    start = [form.name, str(path), limits.seconds, limits.memory_bytes]
    size = "" if path.is_dir() else f" for a file of {bytes_text(path.stat().st_size)}"
    try:
        return run_caged(f"{__name__}:{task}", [*start, *arguments], limits, form.modules)
    except TimeLimitError as problem:
        raise FormatError(
            f"{path}: reading it as {form.title} was stopped after {limits.seconds:.3g} s, the "
            f"limit{size}. It is damaged, or the disk is slow; then raise the limit: "
            f"{SECONDS_VARIABLE}=600 (or limits=ReadLimits(seconds=…))."
        ) from problem
    except MemoryLimitError as problem:
        raise FormatError(
            f"{path}: reading it as {form.title} takes more than "
            f"{bytes_text(limits.memory_bytes)} of memory, the limit{size}. {how_to_raise()}"
        ) from problem
    except (CrashError, TaskFailedError) as problem:
        raise FormatError(
            f"{path} cannot be read as {form.title}: {str(problem).rstrip('.')}. Is it damaged "
            "or cut short? Copy or download it again."
        ) from problem


def _contents(
    form: Format, path: Path, facts: dict[str, Any], arrays: list[NDArray[Any]]
) -> Contents:
    with reading(path, form.title):
        sent = dict(zip(facts["sent"], arrays, strict=True))
        variables = {}
        for entry in facts["variables"]:
            name = str(entry["name"])
            read = partial(_read_array, form, path, name)
            variables[name] = Variable(
                name,
                tuple(int(n) for n in entry["shape"]),
                str(entry["dtype"]),
                partial(sent.__getitem__, name) if name in sent else read,
                _SCALES[entry["scale"]],
                int(entry["band_axis"]),
                str(entry["note"]),
                bool(entry["is_named"]),
            )
        return Contents(
            str(path),
            str(facts["format"]),
            variables,
            facts["wavelengths"],
            facts["wavelength_units"],
            facts["attrs"],
            as_kind(facts["kind"]),
            tuple(Listed(*one) for one in facts["listed"]),
        )


# --- in the cage ---------------------------------------------------------------------------------


def list_contents(form: str, path: str, seconds: float, memory_bytes: int) -> tuple[Any, list[Any]]:
    """What a file holds; its arrays too where all of them together are small."""
    contents = _open(form, path, seconds, memory_bytes)
    sent = _read_all(contents) if Path(path).is_file() and file_size(Path(path)) < SMALL else {}
    scales = {function: word for word, function in _SCALES.items()}
    variables = []
    for variable in contents.variables.values():
        facts = {
            field.name: getattr(variable, field.name)
            for field in dataclasses.fields(variable)
            if field.name not in ("read", "to_fraction")
        }
        variables.append(plain(facts | {"scale": scales[variable.to_fraction]}))
    wavelengths = contents.wavelengths
    if wavelengths is not None:
        wavelengths = Listed("", wavelengths).values.tolist()
    return {
        "format": contents.format,
        "variables": variables,
        "wavelengths": wavelengths,
        "wavelength_units": plain(contents.wavelength_units),
        "attrs": plain(contents.attrs),
        "kind": contents.kind,
        "listed": [[one.name, one.values.tolist(), one.units] for one in contents.listed],
        "sent": list(sent),
    }, list(sent.values())


def _read_all(contents: Contents) -> dict[str, NDArray[Any]]:
    """The arrays, unless one of them is large, or cannot be read: then it is told when asked."""
    usable = [v for v in contents.variables.values() if not v.note]
    if len(usable) > FEW or sum(math.prod(v.shape) for v in usable) > SMALL:
        return {}
    try:
        return {v.name: np.asarray(v.read()) for v in usable}
    except Exception:
        return {}


def read_array(
    form: str, path: str, seconds: float, memory_bytes: int, name: str
) -> tuple[Any, list[NDArray[Any]]]:
    """One array of a file."""
    contents = _open(form, path, seconds, memory_bytes)
    with using(ReadLimits(seconds, memory_bytes)), reading(path, contents.format):
        return None, [np.asarray(contents.variables[name].read())]


def _open(form: str, path: str, seconds: float, memory_bytes: int) -> Contents:
    registry = import_module("prismask.scenes.formats.registry")
    chosen = next(one for one in registry.FORMATS if one.name == form)
    with using(ReadLimits(seconds, memory_bytes)):
        contents: Contents = chosen.read_here(Path(path))
    return contents
