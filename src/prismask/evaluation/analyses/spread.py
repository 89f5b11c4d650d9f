"""Epistemic uncertainty: how much a reconstruction moves when the mask does.

Two sources, both as the variance of each value, in one pass and in memory that does not grow with
the number of masks:

- **over masks**: the same scene photographed through many masks of a group and reconstructed from
  each snapshot. This is the paper's measure; it needs the scene and therefore a simulation.
- **over samples**: one snapshot, reconstructed with masks drawn from the posterior q_φ around the
  mask that is known. This is what a user with one camera can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prismask.errors import ConfigError, DivergedError
from prismask.evaluation.run.trials import Reconstruct
from prismask.inference.camera_match.frames import View
from prismask.inference.engine.passes import RunningMoments
from prismask.inference.inspection import prepare
from prismask.inference.methods.network import NetworkMethod, as_network
from prismask.inference.methods.protocol import Method
from prismask.models.mirror_ensemble import combined
from prismask.models.posterior import perturb, prior_noise
from prismask.optics.camera import CASSI

Photograph = Callable[[int, Tensor], Tensor]
"""`(number, mask (1, 1|C, H, W)) → measurement (1, H, L)` of the one scene that is looked at."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Reconstructions of one scene, in short; all `(C, H, W)`."""

    first: Tensor
    """The first reconstruction."""
    mean: Tensor
    """Mean over all."""
    std: Tensor
    """Standard deviation over all, n − 1 in the denominator."""
    count: int
    """How many there were."""
    disagreement: Tensor | None = None
    """How far the answers of a mirror ensemble to each were apart, in the mean."""
    shown: Spread | None = None
    """The same in the bands, units and frame of the network, where one made them."""

    @property
    def pixel_std(self) -> Tensor:
        """Root mean square of the std over the bands of each pixel, `(H, W)`."""
        return self.std.square().mean(0).sqrt()

    @property
    def total(self) -> float:
        """Root mean square of the std over the whole cube: one number for a scene."""
        return float(self.std.double().square().mean().sqrt())


def spread_over_masks(
    method: Reconstruct, photograph: Photograph, masks: Iterable[Tensor], camera: CASSI
) -> Spread:
    """Photograph a scene through each mask, reconstruct it, and keep moments only."""
    cubes = (method(photograph(number, mask), mask, camera)[0] for number, mask in enumerate(masks))
    return spread_of(cubes)


@dataclass(frozen=True, eq=False)
class Shown:
    """One snapshot as it is shown to a network, to look at more than its cube."""

    method: NetworkMethod
    view: View

    @classmethod
    def to(cls, method: Method, measurement: Tensor, mask: Tensor, camera: CASSI) -> Shown | None:
        """`measurement (1, H, L)` through `mask (1, 1|C, H, W)`; None: no network of ours."""
        network = as_network(method)
        if network is None:
            return None
        ready = prepare(measurement, mask, camera, with_noise=network.engine.wants_noise)
        seen = network.view(ready.signal, ready.mask, camera, ready.noise_std, ready.brightness)
        return cls(network, seen)

    def single(self) -> tuple[Tensor, Tensor | None]:
        """The cube of a single pass, and how far a mirror ensemble's answers are apart."""
        posterior = self.method.engine.network.model.posterior
        return self.answer(posterior.mean(self.view.mask))

    def answer(self, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same for exactly this mask, both `(C′, H, W′)`."""
        engine, seen = self.method.engine, self.view
        noise = seen.noise_std if engine.wants_noise else None
        cube, apart = combined(engine.network.answers(seen.signal, mask, seen.camera, noise))
        return cube[0], None if apart is None else apart[0]


def spread_over_samples(shown: Shown, count: int, generator: torch.Generator) -> Spread:
    """Reconstruct a snapshot with `count` masks drawn from the network's posterior."""
    network = shown.method.engine.network
    posterior = network.model.posterior
    if not posterior.is_random:
        raise ConfigError("this network has no mask posterior, so no masks can be drawn from it.")
    mask, between = shown.view.mask, RunningMoments()
    with torch.inference_mode():
        # g is the same for every draw, so it is computed once; ε comes from the CPU, which makes
        # the draws the same on every device.
        std = posterior.std(mask)

        def cubes() -> Iterator[Tensor]:
            config = posterior.config
            for _ in range(count):
                noise = prior_noise(
                    tuple(mask.shape), config.prior_mean, config.prior_std, generator, std.cpu()
                )
                cube, apart = shown.answer(perturb(mask, std, noise.to(mask.device)))
                if apart is not None:
                    between.add(apart)
                yield cube

        found = spread_of(cubes())
    if between.count:
        found = replace(found, disagreement=between.mean)
    return _read_back(found, shown.view)


def _read_back(found: Spread, seen: View) -> Spread:
    """A spread of the network's cubes in the camera's bands, units and frame."""
    apart = found.disagreement
    return Spread(
        seen.back(found.first[None])[0],
        seen.back(found.mean[None])[0],
        seen.back_distance(found.std[None])[0],
        found.count,
        None if apart is None else seen.back_distance(apart[None])[0],
        found,
    )


def spread_of(cubes: Iterable[Tensor]) -> Spread:
    """Moments of cubes `(C, H, W)` that come one after the other."""
    moments = RunningMoments()
    first: Tensor | None = None
    for cube in cubes:
        if not bool(torch.isfinite(cube).all()):
            raise DivergedError(f"reconstruction {moments.count + 1} holds NaN or infinite values.")
        # Double precision: the spread can be a thousandth of the values.
        moments.add(cube.double())
        if first is None:
            first = cube.float().clone()
    if first is None:
        raise ConfigError("a spread needs at least one reconstruction.")
    return Spread(first, moments.mean.float(), moments.std.float(), moments.count)
