"""A check of the result that needs no truth: re-project it and compare with the snapshot.

A cube that explains its snapshot leaves a residual of the size of the noise. A residual far above
it means that something about camera, mask or method is not as assumed; one far below means that
noise was fitted. A small residual is necessary for a good cube, not sufficient.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from prismask.checks import two_digits
from prismask.inference.engine.strips import project
from prismask.optics.camera import CASSI


@dataclass(frozen=True)
class Residual:
    """How well a cube explains its snapshot, in the snapshot's own units."""

    rms: float
    """Root mean square of y − A x."""
    relative: float
    """The same over the root mean square of y."""
    noise_std: float
    """The noise it is compared with."""
    noise_from: str
    """Where that number comes from."""

    @property
    def over_noise(self) -> float | None:
        """The residual in units of the noise; None where there is no noise to compare with."""
        return self.rms / self.noise_std if self.noise_std > 0 else None

    def text(self) -> str:
        """One line for the person."""
        line = f"residual {self.rms:.3g} rms, {two_digits(100 * self.relative)} % of the signal"
        if self.over_noise is not None:
            times = two_digits(self.over_noise)
            line += f", {times} × the noise ({self.noise_std:.2g}, {self.noise_from})"
        return line


def reproject(
    cube: Tensor,
    signal: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise_std: float,
    noise_from: str,
    unit: float = 1.0,
) -> Residual:
    """Compare `A cube` of `cube (C, H, W)` with `signal (H, L)`.

    noise_std: in the units of `signal`; unit: what 1 of those is in the snapshot's own.
    """
    left = signal - project(cube, mask, camera)
    rms = float(left.square().mean().sqrt())
    scale = float(signal.square().mean().sqrt())
    relative = rms / scale if scale > 0 else 0.0
    return Residual(unit * rms, relative, unit * noise_std, noise_from)
