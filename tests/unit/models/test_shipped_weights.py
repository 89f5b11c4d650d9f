"""The weights in the package: complete records, honest sizes, a card for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismask.models.catalogue import FOLDER, defaults, load_model, shipped

CARDS = Path(__file__).resolve().parents[3] / "docs" / "models.md"
LOOKS = ["srn-looks.m2m", "srn-looks.o2o", "srn-looks.cameras"]
NAMES = [path.name.removesuffix(".safetensors") for path in sorted(FOLDER.glob("*.safetensors"))]


def test_none_is_damaged_and_one_is_the_default() -> None:
    assert [one.name for one in shipped()] == NAMES
    assert [one.name for one in shipped() if one.is_default] == ["srn-looks.m2m"]
    assert [one.name for one in defaults()] == ["srn-looks.m2m", "srn-looks.cameras"]


@pytest.mark.parametrize("name", NAMES)
def test_records_are_complete(name: str) -> None:
    (one,) = [each for each in shipped() if each.name == name]
    assert one.path.stat().st_size < 5_000_000
    for key in ("data", "masks", "versions", "commit", "seed", "wavelengths_nm", "step_px",
                "protocol", "licence_note", "known_limits", "scores_convention"):  # fmt: skip
        assert one.record.get(key) not in (None, "", {}, []), key
    for kind in ("single", "sampled"):
        about = one.record["interval"][kind]["about"]
        low, mean, high = about["coverage_90_left_out"]
        assert low <= mean <= high
        assert 0.85 < mean < 0.95
    assert load_model(name).bands == 28


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
