"""Which camera took a snapshot: what people say, what files note, what the sizes allow.

`resolve_camera` is the one place that decides. What people say counts first; a camera noted in a
file completes it, or is taken as it is; then the default camera, if it fits the sizes; then the
number of bands that does, which is a guess and says so. What files note of a camera is written and
read here too (`camera_attrs`, `camera_from_attrs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prismask.errors import ConfigError, FormatError
from prismask.optics.camera import CASSI, Axis, Design
from prismask.scenes.defaults import BANDS, STEP, WAVELENGTHS_NM
from prismask.scenes.records import Mask, Measurement

LEAST_BANDS, MOST_BANDS = 8, 64
"""Band counts that are taken from the sizes alone; anything else has to be stated."""

Size = tuple[int, int]


@dataclass(frozen=True)
class CameraDescription:
    """What is said about a camera; None: nothing."""

    bands: int | None = None
    step: float | None = None
    """Dispersion in pixels per band."""
    offsets: tuple[float, ...] | None = None
    """Displacement of each band in pixels, instead of a step."""
    polynomial: tuple[float, ...] | None = None
    """Calibration px(λ) = c0 + c1·λ + … with λ in nm, instead of a step."""
    wavelengths: tuple[float, ...] | None = None
    """Of the bands in nm."""
    axis: Axis | None = None
    design: Design | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing at all."""
        return self == CameraDescription()

    @property
    def describes_dispersion(self) -> bool:
        """Whether it says where bands land, so that what files note does not count."""
        said = (self.bands, self.step, self.offsets, self.polynomial)
        return any(one is not None for one in said)


@dataclass(frozen=True)
class Resolved:
    """A camera, and the sentence that people should read if it was guessed."""

    camera: CASSI
    assumed: str = ""


def resolve_camera(
    description: CameraDescription | CASSI | None = None,
    notes: Mapping[str, Any] | None = None,
    *,
    bands: int | None = None,
    wavelengths: Sequence[float] | None = None,
    sizes: tuple[Size, Size] | None = None,
) -> Resolved:
    """The camera that is meant.

    description: what people say, or a camera that is known already.
    notes: attributes of a file, which may note a camera (`camera_notes`).
    bands, wavelengths: of a cube that the camera is to take.
    sizes: of a measurement and its mask, for a guess where nothing is said or noted.
    """
    if isinstance(description, CASSI):
        return Resolved(description)
    if description is not None and not isinstance(description, CameraDescription):
        raise ConfigError(
            f"camera is {description!r}; give CASSI.from_step(bands=28, step=2.0), "
            "CASSI(offsets=(0, 1.9, …)), or a CameraDescription."
        )
    said = description or CameraDescription()
    noted = camera_from_attrs(notes or {})
    if noted is not None:
        axis, design = said.axis or noted.axis, said.design or noted.design
        # Its own number of bands, stated again, says nothing against the offsets that are noted.
        others = replace(said, bands=None) if said.bands == noted.bands else said
        if not others.describes_dispersion:
            return Resolved(_checked(replace(noted, axis=axis, design=design), said))
        said, bands = replace(said, axis=axis, design=design), bands or noted.bands
    elif said.is_empty and bands is None and sizes is not None:
        return _fitting(*sizes)
    elif sizes is not None:
        _check_count(said, *sizes)
    return Resolved(_described(said, bands, wavelengths or noted_wavelengths(notes or {})))


def noted_wavelengths(attrs: Mapping[str, Any]) -> Sequence[float] | None:
    """Wavelengths that a file notes; a single one comes back from some formats bare."""
    noted = attrs.get("wavelengths_nm")
    listed = list(noted) if isinstance(noted, list | tuple) else [noted]
    numbers = [float(one) for one in listed if isinstance(one, int | float)]
    return numbers if len(numbers) == len(listed) else None


def bands_between(measurement: Size, mask: Size, axis: str, step: float) -> int | None:
    """Bands at `step` px that make up the difference along `axis`, if the other side agrees."""
    along = 1 if axis == "width" else 0
    spread = measurement[along] - mask[along]
    if measurement[1 - along] != mask[1 - along] or spread < 0 or spread % step:
        return None
    return int(spread / step) + 1


def _described(
    said: CameraDescription, bands: int | None, wavelengths: Sequence[float] | None
) -> CASSI:
    axis, design = said.axis or "width", said.design or "single"
    dispersions = {
        "--step": said.step, "--offsets": said.offsets, "--polynomial": said.polynomial,
    }  # fmt: skip
    given = [name for name, value in dispersions.items() if value is not None]
    if said.bands is not None and said.bands < 1:
        raise ConfigError(f"--bands is {said.bands}; a camera has one band or more.")
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both describe the dispersion: give one of them.")
    if said.offsets is not None:
        camera = CASSI(said.offsets, axis, design)
    elif said.polynomial is not None:
        at = said.wavelengths or wavelengths or _default_wavelengths(said.bands or bands)
        camera = CASSI.from_polynomial(at, said.polynomial, axis, design)
    else:
        listed = len(said.wavelengths or ())
        count = said.bands or listed or bands or len(wavelengths or ()) or BANDS
        camera = CASSI.from_step(count, STEP if said.step is None else said.step, axis, design)
    if said.bands is not None and said.bands != camera.bands:
        raise ConfigError(
            f"--bands says {said.bands}, but {given[0]} describes {camera.bands} bands."
        )
    return _checked(camera, said)


