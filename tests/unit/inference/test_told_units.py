"""What people are told and what they may say is in one unit: the snapshot's own."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import Gaussian, simulate
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

BANDS, SIZE = 6, (48, 64)
CAMERA = CASSI.from_step(BANDS)
SCALE, DARK, NOISE = 0.02, 0.05, 3e-4


@pytest.fixture(scope="module")
def mask() -> Mask:
    return Mask(fabricate_mask(SIZE, seeded(0)).numpy())


@pytest.fixture(scope="module")
def shot(mask: Mask) -> Measurement:
    """A noisy exposure whose scale is noted, with a dark level."""
    grid = tuple(450.0 + 40 * k for k in range(BANDS))
    made = simulate(random_scene(1, SIZE, grid), mask, CAMERA, Gaussian(NOISE), scale=SCALE)
    return Measurement(made.values + np.float32(DARK), made.attrs)


def _network() -> Reconstructor:
    model = create_model("srn", bands=BANDS, seed=3, width=8, blocks=1).eval()
    model.record |= {"name": "untrained", "step_px": 2.0}
    return model


def _told_dark(cube: Cube) -> float:
    [told] = re.findall(r"a dark level of (\S+) is subtracted", " ".join(cube.attrs["findings"]))
    return float(told)


def test_the_dark_level_that_is_told_can_be_given_back(shot: Measurement, mask: Mask) -> None:
    found = reconstruct(shot, mask, method="gap-tv", iterations=5)
    assert _told_dark(found) == pytest.approx(DARK, rel=0.1)
    assert found.attrs["dark_level"] == pytest.approx(_told_dark(found), rel=1e-3)
    again = reconstruct(shot, mask, method="gap-tv", iterations=5, dark=_told_dark(found))
    assert again.attrs["dark_level"] == _told_dark(found)
    np.testing.assert_allclose(again.values, found.values, atol=1e-3 * found.values.max())


def test_noise_and_residual_are_told_in_the_same_units(shot: Measurement, mask: Mask) -> None:
    plain = Measurement(shot.values)  # the same numbers; what they mean for a scene is not noted
    for options in ({}, {"noise_std": 2 * NOISE}):
        noted, bare = (
            reconstruct(one, mask, CAMERA, method="gap-tv", iterations=5, dark=DARK, **options)
            for one in (shot, plain)
        )
        for name in ("noise_std", "residual_rms", "residual_relative", "residual_over_noise"):
            assert noted.attrs[name] == pytest.approx(bare.attrs[name], rel=1e-3), name
        assert noted.attrs["residual"] == bare.attrs["residual"]
        np.testing.assert_allclose(SCALE * noted.values, bare.values, atol=1e-4 * bare.values.max())
    assert noted.attrs["noise_std"] == pytest.approx(2 * NOISE)


def test_the_sentence_about_units_is_true(shot: Measurement, mask: Mask) -> None:
    for measurement in (shot, Measurement(shot.values)):
        cube = reconstruct(measurement, mask, CAMERA, method="gap-tv", dark=DARK)
        named = re.search(r"multiplying by the snapshot's scale \((\S+)\)", cube.attrs["units"])
        factor = 1.0 if named is None else float(named.group(1))
        assert (named is None) == ("scale" not in measurement.attrs)
        again = CAMERA.forward(torch.tensor(cube.values)[None], torch.tensor(mask.values))[0]
        light = measurement.values - DARK
        left = factor * again.numpy() - light
        assert np.sqrt(np.mean(left**2)) == pytest.approx(cube.attrs["residual_rms"], rel=1e-3)
        assert np.sqrt(np.mean(left**2)) < 0.1 * np.sqrt(np.mean(light**2))


@pytest.mark.parametrize("scale", ["1:5000", 6.5])
def test_a_foreign_scale_changes_nothing(shot: Measurement, mask: Mask, scale: object) -> None:
    plain = reconstruct(Measurement(shot.values), mask, CAMERA, method="gap-tv", iterations=1)
    foreign = Measurement(shot.values, {"scale": scale})
    cube = reconstruct(foreign, mask, CAMERA, method="gap-tv", iterations=1)
    assert np.array_equal(cube.values, plain.values)
    assert cube.attrs["units"] == plain.attrs["units"]
    told = " ".join(cube.attrs["findings"])
    assert ("attribute scale (6.5) is not divided out" in told) == (scale == 6.5)


# --- noise ---------------------------------------------------------------------------------------


def test_a_solver_is_told_the_noise(shot: Measurement, mask: Mask) -> None:
    def solve(method: str = "gap-tv", **options: float) -> Cube:
        return reconstruct(shot, mask, method=method, iterations=5, dark=DARK, **options)  # type: ignore[arg-type]  # all are numbers

    level = float(np.sqrt(np.mean((shot.values - np.float32(DARK)) ** 2)))
    told = solve(noise_std=0.3 * level)
    meant = solve(noise=0.3)
    np.testing.assert_allclose(told.values, meant.values, atol=1e-5 * meant.values.max())
    assert np.abs(told.values - solve().values).max() > 0.01 * meant.values.max()
    [stated] = re.findall(r"noise=([0-9.]+)", told.attrs["method_options"])
    assert float(stated) == pytest.approx(0.3, rel=1e-4)
    assert "method_chosen" not in told.attrs
    # Who speaks to the solver itself is heard first.
    both = solve(noise_std=0.1 * level, noise=0.3)
    np.testing.assert_array_equal(both.values, meant.values)
    assert not any("self-check only" in line for line in told.attrs["findings"])


def test_a_solver_that_cannot_be_told_says_so(shot: Measurement, mask: Mask) -> None:
    found = reconstruct(shot, mask, method="twist", iterations=2, dark=DARK, noise_std=NOISE)
    assert "twist has no option for the noise" in found.attrs["findings"][-1]
    silent = reconstruct(shot, mask, method="twist", iterations=2, dark=DARK)
    assert not any("noise" in line for line in silent.attrs["findings"])
    assert found.attrs["noise_std"] == pytest.approx(NOISE)


@pytest.mark.parametrize("method", ["gap-tv", "network"])
def test_without_noise_nothing_is_compared_with_it(
    shot: Measurement, mask: Mask, method: str
) -> None:
    how = {"model": _network()} if method == "network" else {"method": "gap-tv"}
    cube = reconstruct(shot, mask, CAMERA, noise_std=0.0, **how)
    assert cube.attrs["residual_over_noise"] is None
    assert "noise" not in cube.attrs["residual"]
    assert not any("times the noise" in line for line in cube.attrs["findings"])
