"""A trained network end to end: better than no network, other band counts, honest error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_network import BANDS, CAMERA, RANGE_NM, masks, scenes, train
from torch import Tensor

from prismask.errors import WeightsError
from prismask.inference.intervals.learn import fit_record
from prismask.inference.intervals.snapshots import Plan, Studio, collect
from prismask.inference.methods.registry import network_method
from prismask.inference.options import Options
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.weights import load_weights, read_record, save_weights
from prismask.optics.camera import CASSI
from prismask.scenes.records import Cube, Mask, Measurement

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")


PLAN = Plan(rows=64, columns=64, noise_std=0.02, other=0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Reconstructor:
    torch.set_num_threads(min(2, torch.get_num_threads()))
    trained = train()
    trained.record["interval"] = _interval(trained, tmp_path_factory.mktemp("rows"))
    return trained


def _interval(
    model: Reconstructor, folder: Path, plan: Plan = PLAN, others: Sequence[CASSI] = ()
) -> dict[str, Any]:
    """The record of an interval fitted to 72 snapshots of 12 scenes."""
    at = np.linspace(*RANGE_NM, BANDS)
    known = {f"s{n}": Cube(one.numpy(), at) for n, one in enumerate(scenes(range(100, 112)))}
    studio = Studio(plan, known, CAMERA, others)
    method = network_method(model, CPU, Options(precision="float32"))
    rows = collect(method, studio, 72, folder)
    return fit_record(rows, studio, steps=400)[0]


def _shot(
    cube: Tensor, mask: Tensor, camera: CASSI = CAMERA, scale: float = 1.0
) -> tuple[Measurement, Mask]:
    signal = camera.forward(cube[None], mask[None])[0]
    return Measurement(scale * signal.numpy()), Mask(mask[0].numpy())


def _rmse(estimate: Cube, truth: Tensor, scale: float = 1.0) -> float:
    return float(np.sqrt(np.mean((estimate.values / scale - truth.numpy()) ** 2)))


def test_it_beats_the_first_guess(model: Reconstructor) -> None:
    found, guessed = [], []
    for truth, mask in zip(scenes(range(200, 204)), masks(4, seed=9), strict=True):
        cube = reconstruct(*_shot(truth, mask), CAMERA, model=model)
        guess = CAMERA.spread(CAMERA.forward(truth[None], mask[None]), mask[None])[0]
        found.append(_rmse(cube, truth))
        guessed.append(float((guess - truth).square().mean().sqrt()))
        assert cube.attrs["model"] == "tiny"
        assert cube.attrs["residual_relative"] < 0.25
    assert np.mean(found) < 0.9 * np.mean(guessed)


def test_ninety_percent_cover_ninety_percent(model: Reconstructor) -> None:
    """On scenes and masks that neither training nor calibration saw, with and without samples.

    They are easier than those of the fit, of which many are noisy or have lines.
    """
    held_out = list(zip(scenes(range(300, 312)), masks(12, seed=11), strict=True))
    for samples in (0, 6):
        inside = []
        for truth, mask in held_out:
            cube = reconstruct(*_shot(truth, mask), CAMERA, model=model, samples=samples)
            assert cube.lower is not None
            assert cube.upper is not None
            assert (cube.std is None) == (samples == 0)
            covered = (truth.numpy() >= cube.lower) & (truth.numpy() <= cube.upper)
            inside.append(covered.mean())
            assert "calibrated on 72 snapshots of 12 scenes" in cube.attrs["interval"]
        assert 0.87 < np.mean(inside) < 0.98
        assert min(inside) > 0.75


def test_error_bars_grow_where_errors_do(model: Reconstructor) -> None:
    [truth], [mask] = scenes(range(301, 302)), masks(1, seed=12)
    cube = reconstruct(*_shot(truth, mask), CAMERA, model=model)
    assert cube.lower is not None
    assert cube.upper is not None
    width, error = (cube.upper - cube.lower).ravel(), np.abs(cube.values - truth.numpy()).ravel()
    order = width.argsort()
    quarter = len(order) // 4
    assert error[order[-quarter:]].mean() > 2 * error[order[:quarter]].mean()


def test_noise_widens_the_error_bars(model: Reconstructor) -> None:
    """Also beyond what it was calibrated with."""
    [truth], [mask] = scenes(range(302, 303)), masks(1, seed=13)
    shot, aperture = _shot(truth, mask)
    noise = np.random.default_rng(0).normal(0, 0.1, shot.values.shape)
    noisy = Measurement(shot.values + noise.astype(np.float32))
    clean, rough = (reconstruct(m, aperture, CAMERA, model=model, dark=0.0) for m in (shot, noisy))
    assert clean.upper is not None
    assert rough.upper is not None
    assert rough.lower is not None
    assert (rough.upper - rough.values).mean() > (clean.upper - clean.values).mean()
    assert np.mean((truth.numpy() >= rough.lower) & (truth.numpy() <= rough.upper)) > 0.85


def test_an_unknown_exposure_gives_the_same_cube(model: Reconstructor) -> None:
    [truth], [mask] = scenes(range(303, 304)), masks(1, seed=14)
    plain = reconstruct(*_shot(truth, mask), CAMERA, model=model)
    dim = reconstruct(*_shot(truth, mask, scale=0.01), CAMERA, model=model)
    assert dim.attrs["network_gain"] > 20
    assert "the cube is divided by it again" in " ".join(dim.attrs["findings"])
    assert _rmse(dim, truth, 0.01) < 1.2 * _rmse(plain, truth)
    assert dim.upper is not None
    assert plain.upper is not None
    ratio = np.median((dim.upper - dim.values) / 0.01) / np.median(plain.upper - plain.values)
    assert ratio == pytest.approx(1.0, abs=0.35)


def test_the_interval_travels_with_the_weights(model: Reconstructor, tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_weights(model, path, model.record, dtype=torch.float32)
    [truth], [mask] = scenes(range(200, 201)), masks(1, seed=9)
    direct = reconstruct(*_shot(truth, mask), CAMERA, model=model, precision="float32")
    loaded = reconstruct(*_shot(truth, mask), CAMERA, model=path, precision="float32")
    np.testing.assert_array_equal(direct.upper, loaded.upper)
    assert loaded.attrs["weights_sha256"] == read_record(path)["sha256"]
    spoilt = load_weights(path)
    spoilt.record["interval"]["learned"]["head"]["centre"] = [0.0]
    with pytest.raises(WeightsError, match="Calibrate again"):
        reconstruct(*_shot(truth, mask), CAMERA, model=spoilt)


def test_a_network_that_learns_the_scene_is_closer_to_it(model: Reconstructor) -> None:
    plain, taught = [], []
    for truth, mask in zip(scenes(range(200, 204)), masks(4, seed=9), strict=True):
        shot = _shot(truth, mask)
        plain.append(_rmse(reconstruct(*shot, CAMERA, model=model), truth))
        cube = reconstruct(*shot, CAMERA, model=model, adapt=60)
        taught.append(_rmse(cube, truth))
        assert cube.attrs["adapted_steps"] == 60
        assert any("was adapted to this scene" in text for text in cube.attrs["findings"])
    assert all(after < before for after, before in zip(taught, plain, strict=True))
