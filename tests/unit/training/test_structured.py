"""Lamps with lines, narrow bands and single lines over crops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prismask.scenes.colour import lamp_in_bands
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.training.config import DataConfig
from prismask.training.data.cubes import HELD_OUT, STRUCTURED_NUMBERS, StructuredLight

KINDS = ("lamps", "narrow_bands", "laser_lines")


def crops(count: int) -> torch.Tensor:
    grey = torch.rand(count, 1, 12, 14, generator=torch.Generator().manual_seed(1)) * 0.7
    return grey * torch.linspace(0.8, 1, 28)[:, None, None]


def numbers(count: int) -> torch.Tensor:
    return torch.rand(count, *STRUCTURED_NUMBERS, generator=torch.Generator().manual_seed(2))


def lit(count: int = 200, **shares: float) -> torch.Tensor:
    config = DataConfig(**shares)  # type: ignore[arg-type]
    return StructuredLight(WAVELENGTHS_NM, config).light(crops(count), numbers(count))


def roughness(cube: torch.Tensor) -> torch.Tensor:
    """Mean step between neighbouring bands of a crop's mean spectrum."""
    return cube.mean((-2, -1)).diff(dim=1).abs().mean(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_share_of_the_crops_is_changed_and_keeps_its_exposure(kind: str) -> None:
    before, after = crops(200), lit(**{kind: 0.3})
    changed = (before != after).flatten(1).any(1)
    assert 0.2 < float(changed.float().mean()) < 0.4
    assert float(after.min()) >= 0
    torch.testing.assert_close(after.amax((1, 2, 3)), before.amax((1, 2, 3)))
    assert float(roughness(after)[changed].mean()) > 2 * float(roughness(before).mean())


def test_nothing_is_changed_by_shares_of_none() -> None:
    torch.testing.assert_close(lit(), crops(200))


def test_a_lamp_is_one_of_the_table_and_some_are_never_shown() -> None:
    light = StructuredLight(WAVELENGTHS_NM, DataConfig(lamps=1.0))
    given = numbers(3000)
    given[:, 2] = 0  # nothing smooth mixed in
    shown = light._lamp(given.double())
    for name in ("FL12", "HP3", "LED-RGB1"):
        lamp = torch.from_numpy(np.asarray(lamp_in_bands(name, WAVELENGTHS_NM)))
        assert bool(torch.isclose(shown, lamp).all(1).any()), name
    for name in HELD_OUT:
        lamp = torch.from_numpy(np.asarray(lamp_in_bands(name, WAVELENGTHS_NM)))
        assert not bool(torch.isclose(shown, lamp).all(1).any()), name


def test_a_single_line_falls_into_one_or_two_bands() -> None:
    line = StructuredLight(WAVELENGTHS_NM, DataConfig(laser_lines=1.0))._line(numbers(300).double())
    assert int((line > 1e-3).sum(1).max()) <= 3
    assert float(line.sum(1).max()) <= 1.0 + 1e-6


def test_narrow_bands_are_as_deep_as_they_are_drawn() -> None:
    light = StructuredLight(WAVELENGTHS_NM, DataConfig(narrow_bands=1.0))
    kept = light._bands(numbers(500).double())
    assert float(kept.min()) >= 0
    assert float(kept.max()) <= 1.001
    assert 0.2 < float(kept.mean()) < 0.6
