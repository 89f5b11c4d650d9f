"""From a snapshot to a cube with a solver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from prismask.errors import ConfigError
from prismask.inference.camera_match.view import Snapshot
from prismask.inference.checks import Finding
from prismask.inference.methods.protocol import Outcome, Progress
from prismask.inference.options import Settings
from prismask.solvers import create_solver

if TYPE_CHECKING:
    from prismask.solvers.base import Solver


class SolverMethod:
    """Reconstruction without training."""

    def __init__(self, name: str, device: torch.device, options: Mapping[str, Any]) -> None:
        self.name = name
        self.device = device
        self.options = dict(options)
        self.solver = create_solver(name, **options)

    def identity(self) -> dict[str, Any]:
        """Name and options."""
        return {"method": self.name, "solver": repr(self.solver)}

    def check(self, settings: Settings) -> None:
        """A solver neither draws masks nor learns."""
        if settings.samples:
            raise ConfigError(
                f"{self.name} has no mask posterior to draw samples from; use a network "
                "(--model) or leave samples out."
            )
        if settings.adapt:
            raise ConfigError(
                f"{self.name} has no network that could learn; use one (--model) or leave adapt "
                "out."
            )

    def run(self, snapshot: Snapshot, settings: Settings, progress: Progress | None) -> Outcome:
        """Solve on the whole frame."""
        solver, findings = self._told(snapshot, settings)
        signal, mask = snapshot.signal[None].to(self.device), snapshot.mask.to(self.device)
        with torch.no_grad():
            solution = solver.solve(signal, mask, snapshot.camera, progress=progress)
        attrs = {"method": self.name, "method_options": repr(solver)}
        if solution.chosen:
            attrs["method_chosen"] = ", ".join(f"{k}={v}" for k, v in solution.chosen.items())
        return Outcome(solution.cube[0].cpu().numpy(), attrs=attrs, findings=findings)

    def _told(self, snapshot: Snapshot, settings: Settings) -> tuple[Solver, tuple[Finding, ...]]:
        """The solver that knows the noise, where people have said it and it has an ear for it."""
        if settings.noise_std is None or "noise" in self.options:
            return self.solver, ()
        if not hasattr(self.solver, "noise"):
            text = (
                f"{self.name} cannot be told the noise: the one that was given serves the "
                "self-check only."
            )
            return self.solver, (Finding("note", text),)
        # Solvers count noise in units of the signal's rms value.
        level = float(snapshot.signal.square().mean().sqrt())
        noise = snapshot.noise_std / level if level > 0 else 0.0
        return create_solver(self.name, **self.options, noise=noise), ()
