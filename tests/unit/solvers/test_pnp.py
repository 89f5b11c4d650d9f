"""Plug-and-play: the schemes are those of the equations, and any denoiser fits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.fft import dctn, idctn
from small_shots import CAMERA, aperture, psnr, scene
from torch import Tensor, nn

from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI
from prismask.solvers.gap_tv import GapTv
from prismask.solvers.pnp import (
    DENOISERS,
    THRESHOLD,
    Pnp,
    apply_denoiser,
    denoise_by_block_dct,
    denoise_by_tv,
    find_denoiser,
)


def noisy(clean: Tensor, level: float) -> Tensor:
    return clean + level * torch.randn(clean.shape, generator=torch.Generator().manual_seed(2))


# --- denoisers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENOISERS)
def test_named_denoisers_denoise(name: str) -> None:
    truth = scene()
    denoise = find_denoiser(name)
    for level in (0.03, 0.1):
        image = noisy(truth, level)
        assert psnr(denoise(image, torch.tensor([level])), truth) > psnr(image, truth) + 6
    # Without noise nothing is done, and every sample of a batch has its own.
    torch.testing.assert_close(denoise(truth, torch.zeros(1)), truth, rtol=0, atol=1e-5)
    pair = torch.cat([noisy(truth, 0.1), noisy(truth.flip(-1), 0.02)])
    sigma = torch.tensor([0.1, 0.02])
    together = denoise(pair, sigma)
    for sample in range(2):
        alone = denoise(pair[sample : sample + 1], sigma[sample : sample + 1])
        torch.testing.assert_close(together[sample : sample + 1], alone, rtol=0, atol=1e-5)


def test_a_denoiser_of_others_keeps_the_type_of_the_cube() -> None:
    cube = scene()
    double = apply_denoiser(lambda x, s: x.double() + 1, cube, torch.tensor([0.1]))
    assert double.dtype == torch.float32
    torch.testing.assert_close(double, cube + 1)


def test_block_dct_equals_scipy() -> None:
    # The same in NumPy, block by block: four grids over an image padded by its edge.
    cube = noisy(scene(3, 13, 18), 0.1)[0].double()
    total, weights = np.zeros(cube.shape), np.zeros(cube.shape)
    for down, right in itertools.product((0, 4), repeat=2):
        widths = ((0, 0), (down, -(13 + down) % 8), (right, -(18 + right) % 8))
        padded = np.pad(cube.numpy(), widths, mode="edge")
        cleaned, weight = np.zeros_like(padded), np.zeros_like(padded)
        for y, x in itertools.product(range(0, padded.shape[1], 8), range(0, padded.shape[2], 8)):
            place = (slice(None), slice(y, y + 8), slice(x, x + 8))
            values = dctn(padded[place], norm="ortho")
            keep = np.abs(values) > THRESHOLD * 0.1
            keep[0, 0, 0] = True
            cleaned[place] = idctn(values * keep, norm="ortho") / keep.sum()
            weight[place] = 1 / keep.sum()
        inside = (slice(None), slice(down, down + 13), slice(right, right + 18))
        total += cleaned[inside]
        weights += weight[inside]
    came = denoise_by_block_dct(cube[None], 0.1)[0]
    np.testing.assert_allclose(came.numpy(), total / weights, rtol=0, atol=1e-10)


def test_small_and_odd_sizes() -> None:
    for size in ((1, 1), (3, 17), (9, 8)):
        image = torch.rand(1, 2, *size)
        for denoise in (denoise_by_tv, denoise_by_block_dct):
            assert denoise(image, 0.1).shape == image.shape


# --- the schemes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["gap", "admm"])
@pytest.mark.parametrize("denoiser", ["tv", "block-dct"])
def test_it_beats_its_start(scheme: str, denoiser: str) -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solver = Pnp(scheme=scheme, denoiser=denoiser, start="spread", sigma=2)  # type: ignore[arg-type]
    solution = solver.solve(measurement, mask, CAMERA)
    assert psnr(solution.cube, truth) > psnr(CAMERA.spread(measurement, mask), truth) + 3
    assert solution.residuals[-1].item() < 0.05
    assert solution.objectives is None
    assert solution.chosen == {"noise": 0.01}
    assert solution.cube.min() >= 0


@pytest.mark.parametrize("scheme", ["gap", "admm"])
def test_with_no_denoiser_it_explains_the_measurement(scheme: str) -> None:
    # D = identity and no noise: both are projections, done after one step.
    truth, mask = scene().double(), aperture().double()
    measurement = CAMERA.forward(truth, mask)
    solver = Pnp(
        1,
        denoiser=lambda cube, sigma: cube,
        scheme=scheme,  # type: ignore[arg-type]
        noise=0.0,
        nonnegative=False,
    )
    cube = solver(measurement, mask, CAMERA)
    # Not the spread snapshot: that explains everything already.
    start = GapTv(noise=0.0)(measurement, mask, CAMERA)
    factor = 2 if scheme == "gap" else 1  # the accumulated residual and the residual itself
    residual = measurement - CAMERA.forward(start, mask)
    want = start + factor * CAMERA.pseudo_inverse(residual, mask)
    torch.testing.assert_close(cube, want)
    if scheme == "admm":
        torch.testing.assert_close(CAMERA.forward(cube, mask), measurement)


@pytest.mark.parametrize("scheme", ["gap", "admm"])
def test_noise_is_forgiven_by_the_last_sigma(scheme: str) -> None:
    """κ = (noise / σ)² · mean(throughput²): with σ of the start noise would hardly count."""
    truth, mask = scene().double(), aperture().double()
    measurement = CAMERA.forward(truth, mask)
    solver = Pnp(
        1, denoiser=lambda cube, sigma: cube, scheme=scheme, noise=0.3,  # type: ignore[arg-type]
        sigma=5.0, last_sigma=0.5, nonnegative=False,
    )  # fmt: skip
    start, gram = GapTv(noise=0.3)(measurement, mask, CAMERA), CAMERA.gram_diagonal(mask)
    residual = measurement - CAMERA.forward(start, mask)
    kappa = (0.3 / 0.5) ** 2 * CAMERA.throughput(mask).square().mean()
    keep = 2 * gram / (gram + kappa) / gram if scheme == "gap" else 1 / (gram + kappa)
    want = start + CAMERA.adjoint(keep * residual, mask)
    torch.testing.assert_close(solver(measurement, mask, CAMERA), want)


class Blur(nn.Module):
    """Stands for a trained denoiser."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.sigmas: list[Tensor] = []

    def forward(self, cube: Tensor, sigma: Tensor) -> Tensor:
        self.sigmas.append(sigma)
        return self.weight * nn.functional.avg_pool2d(cube, 3, 1, 1, count_include_pad=False)


