"""Training masks: crops of a calibrated region, of one mask, or of fabricated instruments."""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.faults import Variation, vary
from prismask.optics.resample import gaussian_blur
from prismask.training.config import MaskConfig
from prismask.training.data.crops import to_device

OPEN = 0.5
"""Transmission above which a pixel of a binary mask is open."""
SOFTEST = 1.0
"""Blur, in pixels, of the softest band of a mask with a plane per band."""


def sharpened(masks: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Masks `(B, 1, H, W)`, a share of them with pixels open or closed, as an ideal aperture's.

    numbers: uniform, `(B,)` on the CPU.
    """
    is_binary = to_device(numbers < share, masks.device)[:, None, None, None]
    return torch.where(is_binary, (masks > OPEN).to(masks.dtype), masks)


def chromatic(masks: Tensor, bands: int, focus: float) -> Tensor:
    """Masks `(B, 1, H, W)` through a lens that is sharp in one band alone, `(B, C, H, W)`.

    focus: where in the spectrum that is, from 0 to 1; the further from it, the softer.
    """
    place = (torch.arange(bands, device=masks.device, dtype=masks.dtype) + 0.5) / bands
    softness = (place - focus).abs()[None, :, None, None]
    return torch.lerp(masks, gaussian_blur(masks, SOFTEST), softness)


class MaskSource:
    """Draws masks `(1|B, 1, h, w)` on the device from large masks that stay there."""

    def __init__(
        self,
        region: Tensor | None,
        fabricated: Tensor | None,
        size: tuple[int, int],
        config: MaskConfig,
    ) -> None:
        if region is None and fabricated is None:
            raise ConfigError("training needs a mask region or fabricated masks.")
        self.size = size
        self.config = config
        self.region = None if region is None else region[None]
        self.fabricated = fabricated
        for planes in (self.region, self.fabricated):
            if planes is not None and (planes.shape[-2] < size[0] or planes.shape[-1] < size[1]):
                raise ConfigError(
                    f"a mask of {size[0]}×{size[1]} does not fit into the training region of "
                    f"{planes.shape[-2]}×{planes.shape[-1]}. Use a smaller data.crop."
                )

    def draw(self, count: int, host: torch.Generator, device: torch.Generator) -> Tensor:
        """One mask for the batch, or `count` of them (`masks.per`); varied if so configured."""
        many = count if self.config.per == "sample" else 1
        # Numbers are drawn whatever is switched on, so a change of one option moves nothing else.
        numbers = torch.rand(many, 4, generator=host)
        planes = self._planes(float(numbers[0, 3]))
        height, width = self.size
        plane = (numbers[:, 0] * planes.shape[0]).long()
        row = (numbers[:, 1] * (planes.shape[1] - height + 1)).long()
        column = (numbers[:, 2] * (planes.shape[2] - width + 1)).long()
        places = zip(plane.tolist(), row.tolist(), column.tolist(), strict=True)
        masks = torch.stack([planes[p, r : r + height, c : c + width] for p, r, c in places])[
            :, None
        ]
        return vary(masks, device) if self.config.vary else masks

    def calibrated(self, masks: Tensor, device: torch.Generator) -> Tensor:
        """What people believe the masks to be: each a little beside its place."""
        beside = Variation(
            turns=False, mirrors=False, shift=self.config.calibration_error, gamma=1.0, gain=0.0
        )
        return vary(masks, device, beside)

    def _planes(self, number: float) -> Tensor:
        if self.region is None:
            assert self.fabricated is not None
            return self.fabricated
        if self.fabricated is not None and number < self.config.fabricated_share:
            return self.fabricated
        return self.region
