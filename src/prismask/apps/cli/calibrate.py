"""`prismask calibrate`: give a network's error bars their honest size.

It uses validation scenes and masks, nothing of the test.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.terminal import reporter, say
from prismask.checks import two_digits
from prismask.errors import ConfigError
from prismask.scenes.defaults import SIZE

if TYPE_CHECKING:
    from torch import Tensor

    from prismask.inference.intervals.evidence import TrustRule
    from prismask.inference.intervals.snapshots import Plan, Rows, Studio
    from prismask.models.network import Reconstructor

SNAPSHOTS = 192
"""Snapshots that an interval is fitted on, unless people say otherwise."""
ROWS = 96
"""Lines of each: rows never mix in the camera, and they are what a network's time goes with."""
TRAINING_SNAPSHOTS = 100
"""Snapshots of scenes that the network learned from, from which the regressor learns besides."""
CAMERAS = 24
"""Other cameras that are drawn."""


def calibrate(
    weights: str,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    data: Path | None = None,
    snapshots: int = SNAPSHOTS,
    training_snapshots: int = TRAINING_SNAPSHOTS,
    rows: int = ROWS,
    size: int = SIZE,
    minutes: float | None = None,
    noise_std: float = 0.05,
    wrong: float = 0.25,
    other: float = 0.25,
    seed: int = 0,
    device: str = "auto",
    cache: Path | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Fit the interval and the trust grade of trained weights, and store both with them.

    Snapshots of validation and training scenes are simulated: unchanged, under lamps, with lines
    and narrow bands added to their spectra, with noise, through wrong masks and with other cameras.
    A small regressor learns from them how wide error bars must be. Each validation scene, which the
    network did not learn from, is judged by a regressor that has not seen it either. The results by
    scene, quarter of the intensities, band and condition are printed and stored.

    Parameters
    ----------
    weights
        The weights to calibrate: a path, or a name from `prismask models`.
    out
        The weights file to write: the same tensors, with the interval in the record.
    data
        Folder with the scenes and splits.json; its test scenes are not used. [default:
        PRISMASK_DATA, or ../shared/data]
    snapshots
        Number of snapshots of validation scenes, shared among the scenes.
    training_snapshots
        Number of snapshots of training scenes, which the regressor also learns from; nothing is
        judged by them. 0: none.
    rows
        Height of each snapshot across the dispersion, in pixels.
    size
        Its width along the dispersion, in pixels.
    minutes
        Reconstruct for about this long at most, then fit. [default: no limit]
    noise_std
        Strongest noise, relative to the cube's range as in evaluate --noise. Three in ten snapshots
        have none, the others between 0.001 and this value.
    wrong
        Share of the snapshots whose mask is shifted or blurred, or whose dispersion is slightly
        off.
    other
        Share of the snapshots from other cameras than that of the training; 0: none, and the
        interval will be too narrow for such cameras.
    seed
        Seed of all random choices.
    device
        Where to compute: auto, cpu, cuda, cuda:1 or mps.
    cache
        Folder for intermediate results; repeat the command to resume from them. [default: next to
        the output; removed at the end]
    overwrite
        Replace the output if it exists.
    """
    from prismask.inference.intervals.learn import fit_record
    from prismask.inference.intervals.snapshots import Plan, collect, folder_for
    from prismask.inference.methods.registry import network_method
    from prismask.inference.options import Options
    from prismask.models.machine import choose_device
    from prismask.models.weights import find_weights, load_model
    from prismask.scenes.atomic import check_output, refuse_read

    if training_snapshots < 0:
        raise ConfigError(f"--training-snapshots is {training_snapshots}; it is 0 or more.")
    if snapshots < 2:
        raise ConfigError(f"--snapshots is {snapshots}; at least 2 are needed, better 100.")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigError(f"--minutes is {minutes:g}; give a number above 0, or leave it out.")
    plan = Plan(rows, size, noise_std, wrong, other, seed)
    check_output(out, overwrite)
    refuse_read([out], find_weights(weights))
    model = load_model(weights)
    cameras = CAMERAS if other else 0
    studio, about = studio_for(data, model.record, plan, cameras)
    method = network_method(model, choose_device(device), Options())
    parent = cache or out.with_name(f"{out.name}.calibrating")
    with reporter() as report:

        def rows_of(which: Studio, count: int) -> list[Rows]:
            # Both share the time, as they share the work.
            total = snapshots + training_snapshots
            seconds = None if minutes is None else 60 * minutes * count / total
            kept, bar = folder_for(parent, method, which), report("reconstructing")
            return collect(method, which, count, kept, seconds=seconds, progress=bar)

        found, seen = rows_of(studio, snapshots), []
        if training_snapshots:
            learned, _ = studio_for(data, model.record, plan, cameras, group="train")
            seen = rows_of(learned, training_snapshots)
        record, fitted, trust = fit_record(
            found, studio, seen=seen, about=about, progress=report("fitting")
        )
    model.record["interval"] = record
    _write(model, weights, out, overwrite)
    for line in found_lines(fitted.scores["0.9"], trust, len(found)):
        say(line)
    if seen:
        say(_learned_line(fitted.interval.about["left_out_of_fit_alone"]["0.9"]))
    if cache is None:
        shutil.rmtree(parent)
    say(f"{out}")


def _write(model: Reconstructor, weights: str, out: Path, overwrite: bool) -> None:
    import torch

    from prismask.models.weights import save_weights

    dtype = getattr(torch, str(model.record.get("dtype", "float16")))
    saved = save_weights(model, out, model.record, dtype=dtype, overwrite=overwrite)
    if saved["sha256"] != model.record["sha256"]:
        raise ConfigError(f"the tensors of {weights} changed while they were written to {out}.")


def found_lines(scores: Mapping[str, Any], trust: TrustRule, snapshots: int) -> list[str]:
    """What was found on scenes that were left out, for people."""
    said = scores["summary"]
    structures = scores["structures"]
    lines = [
        f"90 % interval on scenes that were left out, {snapshots} snapshots: "
        f"{_percent(said['mean'])} inside on average over scenes; worst scene "
        f"{_percent(said['worst_scene'])}, worst quarter of a scene's intensities "
        f"{_percent(said['worst_quarter'])}, worst fourteenth of its spectrum "
        f"{_percent(said['worst_band'])}, worst tenth of the snapshots below "
        f"{_percent(said['worst_tenth'])}; {two_digits(100 * said['width'])} % of the brightness "
        "wide",
    ]
    for title, found in (
        ("by scene", scores["scenes"]),
        ("by condition", scores["conditions"]),
        ("by light", scores["lights"]),
        ("at planted structures", structures),
        ("by noise", scores["noise"]),
    ):
        listed = ", ".join(f"{name} {_percent(share)}" for name, share in found.items())
        lines.append(f"{title}: {listed}")
    quarters = ", ".join(
        f"{name} {'/'.join(f'{100 * share:.0f}' for share in four)}"
        for name, four in scores["quarters"].items()
    )
    lines.append(f"by quarter of the intensities, dark to bright, in %: {quarters}")
    widths = ", ".join(f"{name} {100 * width:.3g} %" for name, width in scores["widths"].items())
    lines.append(f"mean width, relative to the snapshot's brightness: {widths}")
    about = trust.about
    lines.append(
        f"trust: {about['right_not_trusted']} of {about['right']} snapshots with right masks "
        f"would not be trusted; a solver would be taken for {about['solver_taken']} "
        f"of all, {about['solver_taken_wrongly']} times wrongly"
    )
    return lines


def _learned_line(summary: Mapping[str, Any]) -> str:
    """What was found on scenes that the network itself has learned from."""
    return (
        "scenes that the network learned from, left out of the fit alone: "
        f"{_percent(summary['mean'])} inside on average, worst scene "
        f"{_percent(summary['worst_scene'])}, worst quarter {_percent(summary['worst_quarter'])}, "
        f"worst fourteenth {_percent(summary['worst_band'])}; errors are smaller there, so new "
        "scenes are not held as well"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


CAMERA_SEED = 977_201
"""Seed of the other cameras; neither training nor testing draws from it."""
TRAINING_SEED = 7
"""Added to the seed of a plan for snapshots of training scenes."""


def studio_for(
    data: Path | None, record: dict[str, Any], plan: Plan, cameras: int, group: str = "validation"
) -> tuple[Studio, dict[str, Any]]:
    """Scenes of a group, the region that the training masks came from, other cameras; and what they
    are, for the record.

    From those of `validation` the network itself did not learn (its mask posterior may have).
    """
    from prismask.inference.intervals.snapshots import HELD_OUT, Studio, draw_cameras
    from prismask.models.weights import trained_camera
    from prismask.scenes.datasets import data_folder, load_scenes

    folder = data_folder(data)
    scenes = load_scenes(folder, group, wavelengths=record.get("wavelengths_nm"))
    if group != "validation":
        plan = replace(plan, seed=plan.seed + TRAINING_SEED)
    own, region = trained_camera(record), _training_region(folder, record)
    others = draw_cameras(record, cameras, CAMERA_SEED)
    about = {
        "fitted_on": list(scenes),
        "crops_of_training_masks": region is not None,
        "lamps_held_out": list(HELD_OUT),
        "camera_seed": CAMERA_SEED,
    }
    return Studio(plan, scenes, own, others, region), about


def _training_region(folder: Path, record: dict[str, Any]) -> Tensor | None:
    """The region that the training masks were cut from, where the record names one."""
    import torch

    from prismask.scenes.datasets import load_mask_file, read_split

    source = str((record.get("masks") or {}).get("source"))
    regions = read_split(folder).masks
    if source not in regions:
        return None
    region = regions[source]
    values = torch.tensor(load_mask_file(folder, region.file).values)
    rows, columns = record["masks"].get("rows"), record["masks"].get("columns")
    if rows and columns:
        values = values[..., rows[0] : rows[1], columns[0] : columns[1]]
    return values
