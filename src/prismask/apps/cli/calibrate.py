"""`prismask calibrate`: give a network's error bars their honest size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.progress import reporter
from prismask.apps.cli.terminal import say
from prismask.errors import ConfigError
from prismask.scenes.defaults import SIZE

if TYPE_CHECKING:
    from prismask.inference.engine.frame import Engine

CAMERAS = 24
"""Other cameras that an interval is fitted behind, unless people say otherwise."""
FAULTS = 9
"""Faults of the mask that every scene meets, likewise."""


def calibrate(
    weights: str,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    data: Path | None = None,
    masks: int = 8,
    size: int = SIZE,
    samples: int = 8,
    noise_std: float = 0.0,
    misplaced: float = 0.0,
    mirror_ensemble: int | None = None,
    cameras: int = CAMERAS,
    faults: int = FAULTS,
    keep: Annotated[bool, Parameter(negative="")] = False,
    seed: int = 0,
    device: str = "auto",
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Fit the interval of trained weights on validation scenes and masks, and store it with them.

    Parameters
    ----------
    weights
        The weights to calibrate: a path, or a name from `prismask models`.
    out
        The weights file to write: the same tensors, with the interval in the record.
    data
        Folder with the scenes and splits.json; only its validation scenes are used. [default:
        PRISMASK_DATA, or ../shared/data]
    masks
        Validation masks: half of them crops of the training masks, half fabricated.
    size
        Height and width of the scenes' crops.
    samples
        Masks drawn from the posterior, for the interval that goes with --samples; 0: none.
    noise_std
        Largest noise of the snapshots, relative to the cube's range as in evaluate --noise; each
        gets a strength between 0 and this.
    misplaced
        Share of snapshots (0 to 1) whose mask lies up to a pixel beside its calibration, as those
        of real cameras do after a while.
    mirror_ensemble
        Members of the network's mirror ensemble, from now on: 1, or 2 (also run on the snapshot
        mirrored across the dispersion: the mean of both is better, and where they differ the error
        bars grow). [default: as the weights say]
    cameras
        Other cameras than the training's, with more, fewer, closer or wider bands, that are drawn
        to give the interval its size behind such; 0: none, and it will be too narrow there.
    faults
        Faults of the mask (shifted, out of focus, another dispersion) that every scene meets, to
        give the interval its size where a snapshot contradicts its mask; 0: none, and masks are not
        probed.
    keep
        Leave the interval's own size, behind the training's camera, as it is stored with the
        weights, and fit what --cameras and --faults say.
    seed
        Seed of noise, samples and what --misplaced does; the masks have one of their own.
    device
        Where to compute: auto, cpu, cuda, cuda:1 or mps.
    overwrite
        Replace the output if it exists.
    """
    from prismask.apps.cli.calibrate_data import CAMERA_SEED, validation
    from prismask.apps.cli.outputs import refuse_read
    from prismask.inference.engine.frame import Engine
    from prismask.inference.intervals.class_fit import Circumstances
    from prismask.inference.intervals.fit import calibrate as fit
    from prismask.inference.intervals.fit import misplaced as aside
    from prismask.inference.intervals.inconsistent_masks import calibrate_inconsistent_masks
    from prismask.inference.intervals.other_cameras import calibrate_cameras
    from prismask.models.catalogue import find_weights, load_model
    from prismask.models.devices import choose_device
    from prismask.models.mirror_ensemble import KEY, OLD_KEY, ensemble_size
    from prismask.models.trained import trained_camera
    from prismask.scenes.atomic import check_output

    _check(masks, size, samples, noise_std, misplaced)
    _check_classes(cameras, faults, keep, mirror_ensemble)
    check_output(out, overwrite)
    refuse_read([out], find_weights(weights))
    model = load_model(weights)
    if keep and not model.record.get("interval"):
        raise ConfigError(f"{weights} has no interval yet: leave --keep out.")
    if mirror_ensemble is not None:
        model.record[KEY] = ensemble_size({KEY: mirror_ensemble})
        model.record.pop(OLD_KEY, None)
    camera = trained_camera(model.record)
    data_here = validation(data, model.record, camera, masks, size)
    engine = Engine(model, choose_device(device))
    noise = (0.0, noise_std)
    with reporter() as report:
        if not keep:
            fitted = fit(
                engine,
                data_here.scenes,
                data_here.masks,
                camera,
                scene_of=data_here.scene_of,
                samples=samples,
                noise_std=noise,
                fault=aside(misplaced) if misplaced else None,
                seed=seed,
                progress=report("calibrating"),
            )
            model.record["interval"] = {**fitted, **data_here.about, "misplaced": misplaced}
        if cameras:
            model.record["interval"] = calibrate_cameras(
                engine,
                data_here.scenes,
                data_here.wavelengths,
                cameras,
                scene_of=data_here.scene_of,
                names=data_here.about["fitted_on"],
                circumstances=Circumstances(noise, misplaced),
                seed=seed,
                camera_seed=CAMERA_SEED,
                progress=report("other cameras"),
            )
        if faults:
            model.record["interval"] = calibrate_inconsistent_masks(
                engine,
                data_here.scenes,
                data_here.masks,
                faults,
                scene_of=data_here.scene_of,
                names=data_here.about["fitted_on"],
                noise_std=noise,
                seed=seed,
                progress=report("inconsistent masks"),
            )
    _write(engine, weights, out, overwrite)
    for line in found_lines(model.record["interval"], faults):
        say(line)
    say(f"{out}")


