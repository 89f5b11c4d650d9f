"""The journal keeps what is finished, through torn lines and damage."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from prismask.errors import FormatError, OutputExistsError
from prismask.evaluation.run.cells import Cell, CellResult, Journal


def result(trial: int, value: float = 30.0) -> CellResult:
    cell = Cell("mön, “x”", "lab", trial)
    return CellResult(cell, "abc", "def", 0.1 + 0.2, {"psnr_paper": [value, 1 / 3]}, {"a": "why"})


def test_what_was_written_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    for path in (None, tmp_path / "cells.jsonl"):
        with Journal(path) as journal:
            kept = [result(0), result(1, math.inf), result(2, -1e-300)]
            for each in kept:
                journal.append(each)
            assert [journal.read(each.cell) for each in kept] == kept
            assert result(3).cell not in journal


def test_nan_survives(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    with Journal(path) as journal:
        journal.append(result(0, math.nan))
    with Journal(path) as journal:
        assert math.isnan(journal.read(result(0).cell).values["psnr_paper"][0])


@pytest.mark.parametrize("torn", [b'{"cell": {"mod', b"\x00\x00\x00", b'{"cell": 3}\n', b"\n"])
def test_a_torn_end_is_cut_off(
    tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cells.jsonl"
    journal = Journal(path)
    journal.append(result(0))
    journal.append(result(1))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with caplog.at_level(logging.WARNING):
        again = Journal(path)
    assert len(again) == 2
    assert "torn" in caplog.text
    again.append(result(2))
    again.close()
    assert path.read_bytes().startswith(whole)
    with Journal(path) as last:
        assert len(last) == 3


def test_every_torn_length_is_recovered(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    journal = Journal(path)
    journal.append(result(0))
    first = path.stat().st_size
    journal.append(result(1))
    journal.close()
    whole = path.read_bytes()
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        cut = Journal(path)
        assert len(cut) == 1
        cut.close()
        assert path.stat().st_size == first


def test_damage_in_the_middle_is_not_taken_for_an_end(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    journal = Journal(path)
    journal.append(result(0))
    journal.append(result(1))
    journal.close()
    path.write_bytes(b"#" + path.read_bytes()[1:])
    with pytest.raises(FormatError, match="line 1 is damaged"):
        Journal(path)


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    first = Journal(tmp_path / "cells.jsonl")
    with pytest.raises(OutputExistsError, match="another process"):
        Journal(tmp_path / "cells.jsonl")
    first.close()
    Journal(tmp_path / "cells.jsonl").close()
