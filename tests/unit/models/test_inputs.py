"""What backbones see is what the equations say."""

from __future__ import annotations

import pytest
import torch

from prismask.models.inputs import INPUTS, NOISE_GAIN, input_planes, network_input
from prismask.optics.camera import CASSI


def test_backprojection_is_the_papers_input() -> None:
    camera = CASSI.from_step(5, 2.0)
    mask, measurement = torch.rand(7, 9), torch.rand(2, 7, 17)
    seen = network_input(("backprojection",), measurement, mask, camera)
    for band in range(5):
        window = measurement[:, :, 2 * band : 2 * band + 9]
        assert torch.allclose(seen[:, band], window * mask * 2 / 5)


def test_normalised_gives_a_white_scene_back() -> None:
    camera = CASSI.from_step(6, 2.0)
    mask = 0.1 + 0.9 * torch.rand(8, 10)
    white = torch.full((1, 6, 8, 10), 0.7)
    seen = network_input(("normalised",), camera.forward(white, mask), mask, camera)
    assert torch.allclose(seen, white, atol=1e-5)


def test_planes_are_counted_right_for_every_input() -> None:
    camera = CASSI.from_step(4, 1.5)
    mask = torch.rand(3, 1, 6, 7)
    measurement = torch.rand(3, *camera.measurement_size((6, 7)))
    for name in INPUTS:
        seen = network_input((name,), measurement, mask, camera)
        assert seen.shape == (3, input_planes((name,), 4), 6, 7), name
    together = network_input(tuple(INPUTS), measurement, mask, camera)
    assert together.shape[1] == input_planes(tuple(INPUTS), 4)


def test_noise_is_told_in_the_scale_that_networks_see() -> None:
    camera = CASSI.from_step(4)
    mask, measurement = torch.rand(6, 7), torch.rand(2, *camera.measurement_size((6, 7)))
    seen = network_input(("noise",), measurement, mask, camera, torch.tensor([0.1, 0.3]))
    assert torch.allclose(seen[0], torch.full((1, 6, 7), NOISE_GAIN * 0.1 * 2 / 4))
    assert torch.allclose(seen[1], 3 * seen[0])


def test_noise_that_nobody_tells_is_estimated() -> None:
    camera = CASSI.from_step(4)
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(64, 64, generator=generator)
    clean = camera.forward(torch.full((1, 4, 64, 64), 0.5), mask)
    noisy = clean + 0.05 * torch.randn(clean.shape, generator=generator)
    told = network_input(("noise",), noisy, mask, camera, torch.tensor([0.05]))
    found = network_input(("noise",), noisy, mask, camera)
    assert float(found.mean()) == pytest.approx(float(told.mean()), rel=0.2)
