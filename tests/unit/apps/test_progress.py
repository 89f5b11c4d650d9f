"""Progress: lines in a log, bars on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from prismask.apps.cli import terminal as commands
from prismask.apps.cli.terminal import reporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that is put forward by hand."""

    now = 100.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def test_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SECONDS_BETWEEN_LINES", 0.0)
    with reporter() as report:
        step = report("solving")
        for done in (1, 2, 3):
            step(done, 3, {})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "solving …"
    assert [line[:16] for line in err.splitlines()[1:]] == ["solving: 1 of 3 ", "solving: 2 of 3 "]
    assert "\x1b" not in err


def test_a_stage_inside_has_its_own_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SECONDS_BETWEEN_LINES", 0.0)
    with reporter() as report:
        step = report("solving")
        step(1, 3, {"stage": "aligning"})
        step(1, 3, {})
    assert [line[:15] for line in capsys.readouterr().err.splitlines()[1:]] == [
        "aligning: 1 of ",
        "solving: 1 of 3",
    ]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with reporter() as report:
        report("solving")(1, 2, {"stage": "aligning"})
    assert "aligning" in terminal.getvalue()


def test_a_log_is_not_flooded(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter() as report:
        step = report("solving")
        for done in range(1000):
            step(done, 1000, {})
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with reporter() as report:
        report("first")(1, 2, {})
        report("second")
    shown = terminal.getvalue()
    assert "first" in shown
    assert "second" in shown
    assert "100%" in shown


def test_what_is_left_is_told_from_the_first_stage_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with reporter({"reading": 2.0, "solving": 4.0, "writing": 2.0}) as report:
        report("reading")
        clock.now += 6  # three times the usual
        report("solving")
        clock.now += 12
        report("writing")
        report("something else")
    first, second, third, other = capsys.readouterr().err.splitlines()
    assert first == "reading (about 8 s left) …"
    assert second == "solving (about 12 s left) …"
    assert third == "writing (about 5 s left) …"
    assert other == "something else …"


def test_a_step_tells_what_is_left_of_its_own_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with reporter() as report:
        step = report("solving")
        for done in (1, 2):
            clock.now += 60
            step(done, 4, {"stage": "aligning"})
        clock.now += 10
        step(1, 3, {})
    assert capsys.readouterr().err.splitlines()[1:] == [
        "aligning: 1 of 4 (60 s, about 3 min left)",
        "aligning: 2 of 4 (2 min, about 2 min left)",
        "solving: 1 of 3 (10 s, about 20 s left)",
    ]


def test_a_slow_first_step_of_many_promises_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with reporter() as report:
        step = report("searching")
        for done, seconds in ((1, 10), (11, 20)):
            clock.now += seconds
            step(done, 101, {})
    assert capsys.readouterr().err.splitlines()[1:] == [
        "searching: 1 of 101 (10 s)",
        "searching: 11 of 101 (30 s, about 3 min left)",
    ]
