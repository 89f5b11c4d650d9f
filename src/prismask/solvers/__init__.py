"""Solvers: reconstruction without training, with the calling convention of a model."""

from __future__ import annotations

from prismask.solvers.registry import create_solver, list_solvers

__all__ = ["create_solver", "list_solvers"]
