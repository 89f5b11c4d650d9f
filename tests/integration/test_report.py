"""From evaluations, stress tests and analyses to one page: complete, honest, nothing faked."""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_evaluation import BANDS, SCENES, SIDE
from torch import Tensor

from prismask.apps.cli import app as cli
from prismask.errors import ConfigError, DataMissingError, OutputExistsError, OverlapError
from prismask.evaluation.analyses.runner import analyse
from prismask.evaluation.metrics import score
from prismask.evaluation.report.document import Page, html_page, markdown_page
from prismask.evaluation.report.page import build_page, write_report
from prismask.evaluation.report.sources import find_sources
from prismask.evaluation.run.runner import evaluate, stress
from prismask.evaluation.run.runs import ANALYSIS, read_arrays
from prismask.inference.intervals.learned import LEVELS, LearnedInterval, WidthHead
from prismask.models.registry import create_model
from prismask.models.weights import load_weights, save_weights
from prismask.optics.camera import CASSI
from prismask.scenes.datasets import load_scenes

GROUPS = ("test_same_hardware", "test_other_hardware")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _weights(folder: Path, name: str, kind: str) -> str:
    model = create_model("srn", bands=BANDS, mask_posterior=kind, width=8, blocks=1, seed=1)
    folder = folder / name
    folder.mkdir(parents=True)
    facts = {"source": "fabricated", "vary": True, "fabricated_share": 1.0}
    grid = [450.0, 520.0, 590.0, 650.0]
    record = {"name": name, "masks": facts, "wavelengths_nm": grid, "data": {}, "seconds": 720.0,
              "device": "one machine"}  # fmt: skip
    save_weights(model, folder / "weights.safetensors", record)
    line = {"event": "step", "step": 1, "seconds": 60.0, "phase": "theta", "loss": 1.0,
            "g_min": 0.01, "g_mean": 0.02, "g_max": 0.03}  # fmt: skip
    check = {"event": "validation", "step": 1, "seconds": 61.0, "score": 25.0}
    text = "".join(json.dumps(one) + "\n" for one in (line, check, {**line, "seconds": 90.0}))
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return str(folder / "weights.safetensors")


