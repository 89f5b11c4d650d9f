"""A trained network end to end: better than no network, other band counts, honest error bars."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from prismask.inference.intervals.fit import calibrate, misplaced
from prismask.inference.intervals.other_cameras import calibrate_cameras, draw_cameras
from tiny_network import BANDS, CAMERA, RANGE_NM, masks, scenes, train
from torch import Tensor

from prismask.errors import WeightsError
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.engine.frame import Engine
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.weights import load_weights, read_record, save_weights
from prismask.optics.camera import CASSI
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.resample import resample

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Reconstructor:
    torch.set_num_threads(min(2, torch.get_num_threads()))
    trained = train()
    interval = calibrate(
        Engine(trained, CPU, "float32"),
        scenes(range(100, 112)),
        masks(3, seed=7),
        CAMERA,
        samples=6,
    )
    trained.record["interval"] = interval
    return trained


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
    """On scenes and masks that neither training nor calibration saw, with and without samples."""
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
            assert "calibrated on 12 scenes" in cube.attrs["interval"]
        assert np.mean(inside) == pytest.approx(0.9, abs=0.03)
        assert min(inside) > 0.75


def test_a_mirror_ensemble_is_closer_and_its_error_bars_as_true(model: Reconstructor) -> None:
    twice = copy.deepcopy(model)
    twice.record["mirror_ensemble"] = 2
    fitting = (scenes(range(100, 112)), masks(3, seed=7), CAMERA)
    twice.record["interval"] = calibrate(Engine(twice, CPU, "float32"), *fitting)
    assert "disagreement" in twice.record["interval"]["single"]["exponents"]
    held_out = list(zip(scenes(range(300, 312)), masks(12, seed=11), strict=True))
    inside: list[float] = []
    scores: dict[str, list[float]] = {"once": [], "twice": []}
    errors: dict[str, list[float]] = {"once": [], "twice": []}
    for truth, mask in held_out:
        for name, network in (("once", model), ("twice", twice)):
            cube = reconstruct(*_shot(truth, mask), CAMERA, model=network)
            assert cube.lower is not None
            assert cube.upper is not None
            true = truth.numpy()
            outside = np.maximum(cube.lower - true, 0) + np.maximum(true - cube.upper, 0)
            # Width, and ten widths for each value outside by as much: smallest for the true 90 %.
            scores[name].append(float((cube.upper - cube.lower + 20 * outside).mean()))
            errors[name].append(_rmse(cube, truth))
        inside.append(float((outside == 0).mean()))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)
    assert np.mean(errors["twice"]) < np.mean(errors["once"])
    assert np.mean(scores["twice"]) < np.mean(scores["once"])


def test_noise_is_counted_as_in_training(
    model: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the cube's range: a snapshot is the sum of its bands, scaled by 2 / C."""
    stds: list[float] = []

    def noted(values: Tensor, std: float, generator: torch.Generator) -> Tensor:
        stds.append(std)
        return values

    monkeypatch.setattr("prismask.inference.intervals.fit.add_gaussian", noted)
    fitting = (Engine(model, CPU, "float32"), scenes(range(100, 104)), masks(2, seed=7), CAMERA)
    found = calibrate(*fitting, noise_std=(0.03, 0.03))
    assert stds == pytest.approx([0.03 * CAMERA.bands / 2] * len(stds))
    assert found["single"]["about"]["noise"] == [0.03, 0.03]


def test_error_bars_that_have_seen_wrong_masks_are_wider(model: Reconstructor) -> None:
    fitting = (Engine(model, CPU, "float32"), scenes(range(100, 112)), masks(3, seed=7), CAMERA)
    right, none, wrong = (
        calibrate(*fitting, fault=fault)["single"]
        for fault in (None, misplaced(0.0), misplaced(0.5))
    )
    assert right["about"]["faults"] is False
    assert wrong["about"]["faults"] is True
    [truth], [mask] = scenes(range(300, 301)), masks(1, seed=11)
    widths = []
    for fitted in (none, wrong):
        model_like = copy.deepcopy(model)
        model_like.record["interval"] = {"single": fitted}
        cube = reconstruct(*_shot(truth, mask), CAMERA, model=model_like)
        assert cube.upper is not None
        widths.append(float((cube.upper - cube.values).mean()))
    assert widths[1] > widths[0]


