"""Weights by name or path, and what is said to anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismask.errors import ConfigError, DataMissingError, WeightsError
from prismask.models.registry import create_model
from prismask.models.weights import (
    default_weights,
    find_weights,
    load_model,
    save_weights,
    shipped,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "weights"
    made.mkdir()
    model = create_model("srn", bands=4, seed=0, width=8, blocks=1)
    save_weights(model, made / "tiny.m2m.safetensors", {"name": "tiny.m2m"})
    save_weights(model, made / "other.safetensors", {"name": "other", "default": True})
    (made / "broken.safetensors").write_bytes(b"nothing")
    return made


def test_shipped_weights_by_name(folder: Path) -> None:
    assert [one.name for one in shipped(folder)] == ["other", "tiny.m2m"]
    assert find_weights("tiny.m2m", folder) == folder / "tiny.m2m.safetensors"
    found = default_weights(folder)
    assert found is not None
    assert found.name == "other"
    assert default_weights(folder.parent) is None
    assert shipped(folder.parent / "missing") == ()


def test_weights_by_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "tiny.m2m.safetensors"
    assert find_weights(path) == path
    assert find_weights(str(path)) == path
    monkeypatch.chdir(folder)
    assert find_weights("tiny.m2m.safetensors").is_file()
    assert load_model(path).bands == 4


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ("tiny.m2n", ConfigError, "Did you mean 'tiny.m2m'?"),
        ("srn", ConfigError, "is an architecture, not trained weights"),
        ("runs/mine/weights", DataMissingError, "does not exist"),
        ("mine.safetensors", DataMissingError, "does not exist"),
        ("./", DataMissingError, "is a folder"),
    ],
)
def test_both_forms_are_spelled_out(
    folder: Path, given: str, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as raised:
        find_weights(given, folder)
    said = str(raised.value)
    assert sentence in said
    assert "a name from `prismask models` (other, tiny.m2m)" in said
    assert "./runs/mine/weights.safetensors" in said


def test_a_file_that_looks_like_a_name_is_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "mine").write_bytes(b"weights")
    with pytest.raises(ConfigError, match=r"write its path: \./mine"):
        find_weights("mine", folder)


def test_damaged_files_are_named(folder: Path) -> None:
    with pytest.raises(WeightsError, match=r"broken\.safetensors is not a readable"):
        load_model(folder / "broken.safetensors")
