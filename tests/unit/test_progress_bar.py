"""Progress in a notebook, on a terminal and in a log."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from prismask import progress


def test_plain_lines_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    step = progress.progress_bar("thinking")
    for done in range(1, 101):
        step(done, 100, {})
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "thinking: 100 of 100 (0 s)"
    assert len(told) == 2  # the first and the last


def test_one_line_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    step = progress.progress_bar("thinking")
    step(1, 2, {})
    step(2, 2, {"stage": "aligning"})
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "aligning [##############################] 2 of 2" in told


def test_an_element_of_the_page_in_a_notebook(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    written: list[str] = []

    class Handle:
        def update(self, what: Any) -> None:
            shown.append(what._repr_html_())
            written.append(repr(what))

    def display(what: Any, display_id: bool) -> Handle:
        assert display_id
        shown.append(what._repr_html_())
        return Handle()

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[arg-type]
    step = progress.progress_bar("a < b")
    step(1, 4, {})
    step(4, 4, {})
    begun = "<div><label>a &lt; b <progress></progress></label></div>"
    assert shown[0] == begun, "before the first step"
    assert 'value="1" max="4"' in shown[1]
    assert "0 s left" in shown[1]
    assert 'value="4" max="4"' in shown[2]
    assert written[1] == "a < b: 4 of 4, 0 s", "where a notebook is turned into text"
    step(1, 1, {"stage": "c"})
    assert 'value="4" max="4"' in shown[3], "a stage that has ended stays"
    assert 'c <progress value="1" max="1">' in shown[3]
    assert written[2].splitlines() == ["a < b: 4 of 4, 0 s", "c: 1 of 1, 0 s"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (89.4, "89 s"), (90, "2 min"), (600, "10 min"), (5399, "90 min"),
     (5400, "1.5 h"), (36000, "10.0 h")],
)  # fmt: skip
def test_durations_in_words(seconds: float, said: str) -> None:
    assert progress.duration(seconds) == said
