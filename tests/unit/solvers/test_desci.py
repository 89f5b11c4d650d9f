"""DeSCI: low-rank groups are kept, the rest goes, on any camera and size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_shots import psnr
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI
from prismask.solvers.desci import (
    DeSci,
    Matching,
    change_groups,
    guide_of,
    match_patches,
    minimise_weighted_nuclear_norm,
)
from prismask.solvers.gap_tv import GapTv

CAMERA = CASSI.from_step(bands=8, step=2)
SMALL = {"patch": 4, "stride": 3, "group": 12, "radius": 5}


def scene(bands: int = 8, height: int = 30, width: int = 33) -> Tensor:
    """Three materials in shading, `(1, C, H, W)`: of rank 3, but nowhere flat."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    band = torch.linspace(0, 3, bands)
    spectra = torch.stack([(band - centre).square().neg().exp() for centre in (0.3, 1.5, 2.7)])
    amounts = torch.stack([(x // 11 + y // 10) % 3 == k for k in range(3)]).float()
    shade = 0.6 + 0.25 * torch.sin(0.9 * x) * torch.cos(0.7 * y)
    return (torch.einsum("kc,khw->chw", spectra, amounts) * shade)[None]


def aperture(height: int = 30, width: int = 33, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.where(torch.rand(height, width, generator=generator) < 0.5, 0.05, 0.95)


def test_it_denoises_a_low_rank_image() -> None:
    truth = scene()
    noisy = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(3))
    matching = Matching(**SMALL)
    corners = match_patches(guide_of(noisy), matching)

    def shrink(groups: Tensor, samples: Tensor) -> Tensor:
        return minimise_weighted_nuclear_norm(groups.flatten(1, 2), 0.1)

    found = change_groups(noisy, corners, 4, shrink)
    assert psnr(found, truth) > psnr(noisy, truth) + 3


def test_patches_are_matched_anew_after_some_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def match(guide: Tensor, matching: Matching) -> Tensor:
        seen.append(guide.clone())
        return match_patches(guide, matching)

    monkeypatch.setattr("prismask.solvers.desci.match_patches", match)
    truth, mask = scene(), aperture()
    solver = DeSci(iterations=7, start_iterations=3, match_every=3, **SMALL)  # type: ignore[arg-type]
    solver(CAMERA.forward(truth, mask), mask, CAMERA)
    assert len(seen) == 3
    assert not torch.equal(seen[0], seen[1])


def test_it_improves_on_its_start() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solution = DeSci(iterations=20, **SMALL).solve(measurement, mask, CAMERA)
    assert psnr(solution.cube, truth) > psnr(GapTv()(measurement, mask, CAMERA), truth) + 0.5
    assert solution.residuals[-1] < 0.05
    assert solution.cube.min() >= 0
    assert set(solution.chosen) == {"noise", "memory_mib"}


@pytest.mark.parametrize(
    "camera",
    [
        CASSI.from_step(bands=8, step=1.3),
        CASSI.from_step(bands=8, step=-1, axis="height"),
        CASSI.from_step(bands=8, step=2, design="dual"),
    ],
    ids=["fractional", "height", "dual"],
)
def test_it_works_on_every_camera(camera: CASSI) -> None:
    truth = scene()
    mask = aperture(*camera.mask_size((30, 33)))
    measurement = camera.forward(truth, mask)
    found = DeSci(iterations=4, **SMALL)(measurement, mask, camera)
    assert psnr(found, truth) > psnr(camera.spread(measurement, mask), truth) + 2


@pytest.mark.parametrize("size", [(7, 9), (3, 20), (17, 25)])
def test_any_size_works(size: tuple[int, int]) -> None:
    truth, mask = scene(8, *size), aperture(*size)
    found = DeSci(iterations=2)(CAMERA.forward(truth, mask), mask, CAMERA)
    assert found.shape == truth.shape
    assert torch.isfinite(found).all()


def test_a_batch_equals_its_samples() -> None:
    truth = torch.cat([scene(), 0.1 * scene().flip(-1)])
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])[:, None]
    solver = DeSci(iterations=3, start_iterations=10, **SMALL)
    measurement = CAMERA.forward(truth, masks)
    together = solver(measurement, masks, CAMERA)
    for k in range(2):
        alone = solver(measurement[k : k + 1], masks[k], CAMERA)
        torch.testing.assert_close(together[k : k + 1], alone, rtol=0, atol=1e-4)
    several = solver(measurement[:1], masks, CAMERA)
    torch.testing.assert_close(several[:1], together[:1], rtol=0, atol=1e-4)


def test_memory_and_units_do_not_matter() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    options = {"iterations": 3, "start_iterations": 10, **SMALL}
    usual = DeSci(**options)(measurement, mask, CAMERA)
    bounded = DeSci(memory_mib=0.05, **options)(measurement, mask, CAMERA)
    torch.testing.assert_close(bounded, usual, rtol=0, atol=1e-5)
    counts = DeSci(**options)(1000 * measurement, mask, CAMERA)
    torch.testing.assert_close(counts / 1000, usual, rtol=0, atol=1e-3)


def test_knowing_the_noise_pays() -> None:
    truth, mask = scene(), aperture()
    clean = CAMERA.forward(truth, mask)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(4))
    noisy = clean + 0.2 * clean.square().mean().sqrt() * noise
    solver = DeSci(iterations=6, start_iterations=20, **SMALL)
    told = solver.solve(noisy, mask, CAMERA)
    still = DeSci(iterations=6, start_iterations=20, noise=0.0, **SMALL)
    assert psnr(told.cube, truth) > psnr(still(noisy, mask, CAMERA), truth) + 0.5
    assert float(told.chosen["noise"]) > 0.15


