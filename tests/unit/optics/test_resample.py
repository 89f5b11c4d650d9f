"""Reading planes between their pixels."""

from __future__ import annotations

import torch

from prismask.optics.resample import read_further


def test_whole_pixels_are_the_pixels_and_edges_continue() -> None:
    image = torch.arange(12.0).reshape(1, 1, 2, 6)
    read = read_further(image, [0.0, 2.0, -1.0])
    assert read.shape == (1, 3, 2, 6)
    assert torch.equal(read[:, 0], image[:, 0])
    assert read[0, 1, 0].tolist() == [2.0, 3.0, 4.0, 5.0, 5.0, 5.0]
    assert read[0, 2, 1].tolist() == [6.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def test_parabolas_are_read_exactly_each_plane_by_its_own_step() -> None:
    place = torch.arange(20.0, dtype=torch.float64)
    planes = torch.stack([place.square(), 3 * place - 0.1 * place.square()])[None, :, None]
    steps = (0.3, -1.75)
    read = read_further(planes, steps)
    inside = slice(4, -4)
    for plane, step in enumerate(steps):
        at = place + step
        expected = at.square() if plane == 0 else 3 * at - 0.1 * at.square()
        torch.testing.assert_close(read[0, plane, 0, inside], expected[inside])
