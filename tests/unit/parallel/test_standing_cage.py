"""A process that stays: it keeps what it has, is replaced when it must be, and ends with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_cage import is_alive, until

from prismask.errors import ShapeError
from prismask.parallel.cage import (
    CancelledError,
    CrashError,
    Limits,
    MemoryLimitError,
    StandingCage,
    TaskFailedError,
    TimeLimitError,
)

USUAL = Limits(seconds=600, memory_bytes=2**30)


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[StandingCage]:
    cage = StandingCage(tmp_path / "kept")
    yield cage
    cage.close()


def call(cage: StandingCage, name: str, *arguments: Any, limits: Limits = USUAL) -> Any:
    return cage.call(f"caged_tasks:{name}", arguments, limits)


def test_it_keeps_what_it_has_prepared(standing: StandingCage) -> None:
    assert not standing.is_ready
    assert [call(standing, "remember_here") for _ in range(3)] == [1, 2, 3]
    assert standing.is_ready


def test_how_far_a_task_is(standing: StandingCage) -> None:
    seen: list[tuple[int, int]] = []
    facts = standing.call(
        "caged_tasks:count_up", [3], USUAL, lambda done, total: seen.append((done, total))
    )
    assert facts == "counted"
    assert seen[0] == (1, 3)
    assert seen[-1] == (3, 3)


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        ("refuse_here", ShapeError, "it is 3×4."),
        ("stumble_here", TaskFailedError, "KeyError: 'missing'"),
    ],
)
def test_an_error_is_told_and_the_process_stays(
    standing: StandingCage, task: str, error: type, message: str
) -> None:
    call(standing, "remember_here")
    with pytest.raises(error, match=message) as caught:
        call(standing, task)
    assert error is ShapeError or any("caged_tasks.py" in note for note in caught.value.__notes__)
    assert call(standing, "remember_here") == 2


def test_memory_is_that_of_the_task(standing: StandingCage) -> None:
    for kind in ("numpy", "torch"):
        with pytest.raises(MemoryLimitError):
            call(standing, "take", kind, 2**31)
        more = Limits(USUAL.seconds, 3 * 2**30)
        assert call(standing, "take", kind, 2**31, limits=more) == 2**31
        assert call(standing, "take", kind, 2**28) == 2**28


def test_what_the_process_holds_already_is_no_part_of_the_limit(standing: StandingCage) -> None:
    assert call(standing, "take", "numpy", int(0.95 * 2**30)) == int(0.95 * 2**30)


def test_one_that_hangs_or_dies_is_replaced(standing: StandingCage) -> None:
    with pytest.raises(TimeLimitError, match="after 1 s, the time limit"):
        call(standing, "sleep_here", 60, limits=Limits(1, 2**30))
    assert not standing.is_ready
    with pytest.raises(CrashError):
        call(standing, "die_here")
    assert call(standing, "remember_here") == 1


def test_one_that_somebody_ended_meanwhile_is_replaced(standing: StandingCage) -> None:
    assert call(standing, "remember_here") == 1
    inside = call(standing, "number_here")
    os.kill(inside, signal.SIGKILL)
    until(lambda: not is_alive(inside))
    assert call(standing, "remember_here") == 1


def test_calling_a_task_off(standing: StandingCage) -> None:
    begun = time.monotonic()
    with pytest.raises(CancelledError):
        standing.call(
            "caged_tasks:sleep_here", [600], USUAL, None, lambda: time.monotonic() > begun + 0.5
        )
    assert time.monotonic() - begun < 60


def test_closing_ends_a_task_and_what_comes_after_it(standing: StandingCage) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            call(standing, "sleep_here", 600)
        except Exception as problem:
            errors.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    standing.close()
    thread.join(60)
    assert [type(one) for one in errors] == [CancelledError]
    with pytest.raises(CancelledError):
        call(standing, "remember_here")


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from prismask.parallel.cage import Limits
from prismask.parallel.cage import StandingCage
cage = StandingCage(Path({folder!r}))
print(cage._cage.process.pid, flush=True)
if {busy}:
    cage.call("caged_tasks:sleep_here", [600], Limits(600, 2**30))
else:
    input()
"""


@pytest.mark.parametrize("busy", [True, False])
def test_it_ends_with_its_caller_and_removes_the_folder(tmp_path: Path, busy: bool) -> None:
    folder = tmp_path / "kept"
    (folder / "job").mkdir(parents=True)
    code = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(folder), busy=busy)
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdin is not None
    inside = int(program.stdout.readline())
    time.sleep(0.5)
    os.kill(program.pid, signal.SIGKILL)
    program.wait(60)
    until(lambda: not folder.exists() and not is_alive(inside))
    program.stdout.close()
    program.stdin.close()
