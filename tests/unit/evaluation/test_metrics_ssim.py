"""SSIM: against scikit-image, torchmetrics and a plain double loop."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage.metrics import structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.evaluation.metrics import ssim


def pair(size: tuple[int, int] = (21, 26)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    truth = torch.rand(2, 3, *size, generator=generator, dtype=torch.float64)
    truth = torch.nn.functional.avg_pool2d(truth, 3, 1, 1)
    noise = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    return (truth + 0.05 * noise), truth


def direct_ssim(x: NDArray[np.float64], t: NDArray[np.float64]) -> float:
    """Zero-padded SSIM of one plane straight from its definition, window by window."""
    axis = np.arange(11) - 5
    window = np.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    x, t = np.pad(x, 5), np.pad(t, 5)
    values = []
    for row in range(x.shape[0] - 10):
        for column in range(x.shape[1] - 10):
            a, b = (v[row : row + 11, column : column + 11] for v in (x, t))
            mean_a, mean_b = (window * a).sum(), (window * b).sum()
            # Weighted moments about 0, as the zero-padded convolutions of the field have them.
            var_a = (window * a * a).sum() - mean_a**2
            var_b = (window * b * b).sum() - mean_b**2
            both = (window * a * b).sum() - mean_a * mean_b
            c1, c2 = 0.01**2, 0.03**2
            values.append(
                (2 * mean_a * mean_b + c1)
                * (2 * both + c2)
                / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
            )
    return float(np.mean(values))


def test_zero_padding_equals_the_definition() -> None:
    estimate, truth = pair((12, 15))
    want = [
        np.mean([direct_ssim(x, t) for x, t in zip(e, u, strict=True)])
        for e, u in zip(estimate.numpy(), truth.numpy(), strict=True)
    ]
    np.testing.assert_allclose(ssim(estimate, truth).numpy(), want, rtol=1e-12)


def test_valid_equals_scikit_image_inside() -> None:
    estimate, truth = pair()
    for sample in range(2):
        bands = []
        for x, t in zip(estimate[sample].numpy(), truth[sample].numpy(), strict=True):
            _, full = structural_similarity(
                t, x, data_range=1.0, gaussian_weights=True, sigma=1.5,
                use_sample_covariance=False, full=True,
            )  # fmt: skip
            bands.append(full[5:-5, 5:-5].mean())
        came = ssim(estimate, truth, padding="valid")[sample]
        np.testing.assert_allclose(came.item(), np.mean(bands), rtol=1e-10)


def test_valid_equals_torchmetrics() -> None:
    estimate, truth = pair()
    # It reflects at the edge; five pixels further in no window reaches there.
    _, full = structural_similarity_index_measure(
        estimate, truth, data_range=1.0, sigma=1.5, reduction="none", return_full_image=True
    )
    want = full[..., 5:-5, 5:-5].mean((1, 2, 3))
    torch.testing.assert_close(ssim(estimate, truth, padding="valid"), want, rtol=1e-7, atol=1e-9)


def test_equal_cubes_give_one_also_when_constant_or_dark() -> None:
    _, truth = pair()
    for cube in (truth, torch.full_like(truth, 0.4), torch.zeros_like(truth)):
        for padding in ("zero", "valid"):
            torch.testing.assert_close(
                ssim(cube, cube, padding=padding), torch.ones(2, dtype=torch.float64)
            )


def test_a_constant_offset_leaves_only_the_luminance_term() -> None:
    estimate, truth = torch.full((1, 1, 16, 16), 0.6), torch.full((1, 1, 16, 16), 0.3)
    want = (2 * 0.6 * 0.3 + 1e-4) / (0.36 + 0.09 + 1e-4)
    assert ssim(estimate, truth, padding="valid").item() == pytest.approx(want, abs=1e-6)


def test_the_range_scales_with_the_data() -> None:
    estimate, truth = pair()
    scaled = ssim(255 * estimate, 255 * truth, data_range=255)
    torch.testing.assert_close(scaled, ssim(estimate, truth))
    assert not torch.allclose(ssim(estimate, truth, data_range=2), ssim(estimate, truth))


def test_batches_chunks_and_precision_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate, truth = pair()
    whole = ssim(estimate, truth)
    single = torch.cat([ssim(estimate[i : i + 1], truth[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(whole, single, rtol=1e-14, atol=0)
    torch.testing.assert_close(
        ssim(estimate.float(), truth.float()).double(), whole, rtol=0, atol=1e-6
    )
    monkeypatch.setattr(sys.modules["prismask.evaluation.metrics"], "_CHUNK", 1)
    torch.testing.assert_close(ssim(estimate, truth), whole, rtol=1e-14, atol=0)


def test_small_cubes_ranges_and_paddings_are_checked() -> None:
    estimate, truth = pair((10, 30))
    assert ssim(estimate, truth).shape == (2,)
    with pytest.raises(ShapeError, match="needs at least 11×11"):
        ssim(estimate, truth, padding="valid")
    with pytest.raises(ValuesError, match="must be positive"):
        ssim(estimate, truth, data_range=0)
    with pytest.raises(ConfigError, match="Did you mean 'valid'"):
        ssim(estimate, truth, padding="value")  # type: ignore[arg-type]
