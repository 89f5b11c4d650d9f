"""A camera that drifts computes what a camera with those offsets computes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI
from prismask.optics.drift import MOST, DriftingCamera

NOMINAL = CASSI.from_step(5, 2.0)
OFFSETS = (0.0, 2.3, 4.45, 6.1, 8.3)


def drifted(offsets: tuple[float, ...] = OFFSETS, drift: float = 0.1) -> DriftingCamera:
    camera = DriftingCamera(NOMINAL, drift)
    object.__setattr__(camera, "_rest", camera._rest.double())
    camera.land(torch.tensor(offsets, dtype=torch.float64))
    return camera


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("offsets", [OFFSETS, NOMINAL.offsets, (0.0, 1.9, 3.7, 5.6, 7.25)])
def test_it_is_the_camera_of_its_offsets(offsets: tuple[float, ...]) -> None:
    ours, theirs = drifted(offsets), CASSI(offsets)
    cube, mask = numbers(2, 5, 6, 11), numbers(2, 1, 6, 11)
    longer = ours.extent - theirs.extent
    shot = theirs.forward(cube, mask)
    wide = F.pad(shot, (0, longer))
    torch.testing.assert_close(ours.forward(cube, mask), wide)
    torch.testing.assert_close(ours.unshear(wide), theirs.unshear(shot))
    torch.testing.assert_close(ours.adjoint(wide, mask), theirs.adjoint(shot, mask))
    torch.testing.assert_close(ours.spread(wide, mask), theirs.spread(shot, mask))
    torch.testing.assert_close(ours.gram_bound(mask), F.pad(theirs.gram_bound(mask), (0, longer)))
    torch.testing.assert_close(ours.throughput(mask), F.pad(theirs.throughput(mask), (0, longer)))


def test_gradients_are_the_transposes() -> None:
    camera, mask = drifted(), numbers(1, 1, 3, 7)
    cube = numbers(2, 5, 3, 7).requires_grad_()
    shot = numbers(2, 3, 7 + camera.extent).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: camera.forward(x, mask), (cube,))
    assert torch.autograd.gradcheck(camera.unshear, (shot,))
    left = (camera.forward(cube, mask) * shot).sum()
    torch.testing.assert_close(left, (cube * camera.adjoint(shot, mask)).sum())


def test_draws_are_reproducible_stay_inside_and_are_often_none() -> None:
    camera = DriftingCamera(NOMINAL, 0.1)
    generator = torch.Generator()
    seen = []
    for seed in range(200):
        camera.draw(generator.manual_seed(seed))
        seen.append(camera._whole + camera._rest.double())
    places = torch.stack(seen)
    camera.draw(generator.manual_seed(3))
    again = camera._whole + camera._rest.double()
    torch.testing.assert_close(again, places[3])
    steady = (places == torch.tensor(NOMINAL.offsets)).all(1).float().mean()
    assert 0.35 < float(steady) < 0.65
    assert float(places[:, 0].abs().max()) == 0
    assert bool((places.diff(dim=1) > 0).all())
    assert float(places.max()) <= camera.extent
    # The ends are reached: a spread of a tenth is 0.8 px here.
    assert places[:, -1].min() < 7.3
    assert places[:, -1].max() > 8.7


@pytest.mark.parametrize("drift", [0.01, MOST])
def test_the_widest_camera_fits(drift: float) -> None:
    camera = DriftingCamera(CASSI.from_step(28, 2.0), drift)
    for seed in range(50):
        camera.draw(torch.Generator().manual_seed(seed))
        ends = camera._whole + camera._rest
        assert float(ends.max()) <= camera.extent
        assert bool((ends.diff() > 0).all())


def test_what_cannot_drift() -> None:
    for drift in (0.0, -0.1, 0.3, float("nan")):
        with pytest.raises(ConfigError, match=r"camera\.drift"):
            DriftingCamera(NOMINAL, drift)
    with pytest.raises(ConfigError, match="one disperser"):
        DriftingCamera(CASSI.from_step(5, design="dual"), 0.1)
    with pytest.raises(ConfigError, match="drift = 0"):
        drifted().gram_diagonal(numbers(1, 1, 4, 4))
