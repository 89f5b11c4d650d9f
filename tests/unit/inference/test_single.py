"""One snapshot to one cube: units, wavelengths, provenance, devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from prismask.errors import ConfigError, ShapeError
from prismask.inference.reconstruct import reconstruct
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA = CASSI.from_step(6, 1.0)


def _mask(size: tuple[int, int] = (32, 32)) -> Mask:
    return Mask(fabricate_mask(size, seeded(0)).numpy())


def _scene() -> Cube:
    return random_scene(0, (32, 32), np.linspace(450, 650, 6))


def test_cube_is_in_the_scenes_units_and_carries_its_history() -> None:
    scene, mask = _scene(), _mask()
    snapshot = simulate(scene, mask, CAMERA, scale="fit")
    cube = reconstruct(snapshot, mask, iterations=30)
    assert cube.values.shape == scene.values.shape
    assert cube.values.mean() == pytest.approx(scene.values.mean(), rel=0.05)
    error = np.sqrt(np.mean((cube.values - scene.values) ** 2))
    assert error < 0.7 * scene.values.std()
    np.testing.assert_array_equal(cube.wavelengths, scene.wavelengths)
    assert cube.attrs["measurement_hash"] == snapshot.hash
    assert cube.attrs["mask_hash"] == mask.hash
    assert cube.attrs["method"] == "gap-tv"
    assert "iterations=30" in cube.attrs["method_options"]
    assert cube.attrs["camera_offsets_px"] == list(CAMERA.offsets)
    assert cube.attrs["wavelengths_from"] == "measurement"


def test_the_scale_of_the_exposure_does_not_matter() -> None:
    scene, mask = _scene(), _mask()
    dim, bright = (
        reconstruct(simulate(scene, mask, CAMERA, scale=scale), mask, iterations=3)
        for scale in (0.01, 1.0)
    )
    np.testing.assert_allclose(dim.values, bright.values, atol=1e-4)


@pytest.mark.filterwarnings("ignore:the mask's planes are for:prismask.errors.PrismaskWarning")
def test_a_mask_for_other_wavelengths_is_told() -> None:
    scene = _scene()
    planes = np.repeat(_mask().values[None], 6, 0)
    right, wrong = (Mask(planes, scene.wavelengths + moved) for moved in (1.0, 60.0))
    snapshot = simulate(scene, right, CAMERA)
    for mask in (right, wrong):
        findings = " ".join(reconstruct(snapshot, mask, iterations=1).attrs["findings"])
        assert ("the mask's planes are for 510 to 710 nm" in findings) == (mask is wrong)


@pytest.mark.filterwarnings("ignore:.*overexposed:prismask.errors.PrismaskWarning")
def test_where_wavelengths_come_from() -> None:
    mask = _mask((8, 8))
    plain = Measurement(np.random.default_rng(0).random((8, 13)))
    assert reconstruct(plain, mask, CAMERA, iterations=1).wavelengths is None
    given = np.linspace(500, 600, 6)
    cube = reconstruct(plain, mask, CAMERA, wavelengths=given, iterations=1)
    np.testing.assert_array_equal(cube.wavelengths, given)
    usual = reconstruct(Measurement(np.ones((8, 62))), mask, iterations=1)
    np.testing.assert_array_equal(usual.wavelengths, WAVELENGTHS_NM)
    assert usual.attrs["wavelengths_from"] == "default"
    with pytest.raises(ShapeError, match="wavelengths"):
        reconstruct(plain, mask, CAMERA, wavelengths=[500.0], iterations=1)


@pytest.mark.filterwarnings("ignore:.*overexposed:prismask.errors.PrismaskWarning")
def test_progress_is_called() -> None:
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int, info: Mapping[str, Any]) -> None:
        calls.append((done, total))

    snapshot = Measurement(np.ones((8, 13)))
    reconstruct(snapshot, _mask((8, 8)), CAMERA, progress=progress, iterations=4)
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_does_not_fit_is_told() -> None:
    snapshot = Measurement(np.ones((8, 13)))
    with pytest.raises(ShapeError, match="need a measurement of 8×14"):
        reconstruct(snapshot, _mask((8, 9)), CAMERA)
    with pytest.raises(ConfigError, match="Did you mean 'gap-tv'"):
        reconstruct(snapshot, _mask((8, 8)), CAMERA, method="gaptv")
    with pytest.raises(ConfigError, match="Did you mean 'iterations'"):
        reconstruct(snapshot, _mask((8, 8)), CAMERA, iteration=3)
