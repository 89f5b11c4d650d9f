"""`prismask analyse`: what a score does not tell about a model.

Like `prismask evaluate` it needs torch, NumPy, SciPy and safetensors only; figures are drawn where
matplotlib is installed.
"""

from __future__ import annotations

from pathlib import Path

from prismask.apps.progress import reporter
from prismask.apps.terminal import remark, say

SOME_FAILED = 1


def analyse(
    models: list[str],
    /,
    *,
    out: Path,
    data: Path | None = None,
    protocol: str = "many-to-many",
    masks: int = 5,
    samples: int = 8,
    seed: int = 0,
    groups: str | None = None,
    scenes: str | None = None,
    split: Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    noise: float = 0.0,
    allow_overlap: bool = False,
    resample: bool = False,
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
    data
        The data folder. [default: PRISMASK_DATA, or shared/data nearby]
    protocol
        one-to-one, one-to-many or many-to-many.
    masks
        Masks a group, over which the spread is taken; the paper takes 100.
    samples
        Masks drawn from a network's posterior; below 2 there is no spread over samples.
    seed
        Draws masks, samples and noise and starts fresh networks.
    groups
        Mask groups of the split, separated by commas. [default: those of the protocol]
    scenes
        Scenes of the data folder, or files, separated by commas. [default: the split's test]
    split
        A TOML file that names scenes and masks instead of the data folder's splits.json.
    device
        auto, cpu, cuda or cuda:1.
    precision
        Of networks: auto, float32 or half.
    noise
        Measurement noise, std relative to the cube's range.
    allow_overlap
        Analyse models on masks or scenes they were trained on, and mark it.
    resample
        Bring scenes to the bands of the models.
    without_figures
        Leave the figures out; the report draws them from the arrays anyway.
    overwrite
        Replace the analysis that the folder holds.
    """
    from prismask.evaluation.analyses.runner import analyse as run

    with reporter() as report:
        record = run(
            models,
            data,
            out,
            protocol=protocol,
            masks=masks,
            samples=samples,
            seed=seed,
            split=split,
            scenes=_words(scenes),
            groups=_words(groups),
            device=device,
            precision=precision,
            noise=noise,
            allow_overlap=allow_overlap,
            resample=resample,
            figures=not without_figures,
            overwrite=overwrite,
            progress=report("analysis"),
        )
    say(str(out / "analysis.json"))
    remark(f"For a page about it: prismask report {out}")
    for failure in record["failures"]:
        remark(f"failed: {failure}")
    return SOME_FAILED if record["failures"] else 0


def _words(text: str | None) -> list[str] | None:
    """`a, b` → its parts; None of nothing."""
    return [word.strip() for word in (text or "").split(",") if word.strip()] or None
