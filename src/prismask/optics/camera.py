"""The CASSI camera as an exact linear operator, and which camera took a snapshot.

Single disperser (SD): the mask codes the scene, the prism shears the coded bands apart, the
sensor adds them up,

    y[h, v] = Σ_λ m[λ, h, v − o_λ] · x[λ, h, v − o_λ].

Dual disperser (DD): the scene is sheared onto the mask and sheared back, so every band sees its
own window of the mask and the measurement has the scene's size,

    y[h, w] = Σ_λ m[λ, h, w + o_λ] · x[λ, h, w].

The operator is a plain sum. Scalings that networks like are named where they are applied
(`models.inputs`), never hidden here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, size_text
from prismask.errors import ConfigError, FormatError, ShapeError
from prismask.optics import shear
from prismask.optics.shear import (
    offsets_from_array,
    offsets_from_polynomial,
    offsets_from_step,
)
from prismask.scenes.defaults import BANDS, STEP, WAVELENGTHS_NM
from prismask.scenes.records import Mask, Measurement

Axis = Literal["width", "height"]
Design = Literal["single", "dual"]


@dataclass(frozen=True)
class CASSI:
    """A camera: where each band lands, along which axis, with one or two dispersers.

    The mask is an argument of every call, because one camera design meets many masks.

    Shapes: `cube (B, C, H, W)`, `measurement (B, H, W + extent)` for a single disperser along the
    width, `mask (H, W)`, `(C, H, W)` or `(B|1, 1|C, H, W)`. A dual disperser swaps which of mask
    and measurement is the longer one.
    """

    offsets: shear.Offsets
    """Displacement of each band in pixels; only differences matter: the smallest is `start`."""
    axis: Axis = "width"
    """The axis along which the prism disperses."""
    design: Design = "single"
    """One disperser (the measurement is sheared) or two (the mask is)."""
    start: float = 0.0
    """Part of a pixel at which the lowest band lands; not 0 for frames that were `mirrored`."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise ConfigError(f"start is {self.start:g}; it is a part of a pixel, 0 or more.")
        offsets = offsets_from_array(self.offsets)
        if self.start:
            offsets = tuple(round(offset + self.start, 9) for offset in offsets)
        object.__setattr__(self, "offsets", offsets)
        if self.axis not in ("width", "height"):
            raise ConfigError(f"axis is {self.axis!r}; the prism disperses along width or height.")
        if self.design not in ("single", "dual"):
            raise ConfigError(f"design is {self.design!r}; it is single or dual.")

    @classmethod
    def from_step(
        cls, bands: int = BANDS, step: float = STEP, axis: Axis = "width", design: Design = "single"
    ) -> CASSI:
        """A camera with `step` pixels per band (negative: the other direction)."""
        return cls(offsets_from_step(bands, step), axis, design)

    @classmethod
    def from_polynomial(
        cls,
        wavelengths_nm: Sequence[float],
        coefficients: Sequence[float],
        axis: Axis = "width",
        design: Design = "single",
    ) -> CASSI:
        """A camera from a wavelength calibration `px(λ) = Σ_k coefficients[k] · λᵏ`."""
        return cls(offsets_from_polynomial(wavelengths_nm, coefficients), axis, design)

    def mirrored(self) -> CASSI:
        """The camera that is right for frames mirrored along the dispersion.

        Column v of a longer frame of W + extent pixels becomes W + extent − 1 − v, so offset o
        becomes extent − o. With fractional offsets none of them is 0 then: the extent was rounded
        up, and mirrored frames keep the part of a pixel by which it was.
        """
        offsets = tuple(round(self.extent - offset, 9) for offset in self.offsets)
        return replace(self, offsets=offsets, start=min(offsets))

    @property
    def bands(self) -> int:
        """Number of spectral bands C."""
        return len(self.offsets)

    @property
    def extent(self) -> int:
        """Pixels by which the sheared side is longer than the scene."""
        return shear.shear_extent(self.offsets)

    @property
    def is_exactly_diagonal(self) -> bool:
        """Whether A Aᵀ is diagonal: always, unless a single disperser has fractional offsets."""
        return self.design == "dual" or all(offset == int(offset) for offset in self.offsets)

    def without(self, bad: Tensor) -> CASSI:
        """The same camera with a sensor that says nothing at `bad (H, L)`, booleans."""
        return _PartlyBlind(self.offsets, self.axis, self.design, self.start, bad)

    # --- sizes ---------------------------------------------------------------------------------

    def longer(self, size: tuple[int, int]) -> tuple[int, int]:
        """`(H, W)` of the scene → the size of whatever is sheared."""
        height, width = size
        if self.axis == "width":
            return height, width + self.extent
        return height + self.extent, width

    def measurement_size(self, scene: tuple[int, int]) -> tuple[int, int]:
        """Sensor size for a scene of `(H, W)`."""
        return self.longer(scene) if self.design == "single" else scene

    def mask_size(self, scene: tuple[int, int]) -> tuple[int, int]:
        """Mask size for a scene of `(H, W)`."""
        return scene if self.design == "single" else self.longer(scene)

    def scene_size(self, measurement: tuple[int, int]) -> tuple[int, int]:
        """Size of the scene that a measurement of the given size shows."""
        if self.design == "dual":
            return measurement
        height, width = measurement
        scene = (
            (height, width - self.extent) if self.axis == "width" else (height - self.extent, width)
        )
        if min(scene) < 1:
            raise ShapeError(
                f"measurement is {size_text(measurement)}, but {self.bands} bands spread over "
                f"{self.extent} px of its {self.axis}: no scene is left. Check the dispersion."
            )
        return scene

    # --- the operator --------------------------------------------------------------------------

    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        """A x: the noise-free measurement of `cube (B, C, H, W)` through `mask`."""
        mask = self.check_cube_and_mask(cube, mask)
        if self.design == "dual":
            return (cube * self._code(mask)).sum(1)
        summed = shear.masked_shear_sum(self._turn(cube), self._turn(mask), self.offsets)
        return self._turn(summed)

    def adjoint(self, measurement: Tensor, mask: Tensor) -> Tensor:
        """Aᵀ y: unshear and multiply by the mask."""
        mask = self.check_measurement_and_mask(measurement, mask)
        if self.design == "dual":
            return measurement.unsqueeze(1) * self._code(mask)
        width = measurement.shape[-1 if self.axis == "width" else -2] - self.extent
        turned = self._turn(measurement), self._turn(mask)
        return self._turn(shear.masked_unshear(*turned, self.offsets, width))

    def unshear(self, measurement: Tensor) -> Tensor:
        """Every band's window of the measurement, without the mask (a view where possible)."""
        scene = self.scene_size((measurement.shape[-2], measurement.shape[-1]))
        if self.design == "dual":
            return measurement.unsqueeze(1).expand(-1, self.bands, -1, -1)
        width = scene[1] if self.axis == "width" else scene[0]
        return self._turn(shear.unshear(self._turn(measurement), self.offsets, width))

    # --- what data-consistency steps divide by -------------------------------------------------

    def gram_diagonal(self, mask: Tensor) -> Tensor:
        """The diagonal Φ of A Aᵀ: Σ_λ m²[h, v − o_λ], with squared interpolation weights."""
        mask = self._all_bands(as_mask_batch(mask))
        if self.design == "dual":
            return self._code(mask).square().sum(1)
        return self._turn(shear.shear_sum_of_squares(self._turn(mask.square()), self.offsets))

    def gram_bound(self, mask: Tensor) -> Tensor:
        """Row sums of A Aᵀ: equal to its diagonal when that is all there is, else a majoriser.

        With fractional offsets A Aᵀ is banded. Its entries are not negative for a mask in [0, 1],
        so by Gershgorin D − A Aᵀ is positive semidefinite for D = diag(row sums): dividing by
        this keeps every data-consistency step stable on any camera.
        """
        if self.is_exactly_diagonal:
            return self.gram_diagonal(mask)
        mask = self._all_bands(as_mask_batch(mask))
        ones = mask.new_ones(mask.shape[0], *self.longer((mask.shape[-2], mask.shape[-1])))
        return self.forward(self.adjoint(ones, mask), mask)

    def throughput(self, mask: Tensor) -> Tensor:
        """Σ_λ shear(m): the measurement of a white scene of value 1."""
        mask = self._all_bands(as_mask_batch(mask))
        if self.design == "dual":
            return self._code(mask).sum(1)
        return self._turn(shear.shear_sum(self._turn(mask), self.offsets))

    def pseudo_inverse(self, measurement: Tensor, mask: Tensor, floor: float = 1e-6) -> Tensor:
        """Aᵀ (A Aᵀ)⁻¹ y, the cube of least norm that explains the measurement.

        `floor` bounds the division where no light reaches the sensor. Exact where A Aᵀ is
        diagonal; with fractional offsets the majoriser `gram_bound` takes its place.
        """
        return self.adjoint(measurement / self.gram_bound(mask).clamp_min(floor), mask)

    def spread(self, measurement: Tensor, mask: Tensor, floor: float = 1e-3) -> Tensor:
        """unshear(y / Σ_λ shear(m)): each band's first guess, already in the cube's units."""
        return self.unshear(measurement / self.throughput(mask).clamp_min(floor))

    # --- checks --------------------------------------------------------------------------------

    def check_cube_and_mask(self, cube: Tensor, mask: Tensor) -> Tensor:
        """Check that the two fit this camera; give back the mask as `(B|1, 1|C, H, W)`."""
        check_shape(cube, ("B", self.bands, "H", "W"), "cube")
        mask = as_mask_batch(mask)
        self._check_mask(mask, (cube.shape[-2], cube.shape[-1]), cube.shape[0], "cube")
        return mask

    def check_measurement_and_mask(self, measurement: Tensor, mask: Tensor) -> Tensor:
        """Check that the two fit this camera; give back the mask as `(B|1, 1|C, H, W)`."""
        check_shape(measurement, ("B", "H", "W"), "measurement")
        mask = as_mask_batch(mask)
        size = (measurement.shape[-2], measurement.shape[-1])
        mask_size = (mask.shape[-2], mask.shape[-1])
        fits = self.measurement_size(mask_size)
        if self.design == "single" and size != fits:
            raise ShapeError(
                f"measurement is {size_text(size)} and the mask {size_text(mask_size)}; "
                f"{self._dispersion_text()} need a measurement of {size_text(fits)} for that mask. "
                "Is it cropped? Give the right dispersion or bands, or check the mask."
            )
        scene = self.scene_size(size)
        self._check_mask(mask, scene, measurement.shape[0], "measurement")
        return mask

    def _check_mask(self, mask: Tensor, scene: tuple[int, int], batch: int, of: str) -> None:
        wanted = self.mask_size(scene)
        size = (mask.shape[-2], mask.shape[-1])
        if size != wanted:
            smaller = size[0] < wanted[0] or size[1] < wanted[1]
            advice = "use a larger mask or a smaller scene" if smaller else "crop the mask"
            raise ShapeError(
                f"mask is {size_text(size)}; a {of} with a scene of {size_text(scene)} and "
                f"{self._dispersion_text()} ({self.design} disperser) needs {size_text(wanted)}: "
                f"{advice}."
            )
        if mask.shape[1] not in (1, self.bands):
            raise ShapeError(
                f"mask has {mask.shape[1]} bands; this camera has {self.bands}. "
                "Give one plane for all bands or one for each."
            )
        if mask.shape[0] not in (1, batch) and batch != 1:
            raise ShapeError(
                f"{mask.shape[0]} masks for a batch of {batch}: give one mask, or one for each."
            )

    def _dispersion_text(self) -> str:
        step = shear.whole_step(self.offsets)
        how = f"at {abs(step)} px" if step is not None else f"over {max(self.offsets):g} px"
        return f"{self.bands} bands {how}"

    # --- helpers -------------------------------------------------------------------------------

    def _turn(self, image: Tensor) -> Tensor:
        return image if self.axis == "width" else image.transpose(-1, -2)

    def _all_bands(self, mask: Tensor) -> Tensor:
        return mask.expand(-1, self.bands, -1, -1)

    def code(self, mask: Tensor) -> Tensor:
        """The transmission that each scene pixel meets, `(B|1, 1|C, H, W)`.

        The mask itself with a single disperser; each band's window of it with a dual one.
        """
        if self.design == "single":
            return as_mask_batch(mask)
        return self._code(as_mask_batch(mask))

    def _code(self, mask: Tensor) -> Tensor:
        turned = self._turn(mask)
        width = turned.shape[-1] - self.extent
        if mask.shape[1] == 1:
            return self._turn(shear.unshear(turned[:, 0], self.offsets, width))
        return self._turn(shear.unshear_bands(turned, self.offsets, width))


