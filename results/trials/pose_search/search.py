"""A trial, not yet `--align`: the pose of a mask from the snapshot itself, network forwards alone.

A mask and a prism are calibrated once; then temperature and a touched table move the mask's image,
or spread the spectrum, by fractions of a pixel, the focus changes, and the picture that it was
calibrated by had an exposure and a curve of its own. That is enough to spoil a cube. A network that
learned behind wrong masks says where the mask is: told that nobody knows how wrong it is, it draws
nearly the right cube with a mask beside the true one, and what that cube leaves of the snapshot
with the mask of a pose p,

    r(p) = y − A_m(p) x̂(p),

is least where that pose is right. Four steps lower ‖r‖, on bright strips of the frame and with the
network forwards alone:

1. Shifts, turns and the spectrum's spread on a coarse grid, from one place to its best neighbour.
2. Gauss–Newton steps for position, dispersion and blur,

       δ = argmin ‖r + J δ‖² / s² + Σ ((p + δ) / usual)²,

   where s² is the share of ‖r‖² in one observation and the last term what is known of cameras
   before any snapshot. J is taken through the network by differences, because the cube follows the
   mask: one that lies further along the dispersion looks like a scene that does. After each step J
   takes in what the step has shown (Broyden's update); where that misleads it is taken anew.
3. A finer grid around what was found, of shift along the dispersion and spread: where one end of
   the spectrum is dark they look alike, and ‖r‖ has several hollows. From a better one 2. again.
4. Steps for blur and the curve of the mask's values, kept if that explains clearly more.

The inverse of the steps' matrix tells how surely each number was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from strips import Strip, bright_strips
from torch import Tensor

from prismask.inference.alignment.pose import BLUR, DISPERSION, POSITION, TONES, MaskPose
from prismask.inference.alignment.search import brightest
from prismask.inference.engine import Engine
from prismask.models.inputs import Observation
from prismask.optics.camera import CASSI
from prismask.progress import Progress

LINES = 32
"""Lines along the dispersion of the strip that the coarse grid is tried on, the brightest."""
PIXELS = 32 * 714
"""Pixels of the strip in each half of the frame that steps use, in as many lines, at least as the
grid's."""

GRID_STEP, GRID_SPREAD = 0.7, 0.5
"""Pixels between neighbours of the coarse grid: of shifts, and of what a turn and the spread do at
the frame's and the spectrum's ends."""
GRID_REACH, MOST_MOVES = (6, 6, 6, 1), 8
"""How many neighbours it reaches to each side in shifts, turn and spread, and how often one goes to
the next. Far along the dispersion a mask and a much wider spectrum explain real snapshots, too."""
FINE_STEP, FINE_REACH, FINE_MOVES = 0.3, (2, 2), 2
"""The same of the finer grid, along the dispersion alone."""
_SIDES = (0, -1, 1)
COARSE = (
    *((down, right, 0, 0) for down in _SIDES for right in _SIDES),
    *((0, 0, turn, 0) for turn in _SIDES[1:]),
    *((0, right, 0, spread) for right in _SIDES for spread in _SIDES[1:]),
)
FINE = tuple((right, spread) for right in _SIDES for spread in _SIDES)
"""Steps to the neighbours of both grids, staying first."""

MOST_STEPS, MOST_VALUE_STEPS = 10, 5
"""Gauss–Newton steps for the pose, and for the mask's values."""
MOST_SLOPES, MOST_VAIN = 2, 2
"""How often J is taken by differences, and how many steps in vain lead to that, or to the end."""
LONGEST = 0.7
"""Most that one step changes a number by, in pixels."""

WORTHWHILE, WORTHWHILE_OF_NOISE = 0.04, 0.012
"""Share of ‖r‖² beyond the noise, and of the noise's own, that has to go for a pose to be worth
taking. Right masks on validation scenes offer less."""
STEP_SHARE = 0.1
"""Share of that which a step has to promise and to keep."""
WORTHWHILE_TONES = 0.25
"""As `WORTHWHILE`, for the curve of the mask's values: less may be the scene."""
LEFT_OF_NOISE = 0.8
"""Share of the noise's ‖·‖² that is left in r: the network's cube takes a part of it."""
PER_OBSERVATION = 100
"""Pixels of r that count as one observation: what a network leaves is the same over many. So many
make the standard deviations of what was found fit its errors on the beads."""

