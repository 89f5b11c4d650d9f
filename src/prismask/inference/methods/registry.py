"""Methods by name, and methods of one's own.

    from prismask.inference.methods.registry import register_method

    @register_method("mine")
    def mine(device, **options):
        return MyMethod(device, **options)      # anything with the members of `Method`

From then on `reconstruct(…, method="mine")` and `evaluate("mine:option=3")` know it. A package that
is installed beside Prismask names its methods as entry points of the group `prismask.methods`:
these are known to the command line and to every worker process as well. A plain function
`f(measurement, mask, camera) → cube` needs no registration where it can be passed itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

import torch

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.inference.engine import frame
from prismask.inference.engine.frame import Engine
from prismask.inference.methods.network import NetworkMethod, network_capabilities
from prismask.inference.methods.protocol import Capabilities, Method
from prismask.inference.methods.solver import FunctionMethod, SolverMethod
from prismask.inference.options import Options
from prismask.models.network import Reconstructor
from prismask.solvers import list_solvers

GROUP = "prismask.methods"
"""Entry points of other packages."""
Factory = Callable[..., Method]
"""`factory(device, **options)` → the method on that device."""

_REGISTERED: dict[str, Factory] = {}


def register_method(name: str) -> Callable[[Factory], Factory]:
    """Make a factory known by a name."""

    def put(factory: Factory) -> Factory:
        if name in list_solvers() or _REGISTERED.get(name, factory) is not factory:
            raise ConfigError(f"there is a method {name!r} already: register it by another name.")
        _REGISTERED[name] = factory
        return factory

    return put


def list_methods() -> list[str]:
    """Solvers, and what was registered."""
    return sorted({*list_solvers(), *_REGISTERED, *_installed()})


def create_method(name: str, device: torch.device, **options: Any) -> Method:
    """The method called `name`, with its defaults except for the `options` given."""
    choose(name, list_methods(), "method")
    if name in list_solvers():
        return SolverMethod(name, device, options)
    factory = _REGISTERED.get(name) or _installed()[name].load()
    try:
        return cast(Method, factory(device, **options))
    except TypeError as error:  # an option that it does not know
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ConfigError(f"{name} does not take {given or 'a device'}: {error}.") from error


def as_method(model: Any, device: torch.device, options: Options, name: str = "") -> Method:
    """A network, a method, or anything else that can be called, as a method on `device`."""
    if isinstance(model, Reconstructor):
        return network_method(model, device, options)
    if hasattr(model, "capabilities") and hasattr(model, "batch"):
        return cast(Method, model)
    if not callable(model):
        raise ConfigError(f"{type(model).__name__} is no method: it cannot be called.")
    return FunctionMethod(model, device, name)


def capabilities_of(model: Any) -> Capabilities:
    """What `as_method` would declare, without building anything."""
    if isinstance(model, Reconstructor):
        return network_capabilities(model)
    declared: Capabilities = getattr(model, "capabilities", frozenset())
    return declared


def network_method(network: Reconstructor, device: torch.device, options: Options) -> NetworkMethod:
    """A trained network as a method."""
    tiling = frame.default_tiling(device)
    if options.tile is not None:
        tiling = replace(tiling, tile=options.tile)
    engine = Engine(network, device, options.precision, tiling)
    name = network.record.get("name") or options.model or network.record["backbone"]
    return NetworkMethod(engine, str(name))


@cache
def _installed() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}
