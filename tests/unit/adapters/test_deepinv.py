"""deepinv's physics, reconstructors and denoisers: with deepinv, and with a stand-in of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prismask import reconstruct, simulate
from prismask.adapters import as_denoiser, as_physics, as_reconstructor
from prismask.adapters import deepinv as adapter
from prismask.errors import ConfigError, MissingPartError, ShapeError
from prismask.optics.camera import CASSI
from prismask.scenes.synthetic.demo import random_scene
from prismask.solvers.registry import create_solver

CAMERA = CASSI((0.0, 1.5, 3.2, 5.0))
GRID = (450.0, 500.0, 550.0, 600.0)


class LinearPhysics(nn.Module):
    """As much of deepinv's as the adapter relies on."""

    def __init__(self, noise_model: Any = None, device: str = "cpu", **_: Any) -> None:
        super().__init__()
        self.noise_model = noise_model or (lambda y: y)

    def update_parameters(self, **given: Any) -> None:
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)

    def forward(self, x: Tensor, **given: Any) -> Tensor:
        made: Tensor = self.noise_model(self.A(x, **given))
        return made


class Reconstructor(nn.Module):
    """As deepinv's."""


@pytest.fixture(params=["stand-in", "deepinv"])
def _deepinv(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "deepinv":
        pytest.importorskip("deepinv", reason="deepinv is not installed (extra: deepinv)")
    else:
        for name, classes in (("physics", [LinearPhysics]), ("models", [Reconstructor])):
            module = ModuleType(f"deepinv.{name}")
            for one in classes:
                setattr(module, one.__name__, one)
            monkeypatch.setitem(sys.modules, f"deepinv.{name}", module)
        monkeypatch.setitem(sys.modules, "deepinv", ModuleType("deepinv"))
    adapter._physics_class.cache_clear()
    adapter._reconstructor_class.cache_clear()
    yield
    adapter._physics_class.cache_clear()
    adapter._reconstructor_class.cache_clear()


@pytest.fixture
def mask() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random((12, 14)).astype(np.float32)


@pytest.mark.usefixtures("_deepinv")
def test_the_camera_is_a_linear_physics(mask: Any) -> None:
    physics = as_physics(CAMERA, mask)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((2, 4, 12, 14), generator=generator)
    y = physics(x)
    assert y.shape == (2, 1, 12, 14 + CAMERA.extent)
    torch.testing.assert_close(y[:, 0], CAMERA.forward(x, torch.tensor(mask)[None, None]))
    other = torch.rand(y.shape, generator=generator)
    torch.testing.assert_close((y * other).sum(), (x * physics.A_adjoint(other)).sum())
    assert "mask" in dict(physics.named_buffers())
    opened = physics(x, mask=torch.ones(1, 1, 12, 14))
    assert float(opened.sum()) > float(y.sum())


@pytest.mark.usefixtures("_deepinv")
def test_gradients_go_through_it(mask: Any) -> None:
    x = torch.rand((1, 4, 12, 14), requires_grad=True)
    physics = as_physics(CAMERA, mask)
    physics(x).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * physics.A_adjoint(physics.A(x.detach())))


@pytest.mark.usefixtures("_deepinv")
def test_noise_is_that_of_deepinv(mask: Any) -> None:
    physics = as_physics(CAMERA, mask, noise_model=_Offset())
    x = torch.rand((1, 4, 12, 14))
    torch.testing.assert_close(physics(x), physics.A(x) + 1)


class _Offset(nn.Module):
    def forward(self, y: Tensor, **_: Any) -> Tensor:
        return y + 1


@pytest.mark.usefixtures("_deepinv")
def test_methods_are_reconstructors(mask: Any) -> None:
    scene = random_scene(0, (12, 14), GRID)
    shot = simulate(scene, mask, CAMERA, scale=1.0)
    y = torch.tensor(np.stack([shot.values, 2 * shot.values]))[:, None]
    physics = as_physics(CAMERA, mask)
    model = as_reconstructor("gap-tv", iterations=5, noise_std=0.0, dark=0.0)
    made = model(y, physics)
    assert made.shape == (2, 4, 12, 14)
    wanted = reconstruct(
        shot.values, mask, CAMERA, "gap-tv", iterations=5, noise_std=0.0, dark=0.0,
        check_mask=False, bad_pixels="none",
    )  # fmt: skip
    np.testing.assert_allclose(made[0].numpy(), wanted.values, atol=1e-4)
    own = as_reconstructor(lambda measurement, mask, camera: camera.adjoint(measurement, mask))
    torch.testing.assert_close(own(y, physics), physics.A_adjoint(y))


