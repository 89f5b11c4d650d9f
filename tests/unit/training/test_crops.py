"""Crops against plain indexing, and batches as pure functions of seed and step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI
from prismask.training.config import DataConfig, MaskConfig
from prismask.training.data.batches import BatchMaker
from prismask.training.data.crops import CropPlan, SceneBank, cosines, draw_plan
from prismask.training.data.masks import MaskSource


def scenes(count: int = 3, size: int = 20) -> torch.Tensor:
    return torch.rand(count, 4, size, size + 6, generator=torch.Generator().manual_seed(5))


def plan(
    turn: int = 0,
    flip: float = 1.0,
    scale: float = 1.0,
    brightness: float = 1.0,
    angle: float = 0.0,
) -> CropPlan:
    return CropPlan(
        scene=torch.tensor([2]),
        scale=torch.tensor([scale]),
        place=torch.tensor([[0.5, 0.25]]),
        turn=torch.tensor([turn]),
        angle=torch.tensor([angle]),
        flip=torch.tensor([flip]),
        brightness=torch.tensor([brightness]),
        light=torch.zeros(1, 3),
    )


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
@pytest.mark.parametrize("flip", [1.0, -1.0])
def test_native_crops_are_pixel_for_pixel(turn: int, flip: float) -> None:
    bank = SceneBank(scenes(), (8, 8), 1.0)
    cut = bank.cut(plan(turn, flip))[0]
    source = scenes()[2, :, 6:14, 4:12]  # floor(0.5·13), floor(0.25·19)
    candidates = {
        (k, f): torch.rot90(source.flip(-1) if f else source, k, (1, 2))
        for k in range(4)
        for f in (False, True)
    }
    matches = [key for key, value in candidates.items() if torch.allclose(cut, value, atol=1e-4)]
    assert len(matches) == 1, "exactly one turn and mirror of the plain crop"
    assert matches[0][1] is (flip < 0)


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_wide_crops_lie_along_either_axis_of_the_scene(turn: int) -> None:
    bank = SceneBank(scenes(), (6, 10), 1.0)
    cut = bank.cut(plan(turn))[0]
    assert cut.shape[1:] == (6, 10)
    height, width = (6, 10) if turn % 2 == 0 else (10, 6)
    row, column = int(0.5 * (20 - height + 1)), int(0.25 * (26 - width + 1))
    source = scenes()[2, :, row : row + height, column : column + width]
    turned = [torch.rot90(source, k, (1, 2)) for k in range(4)]
    fits = [
        k
        for k in range(4)
        if turned[k].shape == cut.shape and torch.allclose(turned[k], cut, atol=1e-4)
    ]
    assert len(fits) == 1


@pytest.mark.parametrize("corner", [0.0, 1 - 1e-6])
def test_native_crops_reach_the_first_and_the_last_row_and_column(corner: float) -> None:
    whole = replace(plan(), place=torch.tensor([[corner, corner]]))
    cut = SceneBank(scenes(), (8, 8), 1.0).cut(whole)[0]
    expected = scenes()[2, :, :8, :8] if corner == 0 else scenes()[2, :, -8:, -8:]
    assert torch.allclose(cut, expected, atol=1e-4)


def test_all_eight_orientations_differ() -> None:
    bank = SceneBank(scenes(), (8, 8), 1.0)
    cuts = [bank.cut(plan(t, f)) for t in range(4) for f in (1.0, -1.0)]
    for i, one in enumerate(cuts):
        assert all(not torch.allclose(one, other, atol=1e-3) for other in cuts[:i])


@pytest.mark.parametrize("resampling", ["linear", "cubic"])
def test_enlarging_keeps_a_linear_ramp_linear(resampling: str) -> None:
    ramp = torch.arange(24.0).expand(1, 4, 24, 24)
    cut = SceneBank(ramp, (8, 8), 1.0, resampling).cut(
        CropPlan(
            torch.tensor([0]), torch.tensor([2.0]), torch.tensor([[0.5, 0.5]]),
            torch.tensor([0]), torch.zeros(1), torch.ones(1), torch.ones(1), torch.zeros(1, 3),
        )
    )  # fmt: skip
    steps = cut[0, 0, 0].diff()
    assert torch.allclose(steps, torch.full_like(steps, 0.5), atol=1e-4)
    assert float(cut[0, 0, 0].mean()) == pytest.approx(11.5, abs=1e-3)


def test_cubic_resampling_keeps_fine_texture_that_linear_blurs() -> None:
    """A wave of four pixels: between two samples linear interpolation leaves cos(π/4) of it."""
    wave = torch.cos(torch.arange(64.0) * torch.pi / 2 + 0.3).expand(3, 1, 64, 64) + 2
    kept = {}
    for resampling in ("linear", "cubic"):
        cut = SceneBank(wave, (8, 16), 1.0, resampling).cut(plan(scale=1.25))
        kept[resampling] = float(cut.std())
    assert kept["cubic"] > 1.08 * kept["linear"]


def test_cubic_crops_keep_their_distance_from_other_scenes() -> None:
    """Nothing of the bright scenes above and below shines into the dark one between them."""
    stack = torch.tensor([1.0, 0.0, 1.0])[:, None, None, None].expand(3, 2, 32, 32).contiguous()
    bank = SceneBank(stack, (8, 8), 0.55, "cubic")
    config = DataConfig(crop=(8, 8), scale=(0.55, 2.0), native_share=0.2, tilt_share=0.7)
    drawn = draw_plan(400, 1, config, torch.Generator().manual_seed(0))
    middle = replace(drawn, scene=torch.ones(400, dtype=torch.long))
    assert float(bank.cut(middle).abs().max()) < 1e-4


def test_cubic_crops_hold_no_negative_light() -> None:
    edge = (torch.arange(32.0) > 15).float().expand(1, 2, 32, 32)
    config = DataConfig(crop=(16, 16), scale=(1.0, 2.0))
    drawn = draw_plan(50, 1, config, torch.Generator().manual_seed(0))
    cut = SceneBank(edge, (16, 16), 1.0, "cubic").cut(drawn)
    assert float(cut.min()) == 0
    assert float(cut.max()) > 1.01, "the overshoot that stays is that of a cubic"


def test_shrinking_averages() -> None:
    """A checkerboard at half size is grey, not a random pick of its squares."""
    board = torch.ones(1, 1, 16, 16)
    board[..., ::2, ::2] = 0
    board[..., 1::2, 1::2] = 0
    bank = SceneBank(board, (8, 8), 0.5)
    cut = bank.cut(
        CropPlan(
            torch.tensor([0]), torch.tensor([0.5]), torch.zeros(1, 2),
            torch.tensor([1]), torch.zeros(1), torch.ones(1), torch.full((1,), 3.0),
            torch.zeros(1, 3),
        )
    )  # fmt: skip
    assert torch.allclose(cut, torch.full_like(cut, 1.5), atol=1e-5)


@pytest.mark.parametrize("angle", [-0.7, 0.2, 0.785])
@pytest.mark.parametrize("turn", [0, 1])
def test_a_tilted_crop_of_a_ramp_climbs_in_the_direction_it_was_turned_to(
    angle: float, turn: int
) -> None:
    rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(40.0), indexing="ij")
    ramps = torch.stack([rows, columns])[None].expand(3, -1, -1, -1)
    cut = SceneBank(ramps, (8, 12), 1.0).cut(plan(turn, scale=2.0, angle=angle))[0]
    along_rows, along_columns = cut.diff(dim=1), cut.diff(dim=2)
    whole = angle + turn * math.pi / 2
    expected = torch.tensor([math.cos(whole), math.sin(whole)]) / 2
    assert torch.allclose(along_rows, expected[:, None, None].expand_as(along_rows), atol=1e-3)
    across = torch.tensor([-math.sin(whole), math.cos(whole)]) / 2
    assert torch.allclose(along_columns, across[:, None, None].expand_as(along_columns), atol=1e-3)


def test_a_tilted_crop_that_does_not_fit_is_cut_upright() -> None:
    bank = SceneBank(scenes(), (18, 18), 1.0)
    whole = plan(scale=1.01)
    assert torch.equal(bank.cut(replace(whole, angle=torch.tensor([0.5]))), bank.cut(whole))


def test_crops_are_tilted_by_share_and_never_at_their_own_resolution() -> None:
    config = DataConfig(crop=(8, 8), scale=(0.5, 2.0), native_share=0.3, tilt_share=0.6)
    drawn = draw_plan(4000, 1, config, torch.Generator().manual_seed(0))
    tilted = drawn.angle != 0
    assert not (tilted & (drawn.scale == 1)).any()
    assert float(tilted[drawn.scale != 1].float().mean()) == pytest.approx(0.6, abs=0.03)
    assert float(drawn.angle.abs().max()) <= math.pi / 4
    assert float(drawn.angle[tilted].mean()) == pytest.approx(0, abs=0.03)
    for way in range(4):
        assert float((drawn.turn[tilted] == way).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert float((drawn.flip[tilted] < 0).float().mean()) == pytest.approx(0.5, abs=0.04)
    plain = draw_plan(4000, 1, replace(config, tilt_share=0.0), torch.Generator().manual_seed(0))
    assert not plain.angle.any()
    assert torch.equal(plain.place, drawn.place), "nothing else is moved by it"


def test_a_lamp_recolours_smoothly_and_only_when_asked() -> None:
    grey = torch.full((1, 12, 16, 16), 0.5)
    bank = SceneBank(grey, (8, 8), 1.0)
    plain = draw_plan(300, 1, DataConfig(crop=(8, 8)), torch.Generator().manual_seed(0))
    assert torch.allclose(bank.cut(plain), torch.tensor(0.5))
    lit = DataConfig(crop=(8, 8), spectral_gain=0.2)
    spectra = bank.cut(draw_plan(300, 1, lit, torch.Generator().manual_seed(0))).mean((2, 3)).log()
    # three independent cosines of spread 0.2 have a mean square of 3 · 0.2² / 2 over the spectrum
    assert float(spectra.sub(math.log(0.5)).square().mean().sqrt()) == pytest.approx(0.245, rel=0.1)
    steps = spectra.diff(dim=1).abs().max()
    assert float(steps) < 0.6, "no jump between neighbouring bands"


def test_bounds_are_kept() -> None:
    """Whatever is drawn, a crop shows only its own scene."""
    marked = torch.arange(1.0, 4.0)[:, None, None, None].expand(3, 2, 16, 16).contiguous()
    config = DataConfig(crop=(8, 8), scale=(0.5, 2.0), native_share=0.3)
    bank = SceneBank(marked, (8, 8), 0.5)
    drawn = draw_plan(200, 3, config, torch.Generator().manual_seed(0))
    cut = bank.cut(drawn)
    expected = (drawn.scene + 1.0)[:, None, None, None].expand_as(cut)
    assert torch.allclose(cut, expected, atol=1e-4)
    assert (drawn.scale == 1).float().mean() == pytest.approx(0.3, abs=0.1)
    assert set(drawn.turn.tolist()) == {0, 1, 2, 3}


def half_empty() -> torch.Tensor:
    """Two scenes; only the right half of the second has anything in it."""
    both = torch.full((2, 3, 64, 96), 0.5)
    both[1, :, :, 48:] = torch.rand(64, 48, generator=torch.Generator().manual_seed(2))
    return both


def test_of_several_crops_the_one_with_most_contrast_is_taken() -> None:
    config = DataConfig(crop=(16, 24), scale=(1.0, 2.0), tilt_share=0.5)
    bank = SceneBank(half_empty(), (16, 24), 1.0)

    def share_with_contrast(choices: int) -> float:
        chosen = replace(config, choices=choices)
        cut = bank.cut(bank.draw(600, chosen, torch.Generator().manual_seed(0)))
        return float((cut.std((1, 2, 3)) > 0.02).float().mean())

    plain = share_with_contrast(1)
    assert 0.2 < plain < 0.5
    for choices in (2, 4):  # none is taken only where none was drawn
        expected = 1 - (1 - plain) ** choices
        assert share_with_contrast(choices) == pytest.approx(expected, abs=0.07)


def test_a_choice_of_one_draws_as_ever() -> None:
    config = DataConfig(crop=(16, 24), scale=(0.5, 2.0))
    bank = SceneBank(half_empty(), (16, 24), 0.5)
    drawn = bank.draw(20, config, torch.Generator().manual_seed(3))
    plain = draw_plan(20, 2, config, torch.Generator().manual_seed(3))
    assert drawn.as_dict() == plain.as_dict()


def test_contrast_counts_alike_in_bright_and_dim_scenes() -> None:
    """Exposure says nothing about what there is to learn: a scene at a tenth of the light is
    drawn as often."""
    texture = half_empty()[1:]
    bank = SceneBank(torch.cat([texture, texture / 10]), (16, 24), 1.0)
    config = DataConfig(crop=(16, 24), choices=3)
    drawn = bank.draw(1500, config, torch.Generator().manual_seed(0))
    assert float(drawn.scene.float().mean()) == pytest.approx(0.5, abs=0.04)


def test_too_small_scenes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs scenes of 64 px.*20×26"):
        SceneBank(scenes(), (32, 32), 0.5)
    with pytest.raises(ConfigError, match="does not fit into the training region"):
        MaskSource(torch.rand(8, 8), None, (9, 8), MaskConfig())


def maker(part: slice, changes: dict[str, float] | None = None, **options: object) -> BatchMaker:
    camera = CASSI.from_step(4)
    masks = MaskConfig(**options)  # type: ignore[arg-type]  # only tests pass them on by name
    data = DataConfig(crop=(8, 8), noise_std=(0.0, 0.05), **(changes or {}))  # type: ignore[arg-type]
    source = MaskSource(torch.rand(12, 14, generator=torch.Generator().manual_seed(1)), None, (8, 8), masks)  # fmt: skip # noqa: E501
    return BatchMaker(SceneBank(scenes(), (8, 8), 1.0), source, camera, data, 7, 6, part)


@pytest.mark.parametrize("per", ["batch", "sample"])
def test_a_batch_depends_on_seed_and_step_only(per: str) -> None:
    whole = maker(slice(0, 6), per=per, vary=True)
    whole.make(3)
    again = whole.make(5)
    fresh = maker(slice(0, 6), per=per, vary=True).make(5)
    assert torch.equal(again.cube, fresh.cube)
    assert torch.equal(again.measurement, fresh.measurement)
    assert torch.equal(again.mask, fresh.mask)
    assert not torch.equal(whole.make(4).cube, fresh.cube)
    assert fresh.mask.shape[0] == (1 if per == "batch" else 6)


def test_a_calibration_error_moves_what_is_shown_and_nothing_else() -> None:
    right = maker(slice(0, 6), per="sample").make(2)
    wrong = maker(slice(0, 6), per="sample", calibration_error=0.5).make(2)
    assert torch.equal(right.measurement, wrong.measurement)
    assert torch.equal(right.cube, wrong.cube)
    moved = (right.mask - wrong.mask).abs().amax((1, 2, 3))
    assert (moved > 0.01).all()
    assert len(moved.unique()) == 6, "each sample is displaced by itself"
    # A shift mixes neighbours: nothing is brighter or darker than they are.
    assert float(wrong.mask.max()) <= float(right.mask.max())


@pytest.mark.parametrize("per", ["batch", "sample"])
def test_parts_make_up_the_whole(per: str) -> None:
    whole = maker(slice(0, 6), per=per, calibration_error=0.5).make(2)
    parts = [maker(slice(s, s + 3), per=per, calibration_error=0.5).make(2) for s in (0, 3)]
    assert torch.equal(torch.cat([p.cube for p in parts]), whole.cube)
    assert torch.equal(torch.cat([p.measurement for p in parts]), whole.measurement)
    shown = torch.cat([p.mask for p in parts]) if per == "sample" else parts[1].mask
    assert torch.equal(shown, whole.mask)


CHANGES = {"collage": 0.5, "warp": 0.5, "repaint": 0.3}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_cubes_leaves_everything_else(name: str) -> None:
    plain = maker(slice(0, 6), per="sample").make(2)
    changed = maker(slice(0, 6), {name: CHANGES[name]}, per="sample").make(2)
    assert not torch.equal(plain.cube, changed.cube)
    assert torch.equal(plain.mask, changed.mask)
    camera = CASSI.from_step(4)
    noises = [b.measurement - camera.forward(b.cube, b.mask) for b in (plain, changed)]
    torch.testing.assert_close(noises[0], noises[1], atol=1e-5, rtol=0)


def test_changed_parts_make_up_the_whole() -> None:
    whole = maker(slice(0, 6), CHANGES).make(2)
    parts = [maker(slice(s, s + 3), CHANGES).make(2) for s in (0, 3)]
    torch.testing.assert_close(torch.cat([p.cube for p in parts]), whole.cube)


def test_a_lamp_changes_the_spectrum_and_not_the_brightness() -> None:
    shapes = cosines(28)
    torch.testing.assert_close(shapes.sum(1), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(shapes @ shapes.T, 14 * torch.eye(3), rtol=0, atol=1e-4)
