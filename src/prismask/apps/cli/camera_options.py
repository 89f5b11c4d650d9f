"""The options that describe a camera, shared by every command that needs one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from prismask.apps.cli.numbers import parse_numbers
from prismask.errors import ConfigError
from prismask.scenes.defaults import BANDS, STEP, WAVELENGTHS_NM

if TYPE_CHECKING:
    from prismask.optics.camera import CASSI

CAMERA_GROUP = Group("Camera", sort_key=10)
# As in optics.camera, which would load torch for a line of help.
Axis = Literal["width", "height"]
Design = Literal["single", "dual"]


@Parameter(name="*", group=CAMERA_GROUP)
@dataclass(frozen=True)
class CameraOptions:
    """Where each band lands on the sensor."""

    bands: int | None = None
    """Number of spectral bands. [default: what the files say, else 28]"""
    step: float | None = None
    """Dispersion in pixels a band; negative runs the other way. [default: 2]"""
    offsets: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Displacement of each band in pixels, as a,b,c or a text file, instead of --step."""
    polynomial: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Calibration px(λ) = c0 + c1·λ + … with λ in nm, as c0,c1,…, instead of --step."""
    wavelengths: str | None = None
    """Centre wavelength of each band in nm, as a,b,c or a text file."""
    axis: Axis | None = None
    """The axis along which the prism disperses. [default: what the files say, else width]"""
    design: Design | None = None
    """One disperser or two. [default: what the files say, else single]"""

    @property
    def describes_dispersion(self) -> bool:
        """Whether any option says where bands land, so that those noted in files do not count."""
        return any(
            option is not None for option in (self.bands, self.step, self.offsets, self.polynomial)
        )

    def wavelength_list(self) -> tuple[float, ...] | None:
        """`--wavelengths` as numbers."""
        return (
            None if self.wavelengths is None else parse_numbers(self.wavelengths, "--wavelengths")
        )

    def spelled_out(self) -> CameraOptions:
        """The same options with the numbers in place of the text files that hold them."""
        listed: dict[str, Any] = {
            name: ",".join(repr(number) for number in parse_numbers(text, f"--{name}"))
            for name in ("offsets", "polynomial", "wavelengths")
            if (text := getattr(self, name)) is not None
        }
        return replace(self, **listed)


def build_camera(
    options: CameraOptions,
    bands: int | None = None,
    wavelengths: Sequence[float] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> CASSI:
    """The camera that the options describe, completed by what the files know.

    `bands` and `wavelengths` are those of a cube, `attrs` the notes in a file: the camera
    written there is taken unless an option speaks of the dispersion. Then it still says what the
    options leave open: how many bands, at which wavelengths, which way round.
    """
    from prismask.optics.simulate import camera_from_attrs

    noted = camera_from_attrs(attrs or {})
    if noted is not None:
        axis, design = options.axis or noted.axis, options.design or noted.design
        # Its own number of bands, said again, says nothing against the places that are noted.
        others = replace(options, bands=None) if options.bands == noted.bands else options
        if not others.describes_dispersion:
            return _with_wavelengths(replace(noted, axis=axis, design=design), options)
        options, bands = replace(options, axis=axis, design=design), bands or noted.bands
    return _described(options, bands, wavelengths or noted_wavelengths(attrs or {}))


def told_camera(options: CameraOptions, attrs: Mapping[str, Any]) -> CASSI | None:
    """The camera that options or the notes in files describe; None: sizes have to say."""
    told = options.describes_dispersion or options.wavelengths or options.axis or options.design
    if not told and "camera_offsets_px" not in attrs:
        return None
    return build_camera(options, attrs=attrs)


def noted_wavelengths(attrs: Mapping[str, Any]) -> Sequence[float] | None:
    """Wavelengths that a file notes; a single one comes back from some formats bare."""
    noted = attrs.get("wavelengths_nm")
    listed = list(noted) if isinstance(noted, list | tuple) else [noted]
    numbers = [float(one) for one in listed if isinstance(one, int | float)]
    return numbers if len(numbers) == len(listed) else None


def _described(
    options: CameraOptions, bands: int | None, wavelengths: Sequence[float] | None
) -> CASSI:
    from prismask.optics.camera import CASSI

    axis, design = options.axis or "width", options.design or "single"
    ways = {
        "--step": options.step,
        "--offsets": options.offsets,
        "--polynomial": options.polynomial,
    }
    given = [name for name, value in ways.items() if value is not None]
    if options.bands is not None and options.bands < 1:
        raise ConfigError(f"--bands is {options.bands}; a camera has one band or more.")
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both describe the dispersion: give one of them.")
    listed = options.wavelength_list()
    if options.offsets is not None:
        camera = CASSI(parse_numbers(options.offsets, "--offsets"), axis, design)
    elif options.polynomial is not None:
        at = listed or wavelengths or _default_wavelengths(options.bands or bands)
        coefficients = parse_numbers(options.polynomial, "--polynomial")
        camera = CASSI.from_polynomial(at, coefficients, axis, design)
    else:
        count = options.bands or len(listed or ()) or bands or len(wavelengths or ()) or BANDS
        step = STEP if options.step is None else options.step
        camera = CASSI.from_step(count, step, axis, design)
    if options.bands is not None and options.bands != camera.bands:
        raise ConfigError(
            f"--bands says {options.bands}, but {given[0]} describes {camera.bands} bands."
        )
    return _with_wavelengths(camera, options)


def _with_wavelengths(camera: CASSI, options: CameraOptions) -> CASSI:
    """The camera, if `--wavelengths` lists as many bands as it has."""
    listed = options.wavelength_list()
    if listed is not None and len(listed) != camera.bands:
        raise ConfigError(
            f"--wavelengths lists {len(listed)} bands, but the camera has {camera.bands}."
        )
    return camera


def _default_wavelengths(bands: int | None) -> Sequence[float]:
    if bands not in (None, BANDS):
        raise ConfigError(
            "--polynomial needs the wavelength of each band: give --wavelengths as well."
        )
    return WAVELENGTHS_NM
