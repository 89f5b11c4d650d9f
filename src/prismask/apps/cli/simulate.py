"""`prismask simulate`: photograph a scene with a camera that need not exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from prismask.apps.cli.camera_options import CameraOptions
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.optics.camera import CameraDescription
    from prismask.optics.simulate import Scale, Sensor
    from prismask.scenes.records import Cube, Mask


@Parameter(name="*", group=Group("Sensor", sort_key=20))
@dataclass(frozen=True)
class SensorOptions:
    """What the sensor adds; without any of these the snapshot is exact."""

    noise_std: float | None = None
    """Gaussian noise, standard deviation as a fraction of full scale."""
    full_well: float | None = None
    """Shot noise: electrons at full scale (10000 is a common sensor)."""
    read_noise: float | None = None
    """Read noise in electrons; needs --full-well."""
    bits: int | None = None
    """Bit depth of the converter; also clips at full scale."""


def simulate(
    scene: Path,
    /,
    *,
    mask: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    camera: CameraOptions | None = None,
    sensor: SensorOptions | None = None,
    seed: int = 0,
    scale: str = "fit",
    variable: str | None = None,
    mask_variable: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Simulate the coded snapshot of a scene through a mask.

    Parameters
    ----------
    scene
        The cube, in any format that Prismask reads.
    mask
        The mask, of the scene's size (plus the dispersion for a dual disperser).
    out
        The snapshot to write.
    seed
        Seed of the noise.
    scale
        Exposure: fit (brightest pixel at full scale), white (the same for every scene), or a
        factor.
    variable
        The variable that is the cube, in a file that holds several.
    mask_variable
        The variable that is the mask, in a file that holds several.
    overwrite
        Replace the output if it exists.
    """
    from prismask.optics import simulate as optics
    from prismask.optics.camera import resolve_camera
    from prismask.scenes.atomic import check_inputs, check_record
    from prismask.scenes.formats.files import load_cube, load_mask, save

    options = camera or CameraOptions()
    check_inputs(scene, mask)
    check_record(out, overwrite, scene, mask, *options.files())
    stages = build_sensor(sensor or SensorOptions())
    cube = load_cube(scene, variable, options.wavelength_list())
    known = None if cube.wavelengths is None else [float(w) for w in cube.wavelengths]
    aperture = load_mask(mask, mask_variable)
    said = options.description()
    notes = _notes(aperture, cube, said)
    design = resolve_camera(said, notes, bands=cube.bands, wavelengths=known).camera
    shot = optics.simulate(cube, aperture, design, stages, seed, _scale(scale))
    save(shot, out, overwrite=overwrite)
    say(f"{out}: {shot.size[0]}×{shot.size[1]}, {design.bands} bands over {design.extent} px")


def _notes(mask: Mask, cube: Cube, said: CameraDescription) -> Mapping[str, Any]:
    """What a measured mask says of its camera, if that has the bands of the scene."""
    from prismask.optics.camera import camera_from_attrs, noted_wavelengths
    from prismask.scenes.resample import SAME_NM

    noted, at = camera_from_attrs(mask.attrs), noted_wavelengths(mask.attrs)
    if noted is None:
        return {}
    fits = cube.bands == noted.bands
    if fits and cube.wavelengths is not None and at is not None and len(at) == cube.bands:
        fits = float(abs(cube.wavelengths - at).max()) <= SAME_NM
    if not fits and not said.describes_dispersion:
        remark(
            f"note: the mask notes a camera of {noted.bands} bands and the scene's {cube.bands} "
            "are not those: that camera is not used. Resample the scene to its wavelengths, or "
            "describe a camera."
        )
    return mask.attrs if fits else {}


def build_sensor(options: SensorOptions) -> Sensor | None:
    """The stages that the options ask for, in the order of a real sensor."""
    from prismask.optics.simulate import Gaussian, Quantise, Saturate, Sensor, ShotRead, Stage

    stages: list[Stage] = []
    if options.read_noise is not None and options.full_well is None:
        raise ConfigError("--read-noise is in electrons: give --full-well as well.")
    if options.full_well is not None:
        stages.append(ShotRead(options.full_well, options.read_noise or 0.0))
    if options.noise_std is not None:
        stages.append(Gaussian(options.noise_std))
    if options.bits is not None:
        stages += [Saturate(), Quantise(options.bits)]
    return Sensor(tuple(stages)) if stages else None


def _scale(text: str) -> Scale:
    rules: dict[str, Scale] = {"fit": "fit", "white": "white"}
    if text in rules:
        return rules[text]
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--scale is {text!r}; it is fit, white or a number.") from None
