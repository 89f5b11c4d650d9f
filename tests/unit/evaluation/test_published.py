"""The paper's numbers: complete, plausible, and with their own contradictions named."""

from __future__ import annotations

import pytest

from prismask.evaluation.metrics import METRICS
from prismask.evaluation.tables.published import (
    COSTS,
    OTHER_BACKBONES,
    OURS,
    PSNR,
    ROWS,
    SCENES,
    SCORES,
    SPECTRAL_CORRELATION_AVERAGES,
    SPECTRAL_CORRELATIONS,
    SSIM,
    Number,
    row_number,
    row_of,
)
from prismask.models.registry import list_models

ODD_AVERAGES = (
    ("one-to-one", "TSA-Net", PSNR), ("one-to-many", "PnP-DIP", PSNR),
    ("one-to-many", "PnP-DIP", SSIM), ("one-to-many", OURS, PSNR), ("one-to-many", OURS, SSIM),
    ("many-to-many", "PnP-DIP", PSNR), ("many-to-many", "PnP-DIP", SSIM),
    ("many-to-many", "TSA-Net", SSIM), ("many-to-many", "GSM", PSNR),
)  # fmt: skip
"""Printed averages that differ from the mean of their ten rows by more than rounding."""
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
    numbers = [scores[metric][scene] for scene in SCENES]
    means = [number.mean for number in numbers]
    assert len(means) == 10
    low, high = (10, 45) if metric == PSNR else (0.5, 1)
    assert all(low < mean < high for mean in means)
    average = scores[metric]["average"]
    # One unit of the last printed digit, and rounding of the ten on top.
    tolerance = 0.0151 if metric == PSNR else 0.00015
    fits = abs(average.mean - sum(means) / 10) <= tolerance
    assert fits is ((protocol, method, metric) not in ODD_AVERAGES)
    assert all((number.std is None) == (protocol == "one-to-one") for number in numbers)


def test_tables_agree_with_each_other() -> None:
    for protocol in SCORES:
        for row, method in (("full", OURS), ("w/o GST", "SRN")):
            for metric, number in ROWS[row][protocol].items():
                assert number == SCORES[protocol][method][metric]["average"]
    for name in ("SRN", OURS):
        for metric, number in ROWS[name]["many-to-many"].items():
            assert number == SCORES["many-to-many"][name][metric]["average"]
    assert {"full", "w/o GST", "w/o Bi-Opt", "w/o GCN"} < set(COSTS)
    for name, values in SPECTRAL_CORRELATIONS.items():
        assert sum(values) / 10 == pytest.approx(SPECTRAL_CORRELATION_AVERAGES[name], abs=1e-4)


def test_which_row_a_model_belongs_beside() -> None:
    assert row_of("many-to-many", "gst", "srn") == "full"
    assert row_of("without-gst", "none", "srn") == "w/o GST"
    assert row_of("without-gcn", "conv", "srn") == "w/o GCN"
    assert row_of("without-bilevel", "gst", "srn") == "w/o Bi-Opt"
    assert row_of("fixed-variance", "fixed", "srn") is None
    assert row_of("solver", None, "") is None


def test_other_backbones_stand_beside_their_own_rows() -> None:
    assert row_of("swinir", "none", "swinir") == "SwinIR"
    assert row_of("swinir-gst", "gst", "swinir") == "SwinIR + GST"
    assert row_of("spectral-vit-gst", "gst", "spectral-vit") == "Spectral ViT + GST"
    for kind in ("conv", "fixed"):
        assert row_of("swinir", kind, "swinir") is None
    assert row_of("joint", "gst", "swinir") is None
    for backbone in ("srn-looks", "tsa-net", "gsm"):
        assert row_of(backbone, "gst", backbone) is None
    assert set(OTHER_BACKBONES) < set(list_models())
    titles = ("SRN", *OTHER_BACKBONES.values())
    assert {f"{title}{gst}" for title in titles for gst in ("", " + GST")} < set(ROWS)


def test_numbers_of_rows() -> None:
    assert row_number("SwinIR + GST", "many-to-many", PSNR) == Number(34.15, 0.01)
    assert row_number("Spectral ViT", "many-to-many", SSIM) == Number(0.9282, 0.0010)
    assert row_number("SwinIR", "one-to-one", PSNR) is None, "the paper has many-to-many alone"
    assert row_number("w/o GCN", "one-to-one", PSNR) == Number(33.23)
    assert row_number("full", "many-to-many", "sam") is None
    assert row_number(None, "many-to-many", PSNR) is None
