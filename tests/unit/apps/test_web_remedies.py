"""Findings in the words of the page, with what can be done about them and how long it takes."""

from __future__ import annotations

import ast
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import prismask
from prismask.apps.web.jobs import Job, JobQueue
from prismask.apps.web.limits import Limits
from prismask.apps.web.remedies import (
    COLD_SECONDS,
    Estimates,
    Fix,
    changed_order,
    fixes_in,
    notices,
    page_words,
)
from prismask.apps.web.results import Result, ResultStore
from prismask.apps.web.work import Order
from prismask.scenes.records import Cube, Mask, Measurement

DOUBT = "warning: the snapshot contradicts its mask. --align finds out what the mask is like."
HARD = "note: the scene is hard (--adapt 60 learns it). --align shows which."


def result_with(*findings: str, order: Order | None = None) -> Result:
    cube = Cube(np.ones((2, 3, 4), np.float32), attrs={"findings": list(findings)})
    return Result("x", cube, snapshot=Measurement(np.ones((3, 6))), mask=Mask(np.ones((3, 4))),
                  order=order or Order())  # fmt: skip


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("Give --bands and --step otherwise.", "Give “Bands” and “Dispersion step” otherwise."),
        ("give --axis height.", "give “Dispersion axis” height."),
        ("`prismask calibrate --level 0.5` fits it", "`prismask calibrate --level 0.5` fits it"),
        ("--method gap-tv; --methods stays", "the method gap-tv; --methods stays"),
        ("a--align and --align-more stay", "a--align and --align-more stay"),
    ],
)
def test_flags_become_fields(told: str, shown: str) -> None:
    assert page_words(told) == shown


def test_warnings_come_first_and_each_remedy_once() -> None:
    found = notices(result_with(HARD, DOUBT), Estimates())
    assert [one.level for one in found] == ["warning", "note"]
    assert [[r.name for r in one.remedies] for one in found] == [["align"], ["adapt"]]
    assert "“Align the mask”" in found[0].text
    assert not found[0].text.startswith("warning")
    assert all(r.seconds > 1 for one in found for r in one.remedies)


def test_trust_is_told_once_with_its_reason() -> None:
    doubted = result_with(HARD, DOUBT)
    because = {"trust": 0.004, "trust_because": "the snapshot contradicts its mask."}
    doubted.cube.attrs.update(because, trust_grade="poor")
    first, second = notices(doubted, Estimates())
    assert first.text.startswith("Trust: poor (0.00 of 1). The snapshot contradicts its mask. “Al")
    assert [one.name for one in first.remedies] == ["align"]
    assert "hard" in second.text

    sound = result_with(HARD)
    sound.cube.attrs.update(trust=0.9, trust_grade="good", trust_because="as for scenes of the fit")
    assert [(one.level, one.text[:30]) for one in notices(sound, None)] == [
        ("note", "Trust: good (0.90 of 1). As fo"),
        ("note", "the scene is hard (“Adapt to t"),
    ]


def test_what_was_done_or_cannot_be_done_is_not_offered() -> None:
    names = [
        [r.name for one in notices(result, Estimates()) for r in one.remedies]
        for result in (
            result_with(DOUBT, order=Order(align=True)),
            result_with(HARD, order=Order(method="gap-tv")),
            result_with("note: compare with --method gap-tv", order=Order(method="gap-tv")),
            Result("file", Cube(np.ones((1, 2, 2), np.float32), attrs={"findings": [DOUBT]})),
        )
    ]
    assert names == [[], ["align"], [], []]
    assert not any(one.remedies for one in notices(result_with(DOUBT), None))


def test_a_remedy_changes_the_order_and_nothing_else() -> None:
    order = Order(samples=8, level=0.8, model=Path("m"))
    assert changed_order(order, "align") == Order(samples=8, level=0.8, model=Path("m"), align=True)
    assert changed_order(order, "adapt").adapt == 60
    assert changed_order(order, "dark").dark == 0
    solver = changed_order(order, "solver")
    assert (solver.method, solver.model, solver.samples, solver.level) == ("gap-tv", None, 0, 0.8)
    for remedy in ("align", "adapt", "dark", "solver"):
        changed_order(order, remedy).options()  # type: ignore[arg-type]


def test_times_grow_with_the_work_and_learn() -> None:
    guess, plain = Estimates(), Order()
    first = guess.seconds(plain, 1_000_000)
    assert guess.seconds(plain, 2_000_000) == pytest.approx(2 * first)
    assert guess.seconds(Order(samples=16), 1_000_000) == pytest.approx(16 * first)
    assert guess.seconds(plain, 1_000_000, is_cold=True) == pytest.approx(first + COLD_SECONDS)
    guess.learn(plain, 1_000_000, 10.0)
    assert guess.seconds(plain, 1_000_000) == pytest.approx(10.0)
    guess.learn(plain, 1_000_000, 20.0)
    assert guess.seconds(plain, 1_000_000) == pytest.approx(15.0)
    aligned = Order(align=True)
    guess.learn(aligned, 1_000_000, 45.0)
    assert 15 < guess.seconds(aligned, 1_000_000) < 15 + 90


