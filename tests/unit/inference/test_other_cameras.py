"""Cameras that are not the training's: which they are, and an interval that covers behind them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrated_network import BANDS, CAMERA, SIZE, even_interval, interval_record, scenes

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match import match_camera
from prismask.inference.intervals.learned import INCONSISTENT_MASKS, OTHER_CAMERAS
from prismask.inference.intervals.snapshots import BAND_RATIOS, draw_cameras
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import trained_with
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.records import Cube, Mask, Measurement

TRAINED = CASSI.from_step(28)
KNOWN: dict[str, Any] = {
    "backbone": "lumen", "bands": 28, **trained_with(TRAINED),
    "measured_cameras": {"bands": [8, 54], "length_px": [21.5, 70.5]},
}  # fmt: skip
"""What the record of a network for many cameras says."""
RESULTS = Path(__file__).resolve().parents[3] / "results" / "cameras.py"


def test_the_family() -> None:
    cameras = draw_cameras(KNOWN, 24, seed=1)
    assert cameras == draw_cameras(KNOWN, 24, seed=1)
    assert cameras != draw_cameras(KNOWN, 24, seed=2)
    assert len(set(cameras)) == 24
    lengths = [camera.offsets[-1] for camera in cameras]
    assert lengths == sorted(lengths)
    assert 21.5 <= lengths[0] < 23.3
    assert 125 < lengths[-1] <= 135
    even = [bool(np.ptp(np.diff(camera.offsets)) < 1e-6) for camera in cameras]
    assert sum(even) == 12
    assert sum(camera.bands == 28 for camera in cameras) >= 12
    least, most = (28 * share for share in BAND_RATIOS)
    assert all(round(least) <= camera.bands <= round(most) for camera in cameras)
    for camera in cameras:
        match = match_camera(camera, KNOWN)
        assert match.is_other_camera
        assert match.is_within_reach


def test_without_measurements_they_are_those_of_the_training_and_near_them() -> None:
    learned = {
        **trained_with(TRAINED),
        "spread": [0.6, 1.1],
        "jitter": 0.3,
        "band_counts": [16, 40],
    }
    cameras = draw_cameras({"backbone": "lumen", "bands": 28, **learned}, 12, seed=1)
    lengths = [camera.offsets[-1] for camera in cameras]
    assert 54 * 0.6 / 1.2 <= lengths[0] < lengths[-1] <= 54 * 1.1 * 1.2
    assert all(13 <= camera.bands <= 48 for camera in cameras)


def test_a_network_of_fixed_bands_meets_none() -> None:
    assert draw_cameras({"backbone": "srn", "bands": 28, **trained_with(TRAINED)}, 4, seed=0) == []


@pytest.mark.skipif(not RESULTS.is_file(), reason="the results are not beside the tests")
def test_none_is_one_of_those_that_results_are_reported_for() -> None:
    from prismask.apps.cli.calibrate import CAMERA_SEED, CAMERAS

    found = importlib.util.spec_from_file_location("cameras", RESULTS)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    for drawn in draw_cameras(KNOWN, CAMERAS, CAMERA_SEED):
        for camera in module.CAMERAS.values():
            alike = drawn.bands == camera.bands
            assert not (alike and np.allclose(drawn.offsets, camera.offsets, atol=0.1))


def test_a_network_without_other_cameras() -> None:
    alone = {**KNOWN, "measured_cameras": {"bands": [1, 2], "length_px": [21.5, 70.5]}}
    with pytest.raises(ConfigError, match="--other 0"):
        draw_cameras(alone, 2, seed=0)


# --- through `reconstruct` -----------------------------------------------------------------------


def calibrated(classes: dict[str, float] | None = None) -> Reconstructor:
    model = create_model("lumen", bands=BANDS, seed=3, width=8, stages=1, cosines=8).eval()
    measured = {"bands": [4, 16], "length_px": [8.0, 24.0]}
    model.record |= {
        **trained_with(CAMERA), "name": "untrained", "measured_cameras": measured,
        "interval": interval_record(0.05, classes),
    }  # fmt: skip
    return model


@pytest.fixture(scope="module")
def one() -> Reconstructor:
    """Whose interval knows the training's camera alone."""
    return calibrated()


@pytest.fixture(scope="module")
def two() -> Reconstructor:
    """The same, which reaches 1.4 times as far behind others."""
    return calibrated({OTHER_CAMERAS: 1.4})


def cube_of(model: Reconstructor, camera: CASSI = CAMERA, **given: Any) -> Cube:
    [truth] = scenes(range(9, 10), camera.bands)
    mask = fabricate_mask(SIZE, seeded(5))
    shot = Measurement(camera.forward(truth[None], mask)[0].numpy())
    return reconstruct(shot, Mask(mask.numpy()), camera, model=model, check_mask=False,
                       device="cpu", **given)  # fmt: skip


def width(cube: Cube) -> float:
    assert cube.upper is not None
    return float((cube.upper - cube.values).mean())


@pytest.mark.parametrize(
    "camera", [CASSI.from_step(BANDS, 3.0), CASSI.from_step(BANDS + 1), CASSI.from_step(BANDS, 1.6)]
)
def test_another_camera_has_factors_of_its_own(
    one: Reconstructor, two: Reconstructor, camera: CASSI
) -> None:
    new, old = (cube_of(model, camera) for model in (two, one))
    np.testing.assert_array_equal(new.values, old.values)
    assert width(new) / width(old) == pytest.approx(1.4, rel=1e-3)
    assert new.attrs["interval"].endswith("of 3 scenes, including 4 other cameras")
    assert "with the training's camera, not this one" in old.attrs["interval"]
    assert any("`prismask calibrate`" in text for text in old.attrs["findings"])
    assert not any("`prismask calibrate`" in text for text in new.attrs["findings"])


@pytest.mark.filterwarnings("ignore:this camera is beyond:prismask.errors.PrismaskWarning")
def test_a_camera_beyond_those_it_was_fitted_behind_is_told(two: Reconstructor) -> None:
    cube = cube_of(two, CASSI.from_step(BANDS, 1.0))
    assert cube.attrs["interval"].endswith("4 other cameras, none of them like this one")


def test_the_training_s_camera_keeps_its_interval(one: Reconstructor, two: Reconstructor) -> None:
    """Also where an alignment has found the spectrum a percent wider than it was calibrated."""
    wider = MaskPose(0, 0, 0, 0, 0, 0, 0.01 * CAMERA.offsets[-1])
    mask = Mask(fabricate_mask(SIZE, seeded(5)).numpy())
    attrs = {"mask_pose": list(wider.numbers), "mask_hash": mask.hash}
    aligned = Cube(np.zeros((BANDS, 2, 2), np.float32), attrs=attrs)
    given: dict[str, Any]
    for given in ({}, {"pose": aligned}):
        new, old = (cube_of(model, **given) for model in (two, one))
        np.testing.assert_array_equal(new.upper, old.upper)
        said = "90 %, calibrated on 9 snapshots of 3 scenes"
        assert new.attrs["interval"] == old.attrs["interval"] == said


def test_of_several_classes_the_widest_counts() -> None:
    interval = even_interval(0.05, {OTHER_CAMERAS: 1.4, INCONSISTENT_MASKS: 1.7})
    for names in ([OTHER_CAMERAS, INCONSISTENT_MASKS], [INCONSISTENT_MASKS, OTHER_CAMERAS]):
        assert interval.for_classes(names).quantiles[0.9] == 1.7
    assert interval.for_classes([]).quantiles == interval.quantiles
