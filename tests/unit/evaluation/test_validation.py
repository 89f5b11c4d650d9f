"""What training looks at: both groups of masks, and cubes of both scales."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from prismask.evaluation.metrics import psnr
from prismask.evaluation.run.training import (
    enlarged_middles,
    estimated,
    make_validation,
    validation_cubes,
)
from prismask.optics.camera import CASSI


def test_cubes_show_the_middle_and_the_whole() -> None:
    scenes = torch.rand(2, 3, 20, 24)
    cubes = validation_cubes(scenes, 8)
    assert cubes.shape == (4, 3, 8, 8)
    assert torch.equal(cubes[0], scenes[0, :, 6:14, 8:16])
    half = scenes[1, :, 2:18, 4:20].reshape(3, 8, 2, 8, 2).mean((2, 4))
    assert torch.allclose(cubes[3], half, atol=1e-6)
    assert validation_cubes(scenes, 16).shape == (2, 3, 16, 16)


def test_a_model_that_knows_the_truth_wins() -> None:
    camera = CASSI.from_step(3)
    scenes = torch.rand(2, 3, 12, 12)
    cubes = validation_cubes(scenes, 12)
    validate = make_validation(scenes, torch.rand(20, 30), camera, masks=2, size=12)
    asked: list[Any] = []

    def almost(measurement: torch.Tensor, mask: torch.Tensor, camera: CASSI) -> torch.Tensor:
        asked.append(mask)
        return cubes + 0.01

    scores = validate(almost)
    expected = float(psnr(cubes + 0.01, cubes).mean())
    assert scores["psnr_seen"] == pytest.approx(expected, abs=1e-3)
    assert scores["score"] == pytest.approx(expected, abs=1e-3)
    assert len({mask.sum().item() for mask in asked}) == 4, "two different masks a group"
    assert validate(lambda y, m, c: torch.zeros_like(cubes))["score"] < expected


@pytest.mark.parametrize("size", [8, 9, 20])
def test_enlarged_middles_show_half_as_much_of_each_scene(size: int) -> None:
    rows, columns = torch.meshgrid(torch.arange(20.0), torch.arange(24.0), indexing="ij")
    ramps = torch.stack([rows, columns])[None] / 24
    middle = enlarged_middles(ramps, size)
    assert middle.shape == (1, 2, size, size)
    steps = middle[0, 0, 2:-2].diff(dim=0), middle[0, 1, :, 2:-2].diff(dim=1)
    for step in steps:
        assert torch.allclose(step, torch.full_like(step, 0.5 / 24), atol=1e-5)
    whole = torch.tensor([rows.mean() / 24, columns.mean() / 24])
    assert torch.allclose(middle.mean((0, 2, 3)), whole, atol=1 / 24)


def test_enlarged_scenes_are_a_group_where_asked_for() -> None:
    camera, scenes = CASSI.from_step(3), torch.rand(2, 3, 12, 12)
    validate = make_validation(scenes, None, camera, masks=1, size=12, enlarged=True)
    large = enlarged_middles(scenes, 12)
    mask_sizes = []

    def model(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        is_large = torch.allclose(measurement, camera.forward(large, mask))
        mask_sizes.append(is_large)
        return large + 0.01 if is_large else torch.zeros_like(large)

    scores = validate(model)
    assert set(scores) == {"score", "psnr_fabricated", "psnr_enlarged"}
    assert sorted(mask_sizes) == [False, True]
    assert scores["psnr_enlarged"] > scores["psnr_fabricated"] + 10


def test_wrong_masks_and_lamps_are_groups_of_their_own() -> None:
    camera = CASSI.from_step(3)
    scenes = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(0)) + 0.1
    lamp = torch.tensor([1.0, 0.01, 0.3])
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {"right": [], "wrong": []}

    def model(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        right = any(
            torch.allclose(measurement, camera.forward(cube, mask), atol=1e-5)
            for cube in (scenes, lit)
        )
        seen["right" if right else "wrong"].append((measurement, mask))
        return torch.ones(2, 3, 12, 12)

    lit = scenes * lamp[:, None, None]
    lit = lit / lit.amax((1, 2, 3), keepdim=True)
    validate = make_validation(scenes, None, camera, masks=2, size=12, misplaced=0.5, lamp=lamp)
    scores = validate(model)
    assert set(scores) == {"score", "psnr_fabricated", "psnr_misplaced", "psnr_lamp"}
    assert len(seen["right"]) == 4, "two masks as told, for the scenes and under the lamp"
    assert len(seen["wrong"]) == 2, "two that are not"
    assert scores["psnr_lamp"] != scores["psnr_fabricated"]
    assert {float(mask.sum()) for _, mask in seen["wrong"]} == {
        float(mask.sum()) for _, mask in seen["right"]
    }, "the model is told the same masks"


@pytest.mark.parametrize("in_half", [2.0, float("inf"), float("nan")])
def test_half_precision_that_overflows_is_not_believed(in_half: float) -> None:
    def model(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            return torch.full((1, 2, 4, 4), in_half, dtype=torch.float16)
        return torch.full((1, 2, 4, 4), 3.0)

    given = (torch.ones(1, 4, 6), torch.ones(1, 1, 4, 4), CASSI.from_step(2))
    cube = estimated(model, *given, half=True)
    assert cube.dtype == torch.float32
    assert (cube == (2.0 if in_half == 2.0 else 3.0)).all()
    assert (estimated(model, *given, half=False) == 3.0).all()
