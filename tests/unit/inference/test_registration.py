"""The mask is found in its snapshot, in every orientation, shift and camera; others are not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from prismask.inference.alignment.pose import ORIENTATIONS, register
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import load_mask, load_measurement
from prismask.scenes.synthetic import demo_scene
from prismask.scenes.synthetic.demo import random_scene

BANDS = 12
GRID = tuple(450.0 + 18 * k for k in range(BANDS))
CAMERAS = {
    "width": CASSI.from_step(BANDS),
    "backwards": CASSI.from_step(BANDS, -2),
    "height": CASSI.from_step(BANDS, axis="height"),
    "dual": CASSI.from_step(BANDS, design="dual"),
    "fractional": CASSI(tuple(1.7 * k for k in range(BANDS))),
}
UNDO = {
    "turned by 90° counterclockwise": "turned by 90° clockwise",
    "turned by 90° clockwise": "turned by 90° counterclockwise",
}


@cache
def shot(name: str = "width", size: int = 192) -> tuple[Tensor, Tensor]:
    """A noisy snapshot and its mask."""
    camera = CAMERAS[name]
    cube = torch.tensor(random_scene(8, (size, size), GRID).values)
    mask = fabricate_mask(camera.mask_size((size, size)), seeded(5))
    signal = camera.forward(cube[None], mask)[0]
    return signal + 0.02 * torch.randn(signal.shape, generator=seeded(1)), mask


@pytest.mark.parametrize("name", CAMERAS)
def test_the_right_mask_fits(name: str) -> None:
    found = register(*shot(name), CAMERAS[name])
    assert found is not None
    assert found.fits, found


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("shift", [(3, 0), (-2, 4), (7, -9)])
def test_a_shift_is_found(name: str, shift: tuple[int, int]) -> None:
    signal, mask = shot(name)
    found = register(signal, mask.roll(shift, (0, 1)), CAMERAS[name])
    assert found is not None
    assert not found.fits
    assert found.orientation == "as given"
    across = 0 if CAMERAS[name].axis == "width" else 1
    assert found.shift[across] == -shift[across]
    # Along the dispersion a shift is hardly told from one of the spectrum.
    assert abs(found.shift[1 - across] + shift[1 - across]) <= 2


@pytest.mark.parametrize("orientation", [name for name in ORIENTATIONS if name != "as given"])
@pytest.mark.parametrize("name", ["width", "height"])
def test_an_orientation_is_found(name: str, orientation: str) -> None:
    signal, mask = shot(name)
    found = register(signal, ORIENTATIONS[orientation](mask), CAMERAS[name])
    assert found is not None
    assert not found.fits
    assert found.orientation == UNDO.get(orientation, orientation)
    assert max(abs(part) for part in found.shift) <= 1


@pytest.mark.parametrize("size", [(96, 96), (200, 260)])
@pytest.mark.parametrize("seed", range(5, 11))
def test_masks_of_any_build_are_found(seed: int, size: tuple[int, int]) -> None:
    # The rims between cells are a grid that fits itself at every pitch: it must not count.
    camera = CASSI.from_step(31, 1.7)
    cube = torch.tensor(demo_scene(size, [420.0 + 10 * k for k in range(31)]).values)
    aperture = random_aperture(seeded(seed))
    mask, twin = (fabricate_mask(size, seeded(number), aperture) for number in (seed, seed + 100))
    signal = camera.forward(cube[None], mask)[0]
    signal = signal / signal.max() + 0.005 * torch.randn(signal.shape, generator=seeded(seed))
    found, other = (register(signal, one, camera) for one in (mask, twin))
    assert found is not None
    assert found.fits, (aperture, found)
    assert other is not None
    assert not other.found, (aperture, other)


def test_another_mask_is_not_found() -> None:
    signal, _ = shot()
    for seed in range(3):
        found = register(signal, fabricate_mask((192, 192), seeded(100 + seed)), CAMERAS["width"])
        assert found is not None
        assert not found.found, found


def test_a_scene_without_a_code_has_no_mask() -> None:
    camera = CAMERAS["width"]
    cube = torch.tensor(random_scene(8, (192, 192), GRID).values)
    plain = camera.forward(cube[None], torch.full((192, 192), 0.5))[0]
    found = register(plain, shot()[1], camera)
    assert found is not None
    assert not found.found


def test_too_few_bands_are_noticed() -> None:
    signal, mask = shot()
    fewer = CASSI.from_step(BANDS - 4)
    found = register(signal[:, : 192 + fewer.extent], mask, fewer)
    assert found is not None
    assert found.is_longer
    assert not found.fits


def test_what_is_too_small_is_left_alone() -> None:
    signal, mask = shot()
    assert register(signal[:50], mask[:50], CAMERAS["width"]) is None


def test_a_plane_for_every_band() -> None:
    signal, mask = shot()
    planes = mask[None] * torch.linspace(0.8, 1, BANDS)[:, None, None]
    found = register(signal, planes, CAMERAS["width"])
    assert found is not None
    assert found.fits


# --- real snapshots of two instruments -----------------------------------------------------------

TSANET = [f"tsanet_scene{k}" for k in range(1, 6)]
SMEM = ["smem_fern_root", "smem_resolution_target"]


def _real(folder: Path, name: str) -> tuple[Tensor, Tensor, Tensor, CASSI]:
    """Snapshot, its mask, the other instrument's mask, the camera."""
    masks = [
        torch.tensor(load_mask(folder / "masks" / f"{mask}_real_660.mat").values)
        for mask in ("tsanet", "smem")
    ]
    signal = torch.tensor(load_measurement(folder / "measurements" / f"{name}.mat").values)
    if name in SMEM:
        masks.reverse()
    return signal, masks[0], masks[1], CASSI.from_step(24 if name in SMEM else 28)


@pytest.mark.data
@pytest.mark.parametrize("name", TSANET + SMEM)
def test_real_snapshots(data_folder: Path, name: str) -> None:
    signal, right, wrong, camera = _real(data_folder, name)
    fits = register(signal, right, camera)
    assert fits is not None
    assert fits.fits, fits
    assert fits.score > 15
    stranger = register(signal, wrong, camera)
    assert stranger is not None
    assert not stranger.found, stranger
    flipped = register(signal, right.flip(-2), camera)
    assert flipped is not None
    assert flipped.orientation == "flipped top-bottom"
    assert not flipped.fits
    for shift in ((3, -5), (-1, 2), (0, 4)):
        moved = register(signal, right.roll(shift, (0, 1)), camera)
        assert moved is not None
        assert not moved.fits, (shift, moved)
        assert moved.orientation == "as given"
        assert moved.shift[0] == -shift[0]
        assert abs(moved.shift[1] + shift[1]) <= 1
