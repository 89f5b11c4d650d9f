"""Fabricated masks against the physics they claim, and against real masks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.ndimage
import torch

from prismask.errors import ConfigError
from prismask.optics.fabricate import Aperture, fabricate_mask, random_aperture
from prismask.optics.randomness import seeded

BARE = Aperture(
    pitch=(2.0, 2.0), fill=1, angle=0, blur=0, halo=0, floor=0, gain=1, unevenness=0, noise=0
)
"""Nothing but cells and pixels."""


def autocorrelation(mask: np.ndarray) -> np.ndarray:
    """At 1, 2 and 3 pixels along columns and rows, and at (1, 1)."""
    power = np.abs(np.fft.fft2(mask - mask.mean())) ** 2
    found = np.fft.ifft2(power).real
    found /= found[0, 0]
    return np.array([*found[0, 1:4], *found[1:4, 0], found[1, 1]])


def differences(mask: np.ndarray, real: np.ndarray) -> dict[str, float]:
    """How unlike two masks are: histogram, clipped share, autocorrelation."""
    return {
        # The Wasserstein distance of two equally large samples: sorted against sorted.
        "histogram": float(np.abs(np.sort(mask, axis=None) - np.sort(real, axis=None)).mean()),
        "clipped": abs(float((mask == 1).mean() - (real == 1).mean())),
        "autocorrelation": float(np.abs(autocorrelation(mask) - autocorrelation(real)).max()),
    }


LIMITS = {"histogram": 0.03, "clipped": 0.06, "autocorrelation": 0.06}
"""What a fabricated mask may differ by: as much as real instruments do. The two 660×660 masks
differ by 0.030, 0.065 and 0.067 from each other."""


def resembles(mask: np.ndarray, real: np.ndarray) -> bool:
    return all(value <= LIMITS[name] for name, value in differences(mask, real).items())


@pytest.mark.data
@pytest.mark.parametrize("name", ["tsanet_real_660", "smem_real_660", "tsanet_sim_256"])
def test_fabricated_masks_resemble_real_ones(data_folder: Path, name: str) -> None:
    real = scipy.io.loadmat(data_folder / "masks" / f"{name}.mat")["mask"].astype(np.float64)
    size = (real.shape[0], real.shape[1])
    # The second calibration of the first aperture clips far more: 40 % of the pixels, not 26 %.
    brighter = Aperture(pitch=(2.15, 2.25), gain=2.1)
    aperture = brighter if name == "tsanet_sim_256" else Aperture()
    for seed in range(2):
        fabricated = fabricate_mask(size, seeded(seed), aperture).double().numpy()
        assert resembles(fabricated, real), differences(fabricated, real)

    # The criterion tells a mask from what is none.
    random = np.random.default_rng(0)
    cells = random.random((size[0] // 2, size[1] // 2)) < 0.5
    binary = np.kron(cells, np.ones((2, 2)))
    wrong = {
        "uniform noise": random.random(size),
        "perfect binary": binary,
        "blurred binary": scipy.ndimage.gaussian_filter(binary, 1.0),
        "fabricated, then shuffled": random.permutation(fabricated.ravel()).reshape(size),
        "cells of four pixels": fabricate_mask(size, seeded(0), Aperture(pitch=(4.0, 4.0)))
        .double()
        .numpy(),
    }
    for what, mask in wrong.items():
        assert not resembles(mask, real), what
    for what in ("uniform noise", "perfect binary"):
        found = differences(wrong[what], real)
        assert found["histogram"] > LIMITS["histogram"], what
        assert found["autocorrelation"] > LIMITS["autocorrelation"], what


@pytest.mark.data
def test_fabricated_edges_are_as_sharp_as_real_ones(data_folder: Path) -> None:
    """Power at high spatial frequencies, where the edge blur shows, within a factor of two."""

    def fine_share(mask: np.ndarray) -> float:
        power = np.abs(np.fft.fft2(mask - mask.mean())) ** 2
        rows, columns = (np.fft.fftfreq(n) for n in mask.shape)
        return float(power[np.hypot(rows[:, None], columns[None]) > 0.4].sum() / power.sum())

    shares = [
        fine_share(scipy.io.loadmat(data_folder / "masks" / f"{name}.mat")["mask"])
        for name in ("tsanet_real_660", "smem_real_660")
    ]
    made = fabricate_mask(660, seeded(0))
    assert min(shares) / 2 < fine_share(made.numpy()) < max(shares) * 2
    blurred = scipy.ndimage.gaussian_filter(made.numpy(), 0.8)
    assert not min(shares) / 2 < fine_share(blurred)


def test_bare_cells_of_two_pixels() -> None:
    """Of every 2×2 pixels one lies inside a single cell: open or closed, nothing between."""
    mask = fabricate_mask((40, 60), seeded(0), BARE).double().numpy()
    parts = [mask[row::2, column::2] for row in (0, 1) for column in (0, 1)]
    pure = [part for part in parts if np.all((part < 1e-5) | (part > 1 - 1e-5))]
    assert len(pure) == 1
    assert pure[0].mean() == pytest.approx(BARE.open_fraction, abs=0.08)


def test_cells_integrate_exactly_against_a_fine_rendering() -> None:
    """The closed form equals a 64-fold supersampled rendering of the same openings."""
    aperture = replace(BARE, pitch=(2.3, 2.7), fill=0.8, open_fraction=1.0)
    mask = fabricate_mask((12, 12), seeded(4), aperture).double().numpy()
    phase = torch.rand(2, generator=seeded(4)).double().numpy()

    def profile(pitch: float, start: float, fine: int = 4096) -> np.ndarray:
        place = (np.arange(12 * fine) + 0.5) / fine - 0.5 - 5.5
        inside = np.mod(place / pitch + start, 1.0)
        return (np.abs(inside - 0.5) < 0.4).reshape(12, fine).mean(1)

    expected = np.outer(profile(2.3, phase[0]), profile(2.7, phase[1]))
    np.testing.assert_allclose(mask, expected, atol=2e-3)


def test_blur_equals_a_gaussian_on_a_fine_grid() -> None:
    """One opening, blurred by the closed form, has the variance of box + pixel + Gaussian."""
    from prismask.optics.fabricate import _cell_weights

    position = torch.linspace(-6, 6, 2401, dtype=torch.float64)
    reach, weights = _cell_weights(position, 3.0, replace(BARE, blur=0.6, fill=0.5))
    cell = position.floor()
    # The share of opening 0, wherever the pixel lies.
    share = sum(
        torch.where(cell + k == 0, weight, 0.0)
        for k, weight in zip(range(-reach, reach + 1), weights, strict=True)
    )
    assert isinstance(share, torch.Tensor)
    place = (position - 0.5) * 3.0
    share = share / share.sum()
    variance = float((share * place.square()).sum() - (share * place).sum().square())
    assert variance == pytest.approx(1.5**2 / 12 + 1 / 12 + 0.6**2, rel=1e-3)


def test_one_seed_one_mask() -> None:
    mask = fabricate_mask((50, 30), seeded(1))
    assert mask.shape == (50, 30)
    assert mask.dtype == torch.float32
    assert torch.equal(mask, fabricate_mask((50, 30), seeded(1)))
    assert not torch.equal(mask, fabricate_mask((50, 30), seeded(2)))
    assert float(mask.min()) > 0
    assert float(mask.max()) == 1


def test_options_do_what_they_say() -> None:
    def made(**options: float) -> np.ndarray:
        return fabricate_mask(200, seeded(0), replace(Aperture(), **options)).double().numpy()

    plain = made()
    assert (made(gain=2.0) == 1).mean() > (plain == 1).mean() + 0.05
    assert autocorrelation(made(blur=0.8))[0] > autocorrelation(plain)[0] + 0.03
    assert np.quantile(made(floor=0.1), 0.01) == pytest.approx(0.1, abs=0.02)
    assert np.quantile(made(halo=0.4), 0.25) > np.quantile(plain, 0.25) * 1.5
    assert made(open_fraction=0.3).mean() < plain.mean() - 0.1
    coarse = fabricate_mask(200, seeded(0), Aperture(pitch=(4.0, 2.0))).double().numpy()
    along_columns, along_rows = autocorrelation(coarse)[1], autocorrelation(coarse)[4]
    assert along_rows > along_columns + 0.3


def test_many_instruments_are_many() -> None:
    generator = seeded(0)
    apertures = [random_aperture(generator) for _ in range(20)]
    assert len(set(apertures)) == 20
    assert random_aperture(seeded(0)) == apertures[0]
    masks = [fabricate_mask(64, generator, aperture).double().numpy() for aperture in apertures]
    means = [mask.mean() for mask in masks]
    assert 0.3 < min(means) < max(means) < 0.75
    assert np.std([autocorrelation(mask)[0] for mask in masks]) > 0.02


@pytest.mark.parametrize(
    "options",
    [
        {"pitch": (0.1, 2.0)},
        {"open_fraction": 1.5},
        {"blur": -1.0},
        {"angle": 45.0},
        {"halo": float("nan")},
    ],
)
def test_impossible_apertures_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Aperture(**options)  # type: ignore[arg-type]