@pytest.mark.parametrize("options", [{"noise": 0.05}, {"nonnegative": False}, {}])
def test_it_starts_from_gap_tv_with_the_same_options(options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    mask = aperture()[None, None]
    measurement = CAMERA.forward(scene() - 0.2, mask)
    measurement = measurement + 0.1 * torch.randn(measurement.shape, generator=generator)
    found = DeSci(iterations=1, start_iterations=4, **options)._start(measurement, mask, CAMERA)
    assert torch.equal(found, GapTv(4, **options)(measurement, mask, CAMERA))
    others = [{"noise": 0.05}, {"nonnegative": False}, {}]
    for other in (one for one in others if one != options):
        assert not torch.allclose(found, GapTv(4, **other)(measurement, mask, CAMERA), atol=1e-5)


def test_dark_places_stay_finite() -> None:
    mask = aperture()
    mask[:, :12] = 0
    solver = DeSci(iterations=2, start_iterations=5, **SMALL)
    assert torch.isfinite(solver(CAMERA.forward(scene(), mask), mask, CAMERA)).all()
    dark = solver(torch.zeros(1, 30, 47), mask, CAMERA)
    assert torch.equal(dark, torch.zeros_like(dark))


def test_options_are_checked() -> None:
    for options, message in (
        ({"level": 0.0}, "levels"),
        ({"last_level": -1.0}, "levels"),
        ({"strength": -1.0}, "strength"),
        ({"stride": 9}, "belong to none"),
        ({"match_every": 0}, "match_every"),
        ({"memory_mib": 0.0}, "memory_mib"),
        ({"noise": -0.1}, "noise"),
    ):
        with pytest.raises(ConfigError, match=message):
            DeSci(**options)  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_desci_on_a_gpu_gives_the_same() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solver = DeSci(iterations=3, **SMALL)
    there = solver(measurement.cuda(), mask.cuda(), CAMERA)
    torch.testing.assert_close(there.cpu(), solver(measurement, mask, CAMERA), rtol=0, atol=1e-2)


@pytest.mark.data
@pytest.mark.slow
def test_a_validation_crop_gains_on_gap_tv(data_folder: Path) -> None:
    from prismask.scenes.datasets import load_mask_file, load_scenes, read_split

    split = read_split(data_folder)
    cube = load_scenes(data_folder, ["flowers"])["flowers"]
    truth = torch.tensor(np.array(cube.values[None, :, 208:304, 208:304]))
    mask = torch.tensor(load_mask_file(data_folder, split.masks["single"]).values)[80:176, 80:176]
    camera = CASSI.from_step(bands=cube.bands)
    measurement = camera.forward(truth, mask)
    found = DeSci(iterations=12)(measurement, mask, camera)
    assert psnr(found, truth) > psnr(GapTv()(measurement, mask, camera), truth) + 1
