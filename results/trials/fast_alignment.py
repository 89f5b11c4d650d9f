#!/usr/bin/env python
"""A search for the pose of a mask in seconds, tried on validation scenes; not yet --align.

    python results/trials/fast_alignment.py [--data DIR] [--scenes 2] [--noise 0.01]

`--align` goes backwards through a network some hundred times. A network that expects wrong masks
offers more: told that nobody knows how wrong the mask is, lumen explains the snapshot with a mask
of its own choice, and what its cube leaves with the mask of a pose p,

    r(p) = y − A_m(p) x̂(p),

is small only where that pose is right and grows steeply beside it. Three steps lower ‖r‖:

1. Shifts and turns on a coarse grid, on a few bright lines of the frame: best neighbour first.
2. Gauss–Newton steps for position, dispersion and blur,

       δ = argmin ‖r + J δ‖² + what is known of such faults before any snapshot.

   Where the cube hardly follows the mask, J is what the mask does to the measurement of that cube:
   one pass of the camera per number. Shifts it does follow: a mask that lies further along the
   dispersion looks like a scene that does and a spectrum that is shifted. There J is taken through
   the network, by differences. r bends towards its minimum, so steps are lengthened first.
3. The same with the curve of the mask's values, if that explains clearly more.

Scenes are cut to 128×256, masks are fabricated ones that nobody trained with. PSNR paper [dB] of
lumen's cube with the nominal mask, with the mask as found, and with the true mask.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.evaluation.metrics import psnr
from prismask.inference.alignment.pose import BLUR, DISPERSION, POSITION, TONES, MaskPose
from prismask.inference.alignment.search import brightest, cut
from prismask.inference.engine import Engine
from prismask.models.inputs import network_scale
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import Blur, Compose, Rotation, Shift
from prismask.scenes.datasets import data_folder, load_scenes

HERE = Path(__file__).resolve().parent
SIZE, CAMERA, SEED = (128, 256), CASSI.from_step(), 31

GRID_STEP, GRID_REACH = 0.7, 3
"""Pixels between neighbours of the grid, which a turn moves the frame's edges by, and how many of
them it reaches to each side."""
LINES = 32
"""Lines along the dispersion that are looked at in each half of the frame, the brightest there."""
MARGIN = 16
"""Lines beside them from which a moved or blurred mask takes values."""
LONGER = 1.5
"""By how much steps are lengthened."""
LONGEST = 0.7
"""Most that one step changes a number by, in pixels."""
MOST_STEPS, MOST_TONE_STEPS = 8, 4
"""Gauss–Newton steps without and with the curve of the mask's values."""
WORTHWHILE, WORTHWHILE_OF_NOISE = 0.04, 0.012
"""Share of ‖r‖² beyond the noise, and of the noise's own, that has to go for a step, or a pose, to
be worth taking. Right masks on validation scenes offer less."""
LEFT_OF_NOISE = 0.8
"""Share of the noise's ‖·‖² that is left in r: the network's cube takes a part of it."""
WORTHWHILE_TONES = 0.15
"""The same for the curve of the mask's values: less may be the scene."""
INDEPENDENT = 100
"""‖r‖² is worth so many independent observations when it is weighed against what is known before:
what a network leaves is the same over many pixels."""

THROUGH_NETWORK = ("down", "right", "spread", BLUR)
"""Numbers that the cube follows, beside the curve of the mask's values."""
DIFFERENCES = {"spread": 0.2, BLUR: 0.15, "middle": 0.05, "contrast": 0.05, "haze": 0.05}
SHIFT_DIFFERENCE = 0.1
"""Steps over which derivatives through the network are taken."""
TURN, STRETCH = math.radians(0.4), 0.0015
USUAL_SHIFT, USUAL_SPREAD, USUAL_BEND, USUAL_BLUR, USUAL_TONE = 1.0, 0.25, 0.05, 0.3, 0.1
"""How far cameras usually are from their calibration, standard deviations: an angle, a share, and
the numbers of a pose."""


def worthwhile(energy: float, noise: float, share: float = WORTHWHILE) -> float:
    """By how much a step has to lower `energy`, of which `noise` comes from noise."""
    noise = min(noise, energy)
    return share * (energy - noise) + WORTHWHILE_OF_NOISE * noise


