"""Writing beside and renaming: nothing is lost, whatever goes wrong and whenever."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from file_examples import IDS, WRITTEN, a_cube, write

from prismask.errors import FormatError, OutputExistsError, WriteFailedError
from prismask.scenes import atomic
from prismask.scenes.atomic import (
    OLD_SUFFIX,
    PART_SUFFIX,
    is_leftover,
    write_beside,
    write_together,
)
from prismask.scenes.formats.files import load, save


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_file_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    with write_beside(target) as part:
        part.write_bytes(b"new")
        assert not target.exists()
        assert part.parent == target.parent
        assert is_leftover(part)
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == {"out.bin"}


def test_what_this_process_is_writing_is_no_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with write_beside(tmp_path / "first") as first:
        first.write_bytes(b"1")
        monkeypatch.setattr(atomic, "swept", set())  # the folder is looked through once more
        with write_beside(tmp_path / "second") as second:
            second.write_bytes(b"2")
        assert first.exists()
    assert names(tmp_path) == {"first", "second"}


@pytest.mark.parametrize("problem", [ValueError("stop"), KeyboardInterrupt(), OSError("stop")])
def test_an_error_leaves_the_old_file(tmp_path: Path, problem: BaseException) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    expected = WriteFailedError if isinstance(problem, OSError) else type(problem)

    def work() -> None:
        with write_beside(target, overwrite=True) as part:
            part.write_bytes(b"half")
            raise problem

    with pytest.raises(expected):
        work()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == {"out.bin"}


def test_an_existing_file_is_refused_before_the_work(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    with (
        pytest.raises(OutputExistsError, match=r"exists already and was kept.*--overwrite"),
        write_beside(target),
    ):
        pytest.fail("the work started")
    with pytest.raises(FileExistsError), write_beside(tmp_path):
        pytest.fail("a folder was taken for a file")


def test_a_file_made_meanwhile_is_refused_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"

    def work() -> None:
        with write_beside(target) as part:
            part.write_bytes(b"ours")
            target.write_bytes(b"theirs")

    with pytest.raises(OutputExistsError):
        work()
    assert target.read_bytes() == b"theirs"
    assert names(tmp_path) == {"out.bin"}


@pytest.mark.parametrize("theirs", [b"", b"theirs"])
def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: bytes) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    target = tmp_path / "out.bin"
    with write_beside(target) as part:
        part.write_bytes(b"ours")
    assert target.read_bytes() == b"ours"
    other = tmp_path / "other.bin"
    with pytest.raises(OutputExistsError), write_beside(other) as part:
        other.write_bytes(theirs)
    assert other.read_bytes() == theirs


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "out.bin"
    real.write_bytes(b"old")
    link = tmp_path / "link.bin"
    link.symlink_to(real)
    with write_beside(link, overwrite=True) as part:
        part.write_bytes(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    plain, ours, old = tmp_path / "plain", tmp_path / "ours", tmp_path / "old"
    plain.touch()
    with write_beside(ours) as part:
        part.write_bytes(b"x")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    old.touch()
    old.chmod(0o640)
    with write_beside(old, overwrite=True) as part:
        part.write_bytes(b"x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(WriteFailedError, match="there is no folder"):
        save(a_cube(), tmp_path / "nowhere" / "out.nc")


# --- a full disk -------------------------------------------------------------------------------


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("extension", "form"), WRITTEN, ids=IDS)
def test_full_disk_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str, form: str | None
) -> None:
    path = write(a_cube(), tmp_path, "out", extension, form)
    before = {other.name: other.read_bytes() for other in tmp_path.iterdir()}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteFailedError, match=r"No space left on device.*untouched"):
        save(a_cube(height=9), path, overwrite=True, format=form)
    assert {other.name: other.read_bytes() for other in tmp_path.iterdir()} == before


def test_full_disk_without_an_old_file_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteFailedError) as caught:
        save(a_cube(), tmp_path / "out.hdr")
    assert "untouched" not in str(caught.value)
    assert not names(tmp_path)


# --- files that belong together ----------------------------------------------------------------


def pair(folder: Path, text: str) -> tuple[Path, Path]:
    data, header = folder / "x.img", folder / "x.hdr"
    data.write_text(text)
    header.write_text(text)
    return data, header


@pytest.mark.parametrize("step", range(4))
def test_a_swap_that_fails_at_any_step_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    data, header = pair(tmp_path, "old")
    rename, calls = Path.rename, []

    def failing(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == step + 1:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)

    def work() -> None:
        with write_together([data, header], overwrite=True) as parts:
            for part in parts:
                part.write_text("new")

    with pytest.raises(WriteFailedError):
        work()
    assert (data.read_text(), header.read_text()) == ("old", "old")
    assert names(tmp_path) == {"x.img", "x.hdr"}


class Killed(BaseException):
    """Stands for a process that ends on the spot: nothing is cleaned up after it."""


@pytest.mark.parametrize("step", range(5))
def test_a_kill_at_any_step_never_shows_a_mixed_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    path = write(a_cube(), tmp_path, "x", ".hdr", None)
    old = load(path).values
    rename, calls = Path.rename, []

    def dying(self: Path, target: Path) -> Path:
        if len(calls) >= step:
            raise Killed
        calls.append(self)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", dying)
    # A dead process neither rolls back nor tidies up.
    monkeypatch.setattr(Path, "replace", dying)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    new = a_cube(height=9)
    with contextlib.suppress(Killed):
        save(new, path, overwrite=True)
    monkeypatch.undo()
    for name in (path, path.with_suffix(".img")):
        found = load(name).values
        assert found.shape in (old.shape, new.values.shape)
        assert (found == (old if found.shape == old.shape else new.values)).all()
    # The next run finishes what was begun, and leaves nothing but the pair.
    monkeypatch.setattr(atomic, "swept", set())
    newest = a_cube(height=7)
    save(newest, path, overwrite=True)
    assert np.array_equal(load(path).values, newest.values)
    assert names(tmp_path) == {"x.hdr", "x.img"}


def test_a_swap_is_finished_where_the_next_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(a_cube(), tmp_path, "x", ".hdr", None)
    rename, dead = Path.rename, []

    def dying(self: Path, target: Path) -> Path:
        if dead or self.name.endswith(PART_SUFFIX):
            dead.append(self)
            raise Killed
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", dying)
    monkeypatch.setattr(Path, "replace", dying)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    new = a_cube(height=9)
    with contextlib.suppress(Killed):
        save(new, path, overwrite=True)
    monkeypatch.undo()
    assert not path.exists()
    with pytest.raises(OutputExistsError):
        save(a_cube(height=7), path)
    assert path.exists()
    assert np.array_equal(load(path).values, new.values)


ANOTHER = """
import os, sys
from pathlib import Path
from prismask.scenes.atomic import write_beside
with write_beside(Path(sys.argv[1])) as part:
    part.write_text("half")
    print(part, flush=True)
    sys.stdin.readline()
    os._exit(9)
