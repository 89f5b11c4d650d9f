"""The pose of a mask: twelve numbers fitted to the snapshot itself, without a truth.

A mask and a prism are calibrated once; then temperature and a touched table move the mask's image,
or spread the spectrum, by fractions of a pixel, the focus changes, and the picture that it was
calibrated by had an exposure and a curve of its own. That is enough to spoil a cube.

Two questions are asked of the network in turn. Told that the mask may be wrong, it draws nearly the
right cube, and for that cube the pose is found by Gauss–Newton steps (`alignment.steps`); with the
mask in that pose the next cube is better, and after a few such turns nothing moves any more. Along
the dispersion a cube moves with its mask, so there the pose slides to where least is left. Told
that the mask is right, the network draws a cube that explains its snapshot only if that is so: what
it leaves, r = y − A x̂, tells whether a pose is to be believed. That is asked on lines of the frame
that the turns have not used.

First comes where the mask lies and how sharp it is, then how far the prism spreads the spectrum,
then the curve of the mask's values; each has to earn its numbers on the lines held out.

At a tenth of the cost `probe_mask` tells whether a search would be worth it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from prismask.inference.alignment.pose import BLUR, DISPERSION, POSITION, TONES, MaskPose
from prismask.inference.alignment.steps import (
    POSED_STD,
    UNKNOWN_STD,
    seen_lines,
    step_pose,
)
from prismask.inference.engine import Engine
from prismask.models.inputs import Observation
from prismask.optics.camera import CASSI
from prismask.progress import Progress, part

PIECES, LINES = 4, 24
"""Strips along the dispersion that the pose is found from, and lines of each; as many are held
out."""
CONTEXT = 8
"""Lines beside a strip that the network sees as well."""
LEAST_LINES = 24
"""Lines that a strip and its neighbour share where the frame has few."""
SETTLED = 0.3
"""Share of its standard deviation by which each number moves in a turn once they are found."""
STAGES = (
    ((*POSITION, BLUR), 8, 0.015),
    (DISPERSION, 4, 0.005),
    (TONES, 4, 0.03),
)
"""The numbers that are added to those found so far, turns of cube and pose at most, and the share
by which what is left of the lines held out has to fall for them to be kept."""
LIT = 0.01
"""Share of the brightest strip's light from which a strip counts by itself."""
SLIDE, SLIDES = 0.35, 4
"""Pixels of a step along the dispersion, and most of them."""
SLID_FAR = 0.1
"""Pixels from which other turns follow a slide."""
USUAL = (22, 12, 12)
"""Cubes of all strips that each stage usually takes; at most it is two to three times as many."""


@dataclass(frozen=True)
class Alignment:
    """The pose in which a mask was found."""

    pose: MaskPose
    """As calibrated unless the snapshot clearly says otherwise."""
    before: float
    """‖y − A x̂‖ / ‖y‖ of the lines held out, with the mask as it was given; 0: no light."""
    after: float
    """With the mask in this pose."""
    std: MaskPose = field(default_factory=MaskPose)
    """How surely each number was found, standard deviations; 0 where it was not."""

    @property
    def is_worth_it(self) -> bool:
        """Whether the snapshot says clearly that the mask lies elsewhere."""
        return self.after < self.before

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """What was found, in words; `size` is that of the mask."""
        if not self.before:
            return "the snapshot holds no light that could say where its mask lies."
        if not self.is_worth_it:
            return "the mask lies where it was calibrated, as far as one can tell."
        width = f", the spectrum's width to {2 * self.std.spread:.2f} px" * bool(self.std.spread)
        return (
            f"the mask lies {self.pose.text(size, camera)}. Reconstructed like this, "
            f"{100 * self.after:.2g} % of the snapshot is left unexplained instead of "
            f"{100 * self.before:.2g} %. The shift is known to about {self.std.right:.2f} px "
            f"horizontally and {self.std.down:.2f} px vertically{width} (standard deviations)."
        )


