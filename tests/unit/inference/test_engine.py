"""The network on a frame: samples, seeds, half precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.inference.engine import Engine, Tiling, draw_masks, half_error, mask_std, mean_mask
from prismask.models.fast import FastReconstructor
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI

CPU = torch.device("cpu")
CAMERA = CASSI.from_step(4)
SMALL = Tiling(tile=16, halo=9, blend=4)


@pytest.fixture
def model() -> Reconstructor:
    made = create_model(
        "srn+", bands=4, mask_posterior="gst", seed=2, width=8, blocks=2,
        posterior_options={"prior_mean": 0.3, "initial_std": 0.1},
    )  # fmt: skip
    return made.eval()


@pytest.fixture
def shot() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(1, 1, 40, 33, generator=generator)
    return CAMERA.forward(torch.rand(1, 4, 40, 33, generator=generator), mask)[0], mask


def test_one_pass_is_the_model(model: Reconstructor, shot: tuple[Tensor, Tensor]) -> None:
    """Also with a prior whose mean moves the mask."""
    measurement, mask = shot
    with torch.no_grad():
        expected = model(measurement[None], mask, CAMERA)[0]
    found = Engine(model, CPU, "float32", SMALL).run(Observation(measurement[None], mask, CAMERA))
    assert torch.allclose(found.values, expected, atol=1e-4)
    assert found.std is None
    assert found.precision == "float32"


def awake_lumen() -> Reconstructor:
    """A network that is told noise and mask errors, and whose looks say something."""
    made = create_model("lumen", bands=4, seed=3, width=8, stages=2, cosines=8)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in made.backbone.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    return made.eval()


def test_a_network_is_told_noise_and_mask_errors(shot: tuple[Tensor, Tensor]) -> None:
    """As the whole frame has them, also where it is worked on in strips and in batches."""
    measurement, mask = shot
    model = awake_lumen()
    std = 0.3 * torch.rand(mask.shape, generator=torch.Generator().manual_seed(5))
    noise = torch.tensor([0.05])
    with torch.no_grad():
        expected = model(measurement[None], mask, CAMERA, noise, std)[0]
        untold = model(measurement[None], mask, CAMERA, noise)[0]
    assert not torch.allclose(expected, untold, atol=1e-3)
    whole = Engine(model, CPU, "float32", Tiling(tile=64, halo=9, blend=4))
    found = whole.run(
        Observation(measurement[None], mask, CAMERA, torch.tensor([0.05]), std)
    ).values
    assert torch.allclose(found, expected, atol=1e-4)
    batch = whole.cubes(Observation(measurement[None], mask, CAMERA, noise, std))[0]
    assert torch.allclose(batch, expected, atol=1e-4)
    plain = whole.run(Observation(measurement[None], mask, CAMERA, torch.tensor([0.05]))).values
    assert torch.allclose(plain, untold, atol=1e-4)
    strips = Engine(model, CPU, "float32", SMALL)
    cut = strips.run(Observation(measurement[None], mask, CAMERA, torch.tensor([0.05]), std)).values
    middle = slice(12, 28)
    assert (cut - expected)[:, middle].abs().mean() < 0.2 * (untold - expected).abs().mean()


def test_samples_are_passes_with_drawn_masks(
    model: Reconstructor, shot: tuple[Tensor, Tensor]
) -> None:
    measurement, mask = shot
    engine = Engine(model, CPU, "float32", SMALL)
    found = engine.run(
        Observation(measurement[None], mask, CAMERA), samples=9, seed=5, levels=(0.1, 0.9)
    )
    with torch.no_grad():
        drawn = draw_masks(model.posterior, mask, 9, 5)
        cubes = torch.stack(
            [model.reconstruct(Observation(measurement[None], m[None], CAMERA))[0] for m in drawn]
        )
    assert torch.allclose(found.values, cubes.mean(0), atol=1e-4)
    assert found.std is not None
    assert found.lower is not None
    assert found.upper is not None
    assert torch.allclose(found.std, cubes.std(0), atol=1e-4)
    low, high = np.quantile(cubes.numpy(), (0.1, 0.9), axis=0)
    # Samples are kept in half precision, and crossfading quantiles is not quantiles of crossfades.
    scale = float(cubes.std())
    assert float((found.lower - torch.tensor(low)).abs().max()) < 0.02 * scale
    assert float((found.upper - torch.tensor(high)).abs().max()) < 0.02 * scale


def test_one_seed_one_result(model: Reconstructor, shot: tuple[Tensor, Tensor]) -> None:
    engine = Engine(model, CPU, "float32", SMALL)
    one, same, other = (
        engine.run(Observation(shot[0][None], shot[1], CAMERA), samples=3, seed=s)
        for s in (1, 1, 2)
    )
    assert torch.equal(one.values, same.values)
    assert not torch.equal(one.values, other.values)


def test_drawn_masks_follow_the_posterior(model: Reconstructor) -> None:
    mask = torch.full((1, 1, 48, 48), 0.5)
    with torch.no_grad():
        drawn = draw_masks(model.posterior, mask, 400, 0)
        std = mask_std(model.posterior, mask)
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) <= 1
    assert torch.allclose(drawn.std(0), std[0], rtol=0.25, atol=0.01)
    expected = mean_mask(model.posterior, mask)
    assert torch.allclose(drawn.mean(0)[None], expected, atol=5 * float(std.max()) / 20)


def test_a_large_mask_is_judged_in_pieces(
    model: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph spans a piece instead of the whole: close, and without a seam."""
    mask = torch.rand(1, 1, 600, 40, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = mask_std(model.posterior, mask)
        monkeypatch.setattr("prismask.inference.engine.WHOLE_MASK_PIXELS", 1000)
        pieces = mask_std(model.posterior, mask)
    assert float((pieces - whole).abs().max()) < 0.05 * float(whole.mean())


def test_half_precision_only_below_the_noise(
    model: Reconstructor, shot: tuple[Tensor, Tensor]
) -> None:
    measurement, mask = shot
    engine = Engine(model, CPU, "auto", SMALL)
    if engine._fast.dtype == torch.float32:
        pytest.skip("this CPU has no fast half precision")
    exact = FastReconstructor(model, CPU, "float32")
    error = half_error(engine._fast, exact, Observation(measurement[None], mask, CAMERA))
    assert error > 0
    loud = engine.run(Observation(measurement[None], mask, CAMERA, torch.tensor([2 * error])))
    quiet = engine.run(Observation(measurement[None], mask, CAMERA, torch.tensor([0.5 * error])))
    assert loud.precision == "bfloat16"
    assert quiet.precision == "float32"
    forced = Engine(model, CPU, "half", SMALL).run(
        Observation(measurement[None], mask, CAMERA, torch.tensor([0.0]))
    )
    assert forced.precision == "bfloat16"


def test_progress_counts_tiles(model: Reconstructor, shot: tuple[Tensor, Tensor]) -> None:
    seen: list[tuple[int, int]] = []
    engine = Engine(model, CPU, "float32", SMALL)
    engine.run(
        Observation(shot[0][None], shot[1], CAMERA),
        progress=lambda done, total, _: seen.append((done, total)),
    )
    assert seen == [(k, 9) for k in range(1, 10)]


def test_one_plane_a_band(shot: tuple[Tensor, Tensor]) -> None:
    """A mask with a plane for every band goes through tiles and samples alike."""
    model = create_model("srn+", bands=4, mask_posterior="fixed", seed=2, width=8, blocks=1).eval()
    measurement, mask = shot
    planes = mask.expand(-1, 4, -1, -1) * torch.linspace(0.7, 1, 4)[None, :, None, None]
    found = Engine(model, CPU, "float32", SMALL).run(Observation(measurement[None], planes, CAMERA))
    with torch.no_grad():
        assert torch.allclose(found.values, model(measurement[None], planes, CAMERA)[0], atol=1e-4)
    drawn = Engine(model, CPU, "float32", SMALL).run(
        Observation(measurement[None], planes, CAMERA), samples=2
    )
    assert drawn.std is not None
    assert float(drawn.std.max()) > 0
