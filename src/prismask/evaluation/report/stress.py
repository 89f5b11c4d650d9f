"""The tests on a report: of wrong cameras (curves against the size of a fault, and the two fixed
cases) and of spectra with structure (pictures of lines and lamps, curves, a table per group).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from prismask.evaluation.figures.scores import (
    FaultPanel,
    Scores,
    amplitude_figure,
    example_figure,
    stress_figure,
)
from prismask.evaluation.protocol.conditions import FAULT_KINDS, MISMATCH, RECALIBRATION
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.sources import Source
from prismask.evaluation.run.spectra import EXAMPLES
from prismask.evaluation.tables.files import read_table
from prismask.evaluation.tables.markdown import (
    FIXED_CASES,
    ScoreTable,
    fault_cells,
    headline_metrics,
    metric_title,
    verdicts,
)
from prismask.evaluation.tables.spectra import MEANINGS, cells

WORDS = {name: kind.text for name, kind in FAULT_KINDS.items()} | {
    MISMATCH: "moved by 1.5 px and 1.0 px and turned by 0.3°; the model is given the … mask",
    RECALIBRATION: "two real calibrations of one aperture; the model is given the … mask",
}
"""What each fault is, below its name."""


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
    title = f"Stress: cameras that are not what they are told ({source.name})"
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
            caption = f"{name} ({title}): {WORDS[fault]}. {metric_title(metric)}."
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
