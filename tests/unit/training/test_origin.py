"""What weights say of those that they went on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.training.config import ModelConfig, TrainConfig
from prismask.training.setup import _origin


def test_the_whole_line_of_ancestors_is_kept(tmp_path: Path) -> None:
    """Scenes and masks that only the first of them saw were seen all the same."""
    model = create_model("srn", bands=4, seed=0, width=8, blocks=1)
    before: dict[str, Any] = {}
    for name in ("first", "second", "third"):
        path = tmp_path / f"{name}.safetensors"
        save_weights(model, path, {"name": name, "masks": {"source": name}, **before})
        before = _origin(TrainConfig(model=ModelConfig(start_from=str(path))), {})
    found = []
    while "started_from" in before:
        before = before["started_from"]
        found.append((before["name"], before["masks"]["source"]))
    assert found == [("third", "third"), ("second", "second"), ("first", "first")]
