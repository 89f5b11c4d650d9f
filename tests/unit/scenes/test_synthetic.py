"""Synthetic scenes: known spectra where they are promised, reproducible, in range."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from prismask.errors import PrismaskError
from prismask.scenes.colour import colour_checker_at, colour_checker_names, illuminant_at
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube
from prismask.scenes.synthetic.canvas import Canvas, layered_noise, smooth_noise, stripes
from prismask.scenes.synthetic.demo import colour_checker_boxes, demo_scene, random_scene


@pytest.fixture(scope="module")
def scene() -> Cube:
    return demo_scene(size=(128, 128))


def test_demo_scene_is_a_cube_in_range(scene: Cube) -> None:
    assert scene.values.shape == (len(WAVELENGTHS_NM), 128, 128)
    assert scene.values.min() >= 0
    assert 0.5 < scene.values.max() <= 1
    assert scene.attrs["illuminant"] == "D65"


def test_patches_hold_the_measured_reflectances(scene: Cube) -> None:
    """Divided by the lamp, every patch has the chart's spectrum up to one shading factor."""
    wavelengths = np.array(WAVELENGTHS_NM)
    lamp = illuminant_at("D65", wavelengths)
    known = dict(zip(colour_checker_names(), colour_checker_at(wavelengths), strict=True))
    for name, (rows, columns) in colour_checker_boxes((128, 128)).items():
        seen = scene.values[:, rows, columns].mean(axis=(1, 2)) / lamp
        factor = (seen @ known[name]) / (known[name] @ known[name])
        assert 0.6 < factor < 0.81
        np.testing.assert_allclose(seen, factor * known[name], rtol=1e-3)


def test_patch_boxes_do_not_touch_the_frame(scene: Cube) -> None:
    for rows, columns in colour_checker_boxes((128, 128)).values():
        block = scene.values[:, rows, columns]
        assert block.size > 0
        # Only the lamp's fall-off varies inside a patch.
        assert (np.ptp(block, axis=(1, 2)) < 0.05 * block.mean(axis=(1, 2))).all()


def test_demo_scene_is_reproducible_and_seeded() -> None:
    small = demo_scene((48, 48), seed=3)
    assert small.hash == demo_scene((48, 48), seed=3).hash
    assert small.hash != demo_scene((48, 48), seed=4).hash


def test_demo_scene_takes_any_size_bands_and_lamp() -> None:
    wavelengths = np.linspace(420, 700, 9)
    cube = demo_scene((40, 72), wavelengths, illuminant="A")
    assert cube.values.shape == (9, 40, 72)
    rows, columns = colour_checker_boxes((40, 72))["white 9.5 (.05 D)"]
    white = cube.values[:, rows, columns].mean(axis=(1, 2))
    # Incandescent light rises steadily towards the red.
    assert (np.diff(white) > 0).all()


def test_too_small_a_demo_scene_is_refused() -> None:
    with pytest.raises(PrismaskError, match="16×64 is too small"):
        demo_scene((16, 64))


def test_random_scene_is_reproducible_and_in_range() -> None:
    first = random_scene(7, (48, 64))
    assert first.values.shape == (28, 48, 64)
    assert first.hash == random_scene(np.random.default_rng(7), (48, 64)).hash
    assert first.hash != random_scene(8, (48, 64)).hash
    assert first.values.min() >= 0
    assert first.values.max() <= 1


def test_random_scenes_differ_and_have_detail_in_space_and_spectrum() -> None:
    generator = np.random.default_rng(0)
    cubes = [random_scene(generator, (48, 48), (450.0, 550.0, 650.0)) for _ in range(10)]
    assert len({cube.hash for cube in cubes}) == len(cubes)
    for cube in cubes:
        assert cube.values.std(axis=(1, 2)).max() > 0.02
        share = cube.values / cube.values.sum(axis=0).clip(1e-6)
        assert share.std(axis=(1, 2)).max() > 0.01


def test_random_scene_needs_neither_torch_nor_colour() -> None:
    code = (
        "import sys; from prismask.scenes.synthetic.demo import random_scene as make; "
        "make(0, (8, 8)); "
        "print(sorted({'torch', 'colour', 'xarray', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_noise_is_standardised_and_smooth() -> None:
    generator = np.random.default_rng(1)
    fine, coarse = (smooth_noise(generator, (64, 64), scale) for scale in (1.0, 6.0))
    for field in (fine, coarse, layered_noise(generator, (64, 64), 8)):
        assert field.std() == pytest.approx(1.0)
        assert field.mean() == pytest.approx(0.0, abs=1e-9)
    assert np.abs(np.diff(coarse)).mean() < 0.4 * np.abs(np.diff(fine)).mean()


def test_stripes_keep_their_duty() -> None:
    bars = stripes(np.linspace(0, 100, 100_000), period=10, duty=0.3, softness=0.02)
    assert bars.mean() == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("seed", [11, 14, 16])
def test_bright_random_scenes_end_at_full_scale(seed: int) -> None:
    values = random_scene(seed, (32, 32)).values
    assert values.max() == 1
    assert values.min() >= 0


@pytest.mark.parametrize("place", [(0, 0), (5, 3), (7, 9)])
def test_paint_covers_what_it_is_told_and_no_more(place: tuple[int, int]) -> None:
    canvas = Canvas((4, 5), 2)
    cover = np.zeros(canvas.shape)
    cover[place] = 0.5
    canvas.reflectance[:] = 0.2
    canvas.paint(cover, (0.6, 1.5), texture=1.0, shading=0.4, gloss=0.8)
    expected = np.full_like(canvas.reflectance, 0.2)
    expected[:, *place] = 0.2 + 0.5 * (np.array([0.6, 1.0]) - 0.2)
    np.testing.assert_allclose(canvas.reflectance, expected, rtol=1e-6)
    assert canvas.shading[place] == pytest.approx(0.7)
    assert canvas.gloss[place] == pytest.approx(0.4)
    assert (canvas.shading != 1).sum() == (canvas.gloss != 0).sum() == 1
    before = canvas.shading.copy()
    canvas.paint(cover, (0.1, 0.1))
    np.testing.assert_array_equal(canvas.shading, before)  # ink keeps the shading below
