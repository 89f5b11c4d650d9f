"""Frames with larger pixels along the dispersion, for networks that know smaller steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match import Stretch
from prismask.inference.reconstruct import reconstruct
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.resample import gaussian_blur
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

BANDS = 6


def smooth(*shape: int) -> Tensor:
    return gaussian_blur(torch.rand(shape, generator=seeded(1)), 4.0)


def test_no_stretch_changes_nothing() -> None:
    assert Stretch.by(1.0, CASSI.from_step(BANDS), 40) is None
    assert Stretch.by(0.999, CASSI.from_step(BANDS), 40) is None, "no whole pixel less"


@pytest.mark.parametrize("design", ["single", "dual"])
@pytest.mark.parametrize(("step", "width"), [(3.0, 120), (2.6, 97), (-4.0, 120)])
def test_it_is_the_photograph_of_another_camera(design: str, step: float, width: int) -> None:
    camera = CASSI.from_step(BANDS, step, design=design)  # type: ignore[arg-type]
    stretch = Stretch.by(2 / abs(step), camera, width)
    cube = smooth(1, BANDS, 12, width)
    mask = smooth(1, 1, *camera.mask_size((12, width)))
    seen, _ = stretch.signal(camera.forward(cube, mask)[0], 0.0)
    smaller = cube @ stretch._there(width, stretch.columns).T
    expected = stretch.shown.forward(smaller, stretch.mask(mask))[0]
    assert seen.shape == expected.shape
    assert stretch.shown.offsets[1] - stretch.shown.offsets[0] == pytest.approx(
        np.sign(step) * 2, rel=0.01
    )

    def difference(one: Tensor) -> float:
        return float((one - expected)[..., 2:-2].square().mean().sqrt() / expected.std())

    # Between pixels the edges of bands are not quite the same; elsewhere all is.
    assert difference(seen) < 0.05
    assert difference(seen.roll(1, -1)) > 3 * difference(seen)
    # And back again.
    assert torch.allclose(stretch.back(smaller[0])[..., 3:-3], cube[0, ..., 3:-3], atol=0.02)


def test_larger_pixels_are_less_noisy() -> None:
    stretch = Stretch.by(0.5, CASSI.from_step(BANDS, 4.0), 300)
    noise = 0.1 * torch.randn(200, 320, generator=seeded(3))
    seen, std = stretch.signal(noise, 0.1)
    assert float(seen.std()) == pytest.approx(std, rel=0.02)
    assert std < 0.08


def test_widths_of_intervals_stay_positive() -> None:
    stretch = Stretch.by(2 / 3, CASSI.from_step(BANDS, 3.0), 30)
    spikes = torch.zeros(1, 1, 20)
    spikes[..., 10] = 1
    assert float(stretch.back(spikes).min()) < 0
    assert float(stretch.back_distance(spikes).min()) >= 0


def test_a_place_comes_back_in_the_camera_s_pixels() -> None:
    stretch = Stretch.by(0.5, CASSI.from_step(BANDS, 4.0), 30)
    found = stretch.pose_back(MaskPose(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.4, 0.1))
    expected = (0.1, 0.4, 0.3, 0.4, 1.0, 1.2, 1.4, 1.6, 1.0, 0.1, 0, 0)
    assert found.numbers == pytest.approx(expected)


@pytest.fixture(scope="module")
def sharp() -> Cube:
    return random_scene(5, (64, 160))


@pytest.fixture(scope="module")
def scene(sharp: Cube) -> Cube:
    """Without the finest detail, which pixels of 2.5 times the length would lose."""
    return Cube(gaussian_blur(torch.tensor(sharp.values), 1.5).numpy())


def photographed(scene: Cube, camera: CASSI) -> tuple[Measurement, Mask]:
    mask = fabricate_mask(camera.mask_size(scene.values.shape[1:]), seeded(8))
    signal = camera.forward(torch.tensor(scene.values)[None], mask)[0]
    return Measurement(signal.numpy()), Mask(mask.numpy())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "factor", "name"), [(3.0, 2 / 3, "sharp"), (3.0, 2 / 3, "scene"), (5.0, 0.4, "scene")]
)
def test_a_camera_that_spreads_further_is_reconstructed(
    step: float, factor: float, name: str, request: pytest.FixtureRequest
) -> None:
    scene: Cube = request.getfixturevalue(name)
    camera, truth = CASSI.from_step(28, step), scene.values
    shot, record = photographed(scene, camera)
    cube = reconstruct(shot, record, camera, check_mask=False, device="cpu")
    assert cube.attrs["model"] == "lumen.m2m"
    assert cube.attrs["frame_stretch"] == pytest.approx(factor, rel=0.01)
    told = f"the frame is resampled to pixels {1 / factor:.2f} times as long"
    assert any(told in line for line in cube.attrs["findings"])
    assert cube.values.shape == truth.shape
    assert cube.lower is not None
    assert cube.upper is not None
    assert (cube.lower <= cube.values).all()
    assert (cube.values <= cube.upper).all()
    assert cube.attrs["trust"]
    solved = reconstruct(shot, record, camera, "gap-tv", check_mask=False, device="cpu")
    errors = [float(np.square(one.values - truth).mean()) for one in (cube, solved)]
    assert errors[0] < 0.8 * errors[1]
    inside = (cube.lower <= truth) & (truth <= cube.upper)
    assert inside.mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("step", [3.0, 5.0])
def test_what_is_stated_of_the_mask_is_used_there(scene: Cube, step: float) -> None:
    camera = CASSI.from_step(28, step)
    shot, record = photographed(scene, camera)
    flat = np.full(record.values.shape, 0.1, np.float32)
    nothing, number, map_, half = (
        reconstruct(shot, record, camera, check_mask=False, device="cpu", **given)
        for given in (
            {}, {"mask_std": 0.1}, {"mask_std": flat}, {"mask_std": flat * (flat.cumsum(0) > 3.2)},
        )
    )  # fmt: skip
    assert number.attrs["mask_std"] == 0.1
    np.testing.assert_allclose(map_.values, number.values, atol=1e-4)
    # Each row is explained by itself: the map says where the mask is doubted, and by how much.
    apart = np.abs(half.values - number.values).mean((0, 2))
    assert apart[:24].mean() > 3 * apart[40:].mean()
    assert np.abs(nothing.values - number.values).mean() > 1e-3


@pytest.mark.slow
def test_a_spectrum_that_is_too_long_is_left_to_a_solver(scene: Cube) -> None:
    camera = CASSI.from_step(28, 5.1)
    shot, record = photographed(scene, camera)
    cube = reconstruct(shot, record, camera, check_mask=False, device="cpu")
    assert cube.attrs["method"] == "gap-tv"
    said = [line for line in cube.attrs["findings"] if "gap-tv is used" in line]
    assert said == [
        "note: gap-tv is used: this camera is beyond what the network lumen.m2m was trained for: "
        "its spectrum is 138 px long (tried with 21.5 to 135 px). Give model='lumen.m2m' to use it "
        "anyway."
    ]
