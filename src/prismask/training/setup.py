"""From a configuration to everything a run needs: device, scenes, masks, model, records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.checks import size_text
from prismask.errors import ConfigError, ShapeError
from prismask.models.machine import commit, device_name, versions
from prismask.models.network import Reconstructor, works_from_snapshot
from prismask.models.registry import create_model
from prismask.models.weights import fill_from, find_weights, read_record, trained_with
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.masks import MaskRegion, check_disjoint
from prismask.optics.randomness import seed_of
from prismask.optics.shear import offsets_from_step
from prismask.optics.varied_prism import PrismFamily
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, array_hash, check_wavelengths
from prismask.training.config import CameraConfig, TrainConfig
from prismask.training.data.crops import SceneBank
from prismask.training.data.masks import MaskSource
from prismask.training.teacher import teacher_record


@dataclass(frozen=True, eq=False)
class GivenData:
    """Scenes and a mask that are in memory, instead of those that the configuration names."""

    train: Sequence[Cube] = ()
    """Scenes of one size with the camera's bands; none: as configured."""
    validation: Sequence[Cube] = ()
    """Scenes of φ-phases and of selection, of one size."""
    mask: Mask | None = None
    """Where masks are cut from; None: as configured."""

    def stacked(self, bands: int) -> tuple[Any, Any, dict[str, list[str]]]:
        """Both sets as arrays `(N, C, H, W)`, and their names."""
        both = [self._stack(cubes, bands) for cubes in (self.train, self.validation)]
        names = [f"given{i:02d}" for i in range(len(self.train) + len(self.validation))]
        split = {"train": names[: len(self.train)], "validation": names[len(self.train) :]}
        return both[0], both[1], split

    @staticmethod
    def _stack(cubes: Sequence[Cube], bands: int) -> Any:
        for cube in cubes:
            if cube.values.shape != (bands, *cubes[0].size):
                raise ShapeError(
                    f"a scene is {size_text(cube.values.shape)}; the configured camera has {bands} "
                    f"bands and the first scene is {size_text(cubes[0].size)}. Crop scenes to one "
                    "size, resample them, or set camera.bands."
                )
        return np.stack([cube.values for cube in cubes]) if cubes else np.empty((0,), np.float32)


@dataclass(frozen=True)
class Prepared:
    """What was loaded for a run."""

    camera: CASSI
    """As the record and the validation know it."""
    measuring: CASSI | PrismFamily
    """What measures crops: the same, or a family of which every step draws another one."""
    train_scenes: Tensor
    """`(N, C, H, W)` on the device."""
    validation_scenes: Tensor
    """The scenes of φ-phases and of selection."""
    region: MaskRegion | None
    """Where training masks are cut from, if not fabricated."""
    masks: MaskSource
    record: dict[str, Any]
    """Hashes, names and versions for the run folder and the weights."""

    def bank(self, scenes: Tensor, config: TrainConfig) -> SceneBank:
        """Scenes ready to be cropped."""
        data = config.data
        return SceneBank(scenes, data.crop, data.scale[0], data.resampling)


def prepare(
    config: TrainConfig,
    device: torch.device,
    earlier: Mapping[str, Any] | None = None,
    given: GivenData | None = None,
) -> Prepared:
    """Load scenes and masks onto the device and check that they fit the configuration.

    earlier: the record of a run that is taken up at its checkpoint.
    given: data in memory, instead of what the configuration names.
    """
    camera = build_camera(config.camera)
    has_scenes = given is not None and len(given.train) > 0
    train, validation, names = (
        given.stacked(camera.bands) if given is not None and has_scenes else _scenes(config)
    )
    if len(train) < 1 or len(validation) < 1:
        raise ConfigError("training needs at least one training and one validation scene.")
    region = _mask_region(config, None if given is None else given.mask)
    size = camera.mask_size(config.data.crop)
    pixels = None if region is None else torch.tensor(region.values, device=device)
    needs_fabricated = region is None or config.masks.fabricated_share > 0
    fabricated = _fabricated(config, size).to(device) if needs_fabricated else None
    record = {
        "name": config.name,
        "seed": config.seed,
        "wavelengths_nm": list(wavelengths(config.camera)),
        **trained_with(camera),
        **_variation(config.camera),
        "data": {"source": "given" if has_scenes else config.data.source, **names},
        "scenes_sha256": {"train": array_hash(train), "validation": array_hash(validation)},
        "masks": _mask_record(region, config),
        "versions": versions(),
        "commit": commit(),
        "device": device_name(device),
        **_origin(config, earlier or {}),
        **teacher_record(config),
    }
    return Prepared(
        camera,
        _measuring(camera, config.camera, device),
        torch.from_numpy(train).to(device),
        torch.from_numpy(validation).to(device),
        region,
        MaskSource(pixels, fabricated, size, config.masks),
        record,
    )


