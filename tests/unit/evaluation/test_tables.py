"""Tables on the disk: what is cut anywhere is noticed, never read as something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismask.errors import FormatError
from prismask.evaluation.tables.files import read_table, write_table

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
