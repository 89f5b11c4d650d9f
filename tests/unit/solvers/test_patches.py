"""Groups of patches: planted copies are found, untouched patches give the image back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.solvers.desci import (
    Matching,
    change_groups,
    match_patches,
    reference_positions,
    tile_for,
)

SIZES = [(24, 24), (23, 31), (5, 17), (4, 4)]


def image(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [4, 5, 11, 12, 13])
def test_references_cover_an_axis(size: int) -> None:
    starts = reference_positions(size, 4, 3, torch.device("cpu")).tolist()
    assert starts[0] == 0
    assert starts[-1] == size - 4
    assert len(set(starts)) == len(starts)
    assert {start + k for start in starts for k in range(4)} == set(range(size))


def test_planted_copies_are_found() -> None:
    guide = image(2, 3, 30, 32)
    stamp = image(3, 4, 4, seed=1)
    places = {0: [(8, 8), (3, 10), (13, 5), (10, 14)], 1: [(8, 8), (2, 2), (14, 14), (8, 3)]}
    for sample, corners in places.items():
        for row, column in corners:
            guide[sample, :, row : row + 4, column : column + 4] = stamp
    matching = Matching(patch=4, stride=4, group=4, radius=6)
    found = match_patches(guide, matching)
    reference = 2 * 8 + 2  # row 8, column 8 on a grid of 8 columns
    for sample, corners in places.items():
        assert set(found[sample, reference].tolist()) == {r * 32 + c for r, c in corners}


def test_matching_equals_a_plain_search() -> None:
    guide = image(1, 2, 15, 18)
    matching = Matching(patch=3, stride=3, group=5, radius=4)
    found = match_patches(guide, matching)[0]
    rows, columns = (reference_positions(n, 3, 3, guide.device).tolist() for n in (15, 18))
    references = [(row, column) for row in rows for column in columns]
    assert len(found) == len(references)
    for (row, column), group in zip(references, found, strict=True):
        own = guide[0, :, row : row + 3, column : column + 3]
        distances = {}
        for r in range(max(0, row - 4), min(12, row + 4) + 1):
            for c in range(max(0, column - 4), min(15, column + 4) + 1):
                other = guide[0, :, r : r + 3, c : c + 3]
                distances[r * 18 + c] = float((own - other).square().sum())
        want = sorted(distances, key=distances.__getitem__)[:5]
        assert group.tolist() == want


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tile", [None, 1, 7])
def test_untouched_patches_give_the_image_back(size: tuple[int, int], tile: int | None) -> None:
    cube = image(2, 5, *size)
    matching = Matching(patch=4, stride=3, group=6, radius=5).fitted(*size)
    corners = match_patches(cube, matching)
    same = change_groups(cube, corners, matching.patch, lambda groups, _: groups, tile)
    torch.testing.assert_close(same, cube)
    assert corners.min() >= 0
    last = (size[0] - matching.patch) * size[1] + size[1] - matching.patch
    assert corners.max() <= last


def test_tiles_change_nothing_but_memory() -> None:
    cube = image(2, 4, 20, 22)
    matching = Matching(patch=4, stride=3, group=8, radius=5)
    corners = match_patches(cube, matching)
    seen: list[int] = []

    def change(groups: Tensor, samples: Tensor) -> Tensor:
        seen.append(len(groups))
        return groups.mean(1, keepdim=True).expand_as(groups) * (1 + samples[:, None, None, None])

    whole = change_groups(cube, corners, 4, change)
    assert seen == [2 * corners.shape[1]]
    seen.clear()
    parts = change_groups(cube, corners, 4, change, tile=5)
    torch.testing.assert_close(parts, whole)
    assert max(seen) == 5
    assert sum(seen) == 2 * corners.shape[1]


def test_where_all_is_alike_every_pixel_still_has_its_patch() -> None:
    flat = torch.full((1, 2, 20, 20), 0.5)
    matching = Matching(patch=4, stride=4, group=3, radius=6)
    corners = match_patches(flat, matching)
    assert torch.equal(change_groups(flat, corners, 4, lambda groups, _: groups), flat)


def test_overlaps_are_averaged() -> None:
    cube = torch.zeros(1, 1, 2, 3)
    corners = torch.tensor([[[0], [1]]])  # two patches of 2×2 that share the middle column
    values = iter((1.0, 3.0))
    found = change_groups(cube, corners, 2, lambda g, _: torch.full_like(g, next(values)), tile=1)
    torch.testing.assert_close(found[0, 0], torch.tensor([[1.0, 2.0, 3.0]] * 2))


def test_a_tile_stays_within_its_memory() -> None:
    matching = Matching(patch=6, stride=4, group=24, radius=10)
    tile = tile_for(256, matching, bands=28, itemsize=4)
    held = tile * 24 * 36 * 28 * 4
    assert 4 * held <= 256 * 2**20 < 5 * held
    assert tile_for(1e-6, matching, 28, 4) == 1


def test_impossible_matchings_are_refused() -> None:
    for options, message in (
        ({"patch": 0}, "patch is 0"),
        ({"stride": 7}, "belong to none"),
        ({"group": 0}, "group"),
        ({"radius": -1}, "radius"),
    ):
        with pytest.raises(ConfigError, match=message):
            Matching(**options)
    with pytest.raises(ShapeError, match="too small"):
        match_patches(image(1, 1, 5, 20), Matching())
    assert Matching().fitted(5, 20) == Matching(5, 4, 11, 10)
