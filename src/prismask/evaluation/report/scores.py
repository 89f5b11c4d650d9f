"""The scores of a report: averages, the paper's layout, paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prismask.evaluation.figures.scores import Scores, scene_figure, trial_figure
from prismask.evaluation.metrics import METRICS
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.sources import Source
from prismask.evaluation.tables.markdown import (
    KAIST_NOTE,
    MEANING,
    PAIRED_HEADER,
    PAIRED_MEANING,
    ScoreTable,
    average_cells,
    headline_metrics,
    metric_title,
    paired_cells,
    spread_text,
    verdicts,
)
from prismask.evaluation.tables.published import (
    OURS,
    PSNR,
    SCENES,
    SCORES,
    SSIM,
    Number,
    PublishedScores,
)
from prismask.evaluation.tables.summaries import AVERAGE, scene_average

PAPER_NOTE = (
    "“Paper” columns: as printed by Wang et al., in the same two conventions; the paper's test "
    "masks mix both instruments, and its ± of the average of SRN + GST is that of running means, "
    "not of single trials."
)


def score_sections(source: Source) -> list[Section]:
    """What one evaluation has to say, a section for each group of masks."""
    record = source.record
    title = f"Scores, {record['protocol']} ({source.name})"
    table = source.scores
    if table is None:
        return [Section(title, [Text(
            "This run is not finished, so it has no scores yet. Go on with it: give its command "
            "again with `--resume`."
        )])]  # fmt: skip
    blocks: list[Block] = [Text(_setting(record))]
    trials = _trial_picture(source)
    if trials is not None:
        blocks.append(trials)
    if record.get("failures"):
        count = record.get("failed", len(record["failures"]))
        blocks += [Text(f"**{count} reconstructions failed** and are left out:"),
                   Listing(record["failures"][:10])]  # fmt: skip
    if record.get("estimated_peaks"):
        blocks.append(Text(KAIST_NOTE))
    if record.get("remarks"):
        blocks.append(Listing(record["remarks"]))
    sections = [Section(title, blocks)]
    for group in record["groups"]:
        sections.append(_group_section(source, table, group))
    return sections


def _setting(record: Mapping[str, Any]) -> str:
    size = "×".join(str(n) for n in record["size"])
    trials = {name: len(g["masks"]["masks"]) for name, g in record["groups"].items()}
    masks = ", ".join(f"{count} of {name}" for name, count in trials.items())
    return (
        f"{len(record['scenes'])} scenes of {size}, masks: {masks}, seed {record['seed']}, "
        f"measurement noise {record['noise']:g}. Numbers are {MEANING}. All models saw the same "
        f"measurements{'' if record.get('same_measurements', True) else ' up to rounding'}."
    )


def _group_section(source: Source, table: ScoreTable, group: str) -> Section:
    record = source.record
    models = list(record["models"])
    title = source.group_title(group)
    blocks: list[Block] = [Text(f"Masks: {record['groups'][group]['text']}.")]
    average = "Average over scenes: mean ± std over masks (standard error of the mean)."
    notes = " ".join(verdicts(record, group))
    blocks.append(Table(average, *average_cells(record, table, group), note=notes))
    blocks.append(_paper_layout(record, table, group))
    picture = _scene_picture(source, table, group)
    if picture is not None:
        blocks.append(picture)
    if len(models) > 1:
        pairs = _paired_table(source, group)
        blocks.append(pairs if pairs is not None else Text("No paired differences were written."))
    return Section(f"{record['protocol']}: {title} ({source.name})", blocks)


def _paper_layout(record: Mapping[str, Any], table: ScoreTable, group: str) -> Table:
    """Scenes below each other, PSNR and SSIM of every method side by side, the paper's last."""
    metrics = [m for m in (PSNR, SSIM) if m in table.metrics] or headline_metrics(table.metrics)
    published = published_beside(record["protocol"], table.scenes)
    models = list(record["models"])
    whole = set(table.scenes) == set(SCENES)
    rows = []
    for scene in (*table.scenes, AVERAGE):
        row = [scene]
        for model in models:
            row += [table.text(model, group, metric, scene) for metric in metrics]
        for scores in published.values():
            for metric in metrics:
                number = scores.find(metric, scene)
                # The paper's average is over all ten scenes; beside fewer it would mislead.
                row.append("–" if scene == AVERAGE and not whole else number_text(metric, number))
        rows.append(row)
    titles = [metric_title(m) for m in metrics]
    groups = [(f"{model} (here)", len(metrics)) for model in models]
    groups += [(f"{name} (paper)", len(metrics)) for name in published]
    note = PAPER_NOTE if published else (
        "No paper's numbers beside these: they are for the ten KAIST scenes, and these are others."
    )  # fmt: skip
    return Table(
        "Scene by scene in the paper's layout: mean ± std over masks.",
        ["scene", *(titles * len(groups))],
        rows,
        groups,
        note,
    )


