"""Finding a mask that lies a little beside its calibration."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError, PrismaskWarning
from prismask.inference.alignment import search as alignment
from prismask.inference.alignment.pose import BLUR, DISPERSION, POSITION, TONES, MaskPose
from prismask.inference.alignment.search import (
    Alignment,
    Left,
    Search,
    align_mask,
    residual,
    slid_along,
    strips,
)
from prismask.inference.alignment.steps import Lines, Observed, step_pose
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
SIZE = (96, 112)
BESIDE = MaskPose(0.45, -0.6, 0.0, 0.1, 0.0, 0.0)


def mask_values() -> Tensor:
    return fabricate_mask(SIZE, seeded(8))[None, None]


@pytest.fixture(scope="module")
def engine() -> Engine:
    # What is found must not hang on how half precision happens to be rounded.
    return Engine(load_model("lumen.m2m"), torch.device("cpu"), "float32")


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
    # Reading columns lower at the right edge shows a mask whose right edge went up.
    assert turn.text((80, 100), CAMERA).endswith("calibrated, turned by 0.200° counterclockwise")
    back = MaskPose(0, 0, -angle * 50, 0, 0, angle * 40)
    assert back.text((80, 100), CAMERA).endswith("calibrated, turned by 0.200° clockwise")
    shifted = MaskPose(0.1, -0.25).text((80, 100), CAMERA)
    assert shifted == "0.25 px further right and 0.10 px higher than calibrated"
    assert "0.30 px further left and 0.20 px lower" in MaskPose(-0.2, 0.3).text((80, 100), CAMERA)
    assert MaskPose(0, 0, 0.04, 0.04, -0.04, 0.04).text((80, 100), CAMERA).endswith("calibrated")
    # Read over more rows than it has, it looks smaller.
    assert "its height changed by -1.00 %" in MaskPose(0, 0, 0, 0.4).text((80, 100), CAMERA)
    assert "its width changed by +2.00 %" in MaskPose(0, 0, 0, 0, -1.0).text((80, 100), CAMERA)
    assert "skewed by 0.200°" in MaskPose(0, 0, angle * 50, 0, 0, angle * 40).text(
        (80, 100), CAMERA
    )
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


def test_some_rows_are_as_in_the_whole() -> None:
    mask = mask_values().double()
    at = MaskPose(-2.3, 1.4, 0.4, 0.1, 0, -0.2, 0, 0, 0.4, 0.1, 0.05, 0.02)
    whole = at.derivatives(mask)
    for rows in (slice(0, 5), slice(40, 64), slice(90, 96)):
        assert torch.allclose(
            at.moved(mask, rows), at.moved(mask)[..., rows, :], rtol=0, atol=1e-12
        )
        here, by_position, by_value = at.derivatives(mask, rows)
        assert torch.equal(here, at.moved(mask, rows))
        for one, other in zip((*by_position, *by_value), (*whole[1], *whole[2]), strict=True):
            assert torch.allclose(one, other[..., rows, :], atol=1e-7)
    far = MaskPose(down=500.0)  # only its edge is seen from there
    assert torch.equal(far.moved(mask, slice(3, 9)), far.moved(mask)[..., 3:9, :])


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


# --- steps, with cubes that are right -------------------------------------------------------------


def coloured(true: Tensor, pose: MaskPose, noise: float = 0.003) -> Lines:
    """A scene of smooth colour behind the mask in `pose`, and the cube that it would have there."""
    numbers = seeded(2)
    small = torch.rand(2, CAMERA.bands, 9, 11, generator=numbers)
    truth = torch.nn.functional.interpolate(small, true.shape[-2:], mode="bicubic").clamp(0, 1)
    cubes = torch.cat([pose.shown(one[None], CAMERA) for one in truth])
    signal = CAMERA.forward(cubes, pose.read(true, CAMERA))
    signal = signal + noise * torch.randn(signal.shape, generator=numbers)
    seen = Observed(signal, torch.ones_like(signal), torch.full((2,), noise), cubes, CAMERA)
    return Lines(seen, slice(0, true.shape[-2]))


def test_steps_find_every_number_and_say_how_surely() -> None:
    told = mask_values()
    planted = MaskPose(0.4, -0.5, 0.15, -0.1, 0.1, -0.2, 0.4, -0.1, 0.3, 0.1, -0.05, 0.04)
    lines, pose = coloured(told, planted), MaskPose()
    for _ in range(4):
        pose, std = step_pose([lines], told, pose, (*POSITION, *DISPERSION, BLUR, *TONES))
    assert pose.numbers == pytest.approx(planted.numbers, abs=0.03)
    off = [
        abs(a - b) / s for a, b, s in zip(pose.numbers, planted.numbers, std.numbers, strict=True)
    ]
    assert max(off) < 4
    assert all(0 < number < 0.1 for number in std.numbers)


def test_numbers_that_are_not_free_stay() -> None:
    told, start = mask_values(), MaskPose(spread=0.1, blur=0.2, haze=0.01)
    pose, std = step_pose([coloured(told, BESIDE)], told, start, ("down", "right"))
    assert (pose.spread, pose.blur, pose.haze) == (0.1, 0.2, 0.01)
    assert (std.spread, std.blur, std.haze) == (0, 0, 0)
    assert pose.down == pytest.approx(BESIDE.down, abs=0.1)


# --- finding it ----------------------------------------------------------------------------------


def photographed(scene: Cube, pose: MaskPose, noise: float = 0.002) -> Observation:
    """A snapshot of `scene` behind a mask in `pose`, told that it is as calibrated."""
    nominal = mask_values()
    cube = pose.shown(torch.tensor(scene.values)[None], CAMERA)
    signal = CAMERA.forward(cube, pose.read(nominal, CAMERA))
    signal = signal + noise * torch.randn(signal.shape, generator=seeded(4))
    return Observation(signal, nominal, CAMERA, torch.tensor([noise]))


def error(engine: Engine, scene: Cube, seen: Observation, pose: MaskPose) -> float:
    """Of the cube that is made with the mask in `pose`."""
    cube = engine.run(seen._replace(mask=pose.read(seen.mask, CAMERA))).values[None]
    return float((pose.straightened(cube, CAMERA)[0] - torch.tensor(scene.values)).square().mean())


PLANTED = {
    "beside": MaskPose(0.45, -0.6, 0.0, 0.1),
    "turned, a pixel and a half aside": MaskPose(-1.0, 1.2, 0.3, 0, 0, -0.25),
    "out of focus": MaskPose(0.3, -0.4, blur=0.5),
    "behind a stronger prism": MaskPose(0.2, 0.3, spread=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_pose_is_found_and_the_cube_is_as_with_the_true_mask(
    engine: Engine, scene: Cube, name: str
) -> None:
    true = PLANTED[name]
    seen = photographed(scene, true)
    found = align_mask(engine, seen)
    assert found.is_worth_it
    for number in ("down", "right", "spread", "blur"):
        allowed = 0.25 if number == "spread" else 0.15
        assert getattr(found.pose, number) == pytest.approx(getattr(true, number), abs=allowed)
    assert 0 < found.std.down < found.std.right < 0.3
    right = error(engine, scene, seen, true)
    assert error(engine, scene, seen, found.pose) < 1.12 * right
    assert error(engine, scene, seen, MaskPose()) > 1.2 * right


@pytest.mark.slow
def test_a_mask_in_its_place_stays_there(engine: Engine, scene: Cube) -> None:
    told: list[tuple[int, int]] = []
    found = align_mask(
        engine,
        photographed(scene, MaskPose()),
        progress=lambda done, most, _: told.append((done, most)),
    )
    assert found == Alignment(MaskPose(), found.before, found.before)
    assert "as far as one can tell" in found.text(SIZE, CAMERA)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {every for _, every in told} == {told[-1][0]}


def search(monkeypatch: pytest.MonkeyPatch, level: Callable[[float], float]) -> Search:
    """A search in which `level` is left of the lines where the mask lies so far to the right."""
    seen = Observation(torch.ones(1, 96, 166), mask_values(), CAMERA, torch.tensor([0.002]))
    made = Search(None, seen)  # type: ignore[arg-type]
    monkeypatch.setattr(made, "_level", lambda pose: made._count() or level(pose.right))
    return made


def test_a_slide_ends_where_least_is_left() -> None:
    asked: list[float] = []

    def level(right: float) -> float:
        asked.append(right)
        return 1 + (right - 0.8) ** 2

    slid, least = slid_along(MaskPose(down=0.2), lambda pose: level(pose.right))
    assert slid.right == pytest.approx(0.8)
    assert least == pytest.approx(1)
    assert slid.down == 0.2
    assert len(asked) == len(set(asked)), "what is left of a pose is asked once"
    asked.clear()
    everywhere = slid_along(MaskPose(), lambda pose: asked.append(pose.right) or 0.5)
    assert everywhere == (MaskPose(), 0.5)
    assert len(asked) == 3


@pytest.mark.parametrize("is_better", [True, False])
def test_the_std_is_that_of_the_pose_that_is_kept(
    is_better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = search(monkeypatch, lambda right: 1 + (right - (0.9 if is_better else 0.8)) ** 2)
    stds = [MaskPose(right=0.1), MaskPose(right=0.2)]
    ends = [MaskPose(), MaskPose(right=0.9 if is_better else 2.0)]
    monkeypatch.setattr(made, "turns", lambda *_: (ends.pop(0), stds.pop(0)))
    monkeypatch.setattr(
        alignment,
        "slid_along",
        lambda pose, level: (MaskPose(right=0.8), level(MaskPose(right=0.8))),
    )
    pose, std = made.best(MaskPose(), POSITION, 3)
    assert (pose.right, std.right) == ((0.9, 0.2) if is_better else (0.8, 0.1))


def test_progress_waits_at_the_end_of_a_stage_and_skips_what_was_not_needed() -> None:
    told: list[tuple[int, int]] = []
    seen = Observation(torch.ones(1, 96, 166), mask_values(), CAMERA, torch.tensor([0.002]))
    made = Search(None, seen, progress=lambda done, every, _: told.append((done, every)))  # type: ignore[arg-type]
    made.enter(0)
    for _ in range(100):
        made._count()
    first = 1 + alignment.USUAL[0]
    assert told[-1] == (first, 1 + sum(alignment.USUAL))
    made.enter(1)
    made._count()
    made.enter(2)
    made._count()
    assert [done for done, _ in told[-2:]] == [first + 1, first + alignment.USUAL[1] + 1]
    made.enter(3)
    assert told[-1][0] == told[-1][1]


@pytest.mark.slow
def test_a_curve_of_the_mask_s_values_is_found(engine: Engine, scene: Cube) -> None:
    true = MaskPose(0.3, -0.4, middle=0.3, contrast=0.1, haze=0.1)
    seen = photographed(scene, true)
    found = align_mask(engine, seen).pose
    unbent = MaskPose(**{name: getattr(found, name) for name in (*POSITION, *DISPERSION, BLUR)})
    assert found != unbent
    assert error(engine, scene, seen, found) < 0.9 * error(engine, scene, seen, unbent)


@pytest.mark.slow
def test_pixels_that_say_nothing_do_not_count(engine: Engine, scene: Cube) -> None:
    seen = photographed(scene, BESIDE)
    bad = torch.zeros(seen.measurement.shape[-2:], dtype=torch.bool)
    bad[:, 70::9] = True
    spoilt = torch.where(bad, 0.8, seen.measurement)
    found = align_mask(engine, seen._replace(measurement=spoilt), bad).pose
    assert found.numbers[:2] == pytest.approx(BESIDE.numbers[:2], abs=0.2)


def test_without_light_nothing_can_be_found(engine: Engine) -> None:
    dark = torch.zeros(1, *CAMERA.measurement_size(SIZE))
    found = align_mask(engine, Observation(dark, mask_values(), CAMERA, torch.tensor([0.002])))
    assert found.pose == MaskPose()
    assert not found.is_worth_it
    assert "holds no light" in found.text(SIZE, CAMERA)


def test_how_surely_is_told() -> None:
    found = Alignment(BESIDE, 0.05, 0.02, MaskPose(0.01, 0.04, spread=0.1))
    text = found.text(SIZE, CAMERA)
    assert "2 % of the snapshot is left unexplained instead of 5 %" in text
    assert "0.04 px horizontally and 0.01 px vertically, the spectrum's width to 0.20 px" in text
    assert "spectrum's width to" not in Alignment(BESIDE, 0.05, 0.02).text(SIZE, CAMERA)


@pytest.mark.slow
def test_reconstruct_uses_it_and_says_so(scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], BESIDE.moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())
    with pytest.warns(PrismaskWarning, match="contradicts its mask"):
        plain = reconstruct(shot, mask, CAMERA, noise_std=0.002, device="cpu", align=False)
    assert any("align=True" in line for line in plain.attrs["findings"])
    moved = reconstruct(
        shot, mask, CAMERA, noise_std=0.002, device="cpu", check_mask=False, align=True
    )
    assert any("the mask lies" in line for line in moved.attrs["findings"])
    assert moved.attrs["residual_rms"] < 0.6 * plain.attrs["residual_rms"]
    assert moved.attrs["mask_pose"][1] == pytest.approx(-0.6, abs=0.3)
    assert 0 < moved.attrs["mask_pose_std"][1] < 0.3
    assert moved.attrs["recipe"] != plain.attrs["recipe"]
    assert (moved.attrs["mask_pose_by"], moved.attrs["model"]) == ("lumen.m2m", "lumen.m2m")
    errors = [float(np.square(cube.values - scene.values).mean()) for cube in (plain, moved)]
    assert errors[1] < errors[0]
    # The pose serves other snapshots, with the same network.
    again = reconstruct(
        shot, mask, CAMERA, noise_std=0.002, device="cpu", check_mask=False, pose=moved
    )
    assert (again.attrs["mask_pose_by"], again.attrs["model"]) == ("given", "lumen.m2m")
    np.testing.assert_allclose(again.values, moved.values, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
@pytest.mark.parametrize(
    ("camera", "given"),
    [
        (CAMERA, {}),
        (CASSI.from_step(28, 3.0), {}),
        (CASSI.from_step(28, 1.0), {}),
        (CASSI.from_step(28, -2.0, "height"), {}),
        (CAMERA, {"method": "gap-tv", "iterations": 2}),
        (CAMERA, {"model": "lumen.m2m"}),
    ],
)
def test_the_default_network_finds_the_pose_whoever_makes_the_cube(
    camera: CASSI, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "STAGES", ((POSITION, 1, 0.0),))
    nominal = fabricate_mask(camera.mask_size((32, 40)), seeded(8))[None, None]
    truth = gaussian_blur(torch.tensor(random_scene(5, (32, 40)).values), 1.0)[None]
    signal = camera.forward(truth, MaskPose(0.3, -0.3).moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())
    cube = reconstruct(shot, mask, camera, noise_std=0.002, device="cpu", align=True, **given)
    assert cube.attrs["mask_pose_by"] == "lumen.m2m"
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
    assert moved.attrs["mask_pose_by"] == "lumen.m2m"
    assert moved.attrs["recipe"] != plain.attrs["recipe"]
    errors = [float(np.square(cube.values - scene.values).mean()) for cube in (plain, moved)]
    assert errors[1] < 0.8 * errors[0]


def test_a_camera_that_no_network_knows_is_not_aligned() -> None:
    camera = CASSI.from_step(28, 0.5)
    shot = Measurement(np.ones((20, 34), np.float32))
    mask = Mask(mask_values()[0, 0, :20, :20].numpy())
    with pytest.raises(ConfigError, match="gap-tv cannot find the pose of a mask"):
        reconstruct(shot, mask, camera, "gap-tv", align=True, check_mask=False, device="cpu")


def test_strips_lie_where_there_is_light_and_are_held_out_in_turn() -> None:
    signal = torch.full((600, 50), 0.1)
    signal[20:60] += 1
    signal[520:560] += 1
    fitted, held = strips(signal)
    assert len(fitted) == len(held) == alignment.PIECES
    both = sorted((*fitted, *held), key=lambda rows: rows.start)
    assert both[::2] == fitted
    assert all(a.stop <= b.start for a, b in pairwise(both))
    assert all(rows.stop - rows.start == alignment.LINES for rows in both)
    assert 20 <= fitted[0].start <= fitted[0].stop <= 60
    assert 525 <= held[-1].start <= held[-1].stop <= 560
    few, others = strips(signal[:30])
    assert (few, others) == ([slice(0, 15)], [slice(15, 30)])


def test_what_is_left_is_least_with_the_right_mask(engine: Engine, scene: Cube) -> None:
    seen = photographed(scene, BESIDE)
    pieces = [slice(20, 44), slice(50, 74)]
    right, wrong = (residual(engine, seen, pose, pieces) for pose in (BESIDE, MaskPose()))
    assert 0 < right.level < 0.6 * wrong.level
    assert right.is_below(wrong)
    assert not wrong.is_below(right)


def test_less_on_the_whole_may_be_more_on_a_strip() -> None:
    before = Left((1.0, 1.0, 0.1), (9.0, 9.0, 0.01))
    after = Left((0.1, 1.1, 0.1), (9.0, 9.0, 0.01))
    assert after.level < before.level
    assert not after.is_below(before)
    assert Left((0.9, 0.9, 0.2), (9.0, 9.0, 0.01)).is_below(before)  # the dark one does not count
