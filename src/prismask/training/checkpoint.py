"""Exact checkpoints: a run killed at any moment goes on as if it had not been.

One safetensors file, written beside and renamed, so there is always a whole one. It holds the
networks, their optimisers, the average and the counters; random numbers need no entry because
they depend on the seed and the step alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from prismask.errors import WeightsError
from prismask.models.weights import tensors_hash
from prismask.scenes.atomic import write_beside
from prismask.training.config import TrainConfig, difference, from_table
from prismask.training.optimizers import Optimisers
from prismask.training.state import TrainState

FORMAT = "prismask-checkpoint-1"
FREE_TO_CHANGE = ("output.", "speed.device", "speed.compile", "speed.graphs", "data.folder")
"""Keys that may differ between a checkpoint and the run that takes it up."""


def save_checkpoint(path: Path, state: TrainState, config: TrainConfig) -> None:
    """Write everything that is needed to go on."""
    tensors = {f"model/{k}": v.detach() for k, v in state.model.state_dict().items()}
    if state.average is not None:
        tensors |= {f"average/{k}": v for k, v in state.average.items()}
    tensors |= _optimiser_tensors("theta", state.theta, state.model.backbone)
    if state.phi is not None:
        tensors |= _optimiser_tensors("phi", state.phi, state.model.posterior)
    if (adversary := state.adversary) is not None:
        tensors |= {f"judge/{k}": v for k, v in adversary.network.state_dict().items()}
        tensors |= _optimiser_tensors("against", adversary.optimiser, adversary.network)
    tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
    if config.output.compact:
        tensors = {name: _compact(name, value) for name, value in tensors.items()}
    facts = {
        "format": FORMAT,
        "config": asdict(config),
        "step": state.step,
        "seconds": state.seconds,
        "best_score": repr(state.best_score),
        "validated_at": state.validated_at,
        "sha256": tensors_hash(tensors),
    }
    with write_beside(path, overwrite=True) as beside:
        save_file(tensors, str(beside), metadata={"prismask": json.dumps(facts)})


def load_checkpoint(path: Path, state: TrainState, config: TrainConfig) -> None:
    """Fill `state` from a checkpoint of the same configuration; refuse any other."""
    facts, tensors = _read(path)
    before = from_table(facts["config"], str(path))
    changed = [d for d in difference(before, config) if not d.startswith(FREE_TO_CHANGE)]
    if changed:
        raise WeightsError(
            f"{path} belongs to another configuration: {'; '.join(changed[:6])}. "
            "Resume with the configuration it was made with, or start in a new folder."
        )
    state.model.load_state_dict(_part(tensors, "model/"))
    if state.average is not None:
        for name, value in _part(tensors, "average/").items():
            state.average[name].copy_(value)
    _fill_optimiser("theta", state.theta, state.model.backbone, tensors)
    if state.phi is not None:
        _fill_optimiser("phi", state.phi, state.model.posterior, tensors)
    if (adversary := state.adversary) is not None:
        adversary.network.load_state_dict(_part(tensors, "judge/"))
        _fill_optimiser("against", adversary.optimiser, adversary.network, tensors)
    state.step = int(facts["step"])
    state.seconds = float(facts["seconds"])
    state.best_score = float(facts["best_score"])
    # Checkpoints written before it was kept lack it: one validation is done again then.
    state.validated_at = int(facts.get("validated_at", -1))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get("prismask", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is damaged or no checkpoint: {error}") from error
    facts: dict[str, Any] = json.loads(text)
    if facts.get("format") != FORMAT:
        raise WeightsError(f"{path} is not a checkpoint of this version ({FORMAT}).")
    if tensors_hash(tensors) != facts["sha256"]:
        raise WeightsError(f"{path} is damaged: its values do not match its SHA-256.")
    return facts, tensors


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _optimiser_tensors(name: str, optimisers: Optimisers, module: nn.Module) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for parameter_name, parameter in module.named_parameters():
        for key, value in optimisers.state_of(parameter).items():
            tensors[f"{name}/{parameter_name}/{key}"] = value.detach()
    return tensors


def _fill_optimiser(
    name: str, optimisers: Optimisers, module: nn.Module, tensors: dict[str, Tensor]
) -> None:
    for parameter_name, parameter in module.named_parameters():
        stored = _part(tensors, f"{name}/{parameter_name}/")
        if not stored:
            continue  # this network had not been trained yet
        optimiser = optimisers.owner(parameter)
        fused = bool(optimiser.defaults.get("fused"))
        filled: dict[str, Tensor] = {}
        for key, value in stored.items():
            if key == "step":
                # Adam counts steps on the CPU unless it is fused.
                filled[key] = value.to(parameter.device if fused else "cpu", torch.float32)
            else:
                # In the parameter's own memory layout, which the fused step insists on.
                filled[key] = torch.empty_like(parameter, dtype=torch.float32).copy_(value)
        optimiser.state[parameter] = filled


def _compact(name: str, value: Tensor) -> Tensor:
    moment = name.startswith(("theta/", "phi/", "against/")) and not name.endswith("/step")
    return value.to(torch.bfloat16) if moment else value