@pytest.fixture(scope="module")
def results(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that a report can speak of."""
    folder = tmp_path_factory.mktemp("results")
    trained = folder / "runs"
    models = [_weights(trained, "many-to-many", "gst"), _weights(trained, "without-gst", "none"),
              _weights(trained, "fixed-variance", "fixed"), "gap-tv:iterations=2"]  # fmt: skip
    evaluate(models, data=tiny, out=folder / "many-to-many", trials=3)
    stress(models[:2], data=tiny, out=folder / "stress", trials=2,
           faults=["shift", "gain", "mismatch", "recalibration"])  # fmt: skip
    analyse([models[0], models[3]], tiny, folder / "analysis", masks=3, samples=4, figures=False)
    return folder


@pytest.fixture(scope="module")
def page(results: Path) -> Page:
    """The page of everything, drawn once."""
    return build_page(find_sources(results))


# --- every word and number ------------------------------------------------------------------------

GOLDEN = Path(__file__).with_name("report_golden.md")
"""All tables of the fixture. `PRISMASK_WRITE_GOLDEN=1 pytest test_report.py -k every_word` writes
them anew, after a change that is meant to change them."""
CHANGING = ("s per sample", "peak memory [GiB]", "commit", "started", "versions")


def _lasting(text: str) -> str:
    """The text with one space where there are several, and without the columns of `CHANGING`."""
    lines: list[str] = []
    header: list[str] = []
    for line in text.splitlines():
        cells = [" ".join(cell.split()) for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            header = []
        elif set(line) <= set("|-:"):
            continue
        else:
            header = header or cells
            named = zip(header, cells, strict=True)
            cells = [cell for name, cell in named if name not in CHANGING]
        lines.append(" | ".join(cells))
    return "\n".join(lines) + "\n"


def test_every_word_and_number_is_as_it_was(results: Path, page: Page) -> None:
    parts = [(results / n / "summary.md").read_text() for n in ("many-to-many", "stress")]
    text = _lasting("\n\n".join([*parts, markdown_page(page, {})]))
    if os.environ.get("PRISMASK_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    kept = GOLDEN.read_text(encoding="utf-8")
    for line, expected in zip(text.splitlines(), kept.splitlines(), strict=True):
        assert NUMBER.sub("0", line) == NUMBER.sub("0", expected)
        numbers, known = ([float(n) for n in NUMBER.findall(one)] for one in (line, expected))
        assert numbers == pytest.approx(known, rel=0.02, abs=0.02), line


NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?![\w.]*\w)")
"""Digits that are no part of a name or a hash."""


# --- the analysis --------------------------------------------------------------------------------


def test_analysis_is_plain_json_with_every_number(results: Path) -> None:
    text = (results / "analysis" / "analysis.json").read_text(encoding="utf-8")
    record = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert record == ANALYSIS.read(results / "analysis")
    assert list(record["groups"]) == list(GROUPS)
    assert set(record["scenes"]) == set(SCENES)
    model = record["models"]["many-to-many"]
    assert model["training_seconds"] == 720.0
    for group in GROUPS:
        found = model["groups"][group]
        assert set(found["uncertainty"]) == {"masks", "samples"}
        assert found["uncertainty"]["masks"]["draws"] == 3
        assert found["uncertainty"]["samples"]["draws"] == 4
        assert found["noise"]["kind"] == "gst"
        assert found["average"]["std_over_samples"] > 0
    solver = record["models"]["gap-tv:iterations=2"]["groups"][GROUPS[0]]
    assert set(solver["uncertainty"]) == {"masks"}
    assert solver["noise"] is None
    assert list(record["training"]) == ["many-to-many"]
    for name in ("commit", "versions", "device_name", "seed", "camera", "started"):
        assert record[name] is not None


def test_analysis_numbers_are_those_of_the_model(results: Path, tiny: Path) -> None:
    """Reconstruct one scene by hand through the mask that the record names."""
    from prismask.evaluation.protocol.splits import read_evaluation_split

    record = ANALYSIS.read(results / "analysis")
    listed = record["groups"][GROUPS[1]]["masks"]["masks"][0]
    region = read_evaluation_split(tiny).region(GROUPS[1])
    place = (listed[key] for key in ("row", "column", "height", "width"))
    mask = region.crop(*place).to_tensor()
    truth = torch.tensor(load_scenes(tiny, "test")["scene02"].values)[None]
    camera = CASSI.from_step(BANDS)
    model = load_weights(results / "runs" / "many-to-many" / "weights.safetensors")
    with torch.no_grad():
        estimate = model(camera.forward(truth, mask), mask, camera)
    numbers = record["models"]["many-to-many"]["groups"][GROUPS[1]]["scenes"]["scene02"]
    expected = score(estimate, truth, ("psnr_paper", "ssim"))
    assert numbers["psnr_paper"] == pytest.approx(float(expected["psnr_paper"][0]), abs=1e-3)
    assert numbers["ssim"] == pytest.approx(float(expected["ssim"][0]), abs=1e-4)
    arrays = read_arrays(results / "analysis" / numbers["file"])
    assert arrays is not None
    np.testing.assert_allclose(arrays["estimate"], estimate[0].numpy(), atol=2e-3)
    error = (estimate - truth)[0].square().mean(0).sqrt().numpy()
    np.testing.assert_allclose(arrays["error"], error, atol=1e-5)
    assert arrays["std_over_masks"].shape == (SIDE, SIDE)
    assert arrays["correlation"].shape == (BANDS, BANDS)


def test_analysis_is_the_same_twice(results: Path, tiny: Path, tmp_path: Path) -> None:
    model = str(results / "runs" / "many-to-many")
    options: dict[str, Any] = {"masks": 3, "samples": 4, "figures": False}
    again = analyse([model], tiny, tmp_path / "again", **options)
    first = ANALYSIS.read(results / "analysis")["models"]["many-to-many"]
    assert json.loads(json.dumps(again["models"]["many-to-many"]))["groups"] == first["groups"]
    with pytest.raises(OutputExistsError, match="--overwrite"):
        analyse([model], tiny, tmp_path / "again", **options)
    with pytest.raises(ConfigError, match="samples"):
        analyse([model], tiny, tmp_path / "bad", masks=2, samples=-1)


class Faulty:
    """Gives NaN for one scene, which it knows by its brightness."""

    def __init__(self, tiny: Path) -> None:
        cubes = load_scenes(tiny, "test")
        self.limit = float(cubes["scene02"].values.mean() + cubes["scene03"].values.mean()) / 2

    def __call__(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        cube = camera.spread(measurement, mask)
        brightness = float(measurement.sum() / camera.throughput(mask).sum())
        return cube * math.nan if brightness > self.limit else cube


@pytest.mark.slow
def test_a_model_that_fails_on_a_scene_is_named_and_the_rest_goes_on(
    tiny: Path, tmp_path: Path
) -> None:
    found = analyse({"faulty": Faulty(tiny)}, tiny, tmp_path / "a", masks=2, figures=False)
    scenes = found["models"]["faulty"]["groups"][GROUPS[0]]["scenes"]
    assert 0 < len(scenes) < len(SCENES)
    lost = "scene03"
    assert lost not in scenes
    assert any(f"faulty, scene {lost}" in text and "NaN" in text for text in found["failures"])
    written = write_report(tmp_path / "a", tmp_path / "page.html")
    assert f"faulty, scene {lost}" in written.page.read_text(encoding="utf-8")


def test_neither_a_page_nor_its_tables_are_replaced_unasked(results: Path, tmp_path: Path) -> None:
    for name in ("page.html", "page.md"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(OutputExistsError, match=name):
            write_report(results, tmp_path / "page.html", truth_pictures=False)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_overlap_is_refused_as_in_an_evaluation(tiny: Path, tmp_path: Path) -> None:
    from tiny_evaluation import make_weights

    single = make_weights(tmp_path / "single.safetensors", tiny, "single")
    with pytest.raises(OverlapError, match="single on test_same_hardware"):
        analyse([str(single)], tiny, tmp_path / "a", masks=2)
    found = analyse([str(single)], tiny, tmp_path / "a", masks=2, allow_overlap=True, figures=False)
    assert found["groups"]["test_same_hardware"]["overlap"]["single"] == "overlap"


@pytest.mark.slow
def test_one_to_one_has_no_spread_over_masks(tiny: Path, tmp_path: Path) -> None:
    models = ["gap-tv:iterations=2"]
    found = analyse(models, tiny, tmp_path, protocol="one-to-one", masks=5)
    assert len(list((tmp_path / "figures").glob("*.png"))) >= 4
    group = found["models"]["gap-tv:iterations=2"]["groups"]["single"]
    assert group["uncertainty"] == {}
    assert "std_over_masks" not in group["average"]
    page = build_page(find_sources(tmp_path))
    texts = [block.text for s in page.sections for block in s.blocks if hasattr(block, "text")]
    assert any("was not checked" in text for text in texts)


def _interval(reach: float, feature: str) -> dict[str, Any]:
    """One that reaches as far everywhere, whatever its feature is."""
    bias = torch.full((2, len(LEVELS)), -9.0)
    bias[:, 0] = math.log(reach)
    layer = (torch.zeros(2 * len(LEVELS), 1), bias.flatten())
    head = WidthHead((feature,), LEVELS, torch.zeros(1), torch.ones(1), (layer,))
    return {"learned": LearnedInterval(head, dict.fromkeys(LEVELS, 1.0)).to_record()}


def test_calibrated_intervals_of_the_weights_are_checked(
    results: Path, tiny: Path, tmp_path: Path
) -> None:
    """A planted interval that is far too wide covers everything, one of no width nothing."""
    source = load_weights(results / "runs" / "many-to-many" / "weights.safetensors")
    for width, covered in ((1e6, 1.0), (1e-9, 0.0)):
        path = tmp_path / f"{width:g}.safetensors"
        save_weights(source, path, {**source.record, "interval": _interval(width, "value")})
        found = analyse({"w": str(path)}, tiny, tmp_path / f"{width:g}", masks=2, figures=False)
        checks = found["models"]["w"]["groups"][GROUPS[0]]["uncertainty"]["interval"]
        assert [level["observed"] for level in checks["coverage"]] == [covered] * 4
        assert checks["draws"] is None


def test_a_network_that_learns_each_scene_has_no_samples_and_no_interval(
    results: Path, tiny: Path, tmp_path: Path
) -> None:
    """What is drawn and predicted belongs to a single pass."""
    source = load_weights(results / "runs" / "many-to-many" / "weights.safetensors")
    path = tmp_path / "w.safetensors"
    save_weights(source, path, {**source.record, "interval": _interval(0.1, "value")})
    models = {"plain": str(path), "learning": f"{path}:adapt=1"}
    found = analyse(models, tiny, tmp_path / "a", masks=2, samples=2, figures=False)
    sources = {
        name: set(found["models"][name]["groups"][GROUPS[0]]["uncertainty"]) for name in models
    }
    assert sources == {"plain": {"masks", "samples", "interval"}, "learning": {"masks"}}


# --- the report ----------------------------------------------------------------------------------


def test_page_about_everything(page: Page) -> None:
    text = html.unescape(html_page(page))
    for words in (
        "Average over scenes", "in the paper's layout", "Paired differences", "Ablation",
        "Fixed against self-tuned variance", "Complexity", "Stress:", "Mismatch", "Recalibration",
        "Reconstructions", "Averaged spectral correlation", "Is the uncertainty true?",
        "Prior and learned noise", "g during training", "Provenance", "Conventions",
    ):  # fmt: skip
        assert words in text, words
    assert "SRN + GST (paper)" in text
    assert "33.99 ± 0.14" in text
    assert "PSNR paper [dB] ↑" in text
    assert "12 min, one machine" in text
    assert "nine of the ten brightness maxima are estimates" in text
    assert text.count("data:image/png;base64,") >= 12
    assert not any(word in text for word in ("http://", "https://", "<script"))
    assert "No one-to-one evaluation" in text
    tables = markdown_page(page)
    assert "many-to-many (here): PSNR paper [dB] ↑" in tables
    names = [picture.name for picture in page.pictures]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_page_tables_and_figures_are_written(results: Path, tmp_path: Path) -> None:
    written = write_report(results, tmp_path / "page.html", figures=tmp_path / "figures")
    tables = written.tables.read_text(encoding="utf-8")
    assert len(written.figures) >= 12
    for path in written.figures:
        assert path.is_file()
        assert f"](figures/{path.name})" in tables
    assert any("one-to-one" in text for text in written.missing)
    assert written.page.stat().st_size > sum(path.stat().st_size for path in written.figures)


def test_average_of_the_paper_stands_only_beside_all_ten_scenes(page: Page) -> None:
    table = next(b for s in page.sections for b in s.blocks
                 if getattr(b, "caption", "").startswith("Scene by scene"))  # fmt: skip
    average = table.rows[-1]
    assert average[0] == "average"
    assert set(average[1 + 2 * 4 :]) == {"–"}
    assert "33.99 ± 0.14" in table.rows[0]
    assert len(table.rows[0]) == len(table.header) == 1 + sum(span for _, span in table.groups)


@pytest.mark.slow
def test_truth_can_be_kept_out(results: Path, page: Page, tmp_path: Path) -> None:
    assert any(picture.shows_truth for picture in page.pictures)
    kept_out = build_page(find_sources(results), truth_pictures=False)
    assert not any(picture.shows_truth for picture in kept_out.pictures)
    assert len(kept_out.pictures) == len(page.pictures)
    # Nor can it be shown once the files with the truth are gone.
    copy = tmp_path / "copy"
    shutil.copytree(results / "analysis", copy)
    shutil.rmtree(copy / "truth")
    without = build_page(find_sources(copy))
    assert not any(picture.shows_truth for picture in without.pictures)
    assert any("truth's file is missing" in picture.caption for picture in without.pictures)


def test_missing_parts_are_said(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "stress", tmp_path / "stress")
    written = write_report(tmp_path)
    assert written.page == tmp_path / "report.html"
    page = written.page.read_text(encoding="utf-8")
    assert "No evaluation:" in page
    assert "No analyses" in page
    assert "Average over scenes" not in page
    record = json.loads((tmp_path / "stress" / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "stress" / "run.json").write_text(json.dumps({**record, "finished": None}))
    (tmp_path / "stress" / "summary.csv").unlink()
    again = write_report(tmp_path, overwrite=True)
    assert any("stress is not finished" in text for text in again.missing)
    assert "--resume" in again.page.read_text(encoding="utf-8")


def test_a_damaged_part_does_not_hide_the_others(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "stress", tmp_path / "stress")
    (tmp_path / "analysis.json").write_text("{", encoding="utf-8")
    written = write_report(tmp_path)
    assert any("analysis.json is not JSON" in text for text in written.missing)
    (tmp_path / "other").mkdir()
    with pytest.raises(DataMissingError, match="nothing to report"):
        write_report(tmp_path / "other")


@pytest.mark.parametrize("table", ["summary.csv", "paired.csv", "scores.csv"])
def test_a_table_cut_short_does_not_stop_the_report(
    results: Path, tmp_path: Path, table: str
) -> None:
    shutil.copytree(results / "many-to-many", tmp_path / "many-to-many")
    shutil.copytree(results / "stress", tmp_path / "stress")
    path = tmp_path / "many-to-many" / table
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    found = find_sources(tmp_path)
    assert [source.name for source in found.stresses] == ["stress"]
    assert found.evaluations == []
    (problem,) = found.problems
    assert f"many-to-many/{table}" in problem
    assert "--resume" in problem


@pytest.mark.slow
def test_commands(
    results: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "r.html"
    assert cli.run(["report", str(results), "-o", str(page), "--no-truth-pictures"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(page)
    assert "not on the page: No one-to-one" in err
    assert cli.run(["report", str(results), "-o", str(page)]) == 2
    assert "exists already and was kept" in capsys.readouterr().err
    assert cli.run(["report", str(results), "-o", str(tmp_path / "r.pdf")]) == 2
    assert "has to end in .html" in capsys.readouterr().err
    assert cli.run(["report", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    folder = tmp_path / "a"
    command = ["analyse", "gap-tv:iterations=2", "--data", str(tiny), "--out", str(folder),
               "--masks", "2", "--scenes", "scene01", "--without-figures"]  # fmt: skip
    assert cli.run(command) == 0
    assert capsys.readouterr().out.strip() == str(folder / "analysis.json")
    assert list(ANALYSIS.read(folder)["scenes"]) == ["scene01"]


def test_no_masks_is_told_by_the_name_of_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["analyse", "gap-tv", "--out", str(tmp_path / "a"), "--masks", "0"]) == 2
    told = capsys.readouterr().err
    assert "masks is 0; at least 1 is needed." in told
    assert "trials" not in told
