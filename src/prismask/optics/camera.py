"""The CASSI camera as an exact linear operator.

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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, size_text
from prismask.errors import ConfigError, ShapeError
from prismask.optics import shear
from prismask.optics.shear import (
    offsets_from_array,
    offsets_from_polynomial,
    offsets_from_step,
)
from prismask.scenes.defaults import BANDS, STEP

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
        """A camera with equal steps of `step` pixels a band (negative: the other direction)."""
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
        """Scene size behind a measurement of the given size."""
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
                f"{self._dispersion_text()} ({self.design} disperser) need {size_text(wanted)}: "
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

        The mask itself behind a single disperser; each band's window of it behind a dual one.
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
