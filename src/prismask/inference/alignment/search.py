"""The way down to a mask's place: what a snapshot leaves unexplained, and its slope."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from prismask.inference.alignment.pose import BLUR, NUMBERS, Place
from prismask.inference.engine.frame import Engine, Progress
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI

FIRST = 0.7
"""Pixels between the shifts of the first look."""
PIECES = 4
"""Strips along the dispersion that are looked at in a large frame, and most pixels of each: going
backwards through a network takes a hundred times the memory of its cube."""
PIXELS = 48 << 10
FEW = 48
"""Lines of each of the two strips that the search begins with, where the frame has many more."""

Array = NDArray[np.float64]

_COMMON: Array = np.eye(NUMBERS)
"""What a valley looks like before one knows it."""
_COMMON[BLUR, BLUR] = 0.3


@dataclass(frozen=True)
class Lowest:
    """The lowest place that a search has come to."""

    place: Place
    level: float = math.inf
    """log (‖r‖ / ‖y‖) there, in single precision."""
    gain: float = 0.0
    """By how much that is lower than where the search began."""
    curvature: Array | None = None
    """What is known of the valley, `(12, 12)`: the inverse of its second derivatives."""


class _Enough(Exception):
    """A search has asked for as many slopes as it may."""


class Told:
    """Counts runs of the network, for those who wait."""

    def __init__(self, progress: Progress | None = None, most: int = 0) -> None:
        self.progress, self.runs, self.most = progress, 0, most

    def __call__(self, runs: int) -> None:
        """So many more."""
        self.runs += runs
        if self.progress is not None:
            self.progress(self.runs, self.most, {"stage": "looking for the mask's place"})


class Search:
    """Residuals and slopes of one snapshot, in some pieces of it."""

    def __init__(
        self,
        engine: Engine,
        signal: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise_std: float | None,
        pieces: list[slice],
        told: Told,
    ) -> None:
        self.engine, self.camera, self.mask, self.told = engine, camera, mask, told
        self.pieces = pieces
        self.seen = [cut(signal, piece, camera)[None].to(engine.device) for piece in self.pieces]
        self.energy = sum(float(seen.double().square().sum()) for seen in self.seen) or 1.0
        self.noise = None if noise_std is None else torch.tensor([noise_std], device=engine.device)

    @cached_property
    def exact(self) -> Reconstructor:
        """The network for slopes, which in half precision are too rough to go by near the place."""
        return copy.deepcopy(self.engine.model).to(self.engine.device).eval().requires_grad_(False)

    def left(self, place: Place) -> float:
        """‖r‖ / ‖y‖ with the mask at `place`."""
        energy, moved = 0.0, place.moved(self.mask)
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            code = place.by_band(self._strip(moved, piece), self.camera).clamp(0, 1)
            cube = self.engine.network.once(seen, code, self.camera, self.noise)
            energy += float((seen - self.camera.forward(cube, code)).double().square().sum())
        self.told(1)
        return math.sqrt(energy / self.energy)

    def first_look(self) -> Place:
        """The best of nine shifts."""
        # Not moving comes first: along a side of one pixel all shifts are the same.
        steps = (0.0, -FIRST, FIRST)
        found = {Place((down, right)): 0.0 for down in steps for right in steps}
        for place in found:
            found[place] = self.left(place)
        return min(found, key=lambda place: found[place])

    def descend(self, start: Lowest, free: Sequence[int], enough: float, most: int) -> Lowest:
        """The lowest place that is reached from `start` by changing the numbers in `free`.

        enough: share by which two steps together have to lower the residual for a third.
        most: slopes, each about four times the work of a look.
        """
        chosen = list(free)
        visited: dict[Place, float] = {}
        course: list[float] = []

        def slope(values: Array) -> tuple[float, Array]:
            if len(visited) == most:
                raise _Enough
            numbers = np.array(start.place.numbers)
            numbers[chosen] = values
            place = Place(tuple(numbers.tolist()))
            level, by_number = self.slope(place)
            if start.curvature is not None and not visited:
                course.append(level)  # where the valley is known the first step counts
            visited[place] = level
            return level, by_number[chosen]

        def stop_in_time(intermediate_result: OptimizeResult) -> None:
            course.append(float(intermediate_result.fun))
            if len(course) > 2 and course[-3] - course[-1] < enough:
                raise StopIteration

        curvature = _COMMON.copy() if start.curvature is None else start.curvature.copy()
        known = curvature[np.ix_(chosen, chosen)]
        with contextlib.suppress(_Enough):
            ended = minimize(
                slope, np.array(start.place.numbers)[chosen], jac=True, method="BFGS",
                callback=stop_in_time,
                options={"maxiter": most, "hess_inv0": (known + known.T) / 2},
            )  # fmt: skip
            curvature[np.ix_(chosen, chosen)] = np.asarray(ended.hess_inv)
        place = min(visited, key=lambda one: visited[one])
        gain = next(iter(visited.values())) - visited[place]
        return Lowest(place, visited[place], gain, curvature)

    def slope(self, place: Place) -> tuple[float, Array]:
        """log (‖r‖ / ‖y‖) and its derivative by each of the numbers."""
        energy, by_number = 0.0, np.zeros(NUMBERS)
        moved, by_position, by_value = place.derivatives(self.mask)
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            strip = self._strip(moved, piece)
            positions, values = (
                [place.by_band(self._strip(change, piece), self.camera) for change in changes]
                for changes in (by_position, by_value)
            )
            changes = [*positions, *place.band_derivatives(strip, self.camera), *values]
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
        self.told(4)
        value = math.log(max(energy, 1e-24) / self.energy) / 2
        return value, by_number / (2 * max(energy, 1e-24))

    def _strip(self, mask: Tensor, piece: slice) -> Tensor:
        return cut(mask, piece, self.camera).to(self.engine.device)


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


def bright_pieces(signal: Tensor, camera: CASSI) -> list[slice]:
    """The brightest `FEW` lines of each half of `signal (H, L)`."""
    lines = signal.shape[0 if camera.axis == "width" else 1]
    halves = (slice(0, lines // 2), slice(lines // 2, lines))
    return [brightest(signal, camera, FEW, half) for half in halves]


def brightest(signal: Tensor, camera: CASSI, lines: int, within: slice = slice(None)) -> slice:
    """So many lines along the dispersion with most light: where there is light is a code."""
    by_line = signal.double().square().sum(1 if camera.axis == "width" else 0)[within]
    lines = min(lines, len(by_line))
    first = (within.start or 0) + int(by_line.unfold(0, lines, 1).sum(1).argmax())
    return slice(first, first + lines)


def cut(values: Tensor, piece: slice, camera: CASSI) -> Tensor:
    """A strip of a measurement or a mask."""
    return values[..., piece, :] if camera.axis == "width" else values[..., piece]
