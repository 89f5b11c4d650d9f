"""Which of the weights that ship serves a camera; networks are untrained here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismask.errors import ConfigError
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
    """Weights for one camera, weights for many, and weights that are nobody's default."""
    facts = {"step_px": 2.0}
    records = {
        "own": {"default": True},
        "many": {"default": "other_cameras", "spread": [0.6, 1.1], "bend": 0.1},
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
        (CASSI.from_step(BANDS, 2.1), "many"),
        (CASSI.from_step(BANDS, 1.5), "many"),
        (CASSI.from_step(BANDS, 1.0), "many"),  # out of reach of the first
        (CASSI.from_step(BANDS, 4.0), "many"),
        (CASSI.from_step(BANDS + 2), "many"),
        (CASSI.from_step(BANDS, 0.5), None),
        (CASSI.from_step(BANDS, design="dual"), None),
    ],
)
def test_the_camera_decides(folder: Path, camera: CASSI, expected: str | None) -> None:
    found = weights_for(camera, weights.defaults(folder))
    assert (None if found is None else found.name) == expected
    chosen = Choice(Options(), CPU)
    assert chosen.for_camera(camera).name == (expected or "gap-tv")
    told = " ".join(finding.text for finding in chosen.findings(camera))
    assert ("gap-tv is used" in told) == (expected is None)


def test_a_network_that_sees_cameras_as_they_are_comes_first(folder: Path) -> None:
    model = create_model("lumen", bands=BANDS, seed=9, width=8, stages=1, levels=1)
    facts = {"step_px": 2.0, "default": True, "spread": [0.6, 1.1]}
    save_weights(model, folder / "any.safetensors", {"name": "any", **facts})
    (folder / "own.safetensors").unlink()
    among = weights.defaults(folder)
    for step, expected in ((2.0, "any"), (1.5, "any"), (4.0, "many"), (0.5, None)):
        found = weights_for(CASSI.from_step(BANDS, step), among)
        assert (None if found is None else found.name) == expected


def test_who_asks_is_given_that_everywhere(folder: Path) -> None:
    for asked in (Options("twist"), Options(model=str(folder / "own.safetensors"))):
        chosen = Choice(asked, CPU)
        names = {chosen.for_camera(CASSI.from_step(BANDS, step)).name for step in (2, 1.5, 0.5)}
        assert names == {asked.method or "own"}
        assert chosen.findings(CASSI.from_step(BANDS, 0.5)) == []


def test_networks_are_loaded_once_and_when_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(path: Path) -> object:
        loaded.append(path.stem)
        return weights.load_model(path)

    monkeypatch.setattr(choice, "load_model", load)
    chosen = Choice(Options(), CPU)
    assert loaded == ["own"]
    near = CASSI.from_step(BANDS, 1.5)
    assert chosen.for_camera(near) is chosen.for_camera(near)
    assert loaded == ["own", "many"]


def test_the_network_that_reconstructs_aligns(folder: Path) -> None:
    near = CASSI.from_step(BANDS, 1.5)
    plain, solver = (Choice(Options(method, align=True), CPU) for method in (None, "gap-tv"))
    assert plain.aligner(near) is plain.for_camera(near)
    aligner = solver.aligner(near)
    assert aligner is not None
    assert aligner.name == "many"
    assert Choice(Options("gap-tv"), CPU).aligner(near) is None


def test_a_cube_tells_who_made_it_and_recipes_differ(folder: Path) -> None:
    mask = Mask(fabricate_mask((40, 48), seeded(0)).numpy())
    grid = tuple(450.0 + 40 * k for k in range(BANDS))
    found = {}
    for camera in (OWN, CASSI.from_step(BANDS, 1.5)):
        shot = simulate(random_scene(1, (40, 48), grid), mask, camera)
        cube = reconstruct(shot, mask, camera, check_mask=False)
        found[cube.attrs["model"]] = cube.attrs["recipe"]
        again = Reconstruction(Options(check_mask=False)).recipe(shot, mask, camera, None)
        asked = Options(check_mask=False, model=str(folder / "own.safetensors"))
        same = Reconstruction(asked).recipe(shot, mask, camera, None) == again
        assert same == (camera is OWN)
    assert list(found) == ["own", "many"]


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