@dataclass(frozen=True)
class Fit:
    """A pose and ‖r‖² there."""

    pose: MaskPose
    energy: float


class Search:
    """What a network leaves of one snapshot, on a few lines of it, for masks in any pose."""

    def __init__(
        self,
        engine: Engine,
        strips: Sequence[Strip],
        camera: CASSI,
        noise_std: float,
    ) -> None:
        self.engine, self.strips, self.camera = engine, strips, camera
        self.noise_std = torch.tensor([noise_std], device=engine.device)
        pixels = sum(strip.seen.numel() for strip in strips)
        self.noise = LEFT_OF_NOISE * noise_std**2 * pixels
        self.total = sum(strip.power for strip in strips) or 1.0
        self.runs = 0

    def energy(self, pose: MaskPose) -> float:
        """‖r‖² with the mask in `pose`."""
        return sum(_power(left) for left, _ in self._left(pose))

    def best_of_grid(self) -> MaskPose:
        """The best shift and turn of a coarse grid, on the brighter strip."""
        strip = max(self.strips, key=lambda one: one.power)
        levels: dict[tuple[int, int, int], float] = {}

        def level(at: tuple[int, int, int]) -> float:
            if at not in levels:
                levels[at] = _power(self._left_of(strip, self._on_grid(at))[0])
            return levels[at]

        best, better = (0, 0, 0), (0, 0, 0)
        shifts = list(product((0, -1, 1), (0, -1, 1), (0,)))  # staying comes first
        while True:
            for step in (*shifts, (0, 0, -1), (0, 0, 1)):
                near = tuple(a + b for a, b in zip(best, step, strict=True))
                if max(map(abs, near)) <= GRID_REACH and level(near) < level(better):  # type: ignore[arg-type]
                    better = near  # type: ignore[assignment]
            if better == best:
                return self._on_grid(best)
            best = better

    def _on_grid(self, at: tuple[int, int, int]) -> MaskPose:
        down, right, turn = (GRID_STEP * number for number in at)
        height, width = self.strips[0].frame
        return MaskPose(down, right, down_by_column=turn, right_by_row=-turn * height / width)

    def descend(self, start: MaskPose, free: Sequence[str], most: int) -> Fit:
        """The best pose that steps reach from `start` by changing the fields `free`."""
        best, pose, length = Fit(start, math.inf), start, LONGER
        ahead = torch.zeros(len(free), dtype=torch.float64)
        for _ in range(most):
            energy, step, expected = self._step(pose, free)
            if energy < best.energy - worthwhile(min(best.energy, self.total), self.noise):
                best, ahead = Fit(pose, energy), step
                if expected > energy - worthwhile(energy, self.noise):
                    break
            else:
                if energy < best.energy:
                    best = Fit(pose, energy)
                    break
                length /= 3  # too far: what is left bends away
                if length < 0.4:
                    break
            pose = moved(best.pose, free, length * ahead)
        return best

    def _step(self, pose: MaskPose, free: Sequence[str]) -> tuple[float, Tensor, float]:
        """‖r‖² in `pose`, the step to take from there, and ‖r‖² to be expected of it."""
        here = self._left(pose)
        left = _joined(left for left, _ in here)
        energy = _power(left)
        columns = []
        for name in free:
            if name in (*THROUGH_NETWORK, *TONES):
                by = DIFFERENCES.get(name, SHIFT_DIFFERENCE)
                there = replace(pose, **{name: getattr(pose, name) + by})
                columns.append((_joined(left for left, _ in self._left(there)) - left) / by)
            else:
                columns.append(-self._by_mask(pose, name, [cube for _, cube in here]))
        by_number = torch.stack(columns).double()
        usual = torch.tensor([self._usual(name) for name in free], dtype=torch.float64)
        weight = energy / INDEPENDENT / usual.square()
        now = torch.tensor(pose.some(free), dtype=torch.float64)
        step = torch.linalg.solve(
            by_number @ by_number.T + weight.diag(), -by_number @ left.double() - weight * now
        )
        expected = float((left + step @ by_number).square().sum())
        return energy, step, expected

    def _usual(self, name: str) -> float:
        """How far a number of a pose usually is from 0."""
        height, width = self.strips[0].frame
        return {
            "down": USUAL_SHIFT, "right": USUAL_SHIFT,
            "down_by_column": TURN * width / 2, "right_by_row": TURN * height / 2,
            "down_by_row": STRETCH * height / 2, "right_by_column": STRETCH * width / 2,
            "spread": USUAL_SPREAD, "bend": USUAL_BEND, BLUR: USUAL_BLUR,
        }.get(name, USUAL_TONE)  # fmt: skip

    def _by_mask(self, pose: MaskPose, name: str, cubes: Sequence[Tensor]) -> Tensor:
        """∂(A x̂)/∂(a number) of cubes that stay as they are."""
        by = DIFFERENCES.get(name, SHIFT_DIFFERENCE) / 5
        there = replace(pose, **{name: getattr(pose, name) + by})
        return _joined(
            self.camera.forward(cube, (strip.code(there) - strip.code(pose)).to(cube)) / by
            for strip, cube in zip(self.strips, cubes, strict=True)
        )

    def _left(self, pose: MaskPose) -> list[tuple[Tensor, Tensor]]:
        return [self._left_of(strip, pose) for strip in self.strips]

    def _left_of(self, strip: Strip, pose: MaskPose) -> tuple[Tensor, Tensor]:
        """r and x̂ of a strip, with the network told that nobody knows how wrong the mask is."""
        seen, code = (t.to(self.engine.device) for t in (strip.seen, strip.code(pose)))
        cube = self.engine.network.once(seen, code, self.camera, self.noise_std)
        self.runs += 1
        return seen - self.camera.forward(cube, code), cube


