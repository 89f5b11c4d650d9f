"""Frames as a network knows them: the prism spreads along the width, to the side it learned with.

A camera may be mounted any way round. To a network each way is another camera, and it has met one:
behind the others its cube is several decibels worse, though nothing about the optics is. Snapshot
and mask are therefore turned before it sees them and its cube is turned back, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from prismask.inference.alignment.pose import Place
from prismask.optics.camera import CASSI


@dataclass(frozen=True)
class Turn:
    """Rows and columns exchanged first, then the columns' order reversed."""

    transposed: bool = False
    mirrored: bool = False

    @classmethod
    def towards(cls, camera: CASSI, trained_step: float | None) -> Turn:
        """What makes `camera` spread along the width, as with `trained_step` pixels a band."""
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

    def place_back(self, place: Place) -> Place:
        """A place found in turned frames, told in those of the camera."""
        down, right, down_u, down_v, right_u, right_v, spread, bend, *values = place.numbers
        if self.mirrored:  # what went right goes left, and columns count from the other side
            right, right_v, down_u = -right, -right_v, -down_u
            spread, bend = -spread, -bend
        if self.transposed:
            down, right = right, down
            down_u, down_v, right_u, right_v = right_v, right_u, down_v, down_u
        return Place((down, right, down_u, down_v, right_u, right_v, spread, bend, *values))
