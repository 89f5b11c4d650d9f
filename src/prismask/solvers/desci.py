"""DeSCI: rank minimisation of groups of similar patches (Liu, Yuan, Suo, Brady & Dai, 2019).

Patches that look alike have few different spectra among them: written as a matrix, one row a
pixel of the group and one column a band, a group is of low rank, and what the wrong bands have
left in it is not. Generalised alternating projection moves the cube towards the measurement,
with the residual r = y − A x and what has accumulated of it,

    b ← keep · (b + r),      x ← denoise(x + Aᵀ Φ⁻¹ (b + keep · r)),      Φ = diag(A Aᵀ),

as GAP-TV does, whose result is the start; here the denoiser is weighted nuclear norm minimisation
of every group (`nuclear`) and averaging where patches overlap (`patches`).

The original puts one row a patch, so that similar patches are what is low-rank. On the one crop
where both were tried (of the validation scene flowers) one row a pixel gained three times as much
over GAP-TV, and its Gram matrix is as small as the number of bands.

The level σ of the noise in a pixel's spectrum falls geometrically. Fitting noise of variance σ_y²
in y exactly would mean keeping it: with Gaussian noise in y and in x

    keep = Φ / (Φ + κ),          κ = σ_y² / σ².

Levels count in units of a spectrum's length, √C times the scene's brightness
rms(y) / rms(throughput), and the noise σ_y as a fraction of rms(y); in these units
κ = noise² · mean(throughput²) / (C · level²).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.gap_tv import (
    GapTv,
    brightness_of,
    divisor_of,
    require_noise,
    stated_noise,
)
from prismask.solvers.patches import (
    Matching,
    change_groups,
    match_patches,
    minimise_weighted_nuclear_norm,
    tile_for,
)

GUIDE_PLANES = 7
"""Into how many planes of neighbouring bands a cube is averaged for block matching."""


@dataclass(frozen=True)
class DeSci(IterativeSolver):
    """Options of DeSCI, and the solver itself: `DeSci()(measurement, mask, camera) → cube`.

    The defaults were chosen on the CAVE validation scenes, none of them on a test scene.
    """

    iterations: int = 40
    """The most iterations to do after the start; levels are laid out over this number."""
    start_iterations: int = 60
    """Iterations of GAP-TV that make the start."""
    level: float = 0.05
    """Noise level of the first iteration, as a fraction of a spectrum's length."""
    last_level: float = 0.02
    """Noise level of the last iteration; in between it falls geometrically.

    It is that of the artefacts. Noise in the measurement asks for no other one: κ answers it.
    """
    strength: float = 1.0
    """How much is taken from a singular value, against what noise of this level adds to it."""
    patch: int = 6
    """Side of a patch in pixels."""
    stride: int = 4
    """Distance of reference patches in pixels."""
    group: int = 24
    """Similar patches in a group."""
    radius: int = 10
    """How far similar patches are looked for, in pixels along either axis."""
    match_every: int = 5
    """Iterations for which a matching is used: similar patches hardly change."""
    noise: float | None = None
    """Standard deviation of the measurement's noise as a fraction of its rms value; 0: exact.

    None: estimated from the measurement, but at least 0.01.
    """
    nonnegative: bool = True
    """Whether negative light is set to zero after each iteration."""
    memory_mib: float | None = None
    """What the groups held at once may take; None: 2048 MiB on a GPU, 256 elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("start_iterations", "match_every"):
            value = getattr(self, name)
            require(value >= 1, f"{name} is {value}; at least 1 is needed.")
        ends = (self.level, self.last_level)
        require(min(ends) > 0, f"levels are {ends[0]} to {ends[1]}; both must be > 0.")
        require(self.strength >= 0, f"strength is {self.strength}; it cannot be negative.")
        memory = self.memory_mib
        require(memory is None or memory > 0, f"memory_mib is {memory}; give a positive number.")
        require_noise(self.noise)
        self._matching()

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration."""
        divisor = divisor_of(camera.gram_bound(mask))
        throughput_power = camera.throughput(mask).square().mean((-1, -2))
        length = math.sqrt(camera.bands) * brightness_of(measurement, throughput_power)
        noise = stated_noise(self.noise, measurement, mask, camera, chosen)
        cube = self._start(measurement, mask, camera)
        matching = self._matching().fitted(cube.shape[-2], cube.shape[-1])
        tile = self._tile(matching, cube, chosen)
        pull = torch.zeros_like(measurement)
        residual = measurement - camera.forward(cube, mask)
        corners = None
        for done, level in enumerate(geometric(self.level, self.last_level, self.iterations)):
            kappa = noise.square() * throughput_power / (camera.bands * level**2)
            keep = divisor / (divisor + kappa[:, None, None])
            residual = keep * residual
            pull = keep * pull + residual
            cube = cube + camera.adjoint((pull + residual) / divisor, mask)
            if corners is None or done % self.match_every == 0:
                corners = match_patches(guide_of(cube), matching)
            deviation = (level * length).expand(len(cube))
            cube = self._denoise(cube, corners, matching.patch, deviation, tile)
            if self.nonnegative:
                cube.clamp_min_(0)
            residual = measurement - camera.forward(cube, mask)
            yield Estimate(cube, residual)

    def _denoise(
        self, cube: Tensor, corners: Tensor, patch: int, deviation: Tensor, tile: int
    ) -> Tensor:
        def shrink(groups: Tensor, samples: Tensor) -> Tensor:
            # (T, K, P², C) → one row a pixel, one column a band
            matrices = groups.flatten(1, 2)
            return minimise_weighted_nuclear_norm(matrices, deviation[samples], self.strength)

        return change_groups(cube, corners, patch, shrink, tile)

    def _start(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        solver = GapTv(self.start_iterations, noise=self.noise, nonnegative=self.nonnegative)
        return solver(measurement, mask, camera)

    def _matching(self) -> Matching:
        return Matching(self.patch, self.stride, self.group, self.radius)

    def _tile(self, matching: Matching, cube: Tensor, chosen: Chosen) -> int:
        memory = self.memory_mib
        if memory is None:
            memory = 2048.0 if cube.is_cuda else 256.0
            chosen.note("memory_mib", memory)
        return tile_for(memory, matching, cube.shape[1], cube.element_size())


def guide_of(cube: Tensor) -> Tensor:
    """`cube (B, C, H, W)` averaged over neighbouring bands to `(B, ≤ GUIDE_PLANES, H, W)`."""
    spectra = cube.flatten(2).mT
    planes = F.adaptive_avg_pool1d(spectra, min(GUIDE_PLANES, cube.shape[1]))
    return planes.mT.reshape(len(cube), -1, *cube.shape[-2:])
