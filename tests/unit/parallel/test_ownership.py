"""A folder has one owner, and is free again when that one is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prismask.errors import FolderInUseError, OutputExistsError, WriteFailedError
from prismask.parallel.ownership import OWNER, owned, shared


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_what_is_no_name_of_a_folder_is_told(tmp_path: Path, name: str) -> None:
    for hold in (owned(tmp_path / name, "a training"), shared(tmp_path / name, "work", "same")):
        with pytest.raises(WriteFailedError, match="nothing can be written into"), hold:
            pass


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


SHARE = """
import sys, time
from pathlib import Path
from prismask.parallel.ownership import owned, shared
folder, mode = Path(sys.argv[1]), sys.argv[2]
with owned(folder, "a run") if mode == "owned" else shared(folder, "a run", mode):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def holder(folder: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder until it is killed."""
    command = [sys.executable, "-c", SHARE, str(folder), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "held"
        yield process
        process.kill()


def test_those_who_do_the_same_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with shared(out, "a run", "same"):
        with shared(out, "a run", "same"), holder(out, "same"):
            pass
        with pytest.raises(FolderInUseError, match="other options"), shared(out, "a run", "other"):
            pytest.fail("mixed")
        with pytest.raises(FolderInUseError, match="a run of process"), owned(out, "x"):
            pytest.fail("two owners")
    assert not out.exists()
    with shared(out, "a run", "other"):
        pass


@pytest.mark.parametrize("mode", ["owned", "same"])
def test_a_kill_releases_the_folder(tmp_path: Path, mode: str) -> None:
    with (
        holder(tmp_path, mode) as process,
        pytest.raises(FolderInUseError, match=f"process {process.pid}"),
        shared(tmp_path, "a run", "other"),
    ):
        pytest.fail("two owners")
    with shared(tmp_path, "a run", "other"):
        pass
    with owned(tmp_path, "a run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, error in ((Path("/proc/self/new"), WriteFailedError),
                          (tmp_path / "file", OutputExistsError)):  # fmt: skip
        for hold in (owned(folder, "a run"), shared(folder, "a run", "same")):
            with pytest.raises(error), hold:
                pytest.fail("held")
