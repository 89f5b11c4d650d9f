"""`prismask models`: weights that ship, networks to train, solvers that need no training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.terminal import say, table

if TYPE_CHECKING:
    from prismask.models.weights import Shipped


def models(
    weights: str | None = None,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """List trained weights, backbones and solvers, or show the record of one weights file.

    Parameters
    ----------
    weights
        Weights to show in full: a name from the list, or the path of a file.
    as_json
        Print one JSON object with everything.
    """
    if weights is not None:
        record = _record(weights)
        say(json.dumps(record, indent=2) if as_json else table(_record_rows(record)))
        return
    shipped, backbones = _shipped(), _backbones()
    if as_json:
        found = {"weights": shipped, "backbones": backbones, "solvers": dict(_solvers())}
        say(json.dumps(found, indent=2))
        return
    say(_weights_text(shipped))
    say("")
    say(
        "Backbones to train, with parameters, multiply-adds and speed for a scene of 256×256 and "
        f"28 bands\n({_speeds_text()} on one H200).\n"
        "A + after a name adds the normalised snapshot and the mask to the inputs."
    )
    say(table([(one["name"], _backbone_line(one)) for one in backbones], indent="  "))
    say("")
    say("Solvers (for --method), which need no training:")
    say(table(_solvers(), indent="  "))


def _solvers() -> list[tuple[str, str]]:
    from prismask.solvers.registry import SUMMARIES, list_solvers

    return [(name, SUMMARIES[name]) for name in list_solvers()]


def _record(weights: str) -> dict[str, Any]:
    from prismask.models.weights import find_weights, load_weights

    # Loading checks the hash and the architecture; a record alone could promise anything.
    return load_weights(find_weights(weights)).record


def _shipped() -> list[dict[str, Any]]:
    from prismask.models.weights import shipped

    return [_facts(one) for one in shipped()]


INTERVALS = ("learned",)
"""Kinds of interval that a record may have."""


def _facts(one: Shipped) -> dict[str, Any]:
    from prismask.models.weights import serves_any_camera

    stored = one.record.get("interval") or {}
    return {
        "name": one.name,
        "default": one.is_default,
        "backbone": one.record["backbone"],
        "bands": one.record["bands"],
        "any_camera": serves_any_camera(one.record),
        "posterior": one.record["posterior"]["kind"],
        "megabytes": round(Path(one.path).stat().st_size / 1e6, 2),
        "kaist": one.record.get("kaist"),
        "interval": sorted(kind for kind in stored if kind in INTERVALS),
        "interval_classes": {
            kind: sorted(stored[kind].get("classes", {})) for kind in INTERVALS if kind in stored
        },
        "sha256": one.record["sha256"],
    }


def _backbones() -> list[dict[str, Any]]:
    import torch

    from prismask.models.registry import (
        backbone,
        count_multiply_adds,
        count_parameters,
        create_model,
        list_models,
    )
    from prismask.models.weights import shipped
    from prismask.optics.camera import CASSI

    rows = []
    for name in (name for name in list_models() if not name.endswith("+")):
        # Shapes only: nothing is computed and nothing allocated.
        with torch.device("meta"):
            network = create_model(name)
        found = backbone(name)
        rows.append(
            {
                "name": name,
                "parameters": count_parameters(network.backbone),
                "multiply_adds": count_multiply_adds(network, CASSI.from_step()),
                "speed": found.speed,
                "summary": found.summary,
                "paper": found.paper,
                "weights": [one.name for one in shipped() if one.record["backbone"] == name],
            }
        )
    return rows


def _backbone_line(one: dict[str, Any]) -> str:
    size = f"{one['parameters'] / 1e6:6.2f} M {one['multiply_adds'] / 1e9:6.1f} G"
    trained = f"; weights: {', '.join(one['weights'])}" if one["weights"] else ""
    return f"{size}  {one['speed']:6}  {one['paper']}{trained}"


def _speeds_text() -> str:
    from prismask.models.registry import SPEEDS

    *quicker, slowest = SPEEDS
    limits = [f"{name}: below {SPEEDS[name]:g} ms" for name in quicker]
    return f"{', '.join(limits)}, {slowest}: longer,"


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
        f"{one['backbone']}, {'any camera' if one['any_camera'] else str(one['bands']) + ' bands'}",
        f"posterior {one['posterior']}",
        f"{one['megabytes']:g} MB",
        *_score_parts(one["kaist"]),
        f"interval: {', '.join(one['interval']) or 'none'}",
        *_class_parts(one["interval_classes"]),
    ]
    return "; ".join(parts) + ("  (default)" if one["default"] else "")


def _class_parts(classes: dict[str, list[str]]) -> list[str]:
    """What else its intervals were fitted for."""
    listed = sorted({name.replace("_", " ") for names in classes.values() for name in names})
    return [f"also for {' and '.join(listed)}"] if listed else []


def _score_parts(kaist: dict[str, list[float]] | None) -> list[str]:
    """Means over masks and scenes, of every group of masks they were scored with."""
    from prismask.evaluation.protocol.splits import GROUP_TEXTS

    scores = [f"{mean:.2f} ({GROUP_TEXTS.get(at, at)})" for at, (mean, _) in (kaist or {}).items()]
    return [f"KAIST, PSNR paper [dB]: {', '.join(scores)}"] if scores else []


def _record_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for key, value in record.items():
        # Sentences are for people and stay whole; --json shows all of the rest.
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        is_long = not isinstance(value, str) and len(text) > 100
        rows.append((key, f"{text[:99]}… (--json shows all)" if is_long else text))
    return rows
