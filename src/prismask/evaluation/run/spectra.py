"""`spectra_test(models, out=DIR)`: what methods make of spectra that are not smooth.

    spectra.json     what ran: seed, hashes, masks, models, versions, device
    cells.jsonl      finished snapshots, to go on from
    examples.jsonl   spectra of one pixel of the first drawn scene: truth, estimate, interval
    scores.csv       one value per line (also .parquet where pyarrow is installed)
    summary.csv, summary.md

Every method gets the same snapshots, through the same delivery as `reconstruct`, which gives the
interval. All of them, scenes, masks and structures, come from one seed. Masks are fabricated, so
that no model has seen them and none of the test is used; a trial has a mask and a scene of its own,
and every structure is planted into that scene. Scenes are drawn (`drawn`), or crops of the
validation scenes where the data folder is there (`validation`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismask.checks import choose
from prismask.errors import ConfigError, DataMissingError, DivergedError
from prismask.evaluation.protocol.spectra import METRICS, QUICK, feature_title, features, measure
from prismask.evaluation.protocol.splits import trained_on, trained_scenes
from prismask.evaluation.run.cells import Cell, CellResult, Journal
from prismask.evaluation.run.contenders import Contender, Models, build_contender, read_entries
from prismask.evaluation.run.runs import CELLS, RecordFile, check_same, computed_by, now
from prismask.evaluation.tables.markdown import grid
from prismask.evaluation.tables.summaries import Moments, Row, write_parquet, write_table
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.models.inputs import network_scale
from prismask.models.machine import choose_device, device_name
from prismask.optics.camera import CASSI, CameraDescription, camera_attrs, resolve_camera
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.randomness import normal, seed_of, seeded
from prismask.progress import Progress
from prismask.scenes import datasets
from prismask.scenes.atomic import write_beside
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement, array_hash
from prismask.scenes.synthetic import random_scene
from prismask.scenes.synthetic.spectra import Feature, Planted, plant

log = logging.getLogger(__name__)

RECORD = RecordFile("spectra.json", "prismask-spectra-1", "test of spectra")
EXAMPLES = "examples.jsonl"
QUICK_TRIALS, QUICK_SIZE = 1, 64


@dataclass(frozen=True, eq=False)
class SpectraTest:
    """A finished run."""

    record: dict[str, Any]
    rows: list[dict[str, Any]]
    """The summary: mean and spread by model, group, feature and metric."""
    markdown: str
    failures: list[str]


def spectra_test(
    models: Models,
    data: str | Path | None = None,
    out: str | Path = "spectra",
    *,
    groups: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    camera: CASSI | CameraDescription | None = None,
    device: str = "auto",
    quick: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> SpectraTest:
    """Measure what models make of lines, cosines, dips, lamps and lasers.

    models: as in `evaluation.run.runner.evaluate`.
    data: the data folder; left out and not found, only drawn scenes are used.
    groups: drawn, validation or both.
    kinds: of `scenes.synthetic.spectra.KINDS`; left out: all.
    quick: one structure of each kind, one small trial.
    options: fields of `SpectraSettings`.
    """
    if quick:
        options = {"trials": QUICK_TRIALS, "size": QUICK_SIZE, **options}
    settings = SpectraSettings(**options)
    chosen = QUICK if quick and kinds is None else features(kinds)
    bench, remarks = make_bench(settings, camera, data, groups)
    chosen_device = choose_device(device)
    wished = Options(level=settings.level, check_mask=False, device=str(chosen_device))
    contenders = {
        entry.label: build_contender(entry, bench.camera.bands, settings.seed, wished)
        for entry in read_entries(models)
    }
    folder = Path(out)
    earlier = RECORD.earlier(folder, resume)
    record = _record(bench, contenders, chosen_device, remarks)
    _check_same(record, earlier, folder)
    folder.mkdir(parents=True, exist_ok=True)
    record["sessions"] = [
        *(earlier or {}).get("sessions", ()),
        {"started": now(), **computed_by()},
    ]
    RECORD.write(folder, record)
    with Journal(folder / CELLS) as journal:
        _compute(bench, contenders, chosen, journal, folder, progress)
        cells = list(_cells(bench, contenders, chosen))
        results = [journal.read(cell) for cell in cells]
    rows = summary_rows(results)
    record["finished"] = record["sessions"][-1]["started"]
    text = summary_text(rows, record)
    write_spectra_tables(folder, results, rows, text, record["trial_scenes"])
    RECORD.write(folder, record)
    failures = [
        f"{r.cell.model}, {r.cell.group} trial {r.cell.trial}, {r.cell.fault}: {why}"
        for r in results
        for why in r.failed.values()
    ]
    return SpectraTest(record, rows, text, failures)


def _compute(
    bench: Bench,
    contenders: Mapping[str, Contender],
    chosen: Sequence[Feature],
    journal: Journal,
    folder: Path,
    progress: Progress | None,
) -> None:
    """Whatever the journal does not hold yet."""
    ready = {label: _ready(one) for label, one in contenders.items()}
    total = len(list(_cells(bench, contenders, chosen)))
    done = 0
    for group in bench.scenes:
        for trial in range(bench.settings.trials):
            for feature in chosen:
                cells = [_cell(label, group, trial, feature) for label in contenders]
                missing = [cell for cell in cells if cell not in journal]
                done += len(cells) - len(missing)
                shot = bench.shoot(group, trial, feature) if missing else None
                for cell in missing:
                    assert shot is not None
                    result, cube = _score(cell, shot, ready[cell.model], bench)
                    if cube is not None and group == "drawn" and trial == 0:
                        _add_example(folder, cell, shot.planted, cube)
                    journal.append(result)
                    done += 1
                    if progress is not None:
                        progress(done, total, {"model": cell.model})


def _ready(contender: Contender) -> Reconstruction:
    options = contender.options
    method = contender.build(choose_device(options.device))
    # The options of a solver are in the method already.
    return Reconstruction(replace(options, method_options=()), method)


def _score(
    cell: Cell, shot: Shot, ready: Reconstruction, bench: Bench
) -> tuple[CellResult, Cube | None]:
    """What became of one snapshot; NaN where the method stopped."""
    started = time.perf_counter()
    failed: dict[str, str] = {}
    cube = None
    values = dict.fromkeys(METRICS, math.nan)
    try:
        cube = ready.run(shot.measurement, shot.mask, bench.camera, bench.wavelengths)
        values = measure(cube, shot.planted)
    except DivergedError as error:
        failed[cell.fault] = str(error)
    seconds = time.perf_counter() - started
    digest = _digest(shot.measurement.values.tobytes())
    listed = {name: [value] for name, value in values.items()}
    return CellResult(cell, shot.mask.hash, digest, seconds, listed, failed), cube


def _cell(label: str, group: str, trial: int, feature: Feature) -> Cell:
    return Cell(label, group, trial, feature.name, feature.size)


def _cells(
    bench: Bench, contenders: Mapping[str, Contender], chosen: Sequence[Feature]
) -> Iterator[Cell]:
    """All cells in the order of the table."""
    for label in contenders:
        for group in bench.scenes:
            for feature in chosen:
                for trial in range(bench.settings.trials):
                    yield _cell(label, group, trial, feature)


def _add_example(folder: Path, cell: Cell, planted: Planted, cube: Cube) -> None:
    """One pixel's spectra, for the figure: where the structure is of middling strength."""
    structure = np.abs(planted.values - planted.smooth).sum(0)
    order = np.argsort(np.where(planted.where, structure, -1.0), axis=None)
    inside = int(planted.where.sum())
    if not inside:
        return
    pixel = np.unravel_index(order[len(order) - 1 - inside // 2], structure.shape)
    arrays = {"truth": planted.values, "estimate": cube.values, "lower": cube.lower,
              "upper": cube.upper}  # fmt: skip
    spectra = {
        name: None if part is None else [round(float(v), 5) for v in part[:, *pixel]]
        for name, part in arrays.items()
    }
    facts = {"model": cell.model, "feature": cell.fault, "size": cell.size, **spectra}
    with (folder / EXAMPLES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts, ensure_ascii=False) + "\n")


# --- the folder ----------------------------------------------------------------------------------


def _record(
    bench: Bench, contenders: Mapping[str, Contender], device: torch.device, remarks: Sequence[str]
) -> dict[str, Any]:
    settings = bench.settings
    trial_scenes = {
        group: [bench.scene(group, trial)[0] for trial in range(settings.trials)]
        for group in bench.scenes
    }
    names = {name for listed in trial_scenes.values() for name in listed}
    notes = list(remarks)
    for label, one in contenders.items():
        if seen := trained_scenes(one, names):
            notes.append(f"{label} **was trained on** {', '.join(seen)}.")
        if seen := trained_scenes(one, names, "validation"):
            notes.append(f"{label}: its training was validated on {', '.join(seen)}.")
    masks = {g: [bench.mask(g, t).hash for t in range(settings.trials)] for g in bench.scenes}
    return {
        "format": RECORD.format,
        "kind": "spectra",
        "protocol": "spectra",
        "seed": settings.seed,
        "size": settings.size,
        "noise": settings.noise,
        "level": settings.level,
        "camera": camera_attrs(bench.camera),
        "device": device.type,
        "wavelengths_nm": list(bench.wavelengths),
        "metrics": list(METRICS),
        "trial_scenes": trial_scenes,
        "scenes": {
            name: array_hash(cube.values)
            for listed in bench.scenes.values()
            for name, cube in listed.items()
            if name in names
        },
        "groups": {
            group: {"masks": {"id": _digest("".join(found).encode()), "masks": found}}
            for group, found in masks.items()
        },
        "models": {
            label: {
                "kind": one.kind, "identity": one.identity, "trained_on": trained_on(one),
                "precision": "float32",
            }
            for label, one in contenders.items()
        },
        "remarks": notes,
        **computed_by(),
        "device_name": device_name(device),
        "finished": None,
    }  # fmt: skip


def _check_same(record: Mapping[str, Any], earlier: Mapping[str, Any] | None, out: Path) -> None:
    """What is there must belong to the same snapshots; models, groups and trials may be added."""
    if earlier is None:
        return
    fixed = ("seed", "size", "noise", "level", "camera", "device")
    check_same(out, earlier, {key: record[key] for key in fixed}, record["models"])
    for name, digest in earlier["scenes"].items():
        if record["scenes"].get(name, digest) != digest:
            raise ConfigError(f"{out} was started with another scene {name}: choose another --out.")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


GROUPS = ("drawn", "validation")
TRIALS, SIZE = 4, 128
CROPS = 8
"""Places that are tried for the crop of a scene; the brightest is taken."""


@dataclass(frozen=True)
class SpectraSettings:
    """What decides the snapshots."""

    trials: int = TRIALS
    """Masks, each with a scene of its own, per group."""
    size: int = SIZE
    """Height and width of the scenes."""
    noise: float = 0.0
    """Measurement noise in units of the cube's values, as in `evaluate`."""
    seed: int = 0
    """Draws scenes, masks, structures and noise."""
    level: float = 0.9
    """Level of the interval."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"trials is {self.trials}; at least 1 is needed.")
        if self.size < 32:
            raise ConfigError(f"scenes of {self.size} pixels are too small; give 32 or more.")
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise is {self.noise:g}; it must be 0 (none) or more, and finite.")


@dataclass(frozen=True, eq=False)
class Shot:
    """One snapshot of one structure."""

    planted: Planted
    measurement: Measurement
    mask: Mask


@dataclass(frozen=True, eq=False)
class Bench:
    """Scenes, masks and the camera of a run."""

    settings: SpectraSettings
    camera: CASSI
    wavelengths: tuple[float, ...]
    scenes: Mapping[str, Mapping[str, Cube]]
    """Group → name → whole scene; of drawn ones, one for each trial."""

    def scene(self, group: str, trial: int) -> tuple[str, Cube]:
        """Name and crop `(C, H, W)` of a trial's scene."""
        named = list(self.scenes[group].items())
        name, cube = named[trial % len(named)]
        return name, _bright_crop(cube, self.settings, group, trial)

    def mask(self, group: str, trial: int) -> Mask:
        """The fabricated mask of a trial."""
        generator = seeded(seed_of(self.settings.seed, "spectra", "mask", group, trial))
        side = (self.settings.size, self.settings.size)
        size = self.camera.mask_size(side)
        return Mask(fabricate_mask(size, generator, random_aperture(generator)).numpy())

    def shoot(self, group: str, trial: int, feature: Feature) -> Shot:
        """Plant a structure and photograph it."""
        seed = self.settings.seed
        _, cube = self.scene(group, trial)
        # Lines of all widths lie at one wavelength, so that a table over widths compares them.
        planted = plant(cube, feature, seed_of(seed, "spectra", feature.kind, group, trial))
        mask = self.mask(group, trial)
        aperture = torch.tensor(mask.values)[None, None]
        signal = self.camera.forward(torch.tensor(planted.values)[None], aperture)[0]
        if self.settings.noise:
            drawn = normal(
                signal.shape, signal, seeded(seed_of(seed, "spectra", "noise", group, trial))
            )
            signal = signal + self.settings.noise / network_scale(self.camera.bands) * drawn
        return Shot(planted, Measurement(signal.numpy(), camera_attrs(self.camera)), mask)


def make_bench(
    settings: SpectraSettings,
    camera: CASSI | CameraDescription | None,
    data: str | Path | None,
    groups: Sequence[str] | None,
) -> tuple[Bench, list[str]]:
    """Scenes and camera of a run, and remarks about what is missing."""
    said = camera.bands if isinstance(camera, CameraDescription | CASSI) else None
    offsets = camera.offsets if isinstance(camera, CameraDescription) else None
    bands = said or (len(offsets) if offsets else BANDS)
    at = np.array(WAVELENGTHS_NM)
    if bands != BANDS:
        at = np.linspace(at[0], at[-1], bands)
    wavelengths = tuple(float(one) for one in at)
    eye = resolve_camera(camera, bands=bands).camera
    remarks: list[str] = []
    scenes: dict[str, Mapping[str, Cube]] = {}
    for group in [choose(name, GROUPS, "group") for name in groups or GROUPS]:
        if group == "drawn":
            scenes[group] = _drawn(settings, wavelengths)
            continue
        try:
            # Of the data folder, scenes to choose on; never those of the test.
            folder = datasets.data_folder(data)
            scenes[group] = datasets.load_scenes(folder, "validation", wavelengths)
        except DataMissingError as error:
            if groups or data is not None:
                raise
            remarks.append(f"Only drawn scenes: {error}")
            log.warning("only drawn scenes are used: %s", error)
            continue
        if not scenes[group]:
            if groups:
                raise ConfigError(f"{folder} names no validation scenes.")
            del scenes[group]
            remarks.append(f"Only drawn scenes: {folder.name} names no validation scenes.")
    return Bench(settings, eye, wavelengths, scenes), remarks


def _drawn(settings: SpectraSettings, wavelengths: tuple[float, ...]) -> dict[str, Cube]:
    side = (settings.size, settings.size)
    return {
        f"drawn-{trial}": random_scene(
            seed_of(settings.seed, "spectra", "scene", trial), side, wavelengths
        )
        for trial in range(settings.trials)
    }


def _bright_crop(cube: Cube, settings: SpectraSettings, group: str, trial: int) -> Cube:
    """A crop that has something in it: data sets have scenes with much black around them."""
    side = settings.size
    height, width = cube.size
    if min(height, width) < side:
        raise ConfigError(f"a scene is {height}×{width}; crops of {side} do not fit. Lower --size.")
    draw = np.random.default_rng(seed_of(settings.seed, "spectra", "crop", group, trial))
    level = cube.values.mean(0)
    corners = [
        (int(draw.integers(height - side + 1)), int(draw.integers(width - side + 1)))
        for _ in range(CROPS)
    ]
    row, column = max(
        corners, key=lambda at: float(level[at[0] : at[0] + side, at[1] : at[1] + side].mean())
    )
    return Cube(cube.values[:, row : row + side, column : column + side], cube.wavelengths)


# --- tables ---------------------------------------------------------------------------------------


SCORE_COLUMNS = (
    "model", "group", "feature", "size", "trial", "scene", "mask_id", "metric", "value", "seconds",
)  # fmt: skip
SUMMARY_COLUMNS = (
    "model", "group", "feature", "size", "metric", "mean", "std", "trials", "failed",
)  # fmt: skip
SHOWN = ("kept", "position_nm", "found", "psnr_paper", "sam", "inside", "inside_feature")
"""Metrics that the Markdown shows."""
SHARES = ("kept", "found", "inside", "inside_feature", "inside_worst_band")
MEANINGS = (
    "Kept: share of the structure's amplitude in the cube, 100 %: all. Position: error in nm, of "
    "those that were found. Found: share of snapshots in which every line or dip has a peak. "
    "Inside: share of the true values inside the interval, over the cube and at the structure. "
    "Means over trials; each has a mask and a scene of its own."
)


def summary_rows(results: Iterable[CellResult]) -> list[dict[str, Any]]:
    """Mean and spread over trials, by model, group, feature and metric; NaN counts as failed."""
    found: dict[tuple[str, str, str, float, str], Moments] = {}
    for result in results:
        cell = result.cell
        for metric, values in result.values.items():
            key = (cell.model, cell.group, cell.fault, cell.size, metric)
            found.setdefault(key, Moments()).add(values[0])
    names = SUMMARY_COLUMNS[:5]
    return [
        {
            **dict(zip(names, key, strict=True)),
            "mean": of.mean, "std": of.std, "trials": of.count, "failed": of.failed,
        }
        for key, of in found.items()
    ]  # fmt: skip


def write_spectra_tables(
    folder: Path,
    results: Sequence[CellResult],
    rows: Sequence[Mapping[str, Any]],
    text: str,
    trial_scenes: Mapping[str, Sequence[str]],
) -> None:
    """scores.csv and its Parquet twin, summary.csv, summary.md."""
    write_table(folder / "scores.csv", SCORE_COLUMNS, _score_rows(results, trial_scenes))
    write_parquet(folder / "scores.csv")
    listed = (tuple(row[name] for name in SUMMARY_COLUMNS) for row in rows)
    write_table(folder / "summary.csv", SUMMARY_COLUMNS, listed)
    with write_beside(folder / "summary.md", overwrite=True) as beside:
        beside.write_text(text, encoding="utf-8")


def _score_rows(
    results: Iterable[CellResult], trial_scenes: Mapping[str, Sequence[str]]
) -> Iterator[Row]:
    for result in results:
        cell = result.cell
        scene = trial_scenes[cell.group][cell.trial]
        first = (cell.model, cell.group, cell.fault, cell.size, cell.trial, scene, result.mask_id)
        for metric, values in result.values.items():
            yield (*first, metric, values[0], result.seconds)


def summary_text(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """The summary as Markdown: a table for each group."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    parts = ["# Spectra with structure", MEANINGS]
    for group in groups:
        header, lines = cells(rows, group)
        trials = len(record["trial_scenes"][group])
        noise = f", noise of {record['noise']:g}" if record["noise"] else ""
        parts += [
            f"## {group} scenes",
            f"{trials} trials of {record['size']}×{record['size']} pixels{noise}; interval of "
            f"{100 * record['level']:g} %.",
            grid(header, lines),
        ]
    if record["remarks"]:
        parts.append("\n".join(f"- {remark}" for remark in record["remarks"]))
    return "\n\n".join(parts) + "\n"


def cells(rows: Sequence[Mapping[str, Any]], group: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a group's table: a line for each structure and method."""
    means = {
        (row["feature"], row["size"], row["model"], row["metric"]): row["mean"]
        for row in rows
        if row["group"] == group
    }
    shown = list(dict.fromkeys(key[:3] for key in means))
    # Methods of one structure side by side, in the order in which they were named.
    order = list(dict.fromkeys(key[:2] for key in shown))
    shown.sort(key=lambda key: order.index(key[:2]))
    header = ["structure", "method", *(METRICS[metric] for metric in SHOWN)]
    lines = []
    for feature, size, model in shown:
        values = [means.get((feature, size, model, metric), math.nan) for metric in SHOWN]
        texts = [number(metric, v) for metric, v in zip(SHOWN, values, strict=True)]
        lines.append([feature_title(feature, size), model, *texts])
    return header, lines


def number(metric: str, value: float) -> str:
    """A value as tables write it."""
    if math.isnan(value):
        return "–"
    if metric in SHARES:
        return f"{100 * value:.0f} %"
    return f"{value:.2f}" if metric == "psnr_paper" else f"{value:.1f}"
