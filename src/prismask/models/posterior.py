"""The variational mask posterior q_φ(m) = N(m, g_φ(m)): pure functions, and their small wrapper.

A sample is m' = clamp(m + g ⊙ ε, 0, 1) with ε from the prior N(μ, σ): N(0, 1) in the paper's
equation, N(0.006, 0.1) and N(0.006, 0.005) in its experiments. A prior with a mean shifts the
mask by μ·g; that is what the paper states, so that is what happens.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.models.gst import SelfTuning

EntropySign = Literal["elbo", "paper"]
KINDS = ("gst", "conv", "fixed", "none")


def prior_noise(
    shape: tuple[int, ...], mean: float, std: float, generator: torch.Generator, like: Tensor
) -> Tensor:
    """ε ~ N(mean, std) on the device and in the dtype of `like`."""
    noise = torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)
    return noise.mul_(std).add_(mean)


def perturb(mask: Tensor, mask_std: Tensor, noise: Tensor) -> Tensor:
    """m' = clamp(m + g ⊙ ε, 0, 1), differentiable in g: the reparametrised sample."""
    return (mask + mask_std * noise).clamp(0, 1)


def entropy(mask_std: Tensor) -> Tensor:
    """H = mean ln(g·√(2πe)), the entropy per pixel of q_φ."""
    return mask_std.log().mean() + 0.5 * math.log(2 * math.pi * math.e)


def entropy_term(mask_std: Tensor, beta: float, sign: EntropySign) -> Tensor:
    """What the upper loss adds to ℓ.

    "elbo": −β·H. Entropy is rewarded, so g stays open where the data do not mind.
    "paper": +β·H, as printed; it pulls g towards zero together with ℓ.
    """
    choose(sign, ("elbo", "paper"), "entropy sign")
    return entropy(mask_std) * (-beta if sign == "elbo" else beta)


@dataclass(frozen=True)
class PosteriorConfig:
    """How the mask is made uncertain."""

    kind: str = "gst"
    """"gst" (graph), "conv" (no graph), "fixed" (one number), "none"."""
    prior_mean: float = 0.0
    """Mean μ of ε."""
    prior_std: float = 1.0
    """Standard deviation σ of ε."""
    initial_std: float = 0.05
    """g at the start of training; with kind "fixed", g for good."""

    def __post_init__(self) -> None:
        choose(self.kind, KINDS, "mask posterior")
        finite = math.isfinite(self.prior_mean) and 0 <= self.prior_std < math.inf
        if not finite or not 0 <= self.initial_std <= 1:
            raise ConfigError(
                f"prior_mean {self.prior_mean:g} and prior_std {self.prior_std:g} must be finite, "
                f"prior_std must not be negative and initial_std {self.initial_std:g} must lie in "
                "[0, 1], the mask's own range."
            )
        if self.initial_std == 0 and self.kind in ("gst", "conv"):
            raise ConfigError("initial_std = 0 leaves a learned g nowhere to start; use 0.05.")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        return asdict(self)


class MaskPosterior(nn.Module):
    """q_φ around any mask; wraps any backbone."""

    def __init__(self, config: PosteriorConfig) -> None:
        super().__init__()
        self.config = config
        learned = config.kind in ("gst", "conv")
        self.network = SelfTuning(config.kind == "gst", config.initial_std) if learned else None

    @property
    def is_learned(self) -> bool:
        """Whether there is a φ to train."""
        return self.network is not None

    @property
    def is_random(self) -> bool:
        """Whether samples differ from the mask."""
        return self.config.kind != "none"

    def std(self, mask: Tensor) -> Tensor:
        """g_φ(m), `(B|1, 1|C, H, W)` like the mask."""
        if self.network is not None:
            std: Tensor = self.network(mask)
            return std
        fixed = self.config.initial_std if self.config.kind == "fixed" else 0.0
        return torch.full_like(mask, fixed)

    def sample(self, mask: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`count` masks m' around `mask (1|count, 1|C, H, W)`, and g.

        One fresh ε for each; g is computed once a mask.
        """
        std = self.std(mask)
        shape = (count, *mask.shape[1:])
        noise = prior_noise(shape, self.config.prior_mean, self.config.prior_std, generator, std)
        return perturb(mask, std, noise), std

    def mean(self, mask: Tensor) -> Tensor:
        """The mask a deterministic pass uses: clamp(m + μ·g)."""
        if not self.is_random or self.config.prior_mean == 0:
            return mask
        return (mask + self.std(mask) * self.config.prior_mean).clamp(0, 1)
