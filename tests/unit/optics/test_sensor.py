"""The sensor's statistics against theory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.optics.randomness import seeded
from prismask.optics.simulate import Gaussian, Quantise, Saturate, Sensor, ShotRead, add_gaussian


def flat(level: float, batch: int = 1, side: int = 300) -> Tensor:
    return torch.full((batch, side, side), level, dtype=torch.float64)


def test_gaussian_noise_has_its_std_and_no_mean() -> None:
    added = Gaussian(0.03).apply(flat(0.4), seeded(0)) - 0.4
    assert float(added.std()) == pytest.approx(0.03, rel=0.01)
    assert abs(float(added.mean())) < 4 * 0.03 / 300
    third = float((added / added.std()).pow(3).mean())
    fourth = float((added / added.std()).pow(4).mean())
    assert abs(third) < 0.05
    assert fourth == pytest.approx(3, abs=0.1)


def test_a_range_draws_one_strength_for_each_sample() -> None:
    signal = torch.zeros(400, 40, 40)
    strengths = Gaussian((0.0, 0.05)).apply(signal, seeded(1)).std(dim=(1, 2))
    assert float(strengths.mean()) == pytest.approx(0.025, rel=0.1)
    assert float(strengths.std()) == pytest.approx(0.05 / 12**0.5, rel=0.1)
    assert float(strengths.max()) < 0.055


def test_given_strengths_go_to_their_samples() -> None:
    std = torch.tensor([0.0, 0.01, 0.1])
    noisy = add_gaussian(torch.zeros(3, 100, 100), std, seeded(0))
    assert noisy.dtype == torch.float32
    np.testing.assert_allclose(noisy.std(dim=(1, 2)), std, rtol=0.05)
    with pytest.raises(ShapeError, match="2 noise levels for a batch of 3"):
        add_gaussian(torch.zeros(3, 4, 4), torch.ones(2))


@pytest.mark.parametrize("level", [0.02, 0.3, 0.9])
def test_shot_and_read_noise_follow_the_photon_transfer_curve(level: float) -> None:
    full_well, read = 2000.0, 12.0
    came = ShotRead(full_well, read).apply(flat(level), seeded(3))
    variance = level / full_well + (read / full_well) ** 2
    assert float(came.mean()) == pytest.approx(level, abs=4 * variance**0.5 / 300)
    assert float(came.var()) == pytest.approx(variance, rel=0.03)


def test_without_read_noise_electrons_are_whole() -> None:
    electrons = ShotRead(50).apply(flat(0.3), seeded(0)) * 50
    torch.testing.assert_close(electrons, electrons.round())
    assert float(ShotRead(50).apply(flat(-0.1), seeded(0)).abs().max()) == 0


def test_saturation_and_quantisation_against_numpy() -> None:
    signal = torch.linspace(-0.2, 1.4, 977, dtype=torch.float64)[None]
    values = signal.numpy()
    np.testing.assert_array_equal(Saturate(0.9).apply(signal), np.minimum(values, 0.9))
    came = Quantise(3).apply(signal)
    np.testing.assert_allclose(came, np.rint(np.clip(values, 0, 1) * 7) / 7)
    assert len(came.unique()) == 8


def test_quantisation_error_is_a_twelfth_of_a_step_squared() -> None:
    signal = torch.rand(1, 300, 300, generator=seeded(0), dtype=torch.float64)
    error = Quantise(8).apply(signal) - signal
    assert float(error.square().mean()) == pytest.approx(1 / 255**2 / 12, rel=0.02)


def test_stages_run_in_order_and_repeat_with_the_seed() -> None:
    sensor = Sensor((ShotRead(1000, 5), Saturate(0.8), Quantise(10)))
    signal = torch.rand(2, 20, 20, generator=seeded(0))
    came = sensor.apply(signal, seeded(9))
    generator = seeded(9)
    step = ShotRead(1000, 5).apply(signal, generator)
    assert torch.equal(came, Quantise(10).apply(step.clamp_max(0.8)))
    assert torch.equal(came, sensor.apply(signal, seeded(9)))
    assert not torch.equal(came, sensor.apply(signal, seeded(10)))
    assert not torch.equal(came[0], came[1])
    assert torch.equal(Sensor().apply(signal), signal)
    assert sensor == Sensor((ShotRead(1000, 5), Saturate(0.8), Quantise(10)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(-0.1),
        lambda: Gaussian((0.2, 0.1)),
        lambda: Gaussian(float("nan")),
        lambda: ShotRead(0),
        lambda: ShotRead(100, -1),
        lambda: Saturate(0),
        lambda: Quantise(0),
        lambda: Quantise(32),
    ],
)
def test_impossible_sensors_are_refused(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]
