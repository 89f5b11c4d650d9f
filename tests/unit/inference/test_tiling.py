"""Tiled and whole are the same, and where they cannot be there is no seam."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.inference.engine import Engine
from prismask.inference.tiling import Tiling, spans, tiles_by_strip
from prismask.models.inputs import network_input
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI

CPU = torch.device("cpu")
RADIUS = 7
"""How far a network of two blocks looks: head, four convolutions, one after the body, tail."""


@given(
    length=st.integers(1, 400),
    tile=st.integers(8, 120),
    halo=st.integers(0, 40),
    share=st.floats(0, 1),
)
def test_every_pixel_gets_weights_that_sum_to_one(
    length: int, tile: int, halo: int, share: float
) -> None:
    tiling = Tiling(tile, halo, int(2 * halo * share))
    total = torch.zeros(length)
    for span in spans(length, tiling):
        assert 0 <= span.first < span.last <= length
        assert span.last - span.first <= tile + 2 * halo
        total[span.first : span.last] += span.weights
        first, last = span.kept
        assert span.first <= first < last <= span.last
    assert torch.allclose(total, torch.ones(length), atol=1e-5)


def test_impossible_tilings_are_refused() -> None:
    with pytest.raises(ConfigError, match="too small"):
        Tiling(tile=4)
    with pytest.raises(ConfigError, match="at most twice the halo"):
        Tiling(tile=64, halo=4, blend=9)


def _model(name: str = "srn+", bands: int = 5) -> Reconstructor:
    return create_model(name, bands=bands, mask_posterior="gst", seed=1, width=8, blocks=2).eval()


def _shot(camera: CASSI, size: tuple[int, int] = (61, 74)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(1, 1, *camera.mask_size(size), generator=generator)
    cube = torch.rand(1, camera.bands, *size, generator=generator)
    return camera.forward(cube, mask)[0], mask


CAMERAS = {
    "width": CASSI.from_step(5),
    "backwards": CASSI.from_step(5, -2),
    "height": CASSI.from_step(5, axis="height"),
    "dual": CASSI.from_step(5, design="dual"),
    "fractional": CASSI((0.0, 1.3, 2.9, 4.1, 6.6)),
}


@pytest.mark.parametrize("camera", CAMERAS.values(), ids=CAMERAS)
@pytest.mark.parametrize("name", ["srn", "srn+"])
def test_tiled_is_whole_when_the_halo_is_long_enough(name: str, camera: CASSI) -> None:
    model = _model(name)
    measurement, mask = _shot(camera)
    with torch.no_grad():
        whole = model(measurement[None], mask, camera)[0]
    tiling = Tiling(tile=20, halo=RADIUS + 3, blend=6)
    assert tiling.exact_radius == RADIUS
    tiled = Engine(model, CPU, "float32", tiling).run(measurement, mask, camera).values
    assert float((tiled - whole).abs().max()) < 2e-5 * float(whole.abs().max())
    # One pixel less of context and they differ: the bound is the network's, not luck.
    less = Tiling(tile=20, halo=RADIUS + 2, blend=6)
    other = Engine(model, CPU, "float32", less).run(measurement, mask, camera).values
    assert float((other - whole).abs().max()) > 1e-4 * float(whole.abs().max())


def test_a_short_halo_leaves_no_seam() -> None:
    """Steps across tile borders are like steps anywhere; without blending they are not."""
    camera = CASSI.from_step(5)
    model, (measurement, mask) = _model(), _shot(camera, (64, 64))
    with torch.no_grad():
        whole = model(measurement[None], mask, camera)[0]

    def worst_step(halo: int, blend: int) -> float:
        tiling = Tiling(tile=32, halo=halo, blend=blend)
        error = Engine(model, CPU, "float32", tiling).run(measurement, mask, camera).values - whole
        return float(error.diff(dim=1)[:, 31].abs().max()) / float(whole.std())

    blended, hard = worst_step(4, 8), worst_step(0, 0)
    assert blended < 0.1 * hard


def test_a_tile_cut_out_of_the_snapshot_would_not_do() -> None:
    """The reason for strips: inputs made from a tile's own pixels are not those of the frame."""
    camera = CASSI.from_step(5)
    measurement, mask = _shot(camera)
    names = ("normalised",)
    whole = network_input(names, measurement[None], mask, camera)
    strip = network_input(names, measurement[None, 10:30], mask[..., 10:30, :], camera)
    assert torch.equal(strip, whole[..., 10:30, :])
    tile = network_input(
        names, measurement[None, 10:30, 20 : 40 + camera.extent], mask[..., 10:30, 20:40], camera
    )
    assert float((tile - whole[..., 10:30, 20:40]).abs().max()) > 1.0


class _Watched(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.largest = 0

    def forward(self, x: Tensor) -> Tensor:
        self.largest = max(self.largest, *x.shape[-2:])
        result: Tensor = self.inner(x)
        return result


def test_the_backbone_never_sees_more_than_a_tile_and_its_halo() -> None:
    camera = CASSI.from_step(5)
    measurement, mask = _shot(camera, (150, 130))
    engine = Engine(_model(), CPU, "float32", Tiling(tile=40, halo=5, blend=4))
    watched = _Watched(engine._fast.backbone)
    engine._fast.backbone = watched
    engine.run(measurement, mask, camera)
    assert watched.largest <= 50


def test_strips_lie_along_the_dispersion() -> None:
    for axis, across in (("width", "rows"), ("height", "columns")):
        camera = CASSI.from_step(5, axis=axis)  # type: ignore[arg-type]  # a plain str here
        for tiles in tiles_by_strip((50, 60), camera, Tiling(tile=20, halo=2, blend=2)):
            assert len({(getattr(t, across).first, getattr(t, across).last) for t in tiles}) == 1
