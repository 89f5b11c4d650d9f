"""The options that describe a camera, shared by every command that needs one.

Lists of numbers are given as `450,460,470`, or as the name of a text file that holds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.optics.resolve import CameraDescription

LONGEST_LIST = 10**6
"""Bytes of a file that lists numbers."""


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Numbers separated by commas, blanks or lines, from `text` or from the file it names."""
    source = text
    if re.search(r"[A-Za-z/\\]", text) and _is_file(text):
        source = _without_header(_read(Path(text), option))
    words = [word for word in re.split(r"[,;\s]+", source) if word]
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        numbers = ()
    if not numbers and re.search(r"[A-Za-z]\w*\.[A-Za-z]\w*$|[/\\]", text) and not _is_file(text):
        raise ConfigError(
            f"{option} names {_short(text)}, and there is no such file. Give one, or numbers "
            "separated by commas."
        )
    if not numbers:
        raise ConfigError(
            f"{option} is {_short(text)!r}; give numbers separated by commas, such as "
            "450,460.5,470, or the name of a text file that holds them."
        )
    return numbers


def parse_wavelengths(text: str) -> tuple[float, ...]:
    """`--wavelengths`, which are in nm."""
    from prismask.errors import ValuesError
    from prismask.scenes.units import check_nanometres

    numbers = parse_numbers(text, "--wavelengths")
    try:
        check_nanometres(numbers)
    except ValuesError as problem:
        raise ConfigError(f"--wavelengths: {problem}") from problem
    return numbers


def _without_header(text: str) -> str:
    """A file's text without comments and without the title of its column."""
    lines = [line.partition("#")[0].strip() for line in text.lstrip("\ufeff").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) > 1 and not re.search(r"\d", re.sub(r"[^\W\d]\w*", "", lines[0])):
        lines = lines[1:]
    return "\n".join(lines)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, as a list in 1.0e+02 notation may be
        return False


def _read(path: Path, option: str) -> str:
    try:
        if path.stat().st_size > LONGEST_LIST:
            raise ConfigError(f"{option} names {path}, which is too long for a list of numbers.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} names {path}, which is no readable text file.") from error


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}…"


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
    """Dispersion in pixels per band; negative runs the other way. [default: what the files say,
    else 2]"""
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
