"""What a camera writes: dark frames, flat fields, bad pixels, bits, exposures, colour sensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.inference import raw_frames
from prismask.inference.alignment.pose import Registration
from prismask.inference.engine import throughput
from prismask.inference.inspection import Inspection, check_orientation, inspect, with_noted_noise
from prismask.inference.options import Frame, Options
from prismask.inference.reconstruct import reconstruct
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.conversion import as_measurement
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA = CASSI.from_step(12)
SIZE = (96, 104)
GRID = tuple(450.0 + 18 * k for k in range(12))


@pytest.fixture(scope="module")
def mask() -> Mask:
    return Mask(fabricate_mask(SIZE, seeded(1)).numpy())


@pytest.fixture(scope="module")
def light(mask: Mask) -> raw_frames.Array:
    return throughput(as_mask_batch(torch.tensor(mask.values)), CAMERA).numpy()


@pytest.fixture(scope="module")
def clean(mask: Mask) -> raw_frames.Array:
    """A snapshot that reaches 0.8."""
    cube = torch.tensor(random_scene(3, SIZE, GRID).values)
    shot = CAMERA.forward(cube[None], as_mask_batch(torch.tensor(mask.values)))[0].numpy()
    return np.asarray(0.8 * shot / shot.max(), np.float32)


def look(values: Any, mask: Mask, attrs: Any = None, **options: Any) -> Inspection:
    shot, chosen = Measurement(values, attrs or {}), Options(**options)
    return inspect(shot, mask, CAMERA, with_noted_noise(chosen, shot), torch.device("cpu"))


def texts(seen: Inspection) -> str:
    return " ".join(finding.text for finding in seen.findings)


def test_dark_frame_and_flat_field_give_the_light_back(clean: Any, mask: Mask) -> None:
    rows, columns = np.mgrid[: clean.shape[0], : clean.shape[1]]
    dark = (0.02 + 0.01 * (columns % 2)).astype(np.float32)
    response = (1 - 0.3 * rows / len(rows)).astype(np.float32)
    response /= np.median(response)
    seen = look(clean * response + dark, mask, dark=dark, flat=0.5 * response + dark)
    torch.testing.assert_close(seen.snapshot.signal, torch.tensor(clean), atol=2e-6, rtol=1e-5)
    assert "a dark frame (given) is subtracted" in texts(seen)
    assert "divided by a flat field (given)" in texts(seen)
    assert "dark level" not in texts(seen)


def test_frames_come_as_files_too(clean: Any, mask: Mask, tmp_path: Path) -> None:
    np.save(tmp_path / "dark.npy", np.full_like(clean, 0.05))
    seen = look(clean + 0.05, mask, dark=tmp_path / "dark.npy")
    torch.testing.assert_close(seen.snapshot.signal, torch.tensor(clean), atol=1e-6, rtol=0)
    assert "dark.npy" in texts(seen)


def test_a_number_is_still_a_dark_level(clean: Any, mask: Mask) -> None:
    seen = look(clean + 0.05, mask, dark=0.05)
    assert seen.dark == 0.05
    torch.testing.assert_close(seen.snapshot.signal, torch.tensor(clean), atol=1e-6, rtol=0)


def test_frames_of_another_sensor_are_refused(clean: Any, mask: Mask) -> None:
    with pytest.raises(ShapeError, match=r"the dark frame .* both come from one sensor"):
        look(clean, mask, dark=clean[:, 1:])
    with pytest.raises(ValuesError, match="no brighter than the dark frame"):
        look(clean, mask, dark=np.full_like(clean, 0.5), flat=np.full_like(clean, 0.4))


# --- bad pixels ----------------------------------------------------------------------------------


def test_a_sound_snapshot_has_no_bad_pixels(light: Any) -> None:
    for seed in range(6):
        mask = fabricate_mask(SIZE, seeded(seed))[None, None]
        cube = torch.tensor(random_scene(seed, SIZE, GRID).values)
        shot = CAMERA.forward(cube[None], mask)[0]
        noisy = shot + 0.01 * shot.max() * torch.randn(shot.shape, generator=seeded(seed))
        assert not raw_frames.outliers(noisy.numpy(), throughput(mask, CAMERA).numpy()).any()


def test_hot_and_dead_pixels_are_found_filled_and_counted(
    clean: Any, light: Any, mask: Mask
) -> None:
    lit = clean / np.maximum(light, 1e-3)
    places = [(20, 40), (50, 60), (50, 61), (0, 30), (70, 80)]
    spoilt = clean.copy()
    for number, place in enumerate(places):
        assert lit[place] > 0.1 * lit.max(), "a dead pixel in the dark is like any other"
        spoilt[place] = 3.0 if number < 4 else 0.0
    seen = look(spoilt, mask, dark=0)
    bad = seen.snapshot.bad
    assert bad is not None
    assert sorted(map(tuple, bad.nonzero().tolist())) == sorted(places)
    found = seen.snapshot.signal.numpy()
    sound = np.ones(clean.shape, bool)
    sound[tuple(zip(*places, strict=True))] = False
    np.testing.assert_array_equal(found[sound], clean[sound])
    assert np.abs(found - clean)[~sound].max() < 0.15
    kept = look(spoilt, mask, dark=0, bad_pixels="none")
    np.testing.assert_array_equal(kept.snapshot.signal.numpy(), spoilt)


def test_a_bad_pixel_gets_its_neighbours_light_through_its_own_opening() -> None:
    openings = np.ones((9, 9), np.float32)
    openings[4, 4] = 0.2
    values = 0.5 * openings
    bad = np.zeros((9, 9), bool)
    bad[4, 4] = bad[6, 7] = True
    found = raw_frames.filled(np.where(bad, np.float32(7), values), bad, openings)
    np.testing.assert_allclose(found, values, rtol=1e-6)


def test_corners_that_a_lens_lights_less_are_not_dead() -> None:
    """Pixels of a flat field are compared with those around them."""
    y, x = np.mgrid[-1:1:40j, -1:1:50j]
    lens = (1 - 0.4 * (x**2 + y**2)).astype(np.float32)  # a fifth of the light in the corners
    lens[20, 30] *= 0.3
    shot = Measurement(np.full((40, 50), 0.5, np.float32) * lens)
    corrected = raw_frames.correct(shot, np.ones((40, 50), np.float32), Options(dark=0, flat=lens))
    assert np.argwhere(corrected.bad).tolist() == [[20, 30]]
    np.testing.assert_allclose(corrected.values / corrected.values[0, 0], 1, rtol=1e-5)


def test_a_map_says_which_pixels_are_bad(clean: Any, mask: Mask) -> None:
    marks = np.zeros(clean.shape, np.uint8)
    marks[30, 30:32] = 1
    seen = look(clean, mask, dark=0, bad_pixels=marks)
    assert seen.snapshot.bad is not None
    assert seen.snapshot.bad.nonzero().tolist() == [[30, 30], [30, 31]]
    changed = np.argwhere(seen.snapshot.signal.numpy() != clean)
    assert {tuple(place) for place in changed.tolist()} <= {(30, 30), (30, 31)}
    with pytest.raises(ValuesError, match="the other way round"):
        look(clean, mask, bad_pixels=1 - marks)


def test_the_dark_frame_and_the_flat_field_show_bad_pixels_as_well(clean: Any, mask: Mask) -> None:
    dark, flat = np.full_like(clean, 0.01), np.full_like(clean, 0.6)
    dark[10, 10], flat[20, 20] = 0.2, 0.02
    dark += 1e-3 * np.random.default_rng(0).standard_normal(dark.shape).astype(np.float32)
    seen = look(clean + dark, mask, dark=dark, flat=flat)
    assert seen.snapshot.bad is not None
    assert seen.snapshot.bad.nonzero().tolist() == [[10, 10], [20, 20]]


# --- bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_fewer_bits_in_a_16_bit_file_are_told_and_change_nothing_unasked(
    clean: Any, mask: Mask, bits: int
) -> None:
    full = 2**bits - 1
    counts = np.round(clean * full).astype(np.uint16)
    shot = as_measurement(counts)
    seen = look(shot.values, mask, shot.attrs, dark=0)
    assert f"--bits {bits} makes {full} full scale" in texts(seen)
    assert float(seen.snapshot.signal.max()) == pytest.approx(counts.max() / 65535, rel=1e-5)
    said = look(shot.values, mask, shot.attrs, dark=0, bits=bits)
    torch.testing.assert_close(
        said.snapshot.signal, torch.tensor(counts / full, dtype=torch.float32), rtol=1e-5, atol=0
    )
    assert "bits" not in texts(said)


def test_other_frames_keep_their_scale(clean: Any, mask: Mask) -> None:
    eight = np.round(60 * clean).astype(np.uint8)
    for values in (clean, 0.1 * clean, eight, np.round(60000 * clean).astype(np.uint16)):
        assert raw_frames.full_scale(as_measurement(values), None) == (1.0, [])
    with pytest.raises(ConfigError, match="sensors have 8 to 16"):
        Options(bits=20)


# --- exposures -----------------------------------------------------------------------------------


def test_the_spread_of_exposures_is_the_noise(clean: Any, mask: Mask) -> None:
    noise = np.random.default_rng(0).standard_normal((8, *clean.shape)).astype(np.float32)
    shot = raw_frames.average(clean + 0.02 * noise, {"source": "stack.tif"})
    assert shot.attrs["exposure_noise_std"] == pytest.approx(0.02 / np.sqrt(8), rel=0.02)
    cube = reconstruct(shot, mask, CAMERA, "gap-tv", iterations=2, dark=0, wavelengths=GRID)
    assert cube.attrs["noise_std"] == pytest.approx(0.02 / np.sqrt(8), rel=0.02)
    assert cube.attrs["noise_from"] == "from 8 exposures"
    given = reconstruct(shot, mask, CAMERA, "gap-tv", iterations=1, noise_std=0.01, dark=0)
    assert given.attrs["noise_from"] == "given"


@pytest.mark.parametrize("exposures", [np.ones((1, 8, 8)), [np.ones((8, 8)), np.ones((8, 9))]])
def test_exposures_are_two_or_more_of_one_size(exposures: Any) -> None:
    with pytest.raises(ShapeError, match="two or more of the same size"):
        raw_frames.average(exposures, {})


# --- colour sensors and files the wrong way round ------------------------------------------------


def test_a_bayer_frame_is_refused_and_a_grey_one_is_not(clean: Any, light: Any, mask: Mask) -> None:
    raw_frames.check_grey(clean, light)
    filters = np.tile([[1.0, 0.6], [0.45, 1.0]], (len(clean) // 2 + 1, clean.shape[1] // 2 + 1))
    colour = (clean * filters[: clean.shape[0], : clean.shape[1]]).astype(np.float32)
    with pytest.raises(ValuesError, match=r"raw frame of a colour sensor.*monochrome"):
        look(colour, mask)
    assert look(colour, mask, check_mask=False, bad_pixels="none").registration is None


def test_a_mask_of_alternating_cells_is_no_bayer_pattern() -> None:
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    mask = torch.tensor(0.2 + 0.8 * ((rows + columns) % 2), dtype=torch.float32)[None, None]
    cube = torch.tensor(random_scene(3, SIZE, GRID).values)
    shot = CAMERA.forward(cube[None], mask)[0].numpy()
    raw_frames.check_grey(shot, throughput(mask, CAMERA).numpy())


@pytest.mark.parametrize(
    ("orientation", "mask_option", "snapshot_option"),
    [
        ("flipped left-right", "flipped-left-right", "flipped-left-right, which also corrects"),
        ("flipped top-bottom", "flipped-top-bottom", "flipped-top-bottom if it is"),
        ("turned by 90° clockwise", "turned-90-clockwise", "turned-90-counterclockwise if"),
    ],
)
def test_a_file_surely_the_wrong_way_round_stops(
    orientation: str, mask_option: str, snapshot_option: str
) -> None:
    sure = Registration(0, 28, orientation, (0, 0), 30, 30)
    with pytest.raises(ValuesError, match=f"--turn-mask {mask_option} if") as raised:
        check_orientation(sure, CAMERA)
    assert snapshot_option.split()[0].rstrip(",") in str(raised.value)
    for doubtful in (replace(sure, score=9), replace(sure, best_score=12), None):
        check_orientation(doubtful, CAMERA)


def test_a_mirrored_mask_stops_a_reconstruction(clean: Any, mask: Mask) -> None:
    mirrored = Mask(mask.values[::-1])
    with pytest.raises(ValuesError, match="--turn-mask flipped-top-bottom"):
        look(clean, mirrored)
    look(clean, mirrored, check_mask=False)


# --- options -------------------------------------------------------------------------------------


def test_the_same_numbers_of_another_converter_are_another_frame() -> None:
    """Fractions of 255 and of 65535 are alike and mean other counts."""
    values = np.full((4, 5), 0.1, np.float32)
    recipes = {
        Options(dark=Frame(values, "dark", counts)).recipe() for counts in (None, 255, 65535)
    }
    assert len(recipes) == 3


def test_options_with_frames_are_hashable_and_decide_the_recipe(clean: Any) -> None:
    one, same = Options(dark=clean), Options(dark=clean.copy())
    other = Options(dark=clean + 0.1)
    assert (one, hash(one), one.recipe()) == (same, hash(same), same.recipe())
    assert (
        len({one.recipe(), other.recipe(), Options().recipe(), Options(flat=clean).recipe()}) == 4
    )
    assert isinstance(one.with_changes({"samples": 4}).dark, Frame)


# --- counts: integers keep one scale, and numbers beside them are counts --------------------------


@pytest.fixture(scope="module")
def counts(clean: Any) -> Any:
    """12-bit counts with a dark level of 200."""
    return np.round(200 + 3500 * clean).astype(np.uint16)


def cube_of(counts: Any, mask: Mask, **options: Any) -> Any:
    return reconstruct(
        counts, mask, CAMERA, "gap-tv", iterations=2, wavelengths=GRID, check_mask=False, **options
    )


def assert_alike(one: Any, other: Any) -> None:
    assert np.abs(one.values - other.values).mean() < 0.01 * other.values.mean()


@pytest.mark.parametrize("form", ["uint16", "float64", "uint16 file", "float64 file", "number"])
def test_dark_and_flat_beside_counts_are_counts(
    clean: Any, counts: Any, mask: Mask, form: str, tmp_path: Path
) -> None:
    dark: Any = np.full(counts.shape, 200)
    flat: Any = np.full(counts.shape, 3000)
    if form != "number":
        dark, flat = dark.astype(form.split()[0]), flat.astype(form.split()[0])
        if form.endswith("file"):
            np.save(tmp_path / "dark.npy", dark)
            np.save(tmp_path / "flat.npy", flat)
            dark, flat = tmp_path / "dark.npy", tmp_path / "flat.npy"
    else:
        dark, flat = 200, flat.astype(np.uint16)
    cube = cube_of(counts, mask, dark=dark, flat=flat)
    plain = cube_of(np.round(3500 * clean).astype(np.uint16), mask, dark=0)
    assert_alike(cube, plain)
    assert cube.attrs["dark_level"] == (200 if form == "number" else 0)


def test_a_dark_frame_of_zeros_and_ones_is_in_counts_too(counts: Any, mask: Mask) -> None:
    faint = (np.arange(counts.size).reshape(counts.shape) % 2).astype(np.uint16)
    assert_alike(cube_of(counts, mask, dark=faint), cube_of(counts, mask, dark=0))


def test_a_normalised_flat_field_goes_with_counts(counts: Any, mask: Mask) -> None:
    flat = np.where(np.arange(counts.shape[1]) < 60, 0.8, 1.0) * np.ones(counts.shape)
    lit = np.round((counts - 200.0) * flat + 200).astype(np.uint16)
    dark = np.full(counts.shape, 200, np.uint16)
    assert_alike(cube_of(lit, mask, dark=dark, flat=flat), cube_of(counts, mask, dark=dark))


def test_integer_frames_beside_a_mean_of_counts_are_counts(counts: Any, mask: Mask) -> None:
    dark = np.full(counts.shape, 200, np.uint16)
    mean = cube_of(counts.astype(np.float64), mask, dark=dark)
    np.testing.assert_allclose(
        mean.values, 65535 * cube_of(counts, mask, dark=dark).values, rtol=1e-3, atol=1e-2
    )


def test_a_quarter_of_the_light_gives_a_quarter_of_the_cube(counts: Any, mask: Mask) -> None:
    less = np.round(200 + (counts - 200.0) / 4).astype(np.uint16)
    for bits in (None, 12):
        full, dim = (cube_of(one, mask, dark=200, bits=bits).values for one in (counts, less))
        assert dim.mean() == pytest.approx(full.mean() / 4, rel=0.02)
    assert full.mean() == pytest.approx(
        65535 / 4095 * cube_of(counts, mask, dark=200).values.mean(), rel=1e-3
    )


def test_averaging_keeps_the_scale_of_one_exposure(counts: Any, mask: Mask) -> None:
    noise = np.random.default_rng(0).normal(0, 4, (6, *counts.shape))
    stack = np.round(counts + noise).clip(0).astype(np.uint16)
    one = cube_of(stack[0], mask, dark=200, bits=12)
    for given in (stack, list(stack)):
        mean = cube_of(given, mask, dark=200, average=True, bits=12)
        assert mean.values.mean() == pytest.approx(one.values.mean(), rel=0.02)
        assert mean.attrs["noise_std"] == pytest.approx(4 / np.sqrt(6), rel=0.05)
        assert mean.attrs["noise_from"] == "from 6 exposures"
    with pytest.raises(ConfigError, match=f"the counts reach {stack.max()}, and 8 bits hold 255"):
        cube_of(stack, mask, average=True, bits=8)


def test_a_stack_without_average_is_told_of_it(counts: Any, mask: Mask, tmp_path: Path) -> None:
    stack = np.stack([counts, counts])
    np.save(tmp_path / "stack.npy", stack)
    for given in (stack, tmp_path / "stack.npy"):
        with pytest.raises(ShapeError if given is stack else ValueError, match="average=True"):
            cube_of(given, mask)
    assert cube_of(tmp_path / "stack.npy", mask, average=True).attrs["noise_from"]


def test_bits_that_cannot_be_are_refused(clean: Any, counts: Any, mask: Mask) -> None:
    top = int(counts.max())
    with pytest.raises(ConfigError, match=f"reach {top}, and 8 bits hold 255. Give bits=12 or"):
        cube_of(counts, mask, bits=8)
    with pytest.raises(ConfigError, match="reach 255 at most"):
        cube_of((counts // 16).astype(np.uint8), mask, bits=12)
    with pytest.raises(ConfigError, match="bits is for counts, and this snapshot is floating"):
        cube_of(clean, mask, bits=12)
    as_floats = cube_of(counts.astype(float), mask, bits=12, dark=200)
    np.testing.assert_allclose(
        as_floats.values, cube_of(counts, mask, bits=12, dark=200).values, atol=1e-5
    )


def test_numbers_that_cannot_be_are_refused(clean: Any, counts: Any, mask: Mask) -> None:
    with pytest.raises(ConfigError, match="dark is -5; a sensor reads 0 or more"):
        cube_of(counts, mask, dark=-5)
    with pytest.raises(ValuesError, match=r"it is 4000, and the values .* to 3000 counts"):
        cube_of(counts, mask, dark=4000)
    with pytest.raises(ValuesError, match="noise_std is 4, more than the whole range"):
        cube_of(clean, mask, noise_std=4)
    assert cube_of(counts, mask, noise_std=4, dark=200).attrs["noise_std"] == pytest.approx(4)
    with pytest.warns(UserWarning, match=r"as 0.05 counts, .* give dark=3277"):
        cube_of(counts, mask, dark=0.05)
    with pytest.warns(UserWarning, match=r"as 0.05 counts, .* give dark=204.8"):
        cube_of(counts, mask, dark=0.05, bits=12)
    with pytest.warns(UserWarning, match=r"as 0.004 counts, .* give noise_std=262"):
        cube_of(counts, mask, dark=200, noise_std=0.004)


def test_noise_through_a_mask_that_does_not_fit_is_said_to_be_too_large(
    clean: Any, mask: Mask
) -> None:
    """A wrong mask explains less, and the rest would be taken for noise."""
    assert look(clean, mask, dark=0).noise_from == "as estimated"
    wrong = Mask(np.roll(mask.values, 2, axis=0))
    assert look(clean, wrong, dark=0).noise_from.endswith("does not fit: too large")
    assert look(clean, wrong, dark=0, noise_std=0.01).noise_from == "given"
