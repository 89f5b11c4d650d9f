"""A mask from snapshots: given cubes, given a trained network, and given nonsense."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError, PrismaskWarning, ShapeError, ValuesError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.steps import AROUND, Lines, Observed, _around, step_pose
from prismask.inference.reconstruct import reconstruct
from prismask.inference.refinement.check import check_mask, date_of
from prismask.inference.refinement.mask_fit import fit_mask
from prismask.inference.refinement.refine import Refinement, refine_mask
from prismask.optics.camera import CASSI, camera_attrs
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import DeadPixels, Shift
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import load_mask, save
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import demo_scene

CAMERA = CASSI.from_step(6, 2.0)
NOISE = 0.01


def rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def fabricated(size: tuple[int, int], seed: int = 4) -> Tensor:
    numbers = seeded(seed)
    return fabricate_mask(size, numbers, random_aperture(numbers))[None, None]


# --- with cubes that are right -------------------------------------------------------------------


def observed(true: Tensor, camera: CASSI = CAMERA, count: int = 4) -> Observed:
    """Scenes of smooth colour, photographed through `true`, and their own cubes."""
    numbers = seeded(2)
    small = torch.rand(count, camera.bands, 6, 7, generator=numbers)
    cubes = torch.nn.functional.interpolate(small, true.shape[-2:], mode="bilinear")
    signal = camera.forward(cubes, true)
    signal = signal + NOISE * torch.randn(signal.shape, generator=numbers)
    return Observed(signal, torch.ones_like(signal), torch.full((count,), NOISE), cubes, camera)


@pytest.mark.parametrize("step", [2.0, 1.7, -2.0])
def test_dust_is_found_pixel_by_pixel(step: float) -> None:
    told = fabricated((40, 48))
    true = DeadPixels(0.02).apply(told, seeded(3))
    fit = fit_mask(observed(true, CASSI.from_step(6, step)), told)
    dusty = (true - told).abs() > 0.3
    assert rms(told + fit.change - true) < 0.3 * rms(told - true)
    assert float((fit.change[dusty] < -0.2).float().mean()) > 0.9
    assert float((fit.change[~dusty].abs() < 0.1).float().mean()) > 0.95


def test_a_right_mask_is_left_nearly_as_it_is() -> None:
    told = fabricated((40, 48))
    assert rms(fit_mask(observed(told), told).change) < 0.02


def test_pixels_that_no_light_reaches_stay_and_are_called_uncertain() -> None:
    true = fabricated((40, 48))
    seen = observed(true)
    dark = seen.cubes.clone()
    dark[:, :, :20] = 0
    seen = replace(seen, cubes=dark, signal=CAMERA.forward(dark, true))
    told = (true + 0.1 * torch.randn(true.shape, generator=seeded(1))).clamp(0, 1)
    fit = fit_mask(seen, told)
    assert float(fit.change[..., :20, :].abs().max()) < 1e-6
    assert float(fit.std[..., :20, :].mean()) > 1.5 * float(fit.std[..., 20:, :].mean())


def test_what_does_not_count_changes_nothing() -> None:
    true = fabricated((40, 48))
    seen = observed(true)
    spoilt = seen.signal.clone()
    spoilt[:, 5:9] += 3.0
    counts = torch.ones_like(spoilt)
    counts[:, 5:9] = 0
    fit = fit_mask(replace(seen, signal=spoilt, counts=counts), true)
    assert float(fit.change[..., 5:9, :].abs().max()) < 1e-6
    assert rms(fit.change) < 0.02


def test_the_pose_is_found_with_right_cubes() -> None:
    told = fabricated((64, 72))
    planted = MaskPose(down=0.4, right=-0.6, down_by_column=0.2)
    lines = Lines(observed(planted.moved(told)), slice(0, 64))
    pose = MaskPose()
    for _ in range(2):
        pose, _ = step_pose([lines], told, pose)
    for name in ("down", "right", "down_by_column"):
        assert getattr(pose, name) == pytest.approx(getattr(planted, name), abs=0.03)


# --- with a trained network ----------------------------------------------------------------------

SIZE = (96, 112)


def photographed(mask: Tensor, count: int, first: int = 0) -> list[Measurement]:
    """Drawn scenes, each turned or mirrored another way, so that they differ."""
    found = []
    for number in range(first, first + count):
        lamp = ("D65", "A", "D50", "E")[number % 4]
        scene = torch.tensor(demo_scene(SIZE, seed=number, illuminant=lamp).values)[None]
        if number % 2:
            scene = scene.flip(-1)
        if number % 3 == 1:
            scene = scene.flip(-2)
        signal = CASSI.from_step().forward(scene, mask)[0]
        signal = signal + 0.02 * torch.randn(signal.shape, generator=seeded(number))
        found.append(Measurement(signal.numpy()))
    return found


@pytest.fixture(scope="module")
def told() -> Tensor:
    return fabricated(SIZE, 6)


@pytest.fixture(scope="module")
def true(told: Tensor) -> Tensor:
    return DeadPixels(0.01).apply(Shift(rows=0.4, columns=-0.5).apply(told), seeded(3))


@pytest.fixture(scope="module")
def refined(told: Tensor, true: Tensor) -> Refinement:
    return refine_mask(photographed(true, 3), Mask(told[0, 0].numpy()), rounds=1, device="cpu")


@pytest.mark.slow
def test_a_mask_comes_nearer_the_truth(told: Tensor, true: Tensor, refined: Refinement) -> None:
    assert refined.is_changed
    error = torch.tensor(refined.mask.values) - true[0, 0]
    assert rms(error) < 0.5 * rms(told - true)
    assert refined.pose.down == pytest.approx(-0.4, abs=0.1)
    assert refined.pose.right == pytest.approx(0.5, abs=0.1)
    assert refined.levels[refined.kept] < refined.levels[0]
    assert refined.mask.std is not None
    inside = (error.abs() <= 1.64 * torch.tensor(refined.mask.std)).float().mean()
    assert 0.8 < float(inside) < 0.995


@pytest.mark.slow
def test_the_file_holds_everything_and_reconstruct_uses_it(
    true: Tensor, refined: Refinement, tmp_path: Path
) -> None:
    save(refined.mask, tmp_path / "refined.nc")
    again = load_mask(tmp_path / "refined.nc")
    assert again.std is not None
    assert refined.mask.std is not None
    np.testing.assert_array_equal(again.std, refined.mask.std)
    assert again.attrs["refined_with"] == 3
    assert list(again.attrs["refined_pose"]) == pytest.approx(list(refined.pose.numbers))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrismaskWarning)  # drawn scenes are unlike the training's
        cube = reconstruct(photographed(true, 1, 5)[0], again, device="cpu", check_mask=False)
    assert cube.attrs["mask_std_from"] == "the mask"


@pytest.mark.slow
def test_a_right_mask_is_given_back(told: Tensor) -> None:
    given = Mask(told[0, 0].numpy())
    found = refine_mask(photographed(told, 1), given, rounds=1, device="cpu")
    assert not found.is_changed
    assert found.mask is given


@pytest.mark.slow
def test_a_snapshot_of_another_mask_is_named_and_left_out(told: Tensor) -> None:
    shots = photographed(told, 3)
    stranger = photographed(fabricated(SIZE, 11), 1, 7)
    found = refine_mask(
        [*shots, *stranger], Mask(told[0, 0].numpy()), rounds=0, device="cpu", check_mask=False
    )
    assert [name for name, _ in found.left_out] == ["snapshot 4"]
    assert any("snapshot 4 contradicts the others" in one.text for one in found.findings)


@pytest.mark.slow
def test_stopped_work_goes_on(told: Tensor, true: Tensor, tmp_path: Path) -> None:
    state, shots, mask = tmp_path / "state.npz", photographed(true, 2), Mask(told[0, 0].numpy())

    def stopping(done: int, total: int, info: object) -> None:
        if state.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refine_mask(shots, mask, rounds=1, device="cpu", state=state, progress=stopping)
    calls: list[int] = []
    later = refine_mask(
        shots, mask, rounds=1, device="cpu", state=state,
        progress=lambda done, *_: calls.append(done),
    )  # fmt: skip
    assert not state.exists()
    whole: list[int] = []
    at_once = refine_mask(
        shots, mask, rounds=1, device="cpu", progress=lambda done, *_: whole.append(done)
    )
    assert len(calls) < len(whole)
    np.testing.assert_allclose(later.mask.values, at_once.mask.values, atol=1e-6)


@pytest.mark.slow
def test_a_check_tells_a_moved_mask_from_a_right_one(told: Tensor) -> None:
    moved = Shift(rows=0.5, columns=0.5).apply(told)
    given = Mask(told[0, 0].numpy())
    right = check_mask(photographed(told, 2), given, device="cpu")
    wrong = check_mask(photographed(moved, 2), given, device="cpu")
    assert right.fits
    assert not wrong.fits
    for shot in wrong.shots:
        assert shot.pose.right == pytest.approx(-0.5, abs=0.15)
        assert shot.pose.down == pytest.approx(-0.5, abs=0.15)


# --- with nonsense -------------------------------------------------------------------------------


def test_snapshots_of_different_sizes(told: Tensor) -> None:
    shots = [
        Measurement(np.ones((96, 166), np.float32)),
        Measurement(np.ones((96, 160), np.float32)),
    ]
    with pytest.raises(ShapeError, match="snapshot 2 is 96×160 and snapshot 1 96×166"):
        refine_mask(shots, Mask(told[0, 0].numpy()), device="cpu")


def test_snapshots_of_different_cameras(told: Tensor) -> None:
    first, second = photographed(told, 2)
    noted, other = (camera_attrs(CASSI.from_step(bands, 54 / (bands - 1))) for bands in (28, 19))
    shots = [Measurement(first.values, noted), Measurement(second.values, other)]
    with pytest.raises(ConfigError, match="snapshot 2 is of another camera than snapshot 1"):
        refine_mask(shots, Mask(told[0, 0].numpy()), device="cpu")


def test_overexposed_and_dark_snapshots(told: Tensor) -> None:
    (shot,) = photographed(told, 1)
    bright = Measurement(np.minimum(shot.values, np.quantile(shot.values, 0.9)))
    with pytest.raises(ValuesError, match=r"snapshot 1 is overexposed \(.*largest value"):
        refine_mask([bright], Mask(told[0, 0].numpy()), device="cpu")


def test_an_even_surface_is_refused(told: Tensor) -> None:
    even = torch.full((1, 28, *SIZE), 0.5)
    signal = CASSI.from_step().forward(even, told)[0]
    noise = 0.02 * torch.randn(signal.shape, generator=seeded(1))
    with pytest.raises(ValuesError, match="nothing but an even surface"):
        refine_mask([Measurement((signal + noise).numpy())], Mask(told[0, 0].numpy()), device="cpu")


def test_what_cannot_refine(told: Tensor) -> None:
    mask = Mask(told[0, 0].numpy())
    (shot,) = photographed(told, 1)
    with pytest.raises(ConfigError, match="no snapshot was given"):
        refine_mask([], mask)
    with pytest.raises(ConfigError, match=r"how far a mask may be wrong.*lumen"):
        refine_mask([shot], mask, method="gap-tv", device="cpu")
    long = Mask(np.pad(mask.values, ((0, 0), (0, 54))))
    with pytest.raises(ConfigError, match="dual disperser"):
        refine_mask([Measurement(np.ones(SIZE, np.float32))], long, CASSI.from_step(design="dual"))


def test_dates_come_from_the_file_or_its_name() -> None:
    assert str(date_of("a.nc", {"date": "2024-03-01T12:30"})) == "2024-03-01 12:30:00"
    assert str(date_of("lab/shot_20240405_1015.tif", {})) == "2024-04-05 10:15:00"
    assert date_of("shot-1234.tif", {}) is None
    assert date_of("shot-20249999.tif", {}) is None


@pytest.mark.parametrize("size", [(40, 50), (9, 50), (50, 4), (1, 30)])
def test_what_lies_around_a_pixel_in_frames_of_any_shape(size: tuple[int, int]) -> None:
    """As a plain average; a window that a narrow frame has no room for is as wide as it allows."""
    image = torch.rand(2, *size, generator=seeded(1))
    side = min(AROUND, 2 * min(size) - 1) // 2
    width = 2 * side + 1
    padded = np.pad(image.numpy(), ((0, 0), (side, side), (side, side)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (width, width), axis=(1, 2))
    np.testing.assert_allclose(_around(image), windows.mean((-1, -2)), atol=1e-5)
