"""Where the mask really lies: six numbers fitted to the snapshot itself, without a truth.

A mask is calibrated once; then temperature, focus and a touched table move its image by fractions
of a pixel, which is enough to spoil a cube. Networks draw plausible cubes even with a wrong mask,
but such a cube does not explain the snapshot: r = y − A x̂ is small only where the mask is right.
A first look at nine shifts finds the neighbourhood; from there Gauss–Newton steps lower ‖r‖²,

    δ = −(Jᵀ J)⁻¹ Jᵀ r,          J = ∂r / ∂(the six numbers).

Two kinds of steps take turns. With x̂ held, J is the camera with the mask's derivatives in place of
the mask: one run of the network, but a cube has learned some of its mask by heart, so the step
falls short and is tried two, four and eight times as long. With the network inside, J is taken by
differences: seven runs, true lengths, but only close to the place are its directions right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.inference.displacement import NUMBERS, Place, derivatives
from prismask.inference.engine import Engine
from prismask.optics.camera import CASSI

FIRST = 0.7
"""Pixels between the shifts of the first look."""
DIFFERENCE = 0.1
"""Pixels over which differences are taken."""
TURNS = 4
"""Most pairs of steps."""
LONGEST = 1.0
"""Pixels by which a step may change any of the six numbers at first."""
SHARES = (1.0, 2.0, 4.0, 8.0)
"""Lengths at which a step is tried as long as they help."""
ENOUGH = 0.005
"""Share by which a pair has to lower the residual for another one to be worth its time."""
WORTH = 0.03
"""Share by which all has to lower it for the mask to be moved at all."""
LINES = 480
"""Rows across the dispersion that are looked at, spread over a larger frame in `PIECES`."""
PIECES = 6
RUNS = 9 + TURNS * (1 + NUMBERS + 2 * len(SHARES))
"""Most runs of the network."""

Tell = Callable[[int, int], None]
"""Told after each run of the network: how many were made, of how many at most."""


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


@dataclass(frozen=True, eq=False)
class Look:
    """A place, and what the network's cube leaves of the snapshot there."""

    place: Place
    left: Tensor
    """r / ‖y‖ over all that is looked at."""

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
    tell: Tell | None = None,
) -> Alignment:
    """Find where `mask (1, 1|C, H, W)` lies behind `signal (H, L)`, both in the network's units."""
    search = _Search(engine, signal, mask, camera, noise_std, tell)
    start = search.look(Place())
    best = search.first_look(start)
    for _ in range(TURNS):
        before = best.size
        best = search.walk(best, search.held_step(best.place))
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
        tell: Tell | None,
    ) -> None:
        self.engine, self.camera, self.mask, self.tell = engine, camera, mask, tell
        self.pieces = pieces_of((mask.shape[-2], mask.shape[-1]), camera)
        self.seen = [cut(signal, piece, camera)[None].to(engine.device) for piece in self.pieces]
        self.scale = torch.cat([seen.flatten() for seen in self.seen]).norm().clamp_min(1e-12).cpu()
        self.noise = None if noise_std is None else torch.tensor([noise_std], device=engine.device)
        self.runs = 0

    def look(self, place: Place) -> Look:
        """The residual with the mask at `place`."""
        moved = place.moved(self.mask)
        left = [self._rest(number, self._cube(number, moved), moved)
                for number in range(len(self.pieces))]  # fmt: skip
        self._count()
        return Look(place, torch.cat(left))

    def first_look(self, start: Look) -> Look:
        """The best of nine shifts."""
        shifts = [(down, right) for down in (-FIRST, 0.0, FIRST) for right in (-FIRST, 0.0, FIRST)]
        looks = [self.look(Place((*shift, 0.0, 0.0, 0.0, 0.0))) for shift in shifts if any(shift)]
        return min([start, *looks], key=lambda look: look.size)

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

    def held_step(self, place: Place) -> Tensor:
        """The step for the cube as it is."""
        moved = place.moved(self.mask)
        columns, left = [], []
        for number in range(len(self.pieces)):
            cube = self._cube(number, moved)
            left.append(self._rest(number, cube, moved))
            changed = [-self.camera.forward(cube, self._code(number, each)).flatten().cpu()
                       for each in derivatives(moved)]  # fmt: skip
            columns.append(torch.stack(changed, dim=1).double() / self.scale)
        self._count()
        return gauss_newton(torch.cat(columns), torch.cat(left))

    def full_step(self, here: Look) -> Tensor:
        """The step for the cube that the network would then make."""
        places = [here.place.stepped(DIFFERENCE * unit) for unit in torch.eye(NUMBERS)]
        columns = [(self.look(place).left - here.left) / DIFFERENCE for place in places]
        return gauss_newton(torch.stack(columns, dim=1), here.left)

    def _cube(self, number: int, moved: Tensor) -> Tensor:
        code = self._code(number, moved)
        return self.engine.network(self.seen[number], code, self.camera, self.noise)

    def _rest(self, number: int, cube: Tensor, moved: Tensor) -> Tensor:
        left = self.seen[number] - self.camera.forward(cube, self._code(number, moved))
        rest: Tensor = left.flatten().cpu().double() / self.scale
        return rest

    def _code(self, number: int, mask: Tensor) -> Tensor:
        return cut(mask, self.pieces[number], self.camera).to(self.engine.device)

    def _count(self) -> None:
        self.runs += 1
        if self.tell is not None:
            self.tell(self.runs, RUNS)


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
