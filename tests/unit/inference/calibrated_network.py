"""A small untrained network with an interval: its errors are large, and as good as any to cover."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from prismask.inference.engine.frame import Engine
from prismask.inference.intervals.fit import calibrate
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


def calibrated_network() -> Reconstructor:
    """With one, for single passes and for samples."""
    model = bare_network()
    model.record["interval"] = calibrate(
        engine_of(model), scenes(range(4)), masks(3), CAMERA, samples=2
    )
    return model