DIFFERENCE = 0.1
DIFFERENCES = {"spread": 0.2, "bend": 0.2, BLUR: 0.15, **dict.fromkeys(TONES, 0.05)}
"""Steps over which slopes are taken, in the units of a pose: for positions, and for the rest."""
TURN, STRETCH = math.radians(0.4), 0.0015
USUAL_SHIFT, USUAL_SPREAD, USUAL_BEND, USUAL_BLUR, USUAL_TONE = 1.0, 0.4, 0.02, 0.3, 0.1
"""How far cameras usually are from their calibration, standard deviations: an angle, a share, and
numbers of a pose."""

POSE = (*POSITION, *DISPERSION, BLUR)
"""What is searched for first."""
VALUES = (BLUR, *TONES)
"""What follows: how much light the cells of a mask that lies there let through."""
_FITS = (
    2 * (MOST_STEPS + MOST_SLOPES * len(POSE)) + FINE_MOVES * len(FINE)
    + MOST_VALUE_STEPS + MOST_SLOPES * len(VALUES)
)  # fmt: skip
MOST_RUNS = MOST_MOVES * len(COARSE) + 2 * _FITS
"""Most runs of the network, on a strip each."""
STAGE = {"stage": "searching for the mask's pose"}


@dataclass(frozen=True)
class Alignment:
    """The pose in which a mask was found."""

    pose: MaskPose
    before: float
    """‖r‖ / ‖y‖ with the mask as it was given; 0 where there is no light."""
    after: float
    """With the mask in this pose."""
    is_worth_it: bool = True
    """Whether the snapshot says clearly that the mask lies elsewhere."""
    std: MaskPose | None = None
    """Standard deviation of each number of the pose; 0 for those that were not searched for."""

    @property
    def found(self) -> MaskPose:
        """The pose to use: as calibrated unless the snapshot clearly says otherwise."""
        return self.pose if self.is_worth_it else MaskPose()

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """What was found, in words; `size` is that of the mask."""
        if not self.before:
            return "the snapshot holds no light that could say where its mask lies."
        if not self.is_worth_it:
            return "the mask lies where it was calibrated, as far as one can tell."
        return (
            f"the mask is read {self.pose.text(size, camera)}: so a network's cube leaves "
            f"{100 * self.after:.2g} % of the snapshot unexplained instead of "
            f"{100 * self.before:.2g} %.{self._std_text()}"
        )

    def _std_text(self) -> str:
        if self.std is None:
            return ""
        return (
            f" Shifts are known to about {self.std.right:.2f} px to the right and "
            f"{self.std.down:.2f} px down, the spectrum's width to {2 * self.std.spread:.2f} px."
        )


