"""Which of the weights that ship serves a camera; networks are untrained here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import KnownPose, MaskPose
from prismask.inference.methods import registry as choice
from prismask.inference.methods.registry import Choice, weights_for
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction, reconstruct
from prismask.models import weights
from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.records import Mask
from prismask.scenes.synthetic.demo import random_scene

BANDS = 6
OWN = CASSI.from_step(BANDS)
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default that sees every camera as it is, and weights of fixed bands that are none."""
    default = create_model("lumen", bands=BANDS, seed=9, width=8, stages=1, levels=1)
    facts = {"step_px": 2.0, "default": True, "spread": [0.6, 1.1], "band_counts": [4, 12]}
    save_weights(default, tmp_path / "any.safetensors", {"name": "any", **facts})
    fixed = create_model("srn", bands=BANDS, seed=1, width=8, blocks=1)
    save_weights(fixed, tmp_path / "own.safetensors", {"name": "own", "step_px": 2.0})
    monkeypatch.setattr(choice, "default_weights", lambda: weights.default_weights(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("camera", "expected"),
    [
        (OWN, "any"),
        (CASSI.from_step(BANDS, 2.0, "height"), "any"),
        (CASSI.from_step(BANDS, -2.0), "any"),
        (CASSI.from_step(BANDS, 2.1), "any"),
        (CASSI.from_step(BANDS, 1.5), "any"),
        (CASSI.from_step(4, 3.33), "any"),
        (CASSI.from_step(BANDS, 0.5), None),  # out of its reach
        (CASSI.from_step(BANDS, 4.0), None),
        (CASSI.from_step(BANDS, design="dual"), None),
    ],
)
def test_the_camera_decides(folder: Path, camera: CASSI, expected: str | None) -> None:
    found = weights_for(camera, weights.default_weights(folder))
    assert (None if found is None else found.name) == expected
    chosen = Choice(Options(), CPU)
    assert chosen.for_camera(camera).name == (expected or "gap-tv")
    told = " ".join(finding.text for finding in chosen.findings(camera))
    assert ("gap-tv is used" in told) == (expected is None)


def test_who_asks_is_given_that_everywhere(folder: Path) -> None:
    for asked in (Options("twist"), Options(model=str(folder / "any.safetensors"))):
        chosen = Choice(asked, CPU)
        names = {chosen.for_camera(CASSI.from_step(BANDS, step)).name for step in (2, 1.5, 0.5)}
        assert names == {asked.method or "any"}
        assert chosen.findings(CASSI.from_step(BANDS, 0.5)) == []


def test_networks_are_loaded_once_and_when_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(path: Path) -> object:
        loaded.append(path.stem)
        return weights.load_model(path)

    monkeypatch.setattr(choice, "load_model", load)
    chosen = Choice(Options("gap-tv", align=True), CPU)
    near = CASSI.from_step(BANDS, 1.5)
    assert chosen.for_camera(near) is chosen.for_camera(near)
    assert loaded == []
    assert chosen.aligner(near) is chosen.aligner(near)
    assert loaded == ["any"]


@pytest.mark.parametrize(
    ("bands", "step", "method", "poses_by", "cube_by"),
    [
        (BANDS, 2.0, None, "any", "any"),
        (BANDS, 1.5, "gap-tv", "any", "gap-tv"),
        (4, 3.33, None, "any", "any"),  # few bands far apart: only lumen reaches those
        (BANDS, 4.0, None, None, "gap-tv"),  # too long for a lumen whose record says no more
        (BANDS, 0.5, None, None, "gap-tv"),
    ],
)
def test_the_default_network_finds_the_pose_where_it_reaches(
    folder: Path, bands: int, step: float, method: str | None, poses_by: str | None, cube_by: str
) -> None:
    camera = CASSI.from_step(bands, step)
    chosen = Choice(Options(method, align=True), CPU)
    assert chosen.for_camera(camera).name == cube_by
    aligner = chosen.aligner(camera)
    assert (None if aligner is None else aligner.name) == poses_by
    assert Choice(Options(method, pose=KnownPose(MaskPose())), CPU).for_camera(camera).name == (
        cube_by
    )


def test_nobody_is_asked_for_a_pose_that_is_not_wanted(folder: Path) -> None:
    near = CASSI.from_step(BANDS, 1.5)
    plain = Choice(Options(), CPU)
    assert plain.aligner(near) is plain.for_camera(near)
    assert Choice(Options("gap-tv"), CPU).aligner(near) is None


def test_a_network_that_was_asked_for_aligns_for_itself_if_it_can(folder: Path) -> None:
    for name in ("any", "own"):  # only one of them is told how far masks may be wrong
        asked = Choice(Options(model=str(folder / f"{name}.safetensors"), align=True), CPU)
        aligner = asked.aligner(OWN)
        assert asked.for_camera(OWN).name == name
        assert aligner is not None
        assert aligner.name == "any"
        assert (aligner is asked.for_camera(OWN)) is (name == "any")


def test_a_cube_tells_who_made_it_and_recipes_differ(folder: Path) -> None:
    mask = Mask(fabricate_mask((40, 48), seeded(0)).numpy())
    grid = tuple(450.0 + 40 * k for k in range(BANDS))
    found = {}
    for camera in (OWN, CASSI.from_step(BANDS, 0.5)):
        shot = simulate(random_scene(1, (40, 48), grid), mask, camera)
        cube = reconstruct(shot, mask, camera, check_mask=False)
        found[cube.attrs.get("model", cube.attrs["method"])] = cube.attrs["recipe"]
        again = Reconstruction(Options(check_mask=False)).recipe(shot, mask, camera, None)
        asked = Options(check_mask=False, model=str(folder / "any.safetensors"))
        same = Reconstruction(asked).recipe(shot, mask, camera, None) == again
        assert same == (camera is OWN)
    assert list(found) == ["any", "gap-tv"]


def test_what_a_network_cannot_do_is_told_first(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"without a mask posterior.*lumen\.m2m draws masks"):
        Choice(Options(model=str(folder / "own.safetensors"), samples=2), CPU)
    Choice(Options(samples=2), CPU)


def test_a_recipe_tells_who_finds_the_pose(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = Mask(fabricate_mask((40, 48), seeded(0)).numpy())
    shot = simulate(random_scene(1, (40, 48), [450.0 + 40 * k for k in range(BANDS)]), mask, OWN)

    def recipe() -> str:
        return Reconstruction(Options("gap-tv", align=True)).recipe(shot, mask, OWN, None)

    before = recipe()
    assert recipe() == before
    other = create_model("lumen", bands=BANDS, seed=10, width=8, stages=1, levels=1)
    save_weights(other, folder / "other.safetensors", {"default": True, "step_px": 2.0})
    (one,) = (one for one in weights.shipped(folder) if one.name == "any")
    changed = replace(one, path=folder / "other.safetensors")
    monkeypatch.setattr(choice, "default_weights", lambda: changed)
    assert recipe() != before
