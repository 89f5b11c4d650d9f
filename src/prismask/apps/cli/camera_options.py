"""The options that describe a camera, shared by every command that needs one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from prismask.apps.cli.numbers import parse_numbers, parse_wavelengths

if TYPE_CHECKING:
    from prismask.optics.resolve import CameraDescription

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
    """Dispersion in pixels per band; negative runs the other way. [default: 2]"""
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

    def wavelength_list(self) -> tuple[float, ...] | None:
        """`--wavelengths` as numbers."""
        return None if self.wavelengths is None else parse_wavelengths(self.wavelengths)

    def description(self) -> CameraDescription:
        """As `resolve_camera` takes it: numbers in place of text and files."""
        from prismask.optics.resolve import CameraDescription

        def numbers(name: str) -> tuple[float, ...] | None:
            text = getattr(self, name)
            return None if text is None else parse_numbers(text, f"--{name}")

        return CameraDescription(
            self.bands,
            self.step,
            numbers("offsets"),
            numbers("polynomial"),
            self.wavelength_list(),
            self.axis,
            self.design,
        )

    def files(self) -> tuple[str, ...]:
        """Texts among the options that may name a file."""
        named = (self.offsets, self.polynomial, self.wavelengths)
        return tuple(text for text in named if text is not None)

    def spelled_out(self) -> CameraOptions:
        """The same options with the numbers in place of the text files that hold them."""
        listed: dict[str, Any] = {
            name: ",".join(repr(number) for number in parse_numbers(text, f"--{name}"))
            for name in ("offsets", "polynomial", "wavelengths")
            if (text := getattr(self, name)) is not None
        }
        return replace(self, **listed)