def build_model(config: TrainConfig, device: torch.device, fresh: bool = True) -> Reconstructor:
    """The configured network with its seeded start, or with the weights it goes on from.

    fresh: False where a checkpoint fills it. The file it once started from may be gone by then.
    """
    posterior = asdict(config.posterior)
    model = create_model(
        config.model.backbone,
        bands=config.camera.bands,
        mask_posterior=posterior.pop("kind"),
        inputs=config.model.inputs or None,
        posterior_options=posterior,
        seed=seed_of(config.seed, "weights"),
        **config.model.options,
    )
    if config.camera.more_bands and not works_from_snapshot(model.backbone):
        raise ConfigError(
            f"camera.more_bands is for networks that serve any band count; {config.model.backbone} "
            f"is built for {config.camera.bands}. Leave it empty, or train lumen."
        )
    if fresh and config.model.start_from:
        fill_from(model, find_weights(config.model.start_from))
    model.to(device)
    if device.type == "cuda":
        # Convolutions in bf16 run on tensor cores in this layout.
        model.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def build_camera(config: CameraConfig) -> CASSI:
    """The camera that measures the crops, along the width."""
    offsets = config.offsets or offsets_from_step(config.bands, config.step)
    return CASSI(offsets, design=config.design)  # type: ignore[arg-type]  # its check names both


def wavelengths(config: CameraConfig) -> tuple[float, ...]:
    """Those given, else the field's for 28 bands, else as many equal steps over the same range."""
    if config.wavelengths:
        return tuple(check_wavelengths(config.wavelengths, config.bands).tolist())
    if config.bands == BANDS:
        return WAVELENGTHS_NM
    first, last = WAVELENGTHS_NM[0], WAVELENGTHS_NM[-1]
    return tuple(np.linspace(first, last, config.bands).round(3).tolist())


def _measuring(nominal: CASSI, config: CameraConfig, device: torch.device) -> CASSI | PrismFamily:
    if not config.is_varied:
        return nominal
    return PrismFamily(
        nominal, config.spread, config.bend, config.jitter, device, config.varied_share
    )


def _variation(config: CameraConfig) -> dict[str, Any]:
    """What a record says besides the camera's own offsets, where steps differed from it."""
    counts = {"band_counts": list(config.more_bands)} if config.more_bands else {}
    if not config.is_varied:
        return counts
    jitter = {"jitter": config.jitter} if config.jitter else {}
    return {**counts, "spread": list(config.spread), "bend": config.bend, **jitter}


def _scenes(config: TrainConfig) -> tuple[Any, Any, dict[str, list[str]]]:
    grid = wavelengths(config.camera)
    if config.data.source == "synthetic":
        from prismask.scenes.synthetic.demo import random_scene

        size = (config.data.synthetic_size,) * 2
        count = config.data.synthetic_scenes
        total = count + max(1, count // 3)
        made = [random_scene(config.seed * 1000 + i, size, grid).values for i in range(total)]
        names = [f"synthetic{i:02d}" for i in range(total)]
        split = {"train": names[:count], "validation": names[count:]}
        return np.stack(made[:count]), np.stack(made[count:]), split
    from prismask.scenes.datasets import data_folder, load_scenes, read_split

    folder = data_folder(config.data.folder or None)
    groups = read_split(folder)
    loaded = {
        group: load_scenes(folder, group, wavelengths=grid) for group in ("train", "validation")
    }
    split = {"train": list(groups.train), "validation": list(groups.validation)}
    return (
        np.stack([cube.values for cube in loaded["train"].values()]),
        np.stack([cube.values for cube in loaded["validation"].values()]),
        split,
    )


def _mask_region(config: TrainConfig, given: Mask | None) -> MaskRegion | None:
    if given is not None:
        return MaskRegion.of(given, name="given")
    if config.masks.source == "fabricated":
        return None
    from prismask.scenes.datasets import data_folder, load_mask_file, read_split

    folder = data_folder(config.data.folder or None)
    places = read_split(folder).masks

    def region(name: str) -> MaskRegion:
        place = places[name]
        mask = load_mask_file(folder, place.file)
        return MaskRegion.of(mask, place.rows, place.columns, Path(place.file).stem)

    chosen = region(config.masks.source)
    if config.masks.source == "train":
        # The single mask lies across regions by its nature; the evaluation knows what to refuse.
        check_disjoint(chosen, [region(name) for name in places if name.startswith("test")])
    return chosen


def _fabricated(config: TrainConfig, size: tuple[int, int]) -> Tensor:
    generator = torch.Generator().manual_seed(seed_of(config.seed, "fabricated"))
    # Half as large again as a crop, so that one instrument gives many masks.
    larger = (size[0] * 3 // 2, size[1] * 3 // 2)
    made = [
        fabricate_mask(larger, generator, random_aperture(generator))
        for _ in range(config.masks.fabricated_count)
    ]
    return torch.stack(made)


def _origin(config: TrainConfig, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the weights a run goes on from, with everything they went on from.

    A run that is taken up keeps what it wrote when it began: the file may be another one now.
    """
    if not config.model.start_from:
        return {}
    if "started_from" in earlier:
        return {"started_from": earlier["started_from"]}
    before = read_record(find_weights(config.model.start_from))
    kept = ("name", "sha256", "step", "seconds", "commit", "data", "masks", "spread", "bend")
    return {"started_from": {key: before[key] for key in (*kept, "started_from") if key in before}}


def _mask_record(region: MaskRegion | None, config: TrainConfig) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "source": config.masks.source,
        "vary": config.masks.vary,
        "calibration_error": config.masks.calibration_error,
        "fabricated_share": 1.0 if region is None else config.masks.fabricated_share,
    }
    if config.masks.fault_share > 0:
        facts |= {
            "fault_share": config.masks.fault_share,
            "fault_size": config.masks.fault_size,
            "dispersion_share": config.masks.dispersion_share,
            "told_share": config.masks.told_share,
        }
    if region is not None:
        facts |= {
            "name": region.name,
            "source_hash": region.source_hash,
            "rows": list(region.rows),
            "columns": list(region.columns),
        }
    return facts
