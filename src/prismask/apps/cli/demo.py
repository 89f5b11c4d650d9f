"""`prismask demo`: from a synthetic scene to a page with its reconstruction, in one command.

The page shows one run, with facts, scores, conventions and provenance; its look and its
unchanging sentences are in `evaluation/report/templates/demo.html`.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from prismask import __version__
from prismask.apps.cli.evaluate_pair import score_rows
from prismask.apps.cli.terminal import Report, reporter, say
from prismask.checks import size_text
from prismask.errors import OutputExistsError
from prismask.inference.options import Options
from prismask.scenes.defaults import SIZE

if TYPE_CHECKING:
    from prismask.inference.reconstruct import Reconstruction
    from prismask.optics.camera import CASSI
    from prismask.scenes.records import Cube, Mask, Measurement, Record

SHOWN_PATCHES = ("blue", "green", "red", "yellow", "magenta", "cyan")
FULL_WELL_ELECTRONS = 20_000.0
READ_ELECTRONS = 8.0
BITS = 12

STAGES = {
    "making the method ready": 1.0, "drawing the scene": 1.1, "taking the snapshot": 0.1,
    "reconstructing": 2.5, "drawing the figures": 0.8, "writing the files": 0.7,
}  # fmt: skip
"""What it does, with the seconds that each took at the default size on one core."""

RECORDS = ("truth.nc", "mask.nc", "snapshot.nc", "cube.nc")
PICTURES = (
    "truth.png", "snapshot.png", "reconstruction.png", "error.png", "spectra.png", "bands.png",
    "overview.png",
)  # fmt: skip
PAGE = "index.html"


@dataclass(frozen=True)
class Shoot:
    """Everything that one run of the demo made."""

    truth: Cube
    mask: Mask
    camera: CASSI
    snapshot: Measurement
    estimate: Cube
    seed: int
    chosen: str = ""
    """Options of the command that chose the method, as they were written."""

    @property
    def sensor_text(self) -> str:
        """The sensor in words."""
        return (
            f"photon noise of a sensor that holds {FULL_WELL_ELECTRONS:,.0f} electrons, "
            f"{READ_ELECTRONS:g} electrons of read noise, {BITS} bits"
        )


def demo(
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("demo"),
    size: int = SIZE,
    seed: int = 0,
    illuminant: str = "D65",
    method: str | None = None,
    model: str | None = None,
    device: str = "auto",
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Simulate, reconstruct and show a synthetic scene: a page, pictures and files.

    Parameters
    ----------
    out
        Folder for the page, the pictures and the NetCDF files.
    size
        Height and width of the scene in pixels.
    seed
        Random seed of the textures, the mask and the noise.
    illuminant
        The light in the scene: D65, A, FL2 …
    method
        A solver instead of the network: gap-tv, twist …
    model
        Weights by name or path. [default: those that `reconstruct` uses]
    device
        auto, cpu or cuda.
    overwrite
        Replace the demo's files if they exist.
    """
    from prismask.evaluation.figures.style import check_available
    from prismask.scenes.atomic import check_folder, refuse_read

    check_available()
    _refuse_existing(out, overwrite)
    check_folder(out)
    refuse_read([out / name for name in (*RECORDS, *PICTURES, PAGE)], model)
    how = {"method": method, "model": model, "device": device}
    with reporter(STAGES) as report:
        report("making the method ready")
        ready = _reconstruction(how)
        shoot = photograph(report, size, seed, illuminant, ready)
        report("drawing the figures")
        pictures = draw(shoot)
        report("writing the files")
        out.mkdir(parents=True, exist_ok=True)
        _write(shoot, pictures, out, overwrite)
    say(f"{out / PAGE}")


def _reconstruction(how: dict[str, Any]) -> Reconstruction:
    """First of all: an unknown method is refused before anything is drawn."""
    from prismask.inference.options import Options
    from prismask.inference.reconstruct import Reconstruction

    return Reconstruction(Options(**how))


def photograph(
    report: Report, size: int, seed: int, illuminant: str, ready: Reconstruction
) -> Shoot:
    """Scene → mask → snapshot → reconstruction."""
    report("drawing the scene")
    from prismask.scenes.synthetic.demo import demo_scene

    truth = demo_scene((size, size), seed=seed, illuminant=illuminant)
    report("taking the snapshot")
    from prismask.optics.camera import CASSI
    from prismask.optics.fabricate import fabricate_mask
    from prismask.optics.randomness import seeded
    from prismask.optics.simulate import Quantise, Saturate, Sensor, ShotRead, simulate
    from prismask.scenes.records import Mask

    camera = CASSI.from_step(truth.bands)
    values = fabricate_mask(camera.mask_size(truth.size), seeded(seed)).numpy()
    mask = Mask(values, attrs={"title": "Fabricated mask", "seed": seed})
    sensor = Sensor((ShotRead(FULL_WELL_ELECTRONS, READ_ELECTRONS), Saturate(), Quantise(BITS)))
    snapshot = simulate(truth, mask, camera, sensor, seed)
    step = report("reconstructing")
    estimate = ready.run(snapshot, mask, camera, progress=step)
    given = {"method": ready.options.method, "model": ready.options.model}
    chosen = "".join(f" --{name} {value}" for name, value in given.items() if value)
    return Shoot(truth, mask, camera, snapshot, estimate, seed, chosen)


