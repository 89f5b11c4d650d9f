"""Which method runs, in which units, and what the history says; networks are untrained here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prismask
from prismask.errors import ConfigError, ShapeError, ValuesError, WeightsError
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
from prismask.scenes.formats.files import save
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

BANDS = 6
CAMERA = CASSI.from_step(BANDS)
GRID = tuple(450.0 + 40 * k for k in range(BANDS))


@pytest.fixture(scope="module")
def mask() -> Mask:
    return Mask(fabricate_mask((40, 48), seeded(0)).numpy())


@pytest.fixture(scope="module")
def shot(mask: Mask) -> Measurement:
    return simulate(random_scene(1, (40, 48), GRID), mask, CAMERA, scale=1.0)


def _network(posterior: str = "gst", **record: Any) -> Reconstructor:
    """The plain input and no biases: such a network is exactly proportional to its snapshot."""
    model = create_model("srn", bands=BANDS, mask_posterior=posterior, seed=3, width=8, blocks=1)
    model.record |= {"name": "untrained", "step_px": 2.0, **record}
    return model.eval()


def test_it_is_public() -> None:
    assert prismask.reconstruct is reconstruct


def test_files_are_taken_as_well_as_records(tmp_path: Path, shot: Measurement, mask: Mask) -> None:
    save(shot, tmp_path / "shot.nc")
    save(mask, tmp_path / "mask.mat")
    one = reconstruct(tmp_path / "shot.nc", str(tmp_path / "mask.mat"), iterations=2)
    two = reconstruct(shot, mask, iterations=2)
    np.testing.assert_array_equal(one.values, two.values)


@pytest.mark.parametrize("factor", [0.003, 1.0, 200.0])
def test_a_cube_is_in_the_units_of_its_snapshot(
    shot: Measurement, mask: Mask, factor: float
) -> None:
    model = _network()
    plain = reconstruct(Measurement(shot.values), mask, CAMERA, model=model, precision="float32")
    scaled = reconstruct(
        Measurement(factor * shot.values), mask, CAMERA, model=model, precision="float32"
    )
    assert (scaled.attrs["network_gain"] == 1) == (factor == 1)
    np.testing.assert_allclose(
        scaled.values / factor, plain.values, rtol=1e-3, atol=1e-4 * np.abs(plain.values).max()
    )


def test_a_dark_level_is_taken_off_and_noted(shot: Measurement, mask: Mask) -> None:
    offset = np.float32(0.4)
    lifted = Measurement(shot.values + offset)
    found = reconstruct(lifted, mask, CAMERA, iterations=5)
    assert found.attrs["dark_level"] == pytest.approx(offset, abs=0.1)
    assert "dark level" in found.attrs["findings"][0]
    given = reconstruct(lifted, mask, CAMERA, "gap-tv", iterations=5, dark=float(offset))
    plain = reconstruct(Measurement(shot.values), mask, CAMERA, "gap-tv", iterations=5, dark=0.0)
    np.testing.assert_allclose(given.values, plain.values, atol=1e-3)
    assert not [line for line in given.attrs["findings"] if "dark" in line]


def test_samples_give_a_spread_and_its_quantiles(shot: Measurement, mask: Mask) -> None:
    cube = reconstruct(shot, mask, model=_network(), samples=5, seed=2)
    again = reconstruct(shot, mask, model=_network(), samples=5, seed=2)
    other = reconstruct(shot, mask, model=_network(), samples=5, seed=3)
    assert cube.std is not None
    assert cube.lower is not None
    assert cube.upper is not None
    assert (cube.lower <= cube.upper).all()
    assert cube.std.max() > 0
    np.testing.assert_array_equal(cube.std, again.std)
    assert not np.array_equal(cube.std, other.std)
    assert "not calibrated" in cube.attrs["interval"]
    single_pass = reconstruct(shot, mask, model=_network())
    assert single_pass.std is None
    assert single_pass.lower is None


def test_a_solver_and_a_network_without_posterior_have_no_samples(
    shot: Measurement, mask: Mask
) -> None:
    with pytest.raises(ConfigError, match="gap-tv has no mask posterior"):
        reconstruct(shot, mask, method="gap-tv", samples=4)
    with pytest.raises(ConfigError, match="trained without a mask posterior"):
        reconstruct(shot, mask, model=_network("none"), samples=4)


def test_contradictions_are_refused(shot: Measurement, mask: Mask, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(_network(), path, {})
    with pytest.raises(ConfigError, match="two ways"):
        reconstruct(shot, mask, method="gap-tv", model=path)
    with pytest.raises(ConfigError, match="iterations: options of a solver"):
        reconstruct(shot, mask, model=path, iterations=3)
    for wrong in ({"samples": 1}, {"level": 1.5}, {"precision": "double"}, {"noise_std": -1.0}):
        with pytest.raises(ConfigError):
            Options(**wrong)  # type: ignore[arg-type]  # one key each


def test_another_architecture_or_damage_is_named(
    shot: Measurement, mask: Mask, tmp_path: Path
) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(_network(), path, {})
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(WeightsError, match="damaged"):
        reconstruct(shot, mask, model=path)


def test_bad_input(mask: Mask, shot: Measurement) -> None:
    with pytest.raises(ValuesError, match="NaN"):
        Measurement(np.where(shot.values > 1, np.nan, shot.values))
    with pytest.raises(ShapeError, match="need a measurement of 40×102"):
        reconstruct(Measurement(shot.values[:, :-3]), mask)
    with pytest.raises(ShapeError, match="smaller than the scene"):
        reconstruct(shot, Mask(mask.values[:30, :40]), CAMERA)


def test_no_weights_ship_yet_and_then_they_do(
    shot: Measurement, mask: Mask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "default_weights", lambda: None)
    assert reconstruct(shot, mask, CAMERA).attrs["method"] == "gap-tv"
    save_weights(_network(), tmp_path / "best.safetensors", {"name": "best", "default": True})
    monkeypatch.setattr(choice, "default_weights", lambda: weights.default_weights(tmp_path))
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    chosen = reconstruct(shot, mask, CAMERA)
    assert chosen.attrs["method"] == "network"
    assert chosen.attrs["model"] == "best"
    # Options of a solver ask for one.
    assert reconstruct(shot, mask, CAMERA, iterations=2).attrs["method"] == "gap-tv"


@pytest.fixture
def best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights that ship, and are the default."""
    record = {"name": "best", "default": True, "step_px": 2.0}
    save_weights(_network(), tmp_path / "best.safetensors", record)
    monkeypatch.setattr(choice, "default_weights", lambda: weights.default_weights(tmp_path))
    return tmp_path / "best.safetensors"