@dataclass(frozen=True, eq=False)
class _PartlyBlind(CASSI):
    """G A for G, zero at bad pixels of the sensor: with it, ‖G y − G A x‖² leaves them out.

    Whatever is written with `forward` and `adjoint` then does so without knowing. Throughput and
    A Aᵀ stay those of the whole sensor: they are divided by, and bound G A Aᵀ G.
    """

    bad: Tensor = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.bool))
    """`(H, L)`."""
    __eq__, __hash__ = object.__eq__, object.__hash__

    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        """G A x."""
        return super().forward(cube, mask).masked_fill(self.bad, 0)

    def adjoint(self, measurement: Tensor, mask: Tensor) -> Tensor:
        """Aᵀ G y."""
        return super().adjoint(measurement.masked_fill(self.bad, 0), mask)

    def spread(self, measurement: Tensor, mask: Tensor, floor: float = 1e-3) -> Tensor:
        """Each band's first guess; where the sensor is blind, what arrives around."""
        light = (measurement / self.throughput(mask).clamp_min(floor)).masked_fill(self.bad, 0)
        seen = (~self.bad).to(light)[None]
        around, count = (F.avg_pool2d(image, 5, 1, 2) for image in (light, seen))
        return self.unshear(torch.where(self.bad, around / count.clamp_min(0.04), light))


