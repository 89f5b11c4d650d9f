"""Random numbers that a seed reproduces, wherever the data lives.

Numbers are drawn on the generator's device and moved to the data's. A generator on the CPU gives
the same numbers for data on any device; a generator on the data's device avoids the transfer,
which is what a training step wants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator on `device` that starts from `seed`."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return generator


def uniform(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Numbers in [0, 1) of `shape`, with the dtype and device of `like`."""
    source = like.device if generator is None else generator.device
    drawn = torch.rand(tuple(shape), generator=generator, dtype=like.dtype, device=source)
    return drawn.to(like.device)


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers of `shape`, with the dtype and device of `like`."""
    source = like.device if generator is None else generator.device
    drawn = torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=source)
    return drawn.to(like.device)


def poisson(rate: Tensor, generator: torch.Generator | None) -> Tensor:
    """Poisson counts with the given rates, same shape, dtype and device as `rate`."""
    source = rate.device if generator is None else generator.device
    return torch.poisson(rate.to(source), generator=generator).to(rate.device)


def seed_of(*parts: object) -> int:
    """A 63-bit seed from any words and numbers; stable over machines and versions."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
