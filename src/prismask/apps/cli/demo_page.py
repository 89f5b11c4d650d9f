"""The demo's page: what it says about one run, with facts, scores, conventions and provenance.

Its look and its unchanging sentences are in `evaluation/report/templates/demo.html`.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prismask import __version__
from prismask.apps.cli.evaluate_pair import score_rows
from prismask.checks import size_text
from prismask.inference.options import Options

if TYPE_CHECKING:
    from prismask.apps.cli.demo import Shoot

SHOWN = {
    "snapshot": "snapshot.png",
    "truth": "truth.png",
    "reconstruction": "reconstruction.png",
    "error": "error.png",
    "spectra": "spectra.png",
    "bands_picture": "bands.png",
}
"""Which file each picture of the page is."""

LEVEL = Options.level
"""Coverage that the interval claims: the demo takes the default of `reconstruct`."""


@dataclass(frozen=True)
class PageContent:
    """Everything the page shows."""

    pictures: Mapping[str, bytes]
    """PNG bytes: snapshot, truth, reconstruction, error, spectra, bands_picture."""
    scores: Sequence[tuple[str, str, str]]
    """Name, value and convention of each score."""
    provenance: Sequence[tuple[str, str]]
    """What was used, in pairs."""
    files: Sequence[str]
    """Names of the files beside the page."""
    facts: Mapping[str, str]
    """bands, snapshot_size, cube_size, sensor, band_words."""
    what_one_sees: str
    """A paragraph that explains the error map."""


def build_page(content: PageContent) -> str:
    """The page as HTML that needs no other file and no network."""
    from prismask.evaluation.report.render import render

    return render("demo.html", content=content)


def page_content(shoot: Shoot, pictures: Mapping[str, bytes], files: Sequence[str]) -> PageContent:
    """The page's words and pictures."""
    facts = {
        "bands": str(shoot.truth.bands),
        "snapshot_size": f"{math.prod(shoot.snapshot.size):,}",
        "cube_size": f"{shoot.truth.values.size:,}",
        "sensor": shoot.sensor_text,
        "band_words": (
            "is the spread over the pixels of the patch"
            if shoot.estimate.lower is None
            else f"is the {100 * LEVEL:.0f} % interval of a pixel, averaged over the patch"
        ),
    }
    scores = [
        (row["label"], row["text"], row["convention"])
        for row in score_rows(shoot.estimate, shoot.truth)
    ]
    return PageContent(
        pictures={name: pictures[file] for name, file in SHOWN.items()},
        scores=scores,
        provenance=provenance(shoot),
        files=files,
        facts=facts,
        what_one_sees=what_one_sees(shoot),
    )


def what_one_sees(shoot: Shoot) -> str:
    """A paragraph for someone who sees such a reconstruction for the first time.

    Numbers are of this run. Reasons are what one expects of such a camera; the demo tests none.
    """
    from prismask.evaluation.figures.demo import error_map

    errors = error_map(shoot.estimate, shoot.truth)
    typical, worst = float(np.median(errors)), float(np.percentile(errors, 99))
    name, low, high = furthest_patch(shoot)
    numbers = (
        f"Half of the pixels are off by less than {typical:.1f} % of full scale, one in a hundred "
        f"by more than {worst:.0f} %. Of the six patches below, {name} is furthest off: its mean "
        f"spectrum lies between {low:+.0f} % and {high:+.0f} % of its own peak away from the "
        "truth, depending on the band. The prism spreads light along rows, so errors beside "
        "bright edges are to be expected in that direction."
    )
    return " ".join([numbers, *interval_words(shoot), method_words(shoot)])


def interval_words(shoot: Shoot) -> list[str]:
    """How often the truth of this run lies inside the interval, where there is one."""
    lower, upper = shoot.estimate.lower, shoot.estimate.upper
    if lower is None or upper is None:
        return []
    inside = 100 * float(((shoot.truth.values >= lower) & (shoot.truth.values <= upper)).mean())
    return [
        f"Every value comes with an interval that claims to hold the truth "
        f"{100 * LEVEL:.0f} times out of 100; in this scene, which is not like those it was "
        f"fitted on, it did {inside:.0f} times."
    ]


def method_words(shoot: Shoot) -> str:
    """What to think of the method, in a sentence or two."""
    if shoot.estimate.attrs["method"] == "network":
        return (
            "The network was trained on photographs of real things through other masks; it has "
            "seen neither this mask nor any drawn scene."
        )
    return (
        "The scene was laid out with large, even surfaces and a dim background, which suits this "
        "method; a busy or bright scene comes out worse. It needs no training and assumes only "
        "that scenes are smooth between edges."
    )


def furthest_patch(shoot: Shoot) -> tuple[str, float, float]:
    """The shown patch whose mean spectrum is furthest off: name, lowest and highest deviation.

    Deviations are in percent of the largest value of the patch's true spectrum.
    """
    from prismask.apps.cli.demo import SHOWN_PATCHES
    from prismask.scenes.synthetic.demo import colour_checker_boxes

    boxes = colour_checker_boxes(shoot.truth.size)
    found = []
    for name in SHOWN_PATCHES:
        rows, columns = boxes[name]
        truth = shoot.truth.values[:, rows, columns].mean(axis=(1, 2))
        estimate = shoot.estimate.values[:, rows, columns].mean(axis=(1, 2))
        off = 100 * (estimate - truth) / truth.max()
        found.append((float(np.abs(off).max()), name, float(off.min()), float(off.max())))
    return max(found)[1:]


def provenance(shoot: Shoot) -> list[tuple[str, str]]:
    """What was used, so that the page can be made again."""
    import torch

    truth, estimate = shoot.truth, shoot.estimate
    camera = shoot.camera
    return [
        ("command", f"prismask demo --size {truth.size[0]} --seed {shoot.seed}{shoot.chosen}"),
        ("scene", f"{truth.attrs['source']}, light {truth.attrs['illuminant']}, id {truth.hash}"),
        ("mask", f"fabricated, {size_text(shoot.mask.size)}, id {shoot.mask.hash}"),
        (
            "camera",
            f"{camera.design} disperser, {camera.bands} bands over {camera.extent} px "
            f"of the {camera.axis}",
        ),
        ("sensor", str(shoot.snapshot.attrs["sensor"])),
        ("snapshot", f"{size_text(shoot.snapshot.size)}, id {shoot.snapshot.hash}"),
        ("method", f"{estimate.attrs['method_options']}"),
        ("time", f"{estimate.attrs['seconds']:.1f} s on {estimate.attrs['device']}"),
        (
            "versions",
            f"prismask {__version__}, torch {torch.__version__}, NumPy {np.__version__}, "
            f"Python {platform.python_version()}",
        ),
    ]
