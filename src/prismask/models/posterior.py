"""The variational mask posterior q_φ(m) = N(m, g_φ(m)): pure functions, and their small wrapper.

A sample is m' = clamp(m + g ⊙ ε, 0, 1) with ε from the prior N(μ, σ): N(0, 1) in the paper's
equation, N(0.006, 0.1) and N(0.006, 0.005) in its experiments. A prior with a mean shifts the
mask by μ·g; that is what the paper states, so that is what happens.

How far each mask pixel may be from its calibration is said by GST, the variance network g_φ:

mask → CONV-ReLU-CONV-ReLU → H₀; two 1×1 CONVs → H₁, H₂; pixel graph E = H₁ᵀH₂ over the nodes
M = H₀; A = H₀ ⊙ (σ(E Mᵀ W) + 1); g = softplus(CONV(A)).

E has (HW)² entries and is never built: there is no softmax between the factors, so the product
is associative and `H₁ᵀ (H₂ Mᵀ / N) W` costs and holds only what is linear in the pixels. The
division by the number of nodes N makes the attention independent of the mask's size.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.models.backbones.srn import xavier_uniform
from prismask.models.layers import conv3x3

WIDTH = 36
"""Feature channels: the size at which SRN + GST has the published 1.27 M parameters."""


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A block in which autocast is off, on devices that have it at all."""
    if not _has_autocast(device.type):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=False)


def _has_autocast(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type)


# A compiler would break its graph at this call and compile the pieces anew. The mark says that the
# answer never changes; torch.compiler.assume_constant_result sets it too, but loads the compiler
# to do so, which takes a second.
_has_autocast._dynamo_marked_constant = True  # type: ignore[attr-defined]


class GraphAttention(nn.Module):
    """σ(E Mᵀ W) over the graph of all pixels, in linear cost."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_first = nn.Conv2d(width, width, 1)
        self.to_second = nn.Conv2d(width, width, 1)
        self.weight = nn.Linear(width, width, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """H₀ `(B, F, H, W)` → attention in (0, 1), same shape."""
        shape = features.shape
        nodes = features.flatten(2)  # M: (B, F, N)
        first = self.to_first(features).flatten(2)
        second = self.to_second(features).flatten(2)
        summary = second @ nodes.transpose(1, 2) / nodes.shape[-1]  # H₂ Mᵀ / N: (B, F, F)
        reasoned = first.transpose(1, 2) @ self.weight(summary)  # (B, N, F)
        return torch.sigmoid(reasoned).transpose(1, 2).reshape(shape)


class ConvAttention(nn.Module):
    """The ablation without graph: one convolution with more parameters in its place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = conv3x3(width, width)

    def forward(self, features: Tensor) -> Tensor:
        """H₀ `(B, F, H, W)` → attention in (0, 1), same shape."""
        return torch.sigmoid(self.conv(features))


class SelfTuning(nn.Module):
    """g_φ: a mask of any size → the standard deviation of each of its pixels."""

    def __init__(self, graph: bool = True, initial_std: float = 0.05, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Sequential(conv3x3(1, width), nn.ReLU(), conv3x3(width, width), nn.ReLU())
        self.attention = GraphAttention(width) if graph else ConvAttention(width)
        self.to_std = conv3x3(width, 1)
        self.apply(xavier_uniform)
        # softplus(0) = 0.69 would drown a mask in [0, 1]: start where softplus gives initial_std.
        nn.init.constant_(self.to_std.bias, math.log(math.expm1(initial_std)))  # type: ignore[arg-type]

    def forward(self, mask: Tensor) -> Tensor:
        """`(B, 1|C, H, W)` → g of the same shape; every plane is looked at by itself.

        Never in half precision: g is small, and the graph sums over all pixels, which float16
        cannot hold.
        """
        planes = mask.reshape(-1, 1, *mask.shape[-2:])
        with full_precision(mask.device):
            features = self.embed(planes)
            raw = self.to_std(features * (self.attention(features) + 1))
            return F.softplus(raw).reshape(mask.shape)


EntropySign = Literal["elbo", "paper"]
KINDS = ("gst", "conv", "fixed", "none")

SMALLEST_STD = 1e-8
"""A g below this, which no mask is known to, counts as this: the logarithm of one that has shrunk
to nothing has no gradient to follow. With the printed sign of the entropy g ends there."""


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
    return mask_std.clamp_min(SMALLEST_STD).log().mean() + 0.5 * math.log(2 * math.pi * math.e)


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

        One fresh ε for each; g is computed once per mask.
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
