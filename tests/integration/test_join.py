"""Evaluations made apart and joined are the evaluation made together."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from prismask.apps.cli import app as cli
from prismask.errors import ConfigError, FormatError, OutputExistsError
from prismask.evaluation.run.join import join
from prismask.evaluation.run.runner import evaluate
from prismask.evaluation.run.runs import RUN
from prismask.optics.camera import CASSI

QUICK, SLOW, NET = "gap-tv:iterations=3", "gap-tv:iterations=5", "srn:width=8,blocks=1"


@pytest.fixture(scope="module")
def apart(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three evaluations, the third of all models together."""
    folder = tmp_path_factory.mktemp("apart")
    run(tiny, folder / "one", ["w/o steps=" + QUICK, "net=" + NET])
    run(tiny, folder / "two", ["slow=" + SLOW], trials=4)
    run(tiny, folder / "both", ["w/o steps=" + QUICK, "net=" + NET, "slow=" + SLOW])
    return folder


def run(data: Path, out: Path, models: list[str], trials: int = 3, **options: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    evaluate(models, data=data, out=out, trials=trials, timing=False, noise=0.01, **options)
    torch.set_num_threads(before)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


def test_joined_is_what_one_evaluation_gives(apart: Path, tmp_path: Path) -> None:
    text = join([apart / "one", apart / "two"], tmp_path / "joined")
    for table in ("scores.csv", "summary.csv", "paired.csv"):
        assert rows(tmp_path / "joined" / table) == rows(apart / "both" / table), table
    assert text == (apart / "both" / "summary.md").read_text(encoding="utf-8")
    assert text == (tmp_path / "joined" / "summary.md").read_text(encoding="utf-8")
    found, together = RUN.read(tmp_path / "joined"), RUN.read(apart / "both")
    # The first part has as many trials as were joined: each model keeps its own speed.
    took = RUN.read(apart / "one")["seconds_per_sample_in_run"]
    for name in ("w/o steps", "net"):
        assert found["seconds_per_sample_in_run"][name] == pytest.approx(took[name])
    for key in ("models", "groups", "trials", "scenes", "metrics", "same_measurements", "failed"):
        assert found[key] == together[key], key
    assert [part["models"] for part in found["joined"]] == [["w/o steps", "net"], ["slow"]]
    assert all(part["finished"] and part["versions"] for part in found["joined"])


def test_what_is_in_both_is_taken_once_and_two_of_a_name_are_kept_apart(
    tiny: Path, apart: Path, tmp_path: Path
) -> None:
    run(tiny, tmp_path / "other", ["slow=" + QUICK, "net=" + NET])
    join([apart / "both", tmp_path / "other"], tmp_path / "joined")
    record = RUN.read(tmp_path / "joined")
    assert list(record["models"]) == ["w/o steps", "net", "slow", "slow (other)"]
    both = rows(tmp_path / "joined" / "paired.csv")
    same = [r for r in both if (r["first"], r["second"]) == ("w/o steps", "slow (other)")]
    assert same
    assert all(float(r["mean"]) == 0 for r in same if r["metric"] == "psnr_paper")


def test_another_precision_is_another_model(apart: Path, tmp_path: Path) -> None:
    models = RUN.read(apart / "one")["models"]
    models["net"] |= {"precision": "float16"}
    half = changed(apart / "one", tmp_path / "half", {"models": models})
    join([apart / "one", half], tmp_path / "joined")
    assert list(RUN.read(tmp_path / "joined")["models"]) == ["w/o steps", "net", "net (half)"]


@pytest.mark.parametrize("change", [{"batch": 7}, {"device_name": "another"}])
def test_other_batches_and_machines_measure_the_same_but_not_to_the_last_bit(
    apart: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    join([apart / "one", apart / "two"], tmp_path / "alike")
    assert RUN.read(tmp_path / "alike")["same_measurements"] is True
    join([apart / "one", changed(apart / "two", tmp_path / "two", change)], tmp_path / "joined")
    assert RUN.read(tmp_path / "joined")["same_measurements"] is False


def test_a_joined_folder_is_joined_again_with_its_own_parts(
    tiny: Path, apart: Path, tmp_path: Path
) -> None:
    run(tiny, tmp_path / "other", ["slow=" + QUICK])
    run(tiny, tmp_path / "third", ["third=" + NET])
    first, second = tmp_path / "first", tmp_path / "second"
    join([apart / "two", tmp_path / "other"], first)
    join([tmp_path / "other", tmp_path / "third"], second)
    join([first, second, apart / "two", tmp_path / "other"], tmp_path / "all")
    record = RUN.read(tmp_path / "all")
    assert list(record["models"]) == ["slow", "slow (other)", "third"]
    assert [part["models"] for part in record["joined"]] == [
        ["slow", "slow (other)"], ["third"], [], [],
    ]  # fmt: skip


class Failing:
    """Gives no finite cube for the second scene of every other trial."""

    calls = 0

    def __call__(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        self.calls += 1
        cube = camera.spread(measurement, mask).clone()
        cube[1] *= float("nan") if self.calls % 2 == 0 else 1.0
        return cube


def test_failures_are_those_of_the_trials_and_names_that_are_kept(
    tiny: Path, apart: Path, tmp_path: Path
) -> None:
    evaluate(
        {"slow": Failing()}, data=tiny, out=tmp_path / "bad", trials=6, timing=False, noise=0.01
    )
    assert RUN.read(tmp_path / "bad")["failed"] == 6
    text = join([apart / "one", apart / "two", tmp_path / "bad"], tmp_path / "joined")
    joined = RUN.read(tmp_path / "joined")
    # Of three trials in each of two groups, one a group; the fourth and sixth are not here.
    assert joined["failed"] == len(joined["failures"]) == 2
    for told in joined["failures"]:
        assert re.match(
            r"slow \(bad\), scene scene02 through mask \w+ \(.* trial 1\): the cube", told
        )
        assert told in text
    # Twice the same is not twice as many.
    join([tmp_path / "joined", tmp_path / "bad"], tmp_path / "again")
    assert RUN.read(tmp_path / "again")["failures"] == joined["failures"]


def test_the_parquet_twin_is_enough(apart: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("run.json", "scores.parquet"):
        (kept / name).write_bytes((apart / "one" / name).read_bytes())
    join([kept, apart / "two"], tmp_path / "joined")
    assert rows(tmp_path / "joined" / "scores.csv") == rows(apart / "both" / "scores.csv")
    (kept / "scores.parquet").write_bytes(b"PAR1 is not all of it")
    with pytest.raises(FormatError, match=r"scores\.parquet cannot be read"):
        join([kept, apart / "two"], tmp_path / "again")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"noise": 0.02}, "differ in noise"),
        ({"seed": 1}, "differ in seed"),
        ({"scenes": {"scene01": "0"}}, "differ in scenes"),
        ({"finished": None}, "not finished"),
        ({"kind": "stress"}, "only evaluations"),
        ({"metrics": []}, "no metric in common"),
        ({"groups": {}}, "no group of masks in common"),
    ],
)
def test_what_did_not_measure_the_same_is_refused(
    apart: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        join([apart / "one", changed(apart / "two", tmp_path / "two", change)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_masks_and_tables_that_do_not_fit_are_refused(apart: Path, tmp_path: Path) -> None:
    groups = RUN.read(apart / "two")["groups"]
    next(iter(groups.values()))["masks"]["masks"][1]["mask_id"] = "0123456789ab"
    other = changed(apart / "two", tmp_path / "masks", {"groups": groups})
    with pytest.raises(ConfigError, match="drew different masks"):
        join([apart / "one", other], tmp_path / "out")
    with pytest.raises(FormatError, match="not those that its run"):
        join([other, other], tmp_path / "out")
    cut = changed(apart / "two", tmp_path / "cut", {})
    lines = (cut / "scores.csv").read_text().splitlines(keepends=True)
    (cut / "scores.csv").write_text("".join(lines[:40]))
    with pytest.raises(FormatError, match="not complete"):
        join([apart / "one", cut], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_and_its_folder(
    apart: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "joined"
    one, two = str(apart / "one"), str(apart / "two")
    assert cli.run(["join", one, two, "--out", str(out)]) == 0
    assert "w/o steps − slow" in capsys.readouterr().out
    assert cli.run(["join", one, two, "--out", str(out)]) == 2
    assert "holds an evaluation already" in capsys.readouterr().err
    assert cli.run(["join", one, "--out", str(tmp_path / "x")]) == 2
    assert "at least two folders" in capsys.readouterr().err
    assert cli.run(["join", one, str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "holds no evaluation" in capsys.readouterr().err
    with pytest.raises(OutputExistsError, match="put together from other evaluations"):
        run(tiny, out, ["slow=" + SLOW], resume=True)


def changed(folder: Path, copy: Path, change: dict[str, Any]) -> Path:
    copy.mkdir()
    (copy / "scores.csv").write_bytes((folder / "scores.csv").read_bytes())
    record = {**RUN.read(folder), **change}
    (copy / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return copy
