"""Names of models, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_workload import BANDS, CAMERA, spread
from torch import Tensor

from prismask.errors import ConfigError, DataMissingError
from prismask.evaluation.run.contenders import Contender, build_contender, read_entries
from prismask.models.registry import create_model
from prismask.models.weights import save_weights


def weights(path: Path, **record: object) -> Path:
    model = create_model("srn", bands=BANDS, width=8, blocks=1, seed=3)
    save_weights(model, path, dict(record))
    return path


def cubes_of(contender: Contender, measurement: Tensor, mask: Tensor) -> Tensor:
    method = contender.build(torch.device("cpu"))
    return method.batch(measurement, mask, CAMERA, contender.options)


def test_a_slash_may_stand_in_a_label_and_an_equals_sign_in_a_path(tmp_path: Path) -> None:
    """The paper's own rows are called w/o GST; and a folder may be called width=8."""
    (named,) = read_entries(["w/o GST=srn"])
    assert (named.label, named.kind) == ("w/o GST", "untrained")
    path = tmp_path / "width=8" / "weights.safetensors"
    path.parent.mkdir()
    weights(path, name="mine")
    for model in (str(path), str(path.parent), path):
        (found,) = read_entries([model])
        assert (found.label, found.kind) == ("mine", "weights")
    (found,) = read_entries([f"w/o GST={path}"])
    assert (found.label, found.what) == ("w/o GST", path)


def test_kinds_labels_and_options(tmp_path: Path) -> None:
    file = weights(
        tmp_path / "weights.safetensors", name="mine", wavelengths_nm=[500, 510, 520, 530]
    )
    found = read_entries(
        ["gap-tv:iterations=3,coupling=band", "srn:width=8,blocks=1", str(file), f"b={tmp_path}"]
    )
    assert [entry.kind for entry in found] == ["solver", "untrained", "weights", "weights"]
    assert [entry.label for entry in found] == [
        "gap-tv:iterations=3,coupling=band", "srn:width=8,blocks=1 (untrained)", "mine", "b",
    ]  # fmt: skip
    assert found[0].options == {"iterations": 3, "coupling": "band"}
    assert found[2].bands == BANDS
    assert found[2].wavelengths == (500.0, 510.0, 520.0, 530.0)
    assert found[1].bands is None


def test_weights_that_ship_are_known_by_name() -> None:
    shipped, labelled = read_entries(["lumen.m2m", "ours=lumen.m2m"])
    assert (shipped.kind, shipped.label) == ("weights", "lumen.m2m")
    assert shipped.record["backbone"] == "lumen"
    assert labelled.label == "ours"
    with pytest.raises(DataMissingError, match=r"mean 'lumen\.m2m'"):
        read_entries("lumin.m2m")


def test_weights_that_learn_each_scene(tmp_path: Path) -> None:
    file = weights(tmp_path / "weights.safetensors", name="mine")
    plain, taught, named = read_entries([str(file), f"{file}:adapt=4", f"b={tmp_path}:adapt=2"])
    assert (plain.label, taught.label, named.label) == ("mine", "mine:adapt=4", "b")
    made = [build_contender(entry, BANDS, 0) for entry in (plain, taught)]
    assert made[0].identity != made[1].identity
    mask = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    scenes = torch.rand(2, BANDS, 16, 16, generator=torch.Generator().manual_seed(2))
    measurement = CAMERA.forward(scenes, mask)
    before, after = (cubes_of(contender, measurement, mask) for contender in made)
    assert after.shape == before.shape
    assert not torch.equal(after[0], before[0])
    # Each snapshot is learned by itself: beside another one it gives what it gives alone.
    alone = cubes_of(made[1], measurement[1:], mask)
    torch.testing.assert_close(after[1:], alone)


@pytest.mark.parametrize(
    "options",
    [
        "adapt=x",
        "adapt=-1",
        "adapt=2.5",
        "iterations=3",
        "adapt",
        "mirror_ensemble=2",
        "ways=2",
        "align=3",
    ],
)
def test_trained_weights_take_no_other_option(tmp_path: Path, options: str) -> None:
    file = weights(tmp_path / "weights.safetensors")
    with pytest.raises(ConfigError, match=r"adapt=STEPS|not an option"):
        read_entries(f"{file}:{options}")


def test_fresh_networks_are_seeded() -> None:
    (entry,) = read_entries("srn:width=8,blocks=1")
    one, same, other = (build_contender(entry, BANDS, seed) for seed in (0, 0, 1))
    assert one.identity == same.identity != other.identity
    assert one.training_masks == {"source": "none"}


def test_all_kinds_are_called_alike() -> None:
    entries = read_entries(
        {
            "net": "srn:width=8,blocks=1",
            "tv": "gap-tv:iterations=1",
            "two-step": "twist:iterations=2,coupling=band",
            "own": "pnp:iterations=1,denoiser=tv,start=spread",
            "f": spread,
        }
    )
    mask = torch.rand(1, 1, 16, 16)
    measurement = CAMERA.forward(torch.rand(2, BANDS, 16, 16), mask)
    for entry in entries:
        contender = build_contender(entry, BANDS, 0)
        assert cubes_of(contender, measurement, mask).shape == (2, BANDS, 16, 16)


def test_a_callable_has_no_record() -> None:
    (entry,) = read_entries({"f": spread})
    assert build_contender(entry, BANDS, 0).training_masks is None


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("gap-tw", DataMissingError, "Did you mean 'gap-tv'"),
        ("nowhere/weights.safetensors", DataMissingError, "neither a weights file nor a name"),
        ("gap-tv:iterations", ConfigError, "key=value"),
        ("gap-tv:iterashuns=3", ConfigError, "Did you mean 'iterations'"),
    ],
)
def test_wrong_names(name: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        [build_contender(entry, BANDS, 0) for entry in read_entries([name])]


def test_nobody_two_of_one_name_and_no_model() -> None:
    with pytest.raises(ConfigError, match="at least one model"):
        read_entries([])
    with pytest.raises(ConfigError, match="two models are called 'gap-tv'"):
        read_entries(["gap-tv", "gap-tv"])
    with pytest.raises(ConfigError, match="cannot be called"):
        read_entries({"a": 3})