def published_beside(protocol: str, scenes: Sequence[str]) -> dict[str, PublishedScores]:
    """The paper's methods of this scenario, its own first, where its scenes are among ours."""
    if not set(scenes) & set(SCENES):
        return {}
    return dict(reversed(SCORES.get(protocol, {}).items()))


def number_text(metric: str, number: Number | None) -> str:
    """A published number as it is printed."""
    if number is None:
        return "–"
    return spread_text(metric, number.mean, math.nan if number.std is None else number.std)


def _scene_picture(source: Source, table: ScoreTable, group: str) -> Picture | None:
    metric = headline_metrics(table.metrics)[0]
    scenes = [*table.scenes, AVERAGE]
    scores = []
    for model in source.record["models"]:
        found = [(s, table.find(model, group, metric, s)) for s in scenes]
        known = [(s, row) for s, row in found if row is not None and math.isfinite(row["mean"])]
        if known:
            means, stds = [row["mean"] for _, row in known], [row["std"] for _, row in known]
            scores.append(Scores(model, [s for s, _ in known], means, stds))
    paper = published_beside(source.record["protocol"], table.scenes).get(OURS)
    whole = set(table.scenes) == set(SCENES)
    if paper is not None and metric == PSNR:
        listed = [s for s in scenes if s in SCENES or (s == AVERAGE and whole)]
        numbers = [n for s in listed if (n := paper.find(metric, s)) is not None]
        stds = [math.nan if n.std is None else n.std for n in numbers]
        label = f"{OURS}, as published"
        scores.append(Scores(label, listed, [n.mean for n in numbers], stds, True))
    if not scores:
        return None
    return Picture(
        f"scores-{source.name}-{group}",
        scene_figure(scores, metric_title(metric)),
        f"{METRICS[metric].label} by scene; bars are one standard deviation over masks"
        f"{' (as published for hollow marks)' if paper is not None else ''}. Convention: "
        f"{METRICS[metric].convention}.",
        f"Dots with error bars: {metric_title(metric)} of every model for every scene",
    )


def _trial_picture(source: Source) -> Picture | None:
    """Every trial as a dot: its average over scenes."""
    metric = headline_metrics(source.record["metrics"])[0]
    scores = source.frame("scores.csv", ("group", "model", "trial", "metric", "value"))
    if scores is None:
        return None
    chosen = scores[scores["metric"] == metric]
    trials = chosen.groupby(["group", "model", "trial"], sort=False)["value"].agg(scene_average)
    values: dict[str, dict[str, list[float]]] = {}
    for (group, model), found in trials.groupby(["group", "model"], sort=False):
        values.setdefault(source.group_title(group), {})[model] = found.tolist()
    if not values:
        return None
    return Picture(
        f"trials-{source.name}",
        trial_figure(values, f"{metric_title(metric)}, average over scenes"),
        "One dot is one mask: the average over all scenes of that trial. The dark line is the "
        "mean. How far the dots scatter is what “± std” means.",
        "Rows of dots, one row for each model and mask group",
    )


def _paired_table(source: Source, group: str) -> Table | None:
    paired = source.frame("paired.csv")
    if paired is None:
        return None
    wanted = paired[
        (paired["group"] == group)
        & (paired["scene"] == AVERAGE)
        & paired["metric"].isin(headline_metrics(source.record["metrics"]))
    ]
    rows = [paired_cells(row) for row in wanted.itertuples()]
    return Table("Paired differences on identical measurements.", PAIRED_HEADER, rows,
                 note=PAIRED_MEANING) if rows else None  # fmt: skip