def test_error_bars_grow_where_errors_do(model: Reconstructor) -> None:
    [truth], [mask] = scenes(range(301, 302)), masks(1, seed=12)
    cube = reconstruct(*_shot(truth, mask), CAMERA, model=model)
    assert cube.upper is not None
    width, error = (cube.upper - cube.values).ravel(), np.abs(cube.values - truth.numpy()).ravel()
    order = width.argsort()
    quarter = len(order) // 4
    assert error[order[-quarter:]].mean() > 2 * error[order[:quarter]].mean()


def test_noise_widens_the_error_bars(model: Reconstructor) -> None:
    """Calibrated without noise, the interval still does not fall short on a noisy snapshot."""
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


@pytest.mark.parametrize("bands", [7, 10])
def test_another_number_of_bands(model: Reconstructor, bands: int) -> None:
    """Nearly as good as on its own bands, far better than pretending; the residual is sane."""
    camera = CASSI.from_step(bands)
    own, adapted, pretended = [], [], []
    own_residuals, residuals = [], []
    for seed in range(304, 308):
        [mask] = masks(1, seed=seed)
        [truth], [native] = (
            scenes(range(seed, seed + 1), bands=bands),
            scenes(range(seed, seed + 1)),
        )
        home = reconstruct(*_shot(native, mask), CAMERA, model=model)
        own.append(_rmse(home, native))
        own_residuals.append(home.attrs["residual_relative"])
        cube = reconstruct(*_shot(truth, mask, camera), camera, model=model)
        assert cube.values.shape == (bands, 64, 64)
        assert "virtual camera" in " ".join(cube.attrs["findings"])
        adapted.append(_rmse(cube, truth))
        residuals.append(cube.attrs["residual_relative"])
        # The same without the factor C′ / C.
        adapter = BandAdapter.between(camera, BANDS)
        signal = camera.forward(truth[None], mask[None])[0]
        wrong = Engine(model, CPU, "float32").run(signal, mask[None], adapter.shown).values
        pretended.append(float((adapter.back(wrong) - truth).square().mean().sqrt()))
    assert np.mean(adapted) < 1.25 * np.mean(own)
    assert np.mean(adapted) < np.mean(pretended)
    assert np.mean(residuals) < 1.2 * np.mean(own_residuals)


@pytest.mark.filterwarnings("ignore:the network was trained at:prismask.errors.PrismaskWarning")
def test_behind_other_cameras_a_second_set_covers_what_it_says(model: Reconstructor) -> None:
    """On cameras, scenes and masks that no calibration saw; with the first set alone it fails."""
    one, two = copy.copy(model), copy.copy(model)
    one.record = {**model.record, "interval": {"single": model.record["interval"]["single"]}}
    at = np.linspace(*RANGE_NM, BANDS)
    engine = Engine(one, CPU, "float32")
    fitted = calibrate_cameras(engine, scenes(range(100, 112)), at.tolist(), 8)
    two.record = {**model.record, "interval": fitted}
    inside: dict[str, list[float]] = {"one set": [], "two sets": []}
    for number, camera in enumerate(draw_cameras(CAMERA, 16, seed=5)):
        first = 300 + 4 * number
        for native, mask in zip(scenes(range(first, first + 4)), masks(4, first), strict=True):
            own = np.linspace(*RANGE_NM, camera.bands)
            truth = torch.tensor(resample(Cube(native.numpy(), at), own).values)
            for name, network in (("one set", one), ("two sets", two)):
                cube = reconstruct(*_shot(truth, mask, camera), camera, model=network)
                assert cube.lower is not None
                assert cube.upper is not None
                covered = (truth.numpy() >= cube.lower) & (truth.numpy() <= cube.upper)
                inside[name].append(float(covered.mean()))
        assert "behind 8 other cameras" in cube.attrs["interval"]
    assert np.mean(inside["two sets"]) == pytest.approx(0.9, abs=0.03)
    assert np.mean(inside["one set"]) < 0.87


def test_the_interval_travels_with_the_weights(model: Reconstructor, tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_weights(model, path, model.record, dtype=torch.float32)
    [truth], [mask] = scenes(range(200, 201)), masks(1, seed=9)
    direct = reconstruct(*_shot(truth, mask), CAMERA, model=model, precision="float32")
    loaded = reconstruct(*_shot(truth, mask), CAMERA, model=path, precision="float32")
    np.testing.assert_array_equal(direct.upper, loaded.upper)
    assert loaded.attrs["weights_sha256"] == read_record(path)["sha256"]
    spoilt = load_weights(path)
    spoilt.record["interval"]["single"]["bands"] = [0.0]
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
        assert any("learned this scene" in text for text in cube.attrs["findings"])
    assert all(after < before for after, before in zip(taught, plain, strict=True))
