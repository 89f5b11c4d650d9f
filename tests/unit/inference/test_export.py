"""Exported networks give the numbers of `reconstruct`, in onnxruntime and as a .pt2 package."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_lumen import CAMERAS, NOMINAL, lumen, snapshots
from torch import Tensor

from prismask.apps.cli.app import run
from prismask.errors import ConfigError, MissingPartError, OutputExistsError, ShapeError
from prismask.inference import export
from prismask.inference.export import FACTS, Exported
from prismask.inference.methods.registry import as_method
from prismask.inference.options import Options
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import save_weights, trained_with
from prismask.optics.camera import CASSI
from prismask.scenes.formats.files import save
from prismask.scenes.records import Mask

NOISE = 0.02
MISSING = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
with_onnx = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} not installed (pip install 'prismask[export]')"
)


def srn(**more: Any) -> Reconstructor:
    """A tiny SRN that is also told the noise."""
    inputs = ("backprojection", "normalised", "mask", "noise")
    model = create_model(
        "srn", bands=6, seed=3, width=8, blocks=1, inputs=inputs, mask_posterior="gst",
        posterior_options={"prior_mean": 0.006},
    )  # fmt: skip
    model.record |= {**trained_with(NOMINAL), "name": "srn.small", **more}
    return model.eval().requires_grad_(False)


def delivered(
    model: Reconstructor, shot: Tensor, mask: Tensor, camera: CASSI, **told: Any
) -> Tensor:
    """What `reconstruct` makes of a snapshot in float32."""
    options = Options(precision="float32", noise_std=NOISE, dark=0.0, **told)
    method = as_method(model, torch.device("cpu"), options)
    return method.batch(shot, mask, camera, options)


def in_onnxruntime(path: Path, shot: Tensor) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {"measurement": shot.numpy(), "noise": np.full(1, NOISE, np.float32)}
    wanted = [one.name for one in session.get_inputs()]
    (cube,) = session.run(["cube"], {name: given[name] for name in wanted})
    return torch.from_numpy(cube)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["of the training", "uneven", "backwards along the height", "two dispersers"]
)
def test_a_graph_gives_what_reconstruct_gives(name: str) -> None:
    camera, model = CAMERAS[name], lumen()
    shot, mask = snapshots(camera)
    made = Exported.of(model, mask, camera).program().module()(shot, torch.tensor([NOISE]))
    torch.testing.assert_close(made, delivered(model, shot, mask, camera), atol=2e-5, rtol=0)


def test_a_package_comes_back_with_its_facts(tmp_path: Path) -> None:
    model, path = srn(), tmp_path / "net.pt2"
    shot, mask = snapshots(NOMINAL)
    Exported.of(model, mask, NOMINAL).save(path)
    extra = {FACTS: ""}
    program = torch.export.load(path, extra_files=extra)
    made = program.module()(shot, torch.tensor([NOISE]))
    torch.testing.assert_close(made, delivered(model, shot, mask, NOMINAL), atol=1e-5, rtol=0)
    facts = json.loads(extra[FACTS])
    assert facts["model"] == "srn.small"
    assert facts["camera_offsets_px"] == list(NOMINAL.offsets)
    assert str(Path(export.__file__).parents[3]).encode() not in path.read_bytes()
    with pytest.raises(OutputExistsError, match="exists already"):
        Exported.of(model, mask, NOMINAL).save(path)


@with_onnx
@pytest.mark.slow
@pytest.mark.parametrize("camera", ["of the training", "fractional"])
def test_onnxruntime_gives_what_reconstruct_gives(camera: str, tmp_path: Path) -> None:
    model, behind, path = lumen(), CAMERAS[camera], tmp_path / "net.onnx"
    shot, mask = snapshots(behind)
    Exported.of(model, mask, behind).save(path)
    expected = delivered(model, shot, mask, behind)
    torch.testing.assert_close(in_onnxruntime(path, shot), expected, atol=2e-5, rtol=0)
    assert str(Path(export.__file__).parents[3]).encode() not in path.read_bytes()


@with_onnx
def test_a_network_of_planes_runs_in_onnxruntime(tmp_path: Path) -> None:
    model, path = srn(), tmp_path / "net.onnx"
    shot, mask = snapshots(NOMINAL)
    Exported.of(model, mask, NOMINAL).save(path)
    expected = delivered(model, shot, mask, NOMINAL)
    torch.testing.assert_close(in_onnxruntime(path, shot), expected, atol=1e-5, rtol=0)


def test_noise_and_mask_std_can_be_fixed() -> None:
    model = lumen()
    shot, mask = snapshots(NOMINAL)
    told = torch.full_like(mask, 0.1)
    exported = Exported.of(model, mask, NOMINAL, told, NOISE)
    assert list(exported.inputs()) == ["measurement"]
    made = exported.program().module()(shot)
    expected = delivered(model, shot, mask, NOMINAL, mask_std=0.1)
    torch.testing.assert_close(made, expected, atol=2e-5, rtol=0)
    without = delivered(model, shot, mask, NOMINAL)
    assert (made - without).abs().max() > 1e-3, "the mask's spread is in the graph"


def test_what_a_file_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = CASSI.from_step(9, 1.5)
    with pytest.raises(ConfigError, match=r"it has 9 bands, not 6.* lumen\.m2m"):
        Exported.of(srn(), snapshots(other)[1], other)
    exported = Exported.of(lumen(), snapshots(NOMINAL)[1], NOMINAL)
    with pytest.raises(ConfigError, match=r"'\.pb'; a network is exported as \.onnx .* \.pt2"):
        exported.save(tmp_path / "net.pb")
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r"prismask\[export\].*net\.pt2 would need nothing"):
        exported.save(tmp_path / "net.onnx")
    monkeypatch.setattr(export, "find_spec", lambda name: True)
    monkeypatch.setattr(export, "LARGEST", 1000)
    with pytest.raises(ConfigError, match=r"ONNX file holds 2 GB. Write net\.pt2"):
        exported.save(tmp_path / "net.onnx")
    small = torch.ones(1, 1, 4, 8)
    with pytest.raises(ShapeError, match="no scene is left"):
        Exported.of(lumen(), small, CAMERAS["two dispersers"])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def files(tmp_path: Path) -> Path:
    save_weights(lumen(), tmp_path / "lumen.safetensors", {})
    _, mask = snapshots(NOMINAL)
    save(Mask(mask[0, 0].numpy()), tmp_path / "mask.npy")
    return tmp_path


def words(folder: Path, out: str, *more: str) -> list[str]:
    names = [str(folder / name) for name in (out, "mask.npy", "lumen.safetensors")]
    return ["export", names[0], "--mask", names[1], "--model", names[2], *more]


def test_the_command_writes_a_package(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(files, "net.pt2", "--bands", "6", "--frame", "24,40")) == 0
    assert "measurement 1×24×40 and noise 1 → cube of 6 bands" in capsys.readouterr().out
    assert (files / "net.pt2").is_file()


@pytest.mark.parametrize(
    ("out", "more", "sentence"),
    [
        ("net.pt", [], "'.pt'; a network is exported as .onnx"),
        ("mask.npy", ["--overwrite"], "'.npy'"),
        ("net.pt2", ["--frame", "24,41"], "the measurement is 24×41 and the mask 24×30"),
        ("net.pt2", ["--frame", "24"], "HEIGHT,WIDTH"),
        ("net.pt2", ["--crop-mask", "0,0,99,9"], "within the mask of 24×30"),
        ("net.pt2", ["--noise-std", "-1"], "noise"),
        ("net.pt2", ["--mask-std", "7"], "mask_std is 7"),
        ("there.pt2", [], "exists already"),
        ("nowhere/net.pt2", [], "there is no folder"),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    files: Path, out: str, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "there.pt2").write_bytes(b"mine")
    before = {path: path.read_bytes() for path in files.iterdir()}
    assert run(words(files, out, *more)) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert {path: path.read_bytes() for path in files.iterdir()} == before
