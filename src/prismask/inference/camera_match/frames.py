"""A snapshot as a network knows them: its bands, its orientation, its steps, its brightness.

Orientation. A camera may disperse to the right, to the left, up or down. To a network each of these
is another camera, and it has met one: behind the others its cube is several decibels worse, though
nothing about the optics is. Snapshot and mask are therefore turned before it sees them and its cube
is turned back, which is exact (`Turn`).

Steps. A network that learned bands 2 px apart is lost where they are 3 px apart. Read with larger
pixels along the dispersion, by a factor f < 1, the same frame is that of a camera whose offsets are
f · o_λ: with u′ + ½ = f (u + ½) on sensor, mask and scene,

    y[v] = Σ_λ m[v − o_λ] x_λ[v − o_λ]      is      y′[v′] = Σ_λ m′[v′ − f o_λ] x′_λ[v′ − f o_λ].

So snapshot and mask are resampled like that before the network sees them, and its cube is resampled
back (`Stretch`). Detail finer than 1/f pixels along the dispersion is lost; smaller pixels (f > 1)
would bring nothing to a camera that spreads its spectrum less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match.bands import BandAdapter
from prismask.optics.camera import CASSI

FINE = 4
"""Samples that are averaged in each larger pixel."""


@dataclass(frozen=True)
class Turn:
    """Rows and columns exchanged first, then the columns' order reversed."""

    transposed: bool = False
    mirrored: bool = False

    @classmethod
    def towards(cls, camera: CASSI, trained_step: float | None) -> Turn:
        """What makes `camera` disperse along the width, as with `trained_step` pixels per band."""
        trained_rightwards = trained_step is None or trained_step >= 0
        rightwards = camera.offsets[-1] >= camera.offsets[0]
        return cls(camera.axis == "height", rightwards != trained_rightwards)

    @property
    def text(self) -> str:
        """What is done to frames, in words; empty: nothing."""
        done = {"transposed": self.transposed, "mirrored": self.mirrored}
        return ", ".join(word for word, applies in done.items() if applies)

    def camera(self, camera: CASSI) -> CASSI:
        """The camera that takes turned snapshots through turned masks, always along the width."""
        if self.transposed:
            camera = replace(camera, axis="width")
        return camera.mirrored() if self.mirrored else camera

    def there(self, frames: Tensor) -> Tensor:
        """Frames `(…, H, W)` as the network is shown them."""
        if self.transposed:
            frames = frames.transpose(-2, -1)
        if self.mirrored:
            frames = frames.flip(-1)
        return frames.contiguous()

    def back(self, frames: Tensor) -> Tensor:
        """Frames of the network `(…, H, W)` as the camera took them."""
        if self.mirrored:
            frames = frames.flip(-1)
        if self.transposed:
            frames = frames.transpose(-2, -1)
        return frames.contiguous()

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose found in turned frames, in those of the camera."""
        if self.mirrored:  # what went right goes left, and columns count from the other side
            pose = replace(
                pose,
                right=-pose.right,
                right_by_row=-pose.right_by_row,
                down_by_column=-pose.down_by_column,
                spread=-pose.spread,
                bend=-pose.bend,
            )
        if self.transposed:
            pose = replace(
                pose,
                down=pose.right,
                right=pose.down,
                down_by_column=pose.right_by_row,
                down_by_row=pose.right_by_column,
                right_by_column=pose.down_by_row,
                right_by_row=pose.down_by_column,
            )
        return pose


@dataclass(frozen=True)
class Stretch:
    """A frame of `camera`, which disperses along the width, with `width` columns of the scene."""

    camera: CASSI
    width: int
    columns: int
    """Columns that the network sees of them, at most as many."""

    @classmethod
    def by(cls, factor: float, camera: CASSI, width: int) -> Stretch:
        """The nearest to `factor` with which the scene ends where a pixel does."""
        return cls(camera, width, max(1, round(factor * width)))

    @property
    def factor(self) -> float:
        """Pixels of the network in one of the camera's."""
        return self.columns / self.width

    @property
    def is_needed(self) -> bool:
        """Whether frames change at all."""
        return self.columns != self.width

    @property
    def shown(self) -> CASSI:
        """The camera as the network sees it."""
        if not self.is_needed:
            return self.camera
        return replace(self.camera, offsets=tuple(self.factor * o for o in self.camera.offsets))

    def signal(self, signal: Tensor, noise_std: Tensor) -> tuple[Tensor, Tensor]:
        """Snapshots `(B, H, L)` for the network, and what is left of their noise `(B,)`."""
        if not self.is_needed:
            return signal, noise_std
        weights = self._there(signal.shape[-1], self.shown.measurement_size((1, self.columns))[1])
        left = float(weights.square().sum(1).mean().sqrt())
        return signal @ weights.T.to(signal.device), noise_std * left

    def mask(self, mask: Tensor) -> Tensor:
        """A mask `(1, 1|C, H, W)` for the network."""
        if not self.is_needed:
            return mask
        columns = self.shown.mask_size((1, self.columns))[1]
        return (mask @ self._there(mask.shape[-1], columns).T.to(mask.device)).clamp(0, 1)

    def back(self, values: Tensor) -> Tensor:
        """Cubes of the network `(…, H, W′)` in the camera's pixels `(…, H, W)`."""
        return values @ self._back(3).T.to(values.device) if self.is_needed else values

    def back_distance(self, values: Tensor) -> Tensor:
        """The same for what is never negative, such as the width of an interval."""
        return values @ self._back(1).T.to(values.device) if self.is_needed else values

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose found in frames of the network, in the camera's pixels."""
        if not self.is_needed:
            return pose
        return replace(
            pose,
            right=pose.right / self.factor,
            right_by_column=pose.right_by_column / self.factor,
            right_by_row=pose.right_by_row / self.factor,
            spread=pose.spread / self.factor,
            bend=pose.bend / self.factor,
            # Its pixels are longer than high, the blur of a pose is round.
            blur=pose.blur * (1 + self.factor**-2) / 2,
        )

    def _there(self, length: int, columns: int) -> Tensor:
        fine = (np.arange(FINE * columns, dtype=np.float64) + 0.5) / (FINE * self.factor)
        weights = _spline(length, fine - 0.5, 3)
        return torch.from_numpy(weights.reshape(columns, FINE, length).mean(1)).float()

    def _back(self, degree: int) -> Tensor:
        at = self.factor * (np.arange(self.width, dtype=np.float64) + 0.5) - 0.5
        return torch.from_numpy(_spline(self.columns, at, degree)).float()


