"""GPSR: exactly sparse signals come back, f never rises, an independent solver agrees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from small_shots import psnr
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI
from prismask.solvers.gpsr import Gpsr
from prismask.solvers.wavelets import CubeBasis

CAMERA = CASSI.from_step(bands=4, step=1)
SIZE = (16, 16)


def aperture(height: int = 16, width: int = 16, seed: int = 0, planes: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(planes, height, width, generator=generator, dtype=torch.float64)


def smooth_scene(bands: int = 4, height: int = 16, width: int = 16) -> Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    band = torch.linspace(0, 1, bands)[:, None, None]
    return (0.3 + 0.2 * torch.sin(3 * y + band) + 0.2 * x * band)[None].double()


def test_it_recovers_an_exactly_sparse_cube() -> None:
    # Nine coefficients of 1024 explain the scene; 304 pixels are measured.
    generator = torch.Generator().manual_seed(3)
    basis = CubeBasis(SIZE)
    truth_coefficients = torch.zeros(1, 4, *basis.padded_size, dtype=torch.float64)
    places = torch.randperm(truth_coefficients.numel(), generator=generator)[:9]
    truth_coefficients.view(-1)[places] = torch.tensor([3.0, -2.0, 1.5] * 3).double()
    truth = basis.synthesis(truth_coefficients)
    mask = aperture()
    solver = Gpsr(iterations=800, weight=1e-4, first_weight=0.1, smoothness=0, nonnegative=False)
    cube = solver(CAMERA.forward(truth, mask), mask, CAMERA)
    found = basis.analysis(cube)
    assert (found - truth_coefficients).norm() < 0.01 * truth_coefficients.norm()
    strongest = found.abs().view(-1).topk(9).indices
    assert set(strongest.tolist()) == set(places.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight", [1e-3, 0.1, None])
def test_the_objective_never_rises(dtype: torch.dtype, weight: float | None) -> None:
    mask = aperture().to(dtype)
    cube = torch.cat([smooth_scene(), smooth_scene().flip(-1)]).to(dtype)
    solution = Gpsr(iterations=60, weight=weight).solve(CAMERA.forward(cube, mask), mask, CAMERA)
    assert solution.objectives is not None
    assert solution.objectives.shape == (60, 2)
    rise = solution.objectives.diff(dim=0) / solution.objectives[:-1]
    assert rise.max() <= (1e-5 if dtype == torch.float32 else 1e-12)
    assert (solution.objectives[-1] < 0.9 * solution.objectives[0]).all()


def _dense(camera: CASSI, mask: Tensor, basis: CubeBasis) -> np.ndarray:
    """K / √L as a matrix, a column for every coefficient."""
    count = camera.bands * basis.padded_size[0] * basis.padded_size[1]
    units = torch.eye(count, dtype=torch.float64).reshape(count, camera.bands, *basis.padded_size)
    columns = camera.forward(basis.synthesis(units), mask).flatten(1).T
    return (columns / camera.gram_bound(mask).max().sqrt()).numpy()


def test_a_long_fista_in_numpy_agrees() -> None:
    camera, size = CASSI.from_step(bands=2, step=1), (8, 8)
    mask = aperture(8, 8, seed=5)
    measurement = camera.forward(smooth_scene(2, 8, 8), mask)
    solver = Gpsr(iterations=1500, weight=0.02, smoothness=1.0, levels=1, nonnegative=False)
    solution = solver.solve(measurement, mask, camera)
    assert solution.objectives is not None

    basis = CubeBasis(size, levels=1)
    matrix = _dense(camera, mask, basis)
    scale = float(camera.gram_bound(mask).max().sqrt())
    target = measurement.flatten().numpy() / scale
    throughput = camera.throughput(mask).square().mean()
    brightness = float((measurement.square().mean() / throughput).sqrt())
    prices = np.ones((2, *basis.padded_size)) * np.array([1.0, 2.0])[:, None, None]
    prices[:, :4, :4] = 0
    price = 0.02 * brightness * prices.ravel()
    theta = ahead = np.zeros(matrix.shape[1])
    t = 1.0
    for _ in range(5_000):
        moved = ahead - matrix.T @ (matrix @ ahead - target)
        following = np.sign(moved) * np.maximum(np.abs(moved) - price, 0)
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        ahead = following + (before - 1) / t * (following - theta)
        theta = following
    least = 0.5 * np.sum((matrix @ theta - target) ** 2) + np.sum(price * np.abs(theta))
    assert float(solution.objectives[-1]) == pytest.approx(least, rel=1e-6)
    want = basis.synthesis(torch.from_numpy(theta).reshape(1, 2, *basis.padded_size))
    torch.testing.assert_close(camera.forward(solution.cube, mask), camera.forward(want, mask),
                               rtol=0, atol=1e-4)  # fmt: skip


CAMERAS = {
    "backwards": CASSI.from_step(bands=4, step=-2),
    "along the height": CASSI.from_step(bands=4, step=1, axis="height"),
    "fractional offsets": CASSI.from_step(bands=4, step=1.3),
    "dual disperser": CASSI.from_step(bands=4, step=2, design="dual"),
}


@pytest.mark.parametrize("name", CAMERAS)
def test_it_works_on_every_camera_and_odd_sizes(name: str) -> None:
    camera = CAMERAS[name]
    truth = smooth_scene(4, 37, 30)
    mask = (aperture(*camera.mask_size((37, 30)), seed=1) > 0.5).double() * 0.9 + 0.05
    measurement = camera.forward(truth, mask)
    solution = Gpsr(iterations=60).solve(measurement, mask, camera)
    assert solution.cube.shape == truth.shape
    assert psnr(solution.cube, truth) > psnr(camera.spread(measurement, mask), truth) + 1
    assert solution.residuals[-1].item() < 0.1
    rises = [b - a for a, b in itertools.pairwise(solution.objectives[:, 0].tolist())]  # type: ignore[index]  # there is one
    assert max(rises) < 1e-10


def test_a_batch_equals_its_samples() -> None:
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])
    truth = torch.cat([smooth_scene(), 0.1 * smooth_scene().flip(-2)])
    measurement = CAMERA.forward(truth, masks)
    solver = Gpsr(iterations=20)
    together = solver(measurement, masks, CAMERA)
    for sample in range(2):
        alone = solver(measurement[sample : sample + 1], masks[sample], CAMERA)
        torch.testing.assert_close(together[sample : sample + 1], alone, rtol=0, atol=1e-8)


def test_units_do_not_matter_and_the_choice_is_told() -> None:
    mask, truth = aperture(), smooth_scene()
    measurement = CAMERA.forward(truth, mask)
    first, second = (Gpsr(iterations=15).solve(c * measurement, mask, CAMERA) for c in (1.0, 500.0))
    torch.testing.assert_close(second.cube / 500, first.cube, rtol=0, atol=1e-6)
    assert first.chosen.keys() == {"noise", "weight"}
    assert not Gpsr(iterations=1, weight=0.1).solve(measurement, mask, CAMERA).chosen


def test_more_noise_makes_it_choose_a_larger_weight() -> None:
    mask, clean = aperture(64, 64), None
    truth = smooth_scene(4, 64, 64)
    clean = CAMERA.forward(truth, mask)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(1)).double()
    weights = [
        Gpsr(iterations=1).solve(clean + level * noise, mask, CAMERA).chosen["weight"]
        for level in (0.0, 0.2)
    ]
    assert weights[1] > 2 * weights[0]  # type: ignore[operator]  # both are numbers


def test_a_dark_measurement_gives_a_dark_cube() -> None:
    dark = Gpsr(iterations=5)(torch.zeros(1, 16, 19), aperture(), CAMERA)
    assert torch.equal(dark, torch.zeros_like(dark))


def test_options_are_checked() -> None:
    for options, message in (
        ({"weight": 0.0}, "weight"),
        ({"first_weight": -1.0}, "first_weight"),
        ({"levels": -1}, "levels"),
        ({"smoothness": -0.5}, "smoothness"),
        ({"wavelet": "har"}, "Did you mean 'haar'"),
        ({"iterations": 0}, "iterations"),
    ):
        with pytest.raises(ConfigError, match=message):
            Gpsr(**options)  # type: ignore[arg-type]
