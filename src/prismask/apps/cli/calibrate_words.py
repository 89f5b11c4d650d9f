"""What `prismask calibrate` tells when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismask.inference.intervals.model import DOUBTED_MASKS, OTHER_CAMERAS


def found_lines(interval: dict[str, Any], doubts: int) -> list[str]:
    """What was found, for people."""
    lines = []
    for kind in ("single", "sampled"):
        if kind not in interval:
            continue
        stored = interval[kind]
        left_out = stored["about"].get("coverage_90_left_out", (float("nan"),) * 3)
        text = f"90 % interval is {stored['quantiles']['0.9']:.3g} × the predicted scale"
        lines.append(f"{kind}: {text}; scenes left out are covered {_spread(left_out)}")
        classes = stored.get("classes", {})
        lines += [f"{kind}, {_class_line(name, size)}" for name, size in classes.items()]
        if doubts and DOUBTED_MASKS not in classes:
            lines.append(
                f"{kind}: no wrong mask was found out; snapshots will not be asked about theirs"
            )
    return lines


def _class_line(name: str, size: dict[str, Any]) -> str:
    """What was found for one class of snapshots."""
    about = size["about"]
    group = {OTHER_CAMERAS: "cameras"}.get(name, "scenes")
    text = f"{name.replace('_', ' ')}: {size['quantiles']['0.9']:.3g} × that scale"
    left_out = about[f"left_out_{group}"].get("0.9")
    if left_out is not None:
        text += f"; {group} left out are covered {_spread(left_out)}"
    if name == DOUBTED_MASKS:
        text += (
            f"; {about['doubted']} of {about['wrong']} wrong masks were found out, and "
            f"{about['right_doubted']} of {about['right']} right ones doubted"
        )
    return text


def _spread(left_out: Sequence[float]) -> str:
    low, mean, high = (100 * value for value in left_out)
    return f"{mean:.1f} % ({low:.1f} to {high:.1f})"
