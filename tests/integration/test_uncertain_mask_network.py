"""A small lumen after half a minute of training: being told, the probe of its mask, alignment."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_network import BANDS, CAMERA, masks, scenes
from torch import Tensor

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import INCONSISTENT_FROM, probe_mask
from prismask.inference.engine import Engine
from prismask.inference.reconstruct import reconstruct
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import trained_with
from prismask.optics.camera import CASSI
from prismask.training.config import MaskConfig
from prismask.training.data.masks import as_seen, draw_faults, stated_spread

pytestmark = pytest.mark.slow

NOISE = 0.01
RIGHT = MaskPose()
WRONG = {
    "half a pixel to the right": MaskPose(right=0.5),
    "half a pixel down": MaskPose(down=0.5),
    "out of focus": MaskPose(blur=0.5),
    "a pixel to the right": MaskPose(right=1.0),
}


def train(steps: int = 1000, crop: int = 40, batch: int = 4) -> Reconstructor:
    """Half of the masks are wrong, and two thirds of them are told how far."""
    model = create_model("lumen", bands=BANDS, seed=0, width=16, stages=3, cosines=8)
    cubes, apertures = scenes(range(24)), masks(12, seed=1, size=96)
    numbers = torch.Generator().manual_seed(0)
    faults = MaskConfig(fault_share=0.5, told_share=0.7)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)

    def pieces(whole: Tensor) -> Tensor:
        some = whole[torch.randint(len(whole), (batch,), generator=numbers)]
        row, column = torch.randint(whole.shape[-1] - crop + 1, (2,), generator=numbers).tolist()
        return some[..., row : row + crop, column : column + crop]

    for _ in range(steps):
        cube, drawn = pieces(cubes), draw_faults(pieces(apertures), numbers, faults)
        std = stated_spread(as_seen(drawn, None)[1], numbers, faults.told_share)
        level = NOISE * torch.rand(batch, generator=numbers)
        shot = CAMERA.forward(cube, drawn.true)
        shot = shot + level[:, None, None] * torch.randn(shot.shape, generator=numbers)
        said = model.estimates(Observation(shot, drawn.nominal, CAMERA, level, std)).cubes[::-1]
        errors = [((one - cube).square().mean((1, 2, 3)) + 1e-8).log().mean() for one in said]
        loss = torch.stack([0.7**stage * error for stage, error in enumerate(errors)]).sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    model.record |= {"name": "small", "sha256": "trained in a test", **trained_with(CAMERA)}
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def model() -> Reconstructor:
    return train()


@pytest.fixture(scope="module")
def unseen() -> tuple[Tensor, Tensor]:
    """Scenes and masks that it has not learned from."""
    return scenes(range(40, 44), 96), masks(4, seed=9, size=96)


def shot(cube: Tensor, mask: Tensor, pose: MaskPose, camera: CASSI = CAMERA) -> Tensor:
    """What the sensor sees `(H, L)` where the mask is in `pose`."""
    light = camera.forward(cube, pose.moved(mask))[0]
    return light + NOISE * torch.randn(light.shape, generator=torch.Generator().manual_seed(5))


def error(cube: Tensor, truth: Tensor) -> float:
    return float((cube - truth).square().mean().sqrt())


@pytest.mark.parametrize("name", [*WRONG, None], ids=[*WRONG, "right"])
def test_a_snapshot_says_whether_its_mask_is_right(
    model: Reconstructor, unseen: tuple[Tensor, Tensor], name: str | None
) -> None:
    """As far as the last stage explains it: after the exact step every mask would explain all."""
    engine = Engine(model, torch.device("cpu"), "float32")
    pose = RIGHT if name is None else WRONG[name]
    for cube, mask in zip(*(part.split(1) for part in unseen), strict=True):
        found = probe_mask(
            engine, Observation(shot(cube, mask, pose)[None], mask, CAMERA, torch.tensor([NOISE]))
        )
        assert found is not None
        assert found.is_inconsistent == (name is not None), f"{found.gain} of {INCONSISTENT_FROM}"


CAMERAS = {
    "usual": CAMERA,
    "to the left": CASSI.from_step(BANDS, -2.0),
    "up": CASSI.from_step(BANDS, -2.0, axis="height"),
}


@pytest.mark.parametrize("told", [None, 0.05])
@pytest.mark.parametrize("name", CAMERAS)
def test_alignment_finds_the_pose(
    model: Reconstructor, unseen: tuple[Tensor, Tensor], name: str, told: float | None
) -> None:
    camera, (cubes, apertures) = CAMERAS[name], unseen
    cube, mask, moved = cubes[:1], apertures[:1], MaskPose(down=0.5, right=-0.7)
    how: dict[str, Any] = {
        "model": model, "noise_std": NOISE, "dark": 0.0, "device": "cpu", "mask_std": told,
        "precision": "float32", "check_mask": False,
    }  # fmt: skip
    seen = shot(cube, mask, moved, camera)
    plain, found = (reconstruct(seen, mask[0, 0], camera, align=align, **how) for align in (0, 1))
    pose = MaskPose.from_numbers(found.attrs["mask_pose"])
    assert pose.down == pytest.approx(moved.down, abs=0.15)
    assert pose.right == pytest.approx(moved.right, abs=0.15)
    errors = [error(torch.tensor(one.values), cube[0]) for one in (plain, found)]
    assert errors[1] < 0.9 * errors[0]


def test_it_helps_to_be_told(model: Reconstructor, unseen: tuple[Tensor, Tensor]) -> None:
    """Behind wrong masks; and right ones that are told to be right are worth most."""
    levels: dict[str, list[float]] = {"told": [], "denied": [], "right": []}
    for cube, mask in zip(*(part.split(1) for part in unseen), strict=True):
        moved = MaskPose(right=1.0)
        seen, off = shot(cube, mask, moved), error(moved.moved(mask), mask)
        for name, given, std in (
            ("told", seen, off), ("denied", seen, 0.0), ("right", shot(cube, mask, RIGHT), 0.0),
        ):  # fmt: skip
            how: dict[str, Any] = {"noise_std": NOISE, "dark": 0.0, "check_mask": False}
            made = reconstruct(given, mask[0, 0], CAMERA, model=model, mask_std=std, **how)
            levels[name].append(error(torch.tensor(made.values), cube[0]))
    right, told, denied = (sum(levels[name]) for name in ("right", "told", "denied"))
    assert right < told < 0.95 * denied
