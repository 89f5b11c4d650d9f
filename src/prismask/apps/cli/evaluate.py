"""`prismask evaluate`, `stress` and `spectra-test`: models side by side, on unseen masks.

No compiled package but torch, NumPy, SciPy and safetensors is needed, so that the commands run on
a machine that has nothing else (CONTRIBUTING, "Where little is installed").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.apps.cli.scoring_options import (
    DeliveryOptions,
    ProtocolOptions,
    SceneOptions,
    WorkOptions,
    as_arguments,
    read_camera,
    read_faults,
    words,
)
from prismask.apps.cli.terminal import remark, reporter, say

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
        Names, separated by commas; inside is the share of true values within the 90 % interval.
        [default: all but inside]
    precision
        Of networks: auto (half on a GPU where it moves no PSNR by 0.005 dB), float32 or half.
    without_timing
        Leave out the measurement of each method's speed and memory.
    """
    from prismask.evaluation.run.runner import evaluate as run

    return _run(
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
        Mask groups of the split, or fabricated. [default: those apart from its single mask]
    trials
        Masks per group.
    seed
        Draws masks, directions of faults and noise.
    faults
        shift, rotation, blur, gain, mask_noise, dispersion, measurement_noise, mismatch,
        recalibration, separated by commas, with sizes as in shift=0.5,1,blur=0.7. [default: all,
        each in its usual sizes]
    metrics
        Names, separated by commas.
    precision
        Of networks: auto, float32 or half.
    """
    from prismask.evaluation.run.stress import stress as run

    return _run(
        run,
        models,
        out,
        "stress test",
        groups=words(groups),
        trials=trials,
        seed=seed,
        **read_faults(faults),
        metrics=tuple(words(metrics) or ()),
        precision=precision,
        **as_arguments(scenes, delivery, work),
    )


def spectra_test(
    models: list[str],
    /,
    *,
    out: Path,
    data: Path | None = None,
    groups: str | None = None,
    features: str | None = None,
    trials: int | None = None,
    size: int | None = None,
    noise: float = 0.0,
    level: float = 0.9,
    seed: int = 0,
    camera: str | None = None,
    device: str = "auto",
    quick: bool = False,
    resume: bool = False,
) -> int:
    """Measure what models make of spectra with structure: lines, dips, lamps, lasers.

    A structure is planted into drawn and validation scenes, photographed through fabricated masks
    and reconstructed as `reconstruct` does it, with its interval.

    Parameters
    ----------
    models
        Weights files, run folders, fresh networks (srn) or solvers (gap-tv).
    out
        Folder for tables and record.
    data
        The data folder. [default: PRISMASK_DATA, or shared/data nearby; without one, drawn scenes
        alone]
    groups
        drawn, validation, separated by commas. [default: both]
    features
        smooth, line, cosine, dips, laser, lamp, separated by commas. [default: all]
    trials
        Masks per group, each with a scene of its own. [default: 4]
    size
        Height and width of the scenes in pixels. [default: 128]
    noise
        Measurement noise: std on 2/C times the snapshot of C bands, so relative to the cube's range
        (white is 1).
    level
        Level of the interval.
    seed
        Draws scenes, masks, structures and noise.
    camera
        The camera, as in step=3,axis=height. [default: 28 bands, 2 px per band along the width]
    device
        auto, cpu, cuda or cuda:1.
    quick
        One structure of each kind in one trial of 64 pixels, to try it out.
    resume
        Go on with the run that the folder holds.
    """
    from prismask.evaluation.run.spectra import spectra_test as run

    sizes = {"trials": trials, "size": size}
    given = {name: value for name, value in sizes.items() if value is not None}
    with _resumable(out), reporter() as report:
        found = run(
            models,
            data,
            out,
            groups=words(groups),
            kinds=words(features),
            camera=None if camera is None else read_camera(camera),
            device=device,
            quick=quick,
            resume=resume,
            progress=report("test of spectra"),
            noise=noise,
            level=level,
            seed=seed,
            **given,
        )
    say(found.markdown)
    remark(f"{out}: spectra.json, scores.csv, summary.csv, summary.md")
    for failure in found.failures[:5]:
        remark(f"failed: {failure}")
    return SOME_FAILED if found.failures else 0


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Say at an interruption that what is finished is kept."""
    from prismask.evaluation.run.runs import CELLS

    try:
        yield
    except KeyboardInterrupt:
        if (out / CELLS).exists():
            remark(f"Finished cells are kept in {out}: give the same command with --resume.")
        raise


def _run(
    run: Callable[..., Evaluation], models: list[str], out: Path, title: str, **options: Any
) -> int:
    """Run with progress, print the summary; 1 when a reconstruction failed."""
    with _resumable(out), reporter() as report:
        found = run(models, out=out, progress=report(title), **options)
    say(found.markdown)
    remark(f"{out}: run.json, scores.csv, summary.csv, summary.md")
    if found.ok:
        return 0
    for failure in found.summary.failures[:5]:
        remark(f"failed: {failure}")
    remark(f"{found.summary.failed} reconstructions failed; all others are in the tables.")
    return SOME_FAILED
