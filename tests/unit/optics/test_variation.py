"""Random variation of training masks: what it may do, and that it does all of it."""

from __future__ import annotations

import pytest
import torch

from prismask.errors import ConfigError, ShapeError
from prismask.optics.faults import Variation, vary
from prismask.optics.randomness import seeded

STILL = Variation(turns=False, mirrors=False, shift=0, gamma=1, gain=0)


def test_nothing_asked_is_nothing_done() -> None:
    mask = torch.rand(5, 1, 12, 12, generator=seeded(0))
    assert torch.equal(vary(mask, seeded(1), STILL), mask)


def test_turns_and_mirrors_are_the_eight_of_a_square() -> None:
    mask = torch.rand(1, 1, 8, 8, generator=seeded(0)).expand(200, 1, 8, 8)
    came = vary(mask, seeded(1), Variation(shift=0, gamma=1, gain=0))
    eight = [
        torch.rot90(side, number, dims=(1, 2))
        for side in (mask[0], mask[0].flip(2))
        for number in range(4)
    ]
    counts = [sum(torch.equal(image, wanted) for image in came) for wanted in eight]
    assert sum(counts) == 200
    assert min(counts) >= 10  # 25 expected, standard deviation 4.7


def test_a_mask_that_is_not_square_keeps_its_shape() -> None:
    mask = torch.rand(1, 1, 6, 9, generator=seeded(0)).expand(60, 1, 6, 9)
    came = vary(mask, seeded(1), Variation(shift=0, gamma=1, gain=0))
    sides = [mask[0], mask[0].flip(2), mask[0].flip(1), mask[0].flip(1, 2)]
    counts = [sum(torch.equal(image, wanted) for image in came) for wanted in sides]
    assert sum(counts) == 60
    assert min(counts) >= 5


def test_shifts_stay_below_half_a_pixel_and_differ() -> None:
    ramp = torch.arange(20, dtype=torch.float64).expand(1, 1, 20, 20) / 20
    wanted = Variation(turns=False, mirrors=False, gamma=1, gain=0)
    moved = (vary(ramp.expand(300, 1, 20, 20), seeded(2), wanted) - ramp)[..., 5:15] * 20
    shifts = moved.mean((1, 2, 3))
    torch.testing.assert_close(moved, shifts.reshape(-1, 1, 1, 1).expand_as(moved))
    assert float(shifts.abs().max()) <= 0.5
    assert float(shifts.std()) == pytest.approx(1 / 12**0.5, rel=0.1)


def test_value_curve_and_gain_stay_in_their_ranges() -> None:
    flat = torch.full((500, 1, 2, 2), 0.5, dtype=torch.float64)
    wanted = Variation(turns=False, mirrors=False, shift=0, gamma=1.3, gain=0)
    gammas = vary(flat, seeded(3), wanted)[:, 0, 0, 0].log() / torch.tensor(0.5).log()
    assert float(gammas.min()) >= 1 / 1.3 - 1e-9
    assert float(gammas.max()) <= 1.3 + 1e-9
    assert float((gammas > 1).double().mean()) == pytest.approx(0.5, abs=0.1)
    gains = vary(flat, seeded(3), Variation(False, False, 0, 1, 0.1))[:, 0, 0, 0] / 0.5
    assert float(gains.min()) >= 0.9
    assert float(gains.max()) <= 1.1
    assert float(gains.std()) == pytest.approx(0.2 / 12**0.5, rel=0.1)


def test_every_mask_has_its_own_numbers_and_one_seed_one_batch() -> None:
    mask = torch.rand(1, 3, 10, 10, generator=seeded(0)).expand(4, 3, 10, 10)
    came = vary(mask, seeded(5))
    assert torch.equal(came, vary(mask, seeded(5)))
    assert not torch.equal(came, vary(mask, seeded(6)))
    assert not torch.equal(came[0], came[1])
    assert float(came.min()) >= 0
    assert float(came.max()) <= 1
    # All planes of a mask move and bend together.
    planes = vary(mask[:, :1].expand(4, 3, 10, 10), seeded(5))
    torch.testing.assert_close(planes[:, 0], planes[:, 2])


def test_what_happens_to_a_mask_is_drawn_number_by_number() -> None:
    """Its gain says nothing of its gamma, and how far it moves down nothing of how far right."""
    pair = torch.tensor([0.25, 0.5], dtype=torch.float64).expand(400, 1, 2, 2)
    dim, bright = vary(pair, seeded(4), Variation(False, False, 0, 1.3, 0.1))[:, 0, 0].unbind(1)
    gammas = (bright / dim).log2()
    gains = bright / 0.5**gammas
    ramp = torch.arange(20, dtype=torch.float64).expand(400, 1, 20, 20) / 20
    only_shifts = Variation(turns=False, mirrors=False, gamma=1, gain=0)
    right, down = (
        (vary(image, seeded(4), only_shifts) - image)[..., 5:15, 5:15].mean((1, 2, 3))
        for image in (ramp, ramp.mT)
    )
    together = torch.corrcoef(torch.stack([gammas, gains, right, down]))
    # Of 400 independent pairs: standard deviation 0.05.
    assert float((together - torch.eye(4, dtype=torch.float64)).abs().max()) < 0.25


@pytest.mark.gpu
def test_a_training_step_never_waits_for_the_host() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    generator = seeded(0, "cuda")
    masks = torch.rand(8, 1, 32, 32, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        came = vary(masks, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert came.shape == (8, 1, 32, 32)


@pytest.mark.parametrize("options", [{"shift": -1.0}, {"gamma": 0.5}, {"gain": 1.0}])
def test_impossible_variations_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Variation(**options)  # type: ignore[arg-type]


def test_a_single_image_is_refused() -> None:
    with pytest.raises(ShapeError):
        vary(torch.rand(4, 4))
