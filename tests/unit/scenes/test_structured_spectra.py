"""Planted structure is where and what it says; the scene beside it lacks that alone."""

from __future__ import annotations

import numpy as np
import pytest

from prismask.errors import ConfigError, ShapeError
from prismask.scenes.colour import lamp_in_bands
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube
from prismask.scenes.synthetic import random_scene
from prismask.scenes.synthetic.spectra import Feature, Planted, line_in_bands, plant, smoothed

AT = np.array(WAVELENGTHS_NM)


@pytest.fixture(scope="module")
def scene() -> Cube:
    return random_scene(5, (48, 48))


def _structure(planted: Planted) -> np.ndarray:
    """Mean structure `(C,)` of the pixels that have it."""
    return (planted.values - planted.smooth)[:, planted.where].mean(1)


@pytest.mark.parametrize(
    "feature",
    [
        Feature("smooth"), Feature("line", 5.0), Feature("line", 40.0), Feature("cosine", 4.0),
        Feature("dips", 20.0), Feature("laser"), Feature("lamp", lamp="HP1"),
    ],
)  # fmt: skip
def test_planted_scenes_are_cubes_that_a_seed_repeats(scene: Cube, feature: Feature) -> None:
    planted = plant(scene, feature, 3)
    assert planted.values.shape == planted.smooth.shape == scene.values.shape
    assert planted.values.dtype == np.float32
    assert planted.values.min() >= 0
    assert planted.values.max() <= 1 + 1e-6
    assert planted.where.any()
    np.testing.assert_array_equal(planted.values, plant(scene, feature, 3).values)


def test_a_smooth_scene_is_as_it_was(scene: Cube) -> None:
    planted = plant(scene, Feature("smooth"))
    np.testing.assert_array_equal(planted.values, planted.smooth)
    np.testing.assert_allclose(planted.values, scene.values / scene.values.max(), rtol=1e-6)
    assert not planted.bands.any()


def test_a_line_has_its_width_and_its_place() -> None:
    fine = np.arange(500.0, 600.0, 0.25)
    line = line_in_bands(fine, 551.0, 10.0)
    wide = fine[line >= 0.5]
    assert wide[-1] - wide[0] == pytest.approx(10.0, abs=0.5)
    assert fine[line.argmax()] == pytest.approx(551.0, abs=0.25)


def test_lines_and_dips_keep_their_distance_from_the_ends(scene: Cube) -> None:
    found = {size: [plant(scene, Feature(kind, size), seed).centres for seed in range(60)]
             for kind, size in (("line", 8.0), ("dips", 60.0))}  # fmt: skip
    for centres in (np.array(found[8.0]), np.array(found[60.0])):
        assert AT[0] + 25 <= centres.min() < AT[0] + 35
        assert AT[-1] - 35 < centres.max() <= AT[-1] - 25


def test_a_line_narrower_than_a_band_is_not_lost_between_two_centres() -> None:
    middle = (AT[20] + AT[21]) / 2
    line = line_in_bands(AT, middle - 1.0, 0.5)
    assert line.argmax() == 20
    assert line.max() == 1.0


def test_a_planted_line_lies_in_its_patches_alone(scene: Cube) -> None:
    planted = plant(scene, Feature("line", 5.0), 8)
    found = planted.values - planted.smooth
    (centre,) = planted.centres
    strongest = AT[_structure(planted).argmax()]
    assert abs(strongest - centre) <= np.diff(AT).max()
    assert found[:, ~planted.where].max() < found[:, planted.where].max() / 1.9
    assert planted.bands[np.abs(AT - centre).argmin()]
    far = np.abs(AT - centre) > 30
    np.testing.assert_allclose(found[far], 0, atol=1e-6)


def test_a_cosine_has_its_period(scene: Cube) -> None:
    planted = plant(scene, Feature("cosine", 7.0), 1)
    relative = (planted.values / np.maximum(planted.smooth, 1e-6) - 1)[:, planted.where].mean(1)
    assert np.abs(np.fft.rfft(relative)).argmax() == len(AT) // 7


def test_dips_are_two_and_as_far_apart_as_asked(scene: Cube) -> None:
    planted = plant(scene, Feature("dips", 40.0), 2)
    assert planted.centres[1] - planted.centres[0] == pytest.approx(40.0)
    dip = _structure(planted)
    first, middle, second = (
        dip[np.abs(AT - at).argmin()]
        for at in (planted.centres[0], sum(planted.centres) / 2, planted.centres[1])
    )
    assert first < middle / 2
    assert second < middle / 2


def test_a_scene_under_a_lamp_has_its_light(scene: Cube) -> None:
    planted = plant(scene, Feature("lamp", lamp="FL11"))
    light = lamp_in_bands("FL11", AT)
    spectrum = planted.values.sum((1, 2)) / scene.values.sum((1, 2))
    np.testing.assert_allclose(spectrum / spectrum.max(), light, rtol=1e-4)
    without = planted.smooth.sum((1, 2)) / scene.values.sum((1, 2))
    np.testing.assert_allclose(without / spectrum.max(), smoothed(light, AT), rtol=1e-4)
    assert planted.bands[light.argmax()]


def test_smoothing_leaves_an_even_light_alone() -> None:
    np.testing.assert_allclose(smoothed(np.ones(len(AT)), AT), 1.0)


def test_what_cannot_be_planted_is_refused(scene: Cube) -> None:
    with pytest.raises(ConfigError, match="line"):
        Feature("lines", 5.0)
    with pytest.raises(ConfigError, match="more than 0"):
        Feature("line")
    with pytest.raises(ConfigError, match="outside"):
        line_in_bands(AT, 900.0, 5.0)
    with pytest.raises(ShapeError, match="wavelengths"):
        plant(Cube(scene.values), Feature("line", 5.0))
