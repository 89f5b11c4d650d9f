"""A mask's place that an earlier alignment found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import KnownPose, MaskPose
from prismask.inference.options import Options
from prismask.inference.reconstruct import reconstruct
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA = CASSI.from_step()
SIZE = (24, 40)
BESIDE = MaskPose(0.4, -0.6, 0.1, 0, 0, 0, 0.5, 0.2, 0.3, 0.2, 0.05, 0.02)
MASK = Mask(fabricate_mask(SIZE, seeded(3)).numpy())


def earlier(**changed: Any) -> Cube:
    attrs = {"mask_pose": list(BESIDE.numbers), "mask_hash": MASK.hash, **changed}
    return Cube(np.zeros((28, 2, 2), np.float32), attrs=attrs)


def shot() -> Measurement:
    cube = torch.tensor(random_scene(1, SIZE).values)[None]
    return Measurement(CAMERA.forward(cube, torch.tensor(MASK.values)[None, None])[0].numpy())


def solve(mask: Mask, **given: Any) -> Cube:
    return reconstruct(shot(), mask, CAMERA, "gap-tv", iterations=3, check_mask=False,
                       noise_std=0.01, dark=0.0, device="cpu", **given)  # fmt: skip


def test_the_mask_is_read_there_and_the_bands_go_back() -> None:
    found = solve(MASK, pose=earlier())
    read = BESIDE.read(torch.tensor(MASK.values)[None, None], CAMERA)[0]
    through = torch.tensor(solve(Mask(read.numpy())).values)[None]
    expected = BESIDE.straightened(through, CAMERA)[0].numpy()
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    assert found.attrs["mask_pose"] == list(BESIDE.numbers)
    assert any("as was found before" in line for line in found.attrs["findings"])
    # And such a cube can be given on.
    assert solve(MASK, pose=found).attrs["recipe"] == found.attrs["recipe"]
    assert found.attrs["recipe"] != solve(MASK).attrs["recipe"]


def test_a_mask_that_was_found_in_its_place_stays_there() -> None:
    found = solve(MASK, pose=earlier(mask_pose=[0.0] * 12))
    np.testing.assert_array_equal(found.values, solve(MASK).values)
    assert any("where it was calibrated, as was found" in line for line in found.attrs["findings"])


def test_places_of_before_had_fewer_numbers() -> None:
    known = KnownPose.from_attrs({"mask_place": np.array([0.1, 0.2])}, "cube.nc")
    assert known.pose == MaskPose(0.1, 0.2)
    known.check(MASK)  # nothing is said about its mask


def test_places_of_before_knew_no_blur() -> None:
    with pytest.raises(ConfigError, match="before blur was searched for: align it again"):
        KnownPose.from_attrs({"mask_place": [0.1] * 11}, "cube.nc")


@pytest.mark.parametrize("noted", ["left", [], [0.1] * 13, [np.nan], [[0.1], [0.2, 0.3]]])
def test_what_is_no_place(noted: Any) -> None:
    with pytest.raises(ConfigError, match=r"mask_pose of cube\.nc is .* not the pose"):
        KnownPose.from_attrs({"mask_place": noted}, "cube.nc")


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="without align=True"):
        reconstruct(shot(), MASK, CAMERA, pose=Cube(np.zeros((28, 2, 2), np.float32)))
    other = Mask(1 - MASK.values)
    with pytest.raises(ConfigError, match=f"found for the mask {MASK.hash}, this one is"):
        solve(other, pose=earlier())
    with pytest.raises(ConfigError, match="leave one of them out"):
        Options(align=True, pose=KnownPose(BESIDE))


def test_a_second_disperser_puts_bands_back_by_itself() -> None:
    """Behind one disperser the cube's bands are taken back; behind two they never moved."""
    cube = torch.rand(1, 28, *SIZE, generator=seeded(0))
    dual = CASSI.from_step(design="dual")
    assert torch.equal(BESIDE.straightened(cube, dual), cube)
    assert torch.equal(BESIDE.shown(cube, dual), cube)
    assert not torch.allclose(BESIDE.straightened(cube, CAMERA), cube)
    mask = torch.rand(1, 1, *dual.mask_size(SIZE), generator=seeded(1))
    spread = MaskPose(spread=1.0)
    # What the light met is the mask with its planes moved; the scene stays where it is.
    moved = dual.forward(cube, spread.by_band(mask, dual))
    assert not torch.allclose(moved, dual.forward(cube, mask))


def rolled(rows: int) -> tuple[Measurement, Mask]:
    """A snapshot, and its mask so many rows too low."""
    size = (112, 128)
    mask = fabricate_mask(size, seeded(3)).numpy()
    cube = torch.tensor(random_scene(1, size).values)[None]
    seen = Measurement(CAMERA.forward(cube, torch.tensor(mask)[None, None])[0].numpy())
    return seen, Mask(np.roll(mask, rows, axis=0))


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
def test_a_shift_is_told_until_a_pose_has_it() -> None:
    seen, moved = rolled(2)

    def told(down: float) -> list[str]:
        pose = earlier(mask_pose=[down, *[0.0] * 11], mask_hash=moved.hash)
        found = reconstruct(seen, moved, CAMERA, "gap-tv", iterations=1, noise_std=0.01, pose=pose)
        return [line for line in found.attrs["findings"] if "clearly better shifted" in line]

    (line,) = told(0.0)
    assert "shifted by -2 rows and +0 columns" in line
    assert "align=True corrects such a shift" in line
    assert told(2.1) == []
    assert len(told(-2.0)) == len(told(1.0)) == 1, "read somewhere else"


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
def test_aligning_is_not_promised_for_a_mask_that_is_far_away() -> None:
    seen, moved = rolled(7)
    found = reconstruct(seen, moved, CAMERA, "gap-tv", iterations=1, noise_std=0.01)
    (line,) = (line for line in found.attrs["findings"] if "clearly better shifted" in line)
    assert "align=True" not in line
    assert "Move the mask in its file" in line
