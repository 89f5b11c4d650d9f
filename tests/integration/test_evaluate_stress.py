"""The stress test as a whole: curves fall, the true mask heals, two calibrations are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_evaluation import SCENES, make_weights

from prismask.apps.cli import app as cli
from prismask.errors import ConfigError
from prismask.evaluation.protocol.conditions import FAULT_KINDS
from prismask.evaluation.protocol.splits import read_evaluation_split
from prismask.evaluation.run.runner import find_recalibration, stress
from prismask.evaluation.run.runs import RUN
from prismask.evaluation.tables.summaries import STRESS_COLUMNS, read_table

pytestmark = pytest.mark.usefixtures("one_thread")

SOLVER = "tv=gap-tv:iterations=4"
OTHER = "test_other_hardware"


def mean(rows: list[dict[str, Any]], **wanted: Any) -> float:
    values = [
        row["value"] for row in rows if all(row[key] == value for key, value in wanted.items())
    ]
    assert values, wanted
    return float(np.mean(values))


def test_curves_start_at_nothing_wrong_and_fall(tiny: Path, tmp_path: Path) -> None:
    sizes = {"shift": (0.5, 1.0), "measurement_noise": (0.1, 0.5), "gain": (0.7,)}
    found = stress(
        [SOLVER], data=tiny, out=tmp_path, trials=2, sizes=sizes, metrics=("psnr_paper",)
    )
    rows = list(found.rows())
    assert tuple(rows[0]) == STRESS_COLUMNS
    assert {row["protocol"] for row in rows} == {"stress"}
    assert {row["fault"] for row in rows} == {*FAULT_KINDS, "mismatch", "recalibration"}
    for fault, kind in FAULT_KINDS.items():
        curve = sorted({row["size"] for row in rows if row["fault"] == fault})
        assert kind.neutral in curve
        start = mean(rows, fault=fault, size=kind.neutral, group=OTHER)
        assert start == mean(rows, fault="shift", size=0.0, group=OTHER)
        ends = [mean(rows, fault=fault, size=size, group=OTHER) for size in sizes.get(fault, ())]
        assert ends == sorted(ends, reverse=True)
        assert all(end < start for end in ends)
    summary = list(read_table(tmp_path / "summary.csv"))
    assert {row["fault"] for row in summary} == {row["fault"] for row in rows}
    assert not (tmp_path / "paired.csv").exists()
    assert next(iter(found.plan.work.groups)) == OTHER
    assert "left out" not in found.markdown
    for words in ("**shift**", "**mismatch**", "same calibration", "# Stress test"):
        assert words in found.markdown


def test_noise_is_on_the_whole_curve(tiny: Path) -> None:
    sizes = {"shift": (0.01,), "measurement_noise": (0.5,)}
    faults = tuple(sizes)
    clean, noisy = (
        list(stress([SOLVER], data=tiny, trials=1, faults=faults, sizes=sizes, noise=noise,
                    metrics=("psnr_paper",)).rows())
        for noise in (0.0, 0.1)
    )  # fmt: skip
    for size in (0.0, 0.01):
        where = {"fault": "shift", "size": size, "group": OTHER}
        assert mean(noisy, **where) < mean(clean, **where) - 1
    alone = {"fault": "measurement_noise", "size": 0.5, "group": OTHER}
    assert mean(noisy, **alone) == mean(clean, **alone), "a fault's own noise is the noise"


def test_the_true_mask_heals_a_mismatch(tiny: Path) -> None:
    rows = list(stress([SOLVER], data=tiny, trials=2, faults=["mismatch"]).rows())
    ideal, nominal, true = (
        mean(rows, fault="mismatch", given=given, metric="psnr_paper")
        for given in ("ideal", "nominal", "true")
    )
    assert nominal < ideal
    assert nominal < true


def test_the_real_sample_goes_both_ways_and_is_marked(tiny: Path, tmp_path: Path) -> None:
    weights = make_weights(tmp_path / "many.safetensors", tiny, "train")
    found = stress([SOLVER, weights], data=tiny, trials=1, faults=["recalibration"])
    rows = [row for row in found.rows() if row["fault"] == "recalibration"]
    groups = {row["group"] for row in rows}
    assert groups == {"calibration_tsanet_sim_256", "calibration_tsanet_real_660"}
    for group in groups:
        options = {"group": group, "model": "tv", "metric": "psnr_paper"}
        same = mean(rows, given="same calibration", **options)
        assert mean(rows, given="other calibration", **options) < same
    assert {row["overlap"] for row in rows if row["model"] == "many"} == {"overlap"}
    assert {row["overlap"] for row in rows if row["model"] == "tv"} == {""}
    assert "† many" in found.markdown


def test_the_place_of_the_second_calibration(tiny: Path) -> None:
    pair = find_recalibration(read_evaluation_split(tiny), (24, 24))
    assert pair is not None
    assert (pair[1].rows, pair[1].columns) == ((202, 226), (201, 225))
    assert np.corrcoef(pair[0].values.ravel(), pair[1].values.ravel())[0, 1] > 0.8
    assert find_recalibration(read_evaluation_split(tiny), (20, 20)) is None


@pytest.mark.data
def test_the_place_of_the_real_second_calibration(data_folder: Path) -> None:
    pair = find_recalibration(read_evaluation_split(data_folder), (256, 256))
    assert pair is not None
    assert (pair[1].name, pair[1].rows, pair[1].columns) == (
        "tsanet_real_660", (202, 458), (201, 457),
    )  # fmt: skip
    found = float(np.corrcoef(pair[0].values.ravel(), pair[1].values.ravel())[0, 1])
    assert found == pytest.approx(0.887, abs=0.002)


def test_the_command_resumes(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stress", SOLVER, "--data", str(tiny), "--out", str(tmp_path / "run"), "--trials", "1"]
    words += ["--faults", "gain,mismatch", "--scenes", SCENES[0]]
    assert cli.run(words) == 0
    assert "**gain**" in capsys.readouterr().out
    assert cli.run(words) == 2
    assert cli.run([*words, "--resume"]) == 0
    assert [session["cells"] for session in RUN.read(tmp_path / "run")["sessions"]] == [10, 0]
    assert cli.run([*words[:-4], "--faults", "dust", "--resume"]) == 2


def test_sizes_of_unknown_faults(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="unknown fault"):
        stress([SOLVER], data=tiny, sizes={"dust": [1.0]})
