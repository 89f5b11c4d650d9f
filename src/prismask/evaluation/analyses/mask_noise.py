"""Prior against learned noise: what the posterior makes of ε.

Before training the mask noise is ε ~ N(μ, σ), the prior. What the network puts on the mask is
g·ε, a mixture of normal distributions N(μ·g, σ·g) over the pixels of a mask, whose density and
moments are known exactly; nothing has to be sampled:

    mean = μ·E[g]        variance = σ²·E[g²] + μ²·Var[g]

A mask lies in [0, 1], so clamp(m + g·ε, 0, 1) − m is less: real masks have a third of their pixels
at exactly 1, where half of the noise is cut off. That part is sampled.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ValuesError
from prismask.models.posterior import perturb, prior_noise
from prismask.optics.randomness import seeded

POINTS = 201
REACH = 4.0
"""Standard deviations to either side at which densities are tabulated."""
_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class NoiseDistribution:
    """The prior of ε and the noise g·ε over one mask."""

    at: Tensor
    """Values `(K,)` at which the learned noise's density is tabulated."""
    learned: Tensor
    """Its density there."""
    prior_mean: float
    prior_std: float
    learned_mean: float
    learned_std: float
    g_min: float
    g_mean: float
    g_max: float
    g_std: float
    """Spread of g over the mask's pixels: 0 where every pixel gets the same noise."""
    effective_std: float
    """Standard deviation of what is left of the noise after clamping to [0, 1]."""
    clamped_share: float
    """Share of perturbed pixels that were clamped."""

    def prior_density(self, at: Tensor) -> Tensor:
        """Density of N(μ, σ)."""
        return _normal(at, self.prior_mean, self.prior_std)

    def to_record(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        record = asdict(self)
        record["at"], record["learned"] = self.at.tolist(), self.learned.tolist()
        return record


def noise_distribution(
    mask: Tensor,
    mask_std: Tensor,
    prior_mean: float,
    prior_std: float,
    points: int = POINTS,
    seed: int = 0,
) -> NoiseDistribution:
    """The noise that g = `mask_std` puts on `mask`, both `(…, H, W)`."""
    g = mask_std.detach().double().flatten()
    if prior_std <= 0 or float(g.min()) <= 0:
        raise ValuesError(
            f"g goes down to {float(g.min()):g} and the prior's std is {prior_std:g}: where one of "
            "them is 0 there is no noise and no density."
        )
    mean = prior_mean * float(g.mean())
    std = math.sqrt(
        prior_std**2 * float(g.square().mean()) + prior_mean**2 * float(g.var(correction=0))
    )
    at = torch.linspace(-REACH, REACH, points, dtype=torch.float64) * std + mean
    learned = torch.zeros_like(at)
    for part in torch.split(g.cpu(), _CHUNK):
        learned += _normal(at[:, None], prior_mean * part, prior_std * part).sum(1)
    noise = prior_noise(tuple(mask.shape), prior_mean, prior_std, seeded(seed), mask.cpu())
    wished = mask.cpu() + mask_std.detach().cpu() * noise
    kept = perturb(mask.cpu(), mask_std.detach().cpu(), noise)
    return NoiseDistribution(
        at, learned / len(g), prior_mean, prior_std, mean, std, float(g.min()), float(g.mean()),
        float(g.max()), float(g.std(correction=0)), float((kept - mask.cpu()).double().std()),
        float((kept != wished).double().mean()),
    )  # fmt: skip


def g_by_transmission(mask: Tensor, mask_std: Tensor, bins: int = 20) -> dict[str, list[float]]:
    """Mean, least and largest g over pixels of like transmission: what g depends on.

    Bins without a pixel are left out. Gives lists `at, mean, low, high, share`.
    """
    m, g = (part.detach().cpu().double().flatten() for part in (mask, mask_std))
    bin_of = (m * bins).long().clamp(0, bins - 1)
    found: dict[str, list[float]] = {name: [] for name in ("at", "mean", "low", "high", "share")}
    for number in range(bins):
        inside = g[bin_of == number]
        if len(inside):
            found["at"].append((number + 0.5) / bins)
            found["mean"].append(float(inside.mean()))
            found["low"].append(float(inside.min()))
            found["high"].append(float(inside.max()))
            found["share"].append(len(inside) / len(g))
    return found


def _normal(at: Tensor, mean: float | Tensor, std: float | Tensor) -> Tensor:
    return torch.exp(-0.5 * ((at - mean) / std).square()) / (math.sqrt(2 * math.pi) * std)
