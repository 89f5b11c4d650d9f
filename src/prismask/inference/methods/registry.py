"""Methods by name, methods of one's own, and which method serves a camera.

    from prismask.inference.methods.registry import register_method

    @register_method("mine")
    def mine(device, **options):
        return MyMethod(device, **options)      # anything with the members of `Method`

From then on `reconstruct(…, method="mine")` and `evaluate("mine:option=3")` know it. A package that
is installed alongside Prismask names its methods as entry points of the group `prismask.methods`:
these are known to the command line and to every worker process as well. A plain function
`f(measurement, mask, camera) → cube` needs no registration where it can be passed itself.

A camera is served by the method that the options name, else by weights that ship, else by a solver.
Of the weights one is the default, for the cameras that it knows. Another may be there for those
that it does not: it learned behind many and serves where the camera is not the first one's. Where a
camera is out of reach of all, a solver serves instead, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from typing import Any, cast

import numpy as np
import torch

from prismask.checks import choose, two_digits
from prismask.errors import ConfigError
from prismask.inference import engine
from prismask.inference.camera_match import BandAdapter, adapter_for
from prismask.inference.findings import Finding
from prismask.inference.intervals.evidence import REFERENCE
from prismask.inference.methods.network import NetworkMethod, network_capabilities
from prismask.inference.methods.protocol import Aligner, Capabilities, Estimate, Method
from prismask.inference.methods.solver import FunctionMethod, SolverMethod
from prismask.inference.options import Options
from prismask.models.network import Reconstructor
from prismask.models.weights import Shipped, defaults, load_model, serves_any_camera
from prismask.optics.camera import CASSI
from prismask.solvers import list_solvers
from prismask.solvers.gap_tv import GapTv

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
    tiling = engine.default_tiling(device)
    if options.tile is not None:
        tiling = replace(tiling, tile=options.tile)
    name = network.record.get("name") or options.model or network.record["backbone"]
    ready = engine.Engine(network, device, options.precision, tiling)
    return NetworkMethod(ready, str(name))


@cache
def _installed() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}


FALLBACK = "gap-tv"
"""The solver that works for every camera, used where no network does."""


def as_aligner(method: Method) -> Aligner | None:
    """The method, if it can align."""
    return cast(Aligner, method) if "align" in method.capabilities else None


class Choice:
    """The methods of one run; the second default is loaded when a camera first needs it."""

    def __init__(self, options: Options, device: torch.device, given: Any = None) -> None:
        self.options = options
        self.device = device
        self._ready: dict[str, Method] = {}
        self._defaults = able(defaults(), options)
        self._asked = self._asked_for(given)
        # What cannot work is refused before anything runs.
        (self._asked or self._shipped(self._defaults[0])).check(options)

    def for_camera(self, camera: CASSI) -> Method:
        """The method to use behind `camera`."""
        if self._asked is not None:
            return self._asked
        return self._default(camera) or self._named(FALLBACK)

    def aligner(self, camera: CASSI) -> Aligner | None:
        """Who finds the mask's pose: the method that reconstructs, else the default network."""
        own = as_aligner(self.for_camera(camera))
        if own is not None or not self.options.align:
            return own
        default = self._default(camera)
        return None if default is None else as_aligner(default)

    def settle(self, made: Estimate, options: Options) -> Estimate:
        """The estimate, or the quick solver's where that is expected to be clearly better.

        Only where the options name no method. The ends are then those of the network's interval,
        moved outwards where the solver's value lies beyond them.
        """
        verdict, evidence = made.verdict, made.evidence
        if self._asked is not None or verdict is None or evidence is None:
            return made
        # What was learned from this very snapshot, or drawn, was wanted for itself.
        if not verdict.takes_solver or options.adapt or options.samples:
            return made
        values = evidence.solved(GapTv()).numpy()
        lower = None if made.lower is None else np.minimum(made.lower, values)
        upper = None if made.upper is None else np.maximum(made.upper, values)
        name = made.attrs.get("model")
        text = (
            f"{REFERENCE} is used: of the snapshot the network {name} would leave "
            f"{two_digits(100 * verdict.unexplained)} % unexplained beyond its noise, as it does "
            f"with lines and narrow bands in the spectra, and {REFERENCE} was nearer the truth on "
            f"such snapshots. Its interval is the network's, widened to hold the new values. Give "
            f"--model {name} to use the network anyway."
        )
        attrs = {
            **made.attrs,
            "method": REFERENCE,
            "method_options": f"{REFERENCE}, taken instead of {name}",
        }
        attrs.pop("model", None)
        attrs["interval"] = f"{attrs['interval']}, for {name}; widened to hold {REFERENCE}'s values"
        findings = (*made.findings, Finding("note", text))
        return replace(
            made, values=values, lower=lower, upper=upper, attrs=attrs, findings=findings
        )

    def may_take_solver(self, camera: CASSI) -> bool:
        """Whether `settle` may change what the method of `camera` gives."""
        known = getattr(self.for_camera(camera), "judges_itself", False)
        return self._asked is None and bool(known)

    def findings(self, camera: CASSI) -> list[Finding]:
        """A remark where no default network serves `camera`."""
        options = self.options
        if options.method_options and options.method is None and self._defaults:
            listed = " and ".join(name for name, _ in options.method_options)
            text = (
                f"{FALLBACK} is used, not a network: {listed} is for solvers. Without it the "
                f"network reconstructs; --method {FALLBACK} says that a solver is meant."
            )
            return [Finding("note", text)]
        if self._asked is not None or not self._defaults or self._default(camera) is not None:
            return []
        known = [(one, adapter_of(one, camera)) for one in self._defaults]
        nearest, adapter = min(
            known, key=lambda pair: (pair[1].is_of_other_design, pair[1].dispersion_mismatch)
        )
        text = (
            f"{FALLBACK} is used: {adapter.why_not(nearest.name)}. Give --model {nearest.name} to "
            "use it anyway."
        )
        return [Finding("note", text)]

    def _asked_for(self, given: Any) -> Method | None:
        options = self.options
        if given is not None and (options.method or options.model):
            raise ConfigError(
                f"{options.method or options.model!r} and a method of one's own are two ways to "
                "reconstruct: give one of them."
            )
        if (given is not None or options.model is not None) and options.method_options:
            listed = ", ".join(name for name, _ in options.method_options)
            raise ConfigError(f"{listed}: options of a solver; a network takes none of them.")
        if given is None and options.model is not None:
            given = load_model(options.model)
        if given is not None:
            return as_method(given, self.device, options)
        # Options speak of a solver, so they choose one where weights would be the default.
        if options.method is not None or options.method_options or not self._defaults:
            return self._named(options.method or FALLBACK)
        return None

    def _default(self, camera: CASSI) -> Method | None:
        chosen = weights_for(camera, self._defaults)
        return None if chosen is None else self._shipped(chosen)

    def _shipped(self, one: Shipped) -> Method:
        if one.name not in self._ready:
            self._ready[one.name] = as_method(load_model(one.path), self.device, self.options)
        return self._ready[one.name]

    def _named(self, name: str) -> Method:
        return create_method(name, self.device, **dict(self.options.method_options))


