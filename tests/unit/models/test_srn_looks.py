"""SRN with the camera inside: a look is the camera's own correction, and SRN can grow into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from prismask.errors import ConfigError, WeightsError
from prismask.models.backbones.srn import DARK, Look, LookingSRN
from prismask.models.registry import count_parameters, create_model
from prismask.models.weights import fill_from, save_weights
from prismask.optics.camera import CASSI

CAMERA = CASSI.from_step(5)
SIZE = (12, 20)


def snapshot() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    cube = torch.rand(2, 5, *SIZE, generator=generator)
    mask = torch.rand(2, 1, *SIZE, generator=generator)
    return cube, mask, CAMERA.forward(cube, mask)


class Pick(nn.Conv2d):
    """A convolution that hands its first channels through."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1)
        nn.init.zeros_(self.weight)
        assert self.bias is not None
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            for channel in range(min(channels_in, channels_out)):
                self.weight[channel, channel, 1, 1] = 1


def test_a_look_moves_an_estimate_onto_the_measurement() -> None:
    _, mask, measurement = snapshot()
    look = Look(5, 5)
    look.read, look.tell = Pick(5, 5), Pick(5, 5)
    estimate = torch.rand(2, 5, *SIZE)
    gram = CAMERA.gram_diagonal(mask)
    moved = look(estimate, measurement, mask, CAMERA, gram.clamp_min(1e-9))
    assert torch.allclose(CAMERA.forward(moved, mask), measurement, atol=1e-4)
    # With ε a pixel is believed as far as light reaches it.
    careful = look(estimate, measurement, mask, CAMERA, gram + DARK)
    before, after = (measurement - CAMERA.forward(x, mask) for x in (estimate, careful))
    assert torch.allclose(after, before * DARK / (gram + DARK), atol=1e-5)


def test_a_true_estimate_is_left_alone() -> None:
    cube, mask, measurement = snapshot()
    look = Look(5, 5)
    look.read, look.tell = Pick(5, 5), Pick(5, 5)
    told = look(cube, measurement, mask, CAMERA, CAMERA.gram_diagonal(mask) + DARK)
    assert torch.allclose(told, cube, atol=1e-5)


def test_looks_are_spread_and_leave_a_block_to_use_the_last() -> None:
    assert LookingSRN(5, 5, 8).places == (3, 7, 11, 15)
    assert LookingSRN(5, 5, 8, blocks=3, looks=1).places == (2,)
    for looks in (0, 5):
        with pytest.raises(ConfigError, match=f"{looks} looks.*4 blocks"):
            LookingSRN(5, 5, 8, blocks=4, looks=looks)


def test_more_looks_lie_halfway_and_come_last() -> None:
    assert LookingSRN(5, 5, 8, halfway=True).places == (3, 7, 11, 15, 1, 5, 9, 13)
    with pytest.raises(ConfigError, match=r"3 looks, and as many halfway.*4 blocks; take 1 to 2"):
        LookingSRN(5, 5, 8, blocks=4, looks=3, halfway=True)


def test_size() -> None:
    assert count_parameters(create_model("srn-looks")) == 1_380_364


@pytest.mark.parametrize(
    ("small_name", "less", "more"),
    [("srn+", {}, {"looks": 2}), ("srn-looks+", {"looks": 2}, {"looks": 2, "halfway": True})],
)
def test_it_grows_and_goes_on(
    tmp_path: Path, small_name: str, less: dict[str, Any], more: dict[str, Any]
) -> None:
    options = {"bands": 5, "mask_posterior": "gst", "width": 8, "blocks": 4, "start": "torch"}
    small = create_model(small_name, seed=1, **options, **less)
    with torch.no_grad():  # as after training: looks that say something
        for name, value in small.named_parameters():
            if "tell.weight" in name:
                value.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    save_weights(small, tmp_path / "w.safetensors", {}, dtype=torch.float32)
    grown = create_model("srn-looks+", seed=2, **options, **more)
    fill_from(grown, tmp_path / "w.safetensors")
    _, mask, measurement = snapshot()
    with torch.no_grad():
        before, after = (model(measurement, mask, CAMERA) for model in (small, grown))
    assert torch.allclose(before, after, rtol=0, atol=1e-3 * float(before.abs().max()))
    assert not torch.equal(before, after), "its looks do nothing, so nothing can be learned"


def test_it_does_not_shrink_into_srn(tmp_path: Path) -> None:
    options = {"bands": 5, "width": 8, "blocks": 4}
    save_weights(create_model("srn-looks", **options), tmp_path / "w.safetensors", {})
    with pytest.raises(WeightsError, match="backbone 'srn-looks'"):
        fill_from(create_model("srn", **options), tmp_path / "w.safetensors")
    with pytest.raises(WeightsError, match="backbone 'srn-looks'"):
        fill_from(create_model("hssp", bands=5), tmp_path / "w.safetensors")
