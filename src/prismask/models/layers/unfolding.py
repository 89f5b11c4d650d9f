"""What unfolded networks share: the camera's own part of every step.

They declare `wants_physics` and are called with the measurement, the mask and the camera beside
their input planes. Their estimate stays in float32 however the convolutions compute: the
difference between a measurement and its prediction is small, and half precision would round it
away.
"""

from __future__ import annotations

from torch import Tensor, nn

from prismask.models.inputs import network_scale
from prismask.models.layers.fused import conv3x3
from prismask.optics.camera import CASSI


class Unfolded(nn.Module):
    """An iteration as a network: `(x, measurement, mask, camera)` → cube `(B, C, H, W)`."""

    wants_physics = True

    def __init__(self, planes: int, bands: int) -> None:
        super().__init__()
        # Other inputs than one plane a band, such as those of a `+` variant, need a first guess.
        self.first_guess = nn.Identity() if planes == bands else conv3x3(planes, bands)

    def start(self, x: Tensor) -> Tensor:
        """The first estimate from the input planes, float32."""
        guess: Tensor = self.first_guess(x)
        return guess.float()


def in_dtype_of(weights: nn.Module, x: Tensor) -> Tensor:
    """`x` as a network with these weights takes it; autocast and float32 need no change."""
    return x.to(next(weights.parameters()).dtype)


def misfit(estimate: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """`(2/C) · (A x − y)`, `(B, H, L)`: scaled so that Aᵀ of it is a step of about the right size.

    A Aᵀ grows with the bands (its diagonal is Σ_λ m² ≤ C); with the networks' usual factor 2/C a
    step width of about one is right for every camera.
    """
    return (camera.forward(estimate, mask) - measurement) * network_scale(camera.bands)
