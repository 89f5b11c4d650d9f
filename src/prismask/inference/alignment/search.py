"""The pose of a mask: twelve numbers fitted to the snapshot itself, without a truth.

A mask and a prism are calibrated once; then temperature and a touched table move the mask's image,
or spread the spectrum, by fractions of a pixel, the focus changes, and the picture that it was
calibrated by had an exposure and a curve of its own. That is enough to spoil a cube. Networks draw
plausible cubes even with a wrong mask, but such a cube does not explain the snapshot: r = y − A x̂
is small only where the mask is right. Trying nine shifts finds the neighbourhood; from there a
quasi-Newton search (BFGS) lowers log ‖r‖. Its gradient,

    ∂ log ‖r‖ / ∂p = ⟨∂ log ‖r‖ / ∂m, ∂m / ∂p⟩        for each of the twelve numbers p,

goes through the network backwards once, down to the mask m in its pose, and there meets what each
number does to the mask. Gauss–Newton steps would stop halfway: a network shrinks the residual of
any mask, so JᵀJ overestimates the curvature of ‖r‖ by far.

Most steps use two bright strips of the frame; the last ones, with the curvature known from there,
use more of it.

At a hundredth of the cost `probe_mask` tells whether a search would be worth it.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.inference.alignment.pose import BLUR, DISPERSION, FIELDS, POSITION, TONES, MaskPose
from prismask.inference.engine import Engine
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI
from prismask.progress import Progress

GRID_STEP = 0.7
"""Pixels between the shifts that are tried first."""
PIECES = 4
"""Strips along the dispersion that are used of a large frame, and most pixels of each: going
backwards through a network takes a hundred times the memory of its cube."""
PIXELS = 48 << 10
STRIP_LINES = 48
"""Lines of each of the two strips that the search begins with, where the frame has many more."""

MOST_GRADIENTS, LAST_GRADIENTS = 24, 8
"""Most gradients of a search, and of its end with more of the frame."""
STOP_BELOW, STOP_BELOW_WITH_TONES = 0.005, 0.002
"""Share by which two steps together have to lower the residual for a third to be worth its time;
the curve of the mask's values comes in many small ones."""
LEAST_GAIN = 0.03
"""Share by which all has to lower it for the mask to be moved at all."""
LEAST_BLUR_GAIN = 0.02
"""Share by which a blur has to lower it further. On validation scenes with masks as sharp as
calibrated one did so in one of 24 searches, by a variance of 0.07 px²."""
LEAST_TONE_GAIN = 0.04
"""Share by which a curve of the mask's values has to lower it further. Below that it may be the
scene: on validation scenes with right values it does so by up to 0.025, at a cost in brightness;
with another calibration of the aperture by 0.024 to 0.17."""
RUNS = 11 + 4 * 3 * (MOST_GRADIENTS + LAST_GRADIENTS)
"""Most runs of the network, a gradient counted as four: for position, blur and tones."""

Array = NDArray[np.float64]

_FIRST_CURVATURE: Array = np.eye(len(FIELDS))
"""The inverse Hessian that a search starts with."""
_FIRST_CURVATURE[FIELDS.index(BLUR), FIELDS.index(BLUR)] = 0.3


@dataclass(frozen=True)
class Alignment:
    """The pose in which a mask was found."""

    pose: MaskPose
    before: float
    """‖y − A x̂‖ / ‖y‖ with the mask as it was given."""
    after: float
    """With the mask in this pose."""

    @property
    def is_worth_it(self) -> bool:
        """Whether the snapshot says clearly that the mask lies elsewhere."""
        return self.after < (1 - LEAST_GAIN) * self.before

    @property
    def found(self) -> MaskPose:
        """The pose to use: as calibrated unless the snapshot clearly says otherwise."""
        return self.pose if self.is_worth_it else MaskPose()

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """What was found, in words; `size` is that of the mask."""
        if not self.is_worth_it:
            return "the mask lies where it was calibrated, as far as one can tell."
        return (
            f"the mask is read {self.pose.text(size, camera)}: so a network's cube leaves "
            f"{100 * self.after:.2g} % of the snapshot unexplained instead of "
            f"{100 * self.before:.2g} %."
        )


