"""Simulated measurements and their history."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from prismask.errors import ConfigError, FormatError, ShapeError
from prismask.optics.camera import CASSI, camera_from_attrs
from prismask.optics.simulate import Gaussian, Quantise, Sensor, simulate
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.units import noted_scale, unscaled

CAMERA = CASSI.from_step(4, 2)


@pytest.fixture
def cube() -> Cube:
    values = np.random.default_rng(0).random((4, 12, 10), dtype=np.float32)
    return Cube(values, wavelengths=np.array([450.0, 500.0, 550.0, 600.0]))


@pytest.fixture
def mask() -> Mask:
    return Mask(np.random.default_rng(1).random((12, 10), dtype=np.float32))


def plain(cube: Cube, mask: Mask) -> np.ndarray:
    image = np.zeros((12, 16))
    for band in range(4):
        image[:, 2 * band : 2 * band + 10] += cube.values[band] * mask.values
    return image


def test_without_a_sensor_it_is_the_operator_times_the_scale(cube: Cube, mask: Mask) -> None:
    exact = plain(cube, mask)
    fitted = simulate(cube, mask, CAMERA)
    np.testing.assert_allclose(fitted.values, exact / exact.max(), atol=1e-6)
    assert fitted.values.max() == pytest.approx(1)
    np.testing.assert_allclose(unscaled(fitted), exact, rtol=1e-5, atol=1e-6)
    given = simulate(cube, mask, CAMERA, scale=0.5)
    np.testing.assert_allclose(given.values, exact / 2, rtol=1e-5, atol=1e-6)
    assert given.attrs["scale"] == 0.5


def test_white_exposure_is_the_same_for_every_scene(cube: Cube, mask: Mask) -> None:
    dark = Cube(cube.values / 7, cube.wavelengths)
    one, other = (simulate(c, mask, CAMERA, scale="white") for c in (cube, dark))
    assert one.attrs["scale"] == other.attrs["scale"]
    white = simulate(Cube(np.ones_like(cube.values)), mask, CAMERA, scale="white")
    assert white.values.max() == pytest.approx(1)


def test_one_seed_one_measurement(cube: Cube, mask: Mask) -> None:
    sensor = Sensor((Gaussian(0.01), Quantise(12)))
    one = simulate(cube, mask, CAMERA, sensor, seed=3)
    assert one.hash == simulate(cube, mask, CAMERA, sensor, seed=3).hash
    assert one.hash != simulate(cube, mask, CAMERA, sensor, seed=4).hash
    # A single stage is a sensor too, and noise is added in fractions of full scale.
    quiet = simulate(cube, mask, CAMERA)
    noise = simulate(cube, mask, CAMERA, Gaussian(0.05)).values - quiet.values
    assert noise.std() == pytest.approx(0.05, rel=0.2)


def test_the_history_is_written_down(cube: Cube, mask: Mask) -> None:
    made = simulate(cube, mask, CAMERA, Quantise(12), seed=8)
    attrs = made.attrs
    assert attrs["cube_hash"] == cube.hash
    assert attrs["mask_hash"] == mask.hash
    assert attrs["seed"] == 8
    assert attrs["sensor"] == "Quantise(bits=12)"
    assert attrs["wavelengths_nm"] == [450.0, 500.0, 550.0, 600.0]
    assert camera_from_attrs(attrs) == CAMERA
    assert json.loads(json.dumps(dict(attrs))) == attrs


@pytest.mark.parametrize(
    "camera", [CASSI((0.0,)), CASSI((3.5, 0.0, 1.0), "height", "dual"), CASSI.from_step(3, -1)]
)
def test_a_camera_survives_its_attributes(camera: CASSI) -> None:
    shape = camera.mask_size((6, 6))
    values = np.full((camera.bands, 6, 6), 0.5, np.float32)
    made = simulate(Cube(values), Mask(np.ones(shape, np.float32)), camera)
    assert camera_from_attrs(made.attrs) == camera
    assert camera_from_attrs({}) is None
    assert camera_from_attrs({"camera_offsets_px": 0.0}) == CASSI((0.0,))
    assert camera_from_attrs({"camera_offsets_px": np.array([0.0, 2.0])}) == CASSI((0.0, 2.0))
    for wrong in ("as in the manual", [], [[0.0, 2.0]], None):
        with pytest.raises(FormatError, match="lists the place of each band"):
            camera_from_attrs({"camera_offsets_px": wrong})


def test_a_mask_with_planes_and_a_black_scene(cube: Cube) -> None:
    planes = Mask(np.random.default_rng(2).random((4, 12, 10), dtype=np.float32))
    made = simulate(cube, planes, CAMERA, scale=1.0)
    exact = CAMERA.forward(torch.tensor(cube.values)[None], torch.tensor(planes.values))
    np.testing.assert_allclose(made.values, exact[0], rtol=1e-6)
    black = simulate(Cube(np.zeros((4, 12, 10), np.float32)), planes, CAMERA)
    assert not black.values.any()
    assert black.attrs["scale"] == 1.0


def test_what_does_not_fit_is_refused(cube: Cube, mask: Mask) -> None:
    with pytest.raises(ShapeError, match="cube has 4 bands; this camera disperses 28"):
        simulate(cube, mask, CASSI.from_step())
    small = Mask(mask.values[:8])
    with pytest.raises(ShapeError, match=r"8×10.*12×10.*larger mask"):
        simulate(cube, small, CAMERA)
    with pytest.raises(ConfigError, match="above 0"):
        simulate(cube, mask, CAMERA, scale=0.0)
    with pytest.raises(ConfigError, match="'fit' or 'white'"):
        simulate(cube, mask, CAMERA, scale="bright")  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [0.0, -2.0, np.inf, np.nan, "1:5000", None])
def test_an_exposure_is_a_number_above_0(scale: object) -> None:
    with pytest.raises(FormatError, match="it is a number above 0"):
        unscaled(Measurement(np.ones((3, 3)), {"scale": scale, "scale_rule": "given"}))


@pytest.mark.parametrize("scale", ["1:5000", 6.5, 0.0])
def test_a_scale_of_somebody_else_is_no_exposure(scale: object) -> None:
    foreign = Measurement(np.ones((3, 3)), {"scale": scale})
    assert noted_scale(foreign) == 1
    assert np.array_equal(unscaled(foreign), foreign.values)
    ours = Measurement(foreign.values, {"scale": np.float32(2.0), "scale_rule": "given"})
    assert np.array_equal(unscaled(ours), foreign.values / 2)
