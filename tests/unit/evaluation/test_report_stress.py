"""Stress tests on the page: each by itself, and several in one figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismask.evaluation.figures import scores as figures
from prismask.evaluation.report import scores
from prismask.evaluation.report.document import Picture, Table
from prismask.evaluation.report.scores import stress_sections
from prismask.evaluation.report.sources import Source
from prismask.evaluation.tables.published import PSNR
from prismask.evaluation.tables.summaries import AVERAGE, write_table

COLUMNS = ("model", "group", "scene", "metric", "trials", "failed", "mean", "std",
           "standard_error", "fault", "size", "given")  # fmt: skip
SIZES = (0.0, 0.5, 1.0)


def stress_test(folder: Path, drop: float, group: str = "g", failed: int = 0) -> Source:
    """A finished stress test of one network that loses `drop` dB per pixel."""
    folder.mkdir()
    rows = [
        ("net", group, AVERAGE, PSNR, 2, failed, 30 - drop * size, 0.1, 0.07, "shift", size,
         "nominal")
        for size in SIZES
    ]  # fmt: skip
    write_table(folder / "summary.csv", COLUMNS, rows)
    groups = {group: {"overlap": {"net": ""}}}
    record = {"groups": groups, "metrics": [PSNR], "scenes": ["s"], "models": {"net": {}}}
    return Source(folder.name, folder, record)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[figures.FaultPanel]]:
    """The panels of every stress figure, in order."""
    found: list[list[figures.FaultPanel]] = []

    def draw(panels: list[figures.FaultPanel], title: str) -> bytes:
        found.append(panels)
        return figures.stress_figure(panels, title)

    monkeypatch.setattr(scores, "stress_figure", draw)
    return found


def test_before_and_after_stand_in_one_figure(
    tmp_path: Path, drawn: list[list[figures.FaultPanel]]
) -> None:
    sources = [stress_test(tmp_path / "before", 10.0), stress_test(tmp_path / "after", 2.0)]
    together, *single = stress_sections(sources)
    assert together.title == "Stress tests together"
    assert [section.title.split("(")[1] for section in single] == ["before)", "after)"]
    (panel,) = drawn[0]
    assert [(c.label, c.source, list(c.means)) for c in panel.curves] == [
        ("net", "before", [30.0, 25.0, 20.0]),
        ("net", "after", [30.0, 29.0, 28.0]),
    ]
    pictures = [b for s in (together, *single) for b in s.blocks if isinstance(b, Picture)]
    assert len({picture.name for picture in pictures}) == len(pictures) == 3


def test_one_test_or_two_of_different_masks_are_not_put_together(tmp_path: Path) -> None:
    one = stress_test(tmp_path / "one", 1.0)
    other = stress_test(tmp_path / "other", 1.0, group="elsewhere")
    assert len(stress_sections([one])) == 1
    assert len(stress_sections([one, other])) == 2


def test_failed_trials_are_told_beside_their_score(tmp_path: Path) -> None:
    (section,) = stress_sections([stress_test(tmp_path / "one", 1.0, failed=1)])
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    assert table.rows[0][1] == "30.00 ± 0.10 [1 of 3 failed]"