def align_mask(engine: Engine, seen: Observation, progress: Progress | None = None) -> Alignment:
    """Find the pose of the mask of one snapshot, in the network's units.

    progress: called after each run of the network with how many were made, of how many at most.
    """
    count = RunCounter(progress, RUNS)

    def search(pieces: list[slice]) -> Search:
        return Search(engine, seen, pieces, count)

    pieces = pieces_of((seen.mask.shape[-2], seen.mask.shape[-1]), seen.camera)
    part = whole = search(pieces)
    if sum(piece.stop - piece.start for piece in pieces) >= 6 * STRIP_LINES:
        part = search(bright_pieces(seen.measurement[0], seen.camera))

    def descend(start: Lowest, free: Sequence[str], enough: float, least: float) -> Lowest:
        """From `start`, or `start` itself where that lowers what is left by less than `least`.

        With part of the frame first: what gains too little there is not tried on the whole.
        """
        gain = -math.log(1 - least)
        near = part.descend(start, free, enough, MOST_GRADIENTS)
        if near.gain < gain:
            return start
        found = near if part is whole else whole.descend(near, free, enough, LAST_GRADIENTS)
        return found if found.level < start.level - gain else start

    pose = (*POSITION, *DISPERSION)
    before = whole.residual(MaskPose())
    found = descend(Lowest(part.best_shift()), pose, STOP_BELOW, 0.0)
    # One after the other: with so many numbers at once a small frame would be explained too well.
    found = descend(found, [*pose, BLUR], STOP_BELOW, LEAST_BLUR_GAIN)
    blur = (BLUR,) if found.pose.blur else ()
    found = descend(found, [*pose, *blur, *TONES], STOP_BELOW_WITH_TONES, LEAST_TONE_GAIN)
    return Alignment(found.pose, before, whole.residual(found.pose))


@dataclass(frozen=True)
class Lowest:
    """The pose of least residual that a search has come to."""

    pose: MaskPose
    level: float = math.inf
    """log (‖r‖ / ‖y‖) there, in single precision."""
    gain: float = 0.0
    """By how much that is lower than where the search began."""
    curvature: Array | None = None
    """The inverse of the second derivatives, `(12, 12)`, as far as it is known."""


class _Enough(Exception):
    """A search has computed as many gradients as it may."""


class RunCounter:
    """Counts runs of the network, for those who wait."""

    def __init__(self, progress: Progress | None = None, most: int = 0) -> None:
        self.progress, self.runs, self.most = progress, 0, most

    def __call__(self, runs: int) -> None:
        """So many more."""
        self.runs += runs
        if self.progress is not None:
            self.progress(self.runs, self.most, {"stage": "searching for the mask's pose"})


