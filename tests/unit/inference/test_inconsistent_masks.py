"""Snapshots that contradict their mask are found out, told, and given wider error bars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import interval_record

from prismask.errors import PrismaskWarning
from prismask.inference.alignment import search as probe
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import Alignment
from prismask.inference.engine import Engine
from prismask.inference.intervals import snapshots
from prismask.inference.intervals.learned import INCONSISTENT_MASKS
from prismask.inference.intervals.snapshots import draw_fault
from prismask.inference.methods import network as network_method
from prismask.inference.options import Options
from prismask.inference.reconstruct import deliver_batch, delivered, reconstruct
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
    """What ships, with an interval that reaches 1.7 times as far where a mask is doubted."""
    model = load_model("lumen.m2m")
    model.record = {**model.record, "interval": interval_record(0.05, {INCONSISTENT_MASKS: WIDER})}
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
    """A cube with the mask as it was calibrated, unless a pose is asked for."""
    camera = more.pop("camera", CAMERA)
    if "pose" not in more:
        more = {"align": False, **more}
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
    assert "align=True" in told
    assert cube.attrs["interval"] == (
        "90 %, calibrated on 9 snapshots of 3 scenes, including wrong masks"
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
            made(network, given, camera=camera, noise_std=0.01).attrs["mask_probe_gain"]
            for given, camera in (((seen, mask), CAMERA), (turned, sideways))
        ]
        assert gains[0] == pytest.approx(gains[1], abs=1e-3)


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
@pytest.mark.parametrize("other", [CASSI.from_step(28, 1.6), CASSI.from_step(24, 2.0)])
def test_it_is_asked_behind_another_camera_whose_interval_stays(
    network: Reconstructor, other: CASSI
) -> None:
    right = made(network, shot(3, camera=other), camera=other)
    assert right.attrs["mask_inconsistent"] is False
    given = shot(3, FAULTS["half a pixel up"], other)
    wrong = made(network, given, camera=other)
    assert wrong.attrs["mask_inconsistent"] is True
    (told,) = [text for text in wrong.attrs["findings"] if "contradicts its mask" in text]
    assert "its error bars are those of a right mask" in told
    unasked = made(network, given, camera=other, check_mask=False)
    np.testing.assert_array_equal(wrong.upper, unasked.upper)
    found = made(network, given, camera=other, align=None)
    assert found.attrs["mask_pose"][0] == pytest.approx(-0.5, abs=0.15)


def test_nobody_asks_where_bands_lie_far_apart_or_without_an_interval(
    network: Reconstructor,
) -> None:
    other = CASSI.from_step(8, 7.0)
    assert "mask_inconsistent" not in made(network, shot(3, camera=other), camera=other).attrs
    plain = load_model("lumen.m2m")
    plain.record = {key: value for key, value in plain.record.items() if key != "interval"}
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
        found = Alignment(place if worth < 1 else MaskPose(), 1.0, worth)
        monkeypatch.setattr(network_method, "align_mask", lambda *_, found=found: found)
        cube = made(network, given, align=True)
        assert ("mask_inconsistent" in cube.attrs) is asked
    assert any("No pose was found" in text for text in cube.attrs["findings"])


# --- what nobody asks for is done all the same ----------------------------------------------------


def test_a_mask_that_is_contradicted_is_read_in_its_pose(network: Reconstructor) -> None:
    given = shot(3, FAULTS["a pixel aside"])
    with pytest.warns(PrismaskWarning, match="contradicts its mask as calibrated: the mask lies"):
        cube = made(network, given, align=None)
    np.testing.assert_array_equal(cube.values, made(network, given, align=True).values)
    assert cube.attrs["mask_pose"][:2] == pytest.approx([0.7, 0.7], abs=0.15)
    assert "mask_inconsistent" not in cube.attrs, "the mask is right where it is now"
    (told,) = [text for text in cube.attrs["findings"] if "contradicts" in text]
    assert "align=False" in told
    assert "pose" in told
    truth = random_scene(3, SIZE, tuple(WAVELENGTHS_NM)).values
    errors = [
        np.square(one.values - truth).mean()
        for one in (cube, made(network, given, align=False, check_mask=False))
    ]
    assert errors[0] < 0.8 * errors[1]


def test_a_right_mask_is_not_searched(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a search takes several times as long as the cube")

    monkeypatch.setattr(network_method, "align_mask", never)
    given = shot(1)
    cube = made(network, given, align=None)
    np.testing.assert_array_equal(cube.values, made(network, given, align=False).values)
    assert not any("contradicts" in text for text in cube.attrs["findings"])
    # Nor is a wrong one where nobody wants to know.
    made(network, shot(3, FAULTS["a pixel aside"]), align=None, check_mask=False)


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_a_search_that_finds_nothing_leaves_the_mask(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Alignment(MaskPose(), 1.0, 1.0)
    monkeypatch.setattr(network_method, "align_mask", lambda *_: nothing)
    given = shot(3, FAULTS["out of focus"])
    cube = made(network, given, align=None)
    assert cube.attrs["mask_inconsistent"] is True
    assert "mask_pose" not in cube.attrs
    (told,) = [text for text in cube.attrs["findings"] if "contradicts" in text]
    assert "No pose was found that explains it clearly better" in told
    np.testing.assert_array_equal(cube.upper, made(network, given, align=False).upper)


def test_what_is_given_back_in_batches_is_what_is_delivered(network: Reconstructor) -> None:
    seen, mask = shot(3, FAULTS["a pixel aside"])
    method = network_method.NetworkMethod(Engine(network, torch.device("cpu")), "lumen.m2m")
    planes = torch.tensor(mask.values)[None, None]
    for options in (Options(), Options(align=False)):
        (cube,) = deliver_batch(
            method, method, torch.tensor(seen.values)[None], planes, CAMERA, options
        )
        (one,) = delivered(method, method, torch.tensor(seen.values)[None], planes, CAMERA, options)
        np.testing.assert_allclose(cube.numpy(), one.values, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_a_place_that_holds_no_longer_is_told(network: Reconstructor) -> None:
    seen, mask = shot(3, FAULTS["out of focus"])
    attrs = {"mask_pose": list(FAULTS["a pixel aside"].numbers), "mask_hash": mask.hash}
    before = Cube(np.zeros((28, 2, 2), np.float32), attrs=attrs)
    cube = made(network, (seen, mask), pose=before)
    assert any("leave pose out" in text for text in cube.attrs["findings"])


@pytest.mark.filterwarnings("ignore:the snapshot contradicts:prismask.errors.PrismaskWarning")
def test_lines_around_the_brightest_are_all_it_needs(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, mask = shot(3, FAULTS["out of focus"])
    gains = []
    for margin in (probe.PROBE_MARGIN, 1000):
        monkeypatch.setattr(probe, "PROBE_MARGIN", margin)
        gains.append(made(network, (seen, mask)).attrs["mask_probe_gain"])
    assert gains[0] == pytest.approx(gains[1], abs=1e-3)


def test_faults_are_of_three_kinds_within_their_limits() -> None:
    generator = seeded(0)
    for number in range(60):
        numbers = np.array(draw_fault(number, generator).numbers)
        moved, blurred, spread = np.hypot(*numbers[:2]), numbers[8], np.abs(numbers[6])
        limits = (
            snapshots.SHIFTS,
            np.square(snapshots.BLURS),
            snapshots.SPREADS,
        )
        for kind, (value, (least, most)) in enumerate(
            zip((moved, blurred, spread), limits, strict=True)
        ):
            assert (least <= value <= most) if kind == number % 3 else value == 0
