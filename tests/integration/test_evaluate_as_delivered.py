"""`evaluate` scores what `reconstruct` delivers, whatever the camera."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismask.errors import ConfigError
from prismask.evaluation.metrics import score_cubes
from prismask.evaluation.run.runner import evaluate
from prismask.inference.reconstruct import reconstruct
from prismask.models.registry import create_model
from prismask.models.weights import load_model, save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

# Numbers are compared here, behind cameras that networks are warned about.
pytestmark = pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")

BANDS, SIZE = 8, (40, 48)
SAME_DB = 1e-3
"""Rounding: two cubes that differ in their last digits."""


def prism(bands: int, first: float, last: float) -> CASSI:
    return CASSI((0.0, *np.cumsum(np.linspace(first, last, bands - 1)).tolist()))


CAMERAS = {
    "usual": CASSI.from_step(BANDS),
    "along the height": CASSI.from_step(BANDS, axis="height"),
    "to the left": CASSI.from_step(BANDS, -2.0),
    "up": CASSI.from_step(BANDS, -2.0, axis="height"),
    "3 px": CASSI.from_step(BANDS, 3.0),
    "1.5 px": CASSI.from_step(BANDS, 1.5),
    "irregular": prism(BANDS, 2.9, 1.1),
    "11 bands": CASSI.from_step(11),
    "5 bands, 3 px": CASSI.from_step(5, 3.0),
    "dual": CASSI.from_step(BANDS, design="dual"),
    "dual, to the left": CASSI.from_step(BANDS, -2.0, design="dual"),
}
FAMILY = ("usual", "along the height", "to the left", "up")
"""Those that a network of fixed bands serves, turned."""
METHODS = ("network", "any camera", "told mask errors", "gap-tv", "callable")


def spread(measurement: torch.Tensor, mask: torch.Tensor, camera: CASSI) -> torch.Tensor:
    return camera.spread(measurement, mask)


def small_network() -> Any:
    model = create_model("srn+", bands=BANDS, width=8, blocks=1, seed=3)
    model.record |= {"name": "small", "step_px": 2.0, "sha256": "untrained"}
    return model.eval()


def any_camera_network() -> Any:
    """One that works from the snapshot, with nothing said about where it was trained."""
    model = create_model("lumen", bands=BANDS, width=8, stages=2, cosines=8, seed=3)
    model.record |= {"name": "any", "sha256": "untrained"}
    return model.eval()


def scenes_for(camera: CASSI, size: tuple[int, int], count: int = 3) -> dict[str, Cube]:
    """Scenes of common brightness, one that is far too dark for a network, and one too bright."""
    usual = np.asarray(WAVELENGTHS_NM)
    at = np.interp(np.linspace(0, 27, camera.bands), np.arange(28), usual)
    exposures = (1.0, 0.02, 9.0)
    found = {}
    for number in range(count):
        cube = random_scene(number, size, tuple(at))
        found[f"scene{number}"] = Cube(cube.values * np.float32(exposures[number]), at)
    return found


def mask_for(camera: CASSI, size: tuple[int, int]) -> Mask:
    generator = torch.Generator().manual_seed(5)
    values = fabricate_mask(camera.mask_size(size), generator, random_aperture(generator))
    return Mask(values.numpy())


def scores_of_evaluate(
    model: Any, scenes: dict[str, Cube], mask: Mask, camera: CASSI, **options: Any
) -> dict[str, float]:
    found = evaluate(
        {"it": model}, scenes=scenes, masks={"masks": mask}, camera=camera, trials=1,
        metrics=("psnr_paper",), timing=False, precision="float32", **options,
    )  # fmt: skip
    return {row["scene"]: float(row["value"]) for row in found.rows()}


def scores_of_reconstruct(
    given: dict[str, Any], scenes: dict[str, Cube], mask: Mask, camera: CASSI
) -> dict[str, float]:
    found = {}
    for name, cube in scenes.items():
        signal = camera.forward(torch.tensor(cube.values)[None], torch.tensor(mask.values))[0]
        shot = Measurement(signal.numpy())
        made = reconstruct(shot, mask, camera, precision="float32", **given)
        found[name] = score_cubes(made, cube)["psnr_paper"]
    return found


def check_equal(first: dict[str, float], second: dict[str, float]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert math.isfinite(value)
        assert value == pytest.approx(second[name], abs=SAME_DB), name


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CAMERAS)
def test_evaluate_scores_what_reconstruct_delivers(name: str, method: str) -> None:
    camera = CAMERAS[name]
    model: Any
    told: dict[str, Any] = {"mask_std": 0.1} if method == "told mask errors" else {}
    if method == "gap-tv":
        model, given = "gap-tv:iterations=5", {"method": "gap-tv", "iterations": 5}
    elif method == "callable":
        model, given = spread, {"method": spread}
    elif method in ("any camera", "told mask errors"):
        model = any_camera_network()
        given = {"model": model, **told}
    else:
        model = small_network()
        given = {"model": model}
    scenes, mask = scenes_for(camera, SIZE), mask_for(camera, SIZE)
    if method == "network" and name not in FAMILY:
        for scores in (
            lambda: scores_of_evaluate(model, scenes, mask, camera),
            lambda: scores_of_reconstruct(given, scenes, mask, camera),
        ):
            with pytest.raises(ConfigError, match="serves the cameras of its training only"):
                scores()
        return
    scored = scores_of_evaluate(model, scenes, mask, camera, **told)
    check_equal(scored, scores_of_reconstruct(given, scenes, mask, camera))


def test_weights_may_be_told_something_of_their_own(tmp_path: Path) -> None:
    weights = tmp_path / "any.safetensors"
    save_weights(any_camera_network(), weights, {"name": "any"})
    camera = CAMERAS["usual"]
    scenes, mask = scenes_for(camera, SIZE), mask_for(camera, SIZE)
    scored = scores_of_evaluate(f"{weights}:mask_std=0.1", scenes, mask, camera)
    given = {"model": str(weights), "mask_std": 0.1}
    check_equal(scored, scores_of_reconstruct(given, scenes, mask, camera))
    for wrong in ("mask_std=2", "mask_std=map.nc", "mask_std=true"):
        with pytest.raises(ConfigError, match="mask_std"):
            scores_of_evaluate(f"{weights}:{wrong}", scenes, mask, camera)


def test_what_a_mask_brings_along_is_said_not_to_count() -> None:
    camera = CAMERAS["usual"]
    scenes, mask = scenes_for(camera, SIZE, 1), mask_for(camera, SIZE)
    uncertain = replace(mask, std=0.1 * mask.values)
    found = evaluate(
        {"it": any_camera_network()}, scenes=scenes, masks={"masks": uncertain}, camera=camera,
        trials=1, metrics=("psnr_paper",), timing=False,
    )  # fmt: skip
    assert any("The mask_std that masks brings along is not used" in r for r in found.plan.remarks)


SHIPPED = {
    "usual": CASSI.from_step(),
    "along the height": CASSI.from_step(axis="height"),
    "to the left": CASSI.from_step(step=-2.0),
    "3 px": CASSI.from_step(step=3.0),
    "1.5 px": CASSI.from_step(step=1.5),
    "irregular": prism(28, 2.6, 1.4),
    "31 bands": CASSI.from_step(31),
    "16 bands": CASSI.from_step(16),
    "dual": CASSI.from_step(design="dual"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)  # as they are, and the longest with longer pixels
def test_weights_that_ship_score_what_they_deliver(name: str) -> None:
    camera, size = SHIPPED[name], (64, 96)
    scenes, mask = scenes_for(camera, size, 2), mask_for(camera, size)
    scored = scores_of_evaluate("lumen.m2m", scenes, mask, camera)
    # Simulated pixels are all sound: a sharp highlight is not to be taken for a hot one.
    given = {"model": "lumen.m2m", "bad_pixels": "none"}
    check_equal(scored, scores_of_reconstruct(given, scenes, mask, camera))


def test_a_tiled_frame_scores_as_it_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame larger than a tile is cut the same way by both."""
    from prismask.inference import engine
    from prismask.inference.engine import Tiling

    monkeypatch.setattr(engine, "default_tiling", lambda _: Tiling(tile=16, halo=4, blend=4))
    camera = CASSI.from_step(BANDS)
    scenes, mask = scenes_for(camera, SIZE), mask_for(camera, SIZE)
    model = small_network()
    scored = scores_of_evaluate(model, scenes, mask, camera)
    check_equal(scored, scores_of_reconstruct({"model": model}, scenes, mask, camera))


