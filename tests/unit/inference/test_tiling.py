"""Tiled and whole are the same, and where they cannot be there is no seam."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.inference.engine import Engine, Tiling, spans, tiles_by_strip
from prismask.models.inputs import Observation, network_input
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
    align=st.sampled_from([1, 7, 16]),
)
def test_every_pixel_gets_weights_that_sum_to_one(
    length: int, tile: int, halo: int, share: float, align: int
) -> None:
    tiling = Tiling(tile, halo, int(2 * halo * share), align)
    total = torch.zeros(length)
    for span in spans(length, tiling):
        assert 0 <= span.first < span.last <= length
        assert span.last - span.first <= tile + 2 * (halo + align - 1)
        assert span.first % align == 0
        assert span.last == length or span.last % align == 0
        total[span.first : span.last] += span.weights
        first, last = span.kept
        assert span.first <= first < last <= span.last
    assert torch.allclose(total, torch.ones(length), atol=1e-5)


def test_impossible_tilings_are_refused() -> None:
    with pytest.raises(ConfigError, match="too small"):
        Tiling(tile=4)
    with pytest.raises(ConfigError, match="at most twice the halo"):
        Tiling(tile=64, halo=4, blend=9)
    with pytest.raises(ConfigError, match="aligned"):
        Tiling(align=0)


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
    tiling = Tiling(tile=20, halo=RADIUS + 3, blend=6, align=1)
    assert tiling.halo - tiling.blend / 2 == RADIUS
    tiled = (
        Engine(model, CPU, "float32", tiling)
        .run(Observation(measurement[None], mask, camera))
        .values
    )
    assert float((tiled - whole).abs().max()) < 2e-5 * float(whole.abs().max())
    # One pixel less of context and they differ: the bound is the network's, not luck.
    less = Tiling(tile=20, halo=RADIUS + 2, blend=6, align=1)
    other = (
        Engine(model, CPU, "float32", less).run(Observation(measurement[None], mask, camera)).values
    )
    assert float((other - whole).abs().max()) > 1e-4 * float(whole.abs().max())


def test_a_short_halo_leaves_no_seam() -> None:
    """Steps across tile borders are like steps anywhere; without blending they are not."""
    camera = CASSI.from_step(5)
    model, (measurement, mask) = _model(), _shot(camera, (64, 64))
    with torch.no_grad():
        whole = model(measurement[None], mask, camera)[0]

    def worst_step(halo: int, blend: int) -> float:
        tiling = Tiling(tile=32, halo=halo, blend=blend, align=1)
        error = (
            Engine(model, CPU, "float32", tiling)
            .run(Observation(measurement[None], mask, camera))
            .values
            - whole
        )
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
    engine = Engine(_model(), CPU, "float32", Tiling(tile=40, halo=5, blend=4, align=1))
    watched = _Watched(engine._fast.backbone)
    engine._fast.backbone = watched
    engine.run(Observation(measurement[None], mask, camera))
    assert watched.largest <= 50


def test_strips_lie_along_the_dispersion() -> None:
    for axis, across in (("width", "rows"), ("height", "columns")):
        camera = CASSI.from_step(5, axis=axis)  # type: ignore[arg-type]  # a plain str here
        for tiles in tiles_by_strip((50, 60), camera, Tiling(tile=20, halo=2, blend=2)):
            assert len({(getattr(t, across).first, getattr(t, across).last) for t in tiles}) == 1


class _Halved(nn.Module):
    """Looks at blocks of eight pixels, as windows and halved resolutions do."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = nn.functional.pad(x[:, :5], (0, -width % 8, 0, -height % 8))
        coarse = nn.functional.avg_pool2d(x, 8)
        return nn.functional.interpolate(coarse, scale_factor=8.0)[..., :height, :width]


def test_blocks_inside_a_backbone_fall_on_the_same_pixels() -> None:
    camera = CASSI.from_step(5)
    measurement, mask = _shot(camera, (61, 74))
    model = _model("srn")
    model.backbone = _Halved()
    with torch.no_grad():
        whole = model(measurement[None], mask, camera)[0]

    def error(align: int) -> float:
        tiling = Tiling(tile=20, halo=10, blend=4, align=align)
        tiled = (
            Engine(model, CPU, "float32", tiling)
            .run(Observation(measurement[None], mask, camera))
            .values
        )
        return float((tiled - whole).abs().max())

    assert error(8) < 1e-5
    assert error(1) > 1e-2


@pytest.mark.parametrize("axis", ["width", "height"])
@pytest.mark.parametrize("across", [96, 100, 111])
def test_windows_fall_on_the_same_pixels_in_tiles(axis: str, across: int) -> None:
    camera = CASSI.from_step(5, axis=axis)  # type: ignore[arg-type]  # a plain str here
    measurement, mask = _shot(camera, (across, 40) if axis == "width" else (40, across))
    model = create_model("swinir", bands=5, seed=1, width=12, groups=1, layers=2, heads=2).eval()
    tiled, whole = (
        Engine(model, CPU, "float32", Tiling(tile)).run(
            Observation(measurement[None], mask, camera)
        )
        for tile in (32, 1024)
    )
    assert torch.allclose(tiled.values, whole.values, atol=1e-5)


class _Unfolded(nn.Module):
    """Contains the camera: one gradient step from its input."""

    wants_physics = True

    def forward(self, x: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        return x - 0.1 * camera.adjoint(camera.forward(x, mask) - measurement, mask)


@pytest.mark.parametrize("camera", CAMERAS.values(), ids=CAMERAS)
def test_a_backbone_with_the_camera_inside_gets_whole_strips(camera: CASSI) -> None:
    measurement, mask = _shot(camera)
    model = _model("srn")
    model.backbone = _Unfolded()
    with torch.no_grad():
        whole = model(measurement[None], mask, camera)[0]
    engine = Engine(model, CPU, "float32", Tiling(tile=20, halo=2, blend=2, align=1))
    found = engine.run(Observation(measurement[None], mask, camera), samples=0)
    assert torch.allclose(found.values, whole, atol=1e-5)
    sampled = engine.run(Observation(measurement[None], mask, camera), samples=3, levels=(0.1, 0.9))
    assert sampled.upper is not None
