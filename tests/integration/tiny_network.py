"""A network small enough to be trained inside a test, on random scenes and fabricated masks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.synthetic.demo import random_scene

BANDS = 8
CAMERA = CASSI.from_step(BANDS)
RANGE_NM = (453.3, 648.1)


def scenes(seeds: range, size: int = 64, bands: int = BANDS) -> Tensor:
    """`(N, C, H, W)` random scenes, the same ones for any number of bands."""
    at = tuple(np.linspace(*RANGE_NM, bands))
    return torch.stack([torch.tensor(random_scene(s, (size, size), at).values) for s in seeds])


def masks(count: int, seed: int, size: int = 64) -> Tensor:
    """`(N, 1, H, W)` fabricated masks of as many instruments."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        fabricate_mask((size, size), generator, random_aperture(generator)) for _ in range(count)
    ]
    return torch.stack(made)[:, None]


def train(steps: int = 400, crop: int = 32, batch: int = 6) -> Reconstructor:
    """`srn+` with two blocks and a mask posterior, after a few seconds of training."""
    model = create_model(
        "srn+", bands=BANDS, mask_posterior="fixed", seed=0, width=24, blocks=2,
        posterior_options={"initial_std": 0.05},
    )  # fmt: skip
    cubes, apertures = scenes(range(24)), masks(16, seed=1)
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for _ in range(steps):
        row, column = torch.randint(64 - crop, (2,), generator=generator).tolist()
        box = (..., slice(row, row + crop), slice(column, column + crop))
        cube = cubes[torch.randint(24, (batch,), generator=generator)][box]
        mask = apertures[torch.randint(16, (batch,), generator=generator)][box]
        drawn, _ = model.posterior.sample(mask, batch, generator)
        estimate = model.reconstruct(Observation(CAMERA.forward(cube, mask), drawn, CAMERA))
        loss = (estimate - cube).square().mean().sqrt()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        optimiser.step()
        schedule.step()
    model.record |= {"name": "tiny", "step_px": 2.0, "sha256": "trained in a test"}
    return model.eval()
