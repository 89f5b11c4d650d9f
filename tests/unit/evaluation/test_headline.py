"""The headline of a results folder: numbers from tables, published ones as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismask.errors import DataMissingError, FormatError
from prismask.evaluation.report.sources import (
    HEADLINE_FILE,
    find_sources,
    headline_picture,
    headline_table,
    read_headline,
    refreshed,
)
from prismask.evaluation.tables.summaries import AVERAGE, write_table

COLUMNS = ("model", "group", "scene", "metric", "trials", "failed", "mean", "std", "standard_error")


def folder_with(tmp_path: Path, **changes: Any) -> Path:
    """A folder with one evaluation and a headline of two rows; `changes` are of the first."""
    rows = [
        ("net", "g", AVERAGE, "psnr_paper", 100, 0, 34.59917, 0.0853, 0.0085),
        ("net", "single", AVERAGE, "psnr_paper", 1, 0, 35.0052, float("nan"), float("nan")),
    ]
    write_table(tmp_path / "summary.csv", COLUMNS, rows)
    cell = {"table": "summary.csv", "model": "net"}
    ours = {
        "method": "net", "who": "ours", "training": "many masks", "metric": "psnr_paper",
        "scores": {"one": {**cell, "group": "single", "note": "(a)"},
                   "unseen": {**cell, "group": "g"}},
        "source": "README.md", "command": "prismask evaluate net",
    }  # fmt: skip
    peer = {
        "method": "theirs", "who": "peer", "training": "one mask", "metric": "psnr_mst",
        "scores": {"one": {"mean": 40.96}, "unseen": {"text": "38.2–38.3"}}, "source": "somewhere",
    }  # fmt: skip
    record = {
        "caption": "PSNR.", "columns": {"one": "one mask", "unseen": "unseen masks"},
        "notes": {"(a)": "Mind this."}, "rows": [{**ours, **changes}, peer],
    }  # fmt: skip
    (tmp_path / HEADLINE_FILE).write_text(json.dumps(record), encoding="utf-8")
    return tmp_path


def test_numbers_come_from_the_table_and_published_ones_stay(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    record = refreshed(read_headline(folder), folder)
    table = headline_table(record)
    assert table.header == ["method", "training", "one mask", "unseen masks", "PSNR", "by"]
    assert table.rows == [
        ["net", "many masks", "35.01 (a)", "34.60 ± 0.09", "paper", "here"],
        ["theirs", "one mask", "40.96", "38.2–38.3", "MST", "peer"],
    ]
    assert table.note == "(a) Mind this."
    assert refreshed(record, folder) == record


def test_texts_are_not_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = folder_with(tmp_path)
    picture = headline_picture(refreshed(read_headline(folder), folder))
    assert picture.png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "changes",
    [{"who": "nobody"}, {"metric": "psnr"}, {"scores": {"elsewhere": {"mean": 1.0}}}],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=r"row 1 \(net\).*columns one, unseen"):
        read_headline(folder_with(tmp_path, **changes))


def test_a_score_that_is_not_in_its_table_is_named(tmp_path: Path) -> None:
    cell = {"table": "summary.csv", "model": "other", "group": "g"}
    folder = folder_with(tmp_path, scores={"one": cell})
    with pytest.raises(FormatError, match=r"no psnr_paper of 'other' in 'g'.*models: net"):
        refreshed(read_headline(folder), folder)
    with pytest.raises(DataMissingError, match="there is no"):
        read_headline(folder / "elsewhere")


def test_a_damaged_headline_does_not_hide_the_rest(tmp_path: Path) -> None:
    line = {"event": "step", "step": 1, "seconds": 1.0, "phase": "plain", "loss": 0.1}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (tmp_path / HEADLINE_FILE).write_text("{", encoding="utf-8")
    found = find_sources(tmp_path)
    assert list(found.trainings) == [tmp_path.name]
    (problem,) = found.problems
    assert "headline.json is not JSON" in problem
