"""What a camera writes, and what is known about it: the options that `reconstruct` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cyclopts import Group, Parameter

from prismask.apps.cli.camera_options import parse_numbers
from prismask.checks import size_text
from prismask.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prismask.scenes.records import Mask, Measurement

RAW_GROUP = Group("Raw frames", sort_key=8)
# As in inference.checks, which would load torch for a line of help.
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
    """Dark frame (a file), or dark level (a number, in the snapshot's own units). [default: a
    level that is read from the snapshot]"""
    flat: Path | None = None
    """Flat field: a picture of even light without the mask."""
    bad_pixels: str = "auto"
    """Map of bad pixels (a file, 0 where they are sound); auto: hot and dead ones are found; none:
    they stay as they are."""
    bits: int | None = None
    """Bits of the sensor, if its counts came in a 16-bit file. [default: seen in the counts]"""
    average: bool = False
    """The snapshots, or the pages of the one file, are exposures of one scene: average them, and
    take their spread for the noise."""
    turn_snapshot: Orientation | None = None
    """Turn the snapshot first, if its file is the wrong way round."""
    turn_mask: Orientation | None = None
    """Turn the mask first."""
    crop_mask: str | None = None
    """Part of the mask to use, as TOP,LEFT,HEIGHT,WIDTH in pixels."""
    mask_std: str | None = None
    """How far the mask may be wrong, as a standard deviation in its units (0 to 1): a number, or a
    file with one for each pixel, which is turned and cropped like the mask. [default: what the
    mask's file says; else the network estimates it]"""

    def options(self) -> dict[str, Any]:
        """Those that the library takes, as it takes them."""
        return {
            "mask_std": self._mask_std(),
            "dark": None if self.dark is None else number_or_file(self.dark, "--dark"),
            "flat": self.flat,
            "bad_pixels": self.bad_pixels,
            "bits": self.bits,
        }

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
        from prismask.inference.raw_frames import average
        from prismask.scenes.formats.files import load_cube, load_measurement

        if len(sources) == 1:
            _check_pages(sources[0], variable)
            pages = load_cube(sources[0], variable)
            return average(pages.values, {"source": sources[0].name})
        frames = [load_measurement(path, variable) for path in sources]
        return average([frame.values for frame in frames], dict(frames[0].attrs))


def number_or_file(text: str, option: str) -> float | Path:
    """A number, or the name of a file that is there."""
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.exists():
        raise ConfigError(f"{option} is {text!r}; give a number, or a file that is there.")
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

    from prismask.inference.alignment.registration import ORIENTATIONS
    from prismask.inference.checks import ORIENTATION_OPTIONS

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
