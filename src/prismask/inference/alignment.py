"""Where the mask really lies: eleven numbers fitted to the snapshot itself, without a truth.

A mask and a prism are calibrated once; then temperature, focus and a touched table move the mask's
image, or spread the spectrum, by fractions of a pixel, and the picture they were calibrated by had
an exposure and a curve of its own. That is enough to spoil a cube. Networks draw plausible cubes
even with a wrong mask, but such a cube does not explain the snapshot: r = y − A x̂ is small only
where the mask is right. A first look at nine shifts finds the neighbourhood; from there a
quasi-Newton search (BFGS) lowers log ‖r‖. Its slope,

    ∂ log ‖r‖ / ∂p = ⟨∂ log ‖r‖ / ∂m, ∂m / ∂p⟩        for each of the eleven numbers p,

goes through the network backwards once, down to the mask m in its place, and there meets what each
number does to the mask. Gauss–Newton steps would stop halfway: a network shrinks the residual of
any mask, so JᵀJ is far steeper than the valley in which ‖r‖ really lies.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from prismask.inference.displacement import NUMBERS, TONES, Place
from prismask.inference.engine import Engine, Progress
from prismask.optics.camera import CASSI

FIRST = 0.7
"""Pixels between the shifts of the first look."""
STEPS = 20
"""Most steps of the search."""
SLOPES = 50
"""Most slopes it may ask for, each about four times the work of a look."""
ENOUGH, ENOUGH_WITH_TONES = 0.005, 0.002
"""Share by which two steps together have to lower the residual for a third to be worth its time;
the curve of the mask's values comes in many small ones."""
WORTH = 0.03
"""Share by which all has to lower it for the mask to be moved at all."""
CLEARLY = 0.04
"""Share by which a curve of the mask's values has to lower it further. Below that it may be the
scene: on validation scenes with right values it does so by up to 0.025, at a cost in brightness;
with another calibration of the aperture by 0.024 to 0.17."""
PIECES = 4
"""Strips along the dispersion that are looked at in a large frame, and most pixels of each: going
backwards through a network takes a hundred times the memory of its cube."""
PIXELS = 48 << 10
RUNS = 11 + 4 * SLOPES
"""Most runs of the network, a slope counted as four."""

Array = NDArray[np.float64]


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
    search = _Search(engine, signal, mask, camera, noise_std, progress)
    before = search.left(Place())
    found = search.descend(search.first_look(before), TONES.start, ENOUGH)
    # Values come second: with so many numbers at once a small frame would be explained too well.
    toned = search.descend(found.place, NUMBERS, ENOUGH_WITH_TONES)
    place = toned.place if toned.level < found.level + math.log(1 - CLEARLY) else found.place
    return Alignment(place, before, search.left(place))


@dataclass(frozen=True)
class Lowest:
    """The lowest place that a search has come to."""

    level: float = math.inf
    """log (‖r‖ / ‖y‖) there, in single precision."""
    place: Place = field(default_factory=Place)


class _Enough(Exception):
    """The search has asked for as many slopes as it may."""


