"""PSNR: against scikit-image, NumPy transcriptions of each convention, and known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage.metrics import peak_signal_noise_ratio

from prismask.errors import ConfigError, DeviceError, ShapeError, ValuesError
from prismask.evaluation.metrics import psnr


def pair(seed: int = 0, error: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = 0.7 * torch.rand(3, 4, 13, 17, generator=generator, dtype=torch.float64)
    noise = error * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    return truth + noise, truth


def numpy_psnr(estimate: NDArray[np.float64], truth: NDArray[np.float64], convention: str) -> float:
    """One cube, written band by band as the published scripts do."""
    values = []
    for band in range(truth.shape[0]):
        x, t = estimate[band], truth[band]
        if convention == "paper":
            values.append(20 * math.log10(truth.max() / math.sqrt(np.mean((x - t) ** 2))))
        elif convention == "mst":
            x, t = np.round(x * 256), np.round(t * 256)
            values.append(10 * math.log10(255 * 255 / np.mean((x - t) ** 2)))
        elif convention == "dgsmp":
            eight = [np.rint(np.clip(v, 0, 1) * 255).astype(np.uint8).astype(float) for v in (x, t)]
            values.append(10 * math.log10(255 * 255 / np.mean((eight[0] - eight[1]) ** 2)))
        else:
            values.append(10 * math.log10(1 / np.mean((x - t) ** 2)))
    return float(np.mean(values))


@pytest.mark.parametrize("convention", ["paper", "mst", "dgsmp", "unit"])
def test_it_equals_a_numpy_transcription(convention: str) -> None:
    estimate, truth = pair()
    came = psnr(estimate, truth, convention)  # type: ignore[arg-type]
    want = [
        numpy_psnr(x, t, convention) for x, t in zip(estimate.numpy(), truth.numpy(), strict=True)
    ]
    assert came.shape == (3,)
    np.testing.assert_allclose(came.numpy(), want, rtol=1e-12)


def test_unit_and_paper_equal_scikit_image_band_by_band() -> None:
    estimate, truth = pair(seed=1)
    for convention, peak in (("unit", 1.0), ("paper", float(truth[0].max()))):
        want = np.mean(
            [
                peak_signal_noise_ratio(t, x, data_range=peak)
                for x, t in zip(estimate[0].numpy(), truth[0].numpy(), strict=True)
            ]
        )
        came = psnr(estimate[:1], truth[:1], convention)  # type: ignore[arg-type]
        np.testing.assert_allclose(came.item(), want, rtol=1e-12)


def test_known_answers() -> None:
    truth = torch.zeros(1, 2, 8, 8)
    truth[0, 0, 0, 0] = 0.5
    estimate = truth + 0.05
    assert psnr(estimate, truth, "paper").item() == pytest.approx(20, abs=1e-4)
    assert psnr(estimate, truth, "unit").item() == pytest.approx(26.0206, abs=1e-4)
    # 0.05 · 256 rounds to 13 levels, 0.05 · 255 to 13 too.
    eight_bit = 20 * math.log10(255 / 13)
    assert psnr(estimate, truth, "mst").item() == pytest.approx(eight_bit, abs=0.02)
    assert psnr(truth - 0.3, truth.zero_(), "dgsmp").item() == math.inf  # clipped to the truth


def test_the_dark_scene_shows_how_far_conventions_are_apart() -> None:
    estimate, truth = pair(seed=2, error=0.002)
    estimate, truth = estimate / 10, truth / 10
    gap = psnr(estimate, truth, "unit") - psnr(estimate, truth, "paper")
    peak = truth.amax((1, 2, 3))
    torch.testing.assert_close(gap, -20 * torch.log10(peak))
    assert gap.min() > 20


def test_a_perfect_reconstruction_is_infinite() -> None:
    _, truth = pair()
    for convention in ("paper", "mst", "dgsmp", "unit"):
        assert psnr(truth, truth, convention).tolist() == [math.inf] * 3


def test_a_zero_cube_has_no_peak() -> None:
    truth = torch.ones(2, 3, 4, 4)
    truth[1] = 0
    with pytest.raises(ValuesError, match="sample 1 has no positive value"):
        psnr(truth + 0.1, truth)
    assert psnr(truth + 0.1, truth, "unit").tolist() == pytest.approx([20, 20], abs=1e-4)


def test_it_is_equal_for_a_batch_and_one_by_one_and_close_in_float32() -> None:
    estimate, truth = pair(seed=3)
    for convention in ("paper", "mst", "dgsmp", "unit"):
        batch = psnr(estimate, truth, convention)
        single = [psnr(estimate[i : i + 1], truth[i : i + 1], convention) for i in range(3)]
        assert torch.equal(batch, torch.cat(single))
        half = psnr(estimate.float(), truth.float(), convention)
        assert half.dtype == torch.float32
        torch.testing.assert_close(half.double(), batch, rtol=0, atol=0.01)


def test_bad_pairs_are_refused_with_a_reason() -> None:
    estimate, truth = pair()
    with pytest.raises(ShapeError, match="same size"):
        psnr(estimate[:, :3], truth)
    with pytest.raises(ShapeError, match="expected B×C×H×W"):
        psnr(estimate[0], truth[0])
    with pytest.raises(ValuesError, match="fractions of full scale"):
        psnr(truth, (truth * 255).to(torch.uint8))
    with pytest.raises(DeviceError, match="move one"):
        psnr(estimate.to("meta"), truth)
    with pytest.raises(ConfigError, match="Did you mean 'dgsmp'"):
        psnr(estimate, truth, "dgmsp")  # type: ignore[arg-type]
    estimate[1, 2, 3, 4] = math.nan
    with pytest.raises(ValuesError, match=r"estimate holds 1 NaN.*\(1, 2, 3, 4\)"):
        psnr(estimate, truth)
