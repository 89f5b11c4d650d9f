"""The tests of spectra of a report: pictures of lines and lamps, curves, and a table per group."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from prismask.evaluation.figures.spectra import amplitude_figure, example_figure
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.sources import Source
from prismask.evaluation.run.spectra import EXAMPLES
from prismask.evaluation.tables.files import read_table
from prismask.evaluation.tables.spectra import MEANINGS, cells

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
    return [_section(source) for source in sources]


def _section(source: Source) -> Section:
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
