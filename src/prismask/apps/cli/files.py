"""`prismask info` and `convert`: what is in a file, and the same in another format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from prismask.apps.cli.camera_options import parse_numbers
from prismask.apps.cli.terminal import say, table
from prismask.checks import size_text
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.scenes.records import Record

USELESS = 2
"""Exit code for a file of which nothing can be used."""
MOST_LISTED, LONGEST_NAME = 40, 80
"""Variables that are listed, and letters of their names; --json shows them all."""
LONGEST_LIST = 90
"""Characters of a list of numbers that are shown; --json shows them all. Sentences are whole."""


def info(
    file: Path,
    /,
    *,
    variable: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show what a file holds: arrays, sizes, wavelengths and history.

    Parameters
    ----------
    file
        A cube, mask or measurement in any format that Prismask reads.
    variable
        The variable to describe, in a file that holds several.
    as_json
        Print one JSON object with everything.
    """
    from prismask.scenes.formats.contents import plain
    from prismask.scenes.formats.files import describe

    summary = describe(file, variable=variable)
    if as_json:
        say(json.dumps(plain(summary), indent=2))
    else:
        say(as_text(summary))
    is_useless = all(entry["note"] for entry in summary["variables"])
    return USELESS if summary["problem"] and is_useless else 0


def as_text(summary: dict[str, Any]) -> str:
    """The summary of `describe` for people."""
    rows = [("file", str(summary["path"])), ("format", _format(summary))]
    if summary["shape"] is not None:
        rows.append((str(summary["kind"]), f"{size_text(summary['shape'])}{_variable(summary)}"))
        rows.append(("values", _values(summary)))
    at = summary["wavelengths"]
    if at:
        rows.append(("wavelengths", f"{len(at)} from {at[0]:g} to {at[-1]:g} nm"))
    if len(summary["variables"]) > 1 or summary["problem"]:
        listed = [_listed(entry) for entry in summary["variables"][:MOST_LISTED]]
        more = len(summary["variables"]) - len(listed)
        listed += [f"and {more} more (--json shows all)"] if more else []
        rows.append(("variables", "; ".join(listed)))
    if summary["problem"]:
        rows.append(("unclear", " ".join(str(summary["problem"]).split())))
    text = table(rows)
    history = [row for key, value in summary["attrs"].items() for row in _rows(key, value)]
    return f"{text}\n\n{table(history, indent='  ')}" if history else text


def _format(summary: dict[str, Any]) -> str:
    size = summary["bytes"]
    return str(summary["format"]) + ("" if size is None else f", {size / 1e6:.3g} MB")


def _variable(summary: dict[str, Any]) -> str:
    name = summary["variable"]
    return "" if name in (None, summary["kind"]) else f" (variable {name})"


def _values(summary: dict[str, Any]) -> str:
    bad = summary["not_finite"]
    spoilt = f"; {bad} are NaN or infinite" if bad else ""
    if summary["minimum"] is None:
        return f"none is finite{spoilt}"
    return f"{summary['minimum']:.4g} to {summary['maximum']:.4g} of full scale{spoilt}"


def _listed(entry: dict[str, Any]) -> str:
    note = f", {entry['note']}" if entry["note"] else ""
    name = str(entry["name"])
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return f"{name} ({entry['dtype']} {size_text(entry['shape'])}{note})"


def _rows(key: str, value: Any) -> list[tuple[str, str]]:
    """An attribute, sentences one below the other."""
    if not isinstance(value, list | tuple):
        return [(key, str(value))]
    if value and all(isinstance(one, str) for one in value):
        return [(key if place == 0 else "", one) for place, one in enumerate(value)]
    text = ", ".join(map(str, value))
    return [(key, text if len(text) <= LONGEST_LIST else f"{text[: LONGEST_LIST - 1]}…")]


def convert(
    source: Path,
    target: Path,
    /,
    *,
    kind: Literal["cube", "mask", "measurement"] | None = None,
    variable: str | None = None,
    wavelengths: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Convert a cube, mask or measurement to the format of another file extension.

    Parameters
    ----------
    source
        The file to read; its format is recognised from its content.
    target
        The file to write: .nc, .mat, .npz, .npy, .tif, .hdr …
    kind
        What the file holds, if the names in it do not tell.
    variable
        The variable to take from a file that holds several.
    wavelengths
        Centre wavelength of each band in nm, as a,b,c or a text file.
    overwrite
        Replace the target if it exists.
    """
    from prismask.scenes.atomic import check_inputs, check_record
    from prismask.scenes.formats.files import load, load_cube, load_mask, save

    check_inputs(source)
    check_record(target, overwrite, source)
    record: Record
    if wavelengths is None:
        record = load(source, kind, variable)
    elif kind == "measurement":
        raise ConfigError("a measurement has no wavelengths: leave --wavelengths out.")
    else:
        listed = parse_numbers(wavelengths, "--wavelengths")
        record = (load_mask if kind == "mask" else load_cube)(source, variable, listed)
    save(record, target, overwrite=overwrite)
    say(f"{target}")
