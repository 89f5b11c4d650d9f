"""Records at hand: one line, a card, arrays, bands, spectra with their error bars."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from prismask.errors import ConfigError, ValuesError
from prismask.scenes.colour import THUMBNAIL_SIDE, to_srgb
from prismask.scenes.conversion import as_cube
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.spectra import Spectrum, draw_spectra, spectra_csv

NM = np.array([450.0, 500.0, 550.0, 600.0])
VALUES = np.random.default_rng(0).random((4, 6, 8), dtype=np.float32)


@pytest.fixture
def cube() -> Cube:
    return Cube(VALUES, NM, lower=VALUES - 0.1, upper=VALUES + 0.2, attrs={"interval": "90 %"})


def test_one_line(cube: Cube) -> None:
    assert repr(cube) == "<Cube 4 bands × 6×8, 450–600 nm, with interval>"
    assert repr(Cube(VALUES)) == "<Cube 4 bands × 6×8>"
    assert repr(Mask(np.full((6, 8), 0.5))) == "<Mask 6×8, 50 % open>"
    assert repr(Measurement(np.eye(6))) == "<Measurement 6×6, 0 to 1>"


@pytest.mark.parametrize("nm", [NM, None, NM + 2000])
def test_the_card_has_a_thumbnail_and_is_safe(nm: np.ndarray | None) -> None:
    large = np.broadcast_to(VALUES[:, :1, :1], (4, 400, 900))
    attrs = {
        "title": "<script>", "findings": ["warning: a & b"], "residual": "residual 0.1 rms",
        "trust_grade": "poor", "trust_because": "the snapshot contradicts its mask.",
    }  # fmt: skip
    html = Cube(large, nm, attrs=attrs)._repr_html_()
    assert "trust: poor. The snapshot contradicts its mask.<br>self-check: residual 0.1 rms" in html
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert "warning: a &amp; b" in html
    picture = Image.open(io.BytesIO(base64.b64decode(html.split("base64,")[1].split('"')[0])))
    assert max(picture.size) <= THUMBNAIL_SIDE
    for other in (Mask(VALUES), Measurement(VALUES[0])):
        assert "data:image/png" in other._repr_html_()


def test_numpy_sees_the_data(cube: Cube) -> None:
    assert np.asarray(cube) is cube.values or np.shares_memory(np.asarray(cube), cube.values)
    assert np.asarray(cube, dtype=np.float64).dtype == np.float64
    assert np.array(cube).flags.writeable
    np.testing.assert_array_equal(np.asarray(Mask(VALUES[0])), VALUES[0])
    np.testing.assert_allclose(np.mean(Measurement(VALUES[0])), VALUES[0].mean())


def test_xarray_has_pixels_and_comes_back(cube: Cube) -> None:
    data = cube.to_xarray()
    assert list(data["y"].values) == list(range(6))
    assert list(data["x"].values) == list(range(8))
    again = as_cube(data)
    np.testing.assert_array_equal(again.values, cube.values)
    np.testing.assert_array_equal(again.wavelengths, NM)
    assert again.lower is not None


def test_a_band_by_its_wavelength(cube: Cube) -> None:
    band = cube.sel(wavelength=555)
    np.testing.assert_array_equal(band.values, VALUES[2])
    np.testing.assert_allclose(band["cube_lower"].values, VALUES[2] - 0.1, rtol=1e-6)
    part = cube.sel(wavelength=slice(490, 610), y=2)
    np.testing.assert_array_equal(part.values, VALUES[1:, 2])
    back = as_cube(cube.sel(wavelength=slice(490, 610)))
    assert back.bands == 3
    assert back.lower is not None
    assert cube.band(480) == 1
    with pytest.raises(ConfigError, match="this cube runs from 450 to 600"):
        cube.sel(wavelength=700)
    with pytest.raises(ConfigError, match="this cube runs from 0 to 7"):
        cube.sel(x=8)
    with pytest.raises(ConfigError, match="Did you mean 'wavelength'"):
        cube.sel(wavelngth=500)
    with pytest.raises(ConfigError, match="are unknown"):
        Cube(VALUES).sel(wavelength=500)
    with pytest.raises(ValuesError, match="are unknown"):
        Cube(VALUES).band(500)


def test_rgb_is_what_render_shows(cube: Cube) -> None:
    np.testing.assert_array_equal(cube.rgb("D65", 1.5), to_srgb(cube, "D65", 1.5))


def test_the_spectrum_of_a_pixel_and_of_regions(cube: Cube) -> None:
    pixel = cube.spectrum(3, 5)
    np.testing.assert_allclose(pixel.values, VALUES[:, 5, 3])
    assert pixel.lower is not None
    np.testing.assert_allclose(pixel.lower, VALUES[:, 5, 3] - 0.1, rtol=1e-6)
    assert pixel.band_meaning == "90 %"
    assert pixel.name == "x3 y5"
    box = cube.spectrum((1, 2, 3, 4))
    wanted = VALUES[:, 2:5, 1:4].mean(axis=(1, 2))
    np.testing.assert_allclose(box.values, wanted, rtol=1e-6)
    marked = np.zeros((6, 8), dtype=bool)
    marked[2:5, 1:4] = True
    corners = [(1, 2), (4, 2), (4, 5), (1, 5)]
    for where in (marked, corners):
        np.testing.assert_allclose(cube.spectrum(where).values, wanted, rtol=1e-6)
        assert cube.spectrum(where).pixels == 9
    spread = Cube(VALUES, NM, std=np.full_like(VALUES, 0.3)).spectrum(0, 0)
    assert spread.upper is not None
    np.testing.assert_allclose(spread.upper - spread.values, 0.3, rtol=1e-5)
    assert Cube(VALUES).spectrum(0, 0).lower is None


@pytest.mark.parametrize("where", [((0, 0, 8, 2),), (np.ones((3, 3), bool),), ("here",)])
def test_what_is_no_region_is_told(cube: Cube, where: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError, match="region"):
        cube.spectrum(*where)  # type: ignore[arg-type]  # wrong on purpose


def test_spectra_as_a_table(cube: Cube) -> None:
    rows = spectra_csv([cube.spectrum(0, 0), Spectrum(VALUES[:, 1, 1], NM, name="oak")]).split("\n")
    assert rows[0] == "wavelength_nm,x0 y0,x0 y0 lower,x0 y0 upper,oak"
    numbers = [float(cell) for cell in rows[1].split(",")]
    first = VALUES[0, 0, 0]
    assert numbers == pytest.approx([450, first, first - 0.1, first + 0.2, VALUES[0, 1, 1]])
    assert len(rows) == 6


def test_plots_draw_what_is_there(cube: Cube) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    cube.plot(ax=axes)
    np.testing.assert_array_equal(axes.images[0].get_array(), cube.rgb())
    axes = Figure().subplots()
    assert cube.plot(550, ax=axes) is axes
    np.testing.assert_array_equal(axes.images[0].get_array(), VALUES[2])
    axes = Figure().subplots()
    cube.spectrum(1, 1).plot(axes)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), VALUES[:, 1, 1])
    assert len(axes.collections) == 1
    for record in (Mask(VALUES), Measurement(VALUES[0])):
        record.plot(Figure().subplots())


@pytest.mark.parametrize(
    ("attrs", "shaded"),
    [
        ({"interval": "90 %, calibrated on 6 scenes"}, "90 % interval"),
        ({"interval": "quantiles of 4 samples, not calibrated"}, "quantiles of 4 samples"),
        ({}, "interval"),
    ],
)
def test_a_plot_says_what_is_shaded(attrs: dict[str, str], shaded: str) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    cube = Cube(VALUES, NM, lower=VALUES - 0.1, upper=VALUES + 0.2, attrs=attrs)
    spectra = [cube.spectrum(1, 2), cube.spectrum(3, 4)]
    drawn = draw_spectra(spectra, Figure().subplots())
    labels = [text.get_text() for text in drawn.get_legend().get_texts()]
    assert labels == [spectra[0].name, shaded, spectra[1].name], "once for all of them"
    bare = Cube(VALUES, NM).spectrum(1, 2).plot(Figure().subplots())
    assert len(bare.get_legend().get_texts()) == 1
