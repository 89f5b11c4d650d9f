"""TwIST: the objective never rises, its end is a minimum, any camera, any units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_shots import CAMERA, aperture, psnr, scene
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI
from prismask.solvers import twist
from prismask.solvers.twist import Twist, two_step_factors

CAMERAS = {
    "plain": CAMERA,
    "backwards": CASSI.from_step(bands=6, step=-2),
    "along the height": CASSI.from_step(bands=6, step=1, axis="height"),
    "fractional offsets": CASSI.from_step(bands=6, step=1.3),
    "dual disperser": CASSI.from_step(bands=6, step=2, design="dual"),
}


@pytest.mark.parametrize("name", CAMERAS)
def test_it_works_on_every_camera(name: str) -> None:
    camera = CAMERAS[name]
    truth, mask = scene(), aperture(*camera.mask_size((40, 44)))
    measurement = camera.forward(truth, mask)
    solution = Twist(iterations=80).solve(measurement, mask, camera)
    assert psnr(solution.cube, truth) > psnr(camera.spread(measurement, mask), truth) + 4
    assert solution.residuals[-1].item() < 0.02
    assert solution.cube.min() >= 0


@pytest.mark.parametrize("weight", [1e-4, 0.01, 1.0, None])
@pytest.mark.parametrize("coupling", ["band", "joint"])
def test_the_objective_never_rises(weight: float | None, coupling: str) -> None:
    truth = torch.cat([scene(), 0.2 * scene().flip(-1)])
    mask = aperture()
    solver = Twist(iterations=60, weight=weight, coupling=coupling)  # type: ignore[arg-type]
    solution = solver.solve(CAMERA.forward(truth, mask), mask, CAMERA)
    assert solution.objectives is not None
    assert solution.objectives.shape == (60, 2)
    assert (solution.objectives.diff(dim=0) <= 0).all()
    assert (solution.objectives[-1] < solution.objectives[0]).all()


def test_a_step_that_would_rise_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no attempt at a shorter one lowers the objective, here as none is made."""
    monkeypatch.setattr(twist, "_ATTEMPTS", 0)
    truth, mask = torch.cat([scene(), 0.2 * scene().flip(-1)]), aperture()
    solver = Twist(iterations=20, weight=1.0)
    solution = solver.solve(CAMERA.forward(truth, mask), mask, CAMERA)
    assert solution.objectives is not None
    steps = solution.objectives.diff(dim=0)
    assert (steps <= 0).all()
    assert (steps == 0).any(), "some would have risen"


def test_the_memory_of_two_steps_pays() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    # With κ near 1 there is no memory: α → 1, β → 1, and every step is a plain one.
    assert two_step_factors(1 - 1e-9) == pytest.approx((1, 1), abs=1e-6)
    ends = [
        Twist(iterations=40, weight=0.003, least_eigenvalue=least)
        .solve(measurement, mask, CAMERA)
        .objectives
        for least in (1e-4, 0.999)
    ]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0][-1] < 0.9 * ends[1][-1]


def test_its_end_is_a_minimum() -> None:
    # 8 × 8 pixels, so that it gets there; then no other cube has a lower objective.
    camera = CASSI.from_step(bands=2, step=1)
    mask = torch.rand(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    truth = scene(2, 8, 8).double()
    measurement = camera.forward(truth, mask)
    solver = Twist(iterations=150, weight=0.05, inner_iterations=20)
    solution = solver.solve(measurement, mask, camera)
    assert solution.objectives is not None
    least = float(solution.objectives[-1])

    def objective(cube: Tensor) -> float:
        down, right = np.zeros((2, 8, 8)), np.zeros((2, 8, 8))
        values = cube[0].numpy()
        down[:, :-1], right[:, :, :-1] = np.diff(values, axis=1), np.diff(values, axis=2)
        variation = np.sqrt(2) * np.sqrt((down**2 + right**2).sum(0)).sum()
        throughput = camera.throughput(mask)
        brightness = float((measurement.square().mean() / throughput.square().mean()).sqrt())
        tau = 0.05 * brightness * float(camera.gram_diagonal(mask).max())
        fit = float((measurement - camera.forward(cube, mask)).square().sum()) / 2
        return float(fit + tau * variation)

    assert objective(solution.cube) == pytest.approx(least, rel=1e-9)
    generator = torch.Generator().manual_seed(2)
    others = [truth, truth.mean((-1, -2), keepdim=True).expand_as(truth)]
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(10):
            step = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
            others.append((solution.cube + size * step).clamp_min(0))
    assert all(objective(other) > least - 1e-6 for other in others)


def test_a_batch_equals_its_samples() -> None:
    truth = torch.cat([scene(), 0.1 * scene().flip(-2)])
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])[:, None]
    measurement = CAMERA.forward(truth, masks)
    solver = Twist(iterations=12)
    together = solver(measurement, masks, CAMERA)
    for sample in range(2):
        alone = solver(measurement[sample : sample + 1], masks[sample], CAMERA)
        torch.testing.assert_close(together[sample : sample + 1], alone, rtol=0, atol=1e-4)
    several = solver(measurement[:1], masks, CAMERA)
    torch.testing.assert_close(several[:1], together[:1], rtol=0, atol=1e-4)


