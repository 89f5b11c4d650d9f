"""`prismask models`: trained weights that ship, and the networks one can train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.terminal import say, table

if TYPE_CHECKING:
    from prismask.inference.catalogue import Shipped


def models(
    weights: str | None = None,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """List trained weights and backbones, or show the record of one weights file.

    Parameters
    ----------
    weights
        The name of shipped weights, or the path of a weights file, to show in full.
    as_json
        Print one JSON object with everything.
    """
    if weights is not None:
        record = _record(weights)
        say(json.dumps(record, indent=2) if as_json else table(_record_rows(record)))
        return
    shipped, backbones = _shipped(), _backbones()
    if as_json:
        say(json.dumps({"weights": shipped, "backbones": backbones}, indent=2))
        return
    say(_weights_text(shipped))
    say("")
    say("Backbones (for `prismask train`; a + also sees the normalised snapshot and the mask):")
    rows = [(one["name"], f"{one['parameters'] / 1e6:.2f} M  {one['paper']}") for one in backbones]
    say(table(rows, indent="  "))


def _record(weights: str) -> dict[str, Any]:
    from prismask.inference.catalogue import find_weights
    from prismask.models.weights import load_weights

    # Loading checks the hash and the architecture; a record alone could promise anything.
    return load_weights(find_weights(weights)).record


def _shipped() -> list[dict[str, Any]]:
    from prismask.inference.catalogue import shipped

    return [_facts(one) for one in shipped()]


def _facts(one: Shipped) -> dict[str, Any]:
    stored = one.record.get("interval") or {}
    return {
        "name": one.name,
        "default": one.is_default,
        "backbone": one.record["backbone"],
        "bands": one.record["bands"],
        "posterior": one.record["posterior"]["kind"],
        "megabytes": round(Path(one.path).stat().st_size / 1e6, 2),
        "scores": one.record.get("scores"),
        "interval": sorted(kind for kind in stored if kind in ("single", "sampled")),
        "sha256": one.record["sha256"],
    }


def _backbones() -> list[dict[str, Any]]:
    import torch

    from prismask.models.complexity import count_parameters
    from prismask.models.registry import backbone, create_model, list_models

    rows = []
    for name in list_models():
        with torch.device("meta"):
            network = create_model(name).backbone
        paper = backbone(name.removesuffix("+")).paper
        rows.append({"name": name, "parameters": count_parameters(network), "paper": paper})
    return rows


def _weights_text(shipped: list[dict[str, Any]]) -> str:
    if not shipped:
        return (
            "No trained weights ship with this version: `prismask reconstruct` uses gap-tv.\n"
            "Your own: --model PATH of a .safetensors file that `prismask train` wrote."
        )
    rows = [(one["name"], _weights_line(one)) for one in shipped]
    return f"Trained weights (for --model):\n{table(rows, indent='  ')}"


def _weights_line(one: dict[str, Any]) -> str:
    parts = [
        f"{one['backbone']}, {one['bands']} bands",
        f"posterior {one['posterior']}",
        f"{one['megabytes']:g} MB",
        *_score_parts(one["scores"]),
        f"interval: {', '.join(one['interval']) or 'none'}",
    ]
    return "; ".join(parts) + ("  (default)" if one["default"] else "")


def _score_parts(scores: Any) -> list[str]:
    if not isinstance(scores, dict):
        return []
    return [f"{name} {value:g}" for name, value in scores.items() if isinstance(value, int | float)]


def _record_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for key, value in record.items():
        text = value if isinstance(value, str) else json.dumps(value)
        rows.append((key, text if len(text) <= 100 else f"{text[:99]}…"))
    return rows
