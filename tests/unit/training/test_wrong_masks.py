"""Masks that are not what they are told to be: how many, how far, and what is said about it."""

from __future__ import annotations

import torch

from prismask.optics.camera import CASSI
from prismask.optics.faults import Shift
from prismask.training.config import MaskConfig
from prismask.training.data.masks import (
    BEND,
    SPREAD,
    Faults,
    _blurred,
    _moved,
    as_seen,
    chromatic,
    draw_faults,
    stated_spread,
)

OFFSETS = torch.tensor(CASSI.from_step(6).offsets, dtype=torch.float64)
NONE = torch.zeros(1, 1)


def masks(count: int = 1, size: int = 48) -> torch.Tensor:
    return torch.rand(count, 1, size, size, generator=torch.Generator().manual_seed(1))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rms(difference: torch.Tensor) -> torch.Tensor:
    return difference.square().mean((1, 2, 3)).sqrt()


def drawn(count: int = 400, **config: float) -> Faults:
    return draw_faults(masks(count, 16), seeded(), MaskConfig(**{"fault_share": 0.6, **config}))  # type: ignore[arg-type]


def test_a_share_is_wrong_and_small_faults_are_frequent() -> None:
    faults = drawn()
    off = rms(faults.true - faults.nominal)
    assert 0.5 < float((off > 0).float().mean()) <= 0.62
    assert float((off[off > 0] < 0.1).float().mean()) > 0.3
    assert float(off.max()) > 0.25
    original = masks(400, 16)
    told_is_right = rms(faults.nominal - original) == 0
    true_is_right = rms(faults.true - original) == 0
    assert bool((told_is_right | true_is_right).all()), "one of the two is always as it was drawn"
    assert 0.15 < float((~told_is_right).float().mean()) < 0.4
    for mask in (faults.nominal, faults.true):
        assert float(mask.min()) >= 0
        assert float(mask.max()) <= 1


def test_the_seed_decides_and_no_size_is_no_fault() -> None:
    assert torch.equal(drawn().true, drawn().true)
    faults = drawn(fault_size=0.0)
    assert float(rms(faults.true - faults.nominal).max()) < 1e-3  # the value curve's floor
    assert torch.equal(drawn(fault_share=0.0).true, drawn(fault_share=0.0).nominal)


def test_a_moved_mask_is_the_shifted_one() -> None:
    mask, zero = masks(), torch.zeros(1, 1, 1)
    by = torch.full((1, 1, 1), 0.4)
    moved = _moved(mask, (zero, by), zero, (zero, zero))
    torch.testing.assert_close(moved, Shift(columns=-0.4).apply(mask))
    assert torch.equal(_moved(mask, (zero, zero), zero, (zero, zero)), mask)


def test_a_blur_keeps_the_mean_and_lowers_the_contrast() -> None:
    mask = masks()
    std = torch.tensor([0.0, 0.4, 0.9])[:, None, None, None]
    blurred = _blurred(mask.expand(3, -1, -1, -1), std)
    torch.testing.assert_close(blurred[:1], mask)
    contrast = blurred.std((1, 2, 3))
    assert bool((contrast.diff() < 0).all())
    torch.testing.assert_close(blurred.mean((1, 2, 3)), mask.mean().expand(3), atol=5e-3, rtol=0)


def test_errors_of_the_dispersion_stay_small_and_keep_the_lowest_band() -> None:
    faults = drawn(dispersion_share=0.5)
    places = faults.places(OFFSETS)
    error = places - OFFSETS
    is_off = (error != 0).any(1)
    assert 0.2 < float(is_off.float().mean()) < 0.4
    assert float(error[:, 0].abs().max()) == 0
    assert float(error.abs().max()) < (SPREAD + BEND) * 10
    assert bool((places.diff(dim=1) > 0).all())


def test_a_bend_moves_the_middle_by_its_share_and_leaves_the_ends() -> None:
    offsets = torch.tensor([0.0, 5.0, 10.0], dtype=torch.float64)
    faults = Faults(masks(), masks(), NONE, torch.full((1, 1), 0.01))
    torch.testing.assert_close(
        faults.places(offsets) - offsets, torch.tensor([[0.0, 0.1, 0.0]], dtype=torch.float64),
        atol=1e-8, rtol=1e-6,
    )  # fmt: skip


def test_a_lens_is_sharp_where_it_is_in_focus() -> None:
    sharp = masks()
    for focus, best in ((0.1, 0), (0.5, 2), (0.9, 4)):
        seen = chromatic(sharp, 5, focus)
        assert seen.shape == (1, 5, 48, 48)
        torch.testing.assert_close(seen[:, best : best + 1], sharp, atol=1e-6, rtol=0)
        off = (seen - sharp).square().mean((0, 2, 3)).sqrt()
        far = [abs(band - best) for band in range(5)]
        torch.testing.assert_close(off / off.max(), torch.tensor(far) / max(far))


def test_what_is_found_includes_the_dispersion() -> None:
    mask = masks()
    right = Faults(mask, mask, NONE, NONE)
    seen, difference = as_seen(right, OFFSETS)
    torch.testing.assert_close(seen, mask)
    assert float(difference.max()) < 1e-6
    assert as_seen(right, None)[0] is mask
    _, difference = as_seen(Faults(mask, mask, NONE + 0.1, NONE), OFFSETS)
    assert float(difference.mean()) > 0.1


def test_what_is_told_is_about_right_or_nothing() -> None:
    difference = torch.full((500, 1, 12, 12), 0.1)
    difference[:, :, :, 6:] = 0.02
    told = stated_spread(difference, seeded(), 0.7)
    is_told = (told >= 0).flatten(1).all(1)
    assert 0.65 < float(is_told.float().mean()) < 0.75
    assert bool((told[~is_told] < 0).all())
    known = told[is_told]
    is_even = (known.amax((1, 2, 3)) - known.amin((1, 2, 3))) == 0
    assert 0.4 < float(is_even.float().mean()) < 0.6
    level = known.square().mean((1, 2, 3)).sqrt() / rms(difference[:1])
    assert 0.9 < float(level.mean()) < 1.1
    assert 0.15 < float(level.log().std()) < 0.25
    local = known[~is_even]
    assert bool((local[:, :, :, 0] > local[:, :, :, -1]).all()), "a map knows where"
    assert float(stated_spread(torch.zeros(9, 1, 4, 4), seeded(), 1.0).max()) == 0
