"""SRN and SRN + GST have the published sizes and take any band count and size."""

from __future__ import annotations

import pytest
import torch

from prismask.errors import ConfigError, ShapeError
from prismask.models.registry import (
    count_multiply_adds,
    count_parameters,
    create_model,
    list_models,
)
from prismask.optics.camera import CASSI


def test_published_parameters() -> None:
    assert count_parameters(create_model("srn")) == 1_250_972
    with_gst = count_parameters(create_model("srn", mask_posterior="gst"))
    assert round(with_gst / 1e6, 2) == 1.27


def test_published_multiply_adds() -> None:
    camera = CASSI.from_step()
    plain = count_multiply_adds(create_model("srn"), camera)
    with_gst = count_multiply_adds(create_model("srn", mask_posterior="gst"), camera)
    assert plain / 1e9 == pytest.approx(81.84, abs=0.005)
    assert with_gst / 1e9 == pytest.approx(82.87, rel=0.01)
    assert with_gst > plain


def test_multiply_adds_follow_the_pixels() -> None:
    model, camera = create_model("srn"), CASSI.from_step()
    small = count_multiply_adds(model, camera, (64, 64))
    large = count_multiply_adds(model, camera, (128, 192))
    assert large == 6 * small


@pytest.mark.parametrize("name", ["srn", "srn+"])
@pytest.mark.parametrize(("bands", "step", "size"), [(8, 2.0, (17, 23)), (5, 1.7, (12, 30))])
def test_any_camera(name: str, bands: int, step: float, size: tuple[int, int]) -> None:
    camera = CASSI.from_step(bands, step)
    model = create_model(name, mask_posterior="gst", bands=bands, width=8, blocks=1)
    mask = torch.rand(size)
    cube = model(torch.rand(2, *camera.measurement_size(size)), mask, camera)
    assert cube.shape == (2, bands, *size)


def test_dual_disperser_and_mask_per_band() -> None:
    camera = CASSI.from_step(4, 2.0, design="dual")
    model = create_model("srn+", bands=4, width=8, blocks=1)
    mask = torch.rand(1, 4, *camera.mask_size((9, 11)))
    assert model(torch.rand(1, 9, 11), mask, camera).shape == (1, 4, 9, 11)


def test_gradients_reach_every_parameter() -> None:
    camera = CASSI.from_step(4)
    model = create_model("srn+", mask_posterior="gst", bands=4, width=8, blocks=2)
    generator = torch.Generator().manual_seed(0)
    mask, measurement = torch.rand(1, 1, 16, 16), torch.rand(2, 16, 22)
    model.sample(measurement, mask, camera, generator).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_one_seed_one_network() -> None:
    first, again, other = (create_model("srn", seed=s, blocks=1) for s in (1, 1, 2))
    state = torch.get_rng_state()
    create_model("srn", seed=3, blocks=1)
    assert torch.equal(torch.get_rng_state(), state), "the global generator must not move"
    assert torch.equal(first.backbone.head.weight, again.backbone.head.weight)
    assert not torch.equal(first.backbone.head.weight, other.backbone.head.weight)


def test_wrong_names_and_bands() -> None:
    assert "srn+" in list_models()
    with pytest.raises(ConfigError, match="Did you mean 'srn'"):
        create_model("srm")
    with pytest.raises(ConfigError, match="does not take these options"):
        create_model("srn", depth=3)
    with pytest.raises(ConfigError, match="network input"):
        create_model("srn", inputs=("backprojektion",))
    model = create_model("srn", bands=4, width=8, blocks=1)
    with pytest.raises(ShapeError, match="built for 4 bands, the camera has 5"):
        model(torch.rand(1, 8, 16), torch.rand(8, 8), CASSI.from_step(5))
