"""Which pictures of an analysis are shown, and how: chosen by rule, read from its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.evaluation.analyses.scene import SOURCES
from prismask.evaluation.analyses.store import read_arrays
from prismask.evaluation.figures.cubes import (
    SceneView,
    bands_figure,
    blocks_figure,
    colours_figure,
    correlation_figure,
)
from prismask.evaluation.figures.uncertainty import (
    calibration_figure,
    maps_figure,
    noise_figure,
)
from prismask.evaluation.report.document import Block, Picture, Text
from prismask.evaluation.report.models import history_picture
from prismask.evaluation.report.sources import Source

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
        """Where the uncertainty lies, beside where the error is."""
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
                f"{self.record['samples']} masks drawn from the posterior. One logarithmic scale "
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
