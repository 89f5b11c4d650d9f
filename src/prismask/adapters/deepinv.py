"""For people who use deepinv: this camera as its physics, these methods as its reconstructors, and
its denoisers in our plug-and-play.

    physics = as_physics(camera, mask, noise_model=deepinv.physics.GaussianNoise(0.01))
    y = physics(x)                                    # (B, C, H, W) → (B, 1, H, L)
    cube = as_reconstructor("gap-tv")(y, physics)
    cube = reconstruct(shot, mask, method="pnp", denoiser=as_denoiser(deepinv.models.DRUNet(1, 1)))

Pictures of deepinv have a channel: a measurement is `(B, 1, H, L)` there. Whatever deepinv does
with a linear operator (adjoint, pseudo-inverse, proximal steps, unfolded networks) works on the
physics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prismask.checks import check_shape
from prismask.errors import ConfigError, MissingPartError
from prismask.inference.methods.registry import Choice
from prismask.inference.options import DEFAULTS, Options
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.scenes.conversion import as_mask

if TYPE_CHECKING:
    from prismask.scenes.conversion import MaskLike
    from prismask.solvers.pnp import Denoiser


def as_physics(camera: CASSI, mask: MaskLike, **settings: Any) -> Any:
    """The camera behind a mask as a `deepinv.physics.LinearPhysics`.

    settings: what `LinearPhysics` takes, such as `noise_model=` and `device=`.

    It maps `x (B, C, H, W)` to `y (B, 1, H, L)` with the exact adjoint. Its `mask (1, 1|C, H, W)`
    is a buffer, so `physics.to(device)` moves it, and `physics.update(mask=…)` or
    `physics(x, mask=…)` takes another one.
    """
    aperture = as_mask_batch(torch.tensor(as_mask(mask).values))
    return _physics_class()(camera, aperture, **settings)


def as_reconstructor(
    model: str | Path | Any = None, options: Options = DEFAULTS, **changes: Any
) -> Any:
    """A method as a `deepinv.models.Reconstructor`, called with `(y (B, 1, H, L), physics)`.

    model: a solver's or network's name, a path of weights, a network or any other method of
        `prismask.reconstruct`; None takes what ships for the camera.
    options, changes: as in `prismask.reconstruct`, such as `iterations=30` or `noise_std=0.01`.

    The physics has to come from `as_physics`: mask and camera are read from it. What comes out are
    the values that `prismask.reconstruct` gives, without their error bars.
    """
    given = model
    if isinstance(model, str | Path):
        from prismask.inference.methods.registry import list_methods

        given = None
        changes["method" if str(model) in list_methods() else "model"] = str(model)
    return _reconstructor_class()(options.with_changes(changes), given)


def as_denoiser(denoiser: Callable[..., Tensor], channels: int = 1) -> Denoiser:
    """A denoiser `f(x (B, channels, H, W), sigma)` for cubes of any band count.

    channels: how many the denoiser takes. Bands are given to it in groups of so many neighbours;
        the last group repeats the last band where they do not come out even.

    For `method="pnp"`: `prismask.reconstruct(…, method="pnp", denoiser=as_denoiser(network))`.
    """
    if channels < 1:
        raise ConfigError(f"channels is {channels}; a denoiser takes one or more.")

    @torch.no_grad()
    def denoise(cube: Tensor, sigma: Tensor) -> Tensor:
        check_shape(cube, ("B", "C", "H", "W"), "cube")
        batch, bands, height, width = cube.shape
        groups = -(-bands // channels)
        last = cube[:, -1:].expand(-1, groups * channels - bands, -1, -1)
        parts = torch.cat([cube, last], 1).reshape(batch * groups, channels, height, width)
        levels = torch.as_tensor(sigma, dtype=cube.dtype, device=cube.device)
        levels = levels.expand(batch).repeat_interleave(groups)
        cleaned = denoiser(parts, levels)
        check_shape(cleaned, parts.shape, "what the denoiser gave back")
        return cleaned.reshape(batch, groups * channels, height, width)[:, :bands]

    return denoise


def _part(name: str) -> Any:
    """A module of deepinv."""
    try:
        return import_module(f"deepinv.{name}")
    except ImportError as problem:
        raise MissingPartError(
            f"deepinv cannot be imported ({problem}). Install it: pip install 'prismask[deepinv]'."
        ) from problem


# The classes of deepinv are bases here, so ours can only be made once it is imported.
@cache
def _physics_class() -> Any:
    linear_physics = _part("physics").LinearPhysics

    class CASSIPhysics(linear_physics):  # type: ignore[misc, valid-type]  # found when running
        """A CASSI camera behind a mask."""

        def __init__(self, camera: CASSI, mask: Tensor, **settings: Any) -> None:
            super().__init__(**settings)
            self.camera = camera
            self.register_buffer("mask", mask.to(settings.get("device", "cpu")))

        def A(self, x: Tensor, mask: Tensor | None = None, **_: Any) -> Tensor:
            """Cubes `(B, C, H, W)` to measurements `(B, 1, H, L)`."""
            self.update_parameters(mask=mask)
            return self.camera.forward(x, self.mask.to(x)).unsqueeze(1)

        def A_adjoint(self, y: Tensor, mask: Tensor | None = None, **_: Any) -> Tensor:
            """Measurements `(B, 1, H, L)` to cubes `(B, C, H, W)`."""
            self.update_parameters(mask=mask)
            return self.camera.adjoint(y.squeeze(1), self.mask.to(y))

    return CASSIPhysics


@cache
def _reconstructor_class() -> Any:
    reconstructor = _part("models").Reconstructor

    class MethodReconstructor(reconstructor):  # type: ignore[misc, valid-type]  # found when running
        """A method of Prismask."""

        def __init__(self, options: Options, given: Any) -> None:
            super().__init__()
            self.options = options
            self._given = given
            self._choices: dict[torch.device, Choice] = {}

        def forward(self, y: Tensor, physics: Any, **_: Any) -> Tensor:
            """Measurements `(B, 1, H, L)` to cubes `(B, C, H, W)`."""
            camera = getattr(physics, "camera", None)
            if not isinstance(camera, CASSI):
                raise ConfigError(
                    f"the physics is a {type(physics).__name__}; mask and camera are read from one "
                    "that prismask.adapters.as_physics made."
                )
            check_shape(y, ("B", 1, "H", "L"), "y")
            if y.device not in self._choices:
                self._choices[y.device] = Choice(self.options, y.device, self._given)
            method = self._choices[y.device].for_camera(camera)
            return method.batch(y[:, 0], physics.mask.to(y), camera, self.options)

    return MethodReconstructor
