"""Solvers: reconstruction without training, with the calling convention of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.solvers.base import Estimate as Estimate
    from prismask.solvers.base import IterativeSolver as IterativeSolver
    from prismask.solvers.base import Solution as Solution
    from prismask.solvers.registry import create_solver as create_solver
    from prismask.solvers.registry import list_solvers as list_solvers
    from prismask.solvers.registry import solver_options as solver_options
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "base": ["Estimate", "IterativeSolver", "Solution"],
            "registry": ["create_solver", "list_solvers", "solver_options"],
        },
    )
