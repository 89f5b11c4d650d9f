"""The options that describe a camera and what it writes, shared by the commands that need them.

Lists of numbers are given as `450,460,470`, or as the name of a text file that holds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Group, Parameter

from prismask.checks import size_text
from prismask.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prismask.optics.camera import CameraDescription
    from prismask.scenes.records import Mask, Measurement

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
        raise ConfigError(f"{option} names {path}, which is not a readable text file.") from error


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
    """Number of spectral bands. [default: from the files, otherwise 28]"""
    step: float | None = None
    """Dispersion in pixels per band; negative for the opposite direction. [default: from the files,
    otherwise 2]"""
    offsets: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Offset of each band in pixels, as a,b,c or a text file, instead of --step."""
    polynomial: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Calibration px(λ) = c0 + c1·λ + … with λ in nm, as c0,c1,…, instead of --step."""
    wavelengths: str | None = None
    """Centre wavelength of each band in nm, as a,b,c or a text file."""
    axis: Axis | None = None
    """The axis along which the prism disperses. [default: from the files, otherwise width]"""
    design: Design | None = None
    """One disperser or two. [default: from the files, otherwise single]"""

    def wavelength_list(self) -> tuple[float, ...] | None:
        """`--wavelengths` as numbers."""
        return None if self.wavelengths is None else parse_wavelengths(self.wavelengths)

    def description(self) -> CameraDescription:
        """As `resolve_camera` takes it: numbers in place of text and files."""
        from prismask.optics.camera import CameraDescription

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


RAW_GROUP = Group("Raw frames", sort_key=8)
# As in inference.inspection, which would load torch for a line of help.
Orientation = Literal[
    "flipped-left-right", "flipped-top-bottom", "turned-180", "transposed",
    "transposed-other-diagonal", "turned-90-counterclockwise", "turned-90-clockwise",
]  # fmt: skip
ORIENTATIONS: tuple[str, ...] = get_args(Orientation)


@Parameter(name="*", group=RAW_GROUP)
@dataclass(frozen=True)
class RawFrameOptions:
    """From what a camera writes to a snapshot."""

    dark: str | None = None
    """Dark frame (a file), or dark level (a number, in counts if the snapshot's pixels are
    integers, otherwise in its own units). [default: a level estimated from the snapshot]"""
    flat: Path | None = None
    """Flat field: a picture of uniform light without the mask."""
    bad_pixels: str = "auto"
    """Map of bad pixels to ignore (a file, 0 where a pixel is good); auto: find hot and dead ones;
    none: use all pixels."""
    bits: int | None = None
    """Bit depth of the sensor, if its counts are stored in a 16-bit file: with 12, full scale is
    4095. [default: full scale is that of the file, the same for every snapshot]"""
    average: bool = False
    """The snapshots, or the pages of a single file, are exposures of one scene: average them, and
    use their spread as the noise."""
    turn_snapshot: Orientation | None = None
    """Turn the snapshot first, if its file has the wrong orientation; --dark, --flat and
    --bad-pixels are turned with it."""
    turn_mask: Orientation | None = None
    """Turn the mask first."""
    crop_mask: str | None = None
    """Part of the mask to use, as TOP,LEFT,HEIGHT,WIDTH in pixels."""
    mask_std: str | None = None
    """How wrong the mask may be: a standard deviation in its units (0 to 1), as a number or as a
    file with one value per pixel, which is turned and cropped like the mask. [default: from the
    mask's file; otherwise estimated by the network]"""

    def options(self) -> dict[str, Any]:
        """Those that the library takes, as it takes them."""
        return {
            "mask_std": self._mask_std(),
            "dark": None
            if self.dark is None
            else self._as_snapshot(number_or_file(self.dark, "--dark"), "dark"),
            "flat": self._as_snapshot(self.flat, "flat"),
            "bad_pixels": self.bad_pixels
            if self.bad_pixels in ("auto", "none")
            else self._as_snapshot(Path(self.bad_pixels), "bad_pixels"),
            "bits": self.bits,
        }

    def _as_snapshot(self, given: Path | float | None, what: str) -> Any:
        """A frame of the sensor, turned like the snapshot; anything else as it is."""
        if self.turn_snapshot is None or not isinstance(given, Path):
            return given
        from prismask.inference.options import Frame

        frame = Frame.of(given, what)
        return Frame(_turned(frame.values, self.turn_snapshot), str(given), frame.counts)

    def files(self) -> list[Path]:
        """Frames that are no snapshots, though they may lie in the same folder."""
        either = (("--dark", self.dark), ("--mask-std", self.mask_std))
        found = [None if text is None else number_or_file(text, name) for name, text in either]
        named = [*(one if isinstance(one, Path) else None for one in found), self.flat]
        if self.bad_pixels not in ("auto", "none"):
            named.append(Path(self.bad_pixels))
        return [path for path in named if path is not None]

    def measurement(self, sources: Sequence[Path], variable: str | None) -> Measurement:
        """The snapshot in a file, or the mean of the exposures in one or several."""
        from prismask.scenes.formats.files import load_measurement
        from prismask.scenes.records import Measurement

        found = self._average(sources, variable) if self.average else None
        found = found or load_measurement(sources[0], variable)
        if self.turn_snapshot is None:
            return found
        attrs = {**found.attrs, "turned": self.turn_snapshot}
        return Measurement(_turned(found.values, self.turn_snapshot), attrs)

    def mask(self, mask: Mask) -> Mask:
        """The mask, turned and cropped."""
        from prismask.scenes.records import Mask

        if self.turn_mask is None and self.crop_mask is None:
            return mask
        std = None if mask.std is None else self._as_mask(mask.std)
        attrs = mask.attrs if self.turn_mask is None else {**mask.attrs, "turned": self.turn_mask}
        return Mask(self._as_mask(mask.values), mask.wavelengths, attrs, std)

    def _as_mask(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """What lies like the mask, `(…, H, W)`, turned and cropped."""
        if self.turn_mask is not None:
            values = _turned(values, self.turn_mask)
        if self.crop_mask is not None:
            top, left, height, width = _crop(self.crop_mask, values.shape[-2:])
            values = values[..., top : top + height, left : left + width]
        return values

    def _mask_std(self) -> Any:
        """A number, or the pixels of a file."""
        given = None if self.mask_std is None else number_or_file(self.mask_std, "--mask-std")
        if not isinstance(given, Path):
            return given
        from prismask.inference.options import MaskStd
        from prismask.scenes.formats.files import load_mask_std

        return MaskStd(self._as_mask(load_mask_std(given)), str(given))

    def _average(self, sources: Sequence[Path], variable: str | None) -> Measurement:
        from prismask.inference.raw_frames import average_frames
        from prismask.scenes.formats.files import load_exposures, load_measurement

        if len(sources) == 1:
            _check_pages(sources[0], variable)
            return average_frames(load_exposures(sources[0], variable))
        return average_frames([load_measurement(path, variable) for path in sources])


def number_or_file(text: str, option: str) -> float | Path:
    """A number, or the name of a file that is there."""
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.exists():
        raise ConfigError(f"{option} is {text!r}, which is neither a number nor an existing file.")
    return path


def _check_pages(path: Path, variable: str | None) -> None:
    from prismask.errors import ShapeError
    from prismask.scenes.formats.files import describe

    shape = describe(path, variable=variable)["shape"]
    if shape is not None and len(shape) == 2:
        raise ShapeError(
            f"--average takes several exposures, and {path} holds one of {size_text(shape)}. Give "
            "more files, or one with a page per exposure; a single one needs no --average."
        )


def _turned(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    import numpy as np
    import torch

    from prismask.inference.alignment.pose import ORIENTATIONS
    from prismask.inference.inspection import ORIENTATION_OPTIONS

    (own,) = (own for own, option in ORIENTATION_OPTIONS.items() if option == name)
    return np.ascontiguousarray(ORIENTATIONS[own](torch.tensor(values)).numpy())


def _crop(text: str, size: tuple[int, ...]) -> tuple[int, int, int, int]:
    numbers = parse_numbers(text, "--crop-mask")
    whole = [int(number) for number in numbers if number == int(number) and number >= 0]
    fits = len(whole) == len(numbers) == 4 and min(whole[2:]) > 0
    if not fits or whole[0] + whole[2] > size[0] or whole[1] + whole[3] > size[1]:
        raise ConfigError(
            f"--crop-mask is {text!r}; it is TOP,LEFT,HEIGHT,WIDTH within the mask of "
            f"{size[0]}×{size[1]}."
        )
    top, left, height, width = whole
    return top, left, height, width
