"""Training behind cameras that differ from step to step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import tiny_config
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.weights import load_weights
from prismask.optics.camera import CASSI
from prismask.optics.varied_prism import PrismFamily, VariedCamera
from prismask.training.run import _batches, train
from prismask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("one_thread")

LOOKS: dict[str, dict[str, Any]] = {"srn": {}, "srn-looks": {"looks": 1}}


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("backbone", ["srn", "srn-looks"])
def test_varied_cameras_are_learned_behind_and_resume(tmp_path: Path, backbone: str) -> None:
    model = {"backbone": backbone, "options": {"width": 8, "blocks": 2, **LOOKS[backbone]}}
    config = tiny_config(camera={"bands": 4, "spread": [0.6, 1.1], "bend": 0.1}, model=model)
    whole = train(config, tmp_path / "whole").state.model.state_dict()
    train(config, tmp_path / "parts", stop_after=1e-9)
    parts = train(config, tmp_path / "parts", resume=True).state.model.state_dict()
    assert same_weights(whole, parts)
    assert not same_weights(whole, train(tiny_config(model=model)).state.model.state_dict())
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert (record["spread"], record["bend"]) == ([0.6, 1.1], 0.1)
    assert record["offsets_px"] == [0, 2, 4, 6]


def test_weights_tell_behind_which_cameras_they_were_trained(tmp_path: Path) -> None:
    def validated(*_: Any) -> Any:
        return lambda model: {"score": 1.0}

    short = {"epochs": 1, "warmup_epochs": 0}
    varied = tiny_config(camera={"bands": 4, "bend": 0.2}, schedule=short)
    train(varied, tmp_path / "first", make_validate=validated)
    weights = tmp_path / "first" / "weights.safetensors"
    record = load_weights(weights).record
    assert (record["spread"], record["bend"]) == ([1.0, 1.0], 0.2)
    model = {"start_from": str(weights)}
    train(tiny_config(model=model, schedule=short), tmp_path / "second", make_validate=validated)
    record = load_weights(tmp_path / "second" / "weights.safetensors").record
    assert "spread" not in record
    assert "bend" not in record
    assert record["started_from"]["bend"] == 0.2


@pytest.mark.parametrize(
    ("camera", "words"),
    [
        ({"spread": [0.2, 1.0]}, r"camera\.spread = \[0\.2, 1\].* camera\.step"),
        ({"spread": [1.1, 0.9]}, r"camera\.spread = \[1\.1, 0\.9\].* lower end"),
        ({"bend": 0.6}, r"camera\.bend is 0\.6; .* below 0\.375"),
        ({"bend": 0.1, "design": "dual"}, "one disperser"),
    ],
)
def test_cameras_that_cannot_be_drawn_are_refused(camera: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        train(tiny_config(camera={"bands": 4, **camera}))


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_batches_are_those_of_the_drawn_camera_on_its_own_frame(noise: float) -> None:
    """The wide frame of all steps adds nothing that a narrow camera would not have measured."""
    tables: dict[str, Any] = {"data": {"noise_std": [noise, noise]}}
    device = torch.device("cpu")
    varied = tiny_config(camera={"bands": 4, "spread": [0.6, 0.6], "bend": 0.1}, **tables)
    ours = prepare(varied, device)
    assert isinstance(ours.measuring, PrismFamily)
    batches = _batches(varied, ours, ours.train_scenes, "training", slice(0, 4))
    extents = set()
    for step in range(8):
        batch = batches.make(step)
        camera = batch.camera
        assert isinstance(camera, VariedCamera)
        extents.add(camera.lit_extent)
        exact = CASSI(camera.offsets)
        plain = tiny_config(camera={"bands": 4, "offsets": list(exact.offsets)}, **tables)
        theirs = prepare(plain, device)
        same = _batches(plain, theirs, theirs.train_scenes, "training", slice(0, 4)).make(step)
        assert torch.equal(batch.cube, same.cube)
        torch.testing.assert_close(batch.noise, same.noise)
        assert batch.measurement.shape == (4, 16, 16 + 6)
        assert float(batch.measurement[..., 16 + exact.extent :].abs().sum()) == 0
        if not noise:
            beyond = camera.extent - exact.extent
            torch.testing.assert_close(batch.measurement, F.pad(same.measurement, (0, beyond)))
    assert extents == {4, 6}
