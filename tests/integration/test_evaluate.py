"""Evaluation as a whole: planted truths come back, overlaps are refused, nothing is lost."""

from __future__ import annotations

import csv
import math
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tiny_evaluation import SCENES, Slow, make_weights
from torch import Tensor

import prismask
from prismask.apps.cli import app as cli
from prismask.errors import (
    ConfigError,
    DataMissingError,
    FormatError,
    OutputExistsError,
    OverlapError,
    ShapeError,
)
from prismask.evaluation.run.contenders import build_contender, read_entries
from prismask.evaluation.run.runner import evaluate
from prismask.evaluation.run.runs import RUN
from prismask.evaluation.tables.summaries import COLUMNS, read_table, write_parquet
from prismask.optics.camera import CASSI, CameraDescription
from prismask.scenes.datasets import load_scenes
from prismask.scenes.defaults import WAVELENGTHS_NM

pytestmark = pytest.mark.usefixtures("one_thread")

HERE = Path(__file__).parent
SMALL = "net=srn:width=8,blocks=1"
GROUPS = ("test_same_hardware", "test_other_hardware")


def table(folder: Path, leave_out: tuple[str, ...] = ("seconds",)) -> list[dict[str, str]]:
    """The raw text of scores.csv without what differs between equal runs."""
    with (folder / "scores.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in leave_out} for row in rows]


class Planted:
    """Gives the truth plus an error that makes PSNR "paper" a known function of the mask."""

    def __init__(self, tiny: Path, more: float = 0.0) -> None:
        cubes = load_scenes(tiny, "test")
        self.truth = torch.tensor(np.stack([cube.values for cube in cubes.values()]))
        self.more = more

    def decibels(self, mask: Tensor) -> float:
        scatter = 40.0 * float(mask.mean() - 0.5)
        return 25.0 + scatter + self.more * (1 + math.sin(1e4 * scatter) / 3)

    def __call__(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        peak = self.truth.amax((1, 2, 3), keepdim=True)
        step = torch.arange(len(self.truth)).reshape(-1, 1, 1, 1)  # a decibel less for each scene
        return self.truth + peak * 10 ** (-(self.decibels(mask) - step) / 20)


def test_a_planted_mean_and_std_come_back(tiny: Path) -> None:
    model = Planted(tiny)
    found = evaluate({"p": model}, data=tiny, trials=12, timing=False, metrics=("psnr_paper",))
    for name, group in found.plan.work.groups.items():
        planted = np.array([model.decibels(group.mask(trial)) for trial in range(12)])
        average = found.summary.find("p", name, "psnr_paper")
        assert average.mean == pytest.approx(planted.mean() - 1, abs=1e-3)
        assert average.std == pytest.approx(planted.std(ddof=1), abs=1e-3)
        assert average.std > 0.05
        assert average.standard_error == pytest.approx(average.std / math.sqrt(12))
        third = found.summary.find("p", name, "psnr_paper", "scene03")
        assert third.mean == pytest.approx(planted.mean() - 2, abs=1e-3)
        assert third.std == pytest.approx(planted.std(ddof=1), abs=1e-3)


def test_a_planted_difference_is_found_although_masks_scatter(tiny: Path) -> None:
    models = {"better": Planted(tiny, 0.02), "worse": Planted(tiny)}
    found = evaluate(models, data=tiny, trials=12, timing=False, metrics=("psnr_paper",))
    group = found.plan.work.groups[GROUPS[0]]
    first, second = (
        [model.decibels(group.mask(trial)) for trial in range(12)] for model in models.values()
    )
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    row = next(r for r in found.summary.paired if r.scene == "average" and r.group == GROUPS[0])
    assert (row.first, row.second, row.trials) == ("better", "worse", 12)
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high), abs=1e-4)
    assert row.low > 0, "paired, the difference is beyond doubt"
    spread = found.summary.find("better", GROUPS[0], "psnr_paper").std
    assert spread > 10 * row.mean, "unpaired, it would drown"
    assert "better − worse" in found.markdown
    assert found.summary.same_measurements


