"""Which cameras a network of fixed bands serves: those of its training, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from prismask.errors import ConfigError
from prismask.evaluation.run.runner import evaluate
from prismask.inference import reconstruct as single
from prismask.inference.camera_match import CameraMatch, match_camera
from prismask.inference.reconstruct import reconstruct
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import Variation, trained_with
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded
from prismask.optics.varied_prism import PrismFamily
from prismask.scenes.records import Cube, Mask

OWN = CASSI.from_step(28)
MANY: dict[str, Any] = {"spread": [0.6, 1.1], "bend": 0.1}
"""What the record of a network says that learned behind spectra of these lengths and bends."""


def uneven(first: float, last: float, bands: int = 28) -> CASSI:
    """A prism whose bands lie `first` px apart at one end and `last` px at the other."""
    return CASSI((0.0, *np.cumsum(np.linspace(first, last, bands - 1)).tolist()))


def match(camera: CASSI, trained: CASSI = OWN, **more: Any) -> CameraMatch:
    return match_camera(camera, {"backbone": "srn", "bands": 28, **trained_with(trained), **more})


@pytest.mark.parametrize(
    ("camera", "differs"),
    [
        (OWN, ""),
        (CASSI.from_step(28, -2), ""),
        (CASSI.from_step(28, 2, "height"), ""),
        (CASSI.from_step(28, -2, "height"), ""),
        (CASSI.from_step(28, 2.015), ""),  # as a calibration finds it: 0.4 px at the last band
        (CASSI.from_step(28, 2.03), "its bands land up to 0.81 px from their places in training"),
        (CASSI.from_step(28, 1.5), "up to 14 px"),
        (CASSI.from_step(28, 3), "up to 27 px"),
        (CASSI.from_step(27), "it has 27 bands, not 28"),
        (CASSI.from_step(54, 1), "it has 54 bands, not 28"),
        (uneven(2.6, 1.4), "bands land up to"),
        (CASSI.from_step(28, 2, design="dual"), "it has two dispersers"),
        (CASSI.from_step(31, 2, design="dual"), "two dispersers and it has 31 bands, not 28"),
    ],
)
def test_it_serves_the_camera_of_its_training_turned_any_way(camera: CASSI, differs: str) -> None:
    found = match(camera)
    assert found.is_within_reach == (not differs)
    assert differs in " and ".join(found.beyond)
    if not differs:
        found.check("mine")
        return
    with pytest.raises(ConfigError) as raised:
        found.check("mine")
    said = str(raised.value)
    assert said.startswith("mine serves the cameras of its training only, and this one is another:")
    assert differs in said
    assert "lumen.m2m" in said
    assert "--method gap-tv" in said


@pytest.mark.parametrize(
    ("camera", "another"),
    [
        (OWN, False),
        (CASSI.from_step(28, -2), False),
        (CASSI.from_step(28, 2, "height"), False),
        (CASSI.from_step(28, 2.003), False),  # the last band lands 0.08 px further
        (CASSI.from_step(28, 2.015), True),
        (uneven(2.02, 1.98), True),
    ],
)
def test_within_it_a_camera_may_still_be_another(camera: CASSI, another: bool) -> None:
    assert match(camera).is_other_camera is another
    assert match(camera).is_within_reach


def test_a_family_of_the_training_is_served() -> None:
    prisms = PrismFamily(OWN, (0.6, 1.1), 0.1, 0.0)
    for seed in range(20):
        camera = prisms.draw(seeded(seed))
        assert match(camera, **MANY).is_within_reach
        assert match(camera, **MANY).mismatch == pytest.approx(1, abs=1e-6)
    assert any(not match(prisms.draw(seeded(seed))).is_within_reach for seed in range(20))
    assert not match(CASSI.from_step(28, 1.1), **MANY).is_within_reach
    assert not match(CASSI.from_step(28, 2.3), **MANY).is_within_reach
    assert not match(uneven(3.5, 0.5), **MANY).is_within_reach


def test_a_prism_of_its_own_is_its_camera() -> None:
    prism = uneven(2.6, 1.4)
    assert match(prism, prism).is_within_reach
    assert not match(OWN, prism).is_within_reach
    back = CASSI((0.0, 4.0, 2.0, 6.0))  # bands that turn back
    record = {"backbone": "srn", "bands": 4, **trained_with(back)}
    assert match_camera(back, record).is_within_reach
    assert not match_camera(CASSI.from_step(4), record).is_within_reach


def test_where_nothing_is_known_of_the_training_bands_alone_tell() -> None:
    record = {"backbone": "srn", "bands": 28}
    for camera in (CASSI.from_step(28, 3), CASSI.from_step(28, 2, design="dual")):
        assert match_camera(camera, record).is_within_reach
    assert not match_camera(CASSI.from_step(27), record).is_within_reach


@pytest.mark.parametrize(
    ("spread", "factor", "nearest"),
    [
        ((0.6, 1.1), 0.8, 0.8),
        ((0.6, 1.1), 0.5, 0.6),
        ((0.6, 1.1), 3.0, 1.1),
        ((0.3, 0.5), 0.6, 0.5),  # nothing between its cameras and that of the record is known
        ((0.3, 0.5), 0.75, 1.0),
        ((0.3, 0.5), 2.0, 1.0),
        ((1.2, 1.5), 1.03, 1.0),
        ((0.6, 1.1), 0.0, 0.6),
    ],
)
def test_the_nearest_that_it_knows(
    spread: tuple[float, float], factor: float, nearest: float
) -> None:
    assert Variation(spread).nearest_spread(factor) == nearest


# --- who says so ----------------------------------------------------------------------------------


@pytest.fixture
def network() -> Reconstructor:
    model = create_model("srn", bands=6, seed=3, width=8, blocks=1).eval()
    model.record |= {**trained_with(CASSI.from_step(6)), "name": "mine"}
    return model


def test_reconstruct_refuses_before_anything_runs(
    network: Reconstructor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("something ran before the check")

    monkeypatch.setattr(single, "inspect", never)
    camera, mask = CASSI.from_step(8), torch.rand(1, 1, 24, 30, generator=seeded(1))
    shot = camera.forward(torch.rand(1, 8, 24, 30, generator=seeded(2)), mask)[0]
    with pytest.raises(ConfigError, match=r"it has 8 bands, not 6.*Leave model out for lumen"):
        reconstruct(shot, mask[0], camera, model=network)


def test_evaluate_refuses_before_anything_runs(network: Reconstructor) -> None:
    scene = Cube(torch.rand(6, 24, 30, generator=seeded(2)).numpy())
    masks = {"masks": Mask(torch.rand(24, 30, generator=seeded(1)).numpy())}
    how: dict[str, Any] = {"scenes": {"a": scene}, "masks": masks, "trials": 1, "timing": False}
    assert evaluate({"it": network}, camera=CASSI.from_step(6), **how).ok
    with pytest.raises(ConfigError, match=r"it serves the cameras.*land up to 5 px from"):
        evaluate({"it": network}, camera=CASSI.from_step(6, 3.0), **how)
