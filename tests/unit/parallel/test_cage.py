"""The cage: whatever a task does, the caller gets an answer or an error, and nothing stays."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismask.errors import ShapeError
from prismask.parallel import cage
from prismask.parallel.cage import (
    CrashError,
    Limits,
    MemoryLimitError,
    TaskFailedError,
    TimeLimitError,
    run_caged,
)

# Longer than anything takes that ends by itself, on a machine that does ten other things.
USUAL = Limits(seconds=60, memory_bytes=2**29)


def run(name: str, *arguments: Any, limits: Limits = USUAL) -> tuple[Any, list[Any]]:
    return run_caged(f"caged_tasks:{name}", arguments, limits)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        # A zombie has ended, whoever still has to be told.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_written(started: Path) -> bool:
    """Whether a sleeper and its cage have told their numbers."""
    return started.exists() and len(started.read_text().split()) == 2


def test_facts_and_arrays_come_back() -> None:
    facts, (doubled,) = run("double", [1.5, 2.0])
    assert facts == {"sum": 3.5}
    assert doubled.tolist() == [3.0, 4.0]
    doubled[0] = 0  # it is ours


def test_arrays_keep_type_shape_and_order() -> None:
    cube = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    _, (same, turned, part, scalar, empty) = run("arrays")
    for found, expected in ((same, cube), (turned, cube.T), (part, cube[:, ::2])):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert turned.flags.f_contiguous
    assert (scalar.shape, float(scalar)) == ((), 1.5)
    assert empty.shape == (0, 3)


@pytest.mark.parametrize(
    ("task", "limits", "error", "message"),
    [
        ("refuse", USUAL, ShapeError, "it is 3×4."),
        ("stumble", USUAL, TaskFailedError, "KeyError: 'missing'"),
        ("ramble", USUAL, TaskFailedError, "not JSON serializable"),
        ("crash", USUAL, CrashError, "SIGSEGV"),
        ("vanish", USUAL, CrashError, "without an answer"),
        ("hang", Limits(0.3, 2**29), TimeLimitError, "0.3 s"),
    ],
)
def test_what_goes_wrong_is_told(task: str, limits: Limits, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        run(task, limits=limits)
    assert run("double", [1.0])[0] == {"sum": 1.0}


def test_the_memory_limit() -> None:
    small = Limits(seconds=30, memory_bytes=10**8)
    with pytest.raises(MemoryLimitError):
        run("large", 2 * 10**8, limits=small)
    _, (array,) = run("large", 2 * 10**8, limits=Limits(seconds=30, memory_bytes=10**9))
    assert array.nbytes == 2 * 10**8


def test_what_the_process_holds_already_is_no_part_of_the_limit() -> None:
    _, (array,) = run("large", 27 * 10**7, limits=Limits(seconds=60, memory_bytes=3 * 10**8))
    assert array.nbytes == 27 * 10**7


def test_from_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert run("double", [1.0])[0] == {"sum": 1.0}


def test_no_task_sees_what_another_left() -> None:
    assert [run("remember")[0] for _ in range(3)] == [1, 1, 1]


def test_relative_paths_start_where_the_caller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        run("sleep", 0, "started")
        assert (tmp_path / name / "started").exists()


def test_messages_are_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run("warn")
    assert [(r.name, r.getMessage()) for r in caplog.records] == [("prismask.somewhere", "odd: 3")]


def test_threads_do_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    def slow() -> None:
        with pytest.raises(CrashError):
            run("sleep", 600, str(tmp_path / "started"), limits=Limits(600, 2**29))

    thread = threading.Thread(target=slow)
    thread.start()
    until(lambda: is_written(tmp_path / "started"))
    with ThreadPoolExecutor(4) as pool:
        sums = [facts["sum"] for facts, _ in pool.map(lambda n: run("double", [n]), range(12))]
    assert sums == list(range(12))
    assert thread.is_alive()
    os.kill(int((tmp_path / "started").read_text().split()[0]), signal.SIGKILL)
    thread.join()


def test_a_cage_that_was_killed_is_replaced() -> None:
    run("double", [1.0])
    (idle,) = {one.process.pid for one in cage._idle[-1:]}
    os.kill(idle, signal.SIGKILL)
    until(lambda: not is_alive(idle))
    assert run("double", [1.0])[0] == {"sum": 1.0}


def _in_a_child(connection: Any) -> None:
    connection.send(run("double", [4.0])[0]["sum"])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_from_workers_however_they_are_started(method: str) -> None:
    run("double", [1.0])  # so that there is something to inherit
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    worker = context.Process(target=_in_a_child, args=(theirs,), daemon=True)
    worker.start()
    assert ours.poll(30)
    assert ours.recv() == 4.0
    worker.join()
    assert worker.exitcode == 0
    assert run("double", [1.0])[0] == {"sum": 1.0}  # the parent's is still good


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from prismask.parallel.cage import Limits, run_caged
run_caged("caged_tasks:sleep", [{seconds}, {started!r}], Limits(600, 2**29))
"""


def start(tmp_path: Path, seconds: float) -> tuple[subprocess.Popen[str], list[int]]:
    """A program in the middle of a task, and the processes of its cage."""
    started = tmp_path / "started"
    tests = str(Path(__file__).parent)
    code = SCRIPT.format(tests=tests, seconds=seconds, started=str(started))
    program = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A shell that runs the tests in the background has it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until(lambda: is_written(started))
    return program, [int(word) for word in started.read_text().split()]


def test_a_script_without_a_main_guard_leaves_nothing(tmp_path: Path) -> None:
    program, processes = start(tmp_path, 0.1)
    _, said = program.communicate(timeout=120)
    assert (program.returncode, said) == (0, "")
    until(lambda: not any(map(is_alive, processes)))


def test_without_the_usual_streams(tmp_path: Path) -> None:
    code = SCRIPT.replace(
        "import sys\n",
        "import os, sys\nfor stream in (0, 1, 2):\n    os.close(stream)\n", 1
    )  # fmt: skip
    started = tmp_path / "started"
    tests = str(Path(__file__).parent)
    code = code.format(tests=tests, seconds=0, started=str(started))
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
    assert started.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_or_interrupted_it_leaves_nothing(tmp_path: Path, number: int) -> None:
    program, processes = start(tmp_path, 600)
    assert all(map(is_alive, processes))
    os.killpg(program.pid, number)  # as Ctrl-C does: to the whole group
    _, said = program.communicate(timeout=120)
    assert number == signal.SIGKILL or "KeyboardInterrupt" in said
    until(lambda: not any(map(is_alive, processes)))


def test_orders_are_plain_data() -> None:
    with pytest.raises(TypeError):
        run("double", object())
    assert json.dumps(run("double", [1.0])[0]) == '{"sum": 1.0}'
