#!/usr/bin/env python
"""What wrong masks, prisms and noise cost each network, in one picture, from the stress tests.

    python results/wrong_masks.py

Reads the summary.csv of the tables below and writes wrong-masks.png: KAIST, the other instrument,
PSNR paper. Methods were not all tested in one run; the same seed gives them the same faults.
"""

from __future__ import annotations

import csv
from pathlib import Path

from prismask.evaluation.figures.scores import FaultPanel, Scores, stress_figure
from prismask.evaluation.protocol.conditions import FAULT_KINDS

HERE = Path(__file__).resolve().parent
TABLES = (
    ("lumen.m2m", "kaist/stress-lumen", "lumen"),
    ("srn-looks.m2m", "kaist/stress-twelve-minutes", "srn-looks"),
    ("SRN + GST", "kaist/stress-twelve-minutes", "SRN + GST"),
    ("GAP-TV", "kaist/stress", "gap-tv"),
)
"""Label, folder, and what the model is called there."""
GROUP, METRIC, MEAN = "test_other_hardware", "psnr_paper", "average"


def curve(label: str, folder: str, model: str, fault: str) -> Scores:
    with (HERE / folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["model"], row["group"], row["scene"], row["metric"], row["fault"])
            == (model, GROUP, MEAN, METRIC, fault)
        ]
    rows.sort(key=lambda row: float(row["size"]))
    means, stds = ([float(row[key]) for row in rows] for key in ("mean", "std"))
    return Scores(label, [float(row["size"]) for row in rows], means, stds)


def main() -> None:
    panels = [
        FaultPanel(fault, kind.text, kind.neutral, [curve(*table, fault) for table in TABLES])
        for fault, kind in FAULT_KINDS.items()
    ]
    (HERE / "wrong-masks.png").write_bytes(stress_figure(panels, "PSNR paper [dB]"))
    print("wrong-masks.png")


if __name__ == "__main__":
    main()
