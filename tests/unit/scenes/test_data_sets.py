"""Finding the data, the split, and loading scenes and masks of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from prismask.errors import DataMissingError, FormatError, ShapeError
from prismask.scenes.cubepack import write_cubepack
from prismask.scenes.datasets import (
    MaskRegion,
    load_mask_file,
    load_scenes,
    read_scene_folder,
    read_split,
)
from prismask.scenes.datasets import (
    data_folder as find_data,
)
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube

GRID = np.arange(450.0, 651.0, 10.0)
AT = [455.0, 500.0, 645.0]
NAMES = ("apples", "beads", "clay", "watercolors")


def a_scene(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).random((21, 6, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in the layout of the real one, with made-up scenes."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    (folder / "masks").mkdir(parents=True)
    split = {
        "wavelengths_nm": AT,
        "scenes": {"train": "every other one", "validation": ["beads"], "test": ["scene01"]},
        "masks": {
            "train": {"file": "masks/m.mat", "rows": [0, 5], "columns": [0, 7]},
            "single": {"file": "masks/m.mat"},
            "outside": {"file": "masks/m.mat", "rows": [4, 9]},
        },
    }
    (folder / "splits.json").write_text(json.dumps(split))
    cubes = {name: Cube(a_scene(i), GRID) for i, name in enumerate(NAMES)}
    write_cubepack(folder / "cave.cubepack", cubes)
    packed = np.random.default_rng(9).integers(0, 256, (3, 6, 5)).astype(np.uint8)
    np.savez(
        folder / "kaist.npz",
        scene01=packed,
        scene01_max=np.float32(0.75),
        wavelengths_nm=np.array(AT, np.float32),
    )
    scipy.io.savemat(folder / "masks" / "m.mat", {"mask": np.arange(56.0).reshape(8, 7) / 56})
    return folder


def test_the_split(small: Path) -> None:
    split = read_split(small)
    assert split.train == ("apples", "clay")
    assert split.validation == ("beads",)
    assert split.test == ("scene01",)
    assert split.wavelengths == tuple(AT)
    assert split.masks["train"] == MaskRegion("masks/m.mat", (0, 5), (0, 7))


def test_groups_and_names(small: Path) -> None:
    assert list(load_scenes(small, "train")) == ["apples", "clay"]
    mixed = load_scenes(small, ["scene01", "watercolors", "apples"])
    assert list(mixed) == ["scene01", "watercolors", "apples"]
    for cube in mixed.values():
        assert cube.values.shape == (3, 6, 5)
        assert cube.wavelengths is not None
        np.testing.assert_allclose(cube.wavelengths, AT)
    assert list(load_scenes(small, "clay")) == ["clay"]


def test_kaist_scenes_are_unpacked_as_stated(small: Path) -> None:
    with np.load(small / "kaist.npz") as raw:
        expected = (raw["scene01"] + 0.5) / 256 * 0.75
    np.testing.assert_allclose(load_scenes(small, "test")["scene01"].values, expected, rtol=1e-6)


def test_other_wavelengths(small: Path) -> None:
    cube = load_scenes(small, ["apples"], [460.0, 470.0])["apples"]
    rounded = np.abs(cube.values - a_scene(0)[1:3])
    assert rounded.max() < 0.03  # noise packs badly, but it is the right two bands
    with pytest.raises(ValueError, match="extrapolate"):
        load_scenes(small, ["apples"], [300.0])


def test_mask_files_and_regions(small: Path) -> None:
    split = read_split(small)
    assert load_mask_file(small, "masks/m.mat").size == (8, 7)
    assert load_mask_file(small, split.masks["single"]).size == (8, 7)
    train = load_mask_file(small, split.masks["train"])
    assert train.size == (5, 7)
    assert train.attrs["rows"] == [0, 5]
    part = load_mask_file(small, MaskRegion("masks/m.mat", (2, 4), (3, 6)))
    np.testing.assert_allclose(part.values, (np.arange(56).reshape(8, 7) / 56)[2:4, 3:6], rtol=1e-6)
    with pytest.raises(ShapeError, match=r"rows 4–9.*8×7"):
        load_mask_file(small, split.masks["outside"])
    with pytest.raises(DataMissingError, match="TSA-Net"):
        load_mask_file(small, "masks/none.mat")


def test_where_the_folder_is_looked_for(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRISMASK_DATA", raising=False)
    inside = small.parent.parent / "project" / "deep"
    inside.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataMissingError, match=r"PRISMASK_DATA is not set.*CAVE.*KAIST.*masks"):
        find_data()
    assert find_data(small) == small
    monkeypatch.setenv("PRISMASK_DATA", str(small))
    assert find_data() == small
    monkeypatch.setenv("PRISMASK_DATA", str(tmp_path / "none"))
    with pytest.raises(DataMissingError, match=r"\(from PRISMASK_DATA\)"):
        find_data()
    with pytest.raises(DataMissingError, match="How to get it"):
        find_data(tmp_path / "none")


def test_shared_data_above_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRISMASK_DATA", raising=False)
    data = tmp_path / "shared" / "data"
    data.mkdir(parents=True)
    (data / "splits.json").write_text("{}")
    inside = tmp_path / "project" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert find_data() == data


def test_missing_pieces_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"splits\.json is missing"):
        load_scenes(tmp_path, "train")
    split = {
        "wavelengths_nm": AT,
        "scenes": {"train": "all", "validation": ["beads"], "test": ["scene01"]},
        "masks": {},
    }
    (tmp_path / "splits.json").write_text(json.dumps(split))
    for which, source in {"train": "columbia", "validation": "columbia", "test": "TSA-Net"}.items():
        with pytest.raises(DataMissingError, match=source):
            load_scenes(tmp_path, which)


def test_unknown_scenes_get_a_suggestion(small: Path) -> None:
    with pytest.raises(DataMissingError, match="Did you mean 'apples'"):
        load_scenes(small, ["aples"])
    with pytest.raises(FormatError, match="Did you mean 'scene01'"):
        load_scenes(small, ["scene02"])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"scenes": {}}', '{"scenes": 3}'])
def test_damaged_split(tmp_path: Path, text: str) -> None:
    (tmp_path / "splits.json").write_text(text)
    with pytest.raises(FormatError, match=r"splits\.json"):
        read_split(tmp_path)


def test_a_scene_in_two_groups(tmp_path: Path) -> None:
    scenes = {"train": ["a", "b"], "validation": ["b"], "test": []}
    split = {"wavelengths_nm": AT, "scenes": scenes, "masks": {}}
    (tmp_path / "splits.json").write_text(json.dumps(split))
    with pytest.raises(FormatError, match="puts b into two groups"):
        read_split(tmp_path)


def test_folder_of_mat_scenes(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((5, 4, 28))
    folder = tmp_path / "kaist"
    folder.mkdir()
    for name in ("scene01", "scene02"):
        scipy.io.savemat(folder / f"{name}.mat", {"img": values})
    (folder / ".scene03.mat.00ff.prismask-part").write_bytes(b"half")
    (folder / ".hidden.mat").write_bytes(b"half")
    found = read_scene_folder(folder)
    assert list(found) == ["scene01", "scene02"]
    cube = found["scene02"]
    assert np.array_equal(cube.values, np.moveaxis(values, -1, 0).astype("f4"))
    assert cube.wavelengths is not None
    assert tuple(cube.wavelengths) == WAVELENGTHS_NM
    split = {
        "wavelengths_nm": list(WAVELENGTHS_NM),
        "scenes": {"train": [], "validation": [], "test": ["scene01"]},
        "masks": {},
    }
    (tmp_path / "splits.json").write_text(json.dumps(split))
    assert list(load_scenes(tmp_path, "test")) == ["scene01"]
    with pytest.raises(DataMissingError, match="no scene 'scene07'"):
        read_scene_folder(folder, ["scene07"])


def test_needs_nothing_but_numpy_and_scipy(small: Path) -> None:
    """The training path must run where only torch, NumPy, SciPy and safetensors are installed."""
    code = f"""
import sys
for name in ("xarray", "h5py", "h5netcdf", "PIL", "tifffile", "spectral", "colour", "pandas"):
    sys.modules[name] = None
from prismask.scenes.datasets import load_scenes, load_mask_file
folder = {str(small)!r}
assert len(load_scenes(folder, "train")) == 2
assert len(load_scenes(folder, "test")) == 1
assert load_mask_file(folder, "masks/m.mat").size == (8, 7)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.data
def test_the_real_data(data_folder: Path) -> None:
    split = read_split(data_folder)
    assert len(split.train) == 25
    assert len(split.validation) == 6
    assert len(split.test) == 10
    assert split.wavelengths == WAVELENGTHS_NM
    assert not set(split.train) & {"watercolors", *split.validation}
    cube = load_scenes(data_folder, ["scene01"])["scene01"]
    assert cube.values.shape == (28, 256, 256)
    assert cube.values.max() == pytest.approx(0.9132 * 255.5 / 256, rel=1e-5)
    sizes = {name: load_mask_file(data_folder, r).size for name, r in split.masks.items()}
    assert sizes["train"] == (404, 660)
    assert sizes["test_same_hardware"] == (256, 660)
    assert sizes["single"] == (256, 256)
