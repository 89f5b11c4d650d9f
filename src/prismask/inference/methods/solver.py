"""Methods that need no training: solvers, and any Python function that gives a cube."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.inference.findings import Finding
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.methods.protocol import Capabilities, Estimate, check_cubes
from prismask.inference.options import DEFAULTS, Options
from prismask.models.complexity import count_parameters
from prismask.models.weights import tensors_hash
from prismask.optics.camera import CASSI
from prismask.progress import Progress, part
from prismask.solvers import create_solver

if TYPE_CHECKING:
    from prismask.solvers.base import Solver

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
        raise ConfigError(
            f"{name} has no network that could learn; use one (--model) or leave adapt out."
        )


def function_identity(function: Any) -> str:
    """A name for something that can be called, and a hash of all it holds where there is one."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    if isinstance(function, nn.Module):
        return f"{name}, {tensors_hash(function.state_dict())}"
    try:
        held = pickle.dumps(function)
    except Exception:  # whatever a stranger's object raises: it cannot be compared
        return name
    return f"{name}, {hashlib.sha256(held).hexdigest()[:12]}"
