"""A run's folder, and that of an analysis: its record, its journal, and going on where it stopped.

    run.json      what ran: protocol, seeds, hashes, masks, models, versions, device
    cells.jsonl   finished cells, the ground of everything else
    scores.csv    the long-form table (also .parquet where pyarrow is installed)
    …             what evaluation and stress write from it

`run.json` is there from the start; `finished` in it is null until the tables are written.

Cells are computed by this process, by several, or by a Dask cluster; all three yield the same
results in whatever order they finish.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prismask.errors import (
    ConfigError,
    FormatError,
    OutputExistsError,
    PrismaskError,
    WorkerLostError,
)
from prismask.evaluation.metrics import METRICS
from prismask.evaluation.run.cells import Cell, CellResult, Journal
from prismask.evaluation.run.plan import Plan
from prismask.evaluation.run.trials import Bench, Workload
from prismask.models.machine import commit, device_name, versions
from prismask.parallel.workers import Outcome, Workers, run_tasks
from prismask.progress import Progress
from prismask.scenes.atomic import write_beside


def run_cells(
    work: Workload,
    cells: Iterable[Cell],
    device: torch.device,
    workers: int = 1,
    threads: int | None = None,
    dask: str | None = None,
    share_gpus: bool = True,
) -> Iterator[CellResult]:
    """Compute `cells` and yield each result as soon as it is there.

    workers, threads, dask: see `parallel.workers.Workers`.
    share_gpus: on a machine with several GPUs, whether each worker takes the next one instead of
        all taking `device`.
    """
    doers = Workers(workers, threads, dask)
    # Scenes and weights are large: a cluster's workers get them once.
    return _results(run_tasks(cells, Benches(work, device, share_gpus), doers, broadcast=True))


@dataclass(frozen=True, eq=False)
class Benches:
    """Makes the bench of each worker. It travels between processes."""

    work: Workload
    device: torch.device
    share_gpus: bool = True

    def __call__(self, number: int | None) -> Callable[[Cell], CellResult]:
        """The bench of worker `number`."""
        return Bench(self.work, self._device(number)).run

    def _device(self, number: int | None) -> torch.device:
        """The GPU of a worker, where there are several and they are to be shared."""
        several = self.device.type == "cuda" and torch.cuda.device_count() > 1
        if number is None or not self.share_gpus or not several:
            return self.device
        return torch.device("cuda", number % torch.cuda.device_count())


def _results(
    outcomes: Generator[Outcome[Cell, CellResult], None, None],
) -> Iterator[CellResult]:
    """An error ends the run."""
    with closing(outcomes):
        for outcome in outcomes:
            if isinstance(outcome.error, WorkerLostError):
                raise WorkerLostError(
                    "a worker process died, perhaps for want of memory. What was finished is "
                    "kept: go on with --resume, with fewer --workers."
                ) from outcome.error
            yield outcome.get()


log = logging.getLogger(__name__)

CELLS = "cells.jsonl"


@dataclass(frozen=True)
class RecordFile:
    """The JSON file in which a result folder says what it holds."""

    name: str
    format: str
    """What it calls its own format, so that another one is not taken for it."""
    what: str
    """What such a folder holds."""

    @property
    def one(self) -> str:
        """The same with its article."""
        return f"{'an' if self.what[0] in 'aeiou' else 'a'} {self.what}"

    def read(self, folder: str | Path) -> dict[str, Any]:
        """The record, if it is there and of this format."""
        path = Path(folder) / self.name
        if not path.is_file():
            raise FormatError(f"{folder} holds no {self.what}: it has no {self.name}.")
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise FormatError(f"{path} is not JSON: {error}.") from error
        if record.get("format") != self.format:
            raise FormatError(
                f"{path} has format {record.get('format')!r}; this reads {self.format!r}."
            )
        return record

    def write(self, folder: str | Path, record: Mapping[str, Any], allow_nan: bool = True) -> None:
        """Put it in place, whole or not at all."""
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=allow_nan) + "\n"
        with write_beside(Path(folder) / self.name, overwrite=True) as beside:
            beside.write_text(text, encoding="utf-8")

    def earlier(self, folder: str | Path, resume: bool) -> dict[str, Any] | None:
        """The record to go on from, or None for a fresh start; a used folder needs `resume`."""
        cells = Path(folder) / CELLS
        if (Path(folder) / self.name).exists():
            if resume:
                return self.read(folder)
            raise OutputExistsError(
                f"{folder} holds {self.one} already. Resume it (--resume), or choose another --out."
            )
        if cells.is_file() and cells.stat().st_size:
            raise OutputExistsError(
                f"{folder} holds finished cells ({CELLS}) but no {self.name} that says of what. "
                "Delete them, or choose another --out."
            )
        return None


RUN = RecordFile("run.json", "prismask-evaluation-1", "evaluation")


def earlier_record(out: str | Path | None, resume: bool) -> dict[str, Any] | None:
    """The record of the evaluation to go on with, or None for a fresh start."""
    record = None if out is None else RUN.earlier(out, resume)
    if record is not None and "joined" in record:
        raise OutputExistsError(
            f"{out} was put together from other evaluations (`prismask join`) and holds no cells "
            "to go on from. Choose another --out, and join again."
        )
    return record


def open_run(plan: Plan, out: str | Path | None, earlier: dict[str, Any] | None) -> Journal:
    """The journal of the run; what an earlier run left must belong to the same plan."""
    if out is None:
        return Journal()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if earlier is not None:
        check_same(folder, earlier, plan.identity(), plan.models_record())
    journal = Journal(folder / CELLS)
    try:
        _check_masks(plan, journal, folder)
    except PrismaskError:
        journal.close()
        raise
    return journal


def compute(plan: Plan, journal: Journal, progress: Progress | None = None) -> dict[str, Any]:
    """Compute what the journal does not hold yet; give an account of this session."""
    total = plan.count()
    missing = sum(cell not in journal for cell in plan.cells())
    done = total - missing
    if done:
        log.info("%d of %d cells were finished before and are kept.", done, total)
    started, clock = now(), time.perf_counter()
    settings = plan.settings
    if missing:
        cells = (cell for cell in plan.cells() if cell not in journal)
        results = run_cells(
            plan.work, cells, plan.device, settings.workers, settings.threads, settings.dask,
            share_gpus=settings.device in ("auto", "cuda"),
        )  # fmt: skip
        for result in results:
            journal.append(result)
            done += 1
            if progress is not None:
                progress(done, total, {"model": result.cell.model})
    return {
        "started": started,
        "seconds": round(time.perf_counter() - clock, 3),
        "cells": missing,
        "workers": settings.workers,
        "dask": settings.dask is not None,
        "device": device_name(plan.device),
        **computed_by(),
    }


def record_of(plan: Plan, earlier: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    """All that is known about the run, for `run.json`."""
    models = plan.models_record()
    return {
        "format": RUN.format,
        **plan.identity(),
        "trials": {name: len(group) for name, group in plan.work.groups.items()},
        "size": list(plan.work.scenes.size),
        "wavelengths_nm": plan.work.scenes.wavelengths,
        "conventions": {name: METRICS[name].convention for name in plan.work.metrics},
        "groups": {
            name: {
                "text": group.text,
                "masks": group.masks.to_record(),
                "overlap": {model: plan.verdicts[model, name] for model in plan.work.contenders},
            }
            for name, group in plan.work.groups.items()
        },
        "models": models,
        "identities": {**_identities(earlier or {}), **_identities({"models": models})},
        "remarks": list(plan.remarks),
        "estimated_peaks": plan.work.scenes.has_estimated_peaks,
        **computed_by(),
        "device_name": device_name(plan.device),
        "sessions": list((earlier or {}).get("sessions", ())),
        "finished": None,
        **more,
    }


def check_same(
    folder: Path, earlier: Mapping[str, Any], wanted: Mapping[str, Any], models: Mapping[str, Any]
) -> None:
    """Raise unless the folder was started with the same settings and models of the same labels.

    wanted: what has to be as in the earlier record; models: label → facts, as in a record.
    """
    for key, value in json.loads(json.dumps(wanted)).items():
        if earlier.get(key) != value:
            raise ConfigError(
                f"{folder} was started with {key} = {_short(earlier.get(key))}, now it is "
                f"{_short(value)}: the two do not belong in one table. Choose another --out."
            )
    before = _identities(earlier)
    for label, facts in _identities({"models": models}).items():
        for key, value in facts.items():
            if label in before and before[label].get(key) != value:
                raise ConfigError(
                    f"{folder} was started with another {label!r}: its {key} was "
                    f"{_short(before[label].get(key))}, now it is {_short(value)}. Give one "
                    "of them another label, or choose another --out."
                )


def _identities(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Who every label of a run stood for, in any of its sessions: the journal keeps them all."""
    named = {
        label: {key: facts.get(key) for key in ("identity", "precision")}
        for label, facts in record.get("models", {}).items()
    }
    return {**record.get("identities", {}), **named}


