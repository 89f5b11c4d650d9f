"""Split files: what they may say, and what they are told when they say something else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from prismask.errors import ConfigError, DataMissingError, OverlapError, ShapeError
from prismask.evaluation.protocol.scene_set import check_camera_bands
from prismask.evaluation.protocol.splits import group_names, read_evaluation_split
from prismask.optics.camera import resolve_camera

WHOLE = """
wavelengths_nm = [450, 500, 550, 600]
[scenes]
test = ["scene01", "lab/leaf.npz"]
[camera]
step_px = 1.5
axis = "height"
[masks.single]
file = "one.mat"
[masks.test_second]
file = "two.mat"
rows = [4, 40]
columns = [0, 30]
[protocols]
one-to-many = ["test_second"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "split.toml"
    path.write_text(text, encoding="utf-8")
    return path


def write_mask(path: Path, size: tuple[int, int], seed: int = 0) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    scipy.io.savemat(path, {"mask": np.random.default_rng(seed).random(size)})


def test_a_file_says_it_all(tmp_path: Path) -> None:
    write_mask(tmp_path / "two.mat", (40, 44))
    split = read_evaluation_split(None, write(tmp_path, WHOLE))
    assert split.scenes == ("scene01", "lab/leaf.npz")
    assert split.wavelengths == (450.0, 500.0, 550.0, 600.0)
    region = split.region("test_second")
    assert (region.rows, region.columns, region.name) == ((4, 40), (0, 30), "two")
    camera = resolve_camera(split.described_camera, bands=4).camera
    assert (camera.offsets, camera.axis) == ((0.0, 1.5, 3.0, 4.5), "height")
    assert group_names("one-to-many", split, None, False)[0] == ["test_second"]
    assert group_names("many-to-many", split, None, False)[0] == ["test_second"]
    assert group_names("one-to-one", split, None, False)[0] == ["single"]


def test_the_data_folder_s_own_split_and_files_beside_come_first(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_mask(data / "masks" / "one.mat", (20, 20), seed=1)
    facts = {
        "wavelengths_nm": [450, 550],
        "scenes": {"train": [], "validation": [], "test": ["scene01"]},
        "masks": {"single": {"file": "masks/one.mat"}},
    }
    (data / "splits.json").write_text(json.dumps(facts), encoding="utf-8")
    built_in = read_evaluation_split(data)
    assert built_in.scenes == ("scene01",)
    assert built_in.region("single").size == (20, 20)
    mine = tmp_path / "mine"
    write_mask(mine / "masks" / "one.mat", (30, 30))
    text = '[scenes]\ntest = ["a"]\n[masks.single]\nfile = "masks/one.mat"\n'
    assert read_evaluation_split(data, write(mine, text)).region("single").size == (30, 30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("scenes = 3", "must be a table"),
        ("[scenes]\ntest = []", "names no scenes"),
        ("[scene]\ntest = ['a']", "unknown key 'scene'. Did you mean 'scenes'"),
        ("[scenes]\ntest = ['a']\n[masks.a]\nrows = [0, 3]", "masks.a has no file"),
        ("[scenes]\ntest = ['a']\n[masks.a]\nfile = 'a'\nrows = 3", r"as in \[404, 660\]"),
        ("[scenes]\ntest = ['a']\n[protocols]\none-to-two = ['a']", "unknown protocol"),
        ("[scenes\n", "is not TOML"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_evaluation_split(None, write(tmp_path, text))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="no split file"):
        read_evaluation_split(None, tmp_path / "none.toml")
    split = read_evaluation_split(None, write(tmp_path, WHOLE))
    with pytest.raises(ConfigError, match="Did you mean 'test_second'"):
        split.region("test_secand")
    with pytest.raises(DataMissingError, match=r"two\.mat"):
        split.region("test_second")
    empty = read_evaluation_split(None, write(tmp_path, "[scenes]\ntest = ['a']"))
    with pytest.raises(ConfigError, match="no masks to test on"):
        group_names("many-to-many", empty, None, False)


@pytest.mark.parametrize("spread", ["offsets_px = [0.0, 1.9, 3.7, 5.0]", "step_px = 1.5"])
def test_axis_and_design_go_with_either_way_to_say_the_dispersion(
    tmp_path: Path, spread: str
) -> None:
    camera = f'[camera]\n{spread}\naxis = "height"\ndesign = "dual"\n'
    text = '[scenes]\ntest = ["scene01"]\n' + camera
    split = read_evaluation_split(None, write(tmp_path, text))
    found = resolve_camera(split.described_camera, bands=4).camera
    assert (found.design, found.axis) == ("dual", "height")
    assert found.offsets[1] == (1.9 if "1.9" in spread else 1.5)


def test_offsets_must_fit_the_bands(tmp_path: Path) -> None:
    text = "[scenes]\ntest = ['a']\n[camera]\noffsets_px = [0, 2.1, 3.9]\n"
    split = read_evaluation_split(None, write(tmp_path, text))
    camera = resolve_camera(split.described_camera, bands=3).camera
    assert camera.offsets == (0.0, 2.1, 3.9)
    with pytest.raises(ShapeError, match="camera has 3 bands and the scenes 4"):
        check_camera_bands(camera, 4)


def test_one_to_many_leaves_out_what_the_single_mask_shows(tmp_path: Path) -> None:
    write_mask(tmp_path / "a.mat", (60, 40))
    write_mask(tmp_path / "b.mat", (60, 40), seed=1)
    text = """
[scenes]
test = ["x"]
[masks.single]
file = "a.mat"
rows = [10, 26]
columns = [0, 16]
[masks.test_near]
file = "a.mat"
rows = [25, 60]
[masks.test_far]
file = "b.mat"
"""
    split = read_evaluation_split(None, write(tmp_path, text))
    names, remarks = group_names("one-to-many", split, None, False)
    assert names == ["test_far"]
    assert "test_near was left out" in remarks[0]
    assert group_names("one-to-many", split, None, True)[0] == ["test_near", "test_far"]
    assert group_names("many-to-many", split, None, False)[0] == ["test_near", "test_far"]
    assert group_names("one-to-many", split, ["test_near"], False)[0] == ["test_near"]
    alone = read_evaluation_split(None, write(tmp_path, text.replace("b.mat", "a.mat")))
    with pytest.raises(OverlapError, match="every group"):
        group_names("one-to-many", alone, None, False)
