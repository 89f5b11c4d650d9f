"""A camera measured from pictures of its mask: what was planted comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fine_mask import FineMask
from scipy.interpolate import CubicSpline
from scipy.ndimage import map_coordinates

import prismask
from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.optics.camera import (
    CameraDescription,
    camera_from_attrs,
    camera_notes,
    resolve_camera,
)
from prismask.optics.measured import measure_camera, transmission
from prismask.optics.simulate import simulate
from prismask.scenes.synthetic import demo_scene

HEIGHT, WIDTH = 64, 88
MASK = FineMask((HEIGHT, WIDTH))
NM = (450.0, 480.0, 520.0, 560.0, 610.0, 650.0)
PX = (0.0, 4.3, 9.15, 13.2, 17.3, 20.0)
"""A prism: blue is spread further than red."""
EXTENT = 20


def pictures(
    nm: tuple[float, ...] = NM, px: tuple[float, ...] = PX, slope: float = 0.0
) -> dict[float, Any]:
    sensor = (HEIGHT, WIDTH + EXTENT)
    return {
        w: MASK.picture(sensor, p, round(slope * p * 20) / 20) for w, p in zip(nm, px, strict=True)
    }


def test_a_planted_prism_comes_back() -> None:
    found = measure_camera(pictures())
    assert [place.along for place in found.places] == pytest.approx(PX, abs=0.03)
    assert [place.across for place in found.places] == pytest.approx([0] * 6, abs=0.03)
    # About 2 px a band, from end to end, equally far apart.
    assert found.camera.bands == 11
    assert found.camera.axis == "width"
    assert found.camera.offsets == pytest.approx(np.linspace(0, 20, 11), abs=0.03)
    assert (found.wavelengths[0], found.wavelengths[-1]) == pytest.approx((450, 650), abs=0.5)
    planted = CubicSpline(NM, PX)(found.wavelengths)
    assert planted == pytest.approx(np.linspace(0, 20, 11), abs=0.1)
    np.testing.assert_allclose(found.mask.values, MASK.picture((HEIGHT, WIDTH)), atol=0.06)
    assert found.misfit_px < 0.1
    assert found.findings == ()


def test_a_spectrum_to_the_left_and_one_along_the_height() -> None:
    back = measure_camera({nm: p[:, ::-1] for nm, p in pictures().items()})
    assert back.camera.offsets == pytest.approx(np.linspace(20, 0, 11), abs=0.03)
    # Offset 0 is the reddest band now; its picture begins where the mirrored mask does.
    expected = MASK.picture((HEIGHT, WIDTH + EXTENT), 20.0)[:, ::-1][:, :WIDTH]
    np.testing.assert_allclose(back.mask.values, expected, atol=0.06)
    upright = measure_camera({nm: p.T for nm, p in pictures().items()})
    assert upright.camera.axis == "height"
    assert upright.mask.size == (WIDTH, HEIGHT)
    np.testing.assert_allclose(upright.mask.values, MASK.picture((HEIGHT, WIDTH)).T, atol=0.06)


def test_bands_where_they_are_wanted() -> None:
    assert measure_camera(pictures(), bands=5).camera.offsets == pytest.approx(
        [0, 5, 10, 15, 20], abs=0.03
    )
    assert measure_camera(pictures(), step=1.0).camera.bands == 21
    asked = measure_camera(pictures(), wavelengths=[480, 520, 610])
    assert asked.camera.offsets == pytest.approx([0, 4.85, 13.0], abs=0.1)
    # The mask is that of the first band now: 4.3 px of the picture lie left of it.
    assert asked.mask.size == (HEIGHT, WIDTH + EXTENT - 13 - (asked.camera.extent - 13))
    seen = MASK.picture((HEIGHT, WIDTH + EXTENT), 4.3)[:, : asked.mask.size[1]]
    np.testing.assert_allclose(asked.mask.values, seen, atol=0.12)


def test_a_band_between_two_pictures_gets_a_mask_of_its_own() -> None:
    """At 465 nm there is no picture: the nearest one is moved by the rest."""
    found = measure_camera(pictures(), wavelengths=[465, 650], degree=2)
    place = 20.0 - found.camera.offsets[1]
    seen = MASK.picture((HEIGHT, WIDTH + EXTENT), round(place * 20) / 20)
    inner = np.s_[4:-4, 12:-12]
    error = found.mask.values[inner] - seen[:, : found.mask.size[1]][inner]
    assert float(np.sqrt(np.mean(error**2))) < 0.08


def test_what_is_worth_knowing_is_said() -> None:
    few = measure_camera(pictures(NM[::5], PX[::5]))
    assert "2 wavelengths" in few.findings[0]
    assert np.isnan(few.left_out_px)
    (leaning,) = measure_camera(pictures(slope=0.05)).findings
    assert "leaves its row by 1.0" in leaning
    bent = (0.0, 4.3, 9.15, 13.9, 17.3, 20.0)
    assert any("misses a measured place" in t for t in measure_camera(pictures(px=bent)).findings)


def test_a_lens_that_magnifies_by_wavelength_is_told() -> None:
    """Its likeness is still high, and the middle of the field is right."""
    shown = pictures()
    rows, columns = np.mgrid[:HEIGHT, : WIDTH + EXTENT].astype(float)
    at = ((rows - 32) / 1.012 + 32, (columns - 64) / 1.012 + 64)
    shown[650.0] = map_coordinates(shown[650.0], at, order=3)
    found = measure_camera(shown)
    assert found.places[-1].likeness > 0.8
    assert any("at 650 nm one quarter of the mask has moved by" in t for t in found.findings)


def test_what_cannot_be_a_camera() -> None:
    shown = pictures()
    with pytest.raises(ConfigError, match="two wavelengths"):
        measure_camera({450.0: shown[450.0]})
    with pytest.raises(ShapeError, match="of one sensor"):
        measure_camera({**shown, 700.0: shown[450.0][:, :-1]})
    other = FineMask((HEIGHT, WIDTH), seed=9).picture((HEIGHT, WIDTH + EXTENT))
    with pytest.raises(ValuesError, match="520 nm does not show the mask"):
        measure_camera({**shown, 520.0: other})
    with pytest.raises(ValuesError, match="swapped"):
        measure_camera({**shown, 520.0: shown[610.0], 610.0: shown[520.0]})
    with pytest.raises(ConfigError, match="degree 6 needs 7 wavelengths"):
        measure_camera(shown, degree=6)
    with pytest.raises(ConfigError, match="reach from 400 to 650"):
        measure_camera(shown, wavelengths=[400, 500, 650])
    with pytest.raises(ConfigError, match=r"moves by 20\.\d\d px only"):
        measure_camera(shown, step=60)
    for wrong in ({"step": 0.0}, {"step": float("nan")}, {"bands": 1}):
        with pytest.raises(ConfigError):
            measure_camera(shown, **wrong)  # type: ignore[arg-type]


def test_pictures_that_hardly_overlap_show_nothing_in_common() -> None:
    """Once moved, nothing is left of them between the borders that nobody can trust."""
    small = np.random.default_rng(0).random((10, 12))
    with pytest.raises(ValuesError, match="does not show the mask"):
        measure_camera({nm: np.roll(small, k, 1) for k, nm in enumerate((450.0, 550.0))})


def test_transmission_by_flat_and_dark() -> None:
    open_ = np.linspace(0, 1, 40).reshape(5, 8)
    light = np.full((5, 8), 0.5)
    light[:, 0] = 0.001  # outside the field
    found = transmission(0.1 + light * open_, 0.1 + light, np.full((5, 8), 0.1))
    np.testing.assert_allclose(found[:, 1:], open_[:, 1:], atol=1e-6)
    assert not found[:, 0].any()
    # Without a flat field the brightest cells are open, and nothing is beyond 1.
    bare = transmission(0.3 * open_)
    assert bare.max() == 1
    np.testing.assert_allclose(bare[:4], open_[:4], rtol=0.02)
    with pytest.raises(ValuesError, match="swapped"):
        transmission(light, light, light + 1)


@pytest.mark.parametrize("suffix", [".nc", ".mat", ".npz"])
def test_the_mask_file_says_all_about_the_camera(suffix: str, tmp_path: Path) -> None:
    found = measure_camera(pictures())
    path = tmp_path / f"lab{suffix}"
    prismask.save(found.mask, path)
    mask = prismask.load_mask(path)
    noted = camera_from_attrs(mask.attrs)
    assert noted is not None
    assert noted.offsets == pytest.approx(found.camera.offsets)
    scene = demo_scene((HEIGHT, WIDTH), found.wavelengths)
    shot = simulate(scene, found.mask, found.camera)
    bare = prismask.Measurement(shot.values)
    cube = prismask.reconstruct(bare, path, method="gap-tv", iterations=2)
    assert cube.bands == 11
    np.testing.assert_allclose(cube.wavelengths, found.wavelengths)
    assert cube.attrs["wavelengths_from"] == "mask"
    # A curve that is given instead is read at the wavelengths of the mask's bands.
    curve = CameraDescription(polynomial=(-20.0, 0.05))
    notes = camera_notes(bare, mask)
    other = resolve_camera(curve, notes, sizes=(bare.size, mask.size)).camera
    at = 0.05 * np.asarray(found.wavelengths)
    np.testing.assert_allclose(other.offsets, at - at.min(), atol=1e-6)
    # What a snapshot itself notes is nearer to the truth than what its mask does.
    other = prismask.CASSI.from_step(21, 1.0)
    taken = simulate(demo_scene((HEIGHT, WIDTH), np.linspace(450, 650, 21)), mask, other)
    assert prismask.reconstruct(taken, path, method="gap-tv", iterations=2).bands == 21
