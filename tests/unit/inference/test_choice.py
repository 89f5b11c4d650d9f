"""Which of the weights that ship serves a camera; networks are untrained here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import KnownPose, MaskPose
from prismask.inference.methods import registry as choice
from prismask.inference.methods.registry import Choice, able, weights_for
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
    """A default for one camera, who draws masks behind many, and weights that are neither."""
    facts = {"step_px": 2.0}
    records = {
        "own": {"default": True},
        "many": {"default": "exact_masks", "spread": [0.6, 1.1], "bend": 0.1},
        "wider": {"spread": [0.3, 1.5], "bend": 0.1},
    }
    for seed, (name, more) in enumerate(records.items()):
        model = create_model("srn", bands=BANDS, seed=seed, width=8, blocks=1)
        save_weights(model, tmp_path / f"{name}.safetensors", {"name": name, **facts, **more})
    monkeypatch.setattr(choice, "defaults", lambda: weights.defaults(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("camera", "expected"),
    [
        (OWN, "own"),
        (CASSI.from_step(BANDS, 2.0, "height"), "own"),
        (CASSI.from_step(BANDS, -2.0), "own"),
        (CASSI.from_step(BANDS, 2.01), "own"),  # 0.05 px at the last band
        (CASSI.from_step(BANDS, 2.1), "own"),
        (CASSI.from_step(BANDS, 1.5), "own"),
        (CASSI.from_step(BANDS, 1.0), None),  # out of its reach
        (CASSI.from_step(BANDS, 4.0), "own"),
        (CASSI.from_step(BANDS + 2), "own"),
        (CASSI.from_step(BANDS, 0.5), None),
        (CASSI.from_step(BANDS, design="dual"), None),
    ],
)
def test_the_camera_decides(folder: Path, camera: CASSI, expected: str | None) -> None:
    found = weights_for(camera, able(weights.defaults(folder), Options()))
    assert (None if found is None else found.name) == expected
    chosen = Choice(Options(), CPU)
    assert chosen.for_camera(camera).name == (expected or "gap-tv")
    told = " ".join(finding.text for finding in chosen.findings(camera))
    assert ("gap-tv is used" in told) == (expected is None)


@pytest.fixture
def with_any(folder: Path) -> Path:
    """The same, where the default is one that sees cameras as they are."""
    model = create_model("lumen", bands=BANDS, seed=9, width=8, stages=1, levels=1)
    facts = {"step_px": 2.0, "default": True, "spread": [0.6, 1.1], "band_counts": [4, 12]}
    save_weights(model, folder / "any.safetensors", {"name": "any", **facts})
    (folder / "own.safetensors").unlink()
    return folder


def test_a_network_that_sees_cameras_as_they_are_comes_first(with_any: Path) -> None:
    first, second = weights.defaults(with_any)
    among = (second, first)
    for step, expected in ((2.0, "many"), (1.5, "any"), (4.0, "many"), (0.5, None)):
        found = weights_for(CASSI.from_step(BANDS, step), among)
        assert (None if found is None else found.name) == expected


def test_who_asks_is_given_that_everywhere(folder: Path) -> None:
    for asked in (Options("twist"), Options(model=str(folder / "own.safetensors"))):
        chosen = Choice(asked, CPU)
        names = {chosen.for_camera(CASSI.from_step(BANDS, step)).name for step in (2, 1.5, 0.5)}
        assert names == {asked.method or "own"}
        assert chosen.findings(CASSI.from_step(BANDS, 0.5)) == []


def test_networks_are_loaded_once_and_when_needed(
    with_any: Path, monkeypatch: pytest.MonkeyPatch
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
    with_any: Path, bands: int, step: float, method: str | None, poses_by: str | None, cube_by: str
) -> None:
    camera = CASSI.from_step(bands, step)
    chosen = Choice(Options(method, align=True), CPU)
    assert chosen.for_camera(camera).name == cube_by
    aligner = chosen.aligner(camera)
    assert (None if aligner is None else aligner.name) == poses_by
    assert Choice(Options(method, pose=KnownPose(MaskPose())), CPU).for_camera(camera).name == (
        cube_by
    )


def test_nobody_is_asked_for_a_pose_that_is_not_wanted(with_any: Path) -> None:
    near = CASSI.from_step(BANDS, 1.5)
    plain = Choice(Options(), CPU)
    assert plain.aligner(near) is plain.for_camera(near)
    assert Choice(Options("gap-tv"), CPU).aligner(near) is None


def test_a_network_that_was_asked_for_aligns_for_itself_if_it_can(with_any: Path) -> None:
    for name in ("any", "wider"):  # only one of them is told how far masks may be wrong
        asked = Choice(Options(model=str(with_any / f"{name}.safetensors"), align=True), CPU)
        for step in (2.0, 1.5):
            camera = CASSI.from_step(BANDS, step)
            aligner = asked.aligner(camera)
            assert asked.for_camera(camera).name == name
            assert aligner is not None
            assert aligner.name == "any"
            assert (aligner is asked.for_camera(camera)) is (name == "any")


def test_a_cube_tells_who_made_it_and_recipes_differ(folder: Path) -> None:
    mask = Mask(fabricate_mask((40, 48), seeded(0)).numpy())
    grid = tuple(450.0 + 40 * k for k in range(BANDS))
    found = {}
    for camera in (OWN, CASSI.from_step(BANDS, 1.0)):
        shot = simulate(random_scene(1, (40, 48), grid), mask, camera)
        cube = reconstruct(shot, mask, camera, check_mask=False)
        found[cube.attrs.get("model", cube.attrs["method"])] = cube.attrs["recipe"]
        again = Reconstruction(Options(check_mask=False)).recipe(shot, mask, camera, None)
        asked = Options(check_mask=False, model=str(folder / "own.safetensors"))
        same = Reconstruction(asked).recipe(shot, mask, camera, None) == again
        assert same == (camera is OWN)
    assert list(found) == ["own", "gap-tv"]


def test_what_no_default_can_do_is_told_first(folder: Path) -> None:
    with pytest.raises(ConfigError, match="trained without a mask posterior"):
        Choice(Options(samples=2), CPU)


@pytest.mark.filterwarnings("ignore:the network was trained at:prismask.errors.PrismaskWarning")
def test_who_insists_is_told_what_the_network_knows(folder: Path) -> None:
    mask = Mask(fabricate_mask((40, 48), seeded(0)).numpy())
    grid = tuple(450.0 + 40 * k for k in range(BANDS))
    close = CASSI.from_step(BANDS, 0.5)
    shot = simulate(random_scene(1, (40, 48), grid), mask, close)
    cube = reconstruct(shot, mask, close, model=folder / "many.safetensors", check_mask=False)
    told = " ".join(cube.attrs["findings"])
    assert "trained at 1.2 to 2.2 px per band, and this camera is 2.4 times off" in told


def test_a_recipe_tells_who_finds_the_pose(with_any: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = Mask(fabricate_mask((40, 48), seeded(0)).numpy())
    shot = simulate(random_scene(1, (40, 48), [450.0 + 40 * k for k in range(BANDS)]), mask, OWN)

    def recipe() -> str:
        return Reconstruction(Options("gap-tv", align=True)).recipe(shot, mask, OWN, None)

    before = recipe()
    assert recipe() == before
    other = create_model("lumen", bands=BANDS, seed=10, width=8, stages=1, levels=1)
    save_weights(other, with_any / "other.safetensors", {"default": True, "step_px": 2.0})
    (one,) = (one for one in weights.shipped(with_any) if one.name == "any")
    changed = replace(one, path=with_any / "other.safetensors")
    monkeypatch.setattr(choice, "defaults", lambda: (changed,))
    assert recipe() != before
