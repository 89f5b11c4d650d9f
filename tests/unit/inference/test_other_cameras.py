"""Cameras that are not the training's: which they are, and an interval that covers behind them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import (
    BANDS,
    CAMERA,
    SIZE,
    bare_network,
    calibrated_network,
    engine_of,
    scenes,
)
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.intervals.class_fit import with_class
from prismask.inference.intervals.model import LEVELS, OTHER_CAMERAS, Interval
from prismask.inference.intervals.other_cameras import (
    BAND_RATIOS,
    calibrate_cameras,
    draw_cameras,
    extents,
)
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.weights import ONE_CAMERA, Variation
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.records import Cube, Mask, Measurement

TRAINED = CASSI.from_step(28)
MANY = Variation((0.6, 1.1), 0.1)
RESULTS = Path(__file__).resolve().parents[3] / "results" / "cameras.py"


def test_the_family() -> None:
    cameras = draw_cameras(TRAINED, 24, seed=1)
    assert cameras == draw_cameras(TRAINED, 24, seed=1)
    assert cameras != draw_cameras(TRAINED, 24, seed=2)
    assert len(set(cameras)) == 24
    spreads = [camera.offsets[-1] / TRAINED.offsets[-1] for camera in cameras]
    assert spreads == sorted(spreads)
    assert extents()[0] <= spreads[0] < 0.7
    assert 2.3 < spreads[-1] <= extents()[1]
    even = [bool(np.ptp(np.diff(camera.offsets)) < 1e-6) for camera in cameras]
    assert sum(even) == 12
    assert sum(camera.bands == 28 for camera in cameras) >= 12
    least, most = (28 * share for share in BAND_RATIOS)
    assert all(round(least) <= camera.bands <= round(most) for camera in cameras)
    for camera in cameras:
        adapter = BandAdapter.between(camera, 28, TRAINED)
        assert adapter.is_other_camera
        assert adapter.is_within_reach


def test_a_network_that_knows_many_cameras_meets_closer_ones() -> None:
    cameras = draw_cameras(TRAINED, 24, seed=1, variation=MANY)
    spreads = [camera.offsets[-1] / TRAINED.offsets[-1] for camera in cameras]
    assert 0.6 / 1.6 <= spreads[0] < 0.42
    assert spreads[-1] > 2.3
    near = [BandAdapter.between(camera, 28, TRAINED).is_within_reach for camera in cameras]
    assert not all(near)  # of those that a network with one camera would leave to a solver


@pytest.mark.skipif(not RESULTS.is_file(), reason="the results are not beside the tests")
@pytest.mark.parametrize("known", [ONE_CAMERA, MANY])
def test_none_is_one_of_those_that_results_are_reported_for(known: Variation) -> None:
    from prismask.apps.cli.calibrate import CAMERA_SEED, CAMERAS

    found = importlib.util.spec_from_file_location("cameras", RESULTS)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    for drawn in draw_cameras(TRAINED, CAMERAS, CAMERA_SEED, known):
        for camera in module.CAMERAS.values():
            alike = drawn.bands == camera.bands
            assert not (alike and np.allclose(drawn.offsets, camera.offsets, atol=0.1))


def test_a_network_without_other_cameras() -> None:
    with pytest.raises(ConfigError, match="--other 0"):
        draw_cameras(CASSI((0.0,)), 2, seed=0)


def errors(growth: float, cameras: int, seed: int) -> Tensor:
    """Ratios of cameras whose errors are about `growth` times what their scale says."""
    draw = np.random.default_rng(seed)
    by_camera = growth * np.exp(draw.normal(0, 0.1, (cameras, 1, 1)))
    return torch.tensor(by_camera * np.abs(draw.standard_t(5, (cameras, 6, 4000))))


def test_each_class_has_its_own_coverage() -> None:
    own = errors(1.0, 20, seed=0).flatten()
    quantiles = {level: float(own.quantile(level)) for level in LEVELS}
    interval = Interval((0.0,), {"residual": 1.0}, quantiles, {"scenes": 6})
    shots = list(errors(1.5, 20, seed=1).reshape(120, -1))
    groups = {"cameras": [k // 6 for k in range(120)], "scenes": [k % 6 for k in range(120)]}
    fitted = with_class(interval, OTHER_CAMERAS, shots, groups, {"noise": [0, 0.01]})
    assert fitted.quantiles == quantiles
    others = errors(1.5, 20, seed=2)
    for level in LEVELS:
        with_it = (others <= fitted.for_classes([OTHER_CAMERAS]).quantile(level)).double().mean()
        without = (others <= fitted.for_classes([]).quantile(level)).double().mean()
        assert float(with_it) == pytest.approx(level, abs=0.025)
        assert float(without) < level - 0.04
    about = fitted.classes[OTHER_CAMERAS].about
    assert (about["cameras"], about["scenes"], about["noise"]) == (20, 6, [0, 0.01])
    low, mean, high = about["left_out_cameras"]["0.9"]
    assert low < mean < high
    assert mean == pytest.approx(0.9, abs=0.02)
    # Cameras differ in this toy and scenes do not.
    least, _, most = about["left_out_scenes"]["0.9"]
    assert low < least < most < high


# --- through `reconstruct` -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def network() -> Reconstructor:
    return calibrated_network()


@pytest.fixture(scope="module")
def fitted(network: Reconstructor) -> dict[str, Any]:
    engine = engine_of(network)
    at = np.linspace(450.0, 650.0, BANDS).tolist()
    # Two crops of each of three scenes.
    of = [0, 1, 2, 0, 1, 2]
    return calibrate_cameras(engine, scenes(range(6)), at, 4, scene_of=of, seed=2)


def told(network: Reconstructor, interval: dict[str, Any]) -> Reconstructor:
    model = bare_network()
    model.record |= {**network.record, "interval": interval}
    return model


def cube_of(model: Reconstructor, camera: CASSI = CAMERA, **given: Any) -> Cube:
    [truth] = scenes(range(9, 10), camera.bands)
    mask = fabricate_mask(SIZE, seeded(5))
    shot = Measurement(camera.forward(truth[None], mask)[0].numpy())
    return reconstruct(shot, Mask(mask.numpy()), camera, model=model, check_mask=False,
                       device="cpu", **given)  # fmt: skip


def width(cube: Cube) -> float:
    assert cube.upper is not None
    return float((cube.upper - cube.values).mean())


def test_nothing_but_the_second_set_is_added(
    network: Reconstructor, fitted: dict[str, Any]
) -> None:
    before = network.record["interval"]
    assert "classes" not in before["single"]
    assert fitted.keys() == before.keys()
    for kind in ("single", "sampled"):
        added = fitted[kind].keys() - before[kind].keys()
        assert added == {"classes"}
        assert {key: fitted[kind][key] for key in before[kind]} == before[kind]
        size = fitted[kind]["classes"][OTHER_CAMERAS]
        assert size["quantiles"].keys() == before[kind]["quantiles"].keys()
        about = size["about"]
        assert (about["cameras"], about["scenes"]) == (4, 3)


@pytest.mark.filterwarnings("ignore:the network was trained at:prismask.errors.PrismaskWarning")
@pytest.mark.parametrize(
    "camera", [CASSI.from_step(BANDS, 3.0), CASSI.from_step(BANDS + 1), CASSI.from_step(BANDS, 1.6)]
)
@pytest.mark.parametrize("samples", [0, 2])
def test_another_camera_has_the_second_set(
    network: Reconstructor, fitted: dict[str, Any], camera: CASSI, samples: int
) -> None:
    kind = "sampled" if samples else "single"
    new, old = (
        cube_of(model, camera, samples=samples) for model in (told(network, fitted), network)
    )
    np.testing.assert_array_equal(new.values, old.values)
    other, own = (of["quantiles"]["0.9"] for of in (fitted[kind]["classes"][OTHER_CAMERAS],
                                                    fitted[kind]))  # fmt: skip
    assert width(new) / width(old) == pytest.approx(other / own, rel=1e-3)
    assert new.attrs["interval"] == "90 %, calibrated on 3 scenes behind 4 other cameras"
    assert "behind the training's camera, not this one" in old.attrs["interval"]
    assert any("`prismask calibrate`" in text for text in old.attrs["findings"])
    assert not any("`prismask calibrate`" in text for text in new.attrs["findings"])


@pytest.mark.filterwarnings("ignore:the network was trained at:prismask.errors.PrismaskWarning")
def test_a_camera_beyond_those_it_was_fitted_behind_is_told(
    network: Reconstructor, fitted: dict[str, Any]
) -> None:
    cube = cube_of(told(network, fitted), CASSI.from_step(BANDS, 1.0))
    assert cube.attrs["interval"].endswith(
        "behind 4 other cameras, none with such a dispersion mismatch"
    )


def test_the_training_s_camera_keeps_its_interval(
    network: Reconstructor, fitted: dict[str, Any]
) -> None:
    """Also where an alignment has found the spectrum a percent wider than it was calibrated."""
    wider = MaskPose(0, 0, 0, 0, 0, 0, 0.01 * CAMERA.offsets[-1])
    mask = Mask(fabricate_mask(SIZE, seeded(5)).numpy())
    attrs = {"mask_pose": list(wider.numbers), "mask_hash": mask.hash}
    aligned = Cube(np.zeros((BANDS, 2, 2), np.float32), attrs=attrs)
    given: dict[str, Any]
    for given in ({}, {"pose": aligned}):
        new, old = (cube_of(model, **given) for model in (told(network, fitted), network))
        np.testing.assert_array_equal(new.upper, old.upper)
        assert new.attrs["interval"] == old.attrs["interval"] == "90 %, calibrated on 4 scenes"


def test_what_cannot_be_fitted(network: Reconstructor) -> None:
    engine = engine_of(network)
    at = np.linspace(450.0, 650.0, BANDS).tolist()
    with pytest.raises(ConfigError, match="two are needed"):
        calibrate_cameras(engine, scenes(range(2)), at, 1)
    bare = engine_of(told(network, {}))
    with pytest.raises(ConfigError, match="no interval"):
        calibrate_cameras(bare, scenes(range(2)), at, 2)
