"""Exact checkpoints: a run killed at any moment goes on as if it had not been.

One safetensors file, written beside and renamed, so there is always a whole one. It holds the
networks, their optimisers, the average and the counters; random numbers need no entry because
they depend on the seed and the step alone.

For runs that travel there are checkpoints in a third of the space: almost exact, and said to be so.
θ is rounded to half precision. Its average lies close to it, so the difference is kept in eight
bits; momenta too, whose direction is what counts, each with a scale of its own. Adam's second
moments span too many orders of magnitude for that and get bfloat16. Counts of steps stay as they
are.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prismask.errors import WeightsError
from prismask.models.weights import MOST_STEPS, read_sealed, write_sealed
from prismask.training.config import TrainConfig, difference, from_table
from prismask.training.optimizers import Optimisers
from prismask.training.state import TrainState

FORMAT = "prismask-checkpoint-2"
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
        tensors = packed(tensors)
    facts = {
        "format": FORMAT,
        "config": asdict(config),
        "step": state.step,
        "seconds": state.seconds,
        "best_score": repr(state.best_score),
        "validated_at": state.validated_at,
    }
    write_sealed(path, tensors, facts, overwrite=True)


def load_checkpoint(path: Path, state: TrainState, config: TrainConfig) -> None:
    """Fill `state` from a checkpoint of the same configuration; refuse any other."""
    facts, stored = read_sealed(path, FORMAT, "checkpoint")
    before = _configuration(facts, path)
    changed = [d for d in difference(before, config) if not d.startswith(FREE_TO_CHANGE)]
    if changed:
        raise WeightsError(
            f"{path} belongs to another configuration: {'; '.join(changed[:6])}. "
            "Resume with the configuration it was made with, or start in a new folder."
        )
    step, seconds, best_score, validated_at = _counters(facts, path)
    try:
        _fill(state, unpacked(stored))
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(
            f"{path} does not hold the network and the optimisers it names: {error}"
        ) from error
    state.step, state.seconds = step, seconds
    state.best_score, state.validated_at = best_score, validated_at


def _fill(state: TrainState, tensors: dict[str, Tensor]) -> None:
    """Put the tensors of a checkpoint where they belong; raises for any that do not fit."""
    state.model.load_state_dict(_part(tensors, "model/"))
    if state.average is not None:
        average = _part(tensors, "average/")
        if average.keys() != state.average.keys():
            raise KeyError(f"average of {sorted(average.keys() ^ state.average.keys())[:4]}")
        for name, value in average.items():
            state.average[name].copy_(value)
    _fill_optimiser("theta", state.theta, state.model.backbone, tensors)
    if state.phi is not None:
        _fill_optimiser("phi", state.phi, state.model.posterior, tensors)
    if (adversary := state.adversary) is not None:
        adversary.network.load_state_dict(_part(tensors, "judge/"))
        _fill_optimiser("against", adversary.optimiser, adversary.network, tensors)


def _configuration(facts: dict[str, Any], path: Path) -> TrainConfig:
    table = facts.get("config")
    if not isinstance(table, dict):
        raise WeightsError(f"{path} does not say with which configuration it was made.")
    return from_table(table, str(path))


def _counters(facts: dict[str, Any], path: Path) -> tuple[int, float, float, int]:
    """Steps, seconds, best score and the step of the last validation, if they can be true."""
    try:
        step, validated_at = int(facts["step"]), int(facts["validated_at"])
        seconds, best_score = float(facts["seconds"]), float(facts["best_score"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WeightsError(f"{path} lacks a counter that is a number: {error}.") from error
    if not 0 <= step <= MOST_STEPS or not -1 <= validated_at <= step:
        raise WeightsError(f"{path} claims {step} steps and a validation at step {validated_at}.")
    if not 0 <= seconds < math.inf or math.isnan(best_score):
        raise WeightsError(f"{path} claims {seconds:g} seconds and a best score of {best_score}.")
    return step, seconds, best_score, validated_at


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


EIGHT_BITS = torch.float8_e4m3fn
LARGEST = torch.finfo(EIGHT_BITS).max
SCALE = "#scale"
"""What the name of a scale adds to that of its tensor."""
WEIGHTS, AVERAGE = "model/backbone.", "average/"


def packed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, smaller."""
    small: dict[str, Tensor] = {}
    for name, value in tensors.items():
        kind = name.rsplit("/", 1)[-1]
        if name.startswith(WEIGHTS) and value.is_floating_point():
            small[name] = value.half()
        elif name.startswith(AVERAGE):
            small |= _in_eight_bits(name, value - _weight_below(name, tensors).half().float())
        elif kind in ("momentum", "exp_avg"):
            small |= _in_eight_bits(name, value)
        elif kind == "exp_avg_sq":
            small[name] = value.bfloat16()
        else:
            small[name] = value
    return small


def unpacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `packed` was given, to its precision; other tensors are left as they are."""
    large: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.endswith(SCALE):
            continue
        large[name] = value
        if value.dtype is EIGHT_BITS:
            large[name] = value.float() * tensors[name + SCALE]
            if name.startswith(AVERAGE):
                large[name] += _weight_below(name, tensors).float()
    return large


def _weight_below(name: str, tensors: dict[str, Tensor]) -> Tensor:
    return tensors[WEIGHTS + name.removeprefix(AVERAGE)]


def _in_eight_bits(name: str, value: Tensor) -> dict[str, Tensor]:
    scale = (value.abs().amax() / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
    return {name: (value / scale).to(EIGHT_BITS), name + SCALE: scale}