def test_tables_record_and_python_result(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = prismask.evaluate([SMALL, "gap-tv:iterations=1"], data=tiny, out=out, trials=2)
    assert found.ok
    rows = list(found.rows())
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 2 * 2 * 2 * 3 * 9
    for group in GROUPS:
        values = [
            row["value"]
            for row in rows
            if (row["model"], row["group"], row["metric"]) == ("net", group, "psnr_paper")
        ]
        assert np.mean(values) == pytest.approx(found.mean("net", group))
    record = RUN.read(out)
    assert record["models"]["net"]["kind"] == "untrained"
    assert record["costs"]["net"]["parameters"] > 0
    assert record["same_measurements"] is True
    assert record["groups"][GROUPS[0]]["masks"]["masks"][1]["mask_id"] in {
        row["mask_id"] for row in rows
    }
    assert record["estimated_peaks"] is True
    for name in ("commit", "versions", "device_name", "seed", "conventions", "finished"):
        assert record[name] is not None
    text = (out / "summary.md").read_text(encoding="utf-8")
    assert "±3 %" in text
    assert "PSNR unit [dB] ↑ ‡" in text
    assert "PSNR paper [dB] ↑ ‡" not in text
    assert "untrained weights, seeded" in text
    summary = list(read_table(out / "summary.csv"))
    assert {row["scene"] for row in summary} == {*SCENES, "average"}
    assert len(list(read_table(out / "paired.csv"))) == 2 * 4 * 9
    in_memory = evaluate([SMALL, "gap-tv:iterations=1"], data=tiny, trials=2, timing=False)
    same = [{k: v for k, v in row.items() if k != "seconds"} for row in in_memory.rows()]
    assert same == [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_parquet_holds_the_same(tiny: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    evaluate({"p": Planted(tiny)}, data=tiny, out=tmp_path, trials=2, timing=False)
    written = write_parquet(tmp_path / "scores.csv")
    rows = parquet.read_table(written).to_pylist()
    assert rows == list(read_table(tmp_path / "scores.csv"))


# --- overlap -------------------------------------------------------------------------------------


def test_planted_overlap_is_refused_allowed_and_said(tiny: Path, tmp_path: Path) -> None:
    single = make_weights(tmp_path / "single.safetensors", tiny, "single")
    many = make_weights(tmp_path / "many.safetensors", tiny, "train")
    options: dict[str, Any] = {"data": tiny, "trials": 2, "timing": False, "metrics": ("sam",)}
    with pytest.raises(OverlapError, match="single on test_same_hardware"):
        evaluate([single, many], protocol="many-to-many", **options)
    found = evaluate([single, many], protocol="one-to-many", **options)
    assert list(found.plan.work.groups) == ["test_other_hardware"]
    assert "test_same_hardware was left out" in found.markdown
    marked = evaluate([single, many], allow_overlap=True, out=tmp_path / "run", **options)
    assert "single †" in marked.markdown
    assert "† single: **has seen these masks or scenes in training**" in marked.markdown
    assert "many †" not in marked.markdown
    verdicts = {(row["model"], row["group"]): row["overlap"] for row in marked.rows()}
    assert verdicts["single", "test_same_hardware"] == "overlap"
    assert verdicts["single", "test_other_hardware"] == ""
    assert verdicts["many", "test_same_hardware"] == ""


def test_one_to_one_is_for_the_very_mask(tiny: Path, tmp_path: Path) -> None:
    single = make_weights(tmp_path / "single.safetensors", tiny, "single")
    many = make_weights(tmp_path / "many.safetensors", tiny, "train")
    options: dict[str, Any] = {"data": tiny, "timing": False, "metrics": ("sam",)}
    found = evaluate([single, "gap-tv:iterations=1"], protocol="one-to-one", **options)
    assert len(found.plan.work.groups["single"]) == 1
    assert "trained on this very mask" in found.markdown
    # The second calibration of an aperture that was trained on is neither unseen nor the same.
    with pytest.raises(OverlapError, match="many on single"):
        evaluate([many], protocol="one-to-one", **options)
    with pytest.raises(OverlapError, match="single on single"):
        evaluate([single], protocol="many-to-many", groups=["single"], trials=1, **options)
    stranger = evaluate({"f": Planted(tiny)}, protocol="one-to-one", **options)
    assert "not known which masks" in stranger.markdown


# --- interruption --------------------------------------------------------------------------------


def test_interrupted_runs_go_on_and_compute_nothing_twice(tiny: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    options: dict[str, Any] = {"data": tiny, "trials": 4, "timing": False}
    whole = evaluate({"slow": Slow(calls, 0)}, out=tmp_path / "whole", **options)
    assert len(calls.read_text().splitlines()) == 8
    calls.unlink()

    def stop(done: int, total: int, info: Any) -> None:
        if done == 3:
            raise KeyboardInterrupt

    out = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        evaluate({"slow": Slow(calls, 0)}, out=out, progress=stop, **options)
    assert RUN.read(out)["finished"] is None
    with pytest.raises(OutputExistsError, match="resume=True"):
        evaluate({"slow": Slow(calls, 0)}, out=out, **options)
    with (out / "cells.jsonl").open("ab") as file:
        file.write(b'{"cell":{"model":"slow","gro')
    evaluate({"slow": Slow(calls, 0)}, out=out, resume=True, **options)
    assert len(calls.read_text().splitlines()) == 8
    assert table(out) == table(tmp_path / "whole")
    sessions = RUN.read(out)["sessions"]
    assert [session["cells"] for session in sessions] == [5]
    evaluate({"slow": Slow(calls, 0)}, out=out, resume=True, **options)
    assert len(calls.read_text().splitlines()) == 8
    assert table(out, ()) == table(out, ())
    assert whole.ok


def test_more_trials_and_models_join_a_run(tiny: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    slow = Slow(calls, 0)
    options: dict[str, Any] = {"data": tiny, "timing": False}
    evaluate({"slow": slow}, out=tmp_path / "run", trials=2, **options)
    more = {"slow": slow, "p": Planted(tiny)}
    evaluate(more, out=tmp_path / "run", trials=5, resume=True, **options)
    assert len(calls.read_text().splitlines()) == 2 * 5
    evaluate(more, out=tmp_path / "fresh", trials=5, **options)
    assert table(tmp_path / "run") == table(tmp_path / "fresh")


def test_another_run_is_not_mixed_in(tiny: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": tiny, "out": tmp_path, "trials": 1, "timing": False}
    evaluate([SMALL], metrics=("sam",), **options)
    with pytest.raises(ConfigError, match="started with metrics"):
        evaluate([SMALL], metrics=("rmse",), resume=True, **options)
    with pytest.raises(ConfigError, match="started with another 'net'"):
        evaluate(["net=srn:width=8,blocks=2"], metrics=("sam",), resume=True, **options)
    with pytest.raises(ConfigError, match="started with seed = 0, now it is 1"):
        evaluate([SMALL], metrics=("sam",), seed=1, resume=True, **options)
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(FormatError, match="not JSON"):
        evaluate([SMALL], metrics=("sam",), resume=True, **options)
    (tmp_path / "run.json").unlink()
    for resume in (False, True):
        with pytest.raises(OutputExistsError, match=r"no run\.json that says of what"):
            evaluate([SMALL], metrics=("sam",), noise=0.2, resume=resume, **options)


def test_a_label_means_the_same_in_all_sessions(tiny: Path, tmp_path: Path) -> None:
    """Also in one that did not name it, and for objects that differ in what they hold."""
    options: dict[str, Any] = {"data": tiny, "out": tmp_path, "trials": 1, "timing": False}
    planted = Planted(tiny)
    evaluate({"x": "gap-tv:iterations=1", "p": planted}, **options)
    evaluate("y=gap-tv:iterations=2", resume=True, **options)
    evaluate({"x": "gap-tv:iterations=1", "p": planted}, resume=True, **options)
    with pytest.raises(ConfigError, match="started with another 'x'"):
        evaluate("x=gap-tv:iterations=3", resume=True, **options)
    with pytest.raises(ConfigError, match="started with another 'p'"):
        evaluate({"p": Planted(tiny, more=1.0)}, resume=True, **options)
    layer, same, other = (torch.nn.Conv2d(1, 1, 1) for _ in range(3))
    same.load_state_dict(layer.state_dict())
    names = [
        build_contender(read_entries({"net": one})[0], 4, 0).identity
        for one in (layer, same, other)
    ]
    assert names[0] == names[1] != names[2]


def test_pairs_of_an_earlier_session_go_with_their_models(tiny: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": tiny, "out": tmp_path, "trials": 1, "timing": False,
                               "metrics": ("sam",), "groups": GROUPS[:1]}  # fmt: skip
    evaluate(["x=gap-tv:iterations=1", "y=gap-tv:iterations=2"], **options)
    assert {row["second"] for row in read_table(tmp_path / "paired.csv")} == {"y"}
    evaluate("x=gap-tv:iterations=1", resume=True, **options)
    assert {row["model"] for row in read_table(tmp_path / "summary.csv")} == {"x"}
    assert not (tmp_path / "paired.csv").exists()


@pytest.mark.slow
def test_killed_at_any_moment_and_resumed_is_the_same_table(tiny: Path, tmp_path: Path) -> None:
    out, calls = tmp_path / "killed", tmp_path / "calls"
    command = [sys.executable, str(HERE / "tiny_evaluation.py"), str(tiny), str(out), str(calls)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills = 0
    for wait_for in (2, 9):
        process = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            cells = out / "cells.jsonl"
            if cells.exists() and len(cells.read_bytes().splitlines()) >= wait_for:
                break
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills == 2
    finished = len((out / "cells.jsonl").read_bytes().splitlines())
    assert finished < 16
    subprocess.run(command, check=True, env=environment)
    # Only the cell that was on its way at each kill may have been begun twice.
    assert len(calls.read_text().splitlines()) <= 16 + kills
    again = tmp_path / "again"
    evaluate({"slow": Slow(tmp_path / "x", 0)}, data=tiny, out=again, trials=8, timing=False)
    assert table(out) == table(again)


# --- scale ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_give_the_same_table_to_the_last_digit(tiny: Path, tmp_path: Path) -> None:
    weights = make_weights(tmp_path / "w.safetensors", tiny, "train")
    models = [SMALL, str(weights), "gap-tv:iterations=3"]
    options: dict[str, Any] = {"data": tiny, "trials": 6, "timing": False, "noise": 0.02}
    evaluate(models, out=tmp_path / "one", threads=1, **options)
    evaluate(models, out=tmp_path / "two", workers=2, threads=1, **options)
    assert table(tmp_path / "one") == table(tmp_path / "two")
    assert RUN.read(tmp_path / "two")["same_measurements"] is True


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tiny: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from prismask.evaluation.run.runner import evaluate\n"
        "if __name__ == '__main__':\n"
        "    evaluate(['gap-tv:iterations=400'], data=sys.argv[1], out=sys.argv[2], trials=50,"
        " groups=['test_other_hardware'], workers=2, timing=False)\n"
    )
    (tmp_path / "run.py").write_text(script)
    command = [sys.executable, str(tmp_path / "run.py"), str(tiny), str(tmp_path / "out")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    cells = tmp_path / "out" / "cells.jsonl"
    deadline = time.monotonic() + 120
    try:
        while not (cells.exists() and cells.stat().st_size) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
        children = _children(process.pid)
    finally:
        process.kill()
        process.wait()
    assert children
    deadline = time.monotonic() + 30
    while any(_is_running(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_is_running(child) for child in children)


def _children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    if not listed.exists():
        pytest.skip("the system does not list a process's children")
    return [int(number) for number in listed.read_text().split()]


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_local_dask_cluster_gives_the_same_table(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    options: dict[str, Any] = {"data": tiny, "trials": 3, "timing": False}
    evaluate([SMALL], out=tmp_path / "one", threads=1, **options)
    evaluate([SMALL], out=tmp_path / "two", dask="local", workers=2, threads=1, **options)
    assert table(tmp_path / "one") == table(tmp_path / "two")


def test_what_cannot_travel_is_told_before_processes_start(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        evaluate({"f": lambda y, m, c: c.spread(y, m)}, data=tiny, trials=1, workers=2)


def test_memory_does_not_grow_with_trials(tiny: Path) -> None:
    """No cube of a trial outlives it."""
    alive: list[int] = []
    cubes: list[weakref.ref[Tensor]] = []

    def watched(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        cube = camera.spread(measurement, mask).clone()
        cubes.extend(weakref.ref(thing) for thing in (cube, measurement, mask))
        return cube

    def count(done: int, total: int, info: Any) -> None:
        alive.append(sum(cube() is not None for cube in cubes))

    evaluate({"w": watched}, data=tiny, trials=6, timing=False, progress=count)
    assert len(alive) == 12
    assert max(alive) <= 3


# --- bad input and the command line --------------------------------------------------------------


def nan_on_one_mask(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    cube = camera.spread(measurement, mask).clone()
    cube[2] = math.nan
    return cube


def test_a_model_that_gives_nan_is_named_and_the_rest_goes_on(tiny: Path) -> None:
    found = evaluate(
        {"bad": nan_on_one_mask, "good": Planted(tiny)}, data=tiny, trials=3, timing=False
    )
    assert not found.ok
    assert found.summary.failed == 6
    failure = found.summary.failures[0]
    assert (failure.model, failure.scene, failure.trial) == ("bad", "scene03", 0)
    assert failure.mask_id == found.plan.work.groups[failure.group].masks.entries[0].mask_id
    assert f"scene scene03 through mask {failure.mask_id}" in found.markdown
    assert "**6 reconstructions failed**" in found.markdown
    first = found.summary.find("bad", GROUPS[0], "psnr_paper", "scene01")
    assert (first.trials, first.failed) == (3, 0)
    average = found.summary.find("bad", GROUPS[0], "psnr_paper")
    assert (average.trials, average.failed) == (0, 3)
    assert "[3 of 3 failed]" in found.markdown
    assert found.summary.find("good", GROUPS[0], "psnr_paper").failed == 0


def test_missing_scenes_and_bands_that_do_not_fit(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no scene 'scene09'.*scene01, scene02"):
        evaluate(["gap-tv"], data=tiny, scenes=["scene01", "scene09"])
    with pytest.raises(DataMissingError, match="no data folder"):
        evaluate(["gap-tv"], data=tmp_path / "none")
    six = make_weights(tmp_path / "six.safetensors", tiny, None, bands=6)
    with pytest.raises(ShapeError, match=r"six was built for 6 bands.*the scenes have 4 bands"):
        evaluate([six], data=tiny, trials=1, timing=False)
    with pytest.raises(ShapeError, match=r"camera has 5 bands and the scenes 4.*Pass resample"):
        evaluate(["gap-tv"], data=tiny, trials=1, camera=CASSI.from_step(5))
    five = evaluate(
        ["gap-tv:iterations=1"], data=tiny, trials=1, camera=CameraDescription(bands=5, step=1.0),
        resample=True, timing=False,
    )  # fmt: skip
    assert five.plan.work.scenes.bands == 5
    assert five.plan.work.camera == CASSI.from_step(5, 1.0)
    found = evaluate([six], data=tiny, trials=1, resample=True, timing=False)
    assert found.plan.work.scenes.bands == 6
    with pytest.raises(ConfigError, match="Did you mean 'trials'"):
        evaluate(["gap-tv"], data=tiny, trails=3)


@pytest.mark.parametrize("noise", ["nan", "-0.1", "inf"])
def test_noise_that_cannot_be_leaves_no_folder(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], noise: str
) -> None:
    out = tmp_path / "run"
    words = ["gap-tv:iterations=1", "--data", str(tiny), "--out", str(out), f"--noise={noise}"]
    for command in ("evaluate", "analyse"):
        assert cli.run([command, *words]) == 2
        assert f"noise is {noise}" in capsys.readouterr().err
        assert not out.exists()


def test_the_command(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    words = ["evaluate", SMALL, "gap-tv:iterations=1", "--data", str(tiny), "--out", str(out)]
    words += ["--trials", "2", "--metrics", "psnr_paper,sam", "--without-timing"]
    assert cli.run(words) == 0
    told = capsys.readouterr()
    assert "PSNR paper [dB]" in told.out
    assert "test_other_hardware" in told.out
    assert cli.run(words) == 2
    assert "--resume" in capsys.readouterr().err
    assert cli.run([*words, "--resume"]) == 0
    again = tmp_path / "again"
    assert cli.run([*words[:5], "--out", str(again), *words[7:]]) == 0
    assert table(out) == table(again)
    assert cli.run(["evaluate", "gap-tw", "--out", str(tmp_path / "x")]) == 2
    assert "Did you mean 'gap-tv'" in capsys.readouterr().err


def test_the_command_says_by_its_exit_code_that_something_failed(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = make_weights(tmp_path / "w.safetensors", tiny, None)
    broken = _with_nan(weights, tmp_path / "broken.safetensors")
    words = ["evaluate", str(broken), "gap-tv:iterations=1", "--data", str(tiny)]
    words += ["--out", str(tmp_path / "run"), "--trials", "1", "--metrics", "sam"]
    assert cli.run(words) == 1
    told = capsys.readouterr()
    assert "failed: w, scene scene01 through mask" in told.err
    assert "6 reconstructions failed" in told.out
    assert RUN.read(tmp_path / "run")["failed"] == 6


def _with_nan(source: Path, target: Path) -> Path:
    from prismask.models.weights import load_weights, save_weights

    model = load_weights(source)
    with torch.no_grad():
        model.backbone.tail.bias[0] = math.nan
    save_weights(model, target, model.record)
    return target


def test_an_interrupted_command_tells_how_to_go_on(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from prismask.evaluation.run.trials import Bench

    original, count = Bench.run, [0]

    def run(self: Bench, cell: Any) -> Any:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return original(self, cell)

    monkeypatch.setattr(Bench, "run", run)
    words = ["evaluate", SMALL, "--data", str(tiny), "--out", str(tmp_path / "run")]
    assert cli.run([*words, "--trials", "2", "--without-timing"]) == 130
    assert "--resume" in capsys.readouterr().err
    assert cli.run([*words, "--trials", "2", "--without-timing", "--resume"]) == 0
    assert count[0] == 5


def test_a_split_of_one_s_own(tiny: Path, tmp_path: Path) -> None:
    text = """
[scenes]
test = ["scene02"]
[camera]
step_px = 1.5
[masks.test_lab]
file = "masks/smem_real_660.mat"
rows = [0, 30]
"""
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    found = evaluate(
        ["gap-tv:iterations=1"], data=tiny, split=tmp_path / "mine.toml", trials=2, timing=False
    )
    assert list(found.plan.work.groups) == ["test_lab"]
    assert found.plan.work.scenes.names == ("scene02",)
    assert found.plan.work.camera.offsets == (0.0, 1.5, 3.0, 4.5)
    assert all(entry.row <= 6 for entry in found.plan.work.groups["test_lab"].masks.entries)


# --- the real data -------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.slow
def test_the_real_data_with_two_trials(data_folder: Path, tmp_path: Path) -> None:
    found = evaluate(
        [SMALL, "gap-tv:iterations=2"],
        data=data_folder,
        out=tmp_path / "run",
        trials=2,
        scenes=["scene01", "scene05"],
        timing=False,
    )
    assert found.ok
    assert found.plan.work.scenes.values.shape == (2, 28, 256, 256)
    same, other = (found.plan.work.groups[name] for name in GROUPS)
    assert all(entry.row == 404 for entry in same.masks.entries)
    assert other.region.name == "smem_real_660"
    assert "±3 %" in found.markdown
    for group in GROUPS:
        assert found.mean("gap-tv:iterations=2", group) > found.mean("net", group)


@pytest.mark.data
def test_the_real_single_mask_may_be_tested_on_other_hardware_only(
    data_folder: Path, tmp_path: Path
) -> None:
    from prismask.evaluation.protocol.splits import group_names, read_evaluation_split

    split = read_evaluation_split(data_folder)
    names, remarks = group_names("one-to-many", split, None, False)
    assert names == ["test_other_hardware"]
    assert "test_same_hardware was left out" in remarks[0]
    single = make_weights(
        tmp_path / "s.safetensors", data_folder, "single", 28, wavelengths_nm=WAVELENGTHS_NM
    )
    with pytest.raises(OverlapError, match="s on test_same_hardware"):
        evaluate([single], data=data_folder, trials=1, scenes=["scene01"])