class Strip:
    """Some lines of a snapshot, and what of the mask they can have met."""

    def __init__(self, signal: Tensor, mask: Tensor, camera: CASSI, lines: slice) -> None:
        across = -2 if camera.axis == "width" else -1
        self.camera, self.across = camera, across
        self.frame = (mask.shape[-2], mask.shape[-1])
        length = self.frame[across]
        near = slice(max(0, lines.start - MARGIN), min(length, lines.stop + MARGIN))
        self.inside = slice(lines.start - near.start, lines.stop - near.start)
        self.seen = cut(signal, lines, camera)[None]
        self.around = cut(mask, near, camera)
        self.power = _power(self.seen)
        # Across the dispersion, from −1 to 1 over the frame: v = scale · v′ + offset, v′ over these
        # lines.
        count = near.stop - near.start
        self.scale = count / length
        self.offset = (near.start + (count - 1) / 2 - (length - 1) / 2) / (length / 2)

    def code(self, pose: MaskPose) -> Tensor:
        """The mask that these lines met, `(1, 1|C, h, W)`, if the whole one lies in `pose`."""
        moved = cut(self._local(pose).moved(self.around), self.inside, self.camera)
        return pose.by_band(moved, self.camera).clamp(0, 1)

    def _local(self, pose: MaskPose) -> MaskPose:
        """The pose in coordinates of these lines alone."""
        by = "row" if self.across == -2 else "column"
        local: dict[str, float] = {}
        for shift in ("down", "right"):
            growth = getattr(pose, f"{shift}_by_{by}")
            local[shift] = getattr(pose, shift) + self.offset * growth
            local[f"{shift}_by_{by}"] = self.scale * growth
        return replace(pose, **local)


def moved(pose: MaskPose, names: Sequence[str], step: Tensor) -> MaskPose:
    """The pose with its fields `names` changed by `step`, each by at most `LONGEST`."""
    changed = zip(names, step.clamp(-LONGEST, LONGEST).tolist(), strict=True)
    return replace(pose, **{name: getattr(pose, name) + by for name, by in changed})


def _power(values: Tensor) -> float:
    return float(values.double().square().sum())


def _joined(pieces: Iterable[Tensor]) -> Tensor:
    return torch.cat([piece.flatten().cpu() for piece in pieces])