def _check_masks(plan: Plan, journal: Journal, folder: Path) -> None:
    """Finished cells count only for the masks that this plan would use."""
    for cell in plan.cells():
        if cell in journal:
            listed = plan.work.groups[cell.group].masks.entries[cell.trial].mask_id
            if journal.read(cell).mask_id != listed:
                raise ConfigError(
                    f"{folder} holds {cell.group} trial {cell.trial} with a different mask than "
                    "the one drawn now: the mask file or the split has changed. Choose another "
                    "--out."
                )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def computed_by() -> dict[str, Any]:
    """Which code computes, for records."""
    return {"versions": versions(), "commit": commit()}


def now() -> str:
    """The time, for records."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


# --- an analysis on the disk ----------------------------------------------------------------------
#
#     analysis.json            what was analysed, and every number
#     cubes/MODEL/GROUP/SCENE.npz   a reconstruction with its maps, matrix and spectra
#     truth/SCENE.npz          the true cubes: pictures of a data set, not for publishing
#     figures/*.png            the same as pictures, where matplotlib is installed
#
# Without the folder `truth` everything but the pictures of the truth can still be drawn.


ANALYSIS = RecordFile("analysis.json", "prismask-analysis-1", "analysis")
CUBES, TRUTH, FIGURES = "cubes", "truth", "figures"

Arrays = Mapping[str, NDArray[Any]]


def refuse_used(folder: Path, overwrite: bool) -> None:
    """Raise where an analysis lies already, before anything is computed."""
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file; give the name of a folder.")
    if (folder / ANALYSIS.name).exists() and not overwrite:
        raise OutputExistsError(
            f"{folder} holds {ANALYSIS.one} already and was kept. Choose another folder with "
            "--out, or give --overwrite."
        )


def safe_name(text: str) -> str:
    """A label as a file name."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "unnamed"


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays as compressed NPZ, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_beside(path, overwrite=True) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"{path} is damaged: {error}. Run the analysis again.") from error


def plain(value: Any) -> Any:
    """Only what JSON knows: tuples as lists, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