def test_units_do_not_matter_and_doubles_stay() -> None:
    truth, mask = scene().double(), aperture()
    measurement = CAMERA.forward(truth, mask.double())
    solver = Twist(iterations=10)
    ours = solver(measurement, mask, CAMERA)
    assert ours.dtype == torch.float64
    torch.testing.assert_close(solver(4096 * measurement, mask, CAMERA) / 4096, ours)


def test_the_weight_follows_the_noise() -> None:
    truth, mask = scene(6, 64, 64), aperture(64, 64)
    clean = CAMERA.forward(truth, mask)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
    noisy = clean + 0.2 * clean.square().mean().sqrt() * noise
    calm, loud = (Twist(iterations=60).solve(m, mask, CAMERA) for m in (clean, noisy))
    assert calm.chosen["weight"] == pytest.approx(0.003)
    assert loud.chosen["noise"] == pytest.approx(0.2, rel=0.25)
    assert loud.chosen["weight"] == pytest.approx(0.04, rel=0.25)
    fixed = Twist(iterations=60, weight=0.003).solve(noisy, mask, CAMERA)
    assert fixed.chosen == {}
    assert psnr(loud.cube, truth) > psnr(fixed.cube, truth) + 2


def test_dark_places_stay_finite() -> None:
    truth, mask = scene(), aperture()
    mask[:, :20] = 0
    solver = Twist(iterations=10)
    assert torch.isfinite(solver(CAMERA.forward(truth, mask), mask, CAMERA)).all()
    dark = solver(torch.zeros(1, 40, 54), mask, CAMERA)
    assert torch.equal(dark, torch.zeros_like(dark))


def test_options_are_checked() -> None:
    for options, message in (
        ({"weight": 0.0}, "weight"),
        ({"weight": float("inf")}, "weight"),
        ({"least_eigenvalue": 0.0}, "least_eigenvalue"),
        ({"least_eigenvalue": 1.0}, "least_eigenvalue"),
        ({"inner_iterations": 0}, "inner_iterations"),
        ({"coupling": "bands"}, "Did you mean 'band'"),
        ({"iterations": 0}, "iterations"),
    ):
        with pytest.raises(ConfigError, match=message):
            Twist(**options)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="6 bands at 2 px need a measurement of 40×54"):
        Twist()(torch.ones(1, 40, 53), aperture(), CAMERA)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solver = Twist(iterations=10)
    there = solver(measurement.cuda(), mask.cuda(), CAMERA)
    torch.testing.assert_close(there.cpu(), solver(measurement, mask, CAMERA), rtol=0, atol=1e-3)


@pytest.mark.data
@pytest.mark.slow
def test_a_validation_scene_reaches_its_score(data_folder: Path) -> None:
    from prismask.scenes.datasets import load_mask_file, load_scenes, read_split

    cube = load_scenes(data_folder, ["flowers"])["flowers"]
    truth = torch.tensor(np.array(cube.values[None, :, 128:384, 128:384]))
    mask = torch.tensor(load_mask_file(data_folder, read_split(data_folder).masks["single"]).values)
    camera = CASSI.from_step(bands=cube.bands)
    estimate = Twist()(camera.forward(truth, mask), mask, camera)
    error = (estimate - truth).square().mean((-1, -2))
    assert float((-10 * torch.log10(error)).mean()) == pytest.approx(26.28, abs=0.15)  # PSNR unit
