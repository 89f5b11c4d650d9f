"""What GST brings and what it costs: two runs of the same seed and minutes, with and without.

    python results/gst.py [WITH WITHOUT]

Compares the validation lines of two runs' metrics.jsonl at the same number of θ-steps, by reading
the second curve between its points, and says how far g moves a mask. By default: the pairs in
training/ of twelve minutes with many masks and with one, and of six minutes. Needs no data and no
weights.
"""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent / "training"
PAIRS = (
    (HERE / "twelve-minutes" / "srn-gst", HERE / "twelve-minutes" / "ensemble"),
    (HERE / "twelve-minutes" / "one-mask-srn-gst", HERE / "twelve-minutes" / "one-mask-srn"),
    (HERE / "six-minutes" / "srn-gst-seed-1", HERE / "six-minutes" / "ensemble-seed-1"),
    (HERE / "six-minutes" / "srn-gst-seed-2", HERE / "six-minutes" / "ensemble-seed-2"),
)
GROUPS = ("psnr_seen", "psnr_fabricated")


@dataclass(frozen=True)
class Curve:
    """Validation of one run against the θ-steps it had made."""

    steps: list[int]
    seconds: list[float]
    scores: dict[str, list[float]]


def main() -> None:
    named = [Path(name) for name in sys.argv[1:]]
    if len(named) not in (0, 2):
        raise SystemExit("Name two run folders, with and without GST, or none.")
    for tuned, plain in [(named[0], named[1])] if named else PAIRS:
        print(compared(tuned, plain), end="\n\n")


def compared(tuned: Path, plain: Path) -> str:
    ours, theirs = read_curve(tuned), read_curve(plain)
    text = [f"{tuned.parent.name}, {tuned.name}, PSNR paper [dB] on validation scenes:\n"]
    text += ["| θ-steps | seen, GST − none | fabricated, GST − none |", "|---|---|---|"]
    every = max(1, len(ours.steps) // 7)
    for at, steps in enumerate(ours.steps):
        if at % every == every - 1 or steps == ours.steps[-1]:
            gaps = (
                ours.scores[group][at] - np.interp(steps, theirs.steps, theirs.scores[group])
                for group in GROUPS
            )
            text += [f"| {steps:,} | " + " | ".join(f"{gap:+.2f}" for gap in gaps) + " |"]
    for name, curve in ((tuned.name, ours), (plain.name, theirs)):
        last = " / ".join(f"{curve.scores[group][-1]:.2f}" for group in GROUPS)
        text += [f"\n{name}: {curve.steps[-1]:,} θ-steps in {curve.seconds[-1]:.0f} s, {last} dB"]
    return "\n".join([*text, "", moved_by(tuned)])


def read_curve(folder: Path) -> Curve:
    curve = Curve([], [], {group: [] for group in GROUPS})
    theta_steps = before = 0
    for line in lines(folder):
        if line["event"] == "step":
            theta_steps += (line["phase"] != "phi") * (line["step"] - before)
            before = line["step"]
        elif line["event"] == "validation":
            curve.steps.append(theta_steps)
            curve.seconds.append(line["seconds"])
            for group in GROUPS:
                curve.scores[group].append(line[group])
    return curve


def moved_by(folder: Path) -> str:
    """How far m' = m + g ⊙ ε lies from m in the end, with ε from the run's prior."""
    prior = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))["posterior"]
    g = [line["g_mean"] for line in lines(folder) if "g_mean" in line]
    size = float(np.hypot(prior["prior_mean"], prior["prior_std"]))
    return (
        f"g, mean: {g[0]:.4f} at first, {g[-1]:.4f} in the end; ε ~ N({prior['prior_mean']}, "
        f"{prior['prior_std']}) has size {size:.4f}, so masks move by {g[0] * size:.1e} to "
        f"{g[-1] * size:.1e} of their range"
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


if __name__ == "__main__":
    main()