def test_a_module_is_a_denoiser() -> None:
    truth, mask = scene(), aperture()
    module = Blur()
    measurement = CAMERA.forward(torch.cat([truth, 3 * truth]), mask)
    solution = Pnp(5, denoiser=module, start="spread", sigma=1.0, last_sigma=0.1).solve(
        measurement, mask, CAMERA
    )
    assert not solution.cube.requires_grad
    assert [tuple(sigma.shape) for sigma in module.sigmas] == [(2,)] * 5
    # σ falls by 10 and follows the brightness of each sample.
    assert float(module.sigmas[0][0] / module.sigmas[-1][0]) == pytest.approx(10, rel=1e-4)
    assert float(module.sigmas[0][1] / module.sigmas[0][0]) == pytest.approx(3, rel=1e-4)


@pytest.mark.parametrize(
    "camera",
    [
        CASSI.from_step(bands=6, step=1.3),
        CASSI.from_step(bands=6, step=2, design="dual"),
        CASSI.from_step(bands=6, step=1, axis="height"),
    ],
)
def test_it_works_on_every_camera(camera: CASSI) -> None:
    truth, mask = scene(), aperture(*camera.mask_size((40, 44)))
    measurement = camera.forward(truth, mask)
    solution = Pnp(10).solve(measurement, mask, camera)
    assert psnr(solution.cube, truth) > psnr(camera.spread(measurement, mask), truth) + 3


def test_a_batch_equals_its_samples_in_any_units() -> None:
    truth = torch.cat([scene(), 0.1 * scene().flip(-2)])
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])[:, None]
    measurement = CAMERA.forward(truth, masks)
    solver = Pnp(4)
    together = solver(measurement, masks, CAMERA)
    for sample in range(2):
        alone = solver(500 * measurement[sample : sample + 1], masks[sample], CAMERA) / 500
        torch.testing.assert_close(together[sample : sample + 1], alone, rtol=0, atol=1e-4)
    dark = solver(torch.zeros(1, 40, 54), masks[0], CAMERA)
    assert torch.equal(dark, torch.zeros_like(dark))


def test_options_are_checked() -> None:
    for options, message in (
        ({"denoiser": "block"}, "Did you mean 'block-dct'"),
        ({"denoiser": 3}, "give one of tv, block-dct"),
        ({"scheme": "adm"}, "Did you mean 'admm'"),
        ({"start": "spreed"}, "Did you mean 'spread'"),
        ({"sigma": 0.0}, "sigma"),
        ({"noise": -1.0}, "noise"),
    ):
        with pytest.raises(ConfigError, match=message):
            Pnp(**options)  # type: ignore[arg-type]
    cropping = Pnp(1, denoiser=lambda cube, sigma: cube[..., 1:], start="spread")
    with pytest.raises(ShapeError, match="must keep the cube's shape"):
        cropping(CAMERA.forward(scene(), aperture()), aperture(), CAMERA)
