"""How noisy a measurement is, judged by itself.

A coded snapshot is rough by its nature: the mask makes neighbouring pixels differ, so a high-pass
filter sees mask, not noise. But the mask is known. In a small window a scene that varies slowly is

    x_λ(h, v) ≈ Σ_k d_k(λ) · (a_k + b_k h + c_k v)             d_k: the first cosines over λ,

and its measurement a sum of few known images: the mask's measurement of each cosine, alone and
times the position in the window. What is left of y after least squares on those has the noise's
standard deviation, and more where the scene has texture or edges. So the windows are sorted and
one near the smoothest is believed (`QUANTILE`), corrected for the luck by which it is the least.
A mask that is not the snapshot's explains too little, and what it leaves is no noise; so the same
of the windows as they are, without any mask, is a bound from above: a close one where a part of
the frame is dark.

Planted noise of 0.5, 1, 2 and 5 % of the rms value on the six CAVE validation scenes, through two
crops of calibrated masks and two fabricated ones: it is found 10 to 85 %, 8 to 52 %, 4 to 32 % and
0 to 15 % too large, the worst on scenes without a smooth place (beads, cloth). At 20 % it is found
within 4 %. Without noise 0.05 to 0.7 % are found: texture. Noise that grows with the light is found
as it is where the scene is dark or smooth.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prismask.optics.camera import CASSI

WINDOW = 8
"""Side of a window in pixels."""
COSINES = 8
"""How many cosines over the spectrum are fitted to a window."""
SLOPES = 4
"""How many of them may also vary linearly within it, along either axis."""
MOST_STRIPS = 64
"""Strips of windows that are looked at: 512 lines, enough for any quantile."""
RIDGE = 1e-12
"""δ of the least squares, as a share of the images' mean square."""
QUANTILE = 0.02
"""Which of the sorted windows is believed."""


@torch.no_grad()
def estimate_noise(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """Standard deviation of the noise of `measurement (B, H, L)`, in its units: `(B,)`.

    mask: as `CASSI` takes it. One measurement may meet several masks, then `B` is their number.
    """
    mask = camera.check_measurement_and_mask(measurement, mask)
    double = torch.float64 in (measurement.dtype, mask.dtype)
    dtype = torch.float64 if double else torch.float32
    measurement, mask = measurement.to(dtype), mask.to(dtype)
    batch = max(len(measurement), len(mask))
    found = [
        _one(measurement[sample % len(measurement)], mask[sample % len(mask)][None], camera)
        for sample in range(batch)
    ]
    return torch.stack(found)


def relative_noise(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """`estimate_noise` as a fraction of the measurement's rms value, `(B,)`; 0 for a dark one."""
    level = measurement.square().mean((-1, -2)).sqrt()
    noise = estimate_noise(measurement, mask, camera)
    return torch.where(level > 0, noise / torch.where(level > 0, level, 1), 0)


def _one(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """The noise of one `measurement (H, L)` through one `mask (1, 1|C, H, W)`, a number."""
    measurement, mask = _some_strips(measurement, mask, camera)
    height, width = (min(WINDOW, size) for size in measurement.shape)
    pixels = height * width
    values = _windows(measurement, height, width)
    # A sensor never gives one number 64 times: such a window was clipped or made up.
    values_vary = values.amax(-1) > values.amin(-1)
    if not bool(values_vary.any()) or pixels < 4:
        return measurement.new_zeros(())
    images = _images(mask, camera, pixels // 2, (height, width))
    columns = torch.stack([_windows(image, height, width)[values_vary] for image in images], -1)
    values = values[values_vary]
    left = values - _explained(columns, values)
    freedom = pixels - columns.shape[-1]
    scales = (left.square().sum(-1) / freedom).sqrt()
    found = torch.quantile(scales, QUANTILE) / _luck(freedom)
    # Whatever the mask: noise is in the quietest windows too, and dark ones have nothing else.
    quiet = values.std(-1)
    return torch.minimum(found, torch.quantile(quiet, QUANTILE) / _luck(pixels - 1))


def _some_strips(measurement: Tensor, mask: Tensor, camera: CASSI) -> tuple[Tensor, Tensor]:
    """At most `MOST_STRIPS` strips of one window's width along the dispersion, evenly spread.

    Nothing moves from one strip to another, so each is a small camera of its own, and a large
    frame costs no more than a small one.
    """
    across = -2 if camera.axis == "width" else -1
    strips = measurement.shape[across] // WINDOW
    if strips <= MOST_STRIPS:
        return measurement, mask
    number = torch.arange(MOST_STRIPS, device=measurement.device) * strips // MOST_STRIPS
    lines = number[:, None] * WINDOW + torch.arange(WINDOW, device=measurement.device)
    chosen = lines.flatten()
    return measurement.index_select(across, chosen), mask.index_select(across, chosen)


def _explained(columns: Tensor, values: Tensor) -> Tensor:
    """What least squares on `columns (N, P, K)` makes of `values (N, P)`, window by window.

    By the normal equations (AᵀA + δI) c = Aᵀy in float64: GPUs orthogonalise thousands of small
    matrices one after the other, but factorise them all at once.
    """
    matrix, right = columns.double(), values.double()[..., None]
    gram = matrix.mT @ matrix
    size = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    # Images may be the same where the mask is flat: δ keeps the factor real, far below the noise.
    ridge = RIDGE * size + torch.finfo(torch.float64).tiny
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(gram.shape[-1]).to(gram))
    fitted = matrix @ torch.cholesky_solve(matrix.mT @ right, factor)
    return fitted.squeeze(-1).to(values.dtype)


def _images(mask: Tensor, camera: CASSI, most: int, window: tuple[int, int]) -> list[Tensor]:
    """At most `most` images `(H, L)` that a smooth scene's measurement is made of."""
    bands = camera.bands
    code = camera.code(mask)
    scene = code.new_ones(1, 1, *code.shape[-2:])
    band = torch.arange(bands, dtype=mask.dtype, device=mask.device)
    flat = []
    for k in range(min(COSINES, bands, most)):
        cosine = torch.cos(math.pi * k * (2 * band + 1) / (2 * bands))
        flat.append(camera.forward(cosine[None, :, None, None] * scene, mask)[0])
    rows, columns = (
        (torch.arange(size, device=mask.device) % side - (side - 1) / 2) / side
        for size, side in zip(flat[0].shape, window, strict=True)
    )
    sloped = [
        image * ramp.to(mask.dtype) for image in flat[:SLOPES] for ramp in (rows[:, None], columns)
    ]
    return [*flat, *sloped][:most]


def _windows(image: Tensor, height: int, width: int) -> Tensor:
    """`(H, L)` → `(windows, pixels)`, side by side from the first corner."""
    return image.unfold(-2, height, height).unfold(-2, width, width).flatten(-2).flatten(0, 1)


def _luck(freedom: int) -> float:
    """The `QUANTILE` of √(χ² / freedom), after Wilson and Hilferty: below 1."""
    normal = math.sqrt(2) * float(torch.erfinv(torch.tensor(2 * QUANTILE - 1)))
    ratio = max(1 - 2 / (9 * freedom) + normal * math.sqrt(2 / (9 * freedom)), 0.1)
    return math.sqrt(ratio**3)
