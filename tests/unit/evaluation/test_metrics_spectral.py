"""SAM, ERGAS and RMSE: against torchmetrics, NumPy and known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torchmetrics.functional.image import (
    error_relative_global_dimensionless_synthesis,
    spectral_angle_mapper,
)

from prismask.errors import ValuesError
from prismask.evaluation.metrics import ergas, rmse, sam


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    truth = 0.1 + 0.8 * torch.rand(3, 5, 9, 11, generator=generator, dtype=torch.float64)
    noise = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    return truth + 0.05 * noise, truth


def test_sam_equals_torchmetrics_and_numpy() -> None:
    estimate, truth = pair()
    want = spectral_angle_mapper(estimate, truth, reduction="none")
    assert isinstance(want, torch.Tensor)
    torch.testing.assert_close(sam(estimate, truth), torch.rad2deg(want).mean((-1, -2)))
    x, t = estimate[0].numpy().reshape(5, -1), truth[0].numpy().reshape(5, -1)
    cosine = (x * t).sum(0) / np.sqrt((x**2).sum(0) * (t**2).sum(0))
    np.testing.assert_allclose(
        sam(estimate, truth)[0].item(), np.degrees(np.arccos(cosine)).mean(), rtol=1e-10
    )


def test_sam_ignores_brightness_and_knows_right_angles() -> None:
    estimate, truth = pair()
    torch.testing.assert_close(sam(3 * estimate, truth), sam(estimate, truth))
    first, second = torch.zeros(1, 3, 2, 2), torch.zeros(1, 3, 2, 2)
    first[:, 0], second[:, 2] = 0.2, 5.0
    assert sam(first, second).item() == pytest.approx(90)
    assert sam(first, -first).item() == pytest.approx(180)
    second[:, 0] = 5.0
    assert sam(first, second).item() == pytest.approx(45)


def test_sam_resolves_small_angles_in_float32() -> None:
    truth = torch.ones(1, 2, 4, 4)
    estimate = truth.clone()
    estimate[:, 0] += 1e-4
    # tan of the angle between (1, 1) and (1 + e, 1) is e / (2 + e).
    want = math.degrees(math.atan(1e-4 / 2))
    assert sam(estimate, truth).item() == pytest.approx(want, rel=2e-3)
    assert sam(truth, truth).item() == 0


def test_sam_of_zero_spectra_is_defined() -> None:
    truth = torch.ones(1, 3, 2, 2)
    estimate = truth.clone()
    estimate[..., 0, 0] = 0  # only the estimate is dark: 90°
    truth[..., 0, 1] = 0  # only the truth is dark: 90°
    estimate[..., 1, 0] = truth[..., 1, 0] = 0  # both: 0°
    assert sam(estimate, truth).item() == pytest.approx((90 + 90 + 0 + 0) / 4, abs=1e-4)
    assert sam(torch.zeros_like(truth), torch.zeros_like(truth)).item() == 0


def test_ergas_equals_torchmetrics() -> None:
    estimate, truth = pair()
    for ratio in (1.0, 4.0):
        want = error_relative_global_dimensionless_synthesis(
            estimate, truth, ratio=ratio, reduction="none"
        )
        assert isinstance(want, torch.Tensor)
        # That function divides by coarse / fine, ours multiplies with fine / coarse.
        torch.testing.assert_close(ergas(estimate, truth, ratio=1 / ratio), want)


def test_ergas_known_answer_and_dark_bands() -> None:
    truth = torch.full((1, 2, 4, 4), 0.5)
    assert ergas(truth + 0.05, truth).item() == pytest.approx(10, abs=1e-4)
    truth[:, 0] = 0
    estimate = truth.clone()
    assert ergas(estimate, truth).item() == 0
    estimate[:, 1] += 0.05
    assert ergas(estimate, truth).item() == pytest.approx(10 / math.sqrt(2), abs=1e-4)
    estimate[:, 0] += 0.05
    assert ergas(estimate, truth).item() == math.inf
    with pytest.raises(ValuesError, match="ratio"):
        ergas(estimate, truth, ratio=0)


def test_rmse() -> None:
    estimate, truth = pair()
    want = [
        np.sqrt(np.mean((x - t) ** 2)) for x, t in zip(estimate.numpy(), truth.numpy(), strict=True)
    ]
    np.testing.assert_allclose(rmse(estimate, truth).numpy(), want, rtol=1e-12)
    assert rmse(truth, truth).tolist() == [0, 0, 0]
