"""The weights in the package: complete records, honest sizes, a card for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismask.inference.methods.registry import able
from prismask.inference.options import Options
from prismask.models.weights import FOLDER, defaults, load_model, shipped

CARDS = Path(__file__).resolve().parents[3] / "docs" / "models.md"
LOOKS = ["srn-looks.m2m", "srn-looks.o2o", "srn-looks.cameras"]
NAMES = [path.name.removesuffix(".safetensors") for path in sorted(FOLDER.glob("*.safetensors"))]


def test_none_is_damaged_and_one_is_the_default() -> None:
    assert [one.name for one in shipped()] == NAMES
    assert [one.name for one in shipped() if one.is_default] == ["lumen.m2m"]
    assert [one.name for one in defaults()] == ["lumen.m2m", "srn-looks.cameras", "srn-looks.m2m"]


def test_aligned_and_drawn_masks_are_left_to_the_network_that_makes_most_of_right_ones() -> None:
    assert [one.name for one in able(defaults(), Options())] == ["lumen.m2m", "srn-looks.cameras"]
    for options in (Options(samples=4), Options(align=True)):
        chosen = able(defaults(), options)
        assert [one.name for one in chosen] == ["srn-looks.m2m", "srn-looks.cameras"]
    assert all(load_model(one.name).posterior.is_random for one in chosen)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_complete(name: str) -> None:
    (one,) = [each for each in shipped() if each.name == name]
    assert one.path.stat().st_size < 20_000_000
    for key in ("data", "masks", "versions", "commit", "seed", "wavelengths_nm", "step_px",
                "protocol", "licence_note", "known_limits", "scores_convention"):  # fmt: skip
        assert one.record.get(key) not in (None, "", {}, []), key
    assert load_model(name).bands == 28


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("lumen")])
def test_intervals_hold_on_scenes_that_were_left_out(name: str) -> None:
    (one,) = [each for each in shipped() if each.name == name]
    for kind in ("single", "sampled"):
        about = one.record["interval"][kind]["about"]
        low, mean, high = about["coverage_90_left_out"]
        assert low <= mean <= high
        assert 0.85 < mean < 0.95


def test_a_learned_interval_holds_on_scenes_that_were_left_out() -> None:
    (one,) = [each for each in shipped() if each.is_default]
    stored = one.record["interval"]
    scores = stored["learned"]["about"]["left_out"]["0.9"]
    by_scene = list(scores["scenes"].values())
    assert 0.88 <= sum(by_scene) / len(by_scene) <= 0.935
    assert min(by_scene) >= 0.8
    assert min(scores["worst_bands"].values()) >= 0.78
    assert min(scores["structures"].values()) >= 0.75
    assert stored["trust"]["about"]["right_not_trusted"] <= 0.05 * stored["trust"]["about"]["right"]


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize(
    ("kind_of", "group", "near"),
    [("other_cameras", "cameras", 0.01), ("doubted_masks", "scenes", 0.02)],  # 24, and 6
)
def test_its_interval_knows_other_cameras_and_doubted_masks(
    name: str, kind_of: str, group: str, near: float
) -> None:
    (one,) = [each for each in shipped() if each.name == name]
    for kind in ("single", "sampled"):
        stored = one.record["interval"][kind]
        size = stored["classes"][kind_of]
        for level, q in size["quantiles"].items():
            assert q > stored["quantiles"][level]
            low, mean, high = size["about"][f"left_out_{group}"][level]
            assert low <= mean <= high
            assert mean == pytest.approx(float(level), abs=near)


@pytest.mark.parametrize("name", LOOKS)
def test_it_finds_wrong_masks_out_and_leaves_right_ones_alone(name: str) -> None:
    (one,) = [each for each in shipped() if each.name == name]
    about = one.record["interval"]["single"]["classes"]["doubted_masks"]["about"]
    # A third of the faults are of the dispersion, and the least of these are a tenth of a pixel.
    assert about["doubted"] > 0.7 * about["wrong"]
    assert about["right_doubted"] <= 0.02 * about["right"]


@pytest.mark.skipif(not CARDS.is_file(), reason="the documentation is not beside the tests")
def test_each_has_a_card() -> None:
    text = CARDS.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"\n## {name}" in text