def as_mask_batch(mask: Tensor) -> Tensor:
    """`(H, W)`, `(C, H, W)` or `(B, 1|C, H, W)` → `(B|1, 1|C, H, W)`, a view."""
    if mask.ndim == 2:
        return mask[None, None]
    if mask.ndim == 3:
        return mask[None]
    check_shape(mask, ("B", "C", "H", "W"), "mask")
    return mask


def band_positions(camera: CASSI) -> NDArray[np.float64]:
    """Where each band lands between the first (0) and the last (1); a single one halfway.

    Bands that do not land one after the other are counted instead.
    """
    offsets = np.asarray(camera.offsets)
    if camera.bands < 2:
        return np.array([0.5])
    extent = offsets[-1] - offsets[0]
    if not (np.diff(offsets) * extent > 0).all():
        return np.linspace(0.0, 1.0, camera.bands)
    return np.asarray((offsets - offsets[0]) / extent)


# --- which camera took a snapshot: what people say, what files note, what the sizes allow ---------
#
# `resolve_camera` is the one place that decides. What people say counts first; a camera noted in a
# file completes it, or is taken as it is; then the default camera, if it fits the sizes; then the
# number of bands that does, which is a guess and says so. What files note of a camera is written
# and read here too (`camera_attrs`, `camera_from_attrs`).


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
