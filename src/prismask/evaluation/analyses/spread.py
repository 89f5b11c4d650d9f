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
from prismask.evaluation.run.contenders import Method
from prismask.inference.engine.uncertainty import RunningMoments
from prismask.models.fast import FastReconstructor
from prismask.models.mirror_ensemble import combined
from prismask.optics.camera import CASSI, as_mask_batch

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
    """How far the answers to each were apart, in the mean, of a network asked more than once."""

    @property
    def pixel_std(self) -> Tensor:
        """Root mean square of the std over the bands of each pixel, `(H, W)`."""
        return self.std.square().mean(0).sqrt()

    @property
    def total(self) -> float:
        """Root mean square of the std over the whole cube: one number for a scene."""
        return float(self.std.double().square().mean().sqrt())


def spread_over_masks(
    method: Method, photograph: Photograph, masks: Iterable[Tensor], camera: CASSI
) -> Spread:
    """Photograph a scene through each mask, reconstruct it, and keep moments only."""
    cubes = (method(photograph(number, mask), mask, camera)[0] for number, mask in enumerate(masks))
    return spread_of(cubes)


def spread_over_samples(
    network: FastReconstructor,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    count: int,
    generator: torch.Generator,
) -> Spread:
    """Reconstruct `measurement (1, H, L)` with `count` masks drawn from the posterior."""
    posterior = network.model.posterior
    if not posterior.is_random:
        raise ConfigError("this network has no mask posterior, so no masks can be drawn from it.")
    mask = as_mask_batch(mask)
    with torch.inference_mode():
        # g is the same for every draw, so it is computed once; ε comes from the CPU, which makes
        # the draws the same on every device.
        std = posterior.std(mask)
        draws = (_drawn(network, mask, std, generator) for _ in range(count))
        between = RunningMoments()

        def cubes() -> Iterator[Tensor]:
            for drawn in draws:
                cube, apart = combined(network.answers(measurement, drawn, camera))
                if apart is not None:
                    between.add(apart[0])
                yield cube[0]

        found = spread_of(cubes())
        return replace(found, disagreement=between.mean) if between.count else found


def disagreement(method: Method, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor | None:
    """How far the answers to `measurement (1, H, L)` are apart, where there are several."""
    if not isinstance(method, FastReconstructor) or method.ways < 2:
        return None
    mean = method.model.posterior.mean(as_mask_batch(mask))
    apart = combined(method.answers(measurement, mean, camera))[1]
    assert apart is not None, "two answers have a deviation"
    return apart[0]


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


def _drawn(
    network: FastReconstructor, mask: Tensor, std: Tensor, generator: torch.Generator
) -> Tensor:
    from prismask.models.posterior import perturb, prior_noise

    config = network.model.posterior.config
    noise = prior_noise(
        tuple(mask.shape), config.prior_mean, config.prior_std, generator, std.cpu()
    )
    return perturb(mask, std, noise.to(mask.device))
