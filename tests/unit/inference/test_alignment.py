"""Finding a mask that lies a little beside its calibration."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError, PrismaskWarning
from prismask.inference.alignment import search as alignment
from prismask.inference.alignment import search as pose_search
from prismask.inference.alignment.pose import FIELDS, MaskPose
from prismask.inference.alignment.search import (
    Alignment,
    Lowest,
    RunCounter,
    Search,
    align_mask,
    pieces_of,
)
from prismask.inference.engine import Engine
from prismask.inference.methods.protocol import Estimate
from prismask.inference.reconstruct import reconstruct, straightened
from prismask.models.inputs import Observation
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.resample import gaussian_blur
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA = CASSI.from_step()
SIZE = (64, 96)
BESIDE = MaskPose(0.45, -0.6, 0.0, 0.1, 0.0, 0.0)


def mask_values() -> Tensor:
    return fabricate_mask(SIZE, seeded(8))[None, None]


@pytest.fixture(scope="module")
def engine() -> Engine:
    # What is found must not hang on how half precision happens to be rounded.
    return Engine(load_model("srn-looks.m2m"), torch.device("cpu"), "float32")


@pytest.fixture(scope="module")
def scene() -> Cube:
    return random_scene(5, SIZE)


# --- the displacement itself ---------------------------------------------------------------------


def test_no_displacement_changes_nothing() -> None:
    mask = mask_values()
    assert torch.allclose(MaskPose().moved(mask), mask, atol=1e-6)


def test_a_whole_shift_reads_the_neighbours() -> None:
    mask = mask_values()
    moved = MaskPose(1.0, -2.0, 0, 0, 0, 0).moved(mask)
    assert torch.allclose(moved[..., 4:-4, 4:-4], mask[..., 5:-3, 2:-6], atol=1e-4)


def test_growth_is_nothing_at_the_centre_and_full_at_the_edge() -> None:
    columns = torch.linspace(0, 1, 101).expand(1, 1, 51, 101)
    moved = MaskPose(0, 0, 0, 0, 5.0, 0).moved(columns)
    centre, inside = moved[0, 0, 25, 50], moved[0, 0, 25, 90]
    assert float(centre) == pytest.approx(0.5, abs=1e-3)
    assert float(inside) == pytest.approx(0.9 + 0.05 * 40 / 50.5, abs=2e-3)


def test_words_of_optics() -> None:
    # A turn by a small angle moves columns down to the right and rows right upwards.
    angle = math.radians(0.2)
    turn = MaskPose(0, 0, angle * 50, 0, 0, -angle * 40)
    assert "turned by +0.200°" in turn.text((80, 100), CAMERA)
    assert "skewed by +0.000°" in turn.text((80, 100), CAMERA).replace("-0.000", "+0.000")
    assert "-0.25 px to the right" in MaskPose(0, -0.25).text((80, 100), CAMERA)
    assert "+1.00 % across its rows" in MaskPose(0, 0, 0, 0.4).text((80, 100), CAMERA)
    spread = MaskPose(0, 0, 0, 0, 0, 0, -0.35, 0.1).text((80, 100), CAMERA)
    assert spread.endswith("spread over 53.30 px instead of 54, bent by +0.10 px")


def stepped(pose: MaskPose, number: int, step: float) -> MaskPose:
    numbers = list(pose.numbers)
    numbers[number] += step
    return MaskPose.from_numbers(numbers)


def test_derivatives_are_those_of_the_displacement() -> None:
    rows, columns = torch.linspace(0, 3, 40)[:, None], torch.linspace(0, 2, 60)[None]
    mask = (0.5 + 0.3 * torch.sin(rows) * torch.cos(columns))[None, None].double()
    at = MaskPose(0.3, -0.4, 0.1, 0, 0, 0, 0, 0, 0.4, 0.1, 0.05, 0.02)
    here, by_position, by_value = at.derivatives(mask)
    assert torch.equal(here, at.moved(mask))
    numbers = [*range(6), *range(8, 12)]
    for number, derivative in zip(numbers, [*by_position, *by_value], strict=True):
        there, back = (stepped(at, number, step).moved(mask) for step in (0.05, -0.05))
        inner = (..., slice(10, -10), slice(10, -10))  # splines feel the edge
        assert torch.allclose(((there - back) / 0.1)[inner], derivative[inner], atol=1e-3)


def test_tones() -> None:
    values = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])[None, None, None]
    brighter = MaskPose(*[0.0] * 9, 0.2).moved(values)
    torch.testing.assert_close(brighter[0, 0, 0], torch.tensor([0, 0.325, 0.6, 0.825, 1]))
    steeper = MaskPose(*[0.0] * 10, 0.1).moved(values)
    torch.testing.assert_close(steeper[0, 0, 0], torch.tensor([0, 0.175, 0.5, 0.825, 1]))
    hazy = MaskPose(*[0.0] * 11, 0.1).moved(values)
    torch.testing.assert_close(hazy[0, 0, 0], torch.tensor([0.1, 0.325, 0.55, 0.775, 1]))
    # Beyond what light can do it stops.
    assert MaskPose(*[0.0] * 11, -0.5).moved(values).min() == 0
    text = MaskPose(*[0.0] * 9, 0.2, 0.0, 0.05).text((80, 100), CAMERA)
    assert text.endswith(
        "cells calibrated as closed, a quarter, half and three quarters open let 5, 36, 62 and "
        "84 % of the light through"
    )


@pytest.mark.parametrize("variance", [0.05, 0.5, 2.0, 9.0])
def test_blur_has_the_variance_it_says(variance: float) -> None:
    point = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
    point[..., 20, 20] = 1
    seen = MaskPose(*[0.0] * 8, variance).moved(point)[0, 0]
    away = torch.arange(41) - 20
    assert float(seen.sum()) == pytest.approx(1, abs=1e-6)
    for marginal in (seen.sum(0), seen.sum(1)):
        assert float((marginal * away**2).sum()) == pytest.approx(variance, rel=1e-3)


def test_sharpening_undoes_blur() -> None:
    mask = 0.3 + 0.4 * mask_values().double()
    blurred = MaskPose(*[0.0] * 8, 0.3).moved(mask)
    again = MaskPose(*[0.0] * 8, -0.3).moved(blurred)
    inner = (..., slice(15, -15), slice(15, -15))
    assert torch.allclose(again[inner], mask[inner], atol=1e-6)
    assert not torch.allclose(blurred[inner], mask[inner], atol=0.05)
    assert "blurred by 0.55 px" in MaskPose(*[0.0] * 8, 0.3).text((80, 100), CAMERA)
    assert "sharpened by 0.55 px" in MaskPose(*[0.0] * 8, -0.3).text((80, 100), CAMERA)
    assert "px (standard" not in MaskPose(0.1, 0.2).text((80, 100), CAMERA)


@pytest.mark.parametrize("axis", ["width", "height"])
def test_bands_that_land_further_are_masks_that_lie_further(
    axis: Literal["width", "height"],
) -> None:
    """A camera whose bands land elsewhere, and the nominal one with the masks of `MaskPose`."""
    nominal = CASSI((0.0, 3.0, 6.0), axis)
    # Whole pixels, so that no interpolation is involved: −1, 0 and 1 px further.
    true = CASSI((0.0, 4.0, 8.0), axis)
    generator = torch.Generator().manual_seed(0)
    cube = torch.rand(1, 3, 20, 20, generator=generator)
    mask = torch.rand(1, 1, 20, 20, generator=generator)
    for values in (cube, mask):  # dark at the border, where light comes from outside the frame
        values[..., :4, :] = values[..., -4:, :] = values[..., :4] = values[..., -4:] = 0
    pose = MaskPose(0, 0, 0, 0, 0, 0, 1.0)
    assert pose.shifts(nominal) == [-1.0, 0.0, 1.0]
    ahead = MaskPose(0, 0, 0, 0, 0, 0, -1.0).straightened(cube, nominal)
    measured = nominal.forward(ahead, pose.read(mask, nominal))
    # The first band of the true camera starts where the nominal one's lies 1 px back.
    inside = true.forward(cube, mask).narrow(-1 if axis == "width" else -2, 1, 26)
    torch.testing.assert_close(measured, inside)
    torch.testing.assert_close(pose.straightened(ahead, nominal), cube)


def test_band_derivatives_are_those_of_the_displacement() -> None:
    columns = torch.linspace(0, 6, 60)[None].expand(40, -1)
    mask = (0.5 + 0.3 * torch.sin(columns))[None, None].double()
    camera = CASSI.from_step(5)
    at = MaskPose(0, 0, 0, 0, 0, 0, 0.2, -0.1)
    for number, derivative in enumerate(at.band_derivatives(mask, camera)):
        there, back = (
            stepped(at, 6 + number, step).by_band(mask, camera) for step in (0.05, -0.05)
        )
        inner = (..., slice(2, -2))
        assert torch.allclose(((there - back) / 0.1)[inner], derivative[inner], atol=1e-4)


def test_an_interval_stays_around_its_cube() -> None:
    generator = np.random.default_rng(0)
    values, away = generator.random((2, 3, 8, 20)).astype(np.float32)
    camera = CASSI.from_step(3)
    outcome = Estimate(values, away, values - away, values + 2 * away)
    moved = straightened(outcome, MaskPose(0, 0, 0, 0, 0, 0, 0.7), camera)
    assert moved.lower is not None
    assert moved.upper is not None
    assert (moved.lower <= moved.values).all()
    assert (moved.values <= moved.upper).all()
    np.testing.assert_allclose(moved.values[1], values[1], atol=1e-6)
    assert not np.allclose(moved.values[0], values[0], atol=0.05)
    assert straightened(outcome, MaskPose(0.5, 0.5), camera) is outcome


def searching(engine: Engine, signal: Tensor) -> Search:
    pieces = [slice(0, SIZE[0])]
    return Search(
        engine,
        Observation(signal[None], mask_values(), CAMERA, torch.tensor([0.002])),
        pieces,
        RunCounter(None, 0),
    )


# --- finding it ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_displaced_mask_is_found_and_the_cube_is_better(engine: Engine, scene: Cube) -> None:
    truth, nominal = torch.tensor(scene.values)[None], mask_values()
    true_mask = BESIDE.moved(nominal)
    signal = CAMERA.forward(truth, true_mask)[0]
    found = align_mask(engine, Observation(signal[None], nominal, CAMERA, torch.tensor([0.002])))
    assert found.is_worth_it
    assert found.after < 0.6 * found.before
    down, right = found.pose.numbers[:2]
    assert (down, right) == (pytest.approx(0.45, abs=0.3), pytest.approx(-0.6, abs=0.3))

    def error(mask: Tensor) -> float:
        cube = engine.run(Observation(signal[None], mask, CAMERA, torch.tensor([0.002]))).values
        return float((cube - truth[0]).square().mean())

    assert error(found.pose.moved(nominal)) < 0.5 * error(nominal)


@pytest.mark.slow
def test_a_mask_in_its_place_stays_there(engine: Engine, scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], nominal)[0]
    told: list[tuple[int, int]] = []
    found = align_mask(
        engine,
        Observation(signal[None], nominal, CAMERA, torch.tensor([0.002])),
        lambda done, most, _: told.append((done, most)),
    )
    down, right, *_, spread, _, blur = found.pose.numbers[:9]
    assert max(abs(down), abs(right), abs(spread), abs(blur)) < 0.1
    # Wherever the search ended, it gains too little there for the mask to be moved at all.
    assert found.found == MaskPose()
    assert told[0] == (1, alignment.RUNS)
    assert len(told) <= alignment.RUNS


@pytest.mark.slow
def test_a_spectrum_spread_further_is_found(engine: Engine, scene: Cube) -> None:
    truth, mask = torch.tensor(scene.values)[None], mask_values()
    spread = MaskPose(0.2, 0.3, 0, 0, 0, 0, 0.5, 0.0)
    shown = MaskPose(0, 0, 0, 0, 0, 0, -0.5, 0.0).straightened(truth, CAMERA)
    signal = CAMERA.forward(shown, spread.read(mask, CAMERA))[0]
    found = align_mask(engine, Observation(signal[None], mask, CAMERA, torch.tensor([0.002])))
    assert found.is_worth_it
    assert found.pose.numbers[6] == pytest.approx(0.5, abs=0.25)

    def error(pose: MaskPose) -> float:
        cube = engine.run(
            Observation(signal[None], pose.read(mask, CAMERA), CAMERA, torch.tensor([0.002]))
        ).values[None]
        return float((pose.straightened(cube, CAMERA) - truth).square().mean())

    assert error(found.pose) < 0.75 * error(MaskPose())
    assert error(found.pose) < 1.1 * error(spread)


@pytest.mark.slow
def test_a_mask_out_of_focus_is_found(engine: Engine, scene: Cube) -> None:
    truth, nominal = torch.tensor(scene.values)[None], mask_values()
    true = MaskPose(0.3, -0.4, 0, 0, 0, 0, 0, 0, 0.5)
    signal = CAMERA.forward(truth, true.read(nominal, CAMERA))[0]
    found = align_mask(engine, Observation(signal[None], nominal, CAMERA, torch.tensor([0.002])))
    assert found.found.numbers[8] == pytest.approx(0.5, abs=0.2)
    assert found.found.numbers[9:] == (0, 0, 0)
    assert found.after < 1.02 * searching(engine, signal).residual(true) < 0.75 * found.before


@pytest.mark.slow
def test_a_curve_of_the_mask_s_values_is_found(engine: Engine, scene: Cube) -> None:
    truth, nominal = torch.tensor(scene.values)[None], mask_values()
    true = MaskPose(0.3, -0.4, 0, 0, 0, 0, 0, 0, 0, 0.3, 0.1, 0.03)
    signal = CAMERA.forward(truth, true.read(nominal, CAMERA))[0]
    found = align_mask(engine, Observation(signal[None], nominal, CAMERA, torch.tensor([0.002])))
    half_open = torch.full((1, 1, 1, 1), 0.5)
    let_through = MaskPose.from_numbers((0,) * 9 + found.found.numbers[9:]).moved(half_open)
    assert float(let_through) == pytest.approx(float(true.moved(half_open)), abs=0.08)

    def error(pose: MaskPose) -> float:
        cube = engine.run(
            Observation(signal[None], pose.read(nominal, CAMERA), CAMERA, torch.tensor([0.002]))
        ).values[None]
        return float((pose.straightened(cube, CAMERA) - truth).square().mean())

    unbent = MaskPose.from_numbers(found.found.numbers[:9])
    assert error(found.found) < 0.7 * error(unbent) < error(MaskPose())


@pytest.mark.slow
def test_reconstruct_uses_it_and_says_so(scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], BESIDE.moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())
    with pytest.warns(PrismaskWarning, match="a mask that has moved or lost focus"):
        plain = reconstruct(shot, mask, CAMERA, noise_std=0.002, device="cpu", check_mask=False)
    assert any("align=True" in line for line in plain.attrs["findings"])
    moved = reconstruct(
        shot, mask, CAMERA, noise_std=0.002, device="cpu", check_mask=False, align=True
    )
    assert any("the mask is read" in line for line in moved.attrs["findings"])
    assert moved.attrs["residual_rms"] < 0.6 * plain.attrs["residual_rms"]
    assert moved.attrs["mask_pose"][1] == pytest.approx(-0.6, abs=0.3)
    assert moved.attrs["recipe"] != plain.attrs["recipe"]
    assert (moved.attrs["mask_pose_by"], moved.attrs["model"]) == ("srn-looks.m2m", "lumen.m2m")
    errors = [float(np.square(cube.values - scene.values).mean()) for cube in (plain, moved)]
    assert errors[1] < errors[0]
    # The pose serves other snapshots, with the same network.
    again = reconstruct(
        shot, mask, CAMERA, noise_std=0.002, device="cpu", check_mask=False, pose=moved
    )
    assert (again.attrs["mask_pose_by"], again.attrs["model"]) == ("given", "lumen.m2m")
    np.testing.assert_allclose(again.values, moved.values, atol=1e-6)


CLOSE = CASSI.from_step(28, 1.0)
"""A camera that srn-looks.m2m does not reach."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
@pytest.mark.parametrize(
    ("camera", "given", "pose_by"),
    [
        (CAMERA, {}, "srn-looks.m2m"),
        (CASSI.from_step(28, 3.0), {}, "srn-looks.m2m"),
        (CLOSE, {}, "lumen.m2m"),
        (CLOSE, {"method": "gap-tv", "iterations": 2}, "lumen.m2m"),
        (CAMERA, {"model": "lumen.m2m"}, "lumen.m2m"),
        (CAMERA, {"model": "srn-looks.m2m"}, "srn-looks.m2m"),
    ],
)
def test_who_finds_the_pose_and_who_makes_the_cube(
    camera: CASSI, given: dict[str, Any], pose_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "MOST_GRADIENTS", 3)
    nominal = fabricate_mask(camera.mask_size((32, 40)), seeded(8))[None, None]
    truth = gaussian_blur(torch.tensor(random_scene(5, (32, 40)).values), 1.0)[None]
    signal = camera.forward(truth, MaskPose(0.3, -0.3).moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())
    cube = reconstruct(shot, mask, camera, noise_std=0.002, device="cpu", align=True, **given)
    assert cube.attrs["mask_pose_by"] == pose_by
    if "method" in given:
        assert cube.attrs["method"] == "gap-tv"
        return
    assert cube.attrs["model"] == given.get("model", "lumen.m2m")
    # Its error bar and its verdict are those of whoever made the cube.
    assert cube.lower is not None
    assert cube.upper is not None
    assert ((cube.lower <= cube.values) & (cube.values <= cube.upper)).all()
    assert cube.attrs["interval"].startswith("90 %, calibrated on ")
    assert 0 < cube.attrs["trust"] < 1


