"""What a run knew when it paused, it knows when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_training import tiny_config

from prismask.models.weights import load_weights
from prismask.training.config import TrainConfig
from prismask.training.run import train


def test_worse_weights_than_before_the_pause_are_not_kept(tmp_path: Path) -> None:
    scores = iter([3.0, 1.0, 2.0, 2.5])

    def make_validate(config: TrainConfig, prepared: Any) -> Any:
        return lambda model: {"score": next(scores)}

    config = tiny_config(
        schedule={"epochs": 4, "warmup_epochs": 1, "theta_epochs": 1, "phi_epochs": 1},
        output={"validate_every": 1},
    )
    options: dict[str, Any] = {"make_validate": make_validate, "resume": True}
    assert not train(config, tmp_path, stop_after=1e-6, **options).finished
    outcome = train(config, tmp_path, **options)
    assert outcome.finished
    assert outcome.state.best_score == 3.0
    assert load_weights(tmp_path / "weights.safetensors").record["validation"] == {"score": 3.0}
