"""Half precision where it makes no difference, and only there.

On a GPU a network runs twice on the first mask's scenes, in float32 and in half precision. Half
is used for the run if no scene's PSNR ("paper") moves by more than `TOLERANCE`; on a CPU never.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Literal

import torch

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.evaluation.run.cells import Cell
from prismask.evaluation.run.trials import Bench, Workload

log = logging.getLogger(__name__)

Precision = Literal["auto", "float32", "half"]
PRECISIONS: tuple[Precision, ...] = ("auto", "float32", "half")
TOLERANCE = 0.005
"""Decibels by which half precision may move a scene's PSNR."""
METRIC = "psnr_paper"


def choose_halves(
    work: Workload, device: torch.device, precision: Precision
) -> dict[str, float | None]:
    """The networks to run in half precision, each with the decibels it costs at most.

    "half" does not ask (None), "float32" gives nobody.
    """
    choose(precision, PRECISIONS, "precision")
    if precision == "half" and device.type != "cuda":
        raise ConfigError(f"half precision is for GPUs; on {device} use auto or float32.")
    networks = [label for label, found in work.contenders.items() if "half" in found.capabilities]
    if precision == "float32" or device.type != "cuda":
        return {}
    if precision == "half":
        return dict.fromkeys(networks)
    halves: dict[str, float | None] = {}
    for label in networks:
        cost = half_cost(work, device, label)
        if cost <= TOLERANCE:
            halves[label] = cost
        else:
            log.warning("%s runs in float32: half precision would move its PSNR by %.3g dB.",
                        label, cost)  # fmt: skip
    return halves


def half_cost(work: Workload, device: torch.device, label: str) -> float:
    """Largest change of a scene's PSNR in dB on the first mask; infinite if half overflows."""
    group = next(iter(work.groups))
    cell = Cell(label, group, 0)
    scores = []
    for halves in (frozenset[str](), frozenset({label})):
        changed = replace(work, metrics=(METRIC,), halves=halves)
        scores.append(Bench(changed, device).run(cell).values[METRIC])
    worst = 0.0
    for full, half in zip(*scores, strict=True):
        if math.isfinite(full):
            worst = max(worst, abs(full - half) if math.isfinite(half) else math.inf)
    return worst
