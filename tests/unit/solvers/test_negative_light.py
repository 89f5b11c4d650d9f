"""`nonnegative`: light is not negative, unless somebody says that it may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_shots import CAMERA, aperture, scene

from prismask.solvers.registry import create_solver

OPTIONS: dict[str, dict[str, Any]] = {
    "desci": {"iterations": 3, "start_iterations": 5, "noise": 0.01},
    "gap-tv": {"iterations": 20},
    "gpsr": {"iterations": 20},
    "pnp": {"iterations": 5},
    "twist": {"iterations": 20},
}


@pytest.mark.parametrize("less", [0.23, 0.4])
@pytest.mark.parametrize("name", OPTIONS)
def test_where_it_may_be_negative_both_signs_are_alike(name: str, less: float) -> None:
    """The negative of a snapshot then gives the negative of its cube."""
    mask = aperture()
    # Brighter and darker than nothing, as a difference of two snapshots is.
    shot = CAMERA.forward(scene() - less, mask)
    free = create_solver(name, nonnegative=False, **OPTIONS[name])
    cube, mirrored = free(shot, mask, CAMERA), free(-shot, mask, CAMERA)
    assert float(cube.min()) < -0.01
    assert float(cube.max()) > 0.1
    torch.testing.assert_close(mirrored, -cube, atol=1e-4, rtol=1e-3)
    bound = create_solver(name, **OPTIONS[name])(shot, mask, CAMERA)
    assert float(bound.min()) >= 0
