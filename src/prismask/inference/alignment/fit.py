"""Where the mask really lies: twelve numbers fitted to the snapshot itself, without a truth.

A mask and a prism are calibrated once; then temperature and a touched table move the mask's image,
or spread the spectrum, by fractions of a pixel, the focus changes, and the picture that it was
calibrated by had an exposure and a curve of its own. That is enough to spoil a cube. Networks draw
plausible cubes even with a wrong mask, but such a cube does not explain the snapshot: r = y − A x̂
is small only where the mask is right. A first look at nine shifts finds the neighbourhood; from
there a quasi-Newton search (BFGS) lowers log ‖r‖. Its slope,

    ∂ log ‖r‖ / ∂p = ⟨∂ log ‖r‖ / ∂m, ∂m / ∂p⟩        for each of the twelve numbers p,

goes through the network backwards once, down to the mask m in its place, and there meets what each
number does to the mask. Gauss–Newton steps would stop halfway: a network shrinks the residual of
any mask, so JᵀJ is far steeper than the valley in which ‖r‖ really lies.

Most of the way is gone with two bright strips of the frame; for the last steps, with the shape of
the valley known from there, more of it is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from prismask.inference.alignment.pose import BLUR, NUMBERS, TONES, Place
from prismask.inference.alignment.search import FEW, Lowest, Search, Told, bright_pieces, pieces_of
from prismask.inference.engine.frame import Engine, Progress
from prismask.optics.camera import CASSI

SLOPES, LAST_SLOPES = 24, 8
"""Most slopes of a search, and of its end with more of the frame."""
ENOUGH, ENOUGH_WITH_TONES = 0.005, 0.002
"""Share by which two steps together have to lower the residual for a third to be worth its time;
the curve of the mask's values comes in many small ones."""
WORTH = 0.03
"""Share by which all has to lower it for the mask to be moved at all."""
BLURRED = 0.02
"""Share by which a blur has to lower it further. On validation scenes with masks as sharp as
calibrated one did so in one of 24 searches, by a variance of 0.07 px²."""
CLEARLY = 0.04
"""Share by which a curve of the mask's values has to lower it further. Below that it may be the
scene: on validation scenes with right values it does so by up to 0.025, at a cost in brightness;
with another calibration of the aperture by 0.024 to 0.17."""
RUNS = 11 + 4 * 3 * (SLOPES + LAST_SLOPES)
"""Most runs of the network, a slope counted as four: for the place, the blur and the values."""
PLACE, BLURS, VALUES = range(TONES.start - 1), (BLUR,), range(TONES.start, NUMBERS)
"""The numbers that are looked for one after the other."""


@dataclass(frozen=True)
class Alignment:
    """Where a mask was found."""

    place: Place
    before: float
    """‖y − A x̂‖ / ‖y‖ with the mask as it was given."""
    after: float
    """With the mask moved."""

    @property
    def is_worth_it(self) -> bool:
        """Whether the snapshot says clearly that the mask lies elsewhere."""
        return self.after < (1 - WORTH) * self.before

    @property
    def found(self) -> Place:
        """The place to read the mask at: its own unless the snapshot clearly says otherwise."""
        return self.place if self.is_worth_it else Place()

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """What was found, in words; `size` is that of the mask."""
        if not self.is_worth_it:
            return "the mask lies where it was calibrated, as far as one can tell."
        return (
            f"the mask is read {self.place.text(size, camera)}: so a network's cube leaves "
            f"{100 * self.after:.2g} % of the snapshot unexplained instead of "
            f"{100 * self.before:.2g} %."
        )


def align_mask(
    engine: Engine,
    signal: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise_std: float | None = None,
    progress: Progress | None = None,
) -> Alignment:
    """Find where `mask (1, 1|C, H, W)` lies behind `signal (H, L)`, both in the network's units.

    progress: told after each run of the network how many were made, of how many at most.
    """
    size = (mask.shape[-2], mask.shape[-1])
    told = Told(progress, RUNS)

    def search(pieces: list[slice]) -> Search:
        return Search(engine, signal, mask, camera, noise_std, pieces, told)

    pieces = pieces_of(size, camera)
    part = whole = search(pieces)
    if sum(piece.stop - piece.start for piece in pieces) >= 6 * FEW:
        part = search(bright_pieces(signal, camera))

    def descend(start: Lowest, free: Sequence[int], enough: float, least: float) -> Lowest:
        """From `start`, or `start` itself where that lowers what is left by less than `least`.

        With part of the frame first: what gains too little there is not asked of the whole.
        """
        gain = -math.log(1 - least)
        near = part.descend(start, free, enough, SLOPES)
        if near.gain < gain:
            return start
        found = near if part is whole else whole.descend(near, free, enough, LAST_SLOPES)
        return found if found.level < start.level - gain else start

    before = whole.left(Place())
    found = descend(Lowest(part.first_look()), PLACE, ENOUGH, 0.0)
    # One after the other: with so many numbers at once a small frame would be explained too well.
    found = descend(found, [*PLACE, *BLURS], ENOUGH, BLURRED)
    blur = BLURS if found.place.numbers[BLUR] else ()
    found = descend(found, [*PLACE, *blur, *VALUES], ENOUGH_WITH_TONES, CLEARLY)
    return Alignment(found.place, before, whole.left(found.place))
