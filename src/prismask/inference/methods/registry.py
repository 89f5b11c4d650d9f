"""Methods by name, methods of one's own, and which method serves a camera.

    from prismask.inference.methods.registry import register_method

    @register_method("mine")
    def mine(device, **options):
        return MyMethod(device, **options)      # anything with the members of `Method`

From then on `reconstruct(…, method="mine")` and `evaluate("mine:option=3")` know it. A package that
is installed alongside Prismask names its methods as entry points of the group `prismask.methods`:
these are known to the command line and to every worker process as well. A plain function
`f(measurement, mask, camera) → cube` needs no registration where it can be passed itself.

A camera is served by the method that the options name, else by weights that ship and reach it, else
by a solver, and a finding says so.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from prismask.checks import choose, two_digits
from prismask.errors import ConfigError
from prismask.inference import engine
from prismask.inference.camera_match import match_camera
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.intervals.evidence import REFERENCE
from prismask.inference.methods.network import NetworkMethod, network_capabilities
from prismask.inference.methods.protocol import Aligner, Capabilities, Estimate, Method, check_cubes
from prismask.inference.options import DEFAULTS, Options
from prismask.models.network import Reconstructor
from prismask.models.registry import count_parameters
from prismask.models.weights import Shipped, default_weights, load_model, tensors_hash
from prismask.optics.camera import CASSI
from prismask.progress import Progress, part
from prismask.solvers import create_solver, list_solvers
from prismask.solvers.gap_tv import GapTv
from prismask.wording import Finding

if TYPE_CHECKING:
    from prismask.solvers.base import Solver


# --- methods that need no training: solvers, and any Python function that gives a cube ------------


Function = Callable[[Tensor, Tensor, CASSI], Tensor]
"""`(measurement (B, H, L), mask (1, 1|C, H, W), camera) → cube (B, C, H, W)`."""


class SolverMethod:
    """Reconstruction by a solver, on the whole frame."""

    capabilities: Capabilities = frozenset({"bad_pixels"})

    def __init__(self, name: str, device: torch.device, options: Mapping[str, Any]) -> None:
        self.name = name
        self.device = device
        self.options = dict(options)
        self.solver = create_solver(name, **options)

    def identity(self, options: Options = DEFAULTS) -> dict[str, Any]:
        """Name and options."""
        return {"method": self.name, "solver": repr(self.solver)}

    def check(self, options: Options) -> None:
        """A solver neither draws masks nor learns."""
        check_plain(self.name, options)

    def __call__(
        self, snapshot: Snapshot, options: Options = DEFAULTS, progress: Progress | None = None
    ) -> Estimate:
        """Solve, and note what the solver has chosen."""
        noise, level = snapshot.noise_std, float(snapshot.signal.square().mean().sqrt())
        solver, findings = self._with_noise(noise / level if level > 0 else 0.0, options)
        signal, mask = snapshot.signal[None].to(self.device), snapshot.mask.to(self.device)
        camera = snapshot.camera
        if snapshot.bad is not None:
            bad = snapshot.bad.to(self.device)
            signal, camera = signal.masked_fill(bad, 0), camera.without(bad)
        with part("solver"), torch.no_grad():
            solution = solver.solve(signal, mask, camera, progress=progress)
        attrs = {"method": self.name, "method_options": repr(solver)}
        if solution.chosen:
            attrs["method_chosen"] = ", ".join(f"{k}={v}" for k, v in solution.chosen.items())
        return Estimate(solution.cube[0].cpu().numpy(), attrs=attrs, findings=findings)

    def batch(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, options: Options = DEFAULTS
    ) -> Tensor:
        """Solve for all snapshots `(B, H, L)` at once → `(B, C, H, W)`."""
        ready = prepare(measurement, mask, camera, options, with_noise=False)
        if options.noise_std is None:
            return self.solver(ready.signal, ready.mask, camera)
        # Solvers take one noise, in units of the signal's rms value, which differs.
        cubes = []
        for signal in torch.split(ready.signal, 1):
            level = float(signal.square().mean().sqrt())
            noise = options.noise_std / level if level > 0 else 0.0
            cubes.append(self._with_noise(noise, options)[0](signal, ready.mask, camera))
        return torch.cat(cubes)

    def work(self, camera: CASSI, scene: tuple[int, int]) -> tuple[int | None, int | None]:
        """Nothing is learned, and iterations may end early."""
        return None, None

    def _with_noise(self, noise: float, options: Options) -> tuple[Solver, tuple[Finding, ...]]:
        """The solver that knows the noise, where people have stated it and it can use it."""
        if options.noise_std is None or "noise" in self.options:
            return self.solver, ()
        if not hasattr(self.solver, "noise"):
            text = (
                f"{self.name} has no option for the noise: the one that was given serves the "
                "self-check only."
            )
            return self.solver, (Finding("note", text),)
        return create_solver(self.name, **self.options, noise=noise), ()


class FunctionMethod:
    """Reconstruction by any `function(measurement, mask, camera) → cube`."""

    capabilities: Capabilities = frozenset()

    def __init__(self, function: Function, device: torch.device, name: str = "") -> None:
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))
        self.device = device
        self.is_module = isinstance(function, nn.Module)
        # A copy: the caller's network stays where it is.
        self.function = copy.deepcopy(function).to(device).eval() if self.is_module else function  # type: ignore[attr-defined]

    def identity(self, options: Options = DEFAULTS) -> dict[str, Any]:
        """Its name, and a hash of all it holds."""
        return {"method": "function", "function": function_identity(self.function)}

    def check(self, options: Options) -> None:
        """A function is called, and that is all it can do."""
        check_plain(self.name, options)

    def __call__(
        self, snapshot: Snapshot, options: Options = DEFAULTS, progress: Progress | None = None
    ) -> Estimate:
        """Call it with a batch of one."""
        signal, mask = snapshot.signal[None].to(self.device), snapshot.mask.to(self.device)
        with torch.no_grad():
            cubes = self._called(signal, mask, snapshot.camera)
        attrs = {"method": self.name, "method_options": function_identity(self.function)}
        return Estimate(cubes[0].float().cpu().numpy(), attrs=attrs)

    def batch(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, options: Options = DEFAULTS
    ) -> Tensor:
        """Call it with all snapshots `(B, H, L)` at once → `(B, C, H, W)`."""
        ready = prepare(measurement, mask, camera, options, with_noise=False)
        return self._called(ready.signal, ready.mask, camera)

    def work(self, camera: CASSI, scene: tuple[int, int]) -> tuple[int | None, int | None]:
        """Parameters, where it is a network."""
        return (count_parameters(self.function) if self.is_module else None), None  # type: ignore[arg-type]

    def _called(self, signal: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        return check_cubes(self.function(signal, mask, camera), signal, camera, self.name)


def check_plain(name: str, options: Options) -> None:
    """Raise for options that need a trained network."""
    if options.samples:
        raise ConfigError(
            f"{name} has no mask posterior to draw samples from; use a network (--model) or leave "
            "samples out."
        )
    if options.adapt:
        raise ConfigError(f"{name} has no network to adapt; use one (--model) or leave adapt out.")


def function_identity(function: Any) -> str:
    """A name for something that can be called, and a hash of all it holds where there is one."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    if isinstance(function, nn.Module):
        return f"{name}, {tensors_hash(function.state_dict())}"
    try:
        held = pickle.dumps(function)
    except Exception:  # whatever someone else's object raises: it cannot be compared
        return name
    return f"{name}, {hashlib.sha256(held).hexdigest()[:12]}"


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
    """The methods of one run; who finds poses is loaded when that is first wanted."""

    def __init__(self, options: Options, device: torch.device, given: Any = None) -> None:
        self.options = options
        self.device = device
        self._ready: Method | None = None
        self._shipped = default_weights()
        self._asked = self._asked_for(given)
        # What cannot work is refused before anything runs.
        (self._asked or self._network()).check(options)

    def for_camera(self, camera: CASSI) -> Method:
        """The method to use with `camera`."""
        if self._asked is not None:
            # Not every network serves every camera, and that is told before anything runs.
            check = getattr(self._asked, "check_camera", None)
            if check is not None:
                check(camera)
            return self._asked
        return self._default(camera) or self._named(FALLBACK)

    def aligner(self, camera: CASSI) -> Aligner | None:
        """Who finds the mask's pose: what makes the cube, if it can, else the default network."""
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
            f"{REFERENCE} is used: the network {name} would leave "
            f"{two_digits(100 * verdict.unexplained)} % of the snapshot unexplained beyond its "
            "noise, as happens if spectra have lines or narrow bands, and in validation "
            f"{REFERENCE} was closer to the truth on them. The interval is the network's, widened "
            f"to include the new values. Give --model {name} to use the network anyway."
        )
        attrs = {
            **made.attrs,
            "method": REFERENCE,
            "method_options": f"{REFERENCE}, taken instead of {name}",
        }
        attrs.pop("model", None)
        attrs["interval"] = (
            f"{attrs['interval']}, for {name}; widened to include {REFERENCE}'s values"
        )
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
        if options.method_options and options.method is None and self._shipped is not None:
            listed = " and ".join(name for name, _ in options.method_options)
            text = (
                f"{FALLBACK} is used, not a network: {listed} is for solvers. Without it the "
                f"network reconstructs; --method {FALLBACK} says that a solver is meant."
            )
            return [Finding("note", text)]
        if self._asked is not None or self._shipped is None or self._default(camera) is not None:
            return []
        name = self._shipped.name
        why = match_camera(camera, self._shipped.record).why_not(name)
        text = f"{FALLBACK} is used: {why}. Give --model {name} to use it anyway."
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
        if options.method is not None or options.method_options or self._shipped is None:
            return self._named(options.method or FALLBACK)
        return None

    def _default(self, camera: CASSI) -> Method | None:
        return None if weights_for(camera, self._shipped) is None else self._network()

    def _network(self) -> Method:
        """The weights that ship, loaded when they are first wanted."""
        assert self._shipped is not None
        if self._ready is None:
            self._ready = as_method(load_model(self._shipped.path), self.device, self.options)
        return self._ready

    def _named(self, name: str) -> Method:
        return create_method(name, self.device, **dict(self.options.method_options))


def weights_for(camera: CASSI, shipped: Shipped | None) -> Shipped | None:
    """The weights that ship, or None where `camera` is out of their reach."""
    if shipped is None or not match_camera(camera, shipped.record).is_within_reach:
        return None
    return shipped
