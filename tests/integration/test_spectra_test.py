"""`spectra_test` from the snapshot to the report: paired, repeatable, resumable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismask.apps.cli.app import run
from prismask.errors import ConfigError, OutputExistsError
from prismask.evaluation.report.page import build_page
from prismask.evaluation.report.sources import find_sources
from prismask.evaluation.run.spectra import spectra_test
from prismask.evaluation.tables.summaries import read_table
from prismask.scenes.synthetic.spectra import Feature

SOLVERS = {"few": "gap-tv:iterations=3", "more": "gap-tv:iterations=12"}
FEW = (Feature("smooth"), Feature("line", 10.0))
QUICK: dict[str, Any] = {"groups": ["drawn"], "device": "cpu", "quick": True, "size": 40}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("spectra") / "test"
    assert not spectra_test(SOLVERS, out=out, **QUICK).failures
    return out


def _scores(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in
            read_table(folder / "scores.csv")]  # fmt: skip


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]


def test_all_methods_see_the_same_snapshots(folder: Path) -> None:
    seen: dict[tuple[str, float], set[str]] = {}
    for line in _lines(folder):
        place = (line["cell"]["fault"], line["cell"]["size"])
        seen.setdefault(place, set()).add(line["measurement_id"])
    assert len(seen) == 5
    assert all(len(found) == 1 for found in seen.values())


def test_more_iterations_keep_more_of_a_line(folder: Path) -> None:
    kept = {
        row["model"]: row["mean"]
        for row in read_table(folder / "summary.csv")
        if row["metric"] == "kept" and row["feature"] == "line"
    }
    assert 0 < kept["few"] < kept["more"] <= 1.3


def test_one_seed_gives_one_table(folder: Path, tmp_path: Path) -> None:
    spectra_test(SOLVERS, out=tmp_path, **QUICK)
    assert str(_scores(tmp_path)) == str(_scores(folder))


def test_an_interrupted_test_goes_on(folder: Path, tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def stop(done: int, total: int, info: Any) -> None:
        if done == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        spectra_test(SOLVERS, out=tmp_path, progress=stop, **QUICK)
    assert len(_lines(tmp_path)) == 3
    with pytest.raises(OutputExistsError, match="--resume"):
        spectra_test(SOLVERS, out=tmp_path, **QUICK)
    with pytest.raises(ConfigError, match="seed"):
        spectra_test(SOLVERS, out=tmp_path, resume=True, **QUICK, seed=1)
    with pytest.raises(ConfigError, match="another 'few'"):
        spectra_test({"few": "gap-tv:iterations=4"}, out=tmp_path, resume=True, **QUICK)
    spectra_test(SOLVERS, out=tmp_path, resume=True, **QUICK)
    assert str(_scores(tmp_path)) == str(_scores(folder))
    assert len(_lines(tmp_path)) == 10


def test_the_report_pictures_it(folder: Path) -> None:
    with (folder / "examples.jsonl").open("a") as file:
        file.write('{"model": "fe')  # torn by a crash
    page = build_page(find_sources(folder))
    (section,) = [one for one in page.sections if one.title.startswith("Spectra")]
    kinds = [block.kind for block in section.blocks]
    assert kinds.count("picture") == 2
    assert kinds.count("table") == 1
    assert any(source.name for source in find_sources(folder).spectra)


def test_a_wider_camera_is_tested_in_its_own_bands(tmp_path: Path) -> None:
    from prismask.optics.camera import CameraDescription

    camera = CameraDescription(bands=16, step=3.0)
    found = spectra_test("gap-tv:iterations=3", out=tmp_path, camera=camera, noise=0.01, **QUICK)
    assert len(found.record["wavelengths_nm"]) == 16
    assert "noise of 0.01" in found.markdown


def test_a_stress_test_has_spectra_too(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same table as the command of its own, and the report finds it below."""
    monkeypatch.setattr("prismask.evaluation.run.spectra.features", lambda kinds: FEW)
    words = ["--data", str(tiny), "--seed", "3", "--device", "cpu"]
    stressed, alone = tmp_path / "stress", tmp_path / "alone"
    asked = ["stress", "few=gap-tv:iterations=1", *words, "--out", str(stressed)]
    asked += ["--faults", "gain=0.9", "--trials", "1", "--scenes", "scene01", "--spectra", "1"]
    assert run(asked) == 0
    asked = ["spectra-test", "few=gap-tv:iterations=1", *words, "--out", str(alone)]
    assert run([*asked, "--trials", "1"]) == 0
    assert str(_scores(stressed / "spectra")) == str(_scores(alone))
    assert {row["group"] for row in _scores(alone)} == {"drawn"}
    found = find_sources(stressed)
    assert [source.name for source in found.spectra] == ["spectra"]
    assert len(found.stresses) == 1


def test_without_a_data_folder_drawn_scenes_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PRISMASK_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    words = ["spectra-test", "gap-tv:iterations=2", "--quick", "--size", "40", "--features", "line",
             "--out", str(tmp_path / "out"), "--device", "cpu"]  # fmt: skip
    assert run(words) == 0
    told = capsys.readouterr().out
    assert "line of 40 nm" in told
    assert "Only drawn scenes" in told
    assert "validation scenes" not in told


def test_cells_of_another_evaluation_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text("a finished cell\n")
    with pytest.raises(OutputExistsError, match=r"holds finished cells.*but no spectra\.json"):
        spectra_test("gap-tv", out=tmp_path, **QUICK)


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trials"):
        spectra_test("gap-tv", out=tmp_path, **{**QUICK, "trials": 0})
    with pytest.raises(ConfigError, match="too small"):
        spectra_test("gap-tv", out=tmp_path, **{**QUICK, "size": 8})
    with pytest.raises(ConfigError, match="drawn"):
        spectra_test("gap-tv", out=tmp_path, **{**QUICK, "groups": ["test"]})
    assert run(["spectra-test", "gap-tv", "--trials", "0", "--out", str(tmp_path / "out")]) == 2
