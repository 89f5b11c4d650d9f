"""`prismask.evaluate` and `prismask stress`: from names to tables."""

from __future__ import annotations

import contextlib
import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prismask.checks import choose
from prismask.errors import ConfigError, DivergedError
from prismask.evaluation.protocol.conditions import (
    FAULT_KINDS,
    MISMATCH,
    MISMATCH_GIVEN,
    RECALIBRATION,
    RECALIBRATION_GIVEN,
)
from prismask.evaluation.protocol.scene_set import check_camera_bands, load_scene_set
from prismask.evaluation.protocol.splits import (
    FABRICATED,
    SINGLE,
    EvaluationSplit,
    Group,
    beyond_one_mask,
    draw_groups,
    group_names,
    judge_all,
    read_evaluation_split,
)
from prismask.evaluation.run.cells import Journal
from prismask.evaluation.run.contenders import Contender, Models, build_contender, read_entries
from prismask.evaluation.run.plan import (
    NOTHING_WRONG,
    Condition,
    Plan,
    Settings,
    choose_halves,
    measure_cost,
    with_options,
)
from prismask.evaluation.run.runs import (
    RUN,
    compute,
    earlier_record,
    open_run,
    record_of,
)
from prismask.evaluation.run.trials import Bench, Workload
from prismask.evaluation.tables import markdown
from prismask.evaluation.tables.summaries import (
    Row,
    Summary,
    columns_of,
    plain_rows,
    read_table,
    score_rows,
    summarise,
    write_parquet,
    write_table,
)
from prismask.inference.camera_match import match_camera
from prismask.models.machine import choose_device
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI, CameraDescription, resolve_camera
from prismask.optics.masks import KNOWN_ALIASES, MaskEntry, MaskRegion, MaskSet
from prismask.parallel.ownership import owned
from prismask.progress import Progress, as_progress
from prismask.scenes.atomic import write_beside
from prismask.scenes.conversion import as_cube, as_mask
from prismask.scenes.records import Cube, Mask
from prismask.wording import told_in_python

