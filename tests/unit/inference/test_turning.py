"""Cameras mounted any way round: a network is shown the one way it knows, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import Alignment
from prismask.inference.camera_match import Turn
from prismask.inference.engine import Engine
from prismask.inference.inspection import Snapshot
from prismask.inference.methods import network as network_method
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI, Axis, Design, camera_attrs, camera_from_attrs
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.records import Mask, Measurement

BANDS = 5
SIZE = (14, 17)

every_way = pytest.mark.parametrize("step", [2.0, -2.0, 1.7, -1.7])
both_axes = pytest.mark.parametrize("axis", ["width", "height"])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_way
@both_axes
@pytest.mark.parametrize("design", ["single", "dual"])
@pytest.mark.parametrize("trained", [2.0, -2.0])
def test_the_turned_camera_takes_the_turned_snapshot(
    step: float, axis: Axis, design: Design, trained: float
) -> None:
    camera = CASSI.from_step(BANDS, step, axis, design)
    turn = Turn.towards(camera, trained)
    shown = turn.camera(camera)
    assert shown.axis == "width"
    assert (shown.offsets[-1] - shown.offsets[0]) * trained > 0
    assert shown.extent == camera.extent
    cube, mask = random(2, BANDS, *SIZE), random(1, 1, *camera.mask_size(SIZE), seed=1)
    taken = shown.forward(turn.there(cube), turn.there(mask))
    torch.testing.assert_close(taken, turn.there(camera.forward(cube, mask)))
    torch.testing.assert_close(
        turn.back(shown.adjoint(taken, turn.there(mask))),
        camera.adjoint(camera.forward(cube, mask), mask),
    )


def test_a_mirrored_camera_mirrored_again_is_itself() -> None:
    camera = CASSI((0.0, 0.9, 3.4))
    mirrored = camera.mirrored()
    assert mirrored.offsets == pytest.approx((4.0, 3.1, 0.6))
    assert mirrored.mirrored() == camera
    # And it stays mirrored whatever is done to it.
    assert replace(replace(mirrored, axis="height"), axis="width") == mirrored
    assert camera_from_attrs(camera_attrs(mirrored)) == mirrored
    with pytest.raises(ConfigError, match="part of a pixel"):
        CASSI((0.0, 1.0), start=1.5)


@every_way
@both_axes
def test_frames_come_back_as_they_went(step: float, axis: Axis) -> None:
    turn = Turn.towards(CASSI.from_step(BANDS, step, axis), 2.0)
    frames = random(3, *SIZE)
    assert torch.equal(turn.back(turn.there(frames)), frames)
    asked = {("width", True): "", ("width", False): "mirrored", ("height", True): "transposed",
             ("height", False): "transposed, mirrored"}  # fmt: skip
    assert turn.text == asked[axis, step > 0]


@every_way
@both_axes
@pytest.mark.parametrize("number", range(8))
def test_a_place_is_told_in_the_camera_s_frame(step: float, axis: Axis, number: int) -> None:
    camera = CASSI.from_step(BANDS, step, axis)
    turn = Turn.towards(camera, 2.0)
    place = MaskPose.from_numbers([0.7 * (one == number) for one in range(8)])
    there, here = turn.camera(camera), turn.pose_back(place)
    mask, cube = random(1, 1, *SIZE, seed=2), random(1, BANDS, *SIZE, seed=3)
    torch.testing.assert_close(
        place.read(turn.there(mask), there), turn.there(here.read(mask, camera))
    )
    torch.testing.assert_close(
        place.straightened(turn.there(cube), there), turn.there(here.straightened(cube, camera))
    )
    # Wider is wider, whichever way the prism spreads.
    spread = max(camera.offsets) + 1.4 * (number == 6)
    text = here.text(SIZE, camera)
    assert (f"spread over {spread:.2f} px" in text) == (number in (6, 7)), "told if it differs"


@pytest.fixture(scope="module")
def network() -> Reconstructor:
    model = create_model("srn-looks+", bands=BANDS, seed=0, width=8, blocks=2, looks=1)
    model.record |= {"step_px": 2.0, "spread": [0.8, 1.2]}
    return model.eval()


@every_way
@both_axes
def test_a_network_does_not_notice(step: float, axis: Axis, network: Reconstructor) -> None:
    rightwards = CASSI.from_step(BANDS, abs(step))
    camera = CASSI.from_step(BANDS, step, axis)
    if step == -1.7:  # its pixels lie between those of the camera to the right: see the laws above
        rightwards = CASSI.from_step(BANDS, step).mirrored()
    mask = fabricate_mask((32, 40), seeded(3))
    scene = random(1, BANDS, 32, 40, seed=4).float()
    snapshot = rightwards.forward(scene, mask[None, None])[0]
    turn = Turn.towards(camera, 2.0)
    expected = reconstruct(
        Measurement(snapshot.numpy()), Mask(mask.numpy()), rightwards, model=network
    )
    found = reconstruct(
        Measurement(turn.back(snapshot).numpy()), Mask(turn.back(mask).numpy()), camera,
        model=network,
    )  # fmt: skip
    shown = turn.there(torch.tensor(found.values)).numpy()
    np.testing.assert_allclose(shown, expected.values, atol=1e-5)
    assert found.attrs.get("frame_for_network", "") == turn.text


def test_a_mask_is_found_in_the_camera_s_frame(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = MaskPose(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
    monkeypatch.setattr(
        network_method, "align_mask", lambda *given: Alignment(place, 1.0, 0.1, place)
    )
    camera = CASSI.from_step(BANDS, -2.0, "height")
    mask = fabricate_mask((24, 24), seeded(3))[None, None]
    signal = camera.forward(torch.rand(1, BANDS, 24, 24), mask)[0]
    method = NetworkMethod(Engine(network, torch.device("cpu")), "tiny")
    found = method.align(Snapshot(signal, mask, camera, 0.01, 1.0))
    assert found == replace(found, pose=Turn(True, True).pose_back(place))
    assert found.std.numbers == pytest.approx([abs(number) for number in found.pose.numbers])
    assert found.pose.numbers == pytest.approx(
        (-0.2, 0.1, -0.6, 0.5, 0.4, -0.3, -0.7, -0.8, 0.9, 1.0, 1.1, 1.2)
    )
