"""The noise estimate: planted noise is found, mask roughness is not taken for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ShapeError
from prismask.optics.camera import CASSI
from prismask.optics.noise import MOST_STRIPS, _some_strips, estimate_noise, relative_noise

CAMERA = CASSI.from_step(bands=6, step=2)


def smooth_scene(bands: int = 6, height: int = 64, width: int = 72) -> Tensor:
    y = torch.linspace(0, 3, height)[:, None]
    x = torch.linspace(0, 2, width)
    band = torch.linspace(0, 1, bands)[:, None, None]
    return (0.5 + 0.2 * torch.sin(y + band) + 0.2 * torch.cos(x - band))[None]


def aperture(height: int = 64, width: int = 72, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.where(torch.rand(height, width, generator=generator) < 0.5, 0.05, 0.95)


def noisy(clean: Tensor, level: float, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return clean + level * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)


@pytest.mark.parametrize("level", [0.003, 0.03, 0.3])
def test_planted_noise_is_found(level: float) -> None:
    clean, mask = CAMERA.forward(smooth_scene(), aperture()), aperture()
    found = float(estimate_noise(noisy(clean, level), mask, CAMERA))
    assert 0.85 * level < found < 1.25 * level


def test_the_mask_is_not_noise() -> None:
    clean, mask = CAMERA.forward(smooth_scene(), aperture()), aperture()
    assert clean.diff(dim=-1).abs().median() > 0.5  # rough indeed
    assert relative_noise(clean, mask, CAMERA).item() < 1e-3
    # With a wrong mask what is left is much: the estimate does use the mask.
    assert relative_noise(clean, aperture(seed=9), CAMERA).item() > 0.05


@pytest.mark.parametrize(
    "camera",
    [
        CASSI.from_step(bands=6, step=1.3),
        CASSI.from_step(bands=6, step=1, axis="height"),
        CASSI.from_step(bands=6, step=2, design="dual"),
        CASSI((0.0,)),
    ],
)
def test_any_camera(camera: CASSI) -> None:
    mask = aperture(*camera.mask_size((64, 72)))
    clean = camera.forward(smooth_scene(camera.bands), mask)
    assert float(estimate_noise(noisy(clean, 0.05), mask, camera)) == pytest.approx(0.05, rel=0.25)


@pytest.mark.parametrize("axis", ["width", "height"])
def test_of_a_large_frame_some_strips_are_looked_at(axis: Any) -> None:
    camera = CASSI.from_step(bands=6, step=1, axis=axis)
    size = (1100, 40) if axis == "width" else (40, 1100)
    mask = aperture(*size)
    measurement = noisy(camera.forward(smooth_scene(6, *size), mask), 0.03)
    assert 0.85 * 0.03 < float(estimate_noise(measurement, mask, camera)) < 1.25 * 0.03
    strip, cut = _some_strips(measurement[0], mask[None, None], camera)
    across = 0 if axis == "width" else 1
    assert strip.shape[across] == 8 * MOST_STRIPS
    # The strips are a camera of their own: the same light through the cut mask.
    line = 8 * (MOST_STRIPS - 1)
    assert torch.equal(strip.select(across, line), measurement[0].select(across, 8 * 134))
    assert torch.equal(cut[0, 0].select(across, line), mask.select(across, 8 * 134))


def test_samples_and_masks_of_a_batch_are_apart() -> None:
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])[:, None]
    clean = CAMERA.forward(smooth_scene().expand(2, -1, -1, -1), masks)
    both = torch.stack([noisy(clean[0], 0.01), noisy(clean[1], 0.1)])
    found = estimate_noise(both, masks, CAMERA)
    assert found.shape == (2,)
    for sample in range(2):
        alone = estimate_noise(both[sample : sample + 1], masks[sample], CAMERA)
        torch.testing.assert_close(found[sample : sample + 1], alone)
    # One measurement through several masks: the right one leaves the least.
    several = estimate_noise(both[:1], masks, CAMERA)
    assert several.shape == (2,)
    assert several[0] < 0.2 * several[1]


def test_units_and_precision() -> None:
    clean, mask = CAMERA.forward(smooth_scene(), aperture()), aperture()
    measurement = noisy(clean, 0.05)
    single = estimate_noise(measurement, mask, CAMERA)
    torch.testing.assert_close(estimate_noise(4096 * measurement, mask, CAMERA) / 4096, single)
    double = estimate_noise(measurement.double(), mask, CAMERA)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, rtol=1e-3, atol=0)


def test_nothing_to_see_is_no_noise() -> None:
    mask = aperture()
    for value in (0.0, 0.7):
        measurement = torch.full((2, 64, 82), value)
        assert torch.equal(estimate_noise(measurement, mask, CAMERA), torch.zeros(2))
        assert torch.equal(relative_noise(measurement, mask, CAMERA), torch.zeros(2))
    closed = torch.zeros_like(mask)
    assert estimate_noise(noisy(torch.zeros(1, 64, 82), 0.1), closed, CAMERA).item() == (
        pytest.approx(0.1, rel=0.2)  # dark pixels hold nothing but noise
    )


def test_clipped_parts_do_not_hide_the_noise() -> None:
    clean, mask = CAMERA.forward(smooth_scene(), aperture()), aperture()
    measurement = noisy(clean, 0.05)
    measurement[:, :32] = 0
    assert float(estimate_noise(measurement, mask, CAMERA)) == pytest.approx(0.05, rel=0.25)


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 2), (3, 9), (9, 9)])
def test_small_measurements_give_a_number(size: tuple[int, int]) -> None:
    mask = aperture(*size)
    found = estimate_noise(torch.rand(1, size[0], size[1] + 10), mask, CAMERA)
    assert torch.isfinite(found).all()
    assert found.item() >= 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="need a measurement of 64×82"):
        estimate_noise(torch.ones(1, 64, 81), aperture(), CAMERA)


@pytest.mark.data
def test_a_real_scene(data_folder: Path) -> None:
    from prismask.scenes.datasets import load_mask_file, load_scenes, read_split

    cube = load_scenes(data_folder, ["flowers"])["flowers"]
    truth = torch.tensor(np.array(cube.values[None, :, 128:384, 128:384]))
    mask = torch.tensor(load_mask_file(data_folder, read_split(data_folder).masks["single"]).values)
    camera = CASSI.from_step(bands=cube.bands)
    clean = camera.forward(truth, mask)
    level = clean.square().mean().sqrt()
    assert relative_noise(clean, mask, camera).item() < 0.003
    for planted in (0.01, 0.05):
        found = relative_noise(noisy(clean, float(planted * level)), mask, camera).item()
        assert planted < found < 1.25 * planted
