"""The fast copy computes the same function and leaves the original alone."""

from __future__ import annotations

import torch

from prismask.models.fast import FastReconstructor
from prismask.models.inputs import Observation
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


def test_what_comes_before_the_last_step_is_made_with_the_mean_mask() -> None:
    """As every other cube of a deterministic pass is: a prior with a mean moves the mask."""
    camera = CASSI.from_step(4)
    mask = torch.rand(1, 1, 16, 20, generator=torch.Generator().manual_seed(0))
    shot = camera.forward(torch.rand(1, 4, 16, 20), mask)
    seen = Observation(shot, mask, camera, torch.tensor([0.01]))
    for name, options in (("srn", {"blocks": 1}), ("lumen", {"stages": 2, "cosines": 8})):
        model = create_model(
            name, bands=4, mask_posterior="fixed", seed=0, width=8,
            posterior_options={"prior_mean": 0.5, "initial_std": 0.2}, **options,
        ).eval()  # fmt: skip
        fast = FastReconstructor(model, torch.device("cpu"), "float32")
        with torch.no_grad():
            wanted = model.before_projection(seen._replace(mask=model.posterior.mean(mask)))
            other = model.before_projection(seen)
        torch.testing.assert_close(fast.before_projection(seen), wanted, atol=1e-5, rtol=1e-4)
        assert float((wanted - other).abs().max()) > 0.01, name