"""


def test_part_files_of_a_killed_run_are_removed_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ANOTHER, str(tmp_path / "out.bin")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        stranger = tmp_path / f".out.bin.ffff-1-00000000{PART_SUFFIX}"
        stranger.touch()
        with write_beside(tmp_path / "first.bin") as part:
            part.write_text("whole")
        assert left.exists(), "its process lives"
        other.communicate("die\n")
    with write_beside(tmp_path / "second.bin") as part:
        part.write_text("whole")
    assert left.exists(), "once a run is enough"
    atomic.swept.clear()
    with write_beside(tmp_path / "third.bin") as part:
        part.write_text("whole")
    assert not left.exists()
    assert stranger.exists(), "another computer's may still be written"


def test_a_header_that_appears_meanwhile_takes_the_data_back(tmp_path: Path) -> None:
    data, header = tmp_path / "x.img", tmp_path / "x.hdr"

    def work() -> None:
        with write_together([data, header]) as parts:
            for part in parts:
                part.write_text("ours")
            header.write_text("theirs")

    with pytest.raises(OutputExistsError):
        work()
    assert names(tmp_path) == {"x.hdr"}
    assert header.read_text() == "theirs"


def test_leftovers_are_not_taken_for_data(tmp_path: Path) -> None:
    path = write(a_cube(), tmp_path, "x", ".nc", None)
    leftover = tmp_path / f".x.nc.0123abcd{PART_SUFFIX}"
    path.rename(leftover)
    with pytest.raises(FormatError, match="not complete: delete it"):
        load(leftover)
    with pytest.raises(FormatError, match="previous version: rename it back"):
        load(leftover.with_name(f".x.nc.0123abcd{OLD_SUFFIX}"))
    assert atomic.kept_from_swap(path) == []
