"""Solvers by name: `create_solver("gap-tv", iterations=100)`.

A solver is a frozen dataclass whose fields are its options. Adding one is a file and its place
in `_HOMES`.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, Any

from prismask.checks import choose, nearest
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.solvers.base import Solver

_HOMES = {"gap-tv": ("prismask.solvers.gap_tv", "GapTv")}
"""Module and class of each solver; imported when first asked for, because torch takes seconds."""


def list_solvers() -> list[str]:
    """All names that `create_solver` takes."""
    return sorted(_HOMES)


def create_solver(name: str = "gap-tv", **options: Any) -> Solver:
    """The solver called `name` with its defaults, except for the `options` given."""
    module, kind = _HOMES[choose(name, _HOMES, "solver")]
    build = getattr(import_module(module), kind)
    known = [field.name for field in dataclasses.fields(build)]
    for option in options:
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{nearest(option, known)} "
                f"Known: {', '.join(sorted(known))}."
            )
    solver: Solver = build(**options)
    return solver
