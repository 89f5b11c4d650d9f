"""A cube whose bands are put back takes its error bars along."""

from __future__ import annotations

import numpy as np
import pytest

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.methods.protocol import Estimate
from prismask.inference.reconstruct import straightened
from prismask.optics.camera import CASSI


@pytest.mark.parametrize("axis", ["width", "height"])
def test_a_spread_moves_with_its_values(axis: str) -> None:
    along = np.sin(np.linspace(0, 9, 40, dtype=np.float32)) + 1.5
    values = np.broadcast_to(along, (3, 40, 40)).copy()
    values = values if axis == "width" else values.swapaxes(1, 2).copy()
    outcome = Estimate(values, 0.1 * values)
    camera = CASSI.from_step(3, axis=axis)  # type: ignore[arg-type]
    moved = straightened(outcome, MaskPose(spread=2.0), camera)
    assert moved.std is not None
    assert float(np.abs(moved.values[0] - values[0]).max()) > 0.2, "they were moved"
    np.testing.assert_allclose(moved.std, 0.1 * moved.values, atol=1e-4)
