"""Scores of one cube: the same in its own units, and how much of the truth its interval holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from prismask.apps.cli.app import run
from prismask.apps.cli.evaluate_pair import scaled
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube
from prismask.scenes.synthetic.demo import random_scene

FACTOR = 8.0
"""Of two, so that nothing is rounded."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    truth = random_scene(1, (16, 20))
    noise = np.random.default_rng(0).normal(0, 0.02, truth.values.shape).astype(np.float32)
    guess = truth.values + noise
    # True values lie within 0.03 of the guess where |noise| does.
    cube = Cube(guess, truth.wavelengths, None, guess - 0.03, guess + 0.03, {"interval": "90 %"})
    other = Cube(guess / FACTOR, truth.wavelengths, None, cube.lower / FACTOR, cube.upper / FACTOR,
                 {"interval": "90 %"})  # fmt: skip
    for name, one in (("truth", truth), ("cube", cube), ("other", other)):
        save(one, tmp_path / f"{name}.nc")
    np.save(tmp_path / "inside.npy", float((np.abs(noise) <= 0.03).mean()))
    return tmp_path


def scores(capsys: pytest.CaptureFixture[str], line: str) -> tuple[dict[str, float], str]:
    assert run([*line.split(), "--json"]) == 0
    said = capsys.readouterr()
    return {name: row["value"] for name, row in json.loads(said.out).items()}, said.err


def test_the_interval_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, remarks = scores(capsys, "evaluate-pair truth.nc cube.nc")
    assert found["inside"] == pytest.approx(float(np.load("inside.npy")), abs=1e-3)
    assert 0.8 < found["inside"] < 0.9
    assert remarks == ""
    assert "inside" not in scores(capsys, "evaluate-pair truth.nc truth.nc")[0]


def test_other_units_are_noticed_and_fitted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, _ = scores(capsys, "evaluate-pair truth.nc cube.nc")
    wrong, remarks = scores(capsys, "evaluate-pair truth.nc other.nc")
    assert "multiplied by 7.9" in remarks or "multiplied by 8" in remarks
    assert "--fit-scale" in remarks
    assert wrong["psnr_unit"] < plain["psnr_unit"] - 5
    fitted, remarks = scores(capsys, "evaluate-pair truth.nc other.nc --fit-scale")
    assert fitted["psnr_unit"] >= plain["psnr_unit"]
    assert fitted["psnr_unit"] == pytest.approx(plain["psnr_unit"], abs=0.2)
    assert fitted["inside"] == pytest.approx(plain["inside"], abs=0.03)
    assert "is multiplied by" in remarks


def test_a_swapped_pair_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "are the two swapped? The order is TRUTH"
        in scores(capsys, "evaluate-pair cube.nc truth.nc")[1]
    )


def test_a_negative_factor_turns_the_interval_over_and_leaves_spreads_positive() -> None:
    ones = np.ones((2, 3, 4), np.float32)
    found = scaled(Cube(ones, std=0.1 * ones, lower=0.5 * ones, upper=2 * ones), -3.0)
    parts = (found.values, found.std, found.lower, found.upper)
    assert [float(part.max()) for part in parts if part is not None] == pytest.approx(
        [-3, 0.3, -6, -1.5]
    )
