"""`prismask evaluate` and `prismask stress`: models side by side, on masks they have not seen.

Nothing here needs more than torch, NumPy, SciPy and safetensors, so that
`python -m prismask.evaluation` runs the same two commands on a bare GPU machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.apps.cli.progress import reporter
from prismask.apps.cli.scoring_options import (
    DeliveryOptions,
    ProtocolOptions,
    SceneOptions,
    WorkOptions,
    as_arguments,
    words,
)
from prismask.apps.cli.terminal import remark, say

if TYPE_CHECKING:
    from prismask.evaluation.run.runner import Evaluation

SOME_FAILED = 1


def evaluate(
    models: list[str],
    /,
    *,
    out: Path,
    protocol: ProtocolOptions = ProtocolOptions(),
    scenes: SceneOptions = SceneOptions(),
    trials: int = 100,
    seed: int = 0,
    metrics: str | None = None,
    precision: str = "auto",
    delivery: DeliveryOptions = DeliveryOptions(),
    work: WorkOptions = WorkOptions(),
    without_timing: bool = False,
) -> int:
    """Score models side by side on identical measurements: mean ± std over masks.

    What is scored is what `reconstruct` delivers, behind any camera.

    Parameters
    ----------
    models
        Weights files, run folders, fresh networks (srn) or solvers (gap-tv), with options as in
        gap-tv:iterations=30 and labels as in mine=weights.safetensors.
    out
        Folder for tables and record.
    trials
        Masks per group, drawn without replacement; one-to-one has one.
    seed
        Draws masks and noise and starts fresh networks.
    metrics
        Names, separated by commas. [default: all]
    precision
        Of networks: auto (half on a GPU where it moves no PSNR by 0.005 dB), float32 or half.
    without_timing
        Leave out the measurement of each method's speed and memory.
    """
    from prismask.evaluation.run.runner import evaluate as run

    return _told(
        run,
        models,
        out,
        f"{protocol.protocol} evaluation",
        trials=trials,
        seed=seed,
        metrics=tuple(words(metrics) or ()),
        precision=precision,
        timing=not without_timing,
        **as_arguments(protocol, scenes, delivery, work),
    )


def stress(
    models: list[str],
    /,
    *,
    out: Path,
    scenes: SceneOptions = SceneOptions(),
    groups: str | None = None,
    trials: int = 5,
    seed: int = 0,
    faults: str | None = None,
    metrics: str = "psnr_paper,ssim,sam",
    precision: str = "auto",
    delivery: DeliveryOptions = DeliveryOptions(),
    work: WorkOptions = WorkOptions(),
) -> int:
    """Score models on cameras that differ a little from their description.

    Parameters
    ----------
    models
        Weights files, run folders, fresh networks (srn) or solvers (gap-tv).
    out
        Folder for tables and record.
    groups
        Mask groups of the split. [default: those apart from its single mask]
    trials
        Masks per group.
    seed
        Draws masks, directions of faults and noise.
    faults
        shift, rotation, blur, gain, mask_noise, dispersion, measurement_noise, mismatch,
        recalibration, separated by commas. [default: all]
    metrics
        Names, separated by commas.
    precision
        Of networks: auto, float32 or half.
    """
    from prismask.evaluation.run.stress import stress as run

    return _told(
        run,
        models,
        out,
        "stress test",
        groups=words(groups),
        trials=trials,
        seed=seed,
        faults=words(faults),
        metrics=tuple(words(metrics) or ()),
        precision=precision,
        **as_arguments(scenes, delivery, work),
    )


def _told(
    run: Callable[..., Evaluation], models: list[str], out: Path, title: str, **options: Any
) -> int:
    """Run with progress, print the summary; 1 when a reconstruction failed."""
    from prismask.evaluation.run.runs import CELLS

    try:
        with reporter() as report:
            found = run(models, out=out, progress=report(title), **options)
    except KeyboardInterrupt:
        if (out / CELLS).exists():
            remark(f"Finished cells are kept in {out}: give the same command with --resume.")
        raise
    say(found.markdown)
    remark(f"{out}: run.json, scores.csv, summary.csv, summary.md")
    if found.ok:
        return 0
    for failure in found.summary.failures[:5]:
        remark(f"failed: {failure}")
    remark(f"{found.summary.failed} reconstructions failed; all others are in the tables.")
    return SOME_FAILED