@pytest.mark.usefixtures("_deepinv")
def test_what_does_not_fit_is_told(mask: Any) -> None:
    with pytest.raises(ConfigError, match=r"physics is a Linear; .*as_physics made"):
        as_reconstructor("gap-tv")(torch.ones(1, 1, 4, 9), nn.Linear(1, 1))
    with pytest.raises(ShapeError, match="y is 4×9"):
        as_reconstructor("gap-tv")(torch.ones(4, 9), as_physics(CAMERA, mask))


def test_without_deepinv_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, mask: Any) -> None:
    def absent(name: str) -> ModuleType:
        raise ImportError(f"No module named {name!r}")

    adapter._physics_class.cache_clear()
    monkeypatch.setattr(adapter, "import_module", absent)
    with pytest.raises(MissingPartError, match=r"pip install 'prismask\[deepinv\]'"):
        as_physics(CAMERA, mask)


# --- denoisers, which need nothing of deepinv ---------------------------------------------------


class Shrink(nn.Module):
    """A denoiser in deepinv's manner; notes what it is given."""

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        assert sigma.shape == (len(x),)
        self.seen = tuple(x.shape)
        return x / (1 + sigma[:, None, None, None])


@pytest.mark.parametrize(("channels", "seen"), [(1, (10, 1)), (3, (4, 3)), (5, (2, 5))])
def test_bands_are_given_in_groups(channels: int, seen: tuple[int, int]) -> None:
    cube, sigma = torch.rand((2, 5, 6, 7)), torch.tensor([1.0, 3.0])
    network = Shrink()
    made = as_denoiser(network, channels)(cube, sigma)
    assert network.seen[:2] == seen
    torch.testing.assert_close(made, cube / torch.tensor([2.0, 4.0])[:, None, None, None])


def test_they_run_in_plug_and_play(mask: Any) -> None:
    scene = random_scene(0, (12, 14), GRID)
    shot = simulate(scene, mask, CAMERA)
    made = reconstruct(
        shot, mask, CAMERA, "pnp", iterations=3, denoiser=as_denoiser(Shrink()), check_mask=False
    )
    plain = create_solver("pnp", iterations=3, denoiser="tv")
    assert made.shape == (4, 12, 14)
    assert callable(plain)
    with pytest.raises(ConfigError, match="channels is 0"):
        as_denoiser(Shrink(), 0)


def test_deepinv_denoisers_run_in_plug_and_play(mask: Any) -> None:
    models = pytest.importorskip("deepinv", reason="deepinv is not installed (extra: deepinv)")
    models = importlib.import_module("deepinv.models")
    shot = simulate(random_scene(0, (12, 14), GRID), mask, CAMERA)
    denoiser = as_denoiser(models.TVDenoiser(n_it_max=5))
    made = reconstruct(shot, mask, CAMERA, "pnp", iterations=2, denoiser=denoiser, check_mask=False)
    assert np.isfinite(made.values).all()


def test_what_deepinv_does_with_an_operator_works(mask: Any) -> None:
    deepinv = pytest.importorskip("deepinv", reason="deepinv is not installed (extra: deepinv)")
    physics = as_physics(CAMERA, mask, noise_model=deepinv.physics.GaussianNoise(sigma=0.0))
    x = torch.rand((1, 4, 12, 14), generator=torch.Generator().manual_seed(0))
    y = physics(x)
    assert abs(float(physics.adjointness_test(x))) < 1e-4
    back = physics.A(physics.A_dagger(y))
    assert float((back - y).norm() / y.norm()) < 0.02
    assert physics.prox_l2(x, y, 1.0).shape == x.shape
    assert torch.equal(physics.clone().A(x), y)
    physics.update(mask=torch.ones(1, 1, 12, 14))
    assert float(physics.A(x).sum()) > float(y.sum())
