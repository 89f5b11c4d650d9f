"""Where a mask lies, as an earlier alignment found it: a camera that stays as it is needs one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import NUMBERS, Place
from prismask.scenes.records import Mask


@dataclass(frozen=True)
class KnownPlace:
    """The place of one mask."""

    place: Place
    mask_hash: str = ""
    """Of the mask it was found for; empty: not known."""

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any], name: str) -> KnownPlace:
        """What a cube says about its mask; `name` is the cube's, for errors."""
        noted = attrs.get("mask_place")
        if noted is None:
            raise ConfigError(
                f"{name} does not say where its mask lies: it was reconstructed without --align."
            )
        try:
            numbers = tuple(float(number) for number in np.atleast_1d(np.asarray(noted, float)))
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) == NUMBERS - 1:
            raise ConfigError(f"{name} was aligned before blur was looked for: align it again.")
        if not 0 < len(numbers) <= NUMBERS or not all(map(math.isfinite, numbers)):
            raise ConfigError(f"mask_place of {name} is {noted!r}, not a place of a mask.")
        return cls(Place(numbers), str(attrs.get("mask_hash", "")))

    def check(self, mask: Mask) -> None:
        """Places are told at the edges of a mask, so one of another mask means nothing."""
        if self.mask_hash and self.mask_hash != mask.hash:
            raise ConfigError(
                f"the place was found for the mask {self.mask_hash}, this one is {mask.hash}: "
                "give the mask that it was found for, or let --align look again."
            )