@pytest.mark.slow
def test_a_solver_lets_the_default_network_find_the_mask(scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], BESIDE.moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())

    def solved(align: bool) -> Cube:
        return reconstruct(shot, mask, CAMERA, "gap-tv", noise_std=0.002, device="cpu",
                           check_mask=False, align=align, iterations=20)  # fmt: skip

    plain, moved = solved(False), solved(True)
    assert moved.attrs["method"] == "gap-tv"
    assert moved.attrs["mask_pose_by"] == "srn-looks.m2m"
    assert moved.attrs["recipe"] != plain.attrs["recipe"]
    errors = [float(np.square(cube.values - scene.values).mean()) for cube in (plain, moved)]
    assert errors[1] < 0.8 * errors[0]


def test_a_camera_that_no_network_knows_is_not_aligned() -> None:
    camera = CASSI.from_step(28, 0.5)
    shot = Measurement(np.ones((20, 34), np.float32))
    mask = Mask(mask_values()[0, 0, :20, :20].numpy())
    with pytest.raises(ConfigError, match="gap-tv cannot find the pose of a mask"):
        reconstruct(shot, mask, camera, "gap-tv", align=True, check_mask=False, device="cpu")


def test_a_small_gain_moves_no_mask() -> None:
    assert Alignment(BESIDE, 0.050, 0.049).found == MaskPose()
    assert Alignment(BESIDE, 0.050, 0.040).found == BESIDE


