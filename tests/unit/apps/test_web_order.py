"""What a visitor asked for is what the library is told, on both ways: to the worker and to it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastapi import UploadFile

from prismask.apps.cli.camera_options import CameraOptions
from prismask.apps.web.uploads import Frames
from prismask.apps.web.work import Order
from prismask.errors import ConfigError

ASKED: dict[str, Any] = {
    "method": "gap-tv", "model": Path("/weights/mine.safetensors"), "samples": 3, "iterations": 7,
    "level": 0.8, "seed": 5, "camera": CameraOptions(bands=8, step=-1.5, axis="height"),
    "device": "cpu", "align": True, "adapt": 4, "noise_std": 0.02, "dark": 0.1, "mask_std": 0.05,
    "bits": 12, "bad_pixels": "none", "check_mask": False,
}  # fmt: skip
BESIDE = {"samples": {}, "iterations": {"method": "gap-tv"}}
"""What an option cannot do without."""


def test_every_field_is_tried() -> None:
    assert list(ASKED) == [field.name for field in fields(Order)]
    usual = Order()
    assert all(getattr(usual, name) != value for name, value in ASKED.items())


@pytest.mark.parametrize("name", ASKED)
def test_an_order_reaches_the_worker_and_the_library(name: str) -> None:
    order = replace(Order(), **BESIDE.get(name, {}), **{name: ASKED[name]})
    again = Order.from_facts(json.loads(json.dumps(order.facts())))
    assert again == order
    if name == "camera":
        assert again.camera.description() == ASKED["camera"].description()
        return
    told = vars(again.options())
    if name == "iterations":
        assert told["method_options"] == (("iterations", 7),)
    else:
        assert told[name] == (str(ASKED[name]) if name == "model" else ASKED[name])
    plain = vars(replace(Order(), **BESIDE.get(name, {})).options())
    changed = {key for key in told if told[key] != plain[key]}
    assert changed == {"method_options" if name == "iterations" else name}


@pytest.mark.parametrize("level", [0.0, 0.1])
def test_a_dark_frame_beside_a_dark_level_is_refused(level: float) -> None:
    frame = UploadFile(BytesIO(b"x"), filename="dark.nc")
    with pytest.raises(ConfigError, match="both say what to subtract"):
        Frames(dark=frame).check(Order(dark=level))
    Frames(dark=frame).check(Order())
    Frames().check(Order(dark=level))
    assert [name for _, _, name in Frames(dark=frame, flat=frame).parts()] == ["dark.nc", "flat.nc"]
    assert [name for _, _, name in Frames(flat=frame).parts()] == ["flat.nc"]
