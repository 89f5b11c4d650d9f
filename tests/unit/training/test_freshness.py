"""Masks and noise are drawn anew at every step, from where the configuration says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from prismask.training.config import MaskConfig
from prismask.training.data.masks import MaskSource

SIZE = (8, 8)


def source(share: float) -> MaskSource:
    """The region is dark and the fabricated masks are bright, so that one sees which it was."""
    region, fabricated = torch.rand(40, 40) / 4, 0.75 + torch.rand(3, 40, 40) / 4
    return MaskSource(region, fabricated, SIZE, replace(MaskConfig(), fabricated_share=share,
                                                        vary=False))  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_that_share_of_the_masks_is_fabricated(share: float) -> None:
    host, device = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    masks = source(share)
    drawn = [float(masks.draw(1, host, device).mean()) > 0.5 for _ in range(400)]
    assert sum(drawn) / len(drawn) == pytest.approx(share, abs=0.06)


def test_masks_come_from_every_place_of_every_plane() -> None:
    """The last row and column and the last plane are as good as any."""
    planes = torch.arange(2 * 10 * 11.0).reshape(2, 10, 11)
    config = replace(MaskConfig(), per="sample", vary=False)
    masks = MaskSource(None, planes, SIZE, config)
    drawn = masks.draw(600, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    corners = {float(mask[0, 0, 0]) for mask in drawn}
    places = {(p, r, c) for p in range(2) for r in range(3) for c in range(4)}
    assert corners == {float(planes[place]) for place in places}
    assert {float(mask[0, -1, -1]) for mask in drawn} >= {float(planes[1, -1, -1])}
