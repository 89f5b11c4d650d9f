"""Tables on the disk: what is cut anywhere is noticed, never read as something else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from prismask.errors import FormatError
from prismask.evaluation.tables.summaries import read_frame, read_table, write_table

COLUMNS = ("model", "mean", "metric", "low")
ROWS = [("λ-net", 31.25, "psnr", 0.125), ('a "b"\nc', 30.5, "ssim", 12.75)]


def test_round_trip(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", COLUMNS, ROWS)
    assert [tuple(row.values()) for row in read_table(tmp_path / "t.csv")] == ROWS


def test_a_table_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_table(path, COLUMNS, ROWS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if whole[:length].endswith(b"\n") and whole[:length].count(b'"') % 2 == 0:
            continue  # whole lines cannot be told from a shorter table
        with pytest.raises(FormatError, match=r"t\.csv.*--resume"):
            list(read_table(path))


@pytest.mark.parametrize("line", ["a,1.0,b", "a,1.0,b,2.0,c", "a,one,b,2.0"])
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{','.join(COLUMNS)}\na,1.0,b,2.0\n{line}\n")
    with pytest.raises(FormatError, match="line 3"):
        list(read_table(path))


def test_a_frame_has_the_same_values_to_the_last_bit(tmp_path: Path) -> None:
    """Names that pandas would take for missing values stay names."""
    path = tmp_path / "t.csv"
    columns = ("model", "trial", "value", "overlap", "mask_id")
    rows = [
        ("NA", 0, 0.1 + 0.2, "", "0012"),
        ("null", 1, math.nan, "same mask", "nan"),
        ('a "b", c', 2, math.inf, "", "1e5"),
        ("λ-net", 3, 33.018743896484374, "", ""),
    ]
    write_table(path, columns, rows)
    frame = read_frame(path)
    expected = [list(row.values()) for row in read_table(path)]
    for found, wanted in zip(frame.itertuples(index=False), expected, strict=True):
        for value, other in zip(found, wanted, strict=True):
            assert value == other or (math.isnan(value) and math.isnan(other))
    assert list(read_frame(path, ("value", "trial")).columns) == ["trial", "value"]
