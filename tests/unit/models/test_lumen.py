"""Lumen: cosines for any band count, a told spread that is obeyed, an exact last step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.backbones.lumen import BandsIn, BandsOut, Look, Lumen, SmallU, cosine_basis
from prismask.models.fast import FastReconstructor
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import count_multiply_adds, count_parameters, create_model
from prismask.optics.camera import CASSI
from prismask.training.config import read_config

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
TINY: dict[str, Any] = {"width": 8, "stages": 2, "cosines": 8}
CAMERA = CASSI.from_step(6, 2.0)
CAMERAS = {
    "whole": CAMERA,
    "backwards": CASSI.from_step(6, -1.0),
    "irregular": CASSI((0.0, 3.0, 4.0, 9.0, 2.0, 7.0)),
    "along the height": CASSI.from_step(6, 2.0, axis="height"),
    "dual": CASSI.from_step(6, 2.0, design="dual"),
}


def lumen(awake: bool = True, **more: Any) -> Reconstructor:
    """A tiny network; awake: what it reads is no longer next to nothing."""
    model = create_model("lumen", bands=6, seed=3, **{**TINY, **more})
    if awake:
        for module in model.modules():
            if isinstance(module, BandsOut):
                nn.init.normal_(module.conv.weight, std=0.1)
    return model.eval()


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def snapshot(camera: CASSI = CAMERA, size: tuple[int, int] = (13, 18)) -> tuple[Tensor, Tensor]:
    mask = numbers(1, 1, *camera.mask_size(size), seed=1).clamp_min(0.05)
    cube = numbers(2, camera.bands, *size, seed=2)
    return camera.forward(cube, mask), mask


# --- cosines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bands", [1, 5, 28, 32, 40])
def test_the_cosines_are_orthonormal_and_lose_nothing_up_to_their_number(bands: int) -> None:
    basis = cosine_basis(bands, 32, torch.zeros((), dtype=torch.float64))
    used = min(bands, 32)
    expected = torch.zeros(32, 32, dtype=torch.float64)
    expected[range(used), range(used)] = 1
    torch.testing.assert_close(basis.T @ basis, expected)
    if bands <= 32:
        torch.testing.assert_close(basis @ basis.T, torch.eye(bands, dtype=torch.float64))


@pytest.mark.parametrize("fold", [1, 2])
@torch.no_grad()
def test_the_convolution_of_the_bands_is_that_of_their_cosines(fold: int) -> None:
    into = BandsIn(8, 16, stacks=2, more=1, fold=fold)
    out = BandsOut(8, 16, more=2, fold=fold)
    nn.init.normal_(out.conv.weight)
    nn.init.normal_(out.conv.bias)  # type: ignore[arg-type]  # it has one
    basis = cosine_basis(5, 16, torch.zeros(()))
    cubes, plane, features = (
        numbers(2, 2, 5, 6, 8).unbind(0),
        numbers(2, 1, 6, 8),
        numbers(2, 8, 6 // fold, 8 // fold),
    )
    coefficients = [torch.einsum("ck,bchw->bkhw", basis, cube) * (16 / 5) ** 0.5 for cube in cubes]
    expected = into.conv(F.pixel_unshuffle(torch.cat([*coefficients, plane], 1), fold))
    torch.testing.assert_close(into(cubes, [plane], basis), expected, atol=1e-5, rtol=1e-5)
    bands, planes = out(features, basis, plane)
    both = F.pixel_shuffle(out.conv(features) * 0.2, fold)
    spread = torch.einsum("ck,bkhw->bchw", basis, both[:, :16]) * (5 / 16) ** 0.5
    torch.testing.assert_close(bands, spread, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(planes, both[:, 16:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_unfolded_weights_are_used_as_before_there_was_folding() -> None:
    """Bit for bit: the weights that ship were trained like that."""
    into, out = BandsIn(8, 16, stacks=2, more=1), BandsOut(8, 16, more=2)
    nn.init.normal_(out.conv.weight)
    basis, features = cosine_basis(5, 16, torch.zeros(())), numbers(2, 8, 6, 7)
    cubes, plane = numbers(2, 2, 5, 6, 7).unbind(0), numbers(2, 1, 6, 7)
    split = into.conv.weight[:, :32].reshape(8, 2, 16, 3, 3)
    spread = torch.einsum("oskyx,ck->oscyx", split, basis * (16 / 5) ** 0.5).flatten(1, 2)
    weight = F.pad(torch.cat([spread, into.conv.weight[:, 32:]], 1), (0, 0, 0, 0, 0, 5))
    given = F.pad(torch.cat([*cubes, plane], 1), (0, 0, 0, 0, 0, 5))
    given = given.contiguous(memory_format=torch.channels_last)
    expected = F.conv2d(given, weight, into.conv.bias, padding=1)
    assert torch.equal(into(cubes, [plane], basis), expected)
    matrix = basis * (5 / 16) ** 0.5
    assert out.conv.bias is not None
    spread = (matrix @ out.conv.weight[:16].flatten(1)).reshape(5, 8, 3, 3)
    weight = F.pad(torch.cat([spread, out.conv.weight[16:]]), (0,) * 7 + (1,))
    bias = F.pad(torch.cat([(matrix * out.conv.bias[:16]).sum(1), out.conv.bias[16:]]), (0, 1))
    expected = 0.2 * F.conv2d(features, weight, bias, padding=1)
    assert torch.equal(out(features, basis, plane)[0], expected[:, :5])


@pytest.mark.parametrize("fold", [2, 3])
@torch.no_grad()
def test_a_folded_network_serves_any_size_and_keeps_its_exact_last_step(fold: int) -> None:
    model = lumen(fold=fold)
    for name in ("whole", "along the height", "dual"):
        camera = CAMERAS[name]
        measurement, mask = snapshot(camera)
        exact = (torch.zeros(2), torch.zeros_like(mask))
        cube = model(measurement, mask, camera, *exact)
        assert cube.shape == (2, 6, 13, 18)
        torch.testing.assert_close(camera.forward(cube, mask), measurement, atol=1e-4, rtol=1e-4)
    with pytest.raises(ConfigError, match="fold is 9; it is 1"):
        lumen(fold=9)


@torch.no_grad()
def test_looks_of_one_place_and_fewer_blocks_below_serve_any_size_too() -> None:
    model = lumen(fold=2, look=1, levels=2, blocks=2, lowest=1)
    measurement, mask = snapshot()
    exact = (torch.zeros(2), torch.zeros_like(mask))
    cube = model(measurement, mask, CAMERA, *exact)
    torch.testing.assert_close(CAMERA.forward(cube, mask), measurement, atol=1e-4, rtol=1e-4)
    larger = count_parameters(lumen(fold=2, levels=2, blocks=2))
    assert count_parameters(lumen(fold=2, look=1, levels=2, blocks=2)) < larger
    assert count_parameters(lumen(fold=2, levels=2, blocks=2, lowest=1)) < larger
    with pytest.raises(ConfigError, match="look is 2; a kernel has an odd side"):
        lumen(look=2)


@torch.no_grad()
def test_a_flat_spectrum_is_told_alike_at_every_band_count() -> None:
    into = BandsIn(8, 16, stacks=1)
    answers = [
        into([torch.full((1, bands, 4, 4), 0.5)], [], cosine_basis(bands, 16, torch.zeros(())))
        for bands in (4, 9, 16)
    ]
    for answer in answers[1:]:
        torch.testing.assert_close(answer, answers[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bands", [3, 6, 11])
@torch.no_grad()
def test_one_set_of_weights_serves_any_band_count(bands: int) -> None:
    model, camera = lumen(), CASSI.from_step(bands, 1.5)
    measurement, mask = snapshot(camera)
    assert model(measurement, mask, camera).shape == (2, bands, 13, 18)
    fast = FastReconstructor(model, torch.device("cpu"), "float32")
    torch.testing.assert_close(fast(measurement, mask, camera), model(measurement, mask, camera))


# --- the last step ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CAMERAS)
@torch.no_grad()
def test_without_noise_behind_an_exact_mask_the_cube_explains_the_snapshot(name: str) -> None:
    camera = CAMERAS[name]
    measurement, mask = snapshot(camera)
    told = {"noise": torch.zeros(2), "mask_std": torch.zeros_like(mask)}
    cube = lumen()(measurement, mask, camera, **told)
    torch.testing.assert_close(camera.forward(cube, mask), measurement, atol=2e-4, rtol=1e-4)
    before = lumen().estimates(Observation(measurement, mask, camera, **told)).cubes[-2]
    assert float((camera.forward(before, mask) - measurement).abs().max()) > 0.1


@torch.no_grad()
def test_what_is_said_before_the_last_step_gives_a_wrong_mask_away() -> None:
    """The last step fits a cube to any mask; how little fitted before it tells masks apart."""
    model = lumen()
    shot, mask = snapshot()
    for given in (mask, mask.roll(3, -1)):
        seen = Observation(shot, given, CAMERA, torch.zeros(1), torch.zeros_like(mask))
        before, after = model.before_projection(seen), model(*seen)
        fast = FastReconstructor(model, torch.device("cpu"), "float32").before_projection(seen)
        left = [(CAMERA.forward(cube, given) - shot).norm() for cube in (before, after)]
        assert left[0] > 0.01 * shot.norm()
        assert left[1] < 1e-4 * left[0]
        torch.testing.assert_close(fast, before, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_between_pixels_the_last_step_comes_close() -> None:
    camera = CASSI.from_step(6, 1.6)
    measurement, mask = snapshot(camera)
    told = {"noise": torch.zeros(2), "mask_std": torch.zeros_like(mask)}
    said = lumen().estimates(Observation(measurement, mask, camera, **told)).cubes
    errors = [float((camera.forward(c, mask) - measurement).norm()) for c in said[-2:]]
    assert errors[1] < 0.2 * errors[0]


@torch.no_grad()
def test_a_mask_per_band_is_obeyed() -> None:
    measurement = snapshot()[0]
    mask = numbers(1, 6, 13, 18, seed=5).clamp_min(0.05)
    told = {"noise": torch.zeros(2), "mask_std": torch.zeros_like(mask)}
    cube = lumen()(measurement, mask, CAMERA, **told)
    torch.testing.assert_close(CAMERA.forward(cube, mask), measurement, atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_an_untrained_network_starts_from_a_sane_estimate() -> None:
    measurement, mask = snapshot()
    model = create_model("lumen", seed=0, stages=3).eval()
    told = {"noise": torch.zeros(2), "mask_std": torch.zeros_like(mask)}
    sane = CAMERA.spread(measurement, mask)
    sane = sane + CAMERA.pseudo_inverse(measurement - CAMERA.forward(sane, mask), mask)
    assert float((model(measurement, mask, CAMERA, **told) - sane).square().mean().sqrt()) < 0.05


# --- what is told about the mask ---------------------------------------------------------------


@torch.no_grad()
def test_a_larger_told_spread_never_makes_a_look_trust_the_mask_more() -> None:
    model = lumen()
    assert isinstance(model.backbone, Lumen)
    measurement, mask = snapshot()
    noise, first = torch.full((2,), 0.01), CAMERA.spread(measurement, mask)
    before, bound = None, -1.0
    for std in (0.0, 0.02, 0.1, 0.4):
        spread = torch.full_like(mask, std)
        shot = model.backbone.entry.shot(measurement, mask, CAMERA, noise, spread, first)
        look = model.backbone.stages[0].look
        assert isinstance(look, Look)
        weight = look.weight(shot)
        assert before is None or bool((weight > before).any() & (weight >= before).all())
        assert float(shot.bound.max()) > bound
        before, bound = weight, float(shot.bound.max())


@torch.no_grad()
def test_the_more_spread_is_told_the_less_the_told_mask_has_to_be_obeyed() -> None:
    model = lumen(awake=False)
    measurement, mask = snapshot()
    wrong = mask.roll(1, -1)
    misfits = []
    for std in (0.0, 0.05, 0.2):
        spread = torch.full_like(mask, std)
        cube = model(measurement, wrong, CAMERA, torch.zeros(2), spread)
        misfits.append(float((CAMERA.forward(cube, wrong) - measurement).norm()))
    assert misfits[0] < 1e-3 < misfits[1] < misfits[2]


@torch.no_grad()
def test_masks_are_moved_within_what_was_told_only() -> None:
    measurement, mask = snapshot()
    spread = torch.zeros_like(mask)
    spread[..., :9] = 0.1
    said = lumen().estimates(Observation(measurement, mask, CAMERA, torch.zeros(2), spread))
    assert len(said.cubes) == len(said.masks) == 3
    for believed in said.masks:
        moved = (believed - mask).abs()
        assert float(moved[..., 9:].max()) == 0
        assert 0 < float(moved[..., :9].max()) <= 0.3 + 1e-6
    assert said.mask_std is not None
    torch.testing.assert_close(said.mask_std, spread.expand(said.mask_std.shape))


@torch.no_grad()
def test_what_is_not_told_is_none_or_negative() -> None:
    model, (measurement, mask) = lumen(), snapshot()
    noise = torch.full((2,), 0.01)
    silent = model(measurement, mask, CAMERA, noise)
    negative = model(measurement, mask, CAMERA, noise, torch.full_like(mask, -3.0))
    torch.testing.assert_close(negative, silent)
    assert not torch.allclose(model(measurement, mask, CAMERA, noise, 0 * mask), silent, atol=1e-4)
    # One sample may know what the other does not.
    mixed = torch.stack([torch.full_like(mask[0], -1.0), torch.full_like(mask[0], 0.1)])
    together = model(measurement, mask, CAMERA, noise, mixed)
    torch.testing.assert_close(together[:1], silent[:1], atol=1e-5, rtol=1e-4)


# --- weights -----------------------------------------------------------------------------------


def test_the_default_fits_into_twenty_megabytes() -> None:
    with torch.device("meta"):
        assert 3e6 < count_parameters(create_model("lumen")) < 6e6


def test_the_small_sibling_is_small() -> None:
    settings = read_config(CONFIGS / "budget" / "lumen-small.toml")
    with torch.device("meta"):
        model = create_model("lumen", **settings.model.options)
    assert count_parameters(model) <= 1.5e6
    assert count_multiply_adds(model, CASSI.from_step()) <= 12e9


@pytest.mark.parametrize("levels", [1, 2, 3])
@torch.no_grad()
def test_a_small_u_takes_any_size(levels: int) -> None:
    think = SmallU(8, levels, blocks=1, widest=16)
    for size in ((1, 1), (5, 7), (8, 12)):
        assert think(numbers(1, 8, *size)).shape == (1, 8, *size)
