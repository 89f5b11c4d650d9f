"""`prismask.train` on scenes in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_training import TABLE

import prismask
from prismask.errors import ConfigError, ShapeError
from prismask.scenes.synthetic.demo import random_scene

SHORT = {**TABLE, "schedule": {**TABLE["schedule"], "epochs": 2, "epoch_crops": 8}}


def test_arrays_are_learned_from(tmp_path: Path) -> None:
    grid = (450.0, 500.0, 550.0, 600.0)
    cubes = [random_scene(i, (32, 32), grid) for i in range(3)]
    scenes = [cubes[0], cubes[1].values, torch.tensor(cubes[2].values)]
    mask = np.random.default_rng(0).random((40, 40), dtype=np.float32)
    outcome = prismask.train(SHORT, tmp_path / "run", scenes=scenes, mask=mask)
    assert outcome.finished
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"] == {
        "source": "given", "train": ["given00", "given01"], "validation": ["given02"],
    }  # fmt: skip
    assert record["masks"]["name"] == "given"


def test_scenes_that_do_not_fit_are_told() -> None:
    cube = np.ones((4, 32, 32), np.float32)
    with pytest.raises(ShapeError, match="a scene is 3×32×32; the configured camera has 4"):
        prismask.train(SHORT, scenes=[cube, cube[:3], cube])
    with pytest.raises(ConfigError, match="at least one training and one validation scene"):
        prismask.train(SHORT, scenes=[cube])
    with pytest.raises(ConfigError, match="go with scenes"):
        prismask.train(SHORT, validation=[cube])
