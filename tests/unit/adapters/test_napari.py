"""Records as napari's layers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from prismask import Cube, Mask, Measurement, save
from prismask.adapters import get_reader
from prismask.adapters import napari as adapter

MANIFEST = Path(adapter.__file__).with_name("napari.yaml")


def test_a_cube_and_its_interval(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    cube = Cube(values, [450, 550, 650], lower=values - 0.1, upper=values + 0.2)
    save(cube, tmp_path / "cube.nc")
    reader = get_reader(str(tmp_path / "cube.nc"))
    assert reader is not None
    (shown, told, kind), (width, beside, _) = reader(str(tmp_path / "cube.nc"))
    np.testing.assert_array_equal(shown, values)
    assert kind == "image"
    assert told["name"] == "cube"
    assert told["axis_labels"] == ("band", "y", "x")
    assert told["metadata"]["wavelengths_nm"] == [450, 550, 650]
    assert told["contrast_limits"][0] == 0
    np.testing.assert_allclose(width, 0.3, atol=1e-6)
    assert beside["visible"] is False


def test_several_files_and_even_ones(tmp_path: Path) -> None:
    save(Mask(np.zeros((4, 5))), tmp_path / "mask.nc")
    save(Measurement(np.ones((4, 9))), tmp_path / "shot.nc")
    paths = [str(tmp_path / name) for name in ("mask.nc", "shot.nc")]
    reader = get_reader(paths)
    assert reader is not None
    layers = reader(paths)
    assert [told["axis_labels"] for _, told, _ in layers] == [("y", "x")] * 2
    for _, told, _ in layers:
        low, high = told["contrast_limits"]
        assert low < high


def test_strangers_are_left_to_other_readers(tmp_path: Path) -> None:
    (tmp_path / "notes.nc").write_text("not a cube")
    assert get_reader(str(tmp_path / "notes.nc")) is None
    assert get_reader(str(tmp_path / "missing.nc")) is None


def test_the_manifest_names_what_is_there() -> None:
    text = MANIFEST.read_text(encoding="utf-8")
    module, _, function = text.split("python_name: ")[1].split()[0].partition(":")
    assert getattr(import_module(module), function) is get_reader
    toml = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'prismask = "prismask.adapters:{MANIFEST.name}"' in toml


def test_npe2_accepts_the_manifest() -> None:
    npe2 = pytest.importorskip("npe2", reason="npe2 is not installed (extra: napari)")
    manifest = npe2.PluginManifest.from_file(MANIFEST)
    assert manifest.contributions.readers[0].command == "prismask.read"


@pytest.mark.filterwarnings("ignore")  # napari's own
def test_the_wavelength_of_the_band_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    napari = pytest.importorskip("napari", reason="napari is not installed")
    viewer = import_module("napari.components").ViewerModel()
    monkeypatch.setattr(napari, "current_viewer", lambda: viewer)
    values = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    save(Cube(values, [450, 550.25, 650]), tmp_path / "cube.nc")
    save(Mask(values[0]), tmp_path / "mask.nc")
    for _ in range(2):
        for name in ("cube.nc", "mask.nc"):
            for layer in adapter.read_layers(str(tmp_path / name)):
                viewer._add_layer_from_data(*layer)
    for band, text in enumerate(("450.0 nm", "550.2 nm", "650.0 nm")):
        viewer.dims.set_current_step(0, band)
        assert viewer.text_overlay.text == text
    assert viewer.text_overlay.visible
    for layer in viewer.layers:
        layer.visible = False
    assert not viewer.text_overlay.visible
    viewer.text_overlay.text = "somebody's own"
    adapter.tell_wavelength()
    assert viewer.text_overlay.text == "somebody's own"


@pytest.mark.filterwarnings("ignore")  # napari's own
def test_napari_opens_a_cube(tmp_path: Path) -> None:
    components = pytest.importorskip("napari.components", reason="napari is not installed")
    values = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    save(Cube(values, [450, 550, 650], lower=values, upper=values + 1), tmp_path / "cube.nc")
    viewer = components.ViewerModel()
    for layer in adapter.read_layers(str(tmp_path / "cube.nc")):
        viewer._add_layer_from_data(*layer)
    shown, width = viewer.layers
    assert (shown.name, shown.visible, width.visible) == ("cube", True, False)
    assert tuple(shown.axis_labels) == ("band", "y", "x")
    np.testing.assert_array_equal(shown.data, values)