def able(among: tuple[Shipped, ...], options: Options) -> tuple[Shipped, ...]:
    """Of the weights that ship as defaults, those that suit the options, best first."""
    others = tuple(one for one in among if not one.is_default_for_exact_masks)
    is_exact = options.align or options.samples > 0 or options.pose is not None
    exact = [one for one in among if one.is_default_for_exact_masks]
    if not (is_exact and exact):
        return others
    return (*exact, *(one for one in others if one.is_default_elsewhere))


def weights_for(camera: CASSI, among: tuple[Shipped, ...]) -> Shipped | None:
    """The weights to take behind `camera`, or None where it is out of reach of all.

    Those whose own camera it is; else of those that reach it the ones that see every camera as it
    is, then the ones that are there for other cameras.
    """
    for one in among:
        if not adapter_of(one, camera).is_other_camera:
            return one
    near = [one for one in among if adapter_of(one, camera).is_within_reach]
    as_it_is = (one for one in near if serves_any_camera(one.record))
    elsewhere = (one for one in near if one.is_default_elsewhere)
    return next(chain(as_it_is, elsewhere, near), None)


def adapter_of(one: Shipped, camera: CASSI) -> BandAdapter:
    """How the camera would be shown to these weights."""
    return adapter_for(camera, one.record)
