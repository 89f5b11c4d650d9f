"""Test scenes that do not fit are told before anything is computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_workload import BANDS, GRID, cube, cubes

from prismask.errors import ConfigError, DataMissingError, ShapeError, ValuesError
from prismask.evaluation.protocol.scene_set import load_scene_set
from prismask.evaluation.protocol.splits import EvaluationSplit
from prismask.evaluation.run.contenders import Entry
from prismask.evaluation.run.runner import described_bands
from prismask.optics.camera import CASSI, CameraDescription
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube

NOWHERE = EvaluationSplit(None)


def network(bands: int, label: str = "net") -> Entry:
    grid = np.linspace(460.0, 640.0, bands).tolist()
    return Entry(label, "weights", None, {}, {"bands": bands, "wavelengths_nm": grid})


def test_scenes_are_stacked_in_order() -> None:
    given = cubes()
    found = load_scene_set(NOWHERE, given, ())
    assert found.names == tuple(given)
    assert np.array_equal(found.values[1], given["leaf1"].values)
    assert found.wavelengths == tuple(GRID)
    assert found.hashes["leaf1"] == given["leaf1"].hash
    assert not found.remarks


def test_bands_that_do_not_fit_the_model_offer_resampling() -> None:
    entry = network(6)
    with pytest.raises(ShapeError, match=r"was built for 6 bands.*Pass --resample"):
        load_scene_set(NOWHERE, cubes(), [entry])
    serves_all = replace(entry, record={**entry.record, "backbone": "lumen"})
    assert load_scene_set(NOWHERE, cubes(), [serves_all]).bands == BANDS
    found = load_scene_set(NOWHERE, cubes(), [entry], resample_bands=True)
    assert found.bands == 6
    assert found.wavelengths == entry.wavelengths
    middle = np.array([np.interp(entry.wavelengths, GRID, cubes()["leaf0"].values[:, 3, 5])])
    assert np.allclose(found.values[0][:, 3, 5], middle, atol=1e-6)


@pytest.mark.parametrize(
    ("said", "bands"),
    [
        (CameraDescription(), None),
        (CameraDescription(step=2.0), None),
        (CameraDescription(bands=5, step=2.0), 5),
        (CameraDescription(offsets=(0.0, 1.5, 4.0)), 3),
        (CASSI.from_step(7), 7),
    ],
)
def test_bands_that_a_camera_says_it_has(
    said: CASSI | CameraDescription, bands: int | None
) -> None:
    assert described_bands(said) == bands


def test_same_number_at_other_wavelengths_does_not_fit_either() -> None:
    with pytest.raises(ShapeError, match="--resample"):
        load_scene_set(NOWHERE, cubes(), [network(BANDS)])


def test_models_that_need_different_bands_cannot_be_side_by_side() -> None:
    both = [network(6), network(5, "other")]
    with pytest.raises(ConfigError, match="one by one"):
        load_scene_set(NOWHERE, cubes(), both, resample_bands=True)


def test_a_scene_with_other_bands_than_the_rest() -> None:
    mixed = {**cubes(1), "wide": cube(5, bands=7)}
    with pytest.raises(ShapeError, match=r"scene wide has 7 bands.*--resample"):
        load_scene_set(NOWHERE, mixed, ())
    assert load_scene_set(NOWHERE, mixed, (), resample_bands=True).bands == BANDS
    nameless = {**cubes(1), "wide": Cube(cube(5, bands=7).values)}
    with pytest.raises(ValuesError, match="wavelengths are not known"):
        load_scene_set(NOWHERE, nameless, (), resample_bands=True)


def test_constant_bands_are_remarked_and_black_scenes_refused() -> None:
    values = cube(0).values.copy()
    values[2] = 0.5
    found = load_scene_set(NOWHERE, {"flat": Cube(values, GRID)}, ())
    assert "scene flat is constant in band 2" in found.remarks[0]
    with pytest.raises(ValuesError, match="scene night is black"):
        load_scene_set(NOWHERE, {"night": Cube(np.zeros((4, 16, 16)), GRID)}, ())


def test_sizes_must_agree() -> None:
    with pytest.raises(ShapeError, match="differ in size: leaf0 16×16, big 20×20"):
        load_scene_set(NOWHERE, {**cubes(1), "big": cube(1, side=20)}, ())


def test_files_beside_the_split_and_missing_ones(tmp_path: Path) -> None:
    save(cube(3), tmp_path / "leaf.npz")
    split = EvaluationSplit(None, tmp_path, scenes=("leaf.npz",))
    assert load_scene_set(split, None, ()).names == ("leaf",)
    with pytest.raises(DataMissingError, match=r"gone\.npz"):
        load_scene_set(split, ["gone.npz"], ())
    with pytest.raises(DataMissingError, match="scenes by name come from a data folder"):
        load_scene_set(split, ["scene01"], ())
    with pytest.raises(ConfigError, match="twice"):
        load_scene_set(split, ["leaf.npz", "leaf.npz"], ())
    with pytest.raises(ConfigError, match="no scenes"):
        load_scene_set(split, {}, ())


def test_the_middle_of_scenes() -> None:
    found = load_scene_set(NOWHERE, cubes(), (), size=(10, 8))
    height, width = cubes()["leaf0"].size
    top, left = (height - 10) // 2, (width - 8) // 2
    whole = cubes()["leaf0"].values
    assert np.array_equal(found.values[0], whole[:, top : top + 10, left : left + 8])
    with pytest.raises(ShapeError, match="no middle of 10×99"):
        load_scene_set(NOWHERE, cubes(), (), size=(10, 99))


def test_a_part_of_the_data_folder_stands_for_its_scenes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = {"validation": ["leaf1", "leaf0"], "train": ["leaf2"]}

    def load_scenes(folder: Path, which: str | list[str], _: object) -> dict[str, Cube]:
        return {
            name: cubes(4)[name] for name in (known[which] if isinstance(which, str) else which)
        }

    monkeypatch.setattr("prismask.scenes.datasets.load_scenes", load_scenes)
    split = EvaluationSplit(tmp_path)
    assert load_scene_set(split, ["validation"], ()).names == ("leaf1", "leaf0")
    assert load_scene_set(split, ["leaf3", "train"], ()).names == ("leaf3", "leaf2")
    with pytest.raises(ConfigError, match="twice"):
        load_scene_set(split, ["leaf0", "validation"], ())