@pytest.mark.parametrize("name", ["usual", "to the left"])
@pytest.mark.parametrize("options", [{"adapt": 3}, {"align": True}, {"align": True, "adapt": 3}])
def test_aligned_and_adapted_scores_are_those_of_the_delivered_cube(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_in_any_case = ((("down", "right"), 1, -9.0),)
    monkeypatch.setattr("prismask.inference.alignment.search.STAGES", taken_in_any_case)
    camera = CAMERAS[name]
    scenes, mask = scenes_for(camera, (24, 32), 2), mask_for(camera, (24, 32))
    model = any_camera_network()
    scored = scores_of_evaluate(model, scenes, mask, camera, **options)
    given = {"model": model, **options}
    check_equal(scored, scores_of_reconstruct(given, scenes, mask, camera))
    plain = scores_of_evaluate(model, scenes, mask, camera)
    assert plain != scored


@pytest.mark.parametrize("options", [{}, {"align": True}])
def test_the_interval_that_is_scored_is_the_one_delivered(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_in_any_case = ((("down", "right"), 1, -9.0),)
    monkeypatch.setattr("prismask.inference.alignment.search.STAGES", taken_in_any_case)
    camera, size = CASSI.from_step(), (32, 40)
    scenes, mask = scenes_for(camera, size, 2), mask_for(camera, size)
    models = {"net": "lumen.m2m", "tv": "gap-tv:iterations=2"}
    found = evaluate(
        models, scenes=scenes, masks={"masks": mask}, camera=camera, trials=1, timing=False,
        metrics=("psnr_paper", "inside"), precision="float32", **options,
    )  # fmt: skip
    rows = {(row["model"], row["scene"], row["metric"]): float(row["value"])
            for row in found.rows()}  # fmt: skip
    for name, cube in scenes.items():
        signal = camera.forward(torch.tensor(cube.values)[None], torch.tensor(mask.values))[0]
        made = reconstruct(
            Measurement(signal.numpy()), mask, camera, model="lumen.m2m", check_mask=False,
            precision="float32", **options,
        )  # fmt: skip
        share = np.mean((made.lower <= cube.values) & (cube.values <= made.upper))
        assert 5 < 100 * share < 100
        assert rows["net", name, "inside"] == pytest.approx(100 * share, abs=0.05)
        wanted = score_cubes(made, cube)["psnr_paper"]
        assert rows["net", name, "psnr_paper"] == pytest.approx(wanted, abs=SAME_DB)
        assert math.isnan(rows["tv", name, "inside"])
    # A method without error bars has not failed.
    assert found.ok
    assert "failed" not in found.markdown
    assert "inside the interval [%]" in found.markdown


def test_those_that_cannot_adapt_are_named() -> None:
    camera = CAMERAS["usual"]
    scenes, mask = scenes_for(camera, (16, 16), 1), mask_for(camera, (16, 16))
    found = evaluate(
        {"net": small_network(), "tv": "gap-tv:iterations=1"}, scenes=scenes,
        masks={"masks": mask}, camera=camera, trials=1, timing=False, adapt=2,
    )  # fmt: skip
    assert [text for text in found.plan.remarks if "adapt" in text] == [
        "tv has no network that could learn a scene: it does not adapt."
    ]
    with pytest.raises(ConfigError, match="adapt is -1"):
        evaluate({"net": small_network()}, scenes=scenes, masks={"masks": mask}, adapt=-1)


def test_the_network_that_is_given_stays_as_it_is() -> None:
    model = load_model("lumen.m2m")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    camera = CASSI.from_step()
    scenes, mask = scenes_for(camera, (16, 16), 1), mask_for(camera, (16, 16))
    scores_of_evaluate(model, scenes, mask, camera)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
