"""Snapshots that contradict their mask are found out, told, and given wider error bars."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import calibrated_network, engine_of, masks, scenes

from prismask.errors import ConfigError
from prismask.inference.alignment import probe
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import Alignment
from prismask.inference.engine.frame import Engine
from prismask.inference.intervals import faults
from prismask.inference.intervals import inconsistent_masks as inconsistent_masks
from prismask.inference.intervals.faults import draw_fault
from prismask.inference.intervals.inconsistent_masks import calibrate_inconsistent_masks
from prismask.inference.intervals.model import INCONSISTENT_MASKS, Interval, Size
from prismask.inference.methods import network as network_method
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA = CASSI.from_step()
SIZE = (80, 112)
WIDER = 1.7

FAULTS = {
    "half a pixel up": MaskPose(-0.5),
    "half a pixel left": MaskPose(0.0, -0.5),
    "a pixel aside": MaskPose(0.7, 0.7),
    "out of focus": MaskPose(blur=0.36),
    "a wider spectrum": MaskPose(spread=0.5),
}


@pytest.fixture(scope="module")
def network() -> Reconstructor:
    """What ships, whose interval reaches 1.7 times as far where a mask is doubted."""
    model = load_model("srn-looks.m2m")
    record = copy.deepcopy(model.record)
    known = Interval.from_record(record["interval"]["single"], model.bands)
    size = Size({level: WIDER * q for level, q in known.quantiles.items()}, {"scenes": 3})
    quantiles = {f"{level:g}": q for level, q in size.quantiles.items()}
    fitted = {"quantiles": quantiles, "about": size.about}
    record["interval"]["single"] |= {"classes": {INCONSISTENT_MASKS: fitted}}
    model.record = record
    return model


def shot(
    seed: int, fault: MaskPose | None = None, camera: CASSI = CAMERA
) -> tuple[Measurement, Mask]:
    """A scene through a mask with a fault, and the mask as it was calibrated."""
    at = np.interp(np.linspace(0, 27, camera.bands), np.arange(28), WAVELENGTHS_NM)
    truth = torch.tensor(random_scene(seed, SIZE, tuple(at.tolist())).values)[None]
    mask = fabricate_mask(SIZE, seeded(seed))[None, None]
    if fault is not None:
        bands = MaskPose(spread=-fault.spread, bend=-fault.bend)
        truth, met = bands.straightened(truth, camera), fault.read(mask, camera)
    signal = camera.forward(truth, mask if fault is None else met)[0]
    signal = signal + 0.01 * torch.randn(signal.shape, generator=seeded(seed))
    return Measurement(signal.numpy()), Mask(mask[0, 0].numpy())


def made(network: Reconstructor, given: tuple[Measurement, Mask], **more: Any) -> Cube:
    camera = more.pop("camera", CAMERA)
    return reconstruct(*given, camera, model=network, device="cpu", **more)


def width(cube: Cube) -> float:
    assert cube.upper is not None
    return float((cube.upper - cube.values).mean())


@pytest.mark.parametrize("seed", [1, 2])
def test_a_right_mask_is_left_alone(network: Reconstructor, seed: int) -> None:
    cube = made(network, shot(seed))
    assert cube.attrs["mask_inconsistent"] is False
    assert cube.attrs["mask_probe_gain"] < 0
    assert "not as calibrated" not in cube.attrs["interval"]
    assert not any("contradicts" in text for text in cube.attrs["findings"])
    np.testing.assert_array_equal(cube.upper, made(network, shot(seed), check_mask=False).upper)


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_one_is_found_out(network: Reconstructor, name: str) -> None:
    given = shot(3, FAULTS[name])
    cube = made(network, given)
    assert cube.attrs["mask_inconsistent"] is True
    assert cube.attrs["mask_probe_gain"] > probe.INCONSISTENT_FROM
    (told,) = [text for text in cube.attrs["findings"] if "contradicts its mask" in text]
    assert told.startswith("warning: ")
    assert "--align" in told
    assert (
        cube.attrs["interval"] == "90 %, calibrated on 3 scenes whose masks were not as calibrated"
    )
    unasked = made(network, given, check_mask=False)
    assert "mask_inconsistent" not in unasked.attrs
    np.testing.assert_array_equal(cube.values, unasked.values)
    assert width(cube) / width(unasked) == pytest.approx(WIDER, rel=1e-3)
    assert cube.attrs["recipe"] != unasked.attrs["recipe"]


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_turned_by_ninety_degrees_it_is_the_same(network: Reconstructor) -> None:
    sideways = CASSI(CAMERA.offsets, axis="height")
    for fault in (None, FAULTS["half a pixel up"]):
        seen, mask = shot(3, fault)
        turned = (Measurement(seen.values.T.copy()), Mask(mask.values.T.copy()))
        gains = [
            made(network, given, camera=camera).attrs["mask_probe_gain"]
            for given, camera in (((seen, mask), CAMERA), (turned, sideways))
        ]
        assert gains[0] == pytest.approx(gains[1], abs=1e-3)


@pytest.mark.filterwarnings("ignore:the network was trained at:prismask.errors.PrismaskWarning")
def test_nobody_asks_behind_another_camera_or_without_a_size(network: Reconstructor) -> None:
    other = CASSI.from_step(28, 1.6)
    assert "mask_inconsistent" not in made(network, shot(3, camera=other), camera=other).attrs
    plain = load_model("srn-plus.m2m")
    assert "mask_inconsistent" not in made(plain, shot(3)).attrs


def test_a_small_frame_says_nothing(network: Reconstructor) -> None:
    seen, mask = shot(1)
    small = (Measurement(seen.values[20:80]), Mask(mask.values[20:80]))
    assert "mask_inconsistent" not in made(network, small).attrs


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_it_is_asked_again_where_alignment_finds_nothing(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, place = shot(3, FAULTS["out of focus"]), FAULTS["out of focus"]
    for worth, asked in ((0.5, False), (1.0, True)):
        found = Alignment(place, 1.0, worth)
        monkeypatch.setattr(network_method, "align_mask", lambda *_, found=found: found)
        cube = made(network, given, align=True)
        assert ("mask_inconsistent" in cube.attrs) is asked
    assert any("--align has found no pose" in text for text in cube.attrs["findings"])


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_a_place_that_holds_no_longer_is_told(network: Reconstructor) -> None:
    seen, mask = shot(3, FAULTS["out of focus"])
    attrs = {"mask_pose": list(FAULTS["a pixel aside"].numbers), "mask_hash": mask.hash}
    before = Cube(np.zeros((28, 2, 2), np.float32), attrs=attrs)
    cube = made(network, (seen, mask), pose=before)
    assert any("--align instead of --pose" in text for text in cube.attrs["findings"])


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_lines_around_the_brightest_are_all_it_needs(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, mask = shot(3, FAULTS["out of focus"])
    gains = []
    for margin in (probe.MARGIN, 1000):
        monkeypatch.setattr(probe, "MARGIN", margin)
        gains.append(made(network, (seen, mask)).attrs["mask_probe_gain"])
    assert gains[0] == pytest.approx(gains[1], abs=1e-3)


# --- the fit -------------------------------------------------------------------------------------

# The network is smaller than what says something; the fit is asked all the same.


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(calibrated_network())


def test_the_fit_adds_one_size_and_says_what_it_saw(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "INCONSISTENT_FROM", -np.inf)  # everything is found out
    monkeypatch.setattr(probe, "SMALLEST", 1)
    before = copy.deepcopy(engine.model.record["interval"])
    fitted = calibrate_inconsistent_masks(
        engine, scenes(range(4)), masks(2), 3, scene_of=[0, 1, 0, 1]
    )
    assert engine.model.record["interval"] == before
    for kind in ("single", "sampled"):
        assert {key: fitted[kind][key] for key in before[kind]} == before[kind]
        size = fitted[kind]["classes"][INCONSISTENT_MASKS]
        assert size["quantiles"].keys() == before[kind]["quantiles"].keys()
        about = size["about"]
        assert (about["wrong"], about["inconsistent"], about["scenes"]) == (6, 6, 2)
        assert (about["right"], about["right_inconsistent"]) == (6, 6)
        low, mean, high = about["left_out_scenes"]["0.9"]
        assert low <= mean <= high
    again = calibrate_inconsistent_masks(
        engine, scenes(range(4)), masks(2), 3, scene_of=[0, 1, 0, 1]
    )
    assert again == fitted


def test_only_what_was_found_out_counts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    gains = iter([0.5, -0.5, -0.5] * 100)
    monkeypatch.setattr(network_method, "probe_mask", lambda *_: probe.Probe(next(gains)))
    fitted = calibrate_inconsistent_masks(engine, scenes(range(2)), masks(2), 6)
    # Three are asked each time: wrong, the same with samples, and right.
    for kind, found in (("single", 12), ("sampled", 0)):
        classes = fitted[kind].get("classes", {})
        assert bool(classes) == bool(found)
        if found:
            about = classes[INCONSISTENT_MASKS]["about"]
            assert (about["wrong"], about["inconsistent"], about["right_inconsistent"]) == (
                12,
                found,
                0,
            )


def test_a_network_that_cannot_tell_is_left_as_it_is(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "INCONSISTENT_FROM", np.inf)
    monkeypatch.setattr(probe, "SMALLEST", 1)
    before = copy.deepcopy(engine.model.record["interval"])
    assert calibrate_inconsistent_masks(engine, scenes(range(2)), masks(2), 1) == before
    # Nor is an answer of before kept, which this network could not give.
    for kind in ("single", "sampled"):
        size = {"quantiles": before[kind]["quantiles"], "about": {}}
        engine.model.record["interval"][kind]["classes"] = {INCONSISTENT_MASKS: size}
    assert calibrate_inconsistent_masks(engine, scenes(range(2)), masks(2), 1) == before
    engine.model.record["interval"] = before
    with pytest.raises(ConfigError, match="at least one"):
        calibrate_inconsistent_masks(engine, scenes(range(2)), masks(2), 0)


def test_faults_are_of_three_kinds_within_their_limits() -> None:
    generator = seeded(0)
    for number in range(60):
        numbers = np.array(draw_fault(number, generator).numbers)
        moved, blurred, spread = np.hypot(*numbers[:2]), numbers[8], np.abs(numbers[6])
        limits = (
            faults.SHIFTS,
            np.square(faults.BLURS),
            faults.SPREADS,
        )
        for kind, (value, (least, most)) in enumerate(
            zip((moved, blurred, spread), limits, strict=True)
        ):
            assert (least <= value <= most) if kind == number % 3 else value == 0
