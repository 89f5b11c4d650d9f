"""The fast copy computes the same function and leaves the original alone."""

from __future__ import annotations

import torch

from prismask.models.fast import FastReconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI


def test_same_function_within_its_precision() -> None:
    camera = CASSI.from_step(6)
    model = create_model("srn+", bands=6, mask_posterior="gst", seed=0, width=16, blocks=2).eval()
    mask = torch.rand(1, 1, 24, 31)
    measurement = camera.forward(torch.rand(2, 6, 24, 31), mask)
    with torch.no_grad():
        plain = model(measurement, mask, camera)
    exact = FastReconstructor(model, torch.device("cpu"), "float32")(measurement, mask, camera)
    assert torch.allclose(exact, plain, atol=1e-5)
    fast = FastReconstructor(model, torch.device("cpu"))
    estimate = fast(measurement, mask, camera)
    assert estimate.dtype == torch.float32
    assert float((estimate - plain).norm() / plain.norm()) < 0.03
    assert next(model.backbone.parameters()).dtype == torch.float32
    assert next(model.parameters()).requires_grad
