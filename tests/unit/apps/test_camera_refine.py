"""`prismask camera refine` and `camera check` on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from prismask.apps.cli import app as cli
from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import Shift
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import load_mask
from prismask.scenes.synthetic.demo import demo_scene

SIZE = (64, 80)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mask, and two snapshots through it after it has moved."""
    monkeypatch.chdir(tmp_path)
    numbers = seeded(6)
    mask = fabricate_mask(SIZE, numbers, random_aperture(numbers))[None, None]
    np.save("mask.npy", mask[0, 0].numpy())
    moved = Shift(rows=0.4, columns=0.5).apply(mask)
    planes = create_model("srn", seed=0, width=8, blocks=1)
    save_weights(planes, tmp_path / "planes.safetensors", {"name": "planes"})
    (tmp_path / "shots").mkdir()
    for number in range(2):
        scene = torch.tensor(demo_scene(SIZE, seed=number).values)[None]
        signal = CASSI.from_step().forward(scene.flip(-1) if number else scene, moved)[0]
        np.save(f"shots/2024-05-0{number + 1}.npy", signal.numpy())
    return tmp_path


@pytest.mark.slow
def test_a_camera_is_checked_refined_and_drawn(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["camera", "check", "shots", "--mask", "mask.npy", "--figure", "drift.png"]
    assert cli.run([*words, "--device", "cpu"]) == 1
    assert "The mask no longer fits: 2 of 2 snapshots contradict it." in capsys.readouterr().out
    assert (lab / "drift.png").read_bytes().startswith(b"\x89PNG")
    words = ["camera", "refine", "shots", "--mask", "mask.npy", "-o", "refined.nc", "--rounds", "0"]
    assert cli.run([*words, "--device", "cpu"]) == 0
    assert "px to the right" in capsys.readouterr().out
    refined = load_mask(lab / "refined.nc")
    assert refined.attrs["refined_with"] == 2
    assert refined.std is not None
    assert sorted(path.name for path in lab.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("refine --mask mask.npy -o out.nc", "give the snapshots"),
        ("refine shots --mask mask.npy -o out.npy", "a .npy file holds no mask_std"),
        ("refine shots --mask mask.npy -o out.nc --rounds=-1", "rounds is -1"),
        ("check shots --mask mask.npy --most 0", "--most is 0"),
        ("check shots --mask mask.npy --model planes.safetensors", "how far a mask may be wrong"),
    ],
)
def test_wrong_input_is_one_sentence(
    words: str, sentence: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(lab.iterdir())
    assert cli.run(["camera", *words.split()]) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(lab.iterdir()) == before