if TYPE_CHECKING:
    from prismask.scenes.conversion import CubeLike, MaskLike

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation or a stress test."""

    plan: Plan
    summary: Summary
    record: dict[str, Any]
    """What ran: the contents of run.json."""
    markdown: str
    """Tables for people."""
    folder: Path | None
    """Where everything was written; None: nowhere."""
    journal: Journal

    @property
    def ok(self) -> bool:
        """Whether every reconstruction was finite."""
        return self.summary.failed == 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """The long-form table, row by row."""
        if self.folder is not None:
            return read_table(self.folder / "scores.csv")
        names = columns_of(self.plan)
        return (dict(zip(names, row, strict=True)) for row in score_rows(self.plan, self.journal))

    def mean(self, model: str, group: str, metric: str = "psnr_paper") -> float:
        """Average score of a model in a group."""
        return self.summary.find(model, group, metric).mean


@told_in_python
def evaluate(
    models: Models,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    split: str | Path | None = None,
    scenes: Sequence[str] | Mapping[str, CubeLike] | None = None,
    masks: Mapping[str, MaskLike | MaskRegion] | None = None,
    groups: Sequence[str] | None = None,
    camera: CASSI | CameraDescription | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
    settings: Settings | None = None,
    **options: Any,
) -> Evaluation:
    """Score models side by side on identical measurements.

    models: names, weights files or `{label: callable}`; see `evaluation.run.contenders`.
    data: the data folder with splits.json.
    out: a folder for tables and record; a run there can be resumed.
    split: a TOML file instead of splits.json; see `evaluation.protocol.splits`.
    scenes: names, files or parts (validation) instead of the split's test scenes, or cubes (or
        arrays) by name.
    masks: masks (or arrays) by group name instead of the split's; crops are drawn from each.
    groups: groups of the split, or `fabricated`; by default those of the protocol.
    camera: instead of the split's, as a whole or in parts (`optics.camera`).
    resume: continue the run in `out`.
    progress: True shows a bar; or `progress(done, total, info)`, called after each cell.
    options: fields of `Settings`: protocol, trials, seed, metrics, device, workers …
    """
    chosen = with_options(settings, options)
    named: Sequence[str] | Mapping[str, Cube] | None
    named = _as_cubes(scenes) if isinstance(scenes, Mapping) else scenes
    apertures = None if masks is None else _as_masks(masks)
    with owned(None if out is None else Path(out), "an evaluation"):
        earlier = earlier_record(out, resume)
        plan = plan_evaluation(
            models, chosen, data, split, named, apertures, groups, camera, earlier=earlier
        )
        beyond = beyond_one_mask(plan.work.contenders.values(), chosen.protocol)
        plan = replace(plan, remarks=(*plan.remarks, *beyond))
        return run_plan(plan, out, earlier, as_progress(progress, "evaluating"))


def _as_cubes(scenes: Mapping[str, CubeLike]) -> dict[str, Cube]:
    return {name: as_cube(scene, f"the scene {name}") for name, scene in scenes.items()}


def _as_masks(masks: Mapping[str, MaskLike | MaskRegion]) -> dict[str, Mask | MaskRegion]:
    return {
        name: mask if isinstance(mask, MaskRegion) else as_mask(mask, f"the mask {name}")
        for name, mask in masks.items()
    }


def plan_evaluation(
    models: Models,
    settings: Settings,
    data: str | Path | None = None,
    split: str | Path | None = None,
    scenes: Sequence[str] | Mapping[str, Cube] | None = None,
    masks: Mapping[str, Mask | MaskRegion] | None = None,
    groups: Sequence[str] | None = None,
    camera: CASSI | CameraDescription | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> Plan:
    """Load everything, check that it fits and that nothing was seen in training."""
    device = choose_device(settings.device)
    entries = read_entries(models)
    needs_folder = masks is None or not isinstance(scenes, Mapping)
    found = read_evaluation_split(data, split) if needs_folder else EvaluationSplit(None)
    said = camera or found.described_camera
    scene_set = load_scene_set(
        found, scenes, entries, settings.resample, described_bands(said), settings.size
    )
    eye = resolve_camera(said, bands=scene_set.bands).camera
    check_camera_bands(eye, scene_set.bands)
    regions, remarks = _regions(found, masks, groups, settings)
    size = eye.mask_size(scene_set.size)
    drawn = draw_groups(regions, settings.protocol, settings.trials, size, settings.seed)
    contenders = {
        entry.label: build_contender(entry, scene_set.bands, settings.seed, settings.options)
        for entry in entries
    }
    check_travel(contenders, settings)
    check_camera(contenders, eye)
    verdicts, overlaps = judge_all(
        contenders.values(), drawn.values(), scene_set.names, settings.protocol,
        settings.allow_overlap,
    )  # fmt: skip
    work = Workload(
        scene_set, eye, contenders, drawn, settings.metrics, settings.seed, settings.noise,
        settings.batch,
    )  # fmt: skip
    work = replace(work, halves=halves_for(work, device, settings, earlier))
    conditions = dict.fromkeys(drawn, (NOTHING_WRONG,))
    notes = (*remarks, *overlaps, *scene_set.remarks, *remarks_about(contenders, eye, settings))
    return Plan("evaluation", work, conditions, verdicts, settings, device, notes)


def described_bands(camera: CASSI | CameraDescription) -> int | None:
    """Bands that a camera says it has; None: as many as the scenes."""
    if isinstance(camera, CameraDescription):
        return camera.bands or (None if camera.offsets is None else len(camera.offsets))
    return camera.bands


def remarks_about(
    contenders: Mapping[str, Contender], camera: CASSI, settings: Settings
) -> list[str]:
    """What readers of the tables should know about contenders on this camera."""
    found = []
    for label, one in contenders.items():
        if settings.adapt and "adapt" not in one.capabilities:
            found.append(f"{label} has no network that could learn a scene: it does not adapt.")
        if settings.mask_std is not None and "uncertain_mask" not in one.capabilities:
            found.append(f"{label} has no input for how far the mask may be wrong.")
    return found


def run_plan(
    plan: Plan,
    out: str | Path | None,
    earlier: dict[str, Any] | None,
    progress: Progress | None = None,
) -> Evaluation:
    """Compute what is missing and write everything down."""
    with open_run(plan, out, earlier) as journal:
        record = record_of(plan, earlier)
        if out is not None:
            RUN.write(out, record)
        session = compute(plan, journal, progress)
        costs = cost_of_all(plan, earlier)
        summary = summarise(plan, journal)
        record = finished_record(plan, record, session, costs, summary)
        text = _text(plan, record, summary)
        if out is not None:
            scores = score_rows(plan, journal)
            write_tables(Path(out), columns_of(plan), scores, summary, text)
            RUN.write(out, record)
    return Evaluation(plan, summary, record, text, None if out is None else Path(out), journal)


def halves_for(
    work: Workload, device: torch.device, settings: Settings, earlier: Mapping[str, Any] | None
) -> frozenset[str]:
    """Who runs in half precision; an earlier run's decision stands."""
    before = (earlier or {}).get("models", {})
    new = {label: found for label, found in work.contenders.items() if label not in before}
    kept = {
        label
        for label, facts in before.items()
        if label in work.contenders and facts["precision"] == "float16"
    }
    asked = choose_halves(replace(work, contenders=new), device, settings.precision)
    return frozenset(kept | set(asked))


