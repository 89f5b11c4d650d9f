"""Coverage by scene on the page: every evaluation that counted it, and nothing where none did."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismask.evaluation.report import scores
from prismask.evaluation.report.document import Picture, Table
from prismask.evaluation.report.scores import coverage_sections
from prismask.evaluation.report.sources import Source
from prismask.evaluation.tables.summaries import AVERAGE, write_table

COLUMNS = ("model", "group", "scene", "metric", "trials", "failed", "mean", "std",
           "standard_error")  # fmt: skip


def evaluation(folder: Path, shares: dict[str, float], metric: str = "inside") -> Source:
    """A finished evaluation of a network, and of a solver that has no interval."""
    folder.mkdir()
    nothing = dict.fromkeys(shares, float("nan"))
    rows = [
        (model, "g", scene, metric, 2, 0, share, 0.1, 0.07)
        for model, found in (("net", shares), ("solver", nothing))
        for scene, share in (found | {AVERAGE: sum(found.values()) / len(found)}).items()
    ]
    write_table(folder / "summary.csv", COLUMNS, rows)
    models: dict[str, dict[str, str]] = {"net": {}, "solver": {}}
    record = {"groups": {"g": {}}, "metrics": [metric], "scenes": list(shares), "models": models}
    return Source(folder.name, folder, record)


def test_every_evaluation_has_a_row_with_its_worst_scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, dict[str, float]]] = []
    figure = scores.coverage_figure
    monkeypatch.setattr(
        scores, "coverage_figure", lambda found: (drawn.append(found), figure(found))[1]
    )
    clean = evaluation(tmp_path / "clean", {"beads": 84.0, "cloth": 93.0})
    noisy = evaluation(tmp_path / "noisy", {"beads": 90.0, "flowers": 96.0})
    (section,) = coverage_sections([clean, noisy])
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    assert table.header == ["", "beads", "cloth", "flowers", "worst", "mean"]
    names = ["net, g (clean)", "net, g (noisy)"]
    assert table.rows == [
        [names[0], "84.0", "93.0", "–", "84.0", "88.5"],
        [names[1], "90.0", "–", "96.0", "90.0", "93.0"],
    ]
    assert list(drawn[0]) == names
    (picture,) = [block for block in section.blocks if isinstance(block, Picture)]
    assert picture.png.startswith(b"\x89PNG")


def test_without_intervals_there_is_no_section(tmp_path: Path) -> None:
    assert coverage_sections([evaluation(tmp_path / "one", {"beads": 30.0}, "psnr_paper")]) == []