@part("alignment")
def align_mask(
    engine: Engine,
    seen: Observation,
    bad: Tensor | None = None,
    progress: Progress | None = None,
) -> Alignment:
    """Find the pose of the mask of one snapshot, dispersed along the width, in the network's units.

    bad: pixels `(H, L)` that say nothing; None: there are none.
    progress: called after each cube of all strips; what is left is what it usually takes.
    """
    search = Search(engine, seen, bad, progress)
    here = search.left(MaskPose())
    before = here.level
    found = Alignment(MaskPose(), before, before)
    free: tuple[str, ...] = STAGES[0][0]
    for stage, (more, turns, least) in enumerate(STAGES if before else ()):
        search.enter(stage)
        tried = tuple(dict.fromkeys((*free, *more)))
        pose, std = search.best(found.pose, tried, turns)
        there = search.left(pose)
        # Cells let as much light through everywhere: what helps here and harms there is no curve.
        if there.level < (1 - least) * here.level and (more != TONES or there.is_below(here)):
            found, free, here = Alignment(pose, before, there.level, std), tried, there
    search.enter(len(STAGES))
    return found


class Search:
    """One snapshot, and the lines of it that poses are found from and judged on."""

    def __init__(
        self,
        engine: Engine,
        seen: Observation,
        bad: Tensor | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.engine, self.seen, self.progress = engine, seen, progress
        self.runs, self.stage_ends = 0, 1
        self.counts = torch.ones_like(seen.measurement)
        if bad is not None:
            self.counts = self.counts * ~bad
        self.fitted, self.held = strips(seen.measurement[0] * self.counts[0])

    def turns(self, pose: MaskPose, free: Sequence[str], most: int) -> tuple[MaskPose, MaskPose]:
        """Where turns of cube and pose lead from `pose`, and how surely that is known."""
        told, stated = self.seen.mask, self.seen.mask_std
        std = MaskPose()
        for _ in range(most):
            doubt = UNKNOWN_STD if pose == MaskPose() else POSED_STD
            spread = torch.full_like(told[:, :1], doubt) if stated is None else stated
            shown = self.seen._replace(mask_std=spread)
            lines = [
                seen_lines(self.engine, shown, rows, self.counts, halo=CONTEXT, pose=pose)
                for rows in self.fitted
            ]
            before, (pose, std) = pose, step_pose(lines, told, pose, free)
            self._count()
            moved = (abs(a - b) for a, b in zip(pose.numbers, before.numbers, strict=True))
            if all(by <= SETTLED * sure for by, sure in zip(moved, std.numbers, strict=True)):
                break
        return pose, std

    def best(self, pose: MaskPose, free: Sequence[str], most: int) -> tuple[MaskPose, MaskPose]:
        """Where turns and slides lead from `pose`, and how surely that is known."""
        turned, std = self.turns(pose, free, most)
        slid, level = slid_along(turned, self._level)
        if abs(slid.right - turned.right) <= SLID_FAR:
            return slid, std
        again, later = self.turns(slid, free, most)
        return (again, later) if self._level(again) < level else (slid, std)

    def _level(self, pose: MaskPose) -> float:
        """What is left of the lines that poses are found from."""
        level = residual(self.engine, self.seen, pose, self.fitted).level
        self._count()
        return level

    def left(self, pose: MaskPose) -> Left:
        """What is left of the lines held out."""
        left = residual(self.engine, self.seen, pose, self.held)
        self._count()
        return left

    def enter(self, stage: int) -> None:
        """A stage begins, or the end: what was not needed before it counts as done."""
        self.runs, self.stage_ends = 1 + sum(USUAL[:stage]), 1 + sum(USUAL[: stage + 1])
        if stage == len(USUAL):
            self._tell()

    def _count(self) -> None:
        # A stage that takes longer than usual waits at its end.
        self.runs = min(self.runs + 1, self.stage_ends)
        self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(self.runs, 1 + sum(USUAL), {"stage": "searching for the mask's pose"})


def slid_along(pose: MaskPose, level: Callable[[MaskPose], float]) -> tuple[MaskPose, float]:
    """`pose` shifted along the dispersion to where least is left, and what is left there.

    There a cube moves with its mask, so turns of both stop early; but a network that is told that
    its mask is right knows. level: what such a network leaves with the mask in a pose.
    """
    levels: dict[int, float] = {}

    def there(by: float) -> MaskPose:
        return replace(pose, right=pose.right + by * SLIDE)

    def at_step(steps: int) -> float:
        if steps not in levels:
            levels[steps] = level(there(steps))
        return levels[steps]

    at = 0
    for _ in range(SLIDES):
        nearest = min((at - 1, at + 1), key=at_step)
        if at_step(nearest) >= at_step(at):
            break
        at = nearest
    else:
        return there(at), at_step(at)
    # The lowest point of the parabola through three levels, if less is left there.
    before, here, after = (at_step(at + beside) for beside in (-1, 0, 1))
    bend = before - 2 * here + after
    if bend > 0 and before != after:
        lowest = there(at + (before - after) / (2 * bend))
        if (left := level(lowest)) < here:
            return lowest, left
    return there(at), here


def strips(signal: Tensor) -> tuple[list[slice], list[slice]]:
    """The brightest lines of every other part of `signal (H, L)`, and those of the others; of a
    single line nothing can be held out."""
    height = signal.shape[-2]
    if height == 1:
        return [slice(0, 1)], [slice(0, 1)]
    count = 2 * max(1, min(PIECES, height // (2 * LEAST_LINES)))
    edges = [round(k * height / count) for k in range(count + 1)]
    parts = (slice(a, b) for a, b in pairwise(edges))
    found = [brightest(signal, LINES, part) for part in parts]
    return found[::2], found[1::2]


@dataclass(frozen=True)
class Left:
    """What a cube leaves of its snapshot, r = y − A x̂, on some strips."""

    energies: tuple[float, ...]
    """‖r‖² of each."""
    lights: tuple[float, ...]
    """‖y‖² of each."""

    @property
    def level(self) -> float:
        """‖r‖ / ‖y‖ of all; 0 without light."""
        light = sum(self.lights)
        return math.sqrt(sum(self.energies) / light) if light else 0.0

    def is_below(self, other: Left) -> bool:
        """Whether less is left than with another pose, on every strip with light."""
        each = zip(self.energies, other.energies, self.lights, strict=True)
        return all(e < o for e, o, light in each if light > LIT * max(self.lights))


def residual(engine: Engine, seen: Observation, pose: MaskPose, pieces: Sequence[slice]) -> Left:
    """What is left of some lines with the mask in `pose`.

    A network that is told how far masks may be wrong, and lets its cube explain the snapshot as far
    as it is sure of the mask, would explain it with every mask. It is told that the mask of each
    pose is right, but for what people state, and its cube is taken before the last step.
    """
    energies, lights = [], []
    noise = None if seen.noise is None else seen.noise.to(engine.device)
    std = torch.zeros_like(seen.mask[:, :1]) if seen.mask_std is None else seen.mask_std
    stated = seen._replace(noise=noise, mask_std=std)

    def cut(image: Tensor, rows: slice) -> Tensor:
        return image[..., rows, :].to(engine.device)

    for rows in pieces:
        one = stated.with_images(partial(cut, rows=rows))
        one = one._replace(mask=pose.read(seen.mask, seen.camera, rows).to(engine.device))
        cube = engine.network.before_projection(one)
        gone = one.measurement - seen.camera.forward(cube, one.mask)
        energies.append(float(gone.double().square().sum()))
        lights.append(float(one.measurement.double().square().sum()))
    return Left(tuple(energies), tuple(lights))


def brightest(signal: Tensor, lines: int, within: slice = slice(None)) -> slice:
    """The `lines` lines of `signal (H, L)` with most light: without light there is no code."""
    by_line = signal.double().square().sum(1)[within]
    lines = min(lines, len(by_line))
    first = (within.start or 0) + int(by_line.unfold(0, lines, 1).sum(1).argmax())
    return slice(first, first + lines)


# --- whether a snapshot agrees with its mask: try other poses of it -------------------------------
#
# A network draws a plausible cube with any mask, and how much of the snapshot that leaves
# unexplained says little: it depends on the scene and on the noise. But if the mask is right, every
# other one explains less. So the residual ‖y − A x̂‖ is computed for a mask moved by a third of a
# pixel in each direction, out of focus, and behind a spectrum that is a little wider or narrower,
# on a few bright lines of the frame. If one of them explains clearly more, the mask is not as it
# was calibrated; the search above finds out what it is then, at ten times the cost.
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
    """Try other poses of the mask of one snapshot, dispersed along the width, in the network's
    units.

    None: too small, or too dark, to tell.
    """
    if min(seen.mask.shape[-2:]) < PROBE_SMALLEST or not float(seen.measurement.abs().max()) > 0:
        return None
    lines = brightest(seen.measurement[0], PROBE_LINES)
    # Cut first: moving the planes of a large mask takes longer than the network on a few lines.
    near = slice(max(0, lines.start - PROBE_MARGIN), lines.stop + PROBE_MARGIN)
    inside = slice(lines.start - near.start, lines.stop - near.start)
    around = seen.with_images(lambda image: image[..., near, :])

    def level(pose: MaskPose) -> float:
        return residual(engine, around, pose, [inside]).level

    return Probe(1 - min(map(level, TRIES)) / max(level(MaskPose()), 1e-12))
