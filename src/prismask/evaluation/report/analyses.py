"""The analyses of a report: pictures, spectra, uncertainty, what g has learned.

Which pictures of an analysis are shown, and how, is chosen by rule and read from its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.evaluation.analyses.scene import SOURCES
from prismask.evaluation.figures.cubes import (
    SceneView,
    bands_figure,
    blocks_figure,
    calibration_figure,
    colours_figure,
    correlation_figure,
    maps_figure,
    noise_figure,
)
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.models import history_picture
from prismask.evaluation.report.sources import Source
from prismask.evaluation.run.runs import read_arrays
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


def analysis_pictures(folder: Path, record: Mapping[str, Any]) -> Iterable[Picture]:
    """Every figure of an analysis."""
    drawn = AnalysisPictures(Source(folder.name, folder, dict(record)))
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


PICTURED_MODELS = 4
"""Models pictured side by side; tables have all."""
Arrays = Mapping[str, NDArray[Any]]


class AnalysisPictures:
    """Pictures of one analysis. They are of its first group of masks, unless they say otherwise."""

    def __init__(self, source: Source, truth_pictures: bool = True) -> None:
        self.source, self.record, self.truth_pictures = source, source.record, truth_pictures
        self.group = next(iter(self.record["groups"]))
        self.group_title = source.group_title(self.group)
        self.models = list(self.record["models"])[:PICTURED_MODELS]
        with_results = [label for label in self.models if self._numbers(label)]
        self.leader = (with_results or self.models)[0]
        """By whose errors scenes and regions are chosen."""

    @cached_property
    def chosen_scenes(self) -> list[str]:
        """The worst, the middle and the best scene of the first model that has any."""
        scenes = self._numbers(self.leader)
        order = sorted(scenes, key=lambda name: scenes[name].get("psnr_paper") or math.inf)
        if not order:
            return []
        return list(dict.fromkeys((order[0], order[len(order) // 2], order[-1])))

    @property
    def choice_text(self) -> str:
        """How scenes and models were chosen."""
        text = f"the worst, the middle and the best scene of {self.leader} by PSNR paper"
        count = len(self.record["models"])
        if count <= PICTURED_MODELS:
            return text
        return f"{text}, and {PICTURED_MODELS} of {count} models"

    def reconstructions(self, scene: str) -> list[Block]:
        """Colour, zooms, errors and bands of one scene."""
        found = self._arrays(scene)
        wavelengths = self.record["wavelengths_nm"]
        if not found:
            return [Text(f"The cubes of {scene} are missing from {self.source.name}.")]
        if wavelengths is None:
            return [Text(f"{scene}: wavelengths are unknown, so no colours can be shown.")]
        truth = self._truth(scene)
        view = SceneView(
            {label: arrays["estimate"].astype(np.float32) for label, arrays in found.items()},
            {label: arrays["error"] for label, arrays in found.items()},
            wavelengths,
            truth if self.truth_pictures else None,
            None if truth is None else _exposure(truth, wavelengths),
            {label: self._score(label, scene) for label in found},
        )
        shows = view.truth is not None
        missing = "" if shows or not self.truth_pictures else " The truth's file is missing."
        return [
            Picture(
                self._name("colour", scene),
                colours_figure(view),
                f"{scene}: colour from the spectra, all with one exposure; below, the two framed "
                f"regions enlarged (white: where {next(iter(found))} errs most, yellow: where its "
                "error is in the middle); last, the root mean square error over the bands."
                f"{missing}",
                f"Reconstructions of {scene} in colour, enlarged regions and error maps",
                shows,
            ),
            Picture(
                self._name("bands", scene),
                bands_figure(view),
                f"{scene}: single bands in their own colour, each with the brightness scale of "
                f"{'the truth' if shows else next(iter(found))}.",
                f"Five bands of {scene} for every model",
                shows,
            ),
        ]

    def spectra(self, scene: str) -> list[Block]:
        """Blocks and correlation matrices of one scene."""
        found = self._arrays(scene)
        if not found:
            return []
        wavelengths = self.record["wavelengths_nm"]
        first = next(iter(found.values()))
        blocks: list[Block] = []
        if len(first["block_truth"]):
            numbers = {label: self._numbers(label)[scene]["block_correlations"] for label in found}
            blocks.append(
                Picture(
                    self._name("blocks", scene),
                    blocks_figure(
                        first["block_truth"],
                        {label: arrays["block_spectra"] for label, arrays in found.items()},
                        {label: arrays["block_spread"] for label, arrays in found.items()},
                        wavelengths,
                        numbers,
                    ),
                    f"{scene}: mean spectra of the most uniform blocks. Shaded: one standard "
                    "deviation over the block's pixels. r: correlation with the truth's curve, in "
                    "the order of the legend.",
                    f"Spectra of five blocks of {scene}, every model against the truth",
                )
            )
        matrices = {label: arrays["correlation"] for label, arrays in found.items()}
        truth = read_arrays(self.source.folder / self.record["truth"][scene]["file"])
        if truth is not None:
            matrices = {"truth": truth["correlation"], **matrices}
        blocks.append(
            Picture(
                self._name("correlation", scene),
                correlation_figure(matrices, wavelengths),
                f"{scene}: correlation of every pair of bands over all pixels.",
                "Square maps of the correlation between bands, one for each model",
            )
        )
        return blocks

    def maps(self, scene: str) -> list[Block]:
        """Where the uncertainty lies, next to where the error is."""
        maps = {}
        for label, arrays in self._arrays(scene).items():
            named = {"std over masks": "std_over_masks", "std over samples": "std_over_samples"}
            found = {title: arrays[key] for title, key in named.items() if key in arrays}
            if found:
                maps[label] = {"error": arrays["error"], **found}
        if not maps:
            return []
        return [
            Picture(
                self._name("uncertainty", scene),
                maps_figure(maps),
                f"{scene}: error of the reconstruction through the first mask, spread over "
                f"{self.record['masks']} masks ({self.group_title}), and spread over "
                f"{self.record['samples']} masks drawn around the first one. One logarithmic scale "
                "for all: equal colours are equal sizes.",
                f"Maps of error and predicted standard deviation for {scene}",
            )
        ]

    def calibration(self, group: str) -> list[Block]:
        """Coverage, reliability and sparsification of all models in a group."""
        found = {}
        for label in self.models:
            checks = self.record["models"][label]["groups"][group]["uncertainty"]
            for source, check in checks.items():
                found[f"{label}: {SOURCES.get(source, source)}"] = check
        if not found:
            return []
        return [
            Picture(
                f"calibration-{self.source.name}-{group}",
                calibration_figure(found),
                f"Masks: {self.source.group_title(group)}. Left: share of the truth inside central "
                "intervals; bars reach from the lowest to the highest scene. Middle: error of "
                "values with a like predicted std; above the dotted line the std is too small. "
                "Right: error of what is left when the most uncertain pixels are dropped; dashed: "
                "the oracle, which drops the largest errors first.",
                "Three plots: coverage, reliability and sparsification curves",
            )
        ]

    def noise(self) -> list[Block]:
        """Prior against learned noise."""
        groups = {
            label: self.record["models"][label]["groups"][self.group] for label in self.models
        }
        found = {label: one["noise"] for label, one in groups.items() if one["noise"] is not None}
        if not found:
            return []
        return [
            Picture(
                f"noise-{self.source.name}",
                noise_figure(found),
                f"Noise on the first mask of {self.group_title}: the prior of ε and what the "
                "posterior makes of it, g·ε, each relative to its own peak, at the prior's scale "
                "and closer; right: g of pixels with a like transmission.",
                "Density of the prior and of the learned noise, and g against transmission",
            )
        ]

    def histories(self, histories: Mapping[str, Any]) -> list[Block]:
        """How g moved during training."""
        if not histories:
            return []
        return [history_picture(f"training-{self.source.name}", histories)]

    def _numbers(self, label: str) -> dict[str, Any]:
        scenes: dict[str, Any] = self.record["models"][label]["groups"][self.group]["scenes"]
        return scenes

    def _score(self, label: str, scene: str) -> str:
        value = self._numbers(label)[scene].get("psnr_paper")
        return "" if value is None else f"{value:.2f} dB PSNR paper"

    def _arrays(self, scene: str) -> dict[str, Arrays]:
        """The arrays of every pictured model that has this scene."""
        found: dict[str, Arrays] = {}
        for label in self.models:
            if scene in self._numbers(label):
                arrays = read_arrays(self.source.folder / self._numbers(label)[scene]["file"])
                if arrays is not None:
                    found[label] = arrays
        return found

    def _truth(self, scene: str) -> NDArray[np.float32] | None:
        arrays = read_arrays(self.source.folder / self.record["truth"][scene]["file"])
        return None if arrays is None else arrays["truth"].astype(np.float32)

    def _name(self, kind: str, scene: str) -> str:
        return f"{kind}-{self.source.name}-{scene}"


def _exposure(truth: NDArray[np.float32], wavelengths: Any) -> float:
    from prismask.scenes.colour import auto_exposure
    from prismask.scenes.records import Cube

    return auto_exposure(Cube(truth, np.asarray(wavelengths)))
