"""The scores of a report.

Of an evaluation: averages, the paper's layout, paired differences, coverage by scene. Of wrong
cameras: curves over the size of a fault, and the two fixed cases. Of spectra with structure:
pictures of lines and lamps, curves, a table per group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from prismask.evaluation.figures.cubes import coverage_figure
from prismask.evaluation.figures.scores import (
    FaultPanel,
    Scores,
    amplitude_figure,
    example_figure,
    scene_figure,
    stress_figure,
    trial_figure,
)
from prismask.evaluation.metrics import METRICS
from prismask.evaluation.protocol.conditions import FAULT_KINDS
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.sources import Source
from prismask.evaluation.run.spectra import EXAMPLES, MEANINGS, cells
from prismask.evaluation.tables import published
from prismask.evaluation.tables.markdown import (
    FAULT_WORDS,
    FIXED_CASES,
    KAIST_NOTE,
    MEANING,
    PAIRED_HEADER,
    PAIRED_MEANING,
    ScoreTable,
    average_cells,
    fault_cells,
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
)
from prismask.evaluation.tables.summaries import AVERAGE, read_table, scene_average

INSIDE = "inside"
"""The metric that counts coverage."""
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


def coverage_sections(sources: Sequence[Source]) -> list[Section]:
    """How much of every scene lay inside the 90 % interval, in all evaluations that counted it."""
    found: dict[str, dict[str, float]] = {}
    for source in sources:
        table = source.scores
        if table is None or INSIDE not in table.metrics:
            continue
        for model, group in product(source.record["models"], source.record["groups"]):
            rows = {scene: table.find(model, group, INSIDE, scene) for scene in table.scenes}
            shares = {
                scene: float(row["mean"])
                for scene, row in rows.items()
                if row is not None and math.isfinite(row["mean"])
            }
            if shares:
                found[f"{model}, {source.group_title(group)} ({source.name})"] = shares
    if not found:
        return []
    scenes = list(dict.fromkeys(scene for shares in found.values() for scene in shares))
    lines = []
    for name, shares in found.items():
        mean = math.fsum(shares.values()) / len(shares)
        numbers = [*(shares.get(scene, math.nan) for scene in scenes), min(shares.values()), mean]
        lines.append([name, *("–" if math.isnan(one) else f"{one:.1f}" for one in numbers)])
    caption = "Share of the true values inside the 90 % interval by scene, mean over masks, in %."
    picture = Picture(
        "coverage", coverage_figure(found), caption,
        "Dots: coverage of each scene, with the target band of the mean",
    )  # fmt: skip
    table_of = Table("The same in numbers.", ["", *scenes, "worst", "mean"], lines)
    return [Section("Coverage by scene", [picture, table_of])]


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
                number = scores.get(metric, {}).get(scene)
                # The paper's average is over all ten scenes; next to fewer it would mislead.
                row.append("–" if scene == AVERAGE and not whole else number_text(metric, number))
        rows.append(row)
    titles = [metric_title(m) for m in metrics]
    groups = [(f"{model} (here)", len(metrics)) for model in models]
    groups += [(f"{name} (paper)", len(metrics)) for name in published]
    note = PAPER_NOTE if published else (
        "No numbers of the paper here: they are for the ten KAIST scenes, and these are others."
    )  # fmt: skip
    return Table(
        "Scene by scene in the paper's layout: mean ± std over masks.",
        ["scene", *(titles * len(groups))],
        rows,
        groups,
        note,
    )


def published_beside(protocol: str, scenes: Sequence[str]) -> dict[str, published.Scores]:
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
        numbers = [n for s in listed if (n := paper[metric].get(s)) is not None]
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


# --- wrong cameras --------------------------------------------------------------------------------


def stress_sections(sources: Sequence[Source]) -> list[Section]:
    """What every stress test has to say; before them, several in one figure."""
    return [*_comparison(sources), *(_stress_section(source) for source in sources)]


def _comparison(sources: Sequence[Source]) -> list[Section]:
    """The curves of all stress tests that share a group and a metric, one above the other."""
    finished = {source.name: table for source in sources if (table := source.scores) is not None}
    by_name = {source.name: source for source in sources}
    blocks: list[Block] = []
    for group in dict.fromkeys(g for name in finished for g in by_name[name].record["groups"]):
        shared: dict[str, dict[str, ScoreTable]] = {}
        for name, table in finished.items():
            if group in by_name[name].record["groups"]:
                metric = headline_metrics(by_name[name].record["metrics"])[0]
                shared.setdefault(metric, {})[name] = table
        for metric, tables in shared.items():
            panels = _panels(tables, group, metric)
            if len(tables) < 2 or not panels:
                continue
            title = by_name[next(iter(tables))].group_title(group)
            blocks.append(
                Picture(
                    f"stress-together-{metric}-{group}",
                    stress_figure(panels, metric_title(metric)),
                    f"Masks: {title}. The curves of {', '.join(tables)} in one figure: a model of "
                    "one name has one colour, a stress test one kind of line. Each averages over "
                    "its own scenes and masks.",
                    "Small panels, one for each fault, with the curves of several stress tests",
                )
            )
    return [Section("Stress tests together", blocks)] if blocks else []


def _stress_section(source: Source) -> Section:
    title = f"Stress: cameras that differ from their description ({source.name})"
    table = source.scores
    if table is None:
        return Section(title, [Text("This stress test is not finished: `--resume` completes it.")])
    metric = headline_metrics(source.record["metrics"])[0]
    blocks: list[Block] = [
        Text(
            "The light goes through a camera with one fault; the model is given the nominal mask "
            f"and dispersion. {metric_title(metric)}, average over scenes "
            f"({len(source.record['scenes'])} here), mean ± std over masks. The dotted line marks "
            "the size at which nothing is wrong; all panels share one scale."
        )
    ]
    for group in source.record["groups"]:
        blocks += _group(source, table, group, metric)
    if source.record.get("remarks"):
        blocks.append(Listing(source.record["remarks"]))
    return Section(title, blocks)


def _group(source: Source, table: ScoreTable, group: str, metric: str) -> list[Block]:
    """A figure of all faults that have sizes, and a table for each fault."""
    title = source.group_title(group)
    blocks: list[Block] = []
    panels = _panels({"": table}, group, metric)
    if panels:
        blocks.append(
            Picture(
                f"stress-{source.name}-{group}",
                stress_figure(panels, metric_title(metric)),
                f"Masks: {title}. {metric_title(metric)} against the size of one fault that "
                "the model does not know about; bars are one standard deviation over masks.",
                "Small panels, one for each fault: the score of every model falls as it grows",
            )
        )
    for fault, (header, rows) in fault_cells(table, group, metric):
        if rows:
            name = fault.replace("_", " ").capitalize()
            caption = f"{name} ({title}): {FAULT_WORDS[fault]}. {metric_title(metric)}."
            note = " ".join(verdicts(source.record, group)) if fault in FIXED_CASES else ""
            blocks.append(Table(caption, header, rows, note=note))
    return blocks


def _panels(tables: Mapping[str, ScoreTable], group: str, metric: str) -> list[FaultPanel]:
    """The curves of one or more tables, a panel for each fault that one of them has."""
    panels = []
    for fault, kind in FAULT_KINDS.items():
        curves = [
            curve
            for source, table in tables.items()
            for model in table.models
            if (curve := _curve(table, group, fault, metric, model, source)) is not None
        ]
        if curves:
            panels.append(FaultPanel(fault, kind.text, kind.neutral, curves))
    return panels


def _curve(
    table: ScoreTable, group: str, fault: str, metric: str, model: str, source: str
) -> Scores | None:
    found = [
        (condition[1], row)
        for condition in table.conditions(group, fault)
        if (row := table.find(model, group, metric, condition=condition)) is not None
        and math.isfinite(row["mean"])
    ]
    if not found:
        return None
    means, stds = [row["mean"] for _, row in found], [row["std"] for _, row in found]
    return Scores(model, [size for size, _ in found], means, stds, source=source)


# --- spectra with structure -----------------------------------------------------------------------


PICTURED = (
    ("line", 5.0), ("line", 10.0), ("line", 20.0), ("line", 40.0), ("dips", 30.0), ("laser", 0.0),
    ("FL2", 0.0), ("FL11", 0.0), ("HP1", 0.0), ("LED-RGB1", 0.0), ("cosine", 7.0),
    ("cosine", 14.0),
)  # fmt: skip
"""Structures that are pictured, where they were tested."""
SIZES = {
    "line": "width of a line [nm]",
    "dips": "distance of two dips [nm]",
    "cosine": "period of a cosine [bands]",
}


def spectra_sections(sources: Sequence[Source]) -> list[Section]:
    """What every test of spectra has to say."""
    return [_spectra_section(source) for source in sources]


def _spectra_section(source: Source) -> Section:
    title = f"Spectra with structure ({source.name})"
    path = source.folder / "summary.csv"
    if not source.is_finished or not path.is_file():
        return Section(title, [Text("This test is not finished: `--resume` completes it.")])
    rows = list(read_table(path))
    record = source.record
    blocks: list[Block] = [
        Text(f"A known structure was planted into every scene. {MEANINGS}"),
        *_examples(source),
    ]
    for group in record["trial_scenes"]:
        blocks += _curves(source, rows, group)
        header, lines = cells(rows, group)
        trials = len(record["trial_scenes"][group])
        caption = (
            f"Spectra with structure, {group} scenes: {trials} trials of {record['size']}×"
            f"{record['size']} pixels, interval of {100 * record['level']:g} %."
        )
        # Tables name their row in the first column alone.
        merged = [[f"{line[0]}, {line[1]}", *line[2:]] for line in lines]
        blocks.append(Table(caption, ["structure, method", *header[2:]], merged))
    if record["remarks"]:
        blocks.append(Listing(record["remarks"]))
    return Section(title, blocks)


def read_examples(source: Source) -> list[dict[str, Any]]:
    """Spectra of single pixels; a torn last line is left out, of two alike the later one counts."""
    path = source.folder / EXAMPLES
    if not path.is_file():
        return []
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        found[one["model"], one["feature"], one["size"]] = one
    return list(found.values())


def _examples(source: Source) -> list[Block]:
    examples = read_examples(source)
    shown = [
        one for place in PICTURED for one in examples if (one["feature"], one["size"]) == place
    ]
    if not shown:
        return []
    level = f"{100 * source.record['level']:g} %"
    return [
        Picture(
            f"spectra-{source.name}-examples",
            example_figure(shown, source.record["wavelengths_nm"]),
            "For each structure a pixel of the first drawn scene, where it is middling strong: "
            f"the truth, what each method made of it, and its {level} interval where it has one.",
            "Small panels, one for each structure: spectra of the truth and of every method",
        )
    ]


def _curves(source: Source, rows: Sequence[Mapping[str, Any]], group: str) -> list[Block]:
    shares: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        kind, known = row["feature"], not math.isnan(row["mean"])
        if row["group"] == group and row["metric"] == "kept" and kind in SIZES and known:
            curves = shares.setdefault(kind, {})
            curves.setdefault(row["model"], []).append((row["size"], row["mean"]))
    if not shares:
        return []
    return [
        Picture(
            f"spectra-{source.name}-{group}",
            amplitude_figure(shares, SIZES),
            f"{group.capitalize()} scenes: share of a structure's amplitude that is left, against "
            "its size. The dotted line is all of it.",
            "Panels for lines, dips and cosines: the share that each method keeps, against size",
        )
    ]
