"""Solvers by name: `create_solver("gap-tv", iterations=100)`.

A solver is a frozen dataclass whose fields are its options. Adding one is a file and its place
in `_HOMES`.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from numbers import Integral
from typing import TYPE_CHECKING, Any

from prismask.checks import choose, nearest
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.solvers.base import Solver

_HOMES = {
    "desci": ("prismask.solvers.desci", "DeSci"),
    "gap-tv": ("prismask.solvers.gap_tv", "GapTv"),
    "gpsr": ("prismask.solvers.gpsr", "Gpsr"),
    "pnp": ("prismask.solvers.pnp", "Pnp"),
    "pnp-dip": ("prismask.solvers.pnp_dip", "PnpDip"),
    "twist": ("prismask.solvers.twist", "Twist"),
}
"""Module and class of each solver; imported when first used, because torch takes seconds."""


SUMMARIES = {
    "desci": "low rank of similar patches, started from gap-tv",
    "gap-tv": "total variation among the cubes that explain the snapshot; the quick one",
    "gpsr": "few coefficients of wavelets over the image and cosines over the spectrum",
    "pnp": "any denoiser as the prior: tv, block-dct or a function of one's own",
    "pnp-dip": "an untrained network fitted to the one snapshot; wants a GPU",
    "twist": "total variation balanced against the noise, two-step shrinkage",
}
"""What each of them believes about scenes, in a line."""


def list_solvers() -> list[str]:
    """All names that `create_solver` takes."""
    return sorted(_HOMES)


def solver_options(name: str) -> list[str]:
    """The options that the solver called `name` takes."""
    return [field.name for field in dataclasses.fields(_class_of(name))]


def create_solver(name: str = "gap-tv", **options: Any) -> Solver:
    """The solver called `name` with its defaults, except for the `options` given.

    >>> create_solver("gap-tv", iterations=30).iterations
    30
    """
    build, known = _class_of(name), solver_options(name)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{nearest(option, known)} "
                f"Known: {', '.join(sorted(known))}."
            )
    for field in dataclasses.fields(build):
        value = options.get(field.name, 0)
        if field.type == "int" and not isinstance(value, Integral):
            raise ConfigError(
                f"{name} does not take {field.name}={value!r}: a whole number is needed."
            )
    try:
        solver: Solver = build(**options)
    except TypeError as error:  # a word where a number belongs
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ConfigError(f"{name} does not take {given}: {error}.") from error
    return solver


def _class_of(name: str) -> Any:
    module, kind = _HOMES[choose(name, _HOMES, "solver")]
    return getattr(import_module(module), kind)
