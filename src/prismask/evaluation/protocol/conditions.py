"""What may be wrong between a camera and its description.

The light goes through the *true* mask and prism; the model is given the *nominal* ones. Each fault
has a size, a neutral size at which nothing is wrong, and a list of sizes worth testing.
Directions and noise come from a seed, the group and the trial: they are the same for all models,
and for all sizes of a fault, so a curve over sizes is not roughened by new dice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.evaluation.run.cells import Cell
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.faults import Blur, Compose, Fault, Gain, Noise, Rotation, Shift
from prismask.optics.randomness import normal, seed_of, seeded


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault."""

    text: str
    """What it is, with its unit."""
    sizes: tuple[float, ...]
    """Sizes worth testing, the neutral one left out."""
    neutral: float = 0.0
    """The size at which nothing is wrong."""


FAULT_KINDS: dict[str, FaultKind] = {
    "shift": FaultKind(
        "mask moved in a random direction [px]", (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    ),
    "rotation": FaultKind("mask turned about its centre [°]", (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)),
    "blur": FaultKind("mask blurred, Gaussian std [px]", (0.25, 0.5, 0.75, 1.0, 1.5)),
    "gain": FaultKind("mask times a factor", (0.8, 0.9, 0.95, 1.05, 1.1, 1.2), neutral=1.0),
    "mask_noise": FaultKind(
        "noise on the mask, std as a fraction of full transmission", (0.01, 0.02, 0.05, 0.1, 0.2)
    ),
    "dispersion": FaultKind(
        "dispersion wrong by so many percent, first band in register [%]",
        (-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0),
    ),
    "measurement_noise": FaultKind(
        "noise on the measurement, std relative to the cube's range", (0.005, 0.01, 0.02, 0.05, 0.1)
    ),
}
"""Faults of which a curve is drawn. Noise on the measurement is on 2/C times the plain sum over
the bands, as in training, which puts it on the scale of the cube's values."""

MISMATCH = "mismatch"
"""The case published elsewhere: columns 1.5 px, rows 1.0 px, turned by 0.3°."""
MISMATCH_GIVEN = ("ideal", "nominal", "true")
"""`ideal`: nothing is wrong. `nominal`: the mask is off, unknown to all. `true`: off and known."""
MISMATCH_FAULT = Compose((Shift(rows=1.0, columns=1.5), Rotation(0.3)))

RECALIBRATION = "recalibration"
"""Two real calibrations of one aperture: measured through one, reconstructed with …"""
RECALIBRATION_GIVEN = ("same calibration", "other calibration")


@dataclass(frozen=True)
class Situation:
    """What the light meets, and what the model is given."""

    coded: Tensor
    """The true mask `(1, 1|C, H, W)`."""
    camera: CASSI
    """The true camera."""
    given: Tensor
    """The mask that the model is given."""
    noise: float = 0.0
    """Standard deviation of the measurement's noise, relative to the cube's range."""


def arrange(
    cell: Cell, nominal: Tensor, camera: CASSI, seed: int, other: Tensor | None = None
) -> Situation:
    """The situation of a cell around its nominal mask; `other` is a second calibration of it."""
    if not cell.fault:
        return Situation(nominal, camera, nominal)
    if cell.fault == MISMATCH:
        true = MISMATCH_FAULT.apply(nominal)
        choose(cell.given, MISMATCH_GIVEN, "mask given")
        coded = nominal if cell.given == "ideal" else true
        return Situation(coded, camera, true if cell.given == "true" else nominal)
    if cell.fault == RECALIBRATION:
        if other is None:
            raise ConfigError(f"{cell.group} has no second calibration.")
        same = choose(cell.given, RECALIBRATION_GIVEN, "mask given") == RECALIBRATION_GIVEN[0]
        return Situation(nominal, camera, nominal if same else other)
    choose(cell.fault, FAULT_KINDS, "fault")
    if cell.fault == "measurement_noise":
        return Situation(nominal, camera, nominal, cell.size)
    if cell.fault == "dispersion":
        wrong = _wrong_camera(camera, cell.size)
        return Situation(nominal, wrong, nominal)
    generator = seeded(seed_of(seed, cell.fault, cell.group, cell.trial))
    fault = _mask_fault(cell, generator)
    return Situation(fault.apply(nominal, generator), camera, nominal)


def _mask_fault(cell: Cell, generator: torch.Generator) -> Fault:
    turn = float(torch.rand((), generator=generator, dtype=torch.float64))
    if cell.fault == "shift":
        angle = 2 * math.pi * turn
        return Shift(rows=cell.size * math.sin(angle), columns=cell.size * math.cos(angle))
    if cell.fault == "rotation":
        return Rotation(cell.size if turn < 0.5 else -cell.size)
    if cell.fault == "blur":
        return Blur(cell.size)
    if cell.fault == "gain":
        return Gain(cell.size)
    return Noise(cell.size)


def _wrong_camera(camera: CASSI, percent: float) -> CASSI:
    factor = 1 + percent / 100
    return replace(camera, offsets=tuple(factor * offset for offset in camera.offsets))


def photograph(
    cubes: Tensor, situation: Situation, nominal: CASSI, noise_seeds: Sequence[int]
) -> Tensor:
    """Measure `cubes (B, C, H, W)` on the sensor that the nominal camera describes, `(B, H, L)`.

    A prism that spreads wider than described loses light at the sensor's edge; one that spreads
    less leaves the edge dark. Every scene has a noise seed of its own, so that its noise does not
    depend on who else is in the batch.
    """
    scene = (cubes.shape[-2], cubes.shape[-1])
    # With a dual disperser it is the mask that the spread stretches over.
    coded = _fitted(situation.coded, situation.camera.mask_size(scene), "replicate")
    signal = situation.camera.forward(cubes, coded)
    signal = _fitted(signal[:, None], nominal.measurement_size(scene), "constant")[:, 0]
    if not situation.noise:
        return signal
    std = situation.noise / network_scale(nominal.bands)
    drawn = [normal(signal.shape[1:], signal, seeded(number)) for number in noise_seeds]
    return signal + std * torch.stack(drawn)


def _fitted(image: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Cut or continued at the far ends to `size`."""
    more_rows, more_columns = size[0] - image.shape[-2], size[1] - image.shape[-1]
    if more_rows == 0 and more_columns == 0:
        return image
    image = image[..., : size[0], : size[1]]
    return F.pad(image, (0, max(more_columns, 0), 0, max(more_rows, 0)), mode=mode)
