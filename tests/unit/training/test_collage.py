"""Joined crops: natural shapes of one in the other, and nothing that neither of them has."""

from __future__ import annotations

import torch

from prismask.training.data.cubes import COLLAGE_NUMBERS, collage


def crops(seed: int, count: int = 3) -> torch.Tensor:
    return torch.rand(count, 4, 6, 8, generator=torch.Generator().manual_seed(seed))


def numbers(count: int = 3, sharpness: float = 0.5) -> torch.Tensor:
    drawn = torch.full((count, *COLLAGE_NUMBERS), sharpness)
    drawn[:, 0] = torch.linspace(0, 0.9, count)
    return drawn


def test_as_many_are_joined_as_asked_for() -> None:
    cube, other = crops(1, 10), crops(2, 10)
    changed = (collage(cube, other, numbers(10), 0.35) != cube).flatten(1).any(1)
    assert changed.tolist() == [True] * 4 + [False] * 6


def test_every_voxel_lies_between_the_two() -> None:
    cube, other = crops(1), crops(2)
    joined = collage(cube, other, numbers(), 1.0)
    assert (joined >= torch.minimum(cube, other) - 1e-6).all()
    assert (joined <= torch.maximum(cube, other) + 1e-6).all()


def test_a_sharp_join_cuts_by_the_brightness_opposite() -> None:
    cube, other = torch.zeros(1, 4, 6, 8), torch.ones(1, 4, 6, 8)
    other[..., :, 4:] = 3.0
    joined = collage(cube, other, numbers(1, sharpness=1.0), 1.0)
    # The bright right half of the other, turned by half a turn, is where the crop stays.
    assert joined[..., :4].max() < 1e-6
    torch.testing.assert_close(joined[..., 4:], other[..., 4:])


def test_a_soft_join_leaves_both_everywhere() -> None:
    cube, other = torch.zeros(1, 4, 6, 8), crops(2, 1) + 1
    seen = collage(cube, other, numbers(1, sharpness=0.0), 1.0) / other
    assert float(seen.min()) > 0.1
    assert float(seen.max()) < 0.9


def test_an_even_crop_gives_no_shape_and_stays_finite() -> None:
    cube, other = crops(1), torch.full((3, 4, 6, 8), 0.25)
    torch.testing.assert_close(
        collage(cube, other, numbers(), 1.0), (cube + other) / 2, atol=1e-3, rtol=0
    )