@dataclass(frozen=True, eq=False)
class View:
    """Snapshots of one camera in a network's bands, units and orientation, and the way back."""

    adapter: BandAdapter
    turn: Turn
    stretch: Stretch
    gain: Tensor
    """From each snapshot's brightness to the network's, `(B,)`."""
    signal: Tensor
    """`(B, H, L)`."""
    mask: Tensor
    """`(1, 1|C, H, W)`."""
    noise_std: Tensor
    """In the units of `signal`, `(B,)`."""
    mask_std: Tensor | None = None
    """How far the mask may be wrong, `(1, 1|C, H, W)`; None where nobody knows."""

    @classmethod
    def of(
        cls,
        signal: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise_std: Tensor,
        gain: Tensor,
        adapter: BandAdapter,
        mask_std: Tensor | None = None,
    ) -> View:
        """Snapshots `(B, H, L)` through one `mask (1, 1|C, H, W)` for the network of `adapter`.

        noise_std, gain: `(B,)`, of every snapshot.
        mask_std: of the mask, `(1, 1|C, H, W)`, for networks that see bands and pixels as they are.
        """
        factor = (gain.double() * adapter.gain).float()
        turn = Turn.towards(camera, adapter.trained_step)
        seen, code = turn.there(signal), turn.there(adapter.mask(mask))
        shown = turn.camera(adapter.shown)
        columns = shown.scene_size((seen.shape[-2], seen.shape[-1]))[1]
        stretch = Stretch.by(adapter.stretch, shown, columns)
        seen, noise = stretch.signal(seen * factor[:, None, None], noise_std * factor)
        told = None if mask_std is None else turn.there(mask_std)
        return cls(adapter, turn, stretch, gain, seen, stretch.mask(code), noise, told)

    @property
    def camera(self) -> CASSI:
        """The camera as the network sees it."""
        return self.stretch.shown

    @property
    def is_resampled(self) -> bool:
        """Whether pixels or bands of the network are not those of the camera."""
        return self.stretch.is_needed or self.adapter.is_needed

    def back(self, values: Tensor) -> Tensor:
        """Cubes of the network `(B, C′, H, W′)` in the bands, units and frame of the snapshots."""
        return self._in_bands(self.stretch.back(values))

    def back_distance(self, values: Tensor) -> Tensor:
        """The same for what is never negative, such as the width of an interval."""
        return self._in_bands(self.stretch.back_distance(values))

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose of the mask that was found here, in the frame of the snapshots."""
        return self.turn.pose_back(self.stretch.pose_back(pose))

    def _in_bands(self, values: Tensor) -> Tensor:
        gain = self.gain.float().to(values.device)[:, None, None, None]
        return self.adapter.back(self.turn.back(values)) / gain


def _spline(length: int, at: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    """Weights `(n, length)` of the values at 0 … length − 1 for those at `at`; edges continue."""
    degree = min(degree, length - 1)
    if degree < 1:
        return np.ones((len(at), 1))
    from scipy.interpolate import make_interp_spline

    spline = make_interp_spline(np.arange(length), np.eye(length), k=degree)
    return np.asarray(spline(np.clip(at, 0, length - 1)))
