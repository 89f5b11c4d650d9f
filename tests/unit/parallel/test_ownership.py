"""A folder has one owner, and is free again when that one is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismask.errors import FolderInUseError
from prismask.parallel.ownership import OWNER, owned


def test_the_second_one_is_told_and_the_next_one_may(tmp_path: Path) -> None:
    with (
        owned(tmp_path, "a training"),
        pytest.raises(FolderInUseError, match=rf"a training of process {os.getpid()} on"),
        owned(tmp_path, "an evaluation"),
    ):
        pytest.fail("two owners")
    with owned(tmp_path, "an evaluation"):
        assert "an evaluation" in (tmp_path / OWNER).read_text()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with owned(tmp_path / "deep" / "new", "a training"):
        assert (tmp_path / "deep" / "new").is_dir()
    assert not (tmp_path / "deep" / "new").exists()
    (tmp_path / "kept").mkdir()
    with owned(tmp_path / "kept", "a training"):
        (tmp_path / "kept" / "result").touch()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["result"]


def test_an_owner_nobody_can_read_is_still_an_owner(tmp_path: Path) -> None:
    with owned(tmp_path, "a training"):
        (tmp_path / OWNER).write_text("[")
        with (
            pytest.raises(FolderInUseError, match="in use by another process"),
            owned(tmp_path, "x"),
        ):
            pytest.fail("two owners")


def test_without_a_folder_there_is_nothing_to_hold() -> None:
    with owned(None, "a training"), owned(None, "a training"):
        pass
