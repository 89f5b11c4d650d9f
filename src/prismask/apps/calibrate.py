"""`prismask calibrate`: give a network's error bars their honest size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.progress import reporter
from prismask.apps.terminal import say
from prismask.errors import ConfigError
from prismask.scenes.defaults import SIZE

if TYPE_CHECKING:
    from torch import Tensor

    from prismask.inference.engine import Engine
    from prismask.optics.camera import CASSI

MASK_SEED = 977_101
"""Seed of the calibration masks; neither training nor testing draws from it."""


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
    ways: int | None = None,
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
    ways
        How often the network is asked, from now on: 1, or 2 (also mirrored across the dispersion:
        the mean of both is better, and where they differ the error bars grow). [default: as the
        weights say]
    seed
        Seed of noise, samples and what --misplaced does; the masks have one of their own.
    device
        Where to compute: auto, cpu, cuda, cuda:1 or mps.
    overwrite
        Replace the output if it exists.
    """
    from prismask.inference.calibration import calibrate as fit
    from prismask.inference.calibration import misplaced as aside
    from prismask.inference.engine import Engine
    from prismask.models.catalogue import load_model
    from prismask.models.devices import choose_device
    from prismask.models.trained import trained_camera
    from prismask.models.ways import ways_of
    from prismask.scenes.atomic import check_output

    _check(masks, size, samples, noise_std, misplaced)
    check_output(out, overwrite)
    model = load_model(weights)
    if ways is not None:
        model.record["ways"] = ways_of({"ways": ways})
    camera = trained_camera(model.record)
    scenes, apertures, about = _validation(data, model.record, camera, masks, size)
    engine = Engine(model, choose_device(device))
    different = len(about["fitted_on"])
    with reporter() as report:
        interval = fit(
            engine,
            scenes,
            apertures,
            camera,
            # Crops of one scene come after all scenes had their first, and belong together.
            scene_of=[place % different for place in range(len(scenes))],
            samples=samples,
            noise_std=(0.0, noise_std),
            fault=aside(misplaced) if misplaced else None,
            seed=seed,
            progress=report("calibrating"),
        )
    _write(engine, weights, {**interval, **about, "misplaced": misplaced}, out, overwrite)
    for kind in ("single", "sampled"):
        if kind in interval:
            say(f"{kind}: {_line(interval[kind])}")
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


def _validation(
    data: Path | None, record: dict[str, Any], camera: CASSI, masks: int, size: int
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Validation scenes `(N, C, H, W)`, masks `(M, 1, h, w)`, and what they are."""
    import numpy as np
    import torch

    from prismask.evaluation.validation import validation_cubes
    from prismask.scenes.datasets import data_folder, load_scenes

    folder = data_folder(data)
    listed = load_scenes(folder, "validation", wavelengths=record.get("wavelengths_nm"))
    cubes = torch.from_numpy(np.stack([cube.values for cube in listed.values()]))
    scenes = validation_cubes(cubes, size)
    region = _training_region(folder, record)
    apertures = _masks(region, camera.mask_size((scenes.shape[-2], scenes.shape[-1])), masks)
    about = {"fitted_on": list(listed), "crops_of_training_masks": region is not None}
    return scenes, apertures, about


def _masks(region: Tensor | None, size: tuple[int, int], count: int) -> Tensor:
    """`(count, 1, h, w)`: crops of the region and fabricated instruments in turn."""
    import torch

    from prismask.optics.fabricate import fabricate_mask, random_aperture

    generator = torch.Generator().manual_seed(MASK_SEED)
    made = []
    for number in range(count):
        fits = region is not None and region.shape[0] >= size[0] and region.shape[1] >= size[1]
        if region is None or not fits or number % 2:
            made.append(fabricate_mask(size, generator, random_aperture(generator)))
            continue
        free = (region.shape[0] - size[0] + 1, region.shape[1] - size[1] + 1)
        row, column = (int(torch.randint(n, (), generator=generator)) for n in free)
        made.append(region[row : row + size[0], column : column + size[1]])
    return torch.stack(made)[:, None]


def _training_region(folder: Path, record: dict[str, Any]) -> Tensor | None:
    """The region that the training masks were cut from, where the record names one."""
    import torch

    from prismask.scenes.datasets import load_mask_file, read_split

    source = str((record.get("masks") or {}).get("source"))
    places = read_split(folder).masks
    if source not in places:
        return None
    place = places[source]
    values = torch.tensor(load_mask_file(folder, place.file).values)
    rows, columns = record["masks"].get("rows"), record["masks"].get("columns")
    if rows and columns:
        values = values[..., rows[0] : rows[1], columns[0] : columns[1]]
    return values


def _write(
    engine: Engine, weights: str, interval: dict[str, Any], out: Path, overwrite: bool
) -> None:
    import torch

    from prismask.models.weights import save_weights

    record = {**engine.model.record, "interval": interval}
    dtype = getattr(torch, str(record.get("dtype", "float16")))
    saved = save_weights(engine.model, out, record, dtype=dtype, overwrite=overwrite)
    if saved["sha256"] != engine.model.record["sha256"]:
        raise ConfigError(f"the tensors of {weights} changed while they were written to {out}.")


def _line(interval: dict[str, Any]) -> str:
    low, mean, high = interval["about"].get("coverage_90_left_out", (float("nan"),) * 3)
    q = interval["quantiles"]["0.9"]
    return (
        f"90 % interval is {q:.3g} × the predicted scale; scenes left out are covered "
        f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    )