def bright_lines(signal: Tensor, camera: CASSI) -> list[slice]:
    """The brightest `LINES` lines of each half of `signal (H, L)`; all where there are few."""
    count = signal.shape[0 if camera.axis == "width" else 1]
    if count <= 2 * LINES:
        return [slice(0, count)]
    halves = (slice(0, count // 2), slice(count // 2, count))
    return [brightest(signal, camera, LINES, half) for half in halves]


def search_pose(
    engine: Engine, signal: Tensor, mask: Tensor, noise_std: float
) -> tuple[MaskPose, int]:
    """The pose of `mask (1, 1, H, W)` behind `signal (H, L)`, and how many runs that took."""
    strips = [Strip(signal, mask, CAMERA, lines) for lines in bright_lines(signal, CAMERA)]
    search = Search(engine, strips, CAMERA, noise_std)
    before = search.energy(MaskPose())
    found = search.descend(search.best_of_grid(), (*POSITION, *DISPERSION, BLUR), MOST_STEPS)
    bent = search.descend(found.pose, (*POSITION, *DISPERSION, BLUR, *TONES), MOST_TONE_STEPS)
    if bent.energy < found.energy - worthwhile(found.energy, search.noise, WORTHWHILE_TONES):
        found = bent
    is_worth_it = found.energy < before - worthwhile(before, search.noise)
    return (found.pose if is_worth_it else MaskPose()), search.runs


def faults(mask: Tensor) -> dict[str, tuple[Tensor, CASSI]]:
    """What the light meets, by what is wrong."""

    def wider(factor: float) -> CASSI:
        return replace(CAMERA, offsets=tuple(factor * offset for offset in CAMERA.offsets))

    published = Compose((Shift(rows=1.0, columns=1.5), Rotation(0.3)))
    return {
        "nothing": (mask, CAMERA),
        "0.25 px": (Shift(rows=0.15, columns=-0.2).apply(mask), CAMERA),
        "0.5 px": (Shift(rows=0.3, columns=0.4).apply(mask), CAMERA),
        "1.5 px": (Shift(rows=-1.0, columns=-1.1).apply(mask), CAMERA),
        "0.3°": (Rotation(0.3).apply(mask), CAMERA),
        "dispersion −2 %": (mask, wider(0.98)),
        "blur 0.7 px": (Blur(0.7).apply(mask), CAMERA),
        "1.5 / 1.0 px, 0.3°": (published.apply(mask), CAMERA),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--scenes", type=int, default=2)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=HERE / "fast_alignment.json")
    options = parser.parse_args()
    engine = Engine(load_model("lumen.m2m"), torch.device("cpu"))
    scenes = load_scenes(data_folder(options.data), "validation")
    rows: list[dict[str, Any]] = []
    for name in list(scenes)[-options.scenes :]:
        rows += [tried(engine, name, scenes[name].values, options.noise, fault) for fault in CASES]
    command = f"python results/trials/fast_alignment.py --scenes {options.scenes}"
    record = {"command": f"{command} --noise {options.noise:g}", "rows": rows}
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def tried(engine: Engine, name: str, scene: Any, noise: float, fault: str) -> dict[str, Any]:
    values = torch.tensor(np.asarray(scene, np.float32))
    top, left = ((have - want) // 2 for have, want in zip(values.shape[1:], SIZE, strict=True))
    truth = (values / values.max())[None, :, top : top + SIZE[0], left : left + SIZE[1]]
    generator = torch.Generator().manual_seed(SEED)
    mask = fabricate_mask(SIZE, generator, random_aperture(generator))[None, None]
    coded, camera = faults(mask)[fault]
    signal = camera.forward(truth, coded)
    more = CAMERA.measurement_size(SIZE)[1] - signal.shape[-1]
    signal = F.pad(signal, (0, more))  # cut where the spectrum is spread further
    std = noise / network_scale(CAMERA.bands)
    signal = signal + std * torch.randn(signal.shape, generator=generator)

    def score(pose: MaskPose, given: Tensor) -> float:
        code = pose.read(given, CAMERA)
        cube = engine.run(signal[0], code, CAMERA, noise_std=std).values[None]
        return round(float(psnr(pose.straightened(cube, CAMERA), truth)), 2)

    started = time.process_time()
    pose, runs = search_pose(engine, signal[0], mask, std)
    seconds = round(time.process_time() - started, 1)
    row = {
        "scene": name, "fault": fault, "nominal": score(MaskPose(), mask),
        "found": score(pose, mask), "true": score(MaskPose(), coded), "runs": runs,
        "cpu_seconds": seconds, "pose": [round(number, 3) for number in pose.numbers],
    }  # fmt: skip
    print(json.dumps(row, ensure_ascii=False), flush=True)
    return row


CASES = tuple(faults(torch.zeros(1, 1, 8, 8)))


if __name__ == "__main__":
    main()
