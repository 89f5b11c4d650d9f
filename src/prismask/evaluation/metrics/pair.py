"""An estimate beside its truth, checked once, with the intermediates that several metrics share."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from prismask.checks import check_finite, check_shape, size_text
from prismask.errors import DeviceError, ShapeError, ValuesError


class Pair:
    """`estimate` and `truth (B, C, H, W)` of one precision, finite, of one size."""

    def __init__(self, estimate: Tensor, truth: Tensor) -> None:
        for name, cube in (("estimate", estimate), ("truth", truth)):
            check_shape(cube, ("B", "C", "H", "W"), name)
            if not cube.is_floating_point():
                raise ValuesError(
                    f"{name} holds {cube.dtype} values; metrics compare fractions of full scale. "
                    "Divide by the full scale first (255, 65535 …)."
                )
        if estimate.shape != truth.shape:
            raise ShapeError(
                f"estimate is {size_text(estimate.shape)} and the truth "
                f"{size_text(truth.shape)}; they must have the same size."
            )
        if estimate.device != truth.device:
            raise DeviceError(
                f"estimate is on {estimate.device} and the truth on {truth.device}; "
                "move one of them."
            )
        # Half precision would round away the errors that are being measured.
        dtype = torch.promote_types(torch.promote_types(estimate.dtype, truth.dtype), torch.float32)
        self.estimate, self.truth = estimate.to(dtype), truth.to(dtype)
        # One check of both on their device; only a failure pays for finding where.
        if not bool((torch.isfinite(self.estimate) & torch.isfinite(self.truth)).all()):
            check_finite(self.estimate, "estimate")
            check_finite(self.truth, "truth")
        self.ssim: dict[float, tuple[Tensor, Tensor]] = {}
        """SSIM of each band by data range, both paddings, once it has been asked for."""

    @cached_property
    def band_mse(self) -> Tensor:
        """Mean squared error of each band, `(B, C)`."""
        return (self.estimate - self.truth).square_().mean((-1, -2))

    @cached_property
    def band_mean(self) -> Tensor:
        """Mean of each band of the truth, `(B, C)`."""
        return self.truth.mean((-1, -2))

    @cached_property
    def peak(self) -> Tensor:
        """Largest value of each true cube, `(B,)`."""
        return self.truth.amax((-1, -2, -3))
