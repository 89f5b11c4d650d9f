"""Spread over masks and samples, learned noise, g during training: known answers."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from small_workload import BANDS, CAMERA, SIDE, cube, mask
from torch import Tensor

from prismask.errors import ConfigError, DataMissingError, DivergedError, FormatError, ValuesError
from prismask.evaluation.analyses.spread import (
    g_by_transmission,
    noise_distribution,
    spread_of,
    spread_over_masks,
    spread_over_samples,
)
from prismask.evaluation.analyses.training_log import read_training_log
from prismask.inference.inspection import prepare
from prismask.inference.methods.network import as_network
from prismask.inference.methods.protocol import Method
from prismask.inference.methods.registry import as_method
from prismask.inference.options import Options
from prismask.models.registry import create_model
from prismask.models.weights import trained_with
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded

# --- spread --------------------------------------------------------------------------------------


def test_moments_are_numpys_even_for_a_tiny_spread_on_a_large_value() -> None:
    cubes = 0.9 + 1e-5 * torch.randn(40, 3, 8, 8, generator=seeded(0))
    found = spread_of(iter(cubes))
    expected = cubes.double().std(0, correction=1)
    np.testing.assert_allclose(found.std.numpy(), expected.numpy(), rtol=1e-4)
    np.testing.assert_allclose(found.mean.numpy(), cubes.double().mean(0).numpy(), rtol=1e-6)
    assert torch.equal(found.first, cubes[0])
    assert found.count == 40
    assert found.total == pytest.approx(float(expected.square().mean().sqrt()), rel=1e-4)
    assert found.pixel_std.shape == (8, 8)


def test_memory_does_not_grow_with_the_number_of_reconstructions() -> None:
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def cubes() -> Iterator[Tensor]:
        nonlocal most
        for number in range(30):
            cube = torch.full((2, 4, 4), float(number))
            alive.append(weakref.ref(cube))
            most = max(most, sum(one() is not None for one in alive))
            yield cube

    assert spread_of(cubes()).count == 30
    assert most <= 2


def test_one_has_no_spread_and_none_is_refused() -> None:
    assert spread_of([torch.rand(2, 4, 4)]).total == 0
    with pytest.raises(ConfigError):
        spread_of([])
    with pytest.raises(DivergedError, match="reconstruction 2"):
        spread_of([torch.zeros(1, 2, 2), torch.full((1, 2, 2), math.nan)])


def test_spread_over_masks_is_that_of_the_method() -> None:
    """A method that answers with the mask's mean has the spread of the masks' means."""
    masks = [torch.full((1, 1, SIDE, SIDE), level) for level in (0.2, 0.5, 0.8)]
    truth = torch.tensor(cube(0).values)[None]

    def method(measurement: Tensor, given: Tensor, camera: CASSI) -> Tensor:
        return torch.full((1, BANDS, SIDE, SIDE), float(given.mean()))

    found = spread_over_masks(method, lambda k, m: CAMERA.forward(truth, m), masks, CAMERA)
    assert found.total == pytest.approx(0.3)
    assert float(found.mean.mean()) == pytest.approx(0.5)


def network(kind: str, std: float = 0.05) -> Method:
    model = create_model(
        "srn", bands=BANDS, mask_posterior=kind, width=8, blocks=1, seed=3,
        posterior_options={"initial_std": std} if kind != "none" else None,
    )  # fmt: skip
    model.record |= trained_with(CAMERA)
    return as_method(model, torch.device("cpu"), Options(precision="float32"))


def _samples(kind: str, std: float, seed: int = 0, count: int = 6) -> float:
    aperture = torch.tensor(mask(size=(SIDE, SIDE)).values)[None, None]
    measurement = CAMERA.forward(torch.tensor(cube(0).values)[None], aperture)
    made = as_network(network(kind, std))
    assert made is not None
    (snapshot,) = prepare(measurement, aperture, CAMERA).snapshots()
    found = spread_over_samples(made, snapshot, count, seed)
    assert found.count == count
    return found.total


def test_spread_over_samples_grows_with_g_and_is_seeded() -> None:
    small, large = _samples("fixed", 0.01), _samples("fixed", 0.04)
    assert 2 < large / small < 5
    assert _samples("fixed", 0.01) == small
    assert _samples("fixed", 0.01, seed=1) != small
    assert _samples("gst", 0.02) > 0


def test_spread_over_samples_needs_a_posterior() -> None:
    with pytest.raises(ConfigError, match="no mask posterior"):
        _samples("none", 0.0)


# --- learned noise -------------------------------------------------------------------------------


def test_constant_g_gives_a_normal_distribution() -> None:
    aperture = torch.full((1, 1, 40, 40), 0.5)
    found = noise_distribution(aperture, torch.full_like(aperture, 0.04), 0.5, 0.25)
    assert found.learned_mean == pytest.approx(0.02)
    assert found.learned_std == pytest.approx(0.01)
    at = found.at.numpy()
    expected = np.exp(-0.5 * ((at - 0.02) / 0.01) ** 2) / (0.01 * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(found.learned.numpy(), expected, rtol=1e-5, atol=1e-9)
    assert found.g_std == pytest.approx(0.0, abs=1e-9)
    assert found.effective_std == pytest.approx(0.01, rel=0.05)
    assert found.clamped_share == 0


def test_mixture_has_the_stated_moments_and_sums_to_one() -> None:
    aperture = torch.rand(64, 64, generator=seeded(1))
    g = 0.01 + 0.05 * torch.rand(64, 64, generator=seeded(2))
    found = noise_distribution(aperture, g, 0.3, 0.8, points=2001)
    draws = g * (0.3 + 0.8 * torch.randn(300, 64, 64, generator=seeded(3)))
    assert found.learned_mean == pytest.approx(float(draws.mean()), rel=0.01)
    assert found.learned_std == pytest.approx(float(draws.std()), rel=0.01)
    step = float(found.at[1] - found.at[0])
    assert float(found.learned.sum()) * step == pytest.approx(1.0, abs=0.01)
    # A mixture of unequal widths is more pointed than a normal distribution of its std.
    assert float(found.learned.max()) > 1.05 / (found.learned_std * math.sqrt(2 * math.pi))


def test_a_closed_and_open_mask_loses_half_of_its_noise() -> None:
    aperture = (torch.rand(100, 100, generator=seeded(4)) < 0.5).float()
    found = noise_distribution(aperture, torch.full_like(aperture, 0.05), 0.0, 1.0)
    assert found.clamped_share == pytest.approx(0.5, abs=0.02)
    # Half a normal distribution folded onto 0 on either side, symmetric over open and closed.
    assert found.effective_std == pytest.approx(0.05 * math.sqrt(0.5), rel=0.05)


def test_no_noise_has_no_density() -> None:
    with pytest.raises(ValuesError, match="no noise"):
        noise_distribution(torch.rand(4, 4), torch.zeros(4, 4), 0.0, 1.0)


def test_g_by_transmission_finds_a_planted_dependence() -> None:
    aperture = torch.rand(200, 200, generator=seeded(5))
    found = g_by_transmission(aperture, 0.1 + 0.2 * aperture, bins=10)
    np.testing.assert_allclose(found["mean"], 0.1 + 0.2 * np.array(found["at"]), atol=2e-3)
    assert sum(found["share"]) == pytest.approx(1.0)
    edges = g_by_transmission(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.1, 0.2]]))
    assert edges["mean"] == pytest.approx([0.1, 0.2])


# --- g during training ---------------------------------------------------------------------------


def _line(step: int, low: float, high: float, phase: str = "theta") -> str:
    return json.dumps({
        "event": "step", "step": step, "seconds": 60.0 * step, "phase": phase, "loss": 1.0,
        "g_min": low, "g_mean": (low + high) / 2, "g_max": high,
    })  # fmt: skip


def test_history_of_g(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [
        json.dumps({"event": "step", "step": 0, "seconds": 1.0, "phase": "warmup", "loss": 2.0}),
        _line(1, 0.01, 0.05),
        json.dumps({"event": "validation", "step": 1, "seconds": 90.0, "score": 21.5}),
        _line(2, 0.02, 0.04, "phi"),
        '{"event": "st',  # killed in the middle of a line
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_training_log(path).g_history
    assert found is not None
    assert found.steps == (1, 2)
    assert found.minutes == (1.0, 2.0)
    assert found.phases == ("theta", "phi")
    assert (found.validation_minutes, found.validation) == ((1.5,), (21.5,))
    assert found.numbers()["range_ratio"] == pytest.approx(0.5)
    assert json.loads(json.dumps(found.to_record()))["numbers"]["last_max"] == 0.04


def test_runs_without_g_and_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "step", "step": 1, "seconds": 1, "phase": "plain"}\n')
    assert read_training_log(path).g_history is None
    path.write_text(f"{{broken\n{_line(1, 0.1, 0.2)}\n")
    with pytest.raises(FormatError, match="line 1"):
        read_training_log(path)
    with pytest.raises(DataMissingError):
        read_training_log(tmp_path / "none.jsonl")
