"""What `prismask calibrate` tells when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismask.inference.intervals.model import INCONSISTENT_MASKS, OLD_NAMES, OTHER_CAMERAS


def found_lines(interval: dict[str, Any], faults: int) -> list[str]:
    """What was found, for people."""
    lines = []
    for kind in ("single", "sampled"):
        if kind not in interval:
            continue
        stored = interval[kind]
        left_out = stored["about"].get("coverage_90_left_out", (float("nan"),) * 3)
        text = f"90 % interval is {stored['quantiles']['0.9']:.3g} × the predicted scale"
        lines.append(f"{kind}: {text}; scenes left out are covered {_spread(left_out)}")
        classes = {
            OLD_NAMES.get(name, name): size for name, size in stored.get("classes", {}).items()
        }
        lines += [f"{kind}, {_class_line(name, size)}" for name, size in classes.items()]
        if faults and INCONSISTENT_MASKS not in classes:
            lines.append(f"{kind}: no wrong mask was found inconsistent; masks will not be probed")
    return lines


def _class_line(name: str, size: dict[str, Any]) -> str:
    """What was found for one class of snapshots."""
    about = size["about"]
    group = {OTHER_CAMERAS: "cameras"}.get(name, "scenes")
    text = f"{name.replace('_', ' ')}: {size['quantiles']['0.9']:.3g} × that scale"
    left_out = about[f"left_out_{group}"].get("0.9")
    if left_out is not None:
        text += f"; {group} left out are covered {_spread(left_out)}"
    if name == INCONSISTENT_MASKS:
        # Fits of the first versions call it doubted.
        found = about.get("inconsistent", about.get("doubted"))
        falsely = about.get("right_inconsistent", about.get("right_doubted"))
        text += (
            f"; {found} of {about['wrong']} wrong masks and {falsely} of {about['right']} right "
            "ones were found inconsistent"
        )
    return text


def _spread(left_out: Sequence[float]) -> str:
    low, mean, high = (100 * value for value in left_out)
    return f"{mean:.1f} % ({low:.1f} to {high:.1f})"
