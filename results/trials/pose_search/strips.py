"""Strips of a frame: the lines along the dispersion that tell most of a mask, and its code there.

What a snapshot says of its mask's pose it says on a few bright lines already, and a network needs
a fraction of the time for them.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import brightest, cut
from prismask.optics.camera import CASSI

MARGIN = 16
"""Lines beside a strip from which a moved or blurred mask takes values."""


class Strip:
    """Some lines of a snapshot, and what of the mask they can have met."""

    def __init__(self, signal: Tensor, mask: Tensor, camera: CASSI, lines: slice) -> None:
        """Of `signal (H, L)` behind `mask (1, 1|C, H, W)`."""
        self.camera = camera
        self.frame = (mask.shape[-2], mask.shape[-1])
        length = self.frame[0 if camera.axis == "width" else 1]
        near = slice(max(0, lines.start - MARGIN), min(length, lines.stop + MARGIN))
        self.seen = cut(signal, lines, camera)[None]
        # Cut first: moving all of a large mask takes longer than the network on a few lines.
        self._around = cut(mask, near, camera)
        self._inside = slice(lines.start - near.start, lines.stop - near.start)
        # Across the dispersion, from −1 to 1 over the frame: v = share · v′ + offset, with v′ from
        # −1 to 1 over these lines.
        count = near.stop - near.start
        self._share = count / length
        self._offset = (near.start + (count - 1) / 2 - (length - 1) / 2) / (length / 2)

    def code(self, pose: MaskPose) -> Tensor:
        """The mask that these lines met, `(1, 1|C, h, W)`, if the whole one lies in `pose`."""
        moved = cut(self._local(pose).moved(self._around), self._inside, self.camera)
        return pose.by_band(moved, self.camera).clamp(0, 1)

    def turned(self, down: float, right: float, turn: float) -> MaskPose:
        """The pose with these shifts in the strip's middle, turned about that.

        turn: pixels by which the frame's edges move that the dispersion runs towards.
        """
        height, width = self.frame
        if self.camera.axis == "width":
            back = -turn * height / width
            return MaskPose(
                down, right - self._offset * back, down_by_column=turn, right_by_row=back
            )
        back = -turn * width / height
        return MaskPose(down - self._offset * back, right, down_by_column=back, right_by_row=turn)

    def _local(self, pose: MaskPose) -> MaskPose:
        """The pose in coordinates of these lines alone."""
        by = "row" if self.camera.axis == "width" else "column"
        local: dict[str, float] = {}
        for shift in ("down", "right"):
            growth = getattr(pose, f"{shift}_by_{by}")
            local[shift] = getattr(pose, shift) + self._offset * growth
            local[f"{shift}_by_{by}"] = self._share * growth
        return replace(pose, **local)


def bright_strips(signal: Tensor, mask: Tensor, camera: CASSI, lines: int) -> list[Strip]:
    """The brightest `lines` lines of each half of `signal (H, L)`; all where there are few."""
    count = signal.shape[0 if camera.axis == "width" else 1]
    if count <= 2 * lines:
        found = [slice(0, count)]
    else:
        halves = (slice(0, count // 2), slice(count // 2, count))
        found = [brightest(signal, camera, lines, half) for half in halves]
    return [Strip(signal, mask, camera, piece) for piece in found]