def align_mask(
    engine: Engine,
    signal: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise_std: float,
    progress: Progress | None = None,
) -> Alignment:
    """Find the pose of `mask (1, 1|C, H, W)` behind `signal (H, L)`, both in the network's units.

    progress: called after each run of the network with how many were made, of how many at most.
    """
    along = signal.shape[1 if camera.axis == "width" else 0]
    strips = bright_strips(signal, mask, camera, max(LINES, PIXELS // along))
    search = Search(engine, strips, camera, noise_std, progress)
    if not search.total:
        return Alignment(MaskPose(), 0.0, 0.0, is_worth_it=False)
    before = search.fit(MaskPose())
    coarse = search.on_coarse_grid(Strip(signal, mask, camera, brightest(signal, camera, LINES)))
    found = search.descend(search.fit(coarse), POSE, MOST_STEPS)
    beside = search.on_fine_grid(found)
    if beside is not found:
        found = search.descend(beside, POSE, MOST_STEPS)
    bent = search.descend(found, VALUES, MOST_VALUE_STEPS)
    if bent.energy < found.energy - search.worthwhile(found, WORTHWHILE_TONES):
        found = replace(bent, std=found.std)
    is_worth_it = found.energy < before.energy - search.worthwhile(before)
    share, left = (math.sqrt(fit.energy / search.total) for fit in (before, found))
    return Alignment(found.pose, share, left, is_worth_it, found.std)


@dataclass(frozen=True, eq=False)
class Fit:
    """A pose and what is left with it."""

    pose: MaskPose
    left: Tensor
    """r on all strips, `(pixels,)` float64."""
    std: MaskPose | None = None
    """Standard deviation of each number, where steps have led here."""

    @property
    def energy(self) -> float:
        """‖r‖²."""
        return _energy(self.left)


@dataclass(frozen=True, eq=False)
class Bowl:
    """‖r‖² around a pose, as its slopes have it."""

    step: Tensor
    """Towards the bottom, for each field that is free."""
    promise: float
    """By how much that should lower ‖r‖²."""
    std: list[float]
    """How far each number may be off at the bottom."""


class Search:
    """What a network leaves of one snapshot, on some strips of it, with masks in any pose."""

    def __init__(
        self,
        engine: Engine,
        strips: Sequence[Strip],
        camera: CASSI,
        noise_std: float,
        progress: Progress | None = None,
    ) -> None:
        self.engine, self.strips, self.camera, self.progress = engine, strips, camera, progress
        self.noise_std = torch.tensor([noise_std], device=engine.device)
        pixels = sum(strip.seen.numel() for strip in strips)
        self.noise = LEFT_OF_NOISE * noise_std**2 * pixels
        self.total = sum(_energy(strip.seen) for strip in strips)
        self.runs = 0

    def worthwhile(self, fit: Fit, share: float = WORTHWHILE) -> float:
        """By how much ‖r‖² has to fall from `fit`, part of which is noise."""
        noise = min(self.noise, fit.energy)
        return share * (fit.energy - noise) + WORTHWHILE_OF_NOISE * noise

    def fit(self, pose: MaskPose) -> Fit:
        """What is left with the mask in `pose`."""
        left = [self._left(strip, pose).flatten().cpu().double() for strip in self.strips]
        return Fit(pose, torch.cat(left))

    def _left(self, strip: Strip, pose: MaskPose) -> Tensor:
        """r of a strip, `(1, h, L)`; the network is told that nobody knows the mask's errors."""
        seen, code = (t.to(self.engine.device) for t in (strip.seen, strip.code(pose)))
        cube = self.engine.network.once(Observation(seen, code, self.camera, self.noise_std))
        self.runs += 1
        if self.progress is not None:
            self.progress(self.runs, MOST_RUNS, STAGE)
        return seen - self.camera.forward(cube, code)

    def on_coarse_grid(self, strip: Strip) -> MaskPose:
        """The best shift, turn and spread on a coarse grid, for a strip."""

        def pose(at: Place) -> MaskPose:
            down, right, turn, spread = at
            turned = strip.turned(GRID_STEP * down, GRID_STEP * right, GRID_STEP * turn)
            return replace(turned, spread=GRID_SPREAD * spread)

        return pose(
            _walk(lambda at: _energy(self._left(strip, pose(at))), COARSE, GRID_REACH, MOST_MOVES)
        )

    def on_fine_grid(self, around: Fit) -> Fit:
        """The best on a fine grid of shifts along the dispersion and spreads, or the same."""
        along = "right" if self.camera.axis == "width" else "down"
        fits: dict[Place, Fit] = {(0, 0): around}

        def energy(at: Place) -> float:
            if at not in fits:
                step = FINE_STEP * torch.tensor(at, dtype=torch.float64)
                fits[at] = self.fit(_moved(around.pose, (along, "spread"), step))
            return fits[at].energy

        return fits[_walk(energy, FINE, FINE_REACH, FINE_MOVES)]

    def descend(self, start: Fit, free: Sequence[str], most: int) -> Fit:
        """The best pose that `most` steps reach from `start` by changing the fields `free`."""
        best, slopes, is_fresh = start, self._slopes(start, free), True
        vain, anew = 0, MOST_SLOPES - 1
        for _ in range(most):
            bowl = self._bowl(best, slopes, free)
            enough = STEP_SHARE * self.worthwhile(best)
            if bowl.promise < enough or vain == MOST_VAIN:
                if is_fresh or not anew:
                    break
                slopes, is_fresh = self._slopes(best, free), True
                vain, anew = 0, anew - 1
                continue
            there = self.fit(_moved(best.pose, free, bowl.step))
            missed = there.left - best.left - bowl.step @ slopes
            slopes = slopes + torch.outer(bowl.step, missed) / bowl.step.square().sum()
            gain = best.energy - there.energy
            vain = 0 if gain > enough else vain + 1
            if gain > 0:
                best, is_fresh = there, False
        std = self._bowl(best, slopes, free).std
        return replace(best, std=MaskPose(**dict(zip(free, std, strict=True))))

    def _slopes(self, here: Fit, free: Sequence[str]) -> Tensor:
        """∂r / ∂ each field, through the network, `(fields, pixels)`."""
        rows = []
        for name in free:
            by = DIFFERENCES.get(name, DIFFERENCE)
            there = self.fit(replace(here.pose, **{name: getattr(here.pose, name) + by}))
            rows.append((there.left - here.left) / by)
        return torch.stack(rows)

    def _bowl(self, here: Fit, slopes: Tensor, free: Sequence[str]) -> Bowl:
        """‖r‖² around a pose, if r goes on as its slopes say."""
        usual = torch.tensor([self._usual(name) for name in free], dtype=torch.float64)
        now = torch.tensor(here.pose.some(free), dtype=torch.float64)
        # Nothing left at all would leave nothing to divide by.
        share = PER_OBSERVATION * max(here.energy, 1e-24) / len(here.left)
        prior = share / usual.square()
        matrix = slopes @ slopes.T + prior.diag()
        step = torch.linalg.solve(matrix, -slopes @ here.left - prior * now)
        step = step.clamp(-LONGEST, LONGEST)
        std = (share * torch.linalg.inv(matrix).diagonal()).sqrt()
        return Bowl(step, here.energy - _energy(here.left + step @ slopes), std.tolist())

    def _usual(self, name: str) -> float:
        """How far a number of a pose usually is from 0."""
        height, width = self.strips[0].frame
        return {
            "down": USUAL_SHIFT, "right": USUAL_SHIFT,
            "down_by_column": TURN * width / 2, "right_by_row": TURN * height / 2,
            "down_by_row": STRETCH * height / 2, "right_by_column": STRETCH * width / 2,
            "spread": USUAL_SPREAD, "bend": USUAL_BEND, BLUR: USUAL_BLUR,
        }.get(name, USUAL_TONE)  # fmt: skip


Place = tuple[int, ...]
"""A place on a grid, counted from where a walk begins."""


def _walk(
    energy: Callable[[Place], float], steps: Sequence[Place], reach: Place, most: int
) -> Place:
    """Where one comes to from 0 by going to the best neighbour within `reach`, `most` times."""
    known: dict[Place, float] = {}

    def level(at: Place) -> float:
        if at not in known:
            known[at] = energy(at)
        return known[at]

    here: Place = (0,) * len(steps[0])
    for _ in range(most):
        near = [tuple(a + b for a, b in zip(here, step, strict=True)) for step in steps]
        within = (at for at in near if all(abs(a) <= b for a, b in zip(at, reach, strict=True)))
        best = min(within, key=level)
        if best == here:
            break
        here = best
    return here


def _energy(values: Tensor) -> float:
    return float(values.double().square().sum())


def _moved(pose: MaskPose, names: Sequence[str], step: Tensor) -> MaskPose:
    """The pose with its fields `names` changed by `step`."""
    changed = zip(names, step.tolist(), strict=True)
    return replace(pose, **{name: getattr(pose, name) + by for name, by in changed})
