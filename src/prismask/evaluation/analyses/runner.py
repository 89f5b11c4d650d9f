"""`analyse(models, data, out)`: everything about some models that a score does not tell."""

from __future__ import annotations

import datetime
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError, DivergedError
from prismask.evaluation.analyses.scene import SOURCES, Scene, analyse_scene
from prismask.evaluation.analyses.spread import Calibration, g_by_transmission, noise_distribution
from prismask.evaluation.analyses.training_log import METRICS_FILE, read_training_log
from prismask.evaluation.protocol.splits import Group
from prismask.evaluation.run.contenders import Models, read_entries
from prismask.evaluation.run.plan import Plan, with_options
from prismask.evaluation.run.runner import plan_evaluation
from prismask.evaluation.run.runs import (
    ANALYSIS,
    CUBES,
    FIGURES,
    TRUTH,
    plain,
    refuse_used,
    safe_name,
    write_arrays,
)
from prismask.evaluation.run.trials import Ready
from prismask.inference.methods.network import as_network
from prismask.models.machine import commit, device_name, versions
from prismask.optics.camera import CASSI, CameraDescription, camera_attrs
from prismask.optics.masks import MaskRegion
from prismask.parallel.ownership import owned
from prismask.progress import Progress
from prismask.scenes.records import Cube, Mask

log = logging.getLogger(__name__)

MASKS = 5
SAMPLES = 8


