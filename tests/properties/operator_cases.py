"""The cameras that must obey the laws, with random cubes and masks, and the loop they equal.

A camera added to `CAMERAS` is subject to every law of test_operator_laws.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from prismask.optics.camera import CASSI, as_mask_batch

# --- the cameras -----------------------------------------------------------------------------


def pixels(low: float, high: float) -> st.SearchStrategy[float]:
    """Real numbers with three decimals, as calibrations give them."""
    return st.integers(round(low * 1000), round(high * 1000)).map(lambda n: n / 1000)


def equal_steps(steps: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.tuples(st.integers(1, 6), steps).map(lambda p: [p[1] * band for band in range(p[0])])


def polynomial(draw: tuple[int, float, float]) -> list[float]:
    bands, slope, bend = draw
    wavelengths = np.linspace(450, 650, bands)
    coefficients = [0.0, slope / 40, bend / 40**2]
    camera = CASSI.from_polynomial(wavelengths.tolist(), coefficients)
    expected = sum(c * wavelengths**k for k, c in enumerate(coefficients))
    np.testing.assert_allclose(camera.offsets, expected - expected.min(), atol=1e-8)
    return list(camera.offsets)


OFFSETS: dict[str, st.SearchStrategy[list[float]]] = {
    "whole": equal_steps(st.integers(1, 4).map(float)),
    "negative": equal_steps(st.integers(-4, -1).map(float)),
    "still": equal_steps(st.just(0.0)),
    "fractional": equal_steps(pixels(0.001, 2.999)),
    "negative fractional": equal_steps(pixels(-2.999, -0.001)),
    "irregular whole": st.lists(st.integers(-6, 6).map(float), min_size=1, max_size=6),
    "irregular": st.lists(pixels(-5, 5), min_size=1, max_size=6),
    "polynomial": st.tuples(st.integers(2, 6), pixels(-3, 3), pixels(-0.1, 0.1)).map(polynomial),
}

CAMERAS: dict[str, st.SearchStrategy[CASSI]] = {
    f"{design} {axis} {name}": offsets.map(
        lambda listed, axis=axis, design=design: CASSI(tuple(listed), axis, design)
    )
    for name, offsets in OFFSETS.items()
    for axis, design in (("width", "single"), ("height", "single"), ("width", "dual"))
}
CAMERAS["dual height irregular"] = OFFSETS["irregular"].map(
    lambda listed: CASSI(tuple(listed), "height", "dual")
)

MASKS = ("one plane", "a plane a band", "one each", "a plane a band each")


@dataclass(frozen=True)
class Case:
    """A camera with everything that its laws need."""

    camera: CASSI
    cube: Tensor
    mask: Tensor
    measurement: Tensor


@st.composite
def cases(draw: st.DrawFn, cameras: st.SearchStrategy[CASSI]) -> Case:
    camera = draw(cameras)
    batch, height, width = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 7))
    return make_case(camera, batch, (height, width), draw(st.sampled_from(MASKS)), draw(seeds()))


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**31)


def make_case(camera: CASSI, batch: int, scene: tuple[int, int], masks: str, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    planes: tuple[int, ...] = () if masks == "one plane" else (camera.bands,)
    if "each" in masks:
        planes = (batch, camera.bands if "plane" in masks else 1)
    mask = torch.rand(
        *planes, *camera.mask_size(scene), generator=generator, dtype=torch.float64
    ).clamp_min(0.05)
    return Case(
        camera,
        normal(batch, camera.bands, *scene),
        mask,
        normal(batch, *camera.measurement_size(scene)),
    )


# --- references ------------------------------------------------------------------------------


def loop_forward(case: Case) -> np.ndarray:
    """The camera pixel by pixel, straight from the equations."""
    camera, cube = case.camera, case.cube.numpy()
    batch, bands = cube.shape[:2]
    mask = as_mask_batch(case.mask).numpy()
    mask = np.broadcast_to(mask, (batch, bands, *mask.shape[2:]))
    if camera.axis == "height":
        cube, mask = cube.swapaxes(2, 3), mask.swapaxes(2, 3)
    height, width = cube.shape[2:]
    spread = 0 if camera.design == "dual" else math.ceil(max(camera.offsets))
    image = np.zeros((batch, height, width + spread + 1))  # one spare column, always left dark
    for b, band, h, w in np.ndindex(batch, bands, height, width):
        whole = math.floor(camera.offsets[band])
        rest = camera.offsets[band] - whole
        value = cube[b, band, h, w]
        if camera.design == "single":
            coded = mask[b, band, h, w] * value
            image[b, h, w + whole] += (1 - rest) * coded
            image[b, h, w + whole + 1] += rest * coded
        else:
            code = (1 - rest) * mask[b, band, h, w + whole]
            if rest:
                code += rest * mask[b, band, h, w + whole + 1]
            image[b, h, w] += code * value
    assert not image[..., -1].any()
    image = image[..., :-1]
    return image.swapaxes(1, 2) if camera.axis == "height" else image


def first_mask(case: Case) -> Tensor:
    """The mask of the first sample alone, `(1, 1|C, H, W)`."""
    return as_mask_batch(case.mask)[:1]


def matrix(case: Case) -> Tensor:
    """A as an explicit matrix (pixels × voxels), for the first sample's mask."""
    shape = case.cube.shape[1:]
    units = torch.eye(shape.numel(), dtype=torch.float64).reshape(-1, *shape)
    return case.camera.forward(units, first_mask(case)).flatten(1).T
