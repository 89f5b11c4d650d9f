"""`prismask reconstruct`: one snapshot to a cube."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from prismask.apps.camera_options import CameraOptions, build_camera
from prismask.apps.progress import reporter
from prismask.apps.terminal import remark, say
from prismask.errors import ShapeError


def reconstruct(
    snapshot: Path,
    /,
    *,
    mask: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    camera: CameraOptions | None = None,
    method: str = "gap-tv",
    iterations: int | None = None,
    device: str = "auto",
    variable: str | None = None,
    mask_variable: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Reconstruct the cube behind a snapshot.

    Parameters
    ----------
    snapshot
        The measurement, in any format that Prismask reads.
    mask
        The calibrated mask it was taken through.
    out
        The cube to write.
    method
        How: gap-tv works for every camera without training.
    iterations
        Iterations of the method. [default: the method's own]
    device
        auto, cpu or cuda.
    variable
        The variable that is the measurement, in a file that holds several.
    mask_variable
        The variable that is the mask, in a file that holds several.
    overwrite
        Replace the output if it exists.
    """
    from prismask.inference import single
    from prismask.scenes.atomic import refuse_existing
    from prismask.scenes.files import load_mask, load_measurement, save
    from prismask.scenes.formats import format_for_writing

    format_for_writing(out)
    refuse_existing(out, overwrite)
    options = camera or CameraOptions()
    measurement, aperture = load_measurement(snapshot, variable), load_mask(mask, mask_variable)
    design = build_camera(options, attrs=measurement.attrs)
    solver_options: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
    try:
        with reporter() as report:
            cube = single.reconstruct(
                measurement,
                aperture,
                design,
                method,
                wavelengths=options.wavelength_list(),
                progress=report(method),
                device=device,
                **solver_options,
            )
    except ShapeError as error:
        raise ShapeError(f"{error}{_hint(measurement.size, aperture.size, design)}") from error
    save(cube, out, overwrite=overwrite)
    if cube.attrs["wavelengths_from"] == "default" and cube.wavelengths is not None:
        first, last = cube.wavelengths[0], cube.wavelengths[-1]
        remark(f"wavelengths {first:g} to {last:g} nm are assumed; give --wavelengths otherwise.")
    say(
        f"{out}: {cube.bands} bands of {cube.size[0]}×{cube.size[1]}, {cube.attrs['seconds']:.1f} s"
    )


def _hint(measurement: tuple[int, int], mask: tuple[int, int], design: Any) -> str:
    """How many bands would fit the two sizes at the same step, if a whole number does."""
    from prismask.optics.shear import whole_step

    step = whole_step(design.offsets)
    along = 1 if design.axis == "width" else 0
    other = 1 - along
    spread = measurement[along] - mask[along]
    fits = step and design.design == "single" and measurement[other] == mask[other]
    if not fits or spread < 0 or spread % abs(step or 1):
        return ""
    return f" These two sizes fit {spread // abs(step or 1) + 1} bands at {abs(step or 1)} px."