def _check(masks: int, size: int, samples: int, noise_std: float, misplaced: float) -> None:
    """Raise for numbers that cannot be; NaN is in no range."""
    if samples == 1 or samples < 0 or masks < 1:
        raise ConfigError("--samples is 0 or at least 2, and --masks at least 1.")
    if size < 1:
        raise ConfigError(f"--size is {size}; crops have at least 1 pixel a side.")
    if not 0 <= noise_std < math.inf:
        raise ConfigError(f"--noise-std is {noise_std:g}; it is 0 (none) or more, and finite.")
    if not 0 <= misplaced <= 1:
        raise ConfigError(f"--misplaced is a share between 0 and 1, not {misplaced:g}.")


def _check_classes(cameras: int, faults: int, keep: bool, ensemble: int | None) -> None:
    if cameras < 0 or cameras == 1:
        raise ConfigError(f"--cameras is {cameras}; it is 0 (none) or at least 2.")
    if faults < 0:
        raise ConfigError(f"--faults is {faults}; it is 0 (none) or more.")
    if keep and not (cameras or faults):
        raise ConfigError("--keep with --cameras 0 and --faults 0 leaves nothing to fit.")
    if keep and ensemble is not None:
        raise ConfigError(
            "--mirror-ensemble changes the network, and so the interval that --keep would leave as "
            "it is: leave one of them out."
        )


def _write(engine: Engine, weights: str, out: Path, overwrite: bool) -> None:
    import torch

    from prismask.models.weights import save_weights

    record = engine.model.record
    dtype = getattr(torch, str(record.get("dtype", "float16")))
    saved = save_weights(engine.model, out, record, dtype=dtype, overwrite=overwrite)
    if saved["sha256"] != engine.model.record["sha256"]:
        raise ConfigError(f"the tensors of {weights} changed while they were written to {out}.")


def found_lines(interval: dict[str, Any], faults: int) -> list[str]:
    """What was found, for people."""
    from prismask.inference.intervals.model import INCONSISTENT_MASKS, OLD_NAMES

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
    from prismask.inference.intervals.model import INCONSISTENT_MASKS, OTHER_CAMERAS

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
    """The range first: it is what a new one may expect, the mean is not."""
    low, mean, high = (100 * value for value in left_out)
    return f"{low:.1f} to {high:.1f} % (mean {mean:.1f})"