def analyse(
    models: Models,
    data: str | Path | None = None,
    out: str | Path = "analysis",
    *,
    protocol: str = "many-to-many",
    masks: int = MASKS,
    samples: int = SAMPLES,
    seed: int = 0,
    split: str | Path | None = None,
    scenes: Sequence[str] | Mapping[str, Cube] | None = None,
    mask_sources: Mapping[str, Mask | MaskRegion] | None = None,
    groups: Sequence[str] | None = None,
    camera: CASSI | CameraDescription | None = None,
    device: str = "auto",
    precision: str = "auto",
    noise: float = 0.0,
    allow_overlap: bool = False,
    resample: bool = False,
    size: tuple[int, int] | None = None,
    figures: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Analyse models and write numbers, arrays and figures into the folder `out`.

    models, data, split, scenes, groups, camera: as in `evaluation.run.runner.evaluate`.
    masks: masks per group; the spread over masks needs two or more, the paper takes 100.
    samples: masks that a network draws around the first mask; below 2: none.
    mask_sources: masks by group name instead of the split's.
    size: height and width of the middle of each scene that is taken; None: all of it.
    figures: whether PNGs are drawn (skipped with a remark where matplotlib is absent).

    One scene and a handful of cubes are on the device at a time, whatever the numbers of scenes,
    masks and samples. Gives the record that analysis.json holds.
    """
    if masks < 1:
        raise ConfigError(f"masks is {masks}; at least 1 is needed.")
    if samples < 0:
        raise ConfigError(f"samples is {samples}; give 0 for none, or 2 and more.")
    folder = Path(out)
    options: dict[str, Any] = {
        "protocol": protocol, "trials": masks, "seed": seed, "device": device,
        "precision": precision, "noise": noise, "timing": False, "allow_overlap": allow_overlap,
        "resample": resample, "size": size,
    }  # fmt: skip
    settings = with_options(None, options)
    with owned(folder, "an analysis"):
        refuse_used(folder, overwrite)
        plan = plan_evaluation(models, settings, data, split, scenes, mask_sources, groups, camera)
        record: dict[str, Any] = _Analysis(plan, folder, samples, progress).run()
        record = plain({**record, "training": _training(models)})
        ANALYSIS.write(folder, record, allow_nan=False)
        if figures:
            _draw(folder, record)
    return record


class _Analysis:
    """One run through models, groups and scenes."""

    def __init__(
        self, plan: Plan, folder: Path, samples: int, progress: Progress | None = None
    ) -> None:
        self.plan, self.folder, self.samples, self.progress = plan, folder, samples, progress
        work = plan.work
        self.total = len(work.contenders) * len(work.groups) * len(work.scenes.names)
        self.done = 0
        self.failures: list[str] = []
        self.truths: dict[str, dict[str, Any]] = {}

    def run(self) -> dict[str, Any]:
        """The complete record."""
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        work = self.plan.work
        facts = self.plan.models_record()
        models = {}
        for number, label in enumerate(work.contenders):
            ready = Ready(work.contenders[label], self.plan.device, label in work.halves)
            place = f"{number + 1:02d}-{safe_name(label)}"
            found = {
                name: self._group(label, ready, group, place) for name, group in work.groups.items()
            }
            trained = work.contenders[label].record
            models[label] = {
                **facts[label],
                "training_seconds": trained.get("seconds"),
                "training_device": trained.get("device"),
                "groups": found,
            }
        return {
            "format": ANALYSIS.format,
            "protocol": self.plan.protocol,
            "seed": work.seed,
            "masks": self.plan.settings.trials,
            "samples": self.samples,
            "noise": work.noise,
            "scenes": dict(work.scenes.hashes),
            "size": list(work.scenes.size),
            "wavelengths_nm": work.scenes.wavelengths,
            "camera": camera_attrs(work.camera),
            "groups": {
                name: {
                    "text": group.text,
                    "masks": group.masks.to_record(),
                    "overlap": {label: self.plan.verdicts[label, name] for label in models},
                }
                for name, group in work.groups.items()
            },
            "truth": self.truths,
            "models": models,
            "failures": self.failures,
            "remarks": list(self.plan.remarks),
            "estimated_peaks": work.scenes.has_estimated_peaks,
            "versions": versions(),
            "commit": commit(),
            "device_name": device_name(self.plan.device),
            "started": started,
        }

    def _group(self, label: str, ready: Ready, group: Group, place: str) -> dict[str, Any]:
        calibrations = {source: Calibration() for source in SOURCES}
        numbers: dict[str, Any] = {}
        for index in range(len(self.plan.work.scenes.names)):
            scene = self._scene(index)
            try:
                found = analyse_scene(
                    self.plan.work, label, ready, group, scene, self.samples, calibrations
                )
            except DivergedError as error:
                # The others go on; the record, the report and the exit code say what is missing.
                self.failures.append(f"{label}, scene {scene.name}, {group.name}: {error}")
                log.warning("%s", self.failures[-1])
            else:
                file = f"{CUBES}/{place}/{safe_name(group.name)}/{safe_name(scene.name)}.npz"
                arrays = {name: part.cpu().numpy() for name, part in found.arrays.items()}
                write_arrays(self.folder / file, **arrays)
                numbers[scene.name] = {**found.numbers, "file": file}
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.total, {"model": label})
        return {
            "scenes": numbers,
            "average": _averages(numbers),
            "uncertainty": self._uncertainty(calibrations, len(group)),
            "noise": self._noise(ready, group),
        }

    def _scene(self, index: int) -> Scene:
        """A scene on the device; its truth is written when it is first seen."""
        name = self.plan.work.scenes.names[index]
        truth = torch.from_numpy(self.plan.work.scenes.values[index]).to(self.plan.device)
        scene = Scene.of(name, truth)
        if name not in self.truths:
            file = f"{TRUTH}/{safe_name(name)}.npz"
            write_arrays(
                self.folder / file,
                truth=truth.half().cpu().numpy(),
                correlation=scene.correlation.float().cpu().numpy(),
            )
            blocks = [
                {"row": b.row, "column": b.column, "side": b.side, "unevenness": b.unevenness}
                for b in scene.blocks
            ]
            self.truths[name] = {"file": file, "blocks": blocks}
        return scene

    def _uncertainty(self, calibrations: dict[str, Calibration], masks: int) -> dict[str, Any]:
        draws = {"masks": masks, "samples": self.samples}
        return {
            source: found.to_record(draws.get(source))
            for source, found in calibrations.items()
            if found.coverages
        }

    def _noise(self, ready: Ready, group: Group) -> dict[str, Any] | None:
        """Prior against learned noise on the group's first mask; None without a posterior."""
        network = as_network(ready.method) if ready.is_single_pass else None
        if network is None or "mask_std" not in network.capabilities:
            return None
        posterior = network.engine.network.model.posterior
        mask = group.mask(0, self.plan.device)
        with torch.no_grad():
            g: Tensor = network.mask_std(mask)
        config = posterior.config
        if config.prior_std <= 0 or float(g.min()) <= 0:
            return None
        found = noise_distribution(
            mask, g, config.prior_mean, config.prior_std, seed=self.plan.work.seed
        )
        return {
            "kind": config.kind, **found.to_record(), "by_transmission": g_by_transmission(mask, g),
        }  # fmt: skip


def _averages(scenes: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Mean over scenes of every single number, NaN and missing ones left out."""
    names = {name for found in scenes.values() for name in found}
    averages: dict[str, float | None] = {}
    for name in sorted(names):
        values = [found.get(name) for found in scenes.values()]
        numbers = [v for v in values if isinstance(v, float) and math.isfinite(v)]
        if numbers:
            averages[name] = math.fsum(numbers) / len(numbers)
    return averages


def _training(models: Models) -> dict[str, Any]:
    """How g moved, for weights that lie beside the metrics of their training."""
    found: dict[str, Any] = {}
    for entry in read_entries(models):
        metrics = Path(entry.what).parent / METRICS_FILE if entry.kind == "weights" else None
        if metrics is not None and metrics.is_file():
            history = read_training_log(metrics).g_history
            if history is not None:
                found[entry.label] = history.to_record()
    return found


def _draw(folder: Path, record: Mapping[str, Any]) -> None:
    from prismask.errors import MissingPartError
    from prismask.evaluation.figures.style import check_available
    from prismask.scenes.atomic import write_beside

    try:
        check_available()
    except MissingPartError as error:
        log.warning("no figures were drawn: %s", error)
        return
    from prismask.evaluation.report.analyses import analysis_pictures

    (folder / FIGURES).mkdir(exist_ok=True)
    for picture in analysis_pictures(folder, record):
        with write_beside(folder / FIGURES / f"{picture.name}.png", overwrite=True) as beside:
            beside.write_bytes(picture.png)
