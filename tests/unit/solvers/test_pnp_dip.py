"""PnP-DIP: the network learns its scene, repeatably, on any camera and size."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from small_shots import psnr
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI
from prismask.scenes.synthetic import demo_scene
from prismask.solvers.gap_tv import GapTv
from prismask.solvers.pnp_dip import PnpDip, _Fit, _Problem, networks_for

CAMERA = CASSI.from_step(bands=6, step=2)
TINY: dict[str, Any] = {
    "iterations": 3,
    "steps": 3,
    "networks": 2,
    "width": 8,
    "levels": 2,
    "start": "gap-tv",
    "stop_at_noise": False,
}


def scene(bands: int = 6, height: int = 24, width: int = 28) -> Tensor:
    """A corner of the demo scene, `(1, C, H, W)`."""
    grid = np.linspace(450, 650, bands).tolist()
    values = demo_scene((64, 64), grid).values[:, :height, :width]
    return torch.tensor(np.array(values))[None]


def aperture(height: int = 24, width: int = 28, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.where(torch.rand(height, width, generator=generator) < 0.5, 0.05, 0.95)


def test_the_residual_falls() -> None:
    truth, mask = scene(), aperture()
    solver = PnpDip(iterations=8, steps=8, networks=1, width=16, levels=2, stop_at_noise=False)
    solution = solver.solve(CAMERA.forward(truth, mask), mask, CAMERA)
    assert solution.cube.shape == truth.shape
    assert solution.residuals[-1] < 0.5 * solution.residuals[0]
    assert solution.cube.min() >= 0
    assert solution.chosen["levels"] == 2
    assert "noise" in solution.chosen
    assert not solution.cube.requires_grad


@pytest.mark.parametrize("step", [2, 1.3], ids=["whole", "fractional"])
def test_the_slope_is_that_of_the_loss(step: float) -> None:
    camera = CASSI.from_step(bands=6, step=step)
    truth, mask = scene(), aperture()[None, None]
    problem = _Problem(camera.forward(truth, mask), mask, camera, truth.flip(-1))
    fit = _Fit(PnpDip(**TINY), problem, noise=0.01, last_penalty=0.1)
    fit.pull.fill_(0.3)
    fit.target.copy_(torch.rand(fit.cube.shape, generator=torch.Generator().manual_seed(1)))
    output = fit.cube.clone().requires_grad_()
    left = fit.measurement - camera.forward(output, mask)
    loss = (left.square() / fit.divisor).mean() + 0.3 * (output - fit.target).square().mean()
    loss.backward()
    assert output.grad is not None
    torch.testing.assert_close(fit.slope(output.detach()), output.grad, rtol=1e-4, atol=1e-8)


def test_noise_where_no_light_is_pulls_at_nothing() -> None:
    """Φ is a millionth there: what 1 / Φ makes of noise would outweigh the whole picture."""
    truth, mask = scene(), aperture()[None, None].clone()
    mask[..., :2] = 1e-3
    measurement = CAMERA.forward(truth, mask)
    fit = _Fit(PnpDip(**TINY), _Problem(measurement, mask, CAMERA, truth), 0.05, 0.1)
    calm = fit.slope(fit.cube)
    pulls = []
    for column in (0, 14):
        fit.measurement[0, 12, column] += 0.05
        pulls.append(float((fit.slope(fit.cube) - calm).norm()))
        fit.measurement[0, 12, column] -= 0.05
    assert 0 < pulls[0] < 0.1 * pulls[1]


def test_a_step_lowers_what_is_minimised() -> None:
    truth, mask = scene(), aperture()[None, None]
    problem = _Problem(CAMERA.forward(truth, mask), mask, CAMERA, truth.flip(-1))
    fit = _Fit(PnpDip(**TINY), problem, noise=0.01, last_penalty=0.1)
    fit.target.copy_(fit.cube)
    fit.pull.fill_(1.0)
    painter = fit.painters[0]
    painter.rate.fill_(3e-3)
    painter.share.fill_(1.0)  # the average is the last output
    losses = []
    for _ in range(20):
        painter.step()
        left = fit.measurement - CAMERA.forward(painter.average, mask)
        losses.append(
            (left.square() / fit.divisor).mean() + (painter.average - fit.cube).square().mean()
        )
    assert losses[-1] < 0.7 * losses[0]


def test_a_seed_repeats_a_run() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    before = measurement.clone()
    first = PnpDip(**TINY)(measurement, mask, CAMERA)
    torch.rand(3)  # what others draw does not matter
    assert torch.equal(first, PnpDip(**TINY)(measurement, mask, CAMERA))
    assert not torch.equal(first, PnpDip(seed=1, **TINY)(measurement, mask, CAMERA))
    assert torch.equal(measurement, before)


def test_several_networks_are_their_mean() -> None:
    truth, mask = scene(), aperture()[None, None]
    problem = _Problem(CAMERA.forward(truth, mask), mask, CAMERA, truth.flip(-1))
    fit = _Fit(PnpDip(**TINY | {"networks": 3}), problem, noise=0.01, last_penalty=0.1)
    fit.improve(0)
    averages = [painter.average for painter in fit.painters]
    assert len(averages) == 3
    assert not torch.equal(averages[0], averages[1])
    torch.testing.assert_close(fit.result(), sum(averages) / 3 * fit.brightness)


def test_large_frames_get_fewer_networks() -> None:
    assert networks_for(scene()) == 1
    frames = [SimpleNamespace(shape=(28, side, side), is_cuda=True) for side in (32, 256, 362, 660)]
    assert [networks_for(cast(Tensor, frame)) for frame in frames] == [4, 4, 2, 1]


@pytest.mark.slow
def test_it_improves_on_its_start() -> None:
    """Three materials under a shading that repeats: what TV blurs and a network draws."""
    camera = CASSI.from_step(bands=8, step=2)
    y, x = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
    band = torch.linspace(0, 3, 8)
    spectra = torch.stack([(band - centre).square().neg().exp() for centre in (0.3, 1.5, 2.7)])
    amounts = torch.stack([(x // 11 + y // 10) % 3 == k for k in range(3)]).float()
    shade = 0.6 + 0.25 * torch.sin(0.9 * x) * torch.cos(0.7 * y)
    truth = (torch.einsum("kc,khw->chw", spectra, amounts) * shade)[None]
    mask = aperture(48, 48)
    measurement = camera.forward(truth, mask)
    solver = PnpDip(
        iterations=25, steps=15, networks=1, width=48, levels=3, start="gap-tv", noise=0.01
    )
    found = solver(measurement, mask, camera)
    assert psnr(found, truth) > psnr(GapTv()(measurement, mask, camera), truth) + 0.7


@pytest.mark.parametrize(
    ("camera", "size"),
    [
        (CASSI.from_step(bands=6, step=1.3), (24, 28)),
        (CASSI.from_step(bands=6, step=-1, axis="height"), (21, 27)),
        (CASSI.from_step(bands=6, step=2, design="dual"), (24, 28)),
        (CAMERA, (19, 23)),
        (CAMERA, (5, 6)),
    ],
    ids=["fractional", "height", "dual", "odd", "tiny"],
)
def test_it_works_on_every_camera_and_size(camera: CASSI, size: tuple[int, int]) -> None:
    truth = scene(6, *size)
    mask = aperture(*camera.mask_size(size))
    solution = PnpDip(**TINY).solve(camera.forward(truth, mask), mask, camera)
    assert solution.cube.shape == truth.shape
    assert torch.isfinite(solution.cube).all()
    assert solution.residuals[-1] < solution.residuals[0]


def test_a_batch_equals_its_samples() -> None:
    truth = torch.cat([scene(), 0.1 * scene().flip(-1)])
    masks = torch.stack([aperture(seed=seed) for seed in range(2)])[:, None]
    measurement = CAMERA.forward(truth, masks)
    together = PnpDip(**TINY)(measurement, masks, CAMERA)
    for k in range(2):
        alone = PnpDip(**TINY)(measurement[k : k + 1], masks[k], CAMERA)
        torch.testing.assert_close(together[k : k + 1], alone, rtol=0, atol=1e-4)
    assert PnpDip(**TINY)(measurement[:1], masks, CAMERA).shape == together.shape


def test_it_stops_when_time_is_up() -> None:
    truth, mask = scene(), aperture()
    solver = PnpDip(iterations=1000, seconds=0.2, steps=2, width=8, levels=1)
    solution = solver.solve(CAMERA.forward(truth, mask), mask, CAMERA)
    assert solution.reason == "seconds"
    assert solution.iterations < 1000


def test_it_stops_at_the_noise() -> None:
    truth, mask = scene(), aperture()
    options: dict[str, Any] = TINY | {"iterations": 40, "steps": 5, "width": 16, "noise": 0.3}
    solver = PnpDip(**options | {"stop_at_noise": True})
    solution = solver.solve(CAMERA.forward(truth, mask), mask, CAMERA)
    assert solution.iterations < 40
    assert solution.residuals[-1] <= 0.3
    first = GapTv(noise=0.3).solve(CAMERA.forward(truth, mask), mask, CAMERA).residuals[-1]
    assert solution.residuals[-1] <= first < solution.residuals[-2]
    assert "noise" in str(solution.chosen["stopped"])


def test_units_doubles_and_darkness() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    usual = PnpDip(**TINY)(measurement, mask, CAMERA)
    counts = PnpDip(**TINY)(1000 * measurement.double(), mask, CAMERA)
    assert counts.dtype == torch.float64
    torch.testing.assert_close(counts.float() / 1000, usual, rtol=0, atol=1e-3)
    dark = PnpDip(**TINY)(torch.zeros_like(measurement), mask, CAMERA)
    assert torch.isfinite(dark).all()


def test_options_are_checked() -> None:
    for options, message in (
        ({"steps": 0}, "steps"),
        ({"networks": 0}, "networks"),
        ({"width": 0}, "width"),
        ({"levels": -1}, "levels"),
        ({"rate": 0.0}, "rate"),
        ({"penalty": 0.0}, "penalties"),
        ({"weight": -1.0}, "weight"),
        ({"average": 1.0}, "average"),
        ({"start": "desc"}, "Did you mean 'desci'"),
        ({"noise": -0.1}, "noise"),
    ):
        with pytest.raises(ConfigError, match=message):
            PnpDip(**options)


@pytest.mark.data
@pytest.mark.slow
def test_a_validation_crop_gains_on_gap_tv(data_folder: Path) -> None:
    from prismask.scenes.datasets import load_mask_file, load_scenes, read_split

    split = read_split(data_folder)
    cube = load_scenes(data_folder, ["flowers"])["flowers"]
    truth = torch.tensor(np.array(cube.values[None, :, 224:288, 224:288]))
    mask = torch.tensor(load_mask_file(data_folder, split.masks["single"]).values)[96:160, 96:160]
    camera = CASSI.from_step(bands=cube.bands)
    measurement = camera.forward(truth, mask)
    found = PnpDip(iterations=25, steps=15, networks=1, width=48, levels=3)(
        measurement, mask, camera
    )
    assert psnr(found, truth) > psnr(GapTv()(measurement, mask, camera), truth) + 1.5