def draw(shoot: Shoot) -> dict[str, bytes]:
    """Every picture of the demo as PNG, by the names of `PICTURES`."""
    from prismask.evaluation.figures import demo as figures
    from prismask.scenes.colour import auto_exposure, grey_picture, png_bytes, to_srgb
    from prismask.scenes.synthetic.demo import colour_checker_boxes

    truth, estimate = shoot.truth, shoot.estimate
    light = str(truth.attrs["illuminant"])
    exposure = auto_exposure(truth, light)
    true_colour, colour = (to_srgb(cube, light, exposure) for cube in (truth, estimate))
    snapshot = grey_picture(shoot.snapshot.values)
    boxes = colour_checker_boxes(truth.size)
    patches = {name: boxes[name] for name in SHOWN_PATCHES}
    swatches = {
        name: true_colour[box].reshape(-1, 3).mean(axis=0) / 255 for name, box in patches.items()
    }
    three = {name: patches[name] for name in ("blue", "green", "red")}
    overview = figures.overview_figure(snapshot, colour, estimate, truth, three, swatches)
    enlarge = max(1, round(2 * SIZE / truth.size[0]))
    return {
        "truth.png": png_bytes(true_colour, enlarge),
        "snapshot.png": png_bytes(snapshot, enlarge),
        "reconstruction.png": png_bytes(colour, enlarge),
        "error.png": figures.error_figure(estimate, truth),
        "spectra.png": figures.spectra_figure(estimate, truth, patches, swatches),
        "bands.png": figures.bands_figure(estimate, truth),
        "overview.png": overview,
    }


def _write(shoot: Shoot, pictures: dict[str, bytes], out: Path, overwrite: bool) -> None:
    from prismask.apps.cli.demo import build_page, page_content
    from prismask.scenes.colour import write_bytes
    from prismask.scenes.formats.files import save

    records: list[Record] = [shoot.truth, shoot.mask, shoot.snapshot, shoot.estimate]
    for name, record in zip(RECORDS, records, strict=True):
        save(record, out / name, overwrite=overwrite)
    for name, png in pictures.items():
        write_bytes(png, out / name, overwrite)
    page = build_page(page_content(shoot, pictures, (*RECORDS, *PICTURES)))
    # The page comes last: where it is, everything it speaks of is there too.
    write_bytes(page.encode(), out / PAGE, overwrite)


def _refuse_existing(out: Path, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise OutputExistsError(f"{out} is a file; give the name of a folder.")
    taken = [name for name in (*RECORDS, *PICTURES, PAGE) if (out / name).exists()]
    if taken and not overwrite:
        raise OutputExistsError(
            f"{out} already contains a demo ({taken[0]} …). Choose another folder with "
            "--out, or give --overwrite."
        )


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
    from prismask.evaluation.report.document import render

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
        f"spectrum differs from the truth by {low:+.0f} % to {high:+.0f} % of its own peak, "
        "depending on the band. The prism spreads light along rows, so errors next to bright "
        "edges are to be expected in that direction."
    )
    return " ".join([numbers, *interval_words(shoot), method_words(shoot)])


def interval_words(shoot: Shoot) -> list[str]:
    """How often the truth of this run lies inside the interval, where there is one."""
    lower, upper = shoot.estimate.lower, shoot.estimate.upper
    if lower is None or upper is None:
        return []
    inside = 100 * float(((shoot.truth.values >= lower) & (shoot.truth.values <= upper)).mean())
    return [
        f"Every value has an interval that should contain the truth {100 * LEVEL:.0f} times out of "
        f"100; in this scene, which is unlike those it was fitted on, it did {inside:.0f} times."
    ]


def method_words(shoot: Shoot) -> str:
    """What to think of the method, in a sentence or two."""
    if shoot.estimate.attrs["method"] == "network":
        return (
            "The network was trained on real scenes with other masks; it has seen neither this "
            "mask nor any drawn scene."
        )
    return (
        "The scene has large, even surfaces and a dim background, which suits this method; busy or "
        "bright scenes are reconstructed less well. It needs no training and assumes only that "
        "scenes are smooth between edges."
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
