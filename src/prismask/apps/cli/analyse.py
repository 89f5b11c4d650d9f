"""`prismask analyse`: what a score does not tell about a model.

Like `prismask evaluate` it needs no compiled package but torch, NumPy, SciPy and safetensors;
figures are drawn where matplotlib is installed.
"""

from __future__ import annotations

from pathlib import Path

from prismask.apps.cli.scoring_options import ProtocolOptions, SceneOptions, as_arguments
from prismask.apps.cli.terminal import remark, reporter, say

SOME_FAILED = 1


def analyse(
    models: list[str],
    /,
    *,
    out: Path,
    protocol: ProtocolOptions = ProtocolOptions(),
    scenes: SceneOptions = SceneOptions(),
    masks: int = 5,
    samples: int = 8,
    seed: int = 0,
    precision: str = "auto",
    allow_overlap: bool = False,
    without_figures: bool = False,
    overwrite: bool = False,
) -> int:
    """Analyse models: spectra, spread over masks, whether error bars are true, learned noise.

    Parameters
    ----------
    models
        Weights files, run folders, fresh networks (srn) or solvers (gap-tv), with labels as in
        mine=weights.safetensors.
    out
        Folder for numbers (analysis.json), arrays (.npz) and figures.
    masks
        Masks per group, over which the spread is taken; the paper takes 100.
    samples
        Masks drawn from a network's posterior; below 2 there is no spread over samples.
    seed
        Draws masks, samples and noise and starts fresh networks.
    precision
        Of networks: auto, float32 or half.
    allow_overlap
        Analyse models on masks or scenes they were trained on, and mark it.
    without_figures
        Leave the figures out; the report draws them from the arrays anyway.
    overwrite
        Replace the analysis that the folder holds.
    """
    from prismask.evaluation.analyses.runner import analyse as run

    with reporter() as report:
        record = run(
            models,
            out=out,
            masks=masks,
            samples=samples,
            seed=seed,
            precision=precision,
            allow_overlap=allow_overlap,
            figures=not without_figures,
            overwrite=overwrite,
            progress=report("analysis"),
            **as_arguments(protocol, scenes),
        )
    say(str(out / "analysis.json"))
    remark(f"For a page about it: prismask report {out}")
    for failure in record["failures"]:
        remark(f"failed: {failure}")
    return SOME_FAILED if record["failures"] else 0
