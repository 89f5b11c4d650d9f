"""Commands without the command-line library: for machines with torch, NumPy, SciPy, safetensors.

A command is described once, by its function: names, types and defaults come from the signature,
explanations from the docstring. A parameter that is a dataclass stands for its fields, with the
explanations below them. `argparse` makes the same command line of it.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import re
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from prismask.apps.cli.analyse import analyse
from prismask.apps.cli.evaluate import evaluate, spectra_test, stress
from prismask.apps.cli.terminal import complain, settle_streams
from prismask.errors import PrismaskError

COMMANDS: dict[str, Callable[..., int]] = {
    "evaluate": evaluate,
    "stress": stress,
    "spectra-test": spectra_test,
    "analyse": analyse,
}
WRONG_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m prismask.evaluation evaluate|stress|spectra-test|analyse …`: the exit code."""
    settle_streams()
    parser = argparse.ArgumentParser(prog="python -m prismask.evaluation")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        add_options(subparsers.add_parser(name, help=_first_line(command)), command)
    given = vars(parser.parse_args(arguments))
    command = COMMANDS[given.pop("command")]
    logging.basicConfig(level=logging.INFO, format="prismask: %(message)s", stream=sys.stderr)
    # A solver tells what it chose for each of thousands of snapshots; here nobody asked.
    logging.getLogger("prismask.solvers").setLevel(logging.WARNING)
    try:
        return command(given.pop("models"), **_gathered(command, given))
    except KeyboardInterrupt:
        complain("interrupted.")
        return INTERRUPTED
    except (PrismaskError, OSError) as error:
        complain(str(error))
        return WRONG_INPUT


def add_options(parser: argparse.ArgumentParser, command: Callable[..., Any]) -> None:
    """Give the parser what the signature of a command, or of a dataclass of options, names."""
    hints, helps = get_type_hints(command), option_helps(command)
    for name, parameter in inspect.signature(command).parameters.items():
        text = helps.get(name, "").replace("%", "%%")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            parser.add_argument(name, nargs="+", help=text)
            continue
        if is_dataclass(hints[name]):
            add_options(parser, hints[name])
            continue
        flag = f"--{name.replace('_', '-')}"
        if hints[name] is bool:
            parser.add_argument(flag, action="store_true", help=text)
            continue
        needed = parameter.default is inspect.Parameter.empty
        shown = "" if needed or parameter.default is None else " [default: %(default)s]"
        parser.add_argument(
            flag,
            type=_plain(hints[name]),
            required=needed,
            default=None if needed else parameter.default,
            help=text + shown,
        )


def option_helps(command: Callable[..., Any]) -> dict[str, str]:
    """Name → explanation: the `Parameters` of a docstring, or what stands below the fields."""
    if is_dataclass(command):
        text, pattern = inspect.getsource(command), r'^    (\w+): .*\n    """([^"]*)"""'
    else:
        text = (inspect.getdoc(command) or "").partition("Parameters\n----------\n")[2]
        pattern = r"^(\w+)\n((?:    .*\n?)+)"
    found = re.findall(pattern, text, flags=re.MULTILINE)
    return {name: " ".join(lines.split()) for name, lines in found}


def _gathered(command: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """What was given, with options that belong to a dataclass in it."""
    for name, kind in get_type_hints(command).items():
        if isinstance(kind, type) and is_dataclass(kind):
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
    return given


def _first_line(command: Callable[..., Any]) -> str:
    return (inspect.getdoc(command) or "").partition("\n")[0].replace("%", "%%")


def _plain(hint: Any) -> Any:
    """`Path | None` → `Path`."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint
