"""CAVE folders as they are unpacked: nested, 16-bit, one scene in 8-bit RGBA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismask.errors import FormatError
from prismask.scenes.datasets import load_scenes
from prismask.scenes.formats.cave import WAVELENGTHS_NM
from prismask.scenes.formats.files import describe, load_cube

SIZE = (6, 7)


def planes(name: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(name)).random((31, *SIZE))


def add_scene(root: Path, name: str, rgba: bool = False) -> Path:
    """A scene in Columbia's layout, with the preview and the thumbnail file that come along."""
    folder = root / f"{name}_ms" / f"{name}_ms"
    folder.mkdir(parents=True)
    for band, plane in enumerate(planes(name), start=1):
        if rgba:
            grey = np.round(plane * 255).astype(np.uint8)
            pixels = np.stack([grey, grey, grey, np.full_like(grey, 255)], -1)
        else:
            pixels = np.round(plane * 65535).astype(np.uint16)
        Image.fromarray(pixels).save(folder / f"{name}_ms_{band:02d}.png")
    Image.fromarray(np.zeros((6, 7, 3), np.uint8)).save(folder / f"{name}_RGB.bmp")
    (folder / "Thumbs.db").write_bytes(b"x")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "cave"
    add_scene(root, "beads")
    add_scene(root, "watercolors", rgba=True)
    return root


@pytest.mark.parametrize("level", ["", "beads_ms", "beads_ms/beads_ms"])
def test_any_level_of_the_folders(root: Path, level: str) -> None:
    cube = load_cube(root / level, variable="beads")
    assert cube.values.shape == (31, *SIZE)
    np.testing.assert_allclose(cube.values, planes("beads"), atol=0.51 / 65535)
    assert cube.wavelengths is not None
    assert cube.wavelengths[[0, 1, 30]].tolist() == [400, 410, 700]


def test_the_scene_in_rgba(root: Path) -> None:
    cube = load_cube(root / "watercolors_ms")
    np.testing.assert_allclose(cube.values, planes("watercolors"), atol=0.51 / 255)
    assert cube.values.max() <= 1


def test_several_scenes_need_a_name(root: Path) -> None:
    with pytest.raises(FormatError, match=r"beads.*watercolors.*variable=NAME"):
        load_cube(root)
    facts = describe(root)
    assert [v["name"] for v in facts["variables"]] == ["beads", "watercolors"]
    assert "several" in facts["problem"]


def test_missing_bands_are_named(tmp_path: Path) -> None:
    folder = add_scene(tmp_path, "beads")
    (folder / "beads_ms_07.png").unlink()
    (folder / "beads_ms_30.png").unlink()
    with pytest.raises(FormatError, match=r"29 bands of 31; missing: 7, 30"):
        load_cube(tmp_path)


def test_bands_of_different_size(tmp_path: Path) -> None:
    folder = add_scene(tmp_path, "beads")
    Image.fromarray(np.zeros((3, 3), np.uint16)).save(folder / "beads_ms_07.png")
    with pytest.raises(FormatError, match="3×3, 6×7"):
        load_cube(tmp_path)


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="without CAVE scenes"):
        load_cube(tmp_path)


def test_as_a_data_set(root: Path) -> None:
    at = [455.0, 500.0, 699.0]
    found = load_scenes(root.parent, ["beads"], at)["beads"]
    stored = np.round(planes("beads") * 65535) / 65535
    expected = [np.interp(at, WAVELENGTHS_NM, stored[:, y, x]) for y in range(6) for x in range(7)]
    np.testing.assert_allclose(found.values.reshape(3, -1).T, expected, atol=1e-6)
