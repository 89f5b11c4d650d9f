"""A few tasks on their way, and what becomes of them."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from prismask.errors import ConfigError, ShapeError
from prismask.parallel.workers import Outcome, Workers, in_turn, run_tasks


def finished(result: int | Exception) -> Future[int]:
    future: Future[int] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def test_good_ones_come_before_an_error_that_may_end_the_run() -> None:
    futures = iter([finished(ShapeError("no")), finished(7), finished(ShapeError("no"))])
    outcomes = list(in_turn(lambda task: next(futures), "abc", lambda: 3))
    assert [(one.task, one.result) for one in outcomes] == [("b", 7), ("a", None), ("c", None)]
    with pytest.raises(ShapeError, match="no"):
        outcomes[1].get()


def test_no_more_are_handed_out_than_asked_for() -> None:
    handed: list[Future[int]] = []
    windows = iter([2, 2, 3, 3])

    def submit(task: int) -> Future[int]:
        handed.append(Future())
        if len(handed) == 2:
            handed[0].set_result(0)
        return handed[-1]

    outcomes = in_turn(submit, range(10), lambda: next(windows))
    assert next(outcomes).task == 0
    assert len(handed) == 2
    handed[1].set_result(1)
    assert next(outcomes).task == 1
    assert len(handed) == 4, "the window grew by one"
    outcomes.close()
    assert [future.cancelled() for future in handed] == [False, False, True, True]


def test_a_cancelled_task_is_told() -> None:
    future: Future[int] = Future()
    future.cancel()
    future.set_running_or_notify_cancel()
    (outcome,) = in_turn(lambda task: future, ["x"], lambda: 1)
    assert isinstance(outcome.error, CancelledError)


def test_in_this_process_tasks_are_taken_one_by_one() -> None:
    taken: list[int] = []

    def tasks() -> Any:
        for task in (1, 0, 2):
            taken.append(task)
            yield task

    outcomes = run_tasks(tasks(), lambda number: lambda task: 6 // task, Workers())
    assert taken == []
    assert next(outcomes).get() == 6
    assert taken == [1]
    second, third = outcomes
    assert isinstance(second.error, ZeroDivisionError)
    assert third.get() == 3


def test_threads_are_given_back() -> None:
    import torch

    before = torch.get_num_threads()
    counted = run_tasks(
        [0], lambda number: lambda task: torch.get_num_threads(), Workers(threads=3)
    )
    assert [one.result for one in counted] == [3]
    assert torch.get_num_threads() == before


def test_an_interrupt_is_nobody_s_result() -> None:
    def interrupted(task: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_tasks([0], lambda number: interrupted, Workers()))


@pytest.mark.parametrize("wrong", [{"count": 0}, {"threads": 0}])
def test_no_workers(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Workers(**wrong)


def test_none_is_a_result() -> None:
    empty: Outcome[str, None] = Outcome("x")
    assert empty.get() is None


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [Workers(count).share for count in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert Workers(2, threads=3).share == 3
