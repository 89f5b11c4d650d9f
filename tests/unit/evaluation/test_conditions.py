"""What is wrong with a camera, and that a model is told something else."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from small_workload import BANDS, CAMERA, SIDE

from prismask.errors import ConfigError
from prismask.evaluation.protocol.conditions import (
    FAULT_KINDS,
    MISMATCH,
    RECALIBRATION,
    Situation,
    arrange,
    photograph,
)
from prismask.evaluation.run.cells import Cell
from prismask.optics.camera import CASSI
from prismask.optics.faults import Rotation, Shift

MASK = torch.rand(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
CUBES = torch.rand(2, BANDS, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


def situation(fault: str, size: float, **changes: object) -> Situation:
    cell = dataclasses.replace(Cell("m", "lab", 0, fault, size), **changes)  # type: ignore[arg-type]
    return arrange(cell, MASK, CAMERA, seed=5)


def photo(found: Situation, seeds: tuple[int, ...] = (1, 2)) -> torch.Tensor:
    return photograph(CUBES, found, CAMERA, seeds)


@pytest.mark.parametrize("fault", FAULT_KINDS)
def test_the_neutral_size_changes_nothing_and_others_do(fault: str) -> None:
    exact = CAMERA.forward(CUBES, MASK)
    kind = FAULT_KINDS[fault]
    neutral = photo(situation(fault, kind.neutral))
    assert torch.allclose(neutral, exact, atol=1e-6)
    previous = 0.0
    # Beyond a pixel a random mask is as wrong as it can be, so growth ends there.
    for size in [s for s in kind.sizes if s > kind.neutral][:3]:
        found = situation(fault, size)
        assert torch.equal(found.given, MASK)
        wrong = photo(found)
        assert wrong.shape == exact.shape
        error = float((wrong - exact).abs().mean())
        assert error > previous, "a larger fault is a larger error"
        previous = error


def test_faults_are_the_same_for_all_models_and_differ_between_trials() -> None:
    for fault in ("shift", "mask_noise"):
        one = situation(fault, 0.5)
        assert torch.equal(one.coded, situation(fault, 0.5, model="other").coded)
        assert not torch.equal(one.coded, situation(fault, 0.5, trial=1).coded)


def test_directions_stay_when_the_size_grows() -> None:
    small, large = (situation("mask_noise", size).coded - MASK for size in (0.01, 0.02))
    inside = (MASK > 0.2) & (MASK < 0.8)
    assert torch.allclose(2 * small[inside], large[inside], atol=1e-6)


def test_shift_moves_by_its_size() -> None:
    bump = torch.zeros(1, 1, 33, 33)
    bump[0, 0, 16, 16] = 1.0
    grid = torch.arange(33.0)
    for trial in range(4):
        moved = arrange(Cell("m", "lab", trial, "shift", 1.5), bump, CAMERA, 0).coded[0, 0]
        row = float((moved.sum(1) * grid).sum() / moved.sum()) - 16
        column = float((moved.sum(0) * grid).sum() / moved.sum()) - 16
        assert (row**2 + column**2) ** 0.5 == pytest.approx(1.5, abs=1e-4)


def test_a_mask_turns_either_way() -> None:
    ways = [Rotation(0.7).apply(MASK), Rotation(-0.7).apply(MASK)]
    found = [situation("rotation", 0.7, trial=trial).coded for trial in range(12)]
    taken = [[torch.equal(one, way) for way in ways].index(True) for one in found]
    assert 3 <= sum(taken) <= 9


def test_measurement_noise_counts_in_the_cube_s_range() -> None:
    cubes = torch.full((1, BANDS, 64, 64), 0.5)
    mask = torch.ones(1, 1, 64, 64)
    cell = Cell("m", "lab", 0, "measurement_noise", 0.05)
    found = arrange(cell, mask, CAMERA, 0)
    noise = photograph(cubes, found, CAMERA, [3]) - CAMERA.forward(cubes, mask)
    assert float(noise.std()) == pytest.approx(0.05 * BANDS / 2, rel=0.05)


def test_a_scene_s_noise_does_not_depend_on_its_neighbours() -> None:
    found = situation("measurement_noise", 0.1)
    both = photo(found)
    alone = photograph(CUBES[1:], found, CAMERA, [2])
    assert torch.equal(both[1:], alone)


def test_a_wider_prism_loses_light_at_the_edge_and_a_narrower_one_leaves_it_dark() -> None:
    mask, cubes = torch.ones(1, 1, SIDE, SIDE), torch.ones(1, BANDS, SIDE, SIDE)
    last = CAMERA.measurement_size((SIDE, SIDE))[1] - 1
    for percent in (20.0, -20.0):
        found = arrange(Cell("m", "lab", 0, "dispersion", percent), mask, CAMERA, 0)
        assert found.camera.offsets == pytest.approx(
            tuple((1 + percent / 100) * offset for offset in CAMERA.offsets)
        )
        seen = photograph(cubes, found, CAMERA, [0])
        whole = found.camera.forward(cubes, mask)
        if percent > 0:
            assert float(seen.sum()) < float(whole.sum())
        else:
            assert float(seen[..., last].abs().max()) == 0
            assert float(seen.sum()) == pytest.approx(float(whole.sum()))


def test_a_dual_disperser_s_mask_is_continued() -> None:
    camera = CASSI.from_step(BANDS, 2.0, design="dual")
    mask = torch.rand(1, 1, *camera.mask_size((SIDE, SIDE)))
    for percent in (5.0, -5.0):
        found = arrange(Cell("m", "lab", 0, "dispersion", percent), mask, camera, 0)
        assert photograph(CUBES, found, camera, [0, 1]).shape == (2, SIDE, SIDE)


def test_the_published_case_gives_three_masks() -> None:
    ideal, nominal, true = (
        situation(MISMATCH, 1.0, given=given) for given in ("ideal", "nominal", "true")
    )
    off = Rotation(0.3).apply(Shift(rows=1.0, columns=1.5).apply(MASK))
    assert torch.equal(ideal.coded, MASK)
    assert torch.equal(ideal.given, MASK)
    assert torch.equal(nominal.coded, off)
    assert torch.equal(nominal.given, MASK)
    assert torch.equal(true.coded, off)
    assert torch.equal(true.given, off)


def test_two_calibrations() -> None:
    other = 1 - MASK
    cell = Cell("m", "lab", 0, RECALIBRATION, 1.0, "other calibration")
    found = arrange(cell, MASK, CAMERA, 0, other)
    assert torch.equal(found.coded, MASK)
    assert torch.equal(found.given, other)
    with pytest.raises(ConfigError, match="no second calibration"):
        arrange(cell, MASK, CAMERA, 0)
    with pytest.raises(ConfigError, match="unknown fault"):
        situation("dust", 1.0)
