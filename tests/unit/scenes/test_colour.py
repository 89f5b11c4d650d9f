"""Colour against published values and against integration done another way."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from prismask.errors import ConfigError, PrismaskError, ShapeError, ValuesError
from prismask.scenes.colour import (
    auto_exposure,
    band_image,
    colour_checker_at,
    illuminant_at,
    srgb_matrix,
    to_linear_srgb,
    to_srgb,
    trapezoid_widths,
    wavelength_to_rgb,
)
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube

# The 8-bit sRGB values that the chart's maker publishes, row by row.
PUBLISHED = np.array(
    [
        [115, 82, 68], [194, 150, 130], [98, 122, 157], [87, 108, 67], [133, 128, 177],
        [103, 189, 170], [214, 126, 44], [80, 91, 166], [193, 90, 99], [94, 60, 108],
        [157, 188, 64], [224, 163, 46], [56, 61, 150], [70, 148, 73], [175, 54, 60],
        [231, 199, 31], [187, 86, 149], [8, 133, 161], [243, 243, 242], [200, 200, 200],
        [160, 160, 160], [122, 122, 121], [85, 85, 85], [52, 52, 52],
    ]
)  # fmt: skip

FULL = np.arange(380.0, 781.0, 5.0)


def chart(wavelengths: np.ndarray, light: str) -> Cube:
    """The ColorChecker lit by `light`, one pixel a patch, as `(C, 4, 6)`."""
    lit = colour_checker_at(wavelengths) * illuminant_at(light, wavelengths)
    return Cube(lit.T.reshape(len(wavelengths), 4, 6), wavelengths)


def difference(picture: np.ndarray) -> np.ndarray:
    """CIEDE2000 of each patch against its published colour."""
    seen = rgb2lab(picture.reshape(1, -1, 3) / 255.0)
    return np.asarray(deltaE_ciede2000(seen, rgb2lab(PUBLISHED[None] / 255.0)))[0]


def test_colour_checker_under_d65_has_its_published_colours() -> None:
    found = difference(to_srgb(chart(FULL, "D65"), "D65", exposure=1.0))
    assert found.mean() < 1.5
    assert found.max() < 2.5


def test_the_check_above_can_fail() -> None:
    """Taking D65 light for equal energy shifts every grey towards blue."""
    assert difference(to_srgb(chart(FULL, "D65"), "E", exposure=1.0)).mean() > 3


@pytest.mark.parametrize("light", ["A", "D50", "FL2"])
def test_white_balance_follows_the_light(light: str) -> None:
    picture = to_srgb(chart(FULL, light), light, exposure=1.0)
    greys = picture[3].astype(int)
    assert np.ptp(greys, axis=1).max() <= 4
    assert difference(picture).mean() < 5


def test_uneven_bands_count_by_their_width() -> None:
    """Doubling the density of samples in the red must not turn the picture red."""
    uneven = np.unique(np.concatenate([FULL, np.arange(600.0, 700.0, 0.5)]))
    found = difference(to_srgb(chart(uneven, "D65"), "D65", exposure=1.0))
    assert found.max() < 2.5


def test_grey_is_neutral_on_the_28_bands() -> None:
    wavelengths = np.array(WAVELENGTHS_NM)
    for light in ("E", "D65", "A"):
        grey = 0.4 * illuminant_at(light, wavelengths)
        cube = Cube(grey[:, None, None] * np.ones((1, 2, 2)), wavelengths)
        linear = to_linear_srgb(cube, light)
        np.testing.assert_allclose(linear, 0.4, rtol=2e-4)
        assert np.ptp(to_srgb(cube, light)) <= 1
    assert difference(to_srgb(chart(wavelengths, "D65"), "D65", exposure=1.0)).mean() < 4


def test_light_is_read_from_the_attributes() -> None:
    wavelengths = np.array(WAVELENGTHS_NM)
    plain = chart(wavelengths, "A")
    noted = Cube(plain.values, wavelengths, attrs={"illuminant": "A"})
    np.testing.assert_array_equal(to_srgb(noted), to_srgb(plain, "A"))
    assert not np.array_equal(to_srgb(plain), to_srgb(plain, "A"))


def test_light_may_be_an_array() -> None:
    cube = chart(FULL, "D65")
    by_name = to_srgb(cube, "D65")
    np.testing.assert_array_equal(by_name, to_srgb(cube, 3.0 * illuminant_at("D65", FULL)))
    with pytest.raises(ShapeError, match="illuminant"):
        to_srgb(cube, np.ones(5))
    with pytest.raises(ValuesError, match="illuminant"):
        to_srgb(cube, np.zeros(FULL.size))
    with pytest.raises(ValuesError, match="negative"):
        to_srgb(cube, np.where(FULL > 700, -0.1, 1.0))


def test_auto_exposure_ignores_overall_brightness_and_survives_black() -> None:
    cube = chart(FULL, "D65")
    darker = Cube(cube.values * 0.01, cube.wavelengths)
    np.testing.assert_array_equal(to_srgb(cube, "D65"), to_srgb(darker, "D65"))
    assert auto_exposure(darker, "D65") == pytest.approx(100 * auto_exposure(cube, "D65"))
    black = Cube(np.zeros((len(FULL), 3, 3)), FULL)
    assert auto_exposure(black) == 1.0
    assert not to_srgb(black).any()


def test_auto_exposure_shows_all_but_the_highlights_at_nine_tenths() -> None:
    """Where a few pixels are a hundred times as bright, the others are shown as without them."""
    grey = np.full((len(FULL), 20, 50), 0.3)
    grey[:, 0, :4] = 30.0
    picture = to_srgb(Cube(grey, FULL))
    # 0.9 of the light, by the formula of IEC 61966-2-1.
    assert np.all(picture[1:] == round(255 * (1.055 * 0.9 ** (1 / 2.4) - 0.055)))
    assert np.all(picture[0, :4] == 255)


@pytest.mark.parametrize("exposure", [0.0, -1.0, float("nan")])
def test_senseless_exposure_is_refused(exposure: float) -> None:
    with pytest.raises(ConfigError, match="exposure"):
        to_srgb(chart(FULL, "D65"), exposure=exposure)


def test_unknown_wavelengths_are_asked_for() -> None:
    with pytest.raises(PrismaskError, match=r"wavelengths .* unknown.*Give wavelengths in nm"):
        to_srgb(Cube(np.ones((4, 2, 2))))


def test_unknown_light_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'D65'"):
        to_srgb(chart(FULL, "D65"), "D66")


def test_infrared_only_is_refused() -> None:
    with pytest.raises(ValuesError, match="the eye sees only"):
        to_srgb(Cube(np.ones((3, 2, 2)), np.array([900.0, 1000.0, 1100.0])))


def test_a_camera_for_red_light_stays_red() -> None:
    red = np.arange(600.0, 700.0, 5.0)
    picture = to_srgb(Cube(np.ones((red.size, 2, 2)), red)).astype(int)
    assert (picture[..., 0] > picture[..., 1] + 50).all()


def test_matrix_maps_the_light_to_white() -> None:
    matrix = srgb_matrix(FULL, "FL2")
    np.testing.assert_allclose(matrix @ illuminant_at("FL2", FULL), 1.0, rtol=2e-4)


def test_trapezoid_widths_integrate_lines_exactly() -> None:
    at = np.array([1.0, 2.0, 4.0, 7.5])
    np.testing.assert_allclose(trapezoid_widths(at) @ (3 * at + 1), np.trapezoid(3 * at + 1, at))
    np.testing.assert_array_equal(trapezoid_widths([550.0]), [1.0])


def test_wavelengths_have_their_hue() -> None:
    colours = wavelength_to_rgb([460.0, 540.0, 640.0])
    np.testing.assert_array_equal(colours.argmax(axis=1), [2, 1, 0])
    assert wavelength_to_rgb(550.0).shape == (3,)
    infrared = wavelength_to_rgb(900.0)
    assert np.ptp(infrared) == 0
    assert colours.min() >= 0
    assert colours.max() <= 1


def test_band_image_scales_one_band() -> None:
    picture = band_image(np.array([[0.0, 0.5], [1.0, 2.0]]), 640.0, white=1.0)
    assert picture.shape == (2, 2, 3)
    assert not picture[0, 0].any()
    np.testing.assert_array_equal(picture[1, 0], picture[1, 1])
    assert not band_image(np.zeros((2, 2)), 500.0).any()


def test_numpy_prints_as_before() -> None:
    """colour-science changes NumPy's print options at import; that must not leak."""
    illuminant_at("D65", FULL)
    assert np.get_printoptions()["legacy"] is False
