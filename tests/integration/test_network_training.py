"""Every network trains by configuration alone, as a mask ensemble and with a mask posterior."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import tiny_config

from prismask.models.network import compile_parts
from prismask.models.weights import load_weights
from prismask.training.config import TrainConfig, read_config
from prismask.training.run import train
from prismask.training.setup import Prepared

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIGS = Path(__file__).parents[2] / "configs" / "networks"
TINY: dict[str, dict[str, Any]] = {
    "swinir": {"width": 12, "groups": 1, "layers": 2, "heads": 2},
    "spectral-vit": {"width": 12, "groups": 1, "layers": 1, "heads": 2},
    "tsa-net": {"width": 8, "heads": 2},
    "lambda-net": {"width": 8},
    "gsm": {"width": 8, "stages": 2, "taps": 3},
    "hssp": {"width": 8, "stages": 2},
    "lumen": {"width": 8, "stages": 2, "cosines": 8},
}


def tables(name: str, posterior: str, **loss: Any) -> dict[str, dict[str, Any]]:
    mode = "bilevel" if posterior == "gst" else "plain"
    return {
        "model": {"backbone": name, "options": TINY[name]},
        "posterior": {"kind": posterior},
        "loss": loss,
        "schedule": {
            "mode": mode,
            "epochs": 4,
            "warmup_epochs": 2,
            "theta_epochs": 1,
            "phi_epochs": 1,
            "epoch_crops": 8,
        },
    }


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", TINY)
def test_configs_hold_both_ways_for_every_network(name: str) -> None:
    ensemble = read_config(CONFIGS / f"{name}.toml")
    tuned = read_config(CONFIGS / f"{name}-gst.toml")
    assert ensemble.model.backbone == tuned.model.backbone == name
    assert (ensemble.schedule.mode, ensemble.posterior.kind) == ("plain", "none")
    assert (tuned.schedule.mode, tuned.posterior.kind) == ("bilevel", "gst")
    assert ensemble.schedule.budget == tuned.schedule.budget == "4min"
    assert ensemble.loss.kind == tuned.loss.kind


@pytest.mark.parametrize("name", TINY)
def test_bilevel_training(name: str, tmp_path: Path) -> None:
    before = tiny_config(**tables(name, "gst"))
    outcome = train(before, tmp_path / "run")
    assert outcome.finished
    phases = [line["phase"] for line in lines(tmp_path / "run")]
    assert phases == ["warmup"] * 4 + ["theta"] * 2 + ["phi"] * 2


@pytest.mark.parametrize("name", TINY)
def test_mask_ensemble(name: str) -> None:
    kind = read_config(CONFIGS / f"{name}.toml").loss.kind
    assert train(tiny_config(**tables(name, "none", kind=kind))).finished


@pytest.mark.slow
def test_against_a_discriminator_and_resumed(tmp_path: Path) -> None:
    """A pause keeps the discriminator too: the run goes on as if there had been none."""
    config = tiny_config(**tables("lambda-net", "gst", adversarial=0.01))
    whole = train(config, tmp_path / "whole").state
    while not train(config, tmp_path / "parts", resume=True, stop_after=1e-9).finished:
        pass
    parts = train(config, tmp_path / "parts", resume=True).state
    assert whole.adversary is not None
    assert parts.adversary is not None
    for one, other in (
        (whole.model, parts.model),
        (whole.adversary.network, parts.adversary.network),
    ):
        for first, second in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(first, second)
    plain = train(tiny_config(**tables("lambda-net", "gst"))).state
    heads = [state.model.backbone.generator[1].weight for state in (whole, plain)]
    assert not torch.equal(*heads), "the objection reached θ"


def test_kept_weights_know_their_network(tmp_path: Path) -> None:
    config = tiny_config(**tables("gsm", "gst"), output={"validate_every": 2})
    train(config, tmp_path / "run", make_validate=lambda *_: lambda _: {"score": 1.0})
    model = load_weights(tmp_path / "run" / "weights.safetensors")
    assert model.record["backbone"] == "gsm"
    assert not model.can_tile_backbone


# PyTorch warns of what it does itself while it traces.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:`torch.jit")
def test_parts_are_compiled_for_training_and_not_again_for_validation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._dynamo.utils import counters

    from prismask.training import step

    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(step, "compile_parts", partial(compile_parts, backend="eager"))
    monkeypatch.setattr(step, "compiled", partial(torch.compile, dynamic=False, backend="eager"))
    seen: list[int] = []

    def make_validate(config: TrainConfig, prepared: Prepared) -> Any:
        def validate(model: Any) -> dict[str, float]:
            snapshot, mask = torch.ones(1, 20, 30), torch.ones(1, 1, 20, 24)
            model(snapshot, mask, prepared.camera)
            seen.append(counters["stats"]["unique_graphs"])
            return {"score": 1.0}

        return validate

    config = tiny_config(**tables("swinir", "none"), speed={"compile": True})
    assert train(config, make_validate=make_validate).finished
    assert seen == [3], "with and without a shift, and the loss, of the training's size"
    torch._dynamo.reset()
