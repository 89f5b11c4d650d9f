"""Writes that end for real: killed processes and disks that take no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from prismask.errors import FormatError
from prismask.scenes.formats.files import load, save
from prismask.scenes.records import Cube

FORMATS = [
    (".nc", None), (".mat", "matlab"), (".mat", "matlab7.3"), (".npz", None), (".npy", None),
    (".tif", None), (".hdr", None),
]  # fmt: skip
IDS = [form or extension for extension, form in FORMATS]
OLD = Cube(np.random.default_rng(0).random((2, 5, 4), dtype=np.float32))

SAVE = """
import os, resource, sys, time
import numpy as np
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube
path, form, mode = sys.argv[1], sys.argv[2] or None, sys.argv[3]
new = Cube(np.random.default_rng(1).random((10, 64, 64), dtype=np.float32))
def wait(handle):
    print("ready", flush=True)
    time.sleep(60)
if mode == "kill":
    os.fsync = wait   # everything is written by now, nothing renamed
else:
    save(Cube(np.zeros((1, 1, 1))), path + ".warm-up" + os.path.splitext(path)[1], format=form)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
save(new, path, overwrite=True, format=form)
"""


def old_file(folder: Path, extension: str, form: str | None) -> Path:
    path = folder / f"out{extension}"
    save(OLD, path, format=form)
    return path


def start(path: Path, form: str | None, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SAVE, str(path), form or "", mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("extension", "form"), FORMATS, ids=IDS)
def test_kill_before_the_rename(tmp_path: Path, extension: str, form: str | None) -> None:
    path = old_file(tmp_path, extension, form)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    process = start(path, form, "kill")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    assert np.array_equal(load(path, "cube").values, OLD.values)
    leftovers = [p for p in tmp_path.iterdir() if p.name not in before]
    assert leftovers
    for leftover in leftovers:
        assert leftover.name.startswith(".")
        assert leftover.name.endswith(".prismask-part")
        with pytest.raises(FormatError, match="interrupted"):
            load(leftover)
    # The next write is not disturbed by them.
    save(OLD, path, overwrite=True, format=form)
    assert np.array_equal(load(path, "cube").values, OLD.values)


def test_kill_somewhere_in_the_middle(tmp_path: Path) -> None:
    """A large file, killed as soon as its first bytes appear: whenever that is, no harm is done."""
    path = old_file(tmp_path, ".npy", None)
    code = (
        "import sys, numpy as np\n"
        "from prismask.scenes.formats.files import save\n"
        "from prismask.scenes.records import Cube\n"
        "big = Cube(np.zeros((16, 1024, 1024), np.float32))\n"
        "while True: save(big, sys.argv[1], overwrite=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        sizes = [p.stat().st_size for p in tmp_path.glob(".*.prismask-part") if p.exists()]
        if any(size > 2**20 for size in sizes):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert load(path, "cube").values.shape in (OLD.values.shape, (16, 1024, 1024))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="file size limits are a POSIX thing")
@pytest.mark.parametrize(("extension", "form"), FORMATS, ids=IDS)
def test_a_disk_that_takes_no_more(tmp_path: Path, extension: str, form: str | None) -> None:
    path = old_file(tmp_path, extension, form)
    process = start(path, form, "full")
    _, problem = process.communicate()
    assert process.returncode == 1, problem  # an exception, not a crash
    assert "WriteFailedError" in problem
    assert np.array_equal(load(path, "cube").values, OLD.values)
    assert not [p for p in tmp_path.iterdir() if "prismask" in p.name]
