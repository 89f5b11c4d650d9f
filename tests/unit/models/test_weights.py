"""Weights come back exactly, and anything else is refused by name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from prismask.errors import DataMissingError, OutputExistsError, WeightsError
from prismask.models.registry import create_model
from prismask.models.weights import load_weights, read_record, save_weights


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = create_model("srn+", mask_posterior="gst", bands=4, seed=0, width=8, blocks=1)
    save_weights(model, tmp_path / "w.safetensors", {"name": "tiny", "step": 3})
    return tmp_path / "w.safetensors"


def test_round_trip(saved: Path) -> None:
    model = load_weights(saved)
    original = create_model("srn+", mask_posterior="gst", bands=4, seed=0, width=8, blocks=1)
    for (name, value), (_, other) in zip(
        model.state_dict().items(), original.state_dict().items(), strict=True
    ):
        assert torch.equal(value, other.half().float()), name
    assert model.record["name"] == "tiny"
    assert model.record["inputs"] == ["backprojection", "normalised", "mask"]
    assert model.posterior.config.kind == "gst"


def test_others_may_read_it(saved: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    assert saved.stat().st_mode == plain.stat().st_mode


def test_existing_file_is_kept(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(OutputExistsError):
        save_weights(create_model("srn", bands=4, width=8, blocks=1), saved, {})
    assert saved.read_bytes() == before


def _with_record(path: Path, change: dict[str, object]) -> None:
    record = {**read_record(path), **change}
    tensors = load_file(path)
    save_file(tensors, path, metadata={"prismask": json.dumps(record)})


def test_damage_is_noticed(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[-5] ^= 0xFF
    saved.write_bytes(bytes(data))
    with pytest.raises(WeightsError, match="damaged"):
        load_weights(saved)


@pytest.mark.parametrize("length", [0, 7, 100, 3000])
def test_truncation_is_noticed(saved: Path, length: int) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(WeightsError):
        load_weights(saved)


def test_wrong_architecture_is_named(saved: Path) -> None:
    _with_record(saved, {"bands": 5})
    with pytest.raises(WeightsError, match=r"srn, 5 bands.*backbone"):
        load_weights(saved)


def test_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="prismask models"):
        load_weights(tmp_path / "absent.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(WeightsError, match="without a Prismask record"):
        load_weights(tmp_path / "foreign.safetensors")
    (tmp_path / "w.pth").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(WeightsError, match="safetensors"):
        load_weights(tmp_path / "w.pth")
