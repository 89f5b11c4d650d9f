"""Training curves from a run's metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw_curves(metrics: Path, picture: Path) -> None:
    """Loss, validation PSNR and the range of g against minutes."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    checks = [line for line in lines if line["event"] == "validation"]
    if not steps:
        return
    with_g = [line for line in steps if "g_mean" in line]
    figure, axes = plt.subplots(
        3 if with_g else 2, 1, figsize=(8, 8 if with_g else 6), sharex=True, layout="constrained"
    )
    _loss(axes[0], steps)
    _validation(axes[1], checks)
    if with_g:
        minutes = [line["seconds"] / 60 for line in with_g]
        low, high = ([line[k] for line in with_g] for k in ("g_min", "g_max"))
        axes[2].fill_between(minutes, low, high, color="#4477aa", alpha=0.3, label="range")
        axes[2].plot(minutes, [line["g_mean"] for line in with_g], color="#4477aa", label="mean")
        axes[2].set_ylabel("g (mask std)")
        axes[2].legend(frameon=False)
    axes[-1].set_xlabel("minutes")
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def _loss(axis: Any, steps: list[dict[str, Any]]) -> None:
    for name, phases, colour in (
        ("θ steps", ("warmup", "theta", "joint", "plain"), "#222255"),
        ("φ steps", ("phi",), "#ee7733"),
    ):
        chosen = [line for line in steps if line["phase"] in phases]
        if chosen:
            minutes = [line["seconds"] / 60 for line in chosen]
            axis.plot(minutes, [line["loss"] for line in chosen], ".", ms=2, c=colour, label=name)
    axis.set_yscale("log")
    axis.set_ylabel("loss ℓ")
    axis.legend(frameon=False, markerscale=4)


def _validation(axis: Any, checks: list[dict[str, Any]]) -> None:
    names = sorted({key for line in checks for key in line if key.startswith("psnr_")})
    for name, colour in zip(names, ("#228833", "#aa3377", "#66ccee"), strict=False):
        minutes = [line["seconds"] / 60 for line in checks]
        label = f"{name.removeprefix('psnr_')} masks"
        axis.plot(minutes, [line[name] for line in checks], "o-", ms=3, c=colour, label=label)
    axis.set_ylabel("validation PSNR paper [dB]")
    if names:
        axis.legend(frameon=False)