def test_out_of_its_depth_the_default_network_gives_way(mask: Mask, best: Path) -> None:
    narrow = CASSI.from_step(BANDS, 1.0)
    far = simulate(random_scene(1, (40, 48), GRID), mask, narrow)
    cube = reconstruct(far, mask)
    assert cube.attrs["method"] == "gap-tv"
    assert "gap-tv is used" in " ".join(cube.attrs["findings"])
    # It would be wrong everywhere, so it is not for those who insist either.
    with pytest.raises(ConfigError, match="best serves the cameras of its training only"):
        reconstruct(far, mask, model=best)


def test_behind_two_dispersers_the_default_network_gives_way(mask: Mask, best: Path) -> None:
    dual = CASSI.from_step(BANDS, design="dual")
    small = random_scene(1, (40, 48 - dual.extent), GRID)
    double = simulate(small, mask, dual)
    cube = reconstruct(double, mask)
    assert cube.attrs["method"] == "gap-tv"
    assert "two dispersers" in " ".join(cube.attrs["findings"])
    with pytest.raises(ConfigError, match="no network fits this camera"):
        reconstruct(double, mask, align=True)
    with pytest.raises(ConfigError, match=r"this one is another: it has two dispersers\."):
        reconstruct(double, mask, model=best)


def test_the_history_is_complete(shot: Measurement, mask: Mask) -> None:
    cube = reconstruct(shot, mask, model=_network(sha256="abc"))
    keys = (
        "made_by", "model", "weights_sha256", "mask_hash", "measurement_hash", "versions",
        "units", "residual", "noise_std", "precision", "network_gain", "recipe",
    )  # fmt: skip
    for key in keys:
        assert key in cube.attrs, key
    assert cube.attrs["weights_sha256"] == "abc"


def test_what_a_solver_chose_is_told(shot: Measurement, mask: Mask) -> None:
    cube = reconstruct(shot, mask, CAMERA, method="twist", iterations=2)
    assert cube.attrs["method"] == "twist"
    assert "noise=" in cube.attrs["method_chosen"]
    assert "weight=" in cube.attrs["method_chosen"]
    stated = reconstruct(shot, mask, CAMERA, method="gap-tv", iterations=2, noise=0.0)
    assert "method_chosen" not in stated.attrs


def test_a_recipe_is_the_same_only_for_the_same_result(shot: Measurement, mask: Mask) -> None:
    base = Options(samples=4)
    network = _network(sha256="abc")

    def recipe(settings: Options = base, model: Reconstructor = network, **changed: Any) -> str:
        given = {"measurement": shot, "mask": mask, "camera": CAMERA, "at": GRID, **changed}
        return Reconstruction(settings, model).recipe(**given)

    assert recipe() == recipe()
    assert recipe(replace(base, device="cpu")) == recipe(), "a device is not a result"
    others = [
        recipe(replace(base, samples=5)),
        recipe(replace(base, seed=1)),
        recipe(replace(base, dark=0.1)),
        recipe(model=_network(sha256="abd")),
        recipe(mask=Mask(mask.values * 0.5)),
        recipe(measurement=Measurement(shot.values * 0.5)),
        recipe(camera=CASSI.from_step(BANDS, -2)),
        recipe(at=None),
    ]
    assert len({recipe(), *others}) == len(others) + 1
