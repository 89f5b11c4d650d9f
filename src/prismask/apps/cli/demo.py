"""`prismask demo`: from a synthetic scene to a page with its reconstruction, in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.progress import Report, reporter
from prismask.apps.cli.terminal import say
from prismask.errors import OutputExistsError
from prismask.scenes.defaults import SIZE

if TYPE_CHECKING:
    from prismask.optics.camera import CASSI
    from prismask.scenes.records import Cube, Mask, Measurement, Record

SHOWN_PATCHES = ("blue", "green", "red", "yellow", "magenta", "cyan")
FULL_WELL_ELECTRONS = 20_000.0
READ_ELECTRONS = 8.0
BITS = 12

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
        Seed of the textures, the mask and the noise.
    illuminant
        The light in the scene: D65, A, FL2 …
    method
        A solver instead of the network: gap-tv, twist …
    model
        Weights by name or path. [default: those that `reconstruct` takes]
    device
        auto, cpu or cuda.
    overwrite
        Replace the demo's files if they exist.
    """
    from prismask.apps.cli.outputs import refuse_read
    from prismask.evaluation.figures.style import check_available
    from prismask.scenes.outputs import check_folder

    check_available()
    _refuse_existing(out, overwrite)
    check_folder(out)
    refuse_read([out / name for name in (*RECORDS, *PICTURES, PAGE)], model)
    how = {"method": method, "model": model, "device": device}
    with reporter() as report:
        shoot = photograph(report, size, seed, illuminant, how)
        report("drawing the figures")
        pictures = draw(shoot)
        report("writing the files")
        out.mkdir(parents=True, exist_ok=True)
        _write(shoot, pictures, out, overwrite)
    say(f"{out / PAGE}")


def photograph(report: Report, size: int, seed: int, illuminant: str, how: dict[str, Any]) -> Shoot:
    """Scene → mask → snapshot → reconstruction."""
    report("drawing the scene")
    from prismask.scenes.synthetic.demo import demo_scene

    truth = demo_scene((size, size), seed=seed, illuminant=illuminant)
    report("taking the snapshot")
    from prismask.inference.options import Options
    from prismask.inference.reconstruct import Reconstruction
    from prismask.optics.camera import CASSI
    from prismask.optics.fabricate import fabricate_mask
    from prismask.optics.randomness import seeded
    from prismask.optics.sensor import Quantise, Saturate, Sensor, ShotRead
    from prismask.optics.simulate import simulate
    from prismask.scenes.records import Mask

    camera = CASSI.from_step(truth.bands)
    values = fabricate_mask(camera.mask_size(truth.size), seeded(seed)).numpy()
    mask = Mask(values, attrs={"title": "Fabricated mask", "seed": seed})
    sensor = Sensor((ShotRead(FULL_WELL_ELECTRONS, READ_ELECTRONS), Saturate(), Quantise(BITS)))
    snapshot = simulate(truth, mask, camera, sensor, seed)
    step = report("reconstructing")
    estimate = Reconstruction(Options(**how)).run(snapshot, mask, camera, progress=step)
    chosen = "".join(f" --{name} {how[name]}" for name in ("method", "model") if how.get(name))
    return Shoot(truth, mask, camera, snapshot, estimate, seed, chosen)


def draw(shoot: Shoot) -> dict[str, bytes]:
    """Every picture of the demo as PNG, by the names of `PICTURES`."""
    from prismask.apps.cli.pictures import grey_picture, png_bytes
    from prismask.evaluation.figures import demo as figures
    from prismask.scenes.colour import auto_exposure, to_srgb
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
    from prismask.apps.cli.demo_page import build_page, page_content
    from prismask.apps.cli.pictures import write_bytes
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
            f"{out} holds a demo already ({taken[0]} …) and was kept. Choose another folder with "
            "--out, or give --overwrite."
        )