@pytest.mark.parametrize("weights", ["srn-looks.m2m", "lumen.m2m"])
def test_the_slope_is_that_of_what_is_left(weights: str, scene: Cube) -> None:
    """Through the network backwards, against differences of what is left."""
    engine = Engine(load_model(weights), torch.device("cpu"), "float32")
    truth = torch.tensor(scene.values)[None]
    signal = CAMERA.forward(truth, BESIDE.moved(mask_values()))[0]
    search = searching(engine, signal)
    at = np.array([0.3, -0.5, 0.05, 0.0, 0.1, 0.0, 0.2, -0.1, 0.3, 0.1, -0.05, 0.03])
    value, gradient = search.gradient(MaskPose.from_numbers(at))
    assert value == pytest.approx(math.log(search.residual(MaskPose.from_numbers(at))), abs=1e-4)
    for number, unit in enumerate(0.002 * np.eye(12)):
        there, back = (search.residual(MaskPose.from_numbers(at + sign * unit)) for sign in (1, -1))
        by_differences = (math.log(there) - math.log(back)) / 0.004
        assert gradient[number] == pytest.approx(by_differences, abs=0.05 * np.abs(gradient).max())


def test_the_search_ends_where_it_has_asked_often_enough(engine: Engine, scene: Cube) -> None:
    signal = CAMERA.forward(torch.tensor(scene.values)[None], BESIDE.moved(mask_values()))[0]
    search = searching(engine, signal)
    start = Lowest(MaskPose(0.7, -0.7))
    found = search.descend(start, FIELDS[:8], 0.0, most=4)
    assert search.count.runs == 4 * 4
    before, after = search.residual(start.pose), search.residual(found.pose)
    assert after < before
    assert found.gain == pytest.approx(math.log(before / after), abs=0.01)
    assert found.pose.numbers[8:] == (0, 0, 0, 0)
    assert found.curvature is not None
    assert np.array_equal(found.curvature, found.curvature.T)


