"""The dots of single trials: one metric, averaged over scenes, model by model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas", reason="pandas is not installed")

from prismask.evaluation.report import scores
from prismask.evaluation.report.sources import Source

VALUES = {
    ("one", 0, "psnr_paper"): (30.0, 34.0),
    ("one", 1, "psnr_paper"): (31.0, 35.0),
    ("two", 0, "psnr_paper"): (20.0, 22.0),
    ("two", 1, "psnr_paper"): (24.0, 28.0),
}


def test_other_metrics_of_the_table_are_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ["model,group,trial,scene,metric,value"]
    for (model, trial, metric), both in VALUES.items():
        for scene, value in enumerate(both):
            rows.append(f"{model},test_other,{trial},s{scene},{metric},{value}")
            rows.append(f"{model},test_other,{trial},s{scene},ssim,0.9")
    (tmp_path / "scores.csv").write_text("\n".join(rows) + "\n")
    drawn: list[Any] = []
    monkeypatch.setattr(scores, "trial_figure", lambda values, title: drawn.append(values))
    record = {"metrics": ["psnr_paper", "ssim"]}
    assert scores._trial_picture(Source("x", tmp_path, record)) is not None
    assert drawn == [{"other": {"one": [32.0, 33.0], "two": [21.0, 26.0]}}]
