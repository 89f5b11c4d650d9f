"""GAP-TV: explains the measurement, on any camera, in any units, with and without noise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_shots import CAMERA, aperture, psnr, scene

from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.optics.camera import CASSI
from prismask.solvers.gap_tv import GapTv


def test_it_recovers_a_simple_scene() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solution = GapTv().solve(measurement, mask, CAMERA)
    assert solution.cube.shape == truth.shape
    assert psnr(solution.cube, truth) > psnr(CAMERA.spread(measurement, mask), truth) + 8
    assert psnr(solution.cube, truth) > 27
    assert solution.residuals[-1].item() < 0.02
    assert solution.cube.min() >= 0


CAMERAS = {
    "backwards": (CASSI.from_step(bands=6, step=-2), 0),
    "along the height": (CASSI.from_step(bands=6, step=1, axis="height"), 0),
    "uneven offsets": (CASSI((0.0, 1.0, 3.0, 4.0, 7.0, 9.0)), 0),
    "fractional offsets": (CASSI.from_step(bands=6, step=1.3), 0),
    "dual disperser": (CASSI.from_step(bands=6, step=2, design="dual"), 0),
    "a mask for each band": (CAMERA, 6),
}


@pytest.mark.parametrize("name", CAMERAS)
def test_it_works_on_every_camera(name: str) -> None:
    camera, planes = CAMERAS[name]
    truth = scene(camera.bands)
    mask = aperture(*camera.mask_size((40, 44)), planes=planes)
    measurement = camera.forward(truth, mask)
    solution = GapTv().solve(measurement, mask, camera)
    assert psnr(solution.cube, truth) > psnr(camera.spread(measurement, mask), truth) + 3
    assert solution.residuals[-1].item() < 0.02


def test_a_batch_equals_its_samples_with_one_mask_or_one_each() -> None:
    truth = torch.cat([scene(), scene().flip(-1), 0.1 * scene().flip(-2)])
    masks = torch.stack([aperture(seed=seed) for seed in range(3)])[:, None]
    solver = GapTv(iterations=8)
    for mask in (masks, masks[:1]):
        measurement = CAMERA.forward(truth, mask)
        together = solver(measurement, mask, CAMERA)
        for sample in range(3):
            own = mask[min(sample, len(mask) - 1)]
            alone = solver(measurement[sample : sample + 1], own, CAMERA)
            torch.testing.assert_close(together[sample : sample + 1], alone, rtol=0, atol=1e-5)


def test_one_measurement_may_meet_several_masks() -> None:
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])[:, None]
    measurement = CAMERA.forward(scene(), masks[0])
    solver = GapTv(iterations=8)
    together = solver(measurement, masks, CAMERA)
    for mask, cube in zip(masks, together, strict=True):
        torch.testing.assert_close(solver(measurement, mask, CAMERA)[0], cube, rtol=0, atol=1e-5)


def test_units_of_the_measurement_do_not_matter() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solver = GapTv(iterations=10)
    counts = solver(4096 * measurement, mask, CAMERA)
    torch.testing.assert_close(counts / 4096, solver(measurement, mask, CAMERA), rtol=0, atol=1e-5)


def test_it_repeats_exactly_and_touches_nothing() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    before = measurement.clone(), mask.clone()
    solver = GapTv(iterations=5)
    first = solver(measurement, mask, CAMERA)
    assert torch.equal(first, solver(measurement, mask, CAMERA))
    assert torch.equal(measurement, before[0])
    assert torch.equal(mask, before[1])


def test_stating_the_noise_pays() -> None:
    truth, mask = scene(), aperture()
    clean = CAMERA.forward(truth, mask)
    level = 0.1
    generator = torch.Generator().manual_seed(4)
    noise = level * clean.square().mean().sqrt() * torch.randn(clean.shape, generator=generator)
    scores = {
        stated: psnr(GapTv(noise=stated)(clean + noise, mask, CAMERA), truth)
        for stated in (0.0, level)
    }
    assert scores[level] > scores[0.0] + 2
    # And the default assumption of 1 % costs next to nothing where there is none.
    exact, default = (psnr(s(clean, mask, CAMERA), truth) for s in (GapTv(noise=0.0), GapTv()))
    assert default > exact - 0.3


def test_noise_is_estimated_where_none_is_stated() -> None:
    truth, mask = scene(), aperture()
    clean = CAMERA.forward(truth, mask)
    generator = torch.Generator().manual_seed(4)
    noise = clean.square().mean().sqrt() * torch.randn(clean.shape, generator=generator)
    calm, loud = (GapTv().solve(clean + level * noise, mask, CAMERA) for level in (0.0, 0.2))
    assert calm.chosen == {"noise": 0.01}
    assert loud.chosen["noise"] == pytest.approx(0.2, rel=0.3)
    fixed = GapTv(noise=0.01).solve(clean + 0.2 * noise, mask, CAMERA)
    assert fixed.chosen == {}
    assert psnr(loud.cube, truth) > psnr(fixed.cube, truth) + 2


def test_the_accumulated_residual_removes_the_denoisers_bias() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    # With much noise stated nothing accumulates: the plain projection, which stays biased.
    plain = GapTv(noise=10.0).solve(measurement, mask, CAMERA)
    assert GapTv().solve(measurement, mask, CAMERA).residuals[-1] < 0.1 * plain.residuals[-1]


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_dark_places_stay_finite(noise: float) -> None:
    truth, mask = scene(), aperture()
    mask[:, :20] = 0  # no light reaches part of the sensor
    solver = GapTv(iterations=10, noise=noise)
    assert torch.isfinite(solver(CAMERA.forward(truth, mask), mask, CAMERA)).all()
    dark = solver(torch.zeros(1, 40, 54), mask, CAMERA)
    assert torch.equal(dark, torch.zeros_like(dark))
    bright = CAMERA.forward(truth, aperture())
    for closed in (torch.zeros_like(mask), torch.stack([mask, 0 * mask])[:, None]):
        with pytest.raises(ValuesError, match="lets no light through"):
            solver(bright.expand(len(closed) if closed.ndim == 4 else 1, -1, -1), closed, CAMERA)
    with pytest.raises(ValuesError, match=r"holds -0\.1"):
        solver(bright, mask - 0.1, CAMERA)


def test_one_band_is_denoised_only() -> None:
    camera, truth, mask = CASSI((0.0,)), scene(bands=1), aperture()
    assert psnr(GapTv()(camera.forward(truth, mask), mask, camera), truth) > 50


def test_options_are_checked() -> None:
    for options, message in (
        ({"weight": 0.0}, "TV weights"),
        ({"inner_iterations": 0}, "inner_iterations"),
        ({"noise": -0.1}, "noise"),
        ({"coupling": "bands"}, "Did you mean 'band'"),
        ({"iterations": 0}, "iterations"),
    ):
        with pytest.raises(ConfigError, match=message):
            GapTv(**options)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="6 bands at 2 px need a measurement of 40×54"):
        GapTv()(torch.ones(1, 40, 53), aperture(), CAMERA)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solver = GapTv(iterations=10)
    there = solver(measurement.cuda(), mask.cuda(), CAMERA)
    torch.testing.assert_close(there.cpu(), solver(measurement, mask, CAMERA), rtol=0, atol=1e-4)


@pytest.mark.data
@pytest.mark.slow
def test_a_validation_scene_reaches_its_score(data_folder: Path) -> None:
    from prismask.scenes.datasets import load_mask_file, load_scenes, read_split

    split = read_split(data_folder)
    cube = load_scenes(data_folder, ["flowers"])["flowers"]
    truth = torch.tensor(np.array(cube.values[None, :, 128:384, 128:384]))
    mask = torch.tensor(load_mask_file(data_folder, split.masks["single"]).values)
    camera = CASSI.from_step(bands=cube.bands)
    estimate = GapTv()(camera.forward(truth, mask), mask, camera)
    error = (estimate - truth).square().mean((-1, -2))
    score = float((-10 * torch.log10(error)).mean())
    assert math.isclose(score, 26.46, abs_tol=0.1)  # PSNR unit
