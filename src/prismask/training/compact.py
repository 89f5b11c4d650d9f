"""Checkpoints in a third of the space, for runs that travel: almost exact, and said to be so.

θ is rounded to half precision. Its average lies close to it, so the difference is kept in eight
bits; momenta too, whose direction is what counts, each with a scale of its own. Adam's second
moments span too many orders of magnitude for that and get bfloat16. Counts of steps stay as they
are.
"""

from __future__ import annotations

import torch
from torch import Tensor

EIGHT_BITS = torch.float8_e4m3fn
LARGEST = torch.finfo(EIGHT_BITS).max
SCALE = "#scale"
"""What the name of a scale has behind that of its tensor."""
WEIGHTS, AVERAGE = "model/backbone.", "average/"


def packed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, smaller."""
    small: dict[str, Tensor] = {}
    for name, value in tensors.items():
        kind = name.rsplit("/", 1)[-1]
        if name.startswith(WEIGHTS) and value.is_floating_point():
            small[name] = value.half()
        elif name.startswith(AVERAGE):
            small |= _in_eight_bits(name, value - _weight_below(name, tensors).half().float())
        elif kind in ("momentum", "exp_avg"):
            small |= _in_eight_bits(name, value)
        elif kind == "exp_avg_sq":
            small[name] = value.bfloat16()
        else:
            small[name] = value
    return small


def unpacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `packed` was given, to its precision; other tensors are left as they are."""
    large: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.endswith(SCALE):
            continue
        large[name] = value
        if value.dtype is EIGHT_BITS:
            large[name] = value.float() * tensors[name + SCALE]
            if name.startswith(AVERAGE):
                large[name] += _weight_below(name, tensors).float()
    return large


def _weight_below(name: str, tensors: dict[str, Tensor]) -> Tensor:
    return tensors[WEIGHTS + name.removeprefix(AVERAGE)]


def _in_eight_bits(name: str, value: Tensor) -> dict[str, Tensor]:
    scale = (value.abs().amax() / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
    return {name: (value / scale).to(EIGHT_BITS), name + SCALE: scale}
