"""Every option of a solver changes what it gives: none is taken and forgotten."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from small_shots import CAMERA, aperture, scene
from torch import Tensor

from prismask.solvers.registry import create_solver, list_solvers, solver_options

QUICK: dict[str, dict[str, Any]] = {
    "desci": {"iterations": 3, "start_iterations": 5},
    "gap-tv": {"iterations": 6},
    "gpsr": {"iterations": 12},
    "pnp": {"iterations": 3},
    "twist": {"iterations": 12},
}
ENDS = {"iterations": 2, "tolerance": 0.9, "seconds": 1e-9}
"""What ends any of them sooner."""
OTHERS: dict[str, dict[str, Any]] = {
    "desci": {
        "start_iterations": 9, "level": 0.1, "last_level": 0.01, "strength": 2.0, "patch": 5,
        "stride": 3, "group": 9, "radius": 4, "match_every": 1, "noise": 0.1, "nonnegative": False,
    },
    "gap-tv": {
        "weight": 1.0, "last_weight": 0.1, "inner_iterations": 2, "coupling": "band", "noise": 0.1,
        "nonnegative": False,
    },
    "gpsr": {
        "first_weight": 0.3, "weight": 0.2, "smoothness": 0.0, "wavelet": "haar", "levels": 1,
        "monotone": False, "nonnegative": False,
    },
    "pnp": {
        "denoiser": "tv", "scheme": "admm", "start": "spread", "sigma": 1.0, "last_sigma": 0.1,
        "noise": 0.1, "nonnegative": False,
    },
    "twist": {
        "weight": 0.05, "least_eigenvalue": 0.3, "inner_iterations": 1, "coupling": "band",
        "nonnegative": False,
    },
}  # fmt: skip
ELSEWHERE = {"pnp-dip"}
"""Trains networks: `test_pnp_dip`."""
WITHOUT_EFFECT = {"desci": {"memory_mib"}}
"""What must change nothing but how much is held at once."""


@cache
def _cube(name: str, option: str | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    # Dark enough in places for light to be negative where it may.
    shot = CAMERA.forward((scene() - 0.25).clamp_min(0), aperture())
    shot = shot + 0.02 * torch.randn(shot.shape, generator=generator)
    other = {} if option is None else {option: (OTHERS[name] | ENDS)[option]}
    return create_solver(name, **{**QUICK[name], **other})(shot, aperture(), CAMERA)


def test_all_of_them_are_tried() -> None:
    assert set(OTHERS) | ELSEWHERE == set(list_solvers())
    for name, others in OTHERS.items():
        known = set(solver_options(name)) - WITHOUT_EFFECT.get(name, set())
        assert set(others) | set(ENDS) == known, name


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in OTHERS for option in (*ENDS, *OTHERS[name])]
)
def test_an_option_makes_a_difference(name: str, option: str) -> None:
    assert float((_cube(name, option) - _cube(name)).abs().max()) > 1e-4