class Search:
    """Residuals and gradients of one snapshot, in some pieces of it.

    A network that is told how far masks may be wrong, and lets its cube explain the snapshot as far
    as it is sure of the mask, would explain it with every mask. It is told that the mask of each
    pose is right, but for what people state, and its cube is taken before the last step.
    """

    def __init__(
        self,
        engine: Engine,
        seen: Observation,
        pieces: list[slice],
        count: RunCounter,
    ) -> None:
        self.engine, self.camera, self.mask, self.count = engine, seen.camera, seen.mask, count
        self.pieces = pieces
        noise = None if seen.noise is None else seen.noise.to(engine.device)
        spread = torch.zeros_like(seen.mask[:, :1]) if seen.mask_std is None else seen.mask_std
        stated = seen._replace(noise=noise, mask_std=spread)
        self.seen = [stated.with_images(partial(self._strip, piece=piece)) for piece in pieces]
        self.energy = sum(float(s.measurement.double().square().sum()) for s in self.seen) or 1.0

    @cached_property
    def exact(self) -> Reconstructor:
        """The network for gradients, which in half precision are too rough near the minimum."""
        return copy.deepcopy(self.engine.model).to(self.engine.device).eval().requires_grad_(False)

    def residual(self, pose: MaskPose) -> float:
        """‖r‖ / ‖y‖ with the mask in `pose`."""
        energy, moved = 0.0, pose.moved(self.mask)
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            code = pose.by_band(self._strip(moved, piece), self.camera).clamp(0, 1)
            cube = self.engine.network.before_projection(seen._replace(mask=code))
            left = seen.measurement - self.camera.forward(cube, code)
            energy += float(left.double().square().sum())
        self.count(1)
        return math.sqrt(energy / self.energy)

    def best_shift(self) -> MaskPose:
        """The best of nine shifts."""
        # Not moving comes first: along a side of one pixel all shifts are the same.
        steps = (0.0, -GRID_STEP, GRID_STEP)
        found = {MaskPose(down, right): 0.0 for down in steps for right in steps}
        for pose in found:
            found[pose] = self.residual(pose)
        return min(found, key=lambda pose: found[pose])

    def descend(self, start: Lowest, free: Sequence[str], enough: float, most: int) -> Lowest:
        """The pose of least residual that is reached from `start` by changing the fields `free`.

        enough: share by which two steps together have to lower the residual for a third.
        most: gradients, each about four times the work of a residual.
        """
        # Here, because only a search needs it and every reconstruction would wait for it.
        from scipy.optimize import minimize

        chosen = [FIELDS.index(name) for name in free]
        visited: dict[MaskPose, float] = {}
        course: list[float] = []

        def level_and_gradient(values: Array) -> tuple[float, Array]:
            if len(visited) == most:
                raise _Enough
            numbers = np.array(start.pose.numbers)
            numbers[chosen] = values
            pose = MaskPose.from_numbers(numbers.tolist())
            level, by_number = self.gradient(pose)
            if start.curvature is not None and not visited:
                course.append(level)  # where the curvature is known the first step counts
            visited[pose] = level
            return level, by_number[chosen]

        def stop_in_time(intermediate_result: Any) -> None:
            course.append(float(intermediate_result.fun))
            if len(course) > 2 and course[-3] - course[-1] < enough:
                raise StopIteration

        curvature = _FIRST_CURVATURE.copy() if start.curvature is None else start.curvature.copy()
        known = curvature[np.ix_(chosen, chosen)]
        with contextlib.suppress(_Enough):
            ended = minimize(
                level_and_gradient, np.array(start.pose.numbers)[chosen], jac=True, method="BFGS",
                callback=stop_in_time,
                options={"maxiter": most, "hess_inv0": (known + known.T) / 2},
            )  # fmt: skip
            curvature[np.ix_(chosen, chosen)] = np.asarray(ended.hess_inv)
        pose = min(visited, key=lambda one: visited[one])
        gain = next(iter(visited.values())) - visited[pose]
        return Lowest(pose, visited[pose], gain, curvature)

    def gradient(self, pose: MaskPose) -> tuple[float, Array]:
        """log (‖r‖ / ‖y‖) and its derivative by each field of the pose."""
        energy, by_number = 0.0, np.zeros(len(FIELDS))
        moved, by_position, by_value = pose.derivatives(self.mask)
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            strip = self._strip(moved, piece)
            positions, values = (
                [pose.by_band(self._strip(change, piece), self.camera) for change in changes]
                for changes in (by_position, by_value)
            )
            changes = [*positions, *pose.band_derivatives(strip, self.camera), *values]
            # One mask for each band, so that each has a gradient; the network sees the same.
            planes = pose.by_band(strip, self.camera).expand(-1, self.camera.bands, -1, -1)
            here = planes.clone().requires_grad_(True)
            with torch.enable_grad():
                code = here.clamp(0, 1)
                shown = self.exact.posterior.mean(code)
                cube = self.exact.before_projection(seen._replace(mask=shown))
                left = (seen.measurement - self.camera.forward(cube, code)).square().sum()
            (by_mask,) = torch.autograd.grad(left, here)
            energy += float(left.detach())
            by_number += [float((by_mask * change).sum()) for change in changes]
        self.count(4)
        value = math.log(max(energy, 1e-24) / self.energy) / 2
        return value, by_number / (2 * max(energy, 1e-24))

    def _strip(self, mask: Tensor, piece: slice) -> Tensor:
        return cut(mask, piece, self.camera).to(self.engine.device)