def _checked(camera: CASSI, said: CameraDescription) -> CASSI:
    """The camera, if as many wavelengths are listed as it has bands."""
    if said.wavelengths is not None and len(said.wavelengths) != camera.bands:
        raise ConfigError(
            f"--wavelengths lists {len(said.wavelengths)} bands, but the camera has {camera.bands}."
        )
    return camera


def _check_count(said: CameraDescription, measurement: Size, mask: Size) -> None:
    """Raise if a list of wavelengths, and nothing else, says another band count than the sizes."""
    if said.wavelengths is None or said.describes_dispersion or said.design == "dual":
        return
    listed = len(said.wavelengths)
    bands = bands_between(measurement, mask, said.axis or "width", STEP)
    if bands is not None and LEAST_BANDS <= bands <= MOST_BANDS and bands != listed:
        raise ConfigError(
            f"--wavelengths lists {listed}, but snapshot and mask fit {bands} bands at {STEP:g} "
            f"px: list the centre of each of the {bands} bands. If the camera has {listed} bands, "
            f"say how far apart they land: --bands {listed} --step PX."
        )


def _default_wavelengths(bands: int | None) -> Sequence[float]:
    if bands not in (None, BANDS):
        raise ConfigError(
            "--polynomial needs the wavelength of each band: give --wavelengths as well."
        )
    return WAVELENGTHS_NM


def _fitting(measurement: Size, mask: Size) -> Resolved:
    """The default camera, or one with as many bands as fit the sizes.

    The second is a guess and says so; the registration check would notice a wrong one.
    """
    camera = CASSI.from_step()
    if camera.measurement_size(mask) == measurement:
        return Resolved(camera)
    axes: tuple[Axis, ...] = ("width", "height")
    for axis in axes:
        bands = bands_between(measurement, mask, axis, STEP)
        if bands is not None and LEAST_BANDS <= bands <= MOST_BANDS:
            spread = (
                f"{abs(sum(measurement) - sum(mask))} px {'wider' if axis == 'width' else 'higher'}"
            )
            text = (
                f"{bands} bands at {STEP:g} px are assumed, because the snapshot is {spread} "
                "than the mask. Give --bands and --step otherwise."
            )
            return Resolved(CASSI.from_step(bands, STEP, axis), text)
    return Resolved(camera)


CAMERA_KEYS = ("camera_design", "camera_axis", "camera_offsets_px")
"""What `camera_attrs` writes."""


def camera_attrs(camera: CASSI) -> dict[str, Any]:
    """The camera in attributes that any file format holds."""
    return {
        "camera_design": camera.design,
        "camera_axis": camera.axis,
        "camera_offsets_px": [float(offset) for offset in camera.offsets],
    }


def camera_from_attrs(attrs: Mapping[str, Any]) -> CASSI | None:
    """The camera that `camera_attrs` wrote, or None where nothing was."""
    if "camera_offsets_px" not in attrs:
        return None
    offsets = attrs["camera_offsets_px"]
    # A list of one number comes back from some file formats as the number itself.
    listed = [offsets] if isinstance(offsets, int | float) else offsets
    try:
        listed = [float(offset) for offset in listed]
    except (TypeError, ValueError):
        listed = []
    if not listed:
        raise FormatError(
            f"the file notes camera_offsets_px = {offsets!r}; it lists the place of each band in "
            "pixels. Remove the note, or write numbers."
        )
    return CASSI(
        tuple(listed),
        axis=attrs.get("camera_axis", "width"),
        design=attrs.get("camera_design", "single"),
        # Ours begin below 1; in files of others only differences matter.
        start=min(listed) if 0 <= min(listed) < 1 else 0.0,
    )


def camera_notes(measurement: Measurement, mask: Mask) -> Mapping[str, Any]:
    """The attributes that describe the camera: the measurement's, else the mask's.

    A snapshot of ours notes the camera that took it. One from a laboratory notes nothing, but the
    mask that was measured with its camera may (`optics.measured`).
    """
    if "camera_offsets_px" in measurement.attrs or "camera_offsets_px" not in mask.attrs:
        return measurement.attrs
    kept = (*CAMERA_KEYS, "wavelengths_nm")
    return {**measurement.attrs, **{key: mask.attrs[key] for key in kept if key in mask.attrs}}
