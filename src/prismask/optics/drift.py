"""A camera whose prism is a little different in every step of a training.

No real prism spreads its spectrum as exactly as a calibration says, and bands of real cameras land
between pixels. Here the offsets are numbers on the device that change from step to step, while
every size stays that of the widest camera, so that one compiled network serves them all:

    o_λ(s, b) = o_λ (1 + s) + 4 b · o_max · u (1 − u),    u = o_λ / o_max,

with a spread s and a bend b, each drawn from [−drift, drift]. The lowest band stays at 0, where the
mask is. In half of the steps nothing differs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI, as_mask_batch

MOST = 0.15
"""Above this, bands could pass each other."""
STEADY = 0.5
"""Share of the draws in which the camera is as it is said to be."""


class DriftingCamera(CASSI):
    """A single disperser along the width; `draw` says where its bands land until the next draw.

    What it does not override works on whatever it does: networks call it like any other camera.
    """

    _drift: float
    _places: Tensor
    _extent: int
    _whole: Tensor
    _rest: Tensor

    def __init__(self, nominal: CASSI, drift: float, device: torch.device | str = "cpu") -> None:
        if not 0 < drift <= MOST:
            raise ConfigError(f"camera.drift is {drift:g}; it must be 0, or up to {MOST:g}.")
        if nominal.design != "single" or nominal.axis != "width":
            raise ConfigError("camera.drift is for one disperser along the width.")
        super().__init__(nominal.offsets)
        places = torch.tensor(nominal.offsets, dtype=torch.float64)
        # Linear in spread and bend, so the widest is at one end of both.
        widest = max(float(_moved(places, drift, bend).max()) for bend in (-drift, drift))
        for name, value in {
            "_drift": drift,
            "_places": places,
            "_extent": int(-(-(widest - 1e-9) // 1)),
            "_whole": torch.zeros(len(places), dtype=torch.int64, device=device),
            "_rest": torch.zeros(len(places), device=device),
        }.items():
            # A camera is frozen; where its light lands right now is what this one is about.
            object.__setattr__(self, name, value)
        self.land(places)

    @property
    def extent(self) -> int:
        """That of the widest camera, whatever was drawn."""
        return self._extent

    @property
    def is_exactly_diagonal(self) -> bool:
        """Not to be relied on: the next draw may be fractional."""
        return False

    def draw(self, generator: torch.Generator) -> None:
        """Choose spread and bend, or in half of the draws neither."""
        chance, spread, bend = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        reach = 0.0 if chance < STEADY else self._drift
        places = self._places
        self.land(_moved(places, reach * (2 * spread - 1), reach * (2 * bend - 1)))

    def land(self, offsets: Tensor) -> None:
        """Let the bands land at these offsets `(C,)`, in place: compiled code reads them there."""
        # As in `dispersion`: residue of arithmetic is no part of a pixel.
        rounded = torch.round(offsets.double(), decimals=9)
        whole = rounded.floor()
        self._whole.copy_(whole.long())
        self._rest.copy_(rounded - whole)

    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        """A x, `(B, H, W + extent)`."""
        return self._shear(cube * self.check_cube_and_mask(cube, mask))

    def unshear(self, measurement: Tensor) -> Tensor:
        """Every band's window of the measurement, `(B, C, H, W)`."""
        width = self.scene_size((measurement.shape[-2], measurement.shape[-1]))[1]
        whole, rest = self._whole, self._rest
        found: Tensor = _Unshear.apply(measurement, whole, rest, width)  # type: ignore[no-untyped-call]
        return found

    def throughput(self, mask: Tensor) -> Tensor:
        """Σ_λ shear(m)."""
        return self._shear(self._all_bands(as_mask_batch(mask)))

    def gram_diagonal(self, mask: Tensor) -> Tensor:
        """Not known without squared weights, which no network asks for."""
        raise ConfigError("this method needs the diagonal of A Aᵀ: train it with camera.drift = 0.")

    def _shear(self, planes: Tensor) -> Tensor:
        whole, rest = self._whole, self._rest
        length = planes.shape[-1] + self.extent
        found: Tensor = _Shear.apply(planes, whole, rest, length)  # type: ignore[no-untyped-call]
        return found


def _moved(places: Tensor, spread: float, bend: float) -> Tensor:
    most = float(places.max())
    if most == 0:
        return places
    along = places / most
    return places * (1 + spread) + 4 * bend * most * along * (1 - along)


def _sheared(planes: Tensor, whole: Tensor, rest: Tensor, length: int) -> Tensor:
    """Σ_λ of planes `(B, C, H, W)` at their offsets, `(B, H, length)`."""
    batch, bands, height, width = planes.shape
    # A column of zeros on either side stands for everything beyond.
    padded = F.pad(planes, (1, 1))
    column = torch.arange(length, device=planes.device)[None] - whole[:, None] + 1
    size = (batch, bands, height, length)
    near, far = (
        padded.gather(-1, at.clamp(0, width + 1)[None, :, None].expand(size))
        for at in (column, column - 1)
    )
    share = rest.to(planes.dtype)[None, :, None, None]
    return ((1 - share) * near + share * far).sum(1)


def _unsheared(image: Tensor, whole: Tensor, rest: Tensor, width: int) -> Tensor:
    """The windows of image `(B, H, L)`, `(B, C, H, width)`."""
    batch, height, length = image.shape
    bands = whole.shape[0]
    column = torch.arange(width, device=image.device)[None] + whole[:, None]
    rows = F.pad(image, (0, 1))[:, None].expand(-1, bands, -1, -1)
    size = (batch, bands, height, width)
    near, far = (
        rows.gather(-1, at.clamp(0, length)[None, :, None].expand(size))
        for at in (column, column + 1)
    )
    share = rest.to(image.dtype)[None, :, None, None]
    return (1 - share) * near + share * far


class _Shear(torch.autograd.Function):
    """Autograd would scatter; the transpose of shearing is unshearing, which gathers."""

    @staticmethod
    def forward(planes: Tensor, whole: Tensor, rest: Tensor, length: int) -> Tensor:
        """The sheared sum."""
        return _sheared(planes, whole, rest, length)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Where bands land, and how wide they are."""
        ctx.save_for_backward(inputs[1], inputs[2])
        ctx.width = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose."""
        whole, rest = ctx.saved_tensors
        return _unsheared(gradient, whole, rest, ctx.width), None, None, None


class _Unshear(torch.autograd.Function):
    """The same the other way round."""

    @staticmethod
    def forward(image: Tensor, whole: Tensor, rest: Tensor, width: int) -> Tensor:
        """The windows."""
        return _unsheared(image, whole, rest, width)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Where bands land, and how long the image is."""
        ctx.save_for_backward(inputs[1], inputs[2])
        ctx.length = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose."""
        whole, rest = ctx.saved_tensors
        return _sheared(gradient, whole, rest, ctx.length), None, None, None