class _Search:
    """Residuals and slopes of one snapshot."""

    def __init__(
        self,
        engine: Engine,
        signal: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise_std: float | None,
        progress: Progress | None,
    ) -> None:
        self.engine, self.camera, self.mask, self.progress = engine, camera, mask, progress
        self.pieces = pieces_of((mask.shape[-2], mask.shape[-1]), camera)
        self.seen = [cut(signal, piece, camera)[None].to(engine.device) for piece in self.pieces]
        self.energy = sum(float(seen.double().square().sum()) for seen in self.seen) or 1.0
        self.noise = None if noise_std is None else torch.tensor([noise_std], device=engine.device)
        # Slopes in half precision are too rough to go by near the place.
        self.exact = copy.deepcopy(engine.model).to(engine.device).eval().requires_grad_(False)
        self.runs = self.slopes = 0
        self.lowest = Lowest()

    def left(self, place: Place) -> float:
        """‖r‖ / ‖y‖ with the mask at `place`."""
        energy, moved = 0.0, place.moved(self.mask)
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            code = place.by_band(self._strip(moved, piece), self.camera).clamp(0, 1)
            cube = self.engine.network.once(seen, code, self.camera, self.noise)
            energy += float((seen - self.camera.forward(cube, code)).double().square().sum())
        self._told(1)
        return math.sqrt(energy / self.energy)

    def first_look(self, before: float) -> Place:
        """The best of nine shifts; `before` is what is left without one."""
        # Not moving comes first: along a side of one pixel all shifts are the same.
        found = {Place(): before}
        for down in (0.0, -FIRST, FIRST):
            for right in (0.0, -FIRST, FIRST):
                if down or right:
                    found[Place((down, right))] = self.left(Place((down, right)))
        return min(found, key=lambda place: found[place])

    def descend(self, start: Place, count: int, enough: float) -> Lowest:
        """The lowest place that is reached from `start` by changing the first `count` numbers."""
        course: list[float] = []
        rest = np.array(start.numbers[count:])

        def slope(numbers: Array) -> tuple[float, Array]:
            value, by_number = self.slope(np.concatenate([numbers, rest]))
            return value, by_number[:count]

        def stop_in_time(intermediate_result: OptimizeResult) -> None:
            course.append(float(intermediate_result.fun))
            if len(course) > 2 and course[-3] - course[-1] < enough:
                raise StopIteration

        with contextlib.suppress(_Enough):
            minimize(
                slope, np.array(start.numbers[:count]), jac=True, method="BFGS",
                callback=stop_in_time, options={"maxiter": STEPS},
            )  # fmt: skip
        return self.lowest

    def slope(self, numbers: Array) -> tuple[float, Array]:
        """log (‖r‖ / ‖y‖) and its derivative by each of the numbers."""
        if self.slopes == SLOPES:
            raise _Enough
        self.slopes += 1
        place, energy, by_number = _place(numbers), 0.0, np.zeros(NUMBERS)
        moved, by_position, by_tones = place.derivatives(self.mask)
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            strip = self._strip(moved, piece)
            positions, tones = (
                [place.by_band(self._strip(change, piece), self.camera) for change in changes]
                for changes in (by_position, by_tones)
            )
            changes = [*positions, *place.band_derivatives(strip, self.camera), *tones]
            # One mask for each band, so that each has a slope; the network sees the same.
            planes = place.by_band(strip, self.camera).expand(-1, self.camera.bands, -1, -1)
            here = planes.clone().requires_grad_(True)
            with torch.enable_grad():
                code = here.clamp(0, 1)
                shown = self.exact.posterior.mean(code)
                cube = self.exact.reconstruct(seen, shown, self.camera, self.noise)
                left = (seen - self.camera.forward(cube, code)).square().sum()
            (by_mask,) = torch.autograd.grad(left, here)
            energy += float(left.detach())
            by_number += [float((by_mask * change).sum()) for change in changes]
        self._told(4)
        value = math.log(max(energy, 1e-24) / self.energy) / 2
        if value < self.lowest.level:
            self.lowest = Lowest(value, place)
        return value, by_number / (2 * max(energy, 1e-24))

    def _strip(self, mask: Tensor, piece: slice) -> Tensor:
        return cut(mask, piece, self.camera).to(self.engine.device)

    def _told(self, runs: int) -> None:
        self.runs += runs
        if self.progress is not None:
            self.progress(self.runs, RUNS, {"stage": "looking for the mask's place"})


def _place(numbers: Array) -> Place:
    return Place(tuple(numbers.tolist()))


def pieces_of(size: tuple[int, int], camera: CASSI) -> list[slice]:
    """Where to look, across the dispersion: everywhere, or in some strips."""
    length, width = size if camera.axis == "width" else size[::-1]
    lines = max(1, PIXELS // width)
    if length <= lines:
        return [slice(0, length)]
    count = min(PIECES, math.ceil(length / lines))
    lines = min(lines, math.ceil(length / count))
    starts = [round(k * (length - lines) / (count - 1)) for k in range(count)]
    return [slice(start, start + lines) for start in starts]


def cut(values: Tensor, piece: slice, camera: CASSI) -> Tensor:
    """A strip of a measurement or a mask."""
    return values[..., piece, :] if camera.axis == "width" else values[..., piece]
