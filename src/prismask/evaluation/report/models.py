"""Tables about the models themselves: ablation, fixed against self-tuned variance, complexity.

With them go their trainings: how validation went, how far they came, what g did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prismask.evaluation.figures.training import course_figure, g_history_figure
from prismask.evaluation.report.document import Block, Picture, Section, Table, Text
from prismask.evaluation.report.scores import number_text
from prismask.evaluation.report.sources import Source, Sources
from prismask.evaluation.run.contenders import weights_of
from prismask.evaluation.tables.markdown import ScoreTable, metric_title, scaled_text
from prismask.evaluation.tables.published import (
    COSTS,
    FIXED_VARIANCE,
    PSNR,
    SCENES,
    SSIM,
    row_number,
    row_of,
)


def training_sections(found: Sources) -> list[Section]:
    """What the runs in the folder wrote down."""
    return [*_courses(found), *_histories(found)]


def _courses(found: Sources) -> list[Section]:
    if not found.trainings:
        return []
    kinds = dict.fromkeys(kind for course in found.trainings.values() for kind in course.scores)
    rows = []
    for name, course in found.trainings.items():
        samples = "–" if course.samples is None else f"{course.samples:,}"
        last = [_last(course.scores.get(kind, ())) for kind in kinds]
        rows.append([name, f"{course.minutes:.1f}", f"{course.steps:,}", samples, *last])
    over = [("", 3), *([("last validation, PSNR paper [dB]", len(kinds))] if kinds else [])]
    table = Table("How far trainings went. Scores of different validation sets do not compare.",
                  ["run", "minutes", "steps", "samples", *kinds],
                  rows, over)  # fmt: skip
    drawn = {name: course for name, course in found.trainings.items() if len(course.checked) > 1}
    blocks: list[Block] = [table]
    if drawn:
        text = "Validation during training."
        blocks.insert(0, Picture("training-curves", course_figure(drawn), text,
                                 "Validation score against minutes of training"))  # fmt: skip
    return [Section("Training curves", blocks)]


def _last(scores: tuple[float, ...]) -> str:
    return f"{scores[-1]:.2f}" if scores and math.isfinite(scores[-1]) else "–"


def _histories(found: Sources) -> list[Section]:
    if not found.g_histories:
        return []
    records = {name: history.to_record() for name, history in found.g_histories.items()}
    picture = history_picture("training", records)
    rows = [
        [name, *(f"{record['numbers'][key]:.4g}" for key in
                 ("first_min", "first_mean", "first_max", "last_min", "last_mean", "last_max",
                  "range_ratio"))]
        for name, record in records.items()
    ]  # fmt: skip
    over = [("first step with g", 3), ("last step", 3), ("", 1)]
    header = ["run", *(("least g", "mean g", "largest g") * 2), "range, last / first"]
    return [Section("g during training", [picture, Table("Range of g.", header, rows, over)])]


def history_picture(name: str, histories: Mapping[str, Any]) -> Picture:
    """The range of g during training; validations without a result are counted."""
    lost = [
        f"{sum(score is None or not math.isfinite(score) for score in history['validation'])} of "
        f"{len(history['validation'])} validations of {label} were not finite"
        for label, history in histories.items()
        if any(score is None or not math.isfinite(score) for score in history["validation"])
    ]
    return Picture(
        name,
        g_history_figure(histories),
        "g over the pixels of a mask during training, from least to largest, and the validation "
        "score." + (f" **{'; '.join(lost)}.**" if lost else ""),
        "The range of g against minutes of training",
    )


KIND_TEXTS = {
    "gst": "self-tuned, with graph",
    "conv": "self-tuned, without graph",
    "fixed": "fixed",
    "none": "none (mask ensemble)",
}

PAPER_NAMES = {"full": "SRN + GST", "w/o GST": "SRN, w/o GST"}


def model_sections(found: Sources) -> list[Section]:
    """Ablation, variance and complexity, from all evaluations together."""
    tables = [(s, table) for s in found.evaluations if (table := s.scores) is not None]
    ablations = [block for source, table in tables for block in _ablation(source, table)]
    if tables and not ablations:
        ablations = [Text(
            "No ablation: it needs trained networks with different mask posteriors "
            "(`without-gst`, `without-gcn`, `without-bilevel` and the full model) in one "
            "evaluation, or in several that `prismask join` puts together."
        )]  # fmt: skip
    blocks: list[Block] = [*ablations]
    for source, table in tables:
        blocks += _variance(source, table)
    blocks += _complexity(found)
    return [Section("Models: ablation, variance, complexity", blocks)] if blocks else []


def _posterior(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = facts.get("record", {}).get("posterior")
    return found if isinstance(found, Mapping) else None


def _networks(source: Source) -> dict[str, Mapping[str, Any]]:
    """Trained networks by label, with their posterior."""
    found = {label: _posterior(facts) for label, facts in source.record["models"].items()}
    return {label: posterior for label, posterior in found.items() if posterior is not None}


def _ablation(source: Source, table: ScoreTable) -> list[Block]:
    networks = _networks(source)
    name = f"{source.record['protocol']} ({source.name})"
    if len({posterior["kind"] for posterior in networks.values()}) < 2:
        return []
    metrics = [m for m in (PSNR, SSIM) if m in table.metrics]
    groups = list(source.record["groups"])
    compare = set(table.scenes) == set(SCENES)
    rows = []
    for label, posterior in networks.items():
        facts = source.record["models"][label]["record"]
        named = f"{facts.get('name', '')} {label}"
        paper = row_of(named, posterior["kind"], facts.get("backbone", ""))
        row = [label, KIND_TEXTS.get(posterior["kind"], posterior["kind"])]
        row += [table.text(label, group, metric) for group in groups for metric in metrics]
        if compare:
            protocol = source.record["protocol"]
            numbers = (number_text(m, row_number(paper, protocol, m)) for m in metrics)
            row += [paper or "–", *numbers]
        rows.append(row)
    titles = [metric_title(m) for m in metrics]
    over = [("", 1), *((source.group_title(g), len(metrics)) for g in groups)]
    header = ["model", "mask posterior", *(titles * len(groups))]
    if compare:
        over.append(("paper, both instruments mixed", 1 + len(metrics)))
        header += ["row", *titles]
    note = "" if compare else "The paper's ablation is for the ten KAIST scenes; these are others."
    return [Table(f"Ablation, {name}: average over scenes, mean ± std over masks.", header, rows,
                  over, note)]  # fmt: skip


def _variance(source: Source, table: ScoreTable) -> list[Block]:
    """Fixed against self-tuned variance, where both were evaluated."""
    networks = {
        label: posterior
        for label, posterior in _networks(source).items()
        if posterior["kind"] in ("fixed", "gst", "conv")
    }
    if "fixed" not in {posterior["kind"] for posterior in networks.values()}:
        return []
    metrics = [m for m in (PSNR, SSIM) if m in table.metrics]
    groups = list(source.record["groups"])
    rows = []
    for label, posterior in networks.items():
        fixed = posterior["kind"] == "fixed"
        prior = f"N({posterior['prior_mean']:g}, {posterior['prior_std']:g})"
        row = [label, prior, f"{posterior['initial_std']:g}" if fixed else "learned"]
        row += [table.text(label, group, metric) for group in groups for metric in metrics]
        rows.append(row)
    header = ["model", "prior of ε", "g", *([metric_title(m) for m in metrics] * len(groups))]
    over = [("", 2), *((source.group_title(g), len(metrics)) for g in groups)]
    caption = f"Fixed against self-tuned variance, {source.record['protocol']} ({source.name})."
    return [Table(caption, header, rows, over, f"The paper: {FIXED_VARIANCE} (PSNR paper).")]


def _complexity(found: Sources) -> list[Block]:
    rows: list[list[str]] = []
    for source in found.evaluations:
        for label, cost in (source.record.get("costs") or {}).items():
            rows.append(
                [
                    label,
                    source.record.get("device_name", "?"),
                    scaled_text(cost.get("parameters"), 1e6, 3),
                    scaled_text(cost.get("multiply_adds"), 1e9, 2),
                    _training_text(found.analyses, source.record["models"].get(label, {})),
                    _number(cost.get("seconds_per_sample")),
                    scaled_text(cost.get("peak_memory_bytes"), 2**30, 2),
                ]
            )
    if not rows:
        return [Text("No complexity table: no evaluation here was timed.")]
    rows = [row for index, row in enumerate(rows) if row not in rows[:index]]
    for name, cost in COSTS.items():
        days = "–" if cost.training_days is None else f"{cost.training_days:g} d"
        rows.append(
            [f"{PAPER_NAMES.get(name, name)} (paper)", "RTX 3090", f"{cost.parameters_million:g}",
             f"{cost.multiply_adds_billion:g}", days, f"{cost.seconds_per_sample:g}", "–"]
        )  # fmt: skip
    header = ["model", "device", "parameters [M]", "multiply-adds [G]",
              "training until these weights", "s per sample",
              "peak memory [GiB]"]  # fmt: skip
    note = (
        "One snapshot at a time, the device's queue drained. “–”: not known, or nothing to count. "
        "The paper's multiply-adds are for 256×256×28; it calls them FLOPs."
    )
    return [Table("Complexity: size, work and time of one snapshot.", header, rows, note=note)]


def _training_text(analyses: Sequence[Source], model: Mapping[str, Any]) -> str:
    """How long a model was trained, from an analysis of the same weights.

    Labels do not tell: two runs may give one label to different networks."""
    weights = weights_of(model.get("identity", ""))
    for source in analyses:
        for facts in source.record["models"].values():
            seconds = facts.get("training_seconds")
            if seconds and weights and weights_of(facts.get("identity", "")) == weights:
                return f"{seconds / 60:.0f} min, {facts.get('training_device') or '?'}"
    return "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