def pieces_of(size: tuple[int, int], camera: CASSI) -> list[slice]:
    """Which lines are used, across the dispersion: all, or some strips."""
    length, width = size if camera.axis == "width" else size[::-1]
    lines = max(1, PIXELS // width)
    if length <= lines:
        return [slice(0, length)]
    count = min(PIECES, math.ceil(length / lines))
    lines = min(lines, math.ceil(length / count))
    starts = [round(k * (length - lines) / (count - 1)) for k in range(count)]
    return [slice(start, start + lines) for start in starts]


def bright_pieces(signal: Tensor, camera: CASSI) -> list[slice]:
    """The brightest `STRIP_LINES` lines of each half of `signal (H, L)`."""
    lines = signal.shape[0 if camera.axis == "width" else 1]
    halves = (slice(0, lines // 2), slice(lines // 2, lines))
    return [brightest(signal, camera, STRIP_LINES, half) for half in halves]


def brightest(signal: Tensor, camera: CASSI, lines: int, within: slice = slice(None)) -> slice:
    """The `lines` lines along the dispersion with most light: without light there is no code."""
    by_line = signal.double().square().sum(1 if camera.axis == "width" else 0)[within]
    lines = min(lines, len(by_line))
    first = (within.start or 0) + int(by_line.unfold(0, lines, 1).sum(1).argmax())
    return slice(first, first + lines)


def cut(values: Tensor, piece: slice, camera: CASSI) -> Tensor:
    """A strip of a measurement or a mask."""
    return values[..., piece, :] if camera.axis == "width" else values[..., piece]


# --- whether a snapshot agrees with its mask: try other poses of it -------------------------------
#
# A network draws a plausible cube with any mask, and how much of the snapshot that leaves
# unexplained says little: it depends on the scene and on the noise. But if the mask is right, every
# other one explains less. So the residual ‖y − A x̂‖ is computed for a mask moved by a third of a
# pixel in each direction, out of focus, and behind a spectrum that is a little wider or narrower,
# on a few bright lines of the frame. If one of them explains clearly more, the mask is not as it
# was calibrated; the search above finds out what it is then, at a hundred times the cost.
#
# This is about fractions of a pixel; whole ones are found by `inference.alignment.pose`.


PROBE_LINES = 32
"""Lines along the dispersion that are used, the brightest there are."""
INCONSISTENT_FROM = 0.02
"""Share by which another pose has to lower the residual. With right masks the most that was gained
in 48 trials on validation scenes was 0.010, and mostly something was lost; shifts and blurs of half
a pixel gain 0.04 to 0.6. What was found when an interval was fitted is stored with it. Whatever
else is not as the camera says, such as a dark level left in the snapshot, can come near it."""
PROBE_MARGIN = 16
"""Lines beside those that are used which a blurred or moved mask may take values from."""
PROBE_SMALLEST = 64
"""Pixels that a mask needs along both sides for its snapshot to say anything."""
PROBE_SHIFT, PROBE_SPREAD, PROBE_BLUR = 0.35, 0.3, 0.25
"""Pixels by which a mask is moved, and by which the spectrum's ends are; variance of a blur in
px²."""
TRIES = (
    MaskPose(down=PROBE_SHIFT),
    MaskPose(down=-PROBE_SHIFT),
    MaskPose(right=PROBE_SHIFT),
    MaskPose(right=-PROBE_SHIFT),
    MaskPose(spread=PROBE_SPREAD),
    MaskPose(spread=-PROBE_SPREAD),
    MaskPose(blur=PROBE_BLUR),
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
    if min(seen.mask.shape[-2:]) < PROBE_SMALLEST or not float(seen.measurement.abs().max()) > 0:
        return None
    lines = brightest(seen.measurement[0], seen.camera, PROBE_LINES)
    # Cut first: moving the planes of a large mask takes longer than the network on a few lines.
    near = slice(max(0, lines.start - PROBE_MARGIN), lines.stop + PROBE_MARGIN)
    inside = slice(lines.start - near.start, lines.stop - near.start)
    around = seen.with_images(lambda image: cut(image, near, seen.camera))
    search = Search(engine, around, [inside], RunCounter())
    least = min(search.residual(pose) for pose in TRIES)
    return Probe(1 - least / max(search.residual(MaskPose()), 1e-12))
