"""What is measured about a planted structure, on cubes whose answers are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from prismask.errors import ConfigError
from prismask.evaluation.protocol.spectra import (
    QUICK,
    amplitude_kept,
    features,
    measure,
    peak_position,
)
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube
from prismask.scenes.synthetic import random_scene
from prismask.scenes.synthetic.spectra import Feature, Planted, plant

AT = np.array(WAVELENGTHS_NM)


def _planted(feature: Feature) -> Planted:
    return plant(random_scene(4, (40, 40)), feature, 6)


STRUCTURES = [one for one in QUICK if one.kind != "smooth"]


@pytest.mark.parametrize("feature", STRUCTURES, ids=lambda one: one.name)
def test_the_truth_keeps_everything(feature: Feature) -> None:
    planted = _planted(feature)
    found = measure(Cube(planted.values, AT), planted)
    assert found["kept"] == pytest.approx(1.0)
    assert found["position_nm"] == pytest.approx(0.0, abs=1e-6)
    assert found["found"] == 1.0 or feature.kind == "cosine"
    assert found["sam"] == pytest.approx(0.0, abs=1e-3)
    assert math.isnan(found["inside"])


@pytest.mark.parametrize("feature", STRUCTURES, ids=lambda one: one.name)
def test_a_smooth_cube_keeps_nothing_and_half_a_structure_half(feature: Feature) -> None:
    planted = _planted(feature)
    assert amplitude_kept(planted.smooth, planted) == pytest.approx(0.0, abs=1e-6)
    half = (planted.smooth + planted.values) / 2
    assert amplitude_kept(half, planted) == pytest.approx(0.5)
    assert amplitude_kept(half + 0.3, planted) == pytest.approx(0.5, abs=1e-5)


def test_smooth_scenes_have_no_structure_to_keep() -> None:
    planted = _planted(Feature("smooth"))
    found = measure(Cube(planted.values, AT), planted)
    assert all(math.isnan(found[name]) for name in ("kept", "position_nm", "found"))


def test_a_line_in_the_next_band_is_off_by_their_distance() -> None:
    planted = _planted(Feature("line", 5.0))
    structure = planted.values - planted.smooth
    moved = planted.smooth + np.roll(structure, 1, axis=0)
    top = int(structure[:, planted.where].mean(1).argmax())
    found = measure(Cube(moved, AT), planted)
    assert found["position_nm"] == pytest.approx(AT[top + 1] - AT[top], rel=0.3)
    assert found["kept"] < 0.5


def test_two_dips_that_became_one_are_not_found() -> None:
    planted = _planted(Feature("dips", 30.0))
    middle = sum(planted.centres) / 2
    hollow = np.exp(-0.5 * ((AT - middle) / 25.0) ** 2)[:, None, None]
    merged = planted.smooth * (1 - 0.4 * hollow)
    assert measure(Cube(merged.astype(np.float32), AT), planted)["found"] == 0.0


def test_a_peak_is_found_to_a_fraction_of_a_band() -> None:
    at = np.arange(500.0, 600.0, 10.0)
    curve = np.exp(-0.5 * ((at - 543.0) / 12.0) ** 2)
    assert peak_position(curve, at, 540.0, 25.0) == pytest.approx(543.0, abs=0.5)
    assert math.isnan(peak_position(-curve, at, 540.0, 25.0))
    assert math.isnan(peak_position(np.arange(10.0), at, 540.0, 25.0))


def test_shares_inside_are_counted_at_the_structure_and_band_by_band() -> None:
    planted = _planted(Feature("line", 5.0))
    lower, upper = planted.smooth - 0.01, planted.smooth + 0.01
    found = measure(Cube(planted.smooth, AT, None, lower, upper), planted)
    assert found["inside_feature"] == 0.0
    assert 0.7 < found["inside"] < 1.0
    assert found["inside_worst_band"] < found["inside"]
    assert found["width"] == pytest.approx(0.02 / planted.values.max(), rel=1e-4)
    sure = measure(Cube(planted.smooth, AT, None, lower, upper + 1), planted)
    assert sure["inside"] == sure["inside_feature"] == sure["inside_worst_band"] == 1.0


def test_the_protocol_has_the_structures_it_promises() -> None:
    listed = features()
    assert [one.size for one in listed if one.kind == "line"] == [5, 10, 20, 40]
    lamps = [one.lamp for one in listed if one.kind == "lamp"]
    assert [name for name in lamps if name.startswith("FL")] == [f"FL{k}" for k in range(1, 13)]
    assert [name for name in lamps if name.startswith("HP")] == [f"HP{k}" for k in range(1, 6)]
    assert any(name.startswith("LED") for name in lamps)
    assert {one.kind for one in features(["dips", "laser"])} == {"dips", "laser"}
    with pytest.raises(ConfigError, match="dips"):
        features(["dip"])


def test_no_pixels_of_a_structure_give_no_number() -> None:
    planted = _planted(Feature("line", 5.0))
    empty = replace(planted, where=np.zeros_like(planted.where))
    found = measure(Cube(planted.values, AT), empty)
    assert math.isnan(found["kept"])
    assert math.isnan(found["position_nm"])