def check_camera(contenders: Mapping[str, Contender], camera: CASSI) -> None:
    """A network of fixed bands serves the cameras of its training: say so before any work."""
    for label, contender in contenders.items():
        if isinstance(contender.model, Reconstructor):
            match_camera(camera, contender.model.record).check(label)


def check_travel(contenders: Mapping[str, Contender], settings: Settings) -> None:
    """A callable that cannot be pickled cannot go to other processes: say so before they start."""
    if settings.workers == 1 and settings.dask is None:
        return
    for label, contender in contenders.items():
        try:
            pickle.dumps(contender)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"{label} cannot be sent to other processes ({error}). Define it at the top of a "
                "module, or use workers=1."
            ) from error


def cost_of_all(plan: Plan, earlier: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Seconds, memory and operations of each model, one snapshot at a time."""
    before = (earlier or {}).get("costs", {})
    if not plan.settings.timing:
        return {}
    costs: dict[str, dict[str, Any]] = {}
    bench = Bench(plan.work, plan.device)
    mask = next(iter(plan.work.groups.values())).mask(0, plan.device)
    cube = torch.from_numpy(plan.work.scenes.values[:1]).to(plan.device)
    measurement = plan.work.camera.forward(cube, mask)
    for label in plan.work.contenders:
        if label in before:
            costs[label] = before[label]
            continue
        # A method that does not stay finite has no speed worth knowing.
        with contextlib.suppress(DivergedError):
            cost = measure_cost(bench.ready(label), measurement, mask, plan.work.camera)
            costs[label] = asdict(cost)
    return costs


def finished_record(
    plan: Plan,
    record: dict[str, Any],
    session: dict[str, Any],
    costs: Mapping[str, Any],
    summary: Summary,
) -> dict[str, Any]:
    """The record when everything is there."""
    return {
        **record,
        "costs": dict(costs),
        "seconds_per_sample_in_run": summary.seconds,
        "same_measurements": summary.same_measurements,
        "failed": summary.failed,
        "failures": [str(failure) for failure in summary.failures],
        "sessions": [*record["sessions"], session],
        "finished": session["started"],
    }


def write_tables(
    folder: Path, columns: Sequence[str], scores: Iterable[Row], summary: Summary, text: str
) -> None:
    """All tables of a finished run; scores: the rows of the long table."""
    write_table(folder / "scores.csv", columns, scores)
    write_parquet(folder / "scores.csv")
    for name, listed in (("summary", summary.rows), ("paired", summary.paired)):
        titles, rows = plain_rows(list(listed))
        if titles:
            write_table(folder / f"{name}.csv", titles, rows)
        else:
            # An earlier session may have left one, about models that are no longer in the run.
            (folder / f"{name}.csv").unlink(missing_ok=True)
    with write_beside(folder / "summary.md", overwrite=True) as beside:
        beside.write_text(text, encoding="utf-8")


def _text(plan: Plan, record: Mapping[str, Any], summary: Summary) -> str:
    if plan.kind == "evaluation":
        return markdown.evaluation_text(record, summary)
    return markdown.stress_text(record, summary)


def _regions(
    split: EvaluationSplit,
    masks: Mapping[str, Mask | MaskRegion] | None,
    groups: Sequence[str] | None,
    settings: Settings,
) -> tuple[dict[str, MaskRegion | None], list[str]]:
    if masks is not None:
        given = {
            name: mask if isinstance(mask, MaskRegion) else MaskRegion.of(mask, name=name)
            for name, mask in masks.items()
        }
        uncertain = ", ".join(name for name, one in given.items() if one.source.std is not None)
        remark = f"The mask_std that {uncertain} brings along is not used here: give mask_std."
        return {**given}, [remark] if uncertain else []
    names, remarks = group_names(settings.protocol, split, groups, settings.allow_overlap)
    made = {FABRICATED} - split.regions.keys()
    return {name: None if name in made else split.region(name) for name in names}, remarks


# --- what miscalibration costs: light meets the true camera, the model is given the nominal one ---
#
# Three parts, in one long-form table:
#
# - a curve for each fault of `conditions.FAULT_KINDS`: the score against the size of one fault;
# - the mismatch case published elsewhere (`conditions.MISMATCH`), with the ideal, the nominal and
#   the true mask given;
# - the one real sample there is: two calibrations of one physical aperture, measured through one
#   and reconstructed with the other, in both directions.


METRICS = ("psnr_paper", "ssim", "sam")
TRIALS = 5
ALL_FAULTS = (*FAULT_KINDS, MISMATCH, RECALIBRATION)


def stress(
    models: Models,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    split: str | Path | None = None,
    scenes: Sequence[str] | Mapping[str, Cube] | None = None,
    masks: Mapping[str, Mask | MaskRegion] | None = None,
    groups: Sequence[str] | None = None,
    camera: CASSI | CameraDescription | None = None,
    faults: Sequence[str] | None = None,
    sizes: Mapping[str, Sequence[float]] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Score models on cameras that differ a little from their description.

    groups: mask groups that faults are put into; left out: those that share no pixel with the
        split's single mask, which is the other hardware of the built-in split.
    faults: names of `ALL_FAULTS`; left out: all.
    sizes: other sizes for some faults.
    All else is as in `evaluate`; by default there are 5 trials and three metrics.
    """
    chosen = with_options(
        Settings(protocol="one-to-many", trials=TRIALS, metrics=METRICS, timing=False), options
    )
    wanted = [choose(name, ALL_FAULTS, "fault") for name in faults or ALL_FAULTS]
    conditions = curve_conditions(wanted, sizes or {})
    with owned(None if out is None else Path(out), "a stress test"):
        earlier = earlier_record(out, resume)
        if groups is None and masks is None:
            found = read_evaluation_split(data, split)
            groups = group_names("one-to-many", found, None, allow_overlap=False)[0]
        base = plan_evaluation(
            models, chosen, data, split, scenes, masks, groups, camera, earlier=earlier
        )
        plan = replace(base, kind="stress", conditions=dict.fromkeys(base.work.groups, conditions))
        if RECALIBRATION in wanted and masks is None:
            plan = with_recalibration(plan, read_evaluation_split(data, split))
        return run_plan(plan, out, earlier, progress)


def curve_conditions(
    faults: Sequence[str], sizes: Mapping[str, Sequence[float]]
) -> tuple[Condition, ...]:
    """Nothing wrong, then every fault at every size, then the published case."""
    for name in sizes:
        choose(name, FAULT_KINDS, "fault")
    listed = [NOTHING_WRONG]
    for name in faults:
        if name in FAULT_KINDS:
            kind = FAULT_KINDS[name]
            chosen = [float(size) for size in sizes.get(name, kind.sizes)]
            listed += [(name, size, "nominal") for size in chosen if size != kind.neutral]
        elif name == MISMATCH:
            listed += [(MISMATCH, 1.0, given) for given in MISMATCH_GIVEN]
    return tuple(listed)


def with_recalibration(plan: Plan, split: EvaluationSplit) -> Plan:
    """The plan with the two calibrations of one aperture, where the split has them."""
    pair = find_recalibration(split, plan.work.camera.mask_size(plan.work.scenes.size))
    if pair is None:
        remark = (
            "The real sample of miscalibration was left out: it needs two calibrations of one "
            "aperture that fit these scenes."
        )
        return replace(plan, remarks=(*plan.remarks, remark))
    groups = {
        f"calibration_{one.name}": _fixed_group(f"calibration_{one.name}", one, other)
        for one, other in (pair, pair[::-1])
    }
    # There is only this sample, and most models have seen a part of it: it is marked, not refused.
    verdicts, overlaps = judge_all(
        plan.work.contenders.values(), groups.values(), plan.work.scenes.names, "stress", allow=True
    )
    given = tuple((RECALIBRATION, float(k), name) for k, name in enumerate(RECALIBRATION_GIVEN))
    return replace(
        plan,
        work=replace(plan.work, groups={**plan.work.groups, **groups}),
        conditions={**plan.conditions, **dict.fromkeys(groups, given)},
        verdicts={**plan.verdicts, **verdicts},
        remarks=(*plan.remarks, *overlaps),
    )


def find_recalibration(
    split: EvaluationSplit, size: tuple[int, int]
) -> tuple[MaskRegion, MaskRegion] | None:
    """The single mask, and the same place of the larger mask that shows the same aperture."""
    if SINGLE not in split.regions:
        return None
    single = split.region(SINGLE)
    if single.size != size:
        return None
    for name in split.regions:
        larger = split.region(name)
        for alias in KNOWN_ALIASES:
            if alias.source in (single.source_hash, single.name) and alias.of in (
                larger.source_hash, larger.name,
            ):  # fmt: skip
                whole = MaskRegion.of(larger.source, name=larger.name)
                return single, whole.crop(alias.row, alias.column, *size)
    return None


def _fixed_group(name: str, region: MaskRegion, other: MaskRegion) -> Group:
    return Group(name, region, MaskSet(name, (MaskEntry.of(region),)), other)
