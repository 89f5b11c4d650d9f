"""What cannot be done is refused before anything runs, and nothing is dropped without a word."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import interval_record
from small_lumen import lumen

from prismask.errors import ConfigError, ValuesError
from prismask.inference import reconstruct as single
from prismask.inference.methods import registry as choice
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction, reconstruct
from prismask.models import weights
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

BANDS, SIZE = 6, (32, 40)
CAMERA = CASSI.from_step(BANDS)
GRID = tuple(450.0 + 40 * k for k in range(BANDS))


@pytest.fixture(scope="module")
def mask() -> Mask:
    return Mask(fabricate_mask(SIZE, seeded(0)).numpy())


@pytest.fixture(scope="module")
def shot(mask: Mask) -> Measurement:
    return simulate(random_scene(1, SIZE, GRID), mask, CAMERA, scale=1.0)


def _network(posterior: str = "fixed", calibrated: bool = False) -> Reconstructor:
    """An untrained network."""
    model = create_model("srn", bands=BANDS, mask_posterior=posterior, seed=3, width=8, blocks=1)
    model.record |= {"name": "untrained", "step_px": 2.0}
    if calibrated:
        model.record["interval"] = interval_record()
    return model.eval()


@pytest.fixture
def best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reconstructor:
    """Weights that ship, and are the default."""
    model = _network(calibrated=True)
    record = {**model.record, "name": "best", "default": True}
    save_weights(model, tmp_path / "best.safetensors", record)
    monkeypatch.setattr(choice, "default_weights", lambda: weights.default_weights(tmp_path))
    return model


# --- options that a method does not have ---------------------------------------------------------


def test_a_solver_that_takes_the_networks_place_does_not_learn(
    shot: Measurement, mask: Mask, best: Reconstructor
) -> None:
    assert reconstruct(shot, mask, adapt=1).attrs["adapted_steps"] == 1
    narrow = simulate(random_scene(1, SIZE, GRID), mask, CASSI.from_step(BANDS, 1.0))
    dual = CASSI.from_step(BANDS, design="dual")
    double = simulate(random_scene(1, (SIZE[0], SIZE[1] - dual.extent), GRID), mask, dual)
    for given in (narrow, double):
        assert reconstruct(given, mask).attrs["method"] == "gap-tv"
        for asked in ({"adapt": 3}, {"samples": 2}):
            with pytest.raises(ConfigError, match="gap-tv has no"):
                reconstruct(given, mask, **asked)  # type: ignore[arg-type]  # numbers, both
    with pytest.raises(ConfigError, match="gap-tv has no network to adapt"):
        reconstruct(shot, mask, adapt=3, iterations=2)


def test_a_level_in_percent_is_understood() -> None:
    with pytest.raises(ConfigError, match=r"between 0 and 1\. For 90 % give 0\.9\."):
        Options(level=90)
    with pytest.raises(ConfigError, match=r"between 0 and 1\.$"):
        Options(level=-1)


def test_a_network_that_is_handed_over_is_like_one_by_name(shot: Measurement, mask: Mask) -> None:
    with pytest.raises(ConfigError, match="two ways to reconstruct"):
        reconstruct(shot, mask, model=_network(), method="gap-tv")
    with pytest.raises(ConfigError, match="iterations, tau: options of a solver"):
        reconstruct(shot, mask, model=_network(), tau=8, iterations=3)


# --- intervals -----------------------------------------------------------------------------------


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be computed."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("something ran before the check")

    monkeypatch.setattr(single, "inspect", never)


@pytest.mark.usefixtures("idle")
def test_a_level_that_is_not_stored_is_refused_first(shot: Measurement, mask: Mask) -> None:
    model = _network(calibrated=True)
    for samples in (0, 2):
        with pytest.raises(ConfigError, match="no interval of 85 % is stored; there are 50 %"):
            reconstruct(shot, mask, model=model, level=0.85, samples=samples, adapt=5)
    # Already when a folder is prepared.
    with pytest.raises(ConfigError, match="no interval of 85 % is stored"):
        Reconstruction(Options(level=0.85), model)
    # Quantiles of samples have any level.
    Reconstruction(Options(level=0.85, samples=4), _network())


def test_an_interval_says_that_it_is_of_single_passes(shot: Measurement, mask: Mask) -> None:
    for samples in (0, 2):
        cube = reconstruct(shot, mask, model=_network(calibrated=True), samples=samples)
        assert "90 %, calibrated on 9 snapshots of 3 scenes" in cube.attrs["interval"]
        assert ("fitted to single passes" in cube.attrs["interval"]) == (samples > 0)


def test_an_interval_of_an_older_kind_is_left_out_and_told(shot: Measurement, mask: Mask) -> None:
    model = _network()
    model.record["interval"] = {"single": {"quantiles": {"0.9": 1.0}}}
    cube = reconstruct(shot, mask, model=model)
    assert cube.upper is None
    assert cube.attrs["interval"] == "none: untrained has no error bars"
    assert any("there are no error bars" in text for text in cube.attrs["findings"])


@pytest.mark.filterwarnings("ignore:an interval of 95 %")
def test_an_interval_that_nothing_can_promise_is_left_out_and_told(
    shot: Measurement, mask: Mask
) -> None:
    for how, name in (({"method": "gap-tv"}, "gap-tv"), ({"model": _network()}, "untrained")):
        asked, plain = (reconstruct(shot, mask, **how, **more) for more in ({"level": 0.95}, {}))  # type: ignore[arg-type]
        assert asked.lower is None
        assert asked.attrs["interval"] == f"none: {name} has no error bars"
        told = [text for text in asked.attrs["findings"] if "an interval of 95 %" in text]
        assert [f"{name} has nothing" in text for text in told] == [True]
        assert not any("an interval of" in text for text in plain.attrs["findings"])
    cube = reconstruct(shot, mask, model=_network(calibrated=True), level=0.95)
    assert not any("an interval of" in text for text in cube.attrs["findings"])


# --- masks and numbers ---------------------------------------------------------------------------


def test_a_closed_mask_is_refused_whatever_the_method(shot: Measurement) -> None:
    closed = Mask(np.zeros(SIZE))
    for how in ({"model": _network()}, {"method": "gap-tv"}):
        with pytest.raises(ValuesError, match="the mask lets no light through"):
            reconstruct(shot, closed, **how)  # type: ignore[arg-type]  # of either kind


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_levels_are_numbers(value: float) -> None:
    for name in ("dark", "noise_std"):
        with pytest.raises(ConfigError, match=f"{name} is"):
            Options(**{name: value})  # type: ignore[arg-type]  # one key each
    with pytest.raises(ConfigError, match="a sensor reads 0 or more without light"):
        Options(dark=-0.1)


@pytest.mark.parametrize("size", [(1, 24), (24, 1), (2, 2)])
@pytest.mark.parametrize("axis", ["width", "height"])
def test_a_frame_of_one_line_can_be_aligned_and_learned(size: tuple[int, int], axis: str) -> None:
    """Along a side of one pixel nothing moves."""
    camera = CASSI.from_step(BANDS, axis=axis)  # type: ignore[arg-type]  # a plain str here
    draw = torch.Generator().manual_seed(2)
    code = torch.rand(1, 1, *size, generator=draw)
    snapshot = camera.forward(torch.rand(1, BANDS, *size, generator=draw), code)[0]
    cube = reconstruct(
        Measurement(snapshot.numpy()), Mask(code[0, 0].numpy()), camera, model=lumen(),
        align=True, adapt=1, dark=0.0,
    )  # fmt: skip
    down, right = cube.attrs["mask_pose"][:2]
    assert np.isfinite(cube.values).all()
    assert size[0] > 1 or abs(down) < 1e-6
    assert size[1] > 1 or abs(right) < 1e-6
