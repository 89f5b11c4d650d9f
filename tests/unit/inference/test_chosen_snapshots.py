"""Which of many snapshots a check of their mask looks at."""

from __future__ import annotations

import pytest
import torch

from prismask.inference.refinement.check import check_mask
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.randomness import seeded
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import demo_scene

SIZE = (64, 72)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "days"), [(1, [4]), (2, [1, 4]), (3, [1, 3, 4]), (9, [1, 2, 3, 4])]
)
def test_the_first_and_the_last_are_among_them(most: int, days: list[int]) -> None:
    """The newest snapshot is the one that says how the mask is now."""
    numbers = seeded(6)
    mask = fabricate_mask(SIZE, numbers, random_aperture(numbers))
    scene = torch.tensor(demo_scene(SIZE, seed=1).values)[None]
    signal = CASSI.from_step().forward(scene, mask)[0].numpy()
    series = [Measurement(signal, {"date": f"2024-03-0{day}"}) for day in range(1, 5)]
    found = check_mask(series, Mask(mask.numpy()), most=most, device="cpu", check_mask=False)
    assert [shot.date.day for shot in found.dated if shot.date] == days
    assert any("were looked at" in one.text for one in found.findings) == (len(days) < 4)
