"""TV denoising: known solutions, optimality, scikit-image, warm starts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from skimage.restoration import denoise_tv_chambolle

from prismask.errors import ConfigError, ShapeError
from prismask.solvers.gap_tv import COUPLINGS, Coupling, TvDual, denoise_tv, total_variation


def noisy(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def objective(x: torch.Tensor, image: torch.Tensor, weight: float, coupling: Coupling) -> float:
    fit = 0.5 * (x - image).square().sum()
    return float(fit + weight * total_variation(x, coupling).sum())


@pytest.mark.parametrize("momentum", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_step_moves_by_weight_over_length(momentum: bool, turned: bool) -> None:
    # Known solution in one dimension: each plateau of n pixels moves by weight / n to the other.
    image = torch.tensor([0.0] * 4 + [1.0] * 5, dtype=torch.float64).reshape(1, 1, 1, 9)
    want = torch.tensor([0.2 / 4] * 4 + [1 - 0.2 / 5] * 5, dtype=torch.float64).reshape(1, 1, 1, 9)
    if turned:
        image, want = image.mT, want.mT
    came = denoise_tv(image, 0.2, 3000, momentum=momentum)
    torch.testing.assert_close(came, want, rtol=0, atol=1e-4)


def test_a_large_weight_leaves_the_mean_of_each_band() -> None:
    image = noisy(2, 3, 6, 7)
    want = image.mean((-1, -2), keepdim=True).expand_as(image)
    for coupling in COUPLINGS:
        came = denoise_tv(image, 100.0, 500, coupling=coupling)
        torch.testing.assert_close(came, want, rtol=0, atol=1e-3)


def test_constants_pass_and_means_stay() -> None:
    constant = torch.full((1, 2, 5, 6), 0.3, dtype=torch.float64)
    torch.testing.assert_close(denoise_tv(constant, 0.5, 10), constant)
    image = noisy(2, 3, 8, 9)
    for momentum in (True, False):
        came = denoise_tv(image, 0.3, 7, momentum=momentum)
        torch.testing.assert_close(came.mean((-1, -2)), image.mean((-1, -2)))


def test_it_equals_scikit_image() -> None:
    image = noisy(1, 1, 20, 24)
    want = denoise_tv_chambolle(image[0, 0].numpy(), weight=0.15, eps=0, max_num_iter=4000)
    came = denoise_tv(image, 0.15, 4000)
    np.testing.assert_allclose(came[0, 0].numpy(), want, atol=1e-3)
    theirs = torch.from_numpy(want)[None, None]
    assert objective(came, image, 0.15, "band") <= objective(theirs, image, 0.15, "band")


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_result_is_a_minimum(coupling: Coupling) -> None:
    image = noisy(1, 3, 10, 11)
    best = denoise_tv(image, 0.2, 3000, coupling=coupling)
    least = objective(best, image, 0.2, coupling)
    generator = torch.Generator().manual_seed(1)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(10):
            step = size * torch.randn(image.shape, generator=generator, dtype=torch.float64)
            assert objective(best + step, image, 0.2, coupling) > least - 1e-7
    for other in (image, image.mean((-1, -2), keepdim=True).expand_as(image)):
        assert objective(other, image, 0.2, coupling) > least


@pytest.mark.parametrize("momentum", [True, False])
def test_without_negative_values_it_is_the_minimum_among_those(momentum: bool) -> None:
    image = noisy(1, 2, 9, 10) - 0.5
    best = denoise_tv(image, 0.1, 3000, momentum=momentum, nonnegative=True)
    assert best.min() >= 0
    least = objective(best, image, 0.1, "band")
    # Clamping the free minimum is not the same and not as good.
    clamped = denoise_tv(image, 0.1, 3000).clamp_min(0)
    assert objective(clamped, image, 0.1, "band") > least + 1e-4
    generator = torch.Generator().manual_seed(1)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(10):
            step = size * torch.randn(image.shape, generator=generator, dtype=torch.float64)
            assert objective((best + step).clamp_min(0), image, 0.1, "band") > least - 1e-6
    assert torch.equal(denoise_tv(image, 0.0, 3, nonnegative=True), image.clamp_min(0))


def test_more_iterations_lower_the_objective() -> None:
    image = noisy(1, 2, 16, 16)
    for momentum in (True, False):
        counts = (1, 4, 16, 64, 256)
        values = [
            objective(denoise_tv(image, 0.2, count, momentum=momentum), image, 0.2, "band")
            for count in counts
        ]
        assert all(later < earlier for earlier, later in itertools.pairwise(values))


def test_bands_and_samples_do_not_mix_in_band_coupling() -> None:
    image = noisy(2, 3, 8, 9)
    together = denoise_tv(image, 0.2, 20)
    for sample in range(2):
        for band in range(3):
            alone = denoise_tv(image[sample, band][None, None], 0.2, 20)
            torch.testing.assert_close(together[sample, band], alone[0, 0])


def test_joint_coupling_agrees_on_equal_bands_and_shares_edges() -> None:
    plane = noisy(1, 1, 8, 9)
    same = plane.expand(1, 4, 8, 9).contiguous()
    torch.testing.assert_close(
        denoise_tv(same, 0.2, 50, coupling="joint"), denoise_tv(same, 0.2, 50)
    )
    torch.testing.assert_close(total_variation(same, "joint"), total_variation(same))
    # A faint edge survives better beside a strong one at the same place.
    edge = torch.zeros(1, 2, 1, 8, dtype=torch.float64)
    edge[:, 0, :, 4:], edge[:, 1, :, 4:] = 1.0, 0.1
    faint = [denoise_tv(edge, 0.15, 2000, coupling=c)[0, 1, 0] for c in ("band", "joint")]
    assert faint[1][-1] - faint[1][0] > 2 * (faint[0][-1] - faint[0][0])


def test_weights_may_differ_between_samples() -> None:
    image = noisy(3, 2, 7, 8)
    weights = torch.tensor([0.05, 0.0, 0.4], dtype=torch.float64)
    came = denoise_tv(image, weights, 30)
    for sample, weight in enumerate(weights.tolist()):
        alone = denoise_tv(image[sample : sample + 1], weight, 30)
        torch.testing.assert_close(came[sample : sample + 1], alone)
    assert torch.equal(came[1], image[1])


@pytest.mark.parametrize("momentum", [True, False])
def test_a_warm_start_goes_on_where_it_stopped(momentum: bool) -> None:
    image = noisy(1, 2, 12, 12)
    exact = denoise_tv(image, 0.3, 3000)
    dual = TvDual.zeros(image)
    denoise_tv(image, 0.3, 200, momentum=momentum, dual=dual)
    warm = denoise_tv(image, 0.3, 5, momentum=momentum, dual=dual)
    cold = denoise_tv(image, 0.3, 5, momentum=momentum)
    assert (warm - exact).abs().max() < 0.1 * (cold - exact).abs().max()
    if not momentum:
        split = TvDual.zeros(image)
        denoise_tv(image, 0.3, 4, momentum=False, dual=split)
        parts = denoise_tv(image, 0.3, 6, momentum=False, dual=split)
        torch.testing.assert_close(parts, denoise_tv(image, 0.3, 10, momentum=False))


def test_the_input_is_not_touched_and_float32_is_kept() -> None:
    image = noisy(1, 2, 9, 7).float()
    before = image.clone()
    came = denoise_tv(image, 0.1, 10)
    assert torch.equal(image, before)
    assert came.dtype == torch.float32
    torch.testing.assert_close(
        came.double(), denoise_tv(before.double(), 0.1, 10), atol=1e-5, rtol=0
    )


def test_bad_arguments_are_refused() -> None:
    image = noisy(2, 1, 5, 5)
    with pytest.raises(ShapeError, match="expected B×C×H×W"):
        denoise_tv(image[0], 0.1)
    with pytest.raises(ConfigError, match="not negative"):
        denoise_tv(image, -0.1)
    with pytest.raises(ConfigError, match="finite"):
        denoise_tv(image, float("nan"))
    with pytest.raises(ShapeError, match="one for each of 2 samples"):
        denoise_tv(image, torch.ones(3))
    with pytest.raises(ConfigError, match="Did you mean 'joint'"):
        denoise_tv(image, 0.1, coupling="joined")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="another size"):
        denoise_tv(image, 0.1, dual=TvDual.zeros(noisy(2, 1, 5, 6)))
