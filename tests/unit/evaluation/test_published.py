"""The paper's numbers: complete, plausible, and with their own contradictions named."""

from __future__ import annotations

import pytest

from prismask.evaluation.metrics import METRICS
from prismask.evaluation.published import (
    ABLATION,
    BACKBONES,
    COSTS,
    ODD_AVERAGES,
    OURS,
    PSNR,
    SCENES,
    SCORES,
    SPECTRAL_CORRELATION_AVERAGES,
    SPECTRAL_CORRELATIONS,
    SSIM,
    row_of,
)

ALL = [
    (protocol, method, metric)
    for protocol, methods in SCORES.items()
    for method in methods
    for metric in (PSNR, SSIM)
]


def test_the_metrics_are_ours() -> None:
    assert METRICS[PSNR].label == "PSNR paper"
    assert METRICS[SSIM].label == "SSIM zero-padded"


@pytest.mark.parametrize(("protocol", "method", "metric"), ALL)
def test_ten_scenes_and_an_average_that_fits(protocol: str, method: str, metric: str) -> None:
    scores = SCORES[protocol][method]
    numbers = [scores.find(metric, scene) for scene in SCENES]
    means = [number.mean for number in numbers if number is not None]
    assert len(means) == 10
    low, high = (10, 45) if metric == PSNR else (0.5, 1)
    assert all(low < mean < high for mean in means)
    average = scores.find(metric, "average")
    assert average is not None
    # One unit of the last printed digit, and rounding of the ten on top.
    tolerance = 0.0151 if metric == PSNR else 0.00015
    fits = abs(average.mean - sum(means) / 10) <= tolerance
    assert fits is ((protocol, method, metric) not in ODD_AVERAGES)
    assert all((number is not None and number.std is None) == (protocol == "one-to-one")
               for number in numbers)  # fmt: skip


def test_unknown_metrics_and_scenes_have_no_number() -> None:
    scores = SCORES["one-to-one"][OURS]
    assert scores.find("sam", "scene01") is None
    assert scores.find(PSNR, "beads") is None


def test_tables_agree_with_each_other() -> None:
    for protocol in SCORES:
        for row, method in (("full", OURS), ("w/o GST", "SRN")):
            assert ABLATION[row].psnr[protocol] == SCORES[protocol][method].average_psnr
            assert ABLATION[row].ssim[protocol] == SCORES[protocol][method].average_ssim
    for name in ("SRN", OURS):
        scores = SCORES["many-to-many"][name]
        assert BACKBONES[name] == (scores.average_psnr, scores.average_ssim)
    assert set(ABLATION) < set(COSTS)
    for name, values in SPECTRAL_CORRELATIONS.items():
        assert sum(values) / 10 == pytest.approx(SPECTRAL_CORRELATION_AVERAGES[name], abs=1e-4)


def test_which_row_a_model_belongs_beside() -> None:
    assert row_of("many-to-many", "gst") == "full"
    assert row_of("without-gst", "none") == "w/o GST"
    assert row_of("without-gcn", "conv") == "w/o GCN"
    assert row_of("without-bilevel", "gst") == "w/o Bi-Opt"
    assert row_of("fixed-variance", "fixed") is None
    assert row_of("solver", None) is None
