"""Tables of TOML files into frozen dataclasses and back, for any of them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from prismask.checks import nearest
from prismask.errors import ConfigError, DataMissingError


def read_table(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's tables over those of the files its `base` names (relative to itself)."""
    if not path.is_file():
        raise DataMissingError(f"no configuration at {path}. The shipped ones are in configs/.")
    if path.resolve() in seen:
        raise ConfigError(f"{path} is its own base.")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    bases = table.pop("base", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ConfigError(f"{path}: base should be the path of another configuration, or a list.")
    below: dict[str, Any] = {}
    for base in bases:
        below = _merged(below, read_table(path.parent / base, (*seen, path.resolve())))
    return _merged(below, table)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = {**under, **value} if both else value  # type: ignore[dict-item]
    return merged


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` → `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def override(table: dict[str, Any], text: str) -> None:
    """Put `key=value`, such as schedule.batch=4, into nested tables."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {text!r} is not key=value, such as schedule.batch=4.")
    *parents, last = key.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ConfigError(f"override {text!r}: {parent!r} is a value, not a table.")
    try:
        table[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value  # a bare word is a string


def build(kind: type[Any], table: dict[str, Any], origin: str, prefix: str = "") -> Any:
    """The dataclass `kind` from a table; errors say where it comes from and what is known."""
    hints = get_type_hints(kind)
    known = [entry.name for entry in fields(kind)]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                f"{origin}: unknown key {prefix}{key!s}.{nearest(key, known)} "
                f"Known here: {', '.join(known)}."
            )
        values[key] = _convert(value, hints[key], origin, f"{prefix}{key}")
    return kind(**values)


def _convert(value: Any, hint: Any, origin: str, key: str) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise ConfigError(f"{origin}: {key} is a table; write [{key}] and its keys below.")
        return build(hint, value, origin, f"{key}.")
    if hint == dict[str, Any] and isinstance(value, dict):
        return value
    if hint == tuple[float, float] and isinstance(value, list | tuple) and len(value) == 2:
        return tuple(_convert(v, float, origin, key) for v in value)
    if hint == tuple[int, int]:
        both = value if isinstance(value, list | tuple) else (value, value)
        if len(both) == 2 and all(type(v) is int for v in both):
            return tuple(both)
    for kind in (float, int):
        if hint == tuple[kind, ...] and isinstance(value, list | tuple):  # type: ignore[valid-type]
            return tuple(_convert(v, kind, origin, key) for v in value)
    if hint == tuple[str, ...] and isinstance(value, list | tuple):
        return tuple(str(v) for v in value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{origin}: {key} = {value!r} should be of type {wanted}.")


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML escapes as JSON does, and DEL too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + "}"
    return repr(value)
