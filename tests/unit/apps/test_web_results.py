"""Results: what is shown of a cube, its pictures and its spectra."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from prismask.apps.web.api_pictures import render_beside
from prismask.apps.web.layers import (
    DIVERGING,
    Display,
    Picture,
    colour_table,
    layer_size,
    layers_of,
    render,
)
from prismask.apps.web.results import Result, ResultStore, top_of
from prismask.apps.web.server import address_of
from prismask.apps.web.site import PictureCache
from prismask.apps.web.spectra import spectra_csv, spectrum
from prismask.errors import ConfigError, DataMissingError, ShapeError, ValuesError
from prismask.scenes.formats.files import load_cube
from prismask.scenes.libraries import SpectralLibrary
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.regions import Polygon, Region, parse_region
from prismask.scenes.spectra import Spectrum

SHAPE = (3, 5, 7)
AT = [450.0, 550.0, 650.0]


@pytest.fixture
def full() -> Result:
    values = np.random.default_rng(0).random(SHAPE).astype(np.float32)
    std = np.full(SHAPE, 0.1, np.float32)
    cube = Cube(values, AT, std, values - 0.3, values + 0.2, {"interval": "80 %"})
    return Result(
        "a.nc", cube, Cube(values * 0.5, AT), Measurement(np.ones((5, 9))), Mask(np.ones((5, 7)))
    )


def test_a_reference_at_other_wavelengths_is_refused(full: Result) -> None:
    values = full.cube.values
    with pytest.raises(ValuesError, match="band 1 lies at 550 nm in the estimate and at 560 nm"):
        Result("x", full.cube, Cube(values, [450, 560, 650]))
    for near in ([450, 550.4, 650], None):
        assert Result("x", full.cube, Cube(values, near)).reference is not None


def pixels(picture: Picture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.content)).convert("RGB"))


def test_layers_are_those_that_the_result_has(full: Result) -> None:
    assert layers_of(full) == ["rgb", "band", "uncertainty", "error", "snapshot", "mask"]
    bare = Result("b", Cube(full.cube.values))
    assert layers_of(bare) == ["rgb", "band"]
    for layer in ("uncertainty", "error", "mask", "snapshot"):
        with pytest.raises(DataMissingError):
            render(bare, layer)


@pytest.mark.parametrize("layer", ["rgb", "band", "uncertainty", "error", "mask"])
def test_pictures_have_the_size_of_the_cube(full: Result, layer: str) -> None:
    assert pixels(render(full, layer, Display(2))).shape[:2] == (5, 7)  # type: ignore[arg-type]


def test_a_band_is_shown_in_its_colour_and_on_its_scale(full: Result) -> None:
    red = pixels(render(full, "band", Display(2))).astype(float)
    assert red[..., 0].sum() > 5 * red[..., 2].sum()
    dim = full.cube.values * np.array([0.01, 1, 1], np.float32)[:, None, None]
    result = Result("dim", Cube(dim, AT))
    each, alike = (pixels(render(result, "band", Display(0, s))).max() for s in ("band", "cube"))
    assert each == 255
    assert alike < 60


def test_error_is_white_where_there_is_none_and_red_where_too_bright() -> None:
    truth = np.full((1, 2, 2), 0.5, np.float32)
    cube = truth.copy()
    cube[0, 0, 0], cube[0, 1, 1] = 0.9, 0.1
    seen = pixels(render(Result("x", Cube(cube), Cube(truth)), "error"))
    assert seen[0, 1].min() > 230
    assert seen[0, 0, 0] > 2 * seen[0, 0, 2], "red"
    assert seen[1, 1, 2] > 2 * seen[1, 1, 0], "blue"


def test_colours_run_from_end_to_end() -> None:
    table = colour_table(DIVERGING)
    wanted = np.round(255 * np.array(DIVERGING))
    np.testing.assert_array_equal(table[[0, -1]], wanted[[0, -1]])
    even = colour_table(((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
    np.testing.assert_array_equal(even, np.arange(256)[:, None].repeat(3, 1))
    values = np.array([[[-9.0, -1.0, 1.0, 9.0]]], np.float32)
    shown = Display(low=-1.0, high=1.0)
    ends = pixels(render(Result("x", Cube(values)), "band", shown))[0, :, 0]
    assert list(ends) == [0, 0, 255, 255], "what lies beyond the limits is clipped"


def test_limits_by_percentile_by_hand_and_for_all_bands(full: Result) -> None:
    values = full.cube.values
    for stretch, clipped in (("percent1", 1), ("percent2", 2), ("full", 0)):
        made = render(full, "band", Display(1, stretch=stretch))  # type: ignore[arg-type]
        wanted = np.percentile(values[1], (clipped, 100 - clipped))
        np.testing.assert_allclose((made.low, made.high), wanted, rtol=1e-5)
    assert render(full, "band", Display(1)).low == 0.0
    both = [render(full, "band", Display(k, "cube", "full")) for k in (0, 2)]
    assert {(one.low, one.high) for one in both} == {(values.min(), values.max())}
    given = render(full, "band", Display(0, low=0.25, high=0.5))
    assert (given.low, given.high) == (0.25, 0.5)
    for low, high in ((None, 1.0), (1.0, 0.5), (0.0, float("nan"))):
        with pytest.raises(ConfigError, match="contrast limits"):
            Display(low=low, high=high)


def test_two_cubes_side_by_side_and_their_difference(full: Result) -> None:
    other = Result("b", Cube(full.cube.values * 0.5, AT))
    mine = render(full, "band", Display(1))
    theirs = render_beside(full, other, "other", Display(1))
    assert (theirs.low, theirs.high) == (mine.low, mine.high), "or nobody could compare them"
    assert pixels(theirs).sum() < pixels(mine).sum()
    more = render_beside(full, other, "difference", Display(1))
    assert more.low == -more.high  # type: ignore[operator]
    assert more.high == pytest.approx(np.max([top_of(b) for b in full.cube.values * 0.5]))
    red = pixels(more).astype(int)
    assert (red[..., 0] >= red[..., 2]).all(), "all of it is brighter here"
    with pytest.raises(ShapeError, match="side by side"):
        render_beside(full, Result("c", Cube(np.ones((3, 5, 6)), AT)), "other", Display())
    with pytest.raises(ValuesError):
        render_beside(
            full, Result("c", Cube(other.cube.values, [400, 500, 600])), "other", Display()
        )
    with pytest.raises(ConfigError, match="bands 0 to 2"):
        render_beside(full, other, "difference", Display(3))


def test_the_uncertainty_is_a_spread_or_half_an_interval(full: Result) -> None:
    values = full.cube.values
    np.testing.assert_allclose(full.uncertainty(1), 0.1)
    bounds = Result("b", Cube(values, AT, lower=values - 0.3, upper=values + 0.2))
    np.testing.assert_allclose(bounds.uncertainty(1), 0.25, rtol=1e-5)
    assert bounds.uncertainty_top == pytest.approx(0.25, rel=1e-5)
    for incomplete in (Cube(values, AT), Cube(values, AT, lower=values - 0.3)):
        with pytest.raises(DataMissingError, match="no error bars"):
            Result("c", incomplete).uncertainty(1)


def test_each_difference_has_its_own_scale(full: Result) -> None:
    """Whichever of several results was compared first."""
    half, most = (Result(name, Cube(full.cube.values * part, AT)) for name, part in
                  (("b", 0.5), ("c", 0.9)))  # fmt: skip
    far, near, again = (
        render_beside(full, other, "difference", Display(1)).high for other in (half, most, half)
    )
    assert far == again == pytest.approx(5 * (near or 0), rel=1e-4)


def test_a_smaller_picture_shows_the_means(full: Result) -> None:
    shown = Display(1, low=0.0, high=1.0, reduction=2)
    small = pixels(render(full, "band", shown)).max(axis=-1)
    assert small.shape == (3, 4)
    block = full.cube.values[1, 2:4, 4:6].mean()
    lone = Result("x", Cube(np.full((3, 1, 1), block, np.float32), AT))
    alone = pixels(render(lone, "band", Display(1, low=0.0, high=1.0))).max(axis=-1)
    assert abs(int(small[1, 2]) - int(alone[0, 0])) <= 1
    for layer in layers_of(full):
        assert pixels(render(full, layer, Display(reduction=2))).shape[0] == 3


def test_band_out_of_range(full: Result) -> None:
    for band in (-1, 3, 10**9):
        with pytest.raises(ConfigError, match="bands 0 to 2"):
            render(full, "band", Display(band))


def test_a_reference_of_another_shape_is_refused(full: Result) -> None:
    with pytest.raises(ShapeError, match="3×5×7"):
        Result("x", full.cube, Cube(np.ones((2, 5, 7))))


def test_top_of_black_is_one() -> None:
    assert top_of(np.zeros((4, 4))) == 1.0


def test_spectrum_is_the_mean_of_the_region(full: Result) -> None:
    found = spectrum(full, Region(1, 2, 3, 4))
    part = full.cube.values[:, 2:5, 1:4]
    np.testing.assert_allclose(found["values"], part.mean(axis=(1, 2)), rtol=1e-6)
    np.testing.assert_allclose(np.subtract(found["values"], found["lower"]), 0.3, atol=1e-6)
    np.testing.assert_allclose(np.subtract(found["upper"], found["values"]), 0.2, atol=1e-6)
    np.testing.assert_allclose(found["reference"], np.multiply(found["values"], 0.5), rtol=1e-6)
    assert (found["pixels"], found["wavelengths"], found["band_meaning"]) == (9, AT, "80 %")


def test_spectrum_with_a_standard_deviation_or_nothing(full: Result) -> None:
    cube = full.cube
    one = spectrum(Result("x", Cube(cube.values, AT, cube.std)), Region(0, 0, 0, 0))
    np.testing.assert_allclose(np.subtract(one["upper"], one["lower"]), 0.2, atol=1e-6)
    none = spectrum(Result("x", Cube(cube.values)), Region(0, 0, 0, 0))
    assert (none["lower"], none["wavelengths"], none["band_meaning"]) == (None, None, None)


@pytest.mark.parametrize("text", ["", "1,2,3", "a,b,c,d", "1,2,3,4,5", "1.5,2,3,4", "0,0,99,0",
                                  "-1,0,0,0", "3,0,2,0", "1e9,0,0,0", "0,0,9,0,9,9", "1,1,1,1,1,1",
                                  "0,0,nan,1,2,2", "0,0,3,0,3", "0,0,-1,2,3,3"])  # fmt: skip
def test_regions_that_are_none(full: Result, text: str) -> None:
    with pytest.raises(ConfigError):
        spectrum(full, parse_region(text))


def test_a_polygon_holds_the_pixels_whose_middle_is_inside(full: Result) -> None:
    square = parse_region("1,2,4,2,4,5,1,5")
    same = Region(1, 2, 3, 4)
    assert isinstance(square, Polygon)
    assert (square.box, square.pixels) == (same, same.pixels)
    found, wanted = spectrum(full, square), spectrum(full, same)
    for key in ("values", "lower", "upper", "reference"):
        np.testing.assert_allclose(found[key], wanted[key], rtol=1e-12)
    triangle = parse_region("0,0,4,0,0,4")
    inside = [(y, x) for y in range(5) for x in range(7) if x + y + 1 < 4]
    assert triangle.pixels == len(inside)
    picked = [full.cube.values[1, y, x] for y, x in inside]
    np.testing.assert_allclose(spectrum(full, triangle)["values"][1], np.mean(picked), rtol=1e-6)
    notch = parse_region("0,0,6,0,6,4,3,1,0,4")
    assert isinstance(notch, Polygon)
    assert notch.pixels < 24, "a polygon may be hollow on one side"
    head = spectra_csv(full, [square]).splitlines()[0].split(",")
    assert head[1:3] == ["polygon x1-3 y2-4", "polygon x1-3 y2-4 lower"]


def test_csv(full: Result) -> None:
    rows = spectra_csv(full, [Region(0, 0, 0, 0), Region(1, 1, 2, 2)]).splitlines()
    assert rows[0].split(",")[:3] == ["wavelength_nm", "x0 y0", "x0 y0 lower"]
    assert len(rows) == 4
    assert {len(row.split(",")) for row in rows} == {9}
    np.testing.assert_allclose(float(rows[2].split(",")[1]), full.cube.values[1, 0, 0], rtol=1e-5)
    with pytest.raises(ConfigError):
        spectra_csv(full, [])
    with pytest.raises(ConfigError):
        spectra_csv(full, [Region(0, 0, 0, 0)] * 65)


def test_the_store_forgets_the_oldest_where_memory_ends(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, most_bytes=2500)
    results = [store.add(Result(str(k), Cube(np.ones((1, 10, 25))))) for k in range(3)]
    assert len({one.id for one in results}) == 3
    with pytest.raises(DataMissingError):
        store.get(results[0].id)
    assert store.get(results[2].id) is results[2]


def test_error_bars_and_what_it_was_made_from_count_as_memory(full: Result) -> None:
    plane = 4 * 3 * 5 * 7
    # Value, spread and both ends; the reference; snapshot and mask.
    assert full.nbytes == 4 * plane + plane + 4 * (5 * 9 + 5 * 7)
    assert Result("bare", Cube(full.cube.values)).nbytes == plane


def test_the_file_of_a_result_goes_with_it(tmp_path: Path, full: Result) -> None:
    store = ResultStore(tmp_path, most_bytes=10**9)
    store.add(full)
    path = store.netcdf(full.id)
    np.testing.assert_array_equal(load_cube(path).values, full.cube.values)
    store.remove(full.id)
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_made_once_for_all_who_wait() -> None:
    made: list[int] = []

    def make() -> bytes:
        time.sleep(0.05)
        made.append(threading.get_ident())
        return b"picture"

    async def ask() -> None:
        cache = PictureCache(1000)
        got = await asyncio.gather(*(cache.get("key", make) for _ in range(20)))
        assert set(got) == {b"picture"}
        await cache.get("key", make)

    asyncio.run(ask())
    assert len(made) == 1
    assert made[0] != threading.get_ident(), "the event loop must go on meanwhile"


def test_a_picture_that_fails_is_tried_again_and_old_ones_go() -> None:
    async def ask() -> None:
        cache = PictureCache(10)
        tries = iter([ValueError("first"), b"123456"])

        def make() -> bytes:
            one = next(tries)
            if isinstance(one, Exception):
                raise one
            return one

        with pytest.raises(ValueError, match="first"):
            await cache.get("a", make)
        assert await cache.get("a", make) == b"123456"
        await cache.get("b", lambda: b"1234567")
        assert await cache.get("a", lambda: b"again") == b"again"

    asyncio.run(ask())


def test_materials_are_beside_a_spectrum(full: Result) -> None:
    nm = full.cube.wavelengths
    assert nm is not None
    here = full.cube.spectrum(0, 0)
    library = SpectralLibrary((
        Spectrum(here.values[::-1].copy() + 1, nm, name="another"),
        Spectrum(3 * here.values, nm, name="itself"),
    ))  # fmt: skip
    found = spectrum(replace(full, library=library), Region(0, 0, 0, 0))["materials"]
    assert [one["name"] for one in found] == ["itself", "another"]
    assert found[0]["angle"] == pytest.approx(0, abs=1e-4)
    np.testing.assert_allclose(found[0]["values"], here.values, rtol=1e-6)
    assert spectrum(full, Region(0, 0, 0, 0))["materials"] == []


def test_every_layer_has_the_size_of_its_own_record(full: Result) -> None:
    height, width = full.cube.size
    shot, mask = Measurement(np.ones((height, width + 7))), Mask(np.ones((height + 1, width + 2)))
    shown = Result("x", full.cube, snapshot=shot, mask=mask)
    assert layer_size(shown, "snapshot") == shot.size
    assert layer_size(shown, "mask") == mask.size
    assert layer_size(shown, "rgb") == layer_size(full, "band") == full.cube.size


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:8000/"), ("::1", "http://[::1]:8000/"),
     ("lab.example", "http://lab.example:8000/"),
     ("0.0.0.0", f"http://{socket.gethostname()}:8000/")],
)  # fmt: skip
def test_the_address_to_type_into_a_browser(host: str, address: str) -> None:
    listening = SimpleNamespace(getsockname=lambda: (host, 8000))
    assert address_of(listening, host) == address  # type: ignore[arg-type]
