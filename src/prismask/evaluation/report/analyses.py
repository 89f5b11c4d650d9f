"""The analyses of a report: pictures, spectra, uncertainty, what g has learned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prismask.evaluation.analyses.scene import SOURCES
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.pictures import AnalysisPictures
from prismask.evaluation.report.sources import Source
from prismask.evaluation.tables.published import (
    SCENES,
    SPECTRAL_CORRELATION_AVERAGES,
    SPECTRAL_CORRELATIONS,
)

BLOCKS_NOTE = (
    "Density curves of the five most uniform 16×16 blocks of the truth (dark blocks, below a tenth "
    "of the brightest, and grey ones are left out); Pearson correlation with the truth's curve, "
    "mean over the blocks."
)
PAPER_BLOCKS_NOTE = (
    " The paper picked its five patches by eye and does not say where they are: compare with care."
)


def analysis_pictures(
    folder: Path, record: Mapping[str, Any], truth_pictures: bool = True
) -> Iterable[Picture]:
    """Every figure of an analysis."""
    drawn = AnalysisPictures(Source(folder.name, folder, dict(record)), truth_pictures)
    yield from (
        block for section in _sections(drawn) for block in section if isinstance(block, Picture)
    )


def analysis_sections(source: Source, truth_pictures: bool = True) -> list[Section]:
    """What one analysis has to say."""
    drawn = AnalysisPictures(source, truth_pictures)
    names = ("Reconstructions", "Spectra", "Uncertainty", "Mask noise: prior and learned")
    sections = [
        Section(f"{title} ({source.name})", blocks)
        for title, blocks in zip(names, _sections(drawn), strict=True)
        if blocks
    ]
    if source.record.get("failures"):
        lost = Listing(source.record["failures"])
        sections.append(Section(f"Failed in the analysis ({source.name})", [lost]))
    return sections


def _sections(drawn: AnalysisPictures) -> list[list[Block]]:
    return [_reconstructions(drawn), _spectra(drawn), _uncertainty(drawn), _noise(drawn)]


def _reconstructions(drawn: AnalysisPictures) -> list[Block]:
    record = drawn.record
    scenes = drawn.chosen_scenes
    if not scenes:
        return [Text("Nothing was reconstructed, so there is nothing to show.")]
    blocks: list[Block] = [
        Text(
            f"Through the first mask of {drawn.group_title}. Shown are "
            f"{drawn.choice_text}; every scene is in the tables."
        )
    ]
    if not drawn.truth_pictures:
        blocks.append(Text("The truth is not pictured here; error maps and spectra refer to it."))
    for scene in scenes:
        blocks += drawn.reconstructions(scene)
    if record.get("remarks"):
        blocks.append(Listing(record["remarks"]))
    return blocks


def _spectra(drawn: AnalysisPictures) -> list[Block]:
    blocks: list[Block] = []
    for scene in drawn.chosen_scenes[:1]:
        blocks += drawn.spectra(scene)
    for group in drawn.record["groups"]:
        blocks += [_correlation_table(drawn, group), _distance_table(drawn, group)]
    return blocks


def _by_scene(drawn: AnalysisPictures, group: str, name: str, digits: int) -> list[list[str]]:
    rows = []
    for label, model in drawn.record["models"].items():
        found = model["groups"][group]
        values = [found["scenes"].get(scene, {}).get(name) for scene in drawn.record["scenes"]]
        rows.append([label, *(_text(v, digits) for v in (*values, found["average"].get(name)))])
    return rows


def _correlation_table(drawn: AnalysisPictures, group: str) -> Table:
    scenes = list(drawn.record["scenes"])
    rows = _by_scene(drawn, group, "spectral_correlation", 4)
    note = BLOCKS_NOTE
    if scenes == list(SCENES):
        for name, values in SPECTRAL_CORRELATIONS.items():
            average = SPECTRAL_CORRELATION_AVERAGES[name]
            rows.append([f"{name} (paper)", *(_text(v, 4) for v in (*values, average))])
        note += PAPER_BLOCKS_NOTE
    title = drawn.source.group_title(group)
    return Table(f"Averaged spectral correlation ↑ ({title}, first mask).",
                 ["model", *scenes, "average"], rows, note=note)  # fmt: skip


def _distance_table(drawn: AnalysisPictures, group: str) -> Table:
    title = drawn.source.group_title(group)
    note = (
        "Root mean square difference between the estimate's and the truth's correlation matrices, "
        "over all pairs of different bands: 0 for equal, at most 2."
    )
    rows = _by_scene(drawn, group, "correlation_distance", 4)
    return Table(f"Distance of spectral correlation matrices ↓ ({title}, first mask).",
                 ["model", *drawn.record["scenes"], "average"], rows, note=note)  # fmt: skip


def _uncertainty(drawn: AnalysisPictures) -> list[Block]:
    blocks: list[Block] = []
    for scene in drawn.chosen_scenes[:1]:
        blocks += drawn.maps(scene)
    rows, size_rows = [], []
    for group in drawn.record["groups"]:
        blocks += drawn.calibration(group)
        title = drawn.source.group_title(group)
        for label, model in drawn.record["models"].items():
            found = model["groups"][group]
            size_rows.append([label, title, *_sizes(found["average"])])
            for source, check in found["uncertainty"].items():
                rows.append([label, title, SOURCES.get(source, source), *_check_cells(check)])
    header = ["model", "masks", "RMSE", "std over masks", "std over samples", "RMSE of the mean"]
    blocks.append(
        Table("Epistemic uncertainty, average over scenes, % of full scale.", header, size_rows,
              note="Std: root mean square over all values of the cube. RMSE of the mean: error "
              "that remains when the reconstructions of all masks are averaged, which no spread "
              "over masks can show.")
    )  # fmt: skip
    if not rows:
        return [*blocks, Text(
            "Whether error bars are true was not checked: that takes two masks or more, or a "
            "network with a mask posterior."
        )]  # fmt: skip
    header = ["model", "masks", "error bar", "draws", "50 %", "80 %", "90 %", "95 %",
              "RMSE / std", "AUSE ↓", "AUSE / chance ↓"]  # fmt: skip
    note = (
        "Columns 50 % to 95 %: share of the truth inside the interval, on average over scenes; in "
        "brackets what even a perfect std would reach with so few draws. RMSE / std: 1 is true, "
        "above 1 the error bar is too small by that factor. AUSE: area between the sparsification "
        "curve and the oracle's; relative to chance 0 is perfect, 1 useless. Errors of "
        "neighbouring pixels go together: the scenes are what counts as independent."
    )
    blocks.append(Table("Is the uncertainty true?", header, rows, note=note))
    return blocks


def _sizes(average: Mapping[str, float | None]) -> list[str]:
    names = ("rmse", "std_over_masks", "std_over_samples", "rmse_of_mask_mean")
    found = [average.get(name) for name in names]
    return ["–" if value is None else f"{100 * value:.2f}" for value in found]


def _check_cells(check: Mapping[str, Any]) -> list[str]:
    cells = [str(check["draws"] or "–")]
    for level in check["coverage"]:
        bracket = f" ({100 * level['expected']:.0f})" if check["draws"] else ""
        cells.append(f"{100 * level['observed']:.1f}{bracket}")
    cells += [_text(check[name], 2) for name in ("error_over_std",)]
    return cells + [_text(check[name], 3) for name in ("ause", "ause_over_chance")]


def _noise(drawn: AnalysisPictures) -> list[Block]:
    blocks: list[Block] = list(drawn.noise())
    rows = []
    for group in drawn.record["groups"]:
        for label, model in drawn.record["models"].items():
            found = model["groups"][group]["noise"]
            if found is None:
                continue
            rows.append(
                [label, drawn.source.group_title(group), found["kind"],
                 f"N({found['prior_mean']:g}, {found['prior_std']:g})",
                 *(f"{found[name]:.4g}" for name in ("learned_mean", "learned_std", "g_min",
                                                     "g_mean", "g_max", "effective_std")),
                 f"{100 * found['clamped_share']:.0f} %"]
            )  # fmt: skip
    if not rows:
        return [Text("No model here has a mask posterior, so there is no learned noise to show.")]
    header = ["model", "masks", "posterior", "prior of ε", "mean of g·ε", "std of g·ε", "least g",
              "mean g", "largest g", "std after clamping", "pixels clamped"]  # fmt: skip
    note = "On the first mask of each group, in units of transmission (1 is fully open)."
    blocks.append(Table("Prior and learned noise.", header, rows, note=note))
    return [*blocks, *drawn.histories(drawn.record.get("training") or {})]


def _text(value: float | None, digits: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.{digits}f}"
