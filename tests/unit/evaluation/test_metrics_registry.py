"""The registry: names, conventions, directions, and `score` equal to its parts."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from prismask.errors import ConfigError
from prismask.evaluation.metrics import (
    CUBE_METRICS,
    METRICS,
    ergas,
    psnr,
    rmse,
    sam,
    score,
    score_cubes,
    ssim,
)
from prismask.scenes.records import Cube


def pair(error: float = 0.05) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    truth = 0.1 + 0.6 * torch.rand(2, 4, 16, 18, generator=generator)
    return truth + error * torch.randn(truth.shape, generator=generator), truth


def test_score_equals_the_functions() -> None:
    estimate, truth = pair()
    parts = {
        "psnr_paper": psnr(estimate, truth, "paper"),
        "psnr_mst": psnr(estimate, truth, "mst"),
        "psnr_dgsmp": psnr(estimate, truth, "dgsmp"),
        "psnr_unit": psnr(estimate, truth, "unit"),
        "ssim": ssim(estimate, truth, padding="zero"),
        "ssim_valid": ssim(estimate, truth, padding="valid"),
        "sam": sam(estimate, truth),
        "ergas": ergas(estimate, truth),
        "rmse": rmse(estimate, truth),
    }
    scores = score(estimate, truth)
    assert tuple(scores) == CUBE_METRICS
    assert set(parts) == set(CUBE_METRICS)
    assert set(METRICS) - set(CUBE_METRICS) == {"inside"}
    for name, values in scores.items():
        assert values.shape == (2,)
        assert torch.equal(values, parts[name]), name


def test_scoring_changes_nothing_and_repeats() -> None:
    estimate, truth = pair()
    before = estimate.clone(), truth.clone()
    first, second = score(estimate, truth), score(estimate, truth)
    assert all(torch.equal(first[name], second[name]) for name in CUBE_METRICS)
    assert torch.equal(estimate, before[0])
    assert torch.equal(truth, before[1])


def test_directions_are_true() -> None:
    near, truth = pair(0.01)
    far, _ = pair(0.1)
    good, bad = score(near, truth), score(far, truth)
    for name in CUBE_METRICS:
        better = (
            (good[name] > bad[name]).all()
            if METRICS[name].higher_is_better
            else (good[name] < bad[name]).all()
        )
        assert better, name


def test_every_label_names_its_convention() -> None:
    labels = [metric.label for metric in METRICS.values()]
    assert len(set(labels)) == len(labels)
    assert labels[:4] == ["PSNR paper", "PSNR MST", "PSNR DGSMP", "PSNR unit"]
    assert METRICS["psnr_paper"].text(24.356) == "24.36 dB"
    assert METRICS["sam"].text(8.0) == "8.00°"
    assert METRICS["ssim"].text(0.87654) == "0.8765"
    assert METRICS["psnr_unit"].text(math.inf) == "inf dB"


def test_the_share_inside_an_interval() -> None:
    estimate, truth = pair()
    lower, upper = truth - 0.1, truth + 0.1
    lower[0, 0] = truth[0, 0] + 0.01  # a quarter of the first cube lies below its interval
    lower[1, 2, 3, 4] = truth[1, 2, 3, 4]  # on its end is inside
    found = score(estimate, truth, ["inside"], (lower, upper))["inside"]
    assert found.tolist() == [75.0, 100.0]
    lower[1] = torch.nan
    found = score(estimate, truth, ["inside"], (lower, upper))["inside"]
    assert found[0] == 75
    assert found[1].isnan()
    with pytest.raises(ConfigError, match="have none"):
        score(estimate, truth, ["inside"])


def test_names_choose_and_unknown_ones_are_refused() -> None:
    estimate, truth = pair()
    assert list(score(estimate, truth, ["sam", "psnr_unit"])) == ["sam", "psnr_unit"]
    with pytest.raises(ConfigError, match="Did you mean 'psnr_paper'"):
        score(estimate, truth, ["psnr_papper"])


def test_gradients_do_not_disturb() -> None:
    estimate, truth = pair()
    scores = score(estimate.requires_grad_(), truth)
    assert not any(values.requires_grad for values in scores.values())
    assert not ssim(estimate, truth).requires_grad


def test_cubes_are_scored_as_plain_numbers() -> None:
    estimate, truth = pair()
    came = score_cubes(Cube(estimate[0].numpy()), Cube(truth[0].numpy()))
    want = score(estimate[:1], truth[:1])
    assert came == {name: float(values[0]) for name, values in want.items()}
    assert all(isinstance(value, float) for value in came.values())
    assert np.isfinite(list(came.values())).all()


def test_half_precision_is_lifted() -> None:
    estimate, truth = pair()
    came = score(estimate.half(), truth.half(), ["psnr_paper", "ssim"])
    want = score(estimate, truth, ["psnr_paper", "ssim"])
    assert all(values.dtype == torch.float32 for values in came.values())
    torch.testing.assert_close(came["psnr_paper"], want["psnr_paper"], rtol=0, atol=0.01)


@pytest.mark.slow
def test_metrics_need_torch_and_numpy_alone() -> None:
    code = (
        "import sys\n"
        "for name in ('scipy', 'xarray', 'skimage', 'torchmetrics', 'matplotlib', 'colour'):\n"
        "    sys.modules[name] = None\n"
        "import prismask.evaluation.metrics\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same() -> None:
    estimate, truth = pair()
    here, there = score(estimate, truth), score(estimate.cuda(), truth.cuda())
    for name in CUBE_METRICS:
        torch.testing.assert_close(there[name].cpu(), here[name], rtol=1e-4, atol=1e-4)
