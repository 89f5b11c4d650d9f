"""A training small enough for tests; `python tiny_training.py FOLDER` runs it to be killed."""

from __future__ import annotations

import sys
from typing import Any

from prismask.training.config import TrainConfig, from_table

TABLE: dict[str, Any] = {
    "name": "tiny",
    "data": {
        "source": "synthetic",
        "crop": 16,
        "scale": [1.0, 1.5],
        "synthetic_scenes": 3,
        "synthetic_size": 32,
        "noise_std": [0.0, 0.01],
    },
    "masks": {"source": "fabricated", "fabricated_count": 2},
    "camera": {"bands": 4},
    "model": {"backbone": "srn", "options": {"width": 8, "blocks": 1}},
    "posterior": {"kind": "gst"},
    "schedule": {
        "batch": 4,
        "epoch_crops": 16,
        "epochs": 12,
        "warmup_epochs": 4,
        "theta_epochs": 2,
        "phi_epochs": 2,
        "theta_rate": 2e-3,
        "phi_rate": 1e-3,
    },
    "speed": {"device": "cpu", "ema": 0.9},
    "output": {"checkpoint_every": 1, "validate_every": 0, "log_every": 1},
}


def tiny_config(**tables: dict[str, Any]) -> TrainConfig:
    """The tiny run, with some keys replaced."""
    merged = {
        key: {**value, **tables.get(key, {})} if isinstance(value, dict) else value
        for key, value in TABLE.items()
    }
    return from_table({**merged, **{k: v for k, v in tables.items() if k not in merged}})


MUON = {"kind": "muon", "muon_rate": 0.01, "ramp_steps": 5}
"""The other optimiser, as a table of the configuration."""


if __name__ == "__main__":
    import torch

    from prismask.training.run import train

    torch.set_num_threads(1)
    optimizer = MUON if "muon" in sys.argv[2:] else {}
    train(tiny_config(optimizer=optimizer), sys.argv[1], resume=True)
