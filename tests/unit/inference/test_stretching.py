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
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

BANDS = 6


def smooth(*shape: int) -> Tensor:
    return gaussian_blur(torch.rand(shape, generator=seeded(1)), 4.0)


def test_no_stretch_changes_nothing() -> None:
    stretch = Stretch.by(1.0, CASSI.from_step(BANDS), 40)
    values = torch.rand(3, 5, 40)
    assert stretch.shown is stretch.camera
    assert stretch.signal(values, 0.1)[0] is values
    assert stretch.mask(values) is values
    assert stretch.back(values) is values
    assert stretch.pose_back(MaskPose(0.1, 0.2)) == MaskPose(0.1, 0.2)


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


@pytest.mark.slow
def test_a_camera_that_spreads_further_is_reconstructed() -> None:
    size = (64, 160)
    camera = CASSI.from_step(28, 3.0)
    truth = random_scene(5, size).values
    mask = fabricate_mask(size, seeded(8))
    signal = camera.forward(torch.tensor(truth)[None], mask)[0]
    shot, record = Measurement(signal.numpy()), Mask(mask.numpy())
    cube = reconstruct(shot, record, camera, check_mask=False, device="cpu")
    assert cube.attrs["model"] == "srn-looks.cameras"
    assert cube.attrs["frame_stretch"] == pytest.approx(2 / 3, rel=0.01)
    assert cube.values.shape == truth.shape
    assert cube.lower is not None
    assert cube.upper is not None
    assert (cube.lower <= cube.values).all()
    assert (cube.values <= cube.upper).all()
    solved = reconstruct(shot, record, camera, "gap-tv", check_mask=False, device="cpu")
    errors = [float(np.square(one.values - truth).mean()) for one in (cube, solved)]
    assert errors[0] < 0.8 * errors[1]
    inside = (cube.lower <= truth) & (truth <= cube.upper)
    assert inside.mean() > 0.8
