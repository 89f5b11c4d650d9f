"""What miscalibration costs: the light meets the true camera, the model is given the nominal one.

Three parts, in one long-form table:

- a curve for each fault of `conditions.FAULT_KINDS`: the score against the size of one fault;
- the mismatch case published elsewhere (`conditions.MISMATCH`), with the ideal, the nominal and
  the true mask given;
- the one real sample there is: two calibrations of one physical aperture, measured through one
  and reconstructed with the other, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prismask.checks import choose
from prismask.evaluation.protocol.conditions import (
    FAULT_KINDS,
    MISMATCH,
    MISMATCH_GIVEN,
    RECALIBRATION,
    RECALIBRATION_GIVEN,
)
from prismask.evaluation.protocol.overlap import judge_all
from prismask.evaluation.protocol.splits import (
    SINGLE,
    EvaluationSplit,
    Group,
    group_names,
    read_evaluation_split,
)
from prismask.evaluation.run.contenders import Models
from prismask.evaluation.run.plan import NOTHING_WRONG, Condition, Plan, Settings, with_options
from prismask.evaluation.run.runner import Evaluation, plan_evaluation, run_plan
from prismask.evaluation.run.runs import earlier_record
from prismask.optics.camera import CASSI
from prismask.optics.masks import KNOWN_ALIASES, MaskEntry, MaskRegion, MaskSet
from prismask.optics.resolve import CameraDescription
from prismask.parallel.ownership import owned
from prismask.progress import Progress
from prismask.scenes.records import Cube, Mask

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
