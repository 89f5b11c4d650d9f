"""Mask faults against SciPy, NumPy and theory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.optics import faults
from prismask.optics.faults import FAULTS, Compose, make_fault
from prismask.optics.randomness import seeded

EXAMPLES: dict[str, dict[str, float]] = {
    "shift": {"rows": 0.3, "columns": -1.6},
    "rotation": {"degrees": 3.0},
    "blur": {"std": 0.8},
    "gain": {"gain": 1.3, "offset": -0.1},
    "gamma": {"gamma": 1.4},
    "dead": {"fraction": 0.1},
    "stuck": {"fraction": 0.1, "level": 0.7},
    "noise": {"std": 0.1},
}
"""One example of each fault; the test below asks for one when a fault is added."""


def masks(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=seeded(seed), dtype=torch.float64)


def test_every_fault_has_an_example() -> None:
    assert set(EXAMPLES) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("shape", [(1, 1, 9, 13), (3, 1, 8, 8), (2, 4, 7, 10)])
def test_what_all_faults_share(name: str, shape: tuple[int, ...]) -> None:
    mask = masks(*shape)
    before = mask.clone()
    fault = make_fault(name, **EXAMPLES[name])
    came = fault.apply(mask, seeded(1))
    assert torch.equal(mask, before)
    assert came.shape == mask.shape
    assert came.dtype == mask.dtype
    assert float(came.min()) >= 0
    assert float(came.max()) <= 1
    assert not torch.equal(came, mask)
    assert torch.equal(came, fault.apply(mask, seeded(1)))
    assert fault.apply(mask.float(), seeded(1)).dtype == torch.float32
    assert dataclasses.is_dataclass(fault)
    assert fault == make_fault(name, **EXAMPLES[name])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("shift", {}),
        ("rotation", {"degrees": 0.0}),
        ("blur", {"std": 0.0}),
        ("gain", {}),
        ("gamma", {"gamma": 1.0}),
        ("dead", {"fraction": 0.0}),
        ("stuck", {"fraction": 0.0}),
        ("noise", {"std": 0.0}),
    ],
)
def test_nothing_asked_is_nothing_done(name: str, options: dict[str, float]) -> None:
    mask = masks(2, 1, 9, 12).float()
    assert torch.equal(make_fault(name, **options).apply(mask, seeded(0)), mask)


@pytest.mark.parametrize("move", [(0.0, 0.5), (-0.25, 0.0), (2.0, -3.0), (1.7, 2.2), (30.0, 0.5)])
def test_shift_against_scipy(move: tuple[float, float]) -> None:
    mask = masks(2, 3, 11, 14)
    came = faults.Shift(*move).apply(mask)
    for image, moved in zip(mask.flatten(0, 1), came.flatten(0, 1), strict=True):
        expected = scipy.ndimage.shift(image.numpy(), move, order=1, mode="nearest")
        np.testing.assert_allclose(moved, expected, atol=1e-12)


@pytest.mark.parametrize("degrees", [0.7, -3.0, 33.0])
@pytest.mark.parametrize("size", [(16, 16), (11, 14)])
def test_rotation_against_scipy(degrees: float, size: tuple[int, int]) -> None:
    mask = masks(1, 2, *size)
    came = faults.Rotation(degrees).apply(mask)
    for image, turned in zip(mask[0], came[0], strict=True):
        expected = scipy.ndimage.rotate(
            image.numpy(), degrees, reshape=False, order=1, mode="nearest"
        )
        np.testing.assert_allclose(turned, expected, atol=1e-12)


def test_a_right_angle_turns_counter_clockwise() -> None:
    mask = masks(1, 1, 9, 9)
    turned = faults.Rotation(90).apply(mask)
    np.testing.assert_allclose(turned, torch.rot90(mask, dims=(2, 3)), atol=1e-12)


@pytest.mark.parametrize("std", [0.4, 1.0, 2.7])
def test_blur_against_scipy(std: float) -> None:
    mask = masks(2, 2, 12, 9)
    came = faults.Blur(std).apply(mask)
    for image, blurred in zip(mask.flatten(0, 1), came.flatten(0, 1), strict=True):
        expected = scipy.ndimage.gaussian_filter(image.numpy(), std, mode="nearest", truncate=4)
        np.testing.assert_allclose(blurred, expected, atol=1e-12)


def test_gain_and_gamma_against_numpy() -> None:
    mask = masks(2, 1, 5, 6)
    values = mask.numpy()
    np.testing.assert_allclose(
        faults.Gain(1.5, -0.2).apply(mask), np.clip(1.5 * values - 0.2, 0, 1), atol=1e-15
    )
    np.testing.assert_allclose(faults.Gamma(2.2).apply(mask), values**2.2, atol=1e-15)


@pytest.mark.parametrize(("fault", "level"), [("dead", 0.0), ("stuck", 1.0)])
def test_struck_pixels_are_as_many_as_said(fault: str, level: float) -> None:
    mask = torch.full((4, 3, 200, 200), 0.5)
    came = make_fault(fault, fraction=0.03).apply(mask, seeded(2))
    struck = came == level
    assert torch.equal(struck | (came == 0.5), torch.ones_like(struck))
    # 160,000 draws: the fraction's standard error is 0.0004.
    assert abs(float(struck[:, 0].float().mean()) - 0.03) < 0.002
    assert torch.equal(struck[:, 0], struck[:, 2]), "all bands of a pixel are struck together"
    assert not torch.equal(struck[0], struck[1]), "each mask of a batch has its own"


def test_noise_has_the_std_it_says() -> None:
    mask = torch.full((2, 1, 200, 200), 0.5)
    added = faults.Noise(0.05, mean=0.02).apply(mask, seeded(4)) - mask
    assert float(added.mean()) == pytest.approx(0.02, abs=0.001)
    assert float(added.std()) == pytest.approx(0.05, rel=0.02)
    assert not torch.equal(added[0], added[1])


def test_compose_runs_in_order() -> None:
    mask = masks(1, 1, 6, 6)
    gain, blur = faults.Gain(3.0), faults.Blur(1.0)
    both = Compose((gain, blur)).apply(mask)
    assert torch.equal(both, blur.apply(gain.apply(mask)))
    assert not torch.allclose(both, Compose((blur, gain)).apply(mask))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("blurr", {}, "Did you mean 'blur'"),
        ("blur", {"sdt": 1.0}, "Did you mean 'std'"),
        ("rotation", {}, "needs: degrees"),
        ("blur", {"std": -1.0}, "negative"),
        ("dead", {"fraction": 1.2}, r"\[0, 1\]"),
        ("stuck", {"fraction": 0.1, "level": 2.0}, r"\[0, 1\]"),
        ("gamma", {"gamma": 0.0}, "above 0"),
        ("noise", {"std": float("nan")}, "negative"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_fault(name, **options)


def test_wrong_dimensions_are_refused() -> None:
    for name in ("shift", "rotation", "blur", "dead", "stuck"):
        with pytest.raises(ShapeError, match="2 dimensions"):
            make_fault(name, **EXAMPLES[name]).apply(torch.rand(4, 4))


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ConfigError, match="already"):
        faults.register("blur")(faults.Blur)
