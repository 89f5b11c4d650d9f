"""Whether a snapshot agrees with its mask: try other poses of it.

A network draws a plausible cube with any mask, and how much of the snapshot that leaves unexplained
says little: it depends on the scene and on the noise. But if the mask is right, every other one
explains less. So the residual ‖y − A x̂‖ is computed for a mask moved by a third of a pixel in each
direction, out of focus, and behind a spectrum that is a little wider or narrower, on a few bright
lines of the frame. If one of them explains clearly more, the mask is not as it was calibrated; the
search of `inference.alignment.search` finds out what it is then, at a hundred times the cost.

This is about fractions of a pixel; whole ones are found by `inference.alignment.registration`.
"""

from __future__ import annotations

from dataclasses import dataclass

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import RunCounter, Search, brightest, cut
from prismask.inference.engine import Engine
from prismask.models.inputs import Observation

LINES = 32
"""Lines along the dispersion that are used, the brightest there are."""
INCONSISTENT_FROM = 0.02
"""Share by which another pose has to lower the residual. With right masks the most that was gained
in 48 trials on validation scenes was 0.010, and mostly something was lost; shifts and blurs of half
a pixel gain 0.04 to 0.6. What was found when an interval was fitted is stored with it. Whatever
else is not as the camera says, such as a dark level left in the snapshot, can come near it."""
MARGIN = 16
"""Lines beside those that are used which a blurred or moved mask may take values from."""
SMALLEST = 64
"""Pixels that a mask needs along both sides for its snapshot to say anything."""
SHIFT, SPREAD, BLUR = 0.35, 0.3, 0.25
"""Pixels by which a mask is moved, and by which the spectrum's ends are; variance of a blur in
px²."""
TRIES = (
    MaskPose(down=SHIFT),
    MaskPose(down=-SHIFT),
    MaskPose(right=SHIFT),
    MaskPose(right=-SHIFT),
    MaskPose(spread=SPREAD),
    MaskPose(spread=-SPREAD),
    MaskPose(blur=BLUR),
)
"""The other poses. Which of them explains most is no diagnosis: it is only the nearest."""


@dataclass(frozen=True)
class Probe:
    """What the best of the other poses would explain."""

    gain: float
    """Share by which it lowers what the cube leaves of the snapshot; below 0: raises."""

    @property
    def is_inconsistent(self) -> bool:
        """Whether the snapshot contradicts its mask."""
        return self.gain > INCONSISTENT_FROM


def probe_mask(engine: Engine, seen: Observation) -> Probe | None:
    """Try other poses of the mask of one snapshot, in the network's units.

    None: too small, or too dark, to tell.
    """
    if min(seen.mask.shape[-2:]) < SMALLEST or not float(seen.measurement.abs().max()) > 0:
        return None
    lines = brightest(seen.measurement[0], seen.camera, LINES)
    # Cut first: moving the planes of a large mask takes longer than the network on a few lines.
    near = slice(max(0, lines.start - MARGIN), lines.stop + MARGIN)
    inside = slice(lines.start - near.start, lines.stop - near.start)
    around = seen.with_images(lambda image: cut(image, near, seen.camera))
    search = Search(engine, around, [inside], RunCounter())
    least = min(search.residual(pose) for pose in TRIES)
    return Probe(1 - least / max(search.residual(MaskPose()), 1e-12))