def test_aligning_grows_less_than_the_frame() -> None:
    guess, aligned = Estimates(), Order(align=True)

    def extra(values: int) -> float:
        return guess.seconds(aligned, values) - guess.seconds(Order(), values)

    assert 2 * extra(1_000_000) < extra(4_000_000) < 4 * extra(1_000_000)
    assert extra(10) == pytest.approx(extra(100_000)), "a small one takes its time, too"
    assert guess.extra_at(4_000_000)["align"] == pytest.approx(extra(4_000_000))
    for _ in range(20):
        guess.learn(aligned, 9_000_000, guess.seconds(Order(), 9_000_000) + 30.0)
    assert extra(9_000_000) == pytest.approx(30.0, rel=0.01)
    assert extra(1_000_000) == pytest.approx(30.0 / 9**0.75, rel=0.01)


def test_what_mends_a_job_is_read_from_its_error() -> None:
    told = (
        "the wrong way round. Give --turn-mask flipped-top-bottom if it is the mask's, "
        "--turn-snapshot turned-90-clockwise if it is the snapshot's. Use --no-check-mask to "
        "continue. --crop-mask 0,2,64,60 (TOP,LEFT,HEIGHT,WIDTH), or --turn-mask flipped-top-bottom"
    )
    assert fixes_in(told) == (
        Fix("turn_mask", "flipped-top-bottom"),
        Fix("turn_snapshot", "turned-90-clockwise"),
        Fix("crop_mask", "0,2,64,60"),
    )
    assert fixes_in("give --bits 12; --turn-mask.") == ()


def test_time_left_is_known_from_the_first_second(tmp_path: Path) -> None:
    job = Job("x", tmp_path, Order(), expected=20.0)
    assert job.seconds_left == pytest.approx(20.0)
    job.started = time.monotonic() - 5
    assert job.seconds_left == pytest.approx(15.0, abs=0.1)
    job.report(1, 10)
    job.stage_started = time.monotonic() - 9
    job.report(9, 10)
    assert job.seconds_left == pytest.approx(0.9 * 1.0 + 0.1 * 15.0, abs=0.1), "by its progress"
    job.ended = time.monotonic()
    assert job.seconds_left == 0
    aligned = Job("x", tmp_path, Order(align=True), expected=20.0)
    aligned.started = time.monotonic() - 5
    aligned.report(1, 10)
    aligned.stage_started = time.monotonic() - 9
    assert aligned.seconds_left == pytest.approx(0.1 * 81 + 0.9 * 15, abs=0.2), "a slow first step"
    aligned.report(9, 10)
    assert aligned.seconds_left == pytest.approx(15.0, abs=0.2), "the cube is still to be made"


def test_what_adapting_takes_is_learned_by_the_step() -> None:
    guess, plain = Estimates(), Order()
    guess.learn(plain, 1_000_000, 10.0)
    for adapt, more in ((10, 30.0), (20, 60.0), (60, 180.0)):
        guess.extra["adapt"] = 3.0
        guess.learn(replace(plain, adapt=adapt), 1_000_000, guess.seconds(plain, 1_000_000) + more)
        assert guess.extra["adapt"] == pytest.approx(3.0)
    both = replace(plain, adapt=10, align=True)
    guess.learn(both, 1_000_000, 1e6)
    assert guess.extra["adapt"] == pytest.approx(3.0), "nobody knows which of the two took so long"


def test_who_waits_is_told_the_time_of_all_before(tmp_path: Path) -> None:
    queue = JobQueue(Limits(), ResultStore(tmp_path, 10**6), tmp_path)
    queue.close()  # nobody works any more, so what is put there stays as it is
    running, first, second = (Job("x", tmp_path, Order(), expected=s) for s in (20.0, 5.0, 2.0))
    running.state, running.started = "running", time.monotonic() - 12
    queue._jobs = {job.id: job for job in (running, first, second)}
    queue._waiting.extend((first, second))
    times = [queue.seconds_left(job) for job in (running, first, second)]
    assert times == pytest.approx([8.0, 13.0, 15.0], abs=0.2)


def test_a_variable_cannot_be_named_on_the_page() -> None:
    text = "a.npz: several. Name one with --variable NAME (for --mask: --mask-variable NAME)."
    assert page_words(text) == "a.npz: several. Send a file that holds it alone."


FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]+[a-z]")
COMMANDS_ONLY = {
    "--turn",
    "--mask",
    "--variable",
    "--mask-variable",
    "--overwrite",
    "--resume",
    "--method",
}


def test_whatever_a_reconstruction_says_has_a_field_on_the_page() -> None:
    """Messages of everything that a job runs, read from the code."""
    folder = Path(prismask.__file__).parent
    for room in ("inference", "scenes/conversion.py", "optics/camera.py"):
        files = folder.glob(f"{room}/**/*.py") if "." not in room else [folder / room]
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value
                    if "intervals" in file.parts or not text.strip() or "`" in text:
                        continue
                    left = set(FLAG.findall(page_words(text))) - COMMANDS_ONLY
                    assert not left, (file.name, text)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("Give --turn-mask transposed if", "Give “Turn the mask”: transposed if"),
        ("snapshot: --crop-mask 1,0,9,9 (TOP", "snapshot: “Part of the mask”: 1,0,9,9 (TOP"),
        ("Use --no-check-mask to continue", "Untick “Look for the mask first” to continue"),
        ("--bits 12 makes 4095 full", "“Sensor bits” 12 makes 4095 full"),
        ("--bad-pixels none keeps them.", "Untick “Leave out hot and dead pixels” to keep them."),
    ],
)
def test_options_of_raw_frames_are_fields_too(told: str, shown: str) -> None:
    assert page_words(told) == shown
