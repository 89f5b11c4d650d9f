"""Alignment around a method: the mask goes to its place before it, the bands go back after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from prismask.inference.alignment.pose import Place
from prismask.inference.camera_match.view import Snapshot
from prismask.inference.checks import Finding
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.methods.protocol import Array, Outcome, Progress
from prismask.optics.camera import CASSI


@dataclass(frozen=True, eq=False)
class Aligned:
    """A snapshot whose mask is where the snapshot says it lies."""

    snapshot: Snapshot
    place: Place = field(default_factory=Place)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


def align(snapshot: Snapshot, aligner: NetworkMethod, progress: Progress | None) -> Aligned:
    """Have a network look for the place of the snapshot's mask."""
    found = aligner.align(snapshot, progress)
    mask, camera = snapshot.mask, snapshot.camera
    text = found.text((mask.shape[-2], mask.shape[-1]), camera)
    return Aligned(
        replace(snapshot, mask=found.found.read(mask, camera), is_aligned=found.is_worth_it),
        found.found,
        {"mask_place": list(found.found.numbers), "mask_place_by": aligner.name},
        (Finding("note", text),),
    )


def at_place(snapshot: Snapshot, place: Place) -> Aligned:
    """The same at a place that was found before."""
    mask, camera = snapshot.mask, snapshot.camera
    where = place.text((mask.shape[-2], mask.shape[-1]), camera)
    text = (
        f"the mask is read {where}, as was found before."
        if any(place.numbers)
        else ("the mask is read where it was calibrated, as was found before.")
    )
    return Aligned(
        replace(snapshot, mask=place.read(mask, camera)),
        place,
        {"mask_place": list(place.numbers), "mask_place_by": "given"},
        (Finding("note", text),),
    )


def straightened(outcome: Outcome, place: Place, camera: CASSI) -> Outcome:
    """The outcome with its bands where the scene has them."""
    if not any(place.shifts(camera)):
        return outcome

    def back(values: Array) -> Array:
        moved = place.straightened(torch.from_numpy(values)[None], camera)[0]
        return np.ascontiguousarray(moved.numpy())

    values = back(outcome.values)
    ends: list[Array | None] = []
    for end in (outcome.lower, outcome.upper):
        # Moved as a distance: a cubic of its own could put an end on the wrong side.
        away = None if end is None else np.maximum(back(np.abs(end - outcome.values)), 0)
        ends.append(away)
    lower = None if ends[0] is None else np.maximum(values - ends[0], np.minimum(values, 0))
    upper = None if ends[1] is None else values + ends[1]
    std = None if outcome.std is None else np.maximum(back(outcome.std), 0)
    return replace(outcome, values=values, std=std, lower=lower, upper=upper)
