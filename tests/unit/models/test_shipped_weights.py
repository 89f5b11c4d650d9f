"""The weights in the package: complete records, honest sizes, a card for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prismask.inference.methods.registry import Choice
from prismask.inference.options import Options
from prismask.models.weights import FOLDER, load_model, shipped
from prismask.optics.camera import CASSI

CARDS = Path(__file__).resolve().parents[3] / "docs" / "models.md"
CALIBRATED = ["lumen.m2m"]
NAMES = [path.name.removesuffix(".safetensors") for path in sorted(FOLDER.glob("*.safetensors"))]


def test_none_is_damaged_and_one_is_the_default() -> None:
    assert [one.name for one in shipped()] == NAMES
    assert [one.name for one in shipped() if one.is_default] == ["lumen.m2m"]


@pytest.mark.parametrize(
    "asked", [{}, {"align": True}, {"samples": 4}, {"samples": 4, "align": True}]
)
def test_the_default_serves_whatever_is_asked_of_it(asked: dict[str, Any]) -> None:
    chosen = Choice(Options(**asked), torch.device("cpu"))
    assert chosen.for_camera(CASSI.from_step()).name == "lumen.m2m"


@pytest.mark.parametrize("name", NAMES)
def test_records_are_complete(name: str) -> None:
    (one,) = [each for each in shipped() if each.name == name]
    assert one.path.stat().st_size < 20_000_000
    for key in ("data", "masks", "versions", "commit", "seed", "wavelengths_nm", "step_px",
                "protocol", "licence_note", "known_limits", "scores_convention"):  # fmt: skip
        assert one.record.get(key) not in (None, "", {}, []), key
    assert load_model(name).bands == 28


@pytest.mark.parametrize("name", CALIBRATED)
def test_intervals_hold_on_scenes_that_were_left_out(name: str) -> None:
    """The targets, of which those of fewer snapshots may miss one by little."""
    (one,) = [each for each in shipped() if each.name == name]
    learned, trust = (one.record["interval"][part] for part in ("learned", "trust"))
    assert set(learned["classes"]) == {"other_cameras", "inconsistent_masks"}
    found, slack = learned["about"]["left_out"]["0.9"]["summary"], 0 if one.is_default else 0.05
    assert 0.88 - slack <= found["mean"] <= 0.93 + slack
    assert found["worst_scene"] >= 0.8 - slack
    assert found["worst_quarter"] >= 0.8 - slack
    assert found["worst_band"] >= 0.78 - slack
    assert found["structures"] >= 0.75 - slack
    assert trust["about"]["right_not_trusted"] <= 0.05 * trust["about"]["right"]


@pytest.mark.skipif(not CARDS.is_file(), reason="the documentation is not beside the tests")
def test_each_has_a_card() -> None:
    text = CARDS.read_text(encoding="utf-8")
    cards = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert sorted(card.split(",")[0] for card in cards) == NAMES
