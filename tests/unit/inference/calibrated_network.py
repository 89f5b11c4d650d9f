"""A small untrained network with an interval: its errors are large, and as good as any to cover."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.inference.engine import Engine
from prismask.inference.intervals.learned import LEVELS, Factors, LearnedInterval, WidthHead
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.synthetic.demo import random_scene

BANDS, SIZE = 8, (36, 48)
CAMERA = CASSI.from_step(BANDS)


def scenes(seeds: range, bands: int = BANDS) -> Tensor:
    """Random scenes `(N, C, H, W)`."""
    at = tuple(np.linspace(450.0, 650.0, bands))
    return torch.stack([torch.tensor(random_scene(s, SIZE, at).values) for s in seeds])


def masks(count: int) -> Tensor:
    """Fabricated masks `(count, 1, H, W)`."""
    return torch.stack([fabricate_mask(SIZE, seeded(s))[None] for s in range(count)])


def bare_network() -> Reconstructor:
    """Without an interval."""
    model = create_model("srn", bands=BANDS, mask_posterior="fixed", seed=3, width=8, blocks=1)
    model.record |= {"name": "untrained", "step_px": 2.0}
    return model.eval()


def engine_of(model: Reconstructor) -> Engine:
    """On the CPU, in float32."""
    return Engine(model, torch.device("cpu"), "float32")


def even_interval(reach: float = 0.05, classes: dict[str, float] | None = None) -> LearnedInterval:
    """One that reaches as far everywhere, e^0.2 times further at each level.

    classes: how many times as far for classes of snapshots.
    """
    bias = torch.full((2, len(LEVELS)), math.log(math.expm1(0.2)))
    bias[:, 0] = math.log(reach)
    weight = torch.zeros(2, len(LEVELS), 1)
    layer = (weight.flatten(0, 1), bias.flatten())
    head = WidthHead(("value",), LEVELS, torch.zeros(1), torch.ones(1), (layer,))
    factors = {
        name: Factors(dict.fromkeys(LEVELS, times)) for name, times in (classes or {}).items()
    }
    about = {"snapshots": 9, "scenes": 3, "cameras": 4}
    return LearnedInterval(head, dict.fromkeys(LEVELS, 1.0), factors, about)


def interval_record(*given: Any, **options: Any) -> dict[str, Any]:
    """As a weights record has it."""
    record: dict[str, Any] = json.loads(json.dumps(even_interval(*given, **options).to_record()))
    return {"learned": record}


def calibrated_network(*given: Any, **options: Any) -> Reconstructor:
    """With an interval."""
    model = bare_network()
    model.record["interval"] = interval_record(*given, **options)
    return model
