"""`prismask evaluate` and `prismask stress`: models side by side, on masks they have not seen.

Nothing here needs more than torch, NumPy, SciPy and safetensors, so that
`python -m prismask.evaluation` runs the same two commands on a bare GPU machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.apps.progress import reporter
from prismask.apps.terminal import remark, say

if TYPE_CHECKING:
    from prismask.evaluation.runner import Evaluation

SOME_FAILED = 1


def evaluate(
    models: list[str],
    /,
    *,
    out: Path,
    protocol: str = "many-to-many",
    data: Path | None = None,
    trials: int = 100,
    seed: int = 0,
    metrics: str | None = None,
    groups: str | None = None,
    scenes: str | None = None,
    split: Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    batch: int = 10,
    noise: float = 0.0,
    workers: int = 1,
    threads: int | None = None,
    dask: str | None = None,
    resume: bool = False,
    allow_overlap: bool = False,
    resample: bool = False,
    without_timing: bool = False,
) -> int:
    """Score models side by side on identical measurements: mean ± std over masks.

    Parameters
    ----------
    models
        Weights files, run folders, fresh networks (srn) or solvers (gap-tv), with options as in
        gap-tv:iterations=30 and labels as in mine=weights.safetensors.
    out
        Folder for tables and record.
    protocol
        one-to-one, one-to-many or many-to-many.
    data
        The data folder. [default: PRISMASK_DATA, or shared/data nearby]
    trials
        Masks a group, drawn without replacement; one-to-one has one.
    seed
        Draws masks and noise and starts fresh networks.
    metrics
        Names, separated by commas. [default: all]
    groups
        Mask groups of the split, separated by commas. [default: those of the protocol]
    scenes
        Scenes of the data folder, or files, separated by commas. [default: the split's test]
    split
        A TOML file that names scenes and masks instead of the data folder's splits.json.
    device
        auto, cpu, cuda or cuda:1.
    precision
        Of networks: auto (half on a GPU where it moves no PSNR by 0.005 dB), float32 or half.
    batch
        Scenes that go through a model at once.
    noise
        Measurement noise, std relative to the cube's range.
    workers
        Processes on this machine.
    threads
        CPU threads a process. [default: the cores shared out]
    dask
        Address of a Dask scheduler, or local.
    resume
        Go on with the run that the folder holds.
    allow_overlap
        Test models on masks or scenes they were trained on, and mark it beside the score.
    resample
        Bring scenes to the bands of the models.
    without_timing
        Leave out the measurement of each method's speed and memory.
    """
    from prismask.evaluation.runner import evaluate as run

    return _told(
        run,
        models,
        out,
        f"{protocol} evaluation",
        data=data,
        split=split,
        scenes=_words(scenes),
        groups=_words(groups),
        resume=resume,
        protocol=protocol,
        trials=trials,
        seed=seed,
        metrics=tuple(_words(metrics) or ()),
        device=device,
        precision=precision,
        batch=batch,
        noise=noise,
        workers=workers,
        threads=threads,
        dask=dask,
        allow_overlap=allow_overlap,
        resample=resample,
        timing=not without_timing,
    )


def stress(
    models: list[str],
    /,
    *,
    out: Path,
    data: Path | None = None,
    trials: int = 5,
    seed: int = 0,
    faults: str | None = None,
    metrics: str = "psnr_paper,ssim,sam",
    groups: str | None = None,
    scenes: str | None = None,
    split: Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    batch: int = 10,
    workers: int = 1,
    threads: int | None = None,
    dask: str | None = None,
    resume: bool = False,
    allow_overlap: bool = False,
    resample: bool = False,
) -> int:
    """Score models on cameras that are not quite what they are told.

    Parameters
    ----------
    models
        Weights files, run folders, fresh networks (srn) or solvers (gap-tv).
    out
        Folder for tables and record.
    data
        The data folder. [default: PRISMASK_DATA, or shared/data nearby]
    trials
        Masks a group.
    seed
        Draws masks, directions of faults and noise.
    faults
        shift, rotation, blur, gain, mask_noise, dispersion, measurement_noise, mismatch,
        recalibration, separated by commas. [default: all]
    metrics
        Names, separated by commas.
    groups
        Mask groups of the split. [default: those apart from its single mask]
    scenes
        Scenes of the data folder, or files, separated by commas. [default: the split's test]
    split
        A TOML file that names scenes and masks instead of the data folder's splits.json.
    device
        auto, cpu, cuda or cuda:1.
    precision
        Of networks: auto, float32 or half.
    batch
        Scenes that go through a model at once.
    workers
        Processes on this machine.
    threads
        CPU threads a process. [default: the cores shared out]
    dask
        Address of a Dask scheduler, or local.
    resume
        Go on with the run that the folder holds.
    allow_overlap
        Test models on masks or scenes they were trained on, and mark it beside the score.
    resample
        Bring scenes to the bands of the models.
    """
    from prismask.evaluation.stress import stress as run

    return _told(
        run,
        models,
        out,
        "stress test",
        data=data,
        split=split,
        scenes=_words(scenes),
        groups=_words(groups),
        faults=_words(faults),
        resume=resume,
        trials=trials,
        seed=seed,
        metrics=tuple(_words(metrics) or ()),
        device=device,
        precision=precision,
        batch=batch,
        workers=workers,
        threads=threads,
        dask=dask,
        allow_overlap=allow_overlap,
        resample=resample,
    )


def _told(
    run: Callable[..., Evaluation], models: list[str], out: Path, title: str, **options: Any
) -> int:
    """Run with progress, print the summary; 1 when a reconstruction failed."""
    from prismask.evaluation.runs import CELLS

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


def _words(text: str | None) -> list[str] | None:
    """`a, b` → its parts; None of nothing."""
    return [word.strip() for word in (text or "").split(",") if word.strip()] or None
