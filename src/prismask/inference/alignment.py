"""Where the mask really lies: eight numbers fitted to the snapshot itself, without a truth.

A mask and a prism are calibrated once; then temperature, focus and a touched table move the mask's
image, or spread the spectrum, by fractions of a pixel, which is enough to spoil a cube. Networks
draw plausible cubes even with a wrong mask, but such a cube does not explain the snapshot:
r = y − A x̂ is small only where the mask is right. A first look at nine shifts finds the
neighbourhood; from there Gauss–Newton steps lower ‖r‖²,

    δ = −(Jᵀ J)⁻¹ Jᵀ r,          J = ∂r / ∂(the eight numbers).

Two kinds of steps take turns. With x̂ held, J is the camera with the mask's derivatives in place of
the mask: no further run of the network, but a cube has learned some of its mask by heart, so the
step falls short and is tried two, four and eight times as long. With the network inside, J is taken
by differences: eight runs, true lengths, but only close to the place are its directions right.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.inference.displacement import NUMBERS, Place, band_derivatives, derivatives
from prismask.inference.engine import Engine, Progress
from prismask.optics.camera import CASSI

FIRST = 0.7
"""Pixels between the shifts of the first look."""
DIFFERENCE = 0.1
"""Pixels over which differences are taken."""
TURNS = 4
"""Most pairs of steps."""
LONGEST = 1.0
"""Pixels by which a step may change any of the numbers at first."""
SHARES = (1.0, 2.0, 4.0, 8.0)
"""Lengths at which a step is tried as long as they help."""
ENOUGH = 0.005
"""Share by which a pair has to lower the residual for another one to be worth its time."""
WORTH = 0.03
"""Share by which all has to lower it for the mask to be moved at all."""
LINES = 480
"""Rows across the dispersion that are looked at, spread over a larger frame in `PIECES`."""
PIECES = 6
RUNS = 9 + TURNS * (NUMBERS + 2 * len(SHARES))
"""Most runs of the network."""


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


@dataclass(frozen=True, eq=False)
class Look:
    """A place, and what the network's cube leaves of the snapshot there."""

    place: Place
    mask: Tensor
    """The mask in its place, not yet band by band."""
    cubes: list[Tensor]
    """The network's cube of each piece."""
    left: Tensor
    """r / ‖y‖ over all pieces."""

    @property
    def size(self) -> float:
        """‖r‖ / ‖y‖."""
        return float(self.left.norm())


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
    start = search.look(Place())
    best = search.first_look(start)
    for _ in range(TURNS):
        before = best.size
        best = search.walk(best, search.held_step(best))
        best = search.walk(best, search.full_step(best))
        if best.size > (1 - ENOUGH) * before:
            break
    return Alignment(best.place, start.size, best.size)


class _Search:
    """Residuals and steps of one snapshot."""

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
        self.scale = torch.cat([seen.flatten() for seen in self.seen]).norm().clamp_min(1e-12).cpu()
        self.noise = None if noise_std is None else torch.tensor([noise_std], device=engine.device)
        self.runs = 0

    def look(self, place: Place) -> Look:
        """What is left of the snapshot with the mask at `place`."""
        moved = place.moved(self.mask)
        cubes, left = [], []
        for seen, piece in zip(self.seen, self.pieces, strict=True):
            code = place.by_band(self._code(moved, piece), self.camera).clamp(0, 1)
            cubes.append(self.engine.network.once(seen, code, self.camera, self.noise))
            left.append(self._relative(seen - self.camera.forward(cubes[-1], code)))
        self.runs += 1
        if self.progress is not None:
            self.progress(self.runs, RUNS, {"stage": "looking for the mask's place"})
        return Look(place, moved, cubes, torch.cat(left))

    def first_look(self, start: Look) -> Look:
        """The best of nine shifts."""
        best = start
        # Not moving comes first: along a side of one pixel all shifts are the same.
        for down in (0.0, -FIRST, FIRST):
            for right in (0.0, -FIRST, FIRST):
                if down or right:
                    there = self.look(Place((down, right)))
                    best = min(best, there, key=lambda look: look.size)
        return best

    def walk(self, here: Look, step: Tensor) -> Look:
        """The best look along a step, going on as long as it gets better."""
        step = step * (LONGEST / float(step.abs().max().clamp_min(LONGEST)))
        best = here
        for share in SHARES:
            there = self.look(here.place.stepped(share * step))
            if there.size >= best.size:
                break
            best = there
        return best

    def held_step(self, here: Look) -> Tensor:
        """The step for the cubes as they are."""
        slopes = derivatives(here.mask)
        rows = []
        for cube, piece in zip(here.cubes, self.pieces, strict=True):
            codes = [here.place.by_band(self._code(slope, piece), self.camera) for slope in slopes]
            seen = here.place.by_band(self._code(here.mask, piece), self.camera)
            columns = [
                -self._relative(self.camera.forward(cube, code))
                for code in (*codes, *band_derivatives(seen, self.camera))
            ]
            rows.append(torch.stack(columns, dim=1))
        return gauss_newton(torch.cat(rows), here.left)

    def full_step(self, here: Look) -> Tensor:
        """The step for the cube that the network would then make."""
        places = [here.place.stepped(DIFFERENCE * unit) for unit in torch.eye(NUMBERS)]
        columns = [(self.look(place).left - here.left) / DIFFERENCE for place in places]
        return gauss_newton(torch.stack(columns, dim=1), here.left)

    def _relative(self, measured: Tensor) -> Tensor:
        """Values of a measurement over ‖y‖, one after the other."""
        relative: Tensor = measured.flatten().cpu().double() / self.scale
        return relative

    def _code(self, mask: Tensor, piece: slice) -> Tensor:
        return cut(mask, piece, self.camera).to(self.engine.device)


def gauss_newton(jacobian: Tensor, residual: Tensor) -> Tensor:
    """δ = −(Jᵀ J)⁻¹ Jᵀ r; a direction that the snapshot says nothing about is left alone."""
    normal = jacobian.T @ jacobian
    floor = 1e-3 * normal.diagonal().mean() + 1e-12
    damped = normal + floor * torch.eye(len(normal), dtype=normal.dtype)
    step: Tensor = -torch.linalg.solve(damped, jacobian.T @ residual)
    return step


def pieces_of(size: tuple[int, int], camera: CASSI) -> list[slice]:
    """Where to look, across the dispersion: everywhere, or in some strips."""
    length = size[0] if camera.axis == "width" else size[1]
    if length <= LINES:
        return [slice(0, length)]
    lines = LINES // PIECES
    starts = [round(k * (length - lines) / (PIECES - 1)) for k in range(PIECES)]
    return [slice(start, start + lines) for start in starts]


def cut(values: Tensor, piece: slice, camera: CASSI) -> Tensor:
    """A strip of a measurement or a mask."""
    return values[..., piece, :] if camera.axis == "width" else values[..., piece]