def test_large_frames_are_looked_at_in_strips_along_the_dispersion() -> None:
    pieces = pieces_of((700, 900), CAMERA)
    assert len(pieces) == pose_search.PIECES
    assert (pieces[0].start, pieces[-1].stop) == (0, 700)
    lines = {piece.stop - piece.start for piece in pieces}
    assert lines == {pose_search.PIXELS // 900}
    tall = CASSI.from_step(axis="height")
    assert pieces_of((700, 900), tall)[-1].stop == 900
    assert pieces_of((50, 900), CAMERA) == [slice(0, 50)]
    assert pieces_of((60, 900), CAMERA) == [slice(0, 30), slice(30, 60)]
    assert pieces_of((3, 10**6), CAMERA) == [slice(k, k + 1) for k in range(3)]
    values = torch.arange(12.0).view(3, 4)
    assert torch.equal(pose_search.cut(values, slice(1, 2), CAMERA), values[1:2])
    assert torch.equal(pose_search.cut(values, slice(1, 2), tall), values[:, 1:2])


def test_the_search_begins_where_there_is_light() -> None:
    signal = torch.full((300, 400), 0.1)
    signal[20:90] += 1
    signal[170:200] += 1
    for values, camera in ((signal, CAMERA), (signal.T, CASSI.from_step(axis="height"))):
        first, second = pose_search.bright_pieces(values, camera)
        assert (
            20
            <= first.start
            <= first.stop - pose_search.STRIP_LINES
            <= 90 - pose_search.STRIP_LINES
        )
        assert second.start <= 170
        assert second.stop >= 200


@pytest.mark.slow
def test_large_frames_end_where_the_whole_is_explained(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two strips to begin with, the whole to end with, and few slopes of the whole."""
    monkeypatch.setattr(alignment, "STRIP_LINES", 20)
    monkeypatch.setattr(pose_search, "STRIP_LINES", 20)
    size = (128, 96)
    nominal = fabricate_mask(size, seeded(8))[None, None]
    true = MaskPose(0.4, -0.3, 0.0, 0.3)
    truth = torch.tensor(random_scene(5, size).values)[None]
    signal = CAMERA.forward(truth, true.moved(nominal))[0]
    lines: list[int] = []
    gradient = Search.gradient

    def counted(self: Search, pose: MaskPose) -> tuple[float, pose_search.Array]:
        lines.append(sum(piece.stop - piece.start for piece in self.pieces))
        return gradient(self, pose)

    monkeypatch.setattr(Search, "gradient", counted)
    found = align_mask(engine, Observation(signal[None], nominal, CAMERA, torch.tensor([0.002])))
    assert found.pose.numbers[:4] == pytest.approx(true.numbers[:4], abs=0.12)
    assert set(lines) == {40, 128}
    assert lines.count(128) <= 3 * alignment.LAST_GRADIENTS
    whole = Search(
        engine,
        Observation(signal[None], nominal, CAMERA, torch.tensor([0.002])),
        [slice(0, 128)],
        RunCounter(None, 0),
    )
    assert found.after < 1.01 * whole.residual(true) < 0.6 * found.before
