"""Weights come back exactly, and anything else is refused by name."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from prismask.errors import DataMissingError, OutputExistsError, WeightsError
from prismask.models.registry import create_model
from prismask.models.weights import (
    fill_from,
    load_weights,
    read_record,
    save_weights,
    write_sealed,
)
from prismask.optics.camera import CASSI


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
    """A file whose seal is whole, whatever its record says."""
    write_sealed(path, load_file(path), {**read_record(path), **change}, overwrite=True)


@pytest.mark.parametrize("change", [{"name": "other"}, {"interval": {"scale": -1}}, {"bands": 5}])
def test_an_edited_record_is_refused(saved: Path, change: dict[str, object]) -> None:
    record = {**read_record(saved), **change}
    save_file(load_file(saved), saved, metadata={"prismask": json.dumps(record)})
    for read in (read_record, load_weights):
        with pytest.raises(WeightsError, match=r"w\.safetensors is damaged or was edited"):
            read(saved)


def test_no_flipped_bit_is_accepted(saved: Path) -> None:
    """Anywhere in the file: its length, the header with the record, the values."""
    data = saved.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    numbers = np.random.default_rng(0)
    places = [*numbers.integers(0, header, 150), *numbers.integers(header, len(data), 50)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(numbers.integers(8))
        saved.write_bytes(bytes(damaged))
        with pytest.raises(WeightsError, match=r"w\.safetensors"):
            load_weights(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"options": 3}, {"options": {"wdith": 8}}, {"bands": "many"}, {"bands": -1},
        {"posterior": None}, {"posterior": {"kind": "gst", "initial_std": "x"}},
        {"inputs": ["nothing"]}, {"inputs": 4}, {"backbone": ["srn"]}, {"backbone": "\ud800"},
        {"bands": math.inf}, {"posterior": {"kind": "gst", "initial_std": 10**400}},
        {"posterior": ["gst"]}, {"step_px": None}, {"step_px": math.inf}, {"step_px": 10**400},
        {"offsets_px": 5}, {"offsets_px": [0, "x"]}, {"design": "triple"}, {"spread": [1]},
        {"bend": "far"}, {"band_counts": 3}, {"input_level": {}},
        {"interval": 5}, {"masks": "some"}, {"data": [1]}, {"wavelengths_nm": ["blue"]},
        {"offsets_px": [0, 2]},
        {"input_level": 0}, {"input_level": -1}, {"input_level": math.nan},
        {"wavelengths_nm": [450, 450, 450, 450]}, {"wavelengths_nm": [450, 500]},
        {"spread": [1.2, 0.8]}, {"spread": [-1, 1]}, {"spread": [math.nan, 1]}, {"bend": -1},
        {"jitter": 9}, {"band_counts": [0]},
        {"step": -5}, {"step": 10**9}, {"step": "many"}, {"step": True}, {"step": math.nan},
        {"seconds": -1}, {"seconds": math.inf}, {"step_px": 1e9}, {"step_px": -1e9},
        {"step_px": 60_000}, {"offsets_px": [0, 2, 4, 1e9]},
        {"offsets_px": [0, 2, 4, 6], "step_px": 1e9},
        {"measured_cameras": {"bands": [54, 8], "length_px": [20, 70]}},
        {"measured_cameras": {"bands": [8, 54], "length_px": [70, 20]}},
        {"measured_cameras": {"bands": [0, 54], "length_px": [20, 70]}},
        {"measured_cameras": {"bands": [8, 54], "length_px": [20, math.inf]}},
        {"measured_cameras": {"bands": [8, 54], "length_px": [-1, 70]}},
        {"measured_cameras": 5}, {"measured_cameras": {"bands": 5}},
        {"interval": []}, {"interval": False}, {"interval": {"learned": 5}},
        {"interval": {"learned": [1]}}, {"interval": {"trust": "much"}}, {"interval": {"trust": 0}},
    ],
)  # fmt: skip
def test_records_that_describe_no_network_are_refused_by_name(
    saved: Path, change: dict[str, object]
) -> None:
    _with_record(saved, change)
    with pytest.raises(WeightsError, match=r"w\.safetensors") as refusal:
        load_weights(saved)
    assert len(str(refusal.value)) < 1000


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


def test_a_network_that_sees_more_goes_on_as_what_it_was(tmp_path: Path) -> None:
    """The planes that it had keep their weights; those that are new start at zero."""
    few: tuple[str, ...] = ("backprojection", "normalised")
    before = create_model("srn", bands=4, seed=0, inputs=few, width=8, blocks=1)
    path = tmp_path / "before.safetensors"
    save_weights(before, path, {"name": "before"}, dtype=torch.float32)
    now = create_model("srn", bands=4, seed=1, inputs=(*few, "mask"), width=8, blocks=1)
    fill_from(now, path)
    generator = torch.Generator().manual_seed(2)
    camera, mask = CASSI.from_step(4), torch.rand(1, 1, 12, 16, generator=generator)
    shot = camera.forward(torch.rand(1, 4, 12, 16, generator=generator), mask)
    with torch.no_grad():
        torch.testing.assert_close(now(shot, mask, camera), before(shot, mask, camera))
