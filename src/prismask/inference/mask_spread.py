"""How far the mask may be wrong: from whoever knows it to the network that is told.

It is stated (`Options.mask_std`), or comes with the mask (`Mask.std`); else nobody knows, and a
network that can estimates it. What is stated counts before what the mask brings along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ValuesError
from prismask.inference.findings import Finding
from prismask.inference.options import MaskStd, Options
from prismask.optics.camera import as_mask_batch
from prismask.scenes.records import Mask, check_mask_std

OF_THE_MASK = "the mask"
"""Where a spread comes from that the mask brings along."""


def with_own_spread(options: Options, mask: Mask) -> Options:
    """The options with what the mask says of its own errors, unless something is stated."""
    if mask.std is None or options.mask_std is not None:
        return options
    count = mask.attrs.get("calibrations")
    source = OF_THE_MASK if count is None else f"{count} calibrations of the mask"
    return replace(options, mask_std=MaskStd(mask.std, source))


def told_spread(options: Options, mask: Tensor) -> Tensor | None:
    """What the options say of `mask (1, 1|C, H, W)`, `(1, 1|C, H, W)`; None: nothing."""
    told = options.mask_std
    if told is None:
        return None
    if not isinstance(told, MaskStd):
        return torch.full_like(mask[:, :1], told)
    planes = tuple(mask.shape[1:]) if mask.shape[1] > 1 else tuple(mask.shape[2:])
    values = as_mask_batch(torch.tensor(check_mask_std(told.values, planes))).to(mask)
    if values.shape == mask.shape and torch.equal(values, mask):
        raise ValuesError(
            "mask_std is the mask itself. Give how far each of its pixels may be wrong: the "
            "standard deviation of repeated calibrations, or a number such as 0.03."
        )
    return values


def spread_attrs(options: Options, uses_it: bool) -> dict[str, Any]:
    """What the history says of the mask's errors, where the method makes use of them."""
    if not uses_it:
        return {}
    told = options.mask_std
    if told is None:
        return {"mask_std_from": "estimated by the network"}
    if isinstance(told, MaskStd):
        rms = float(np.sqrt(np.mean(np.square(told.values, dtype=np.float64))))
        return {"mask_std": rms, "mask_std_from": told.source}
    return {"mask_std": told, "mask_std_from": "given"}


def spread_findings(stated: Options, mask: Mask, method: str, uses_it: bool) -> list[Finding]:
    """Which of two spreads counts, and that a method cannot be told any."""
    found = []
    if stated.mask_std is not None and mask.std is not None:
        text = (
            "the mask brings its own mask_std along, which is not used: the one that is given "
            "counts. Leave --mask-std out to use the mask's."
        )
        found.append(Finding("note", text))
    if not uses_it and with_own_spread(stated, mask).mask_std is not None:
        text = (
            f"{method} cannot be told how far the mask may be wrong: mask_std is not used. "
            "`prismask models` names the networks that can."
        )
        found.append(Finding("note", text))
    return found
