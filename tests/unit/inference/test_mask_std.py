"""How far a mask may be wrong: from whoever knows it to the network, or to a sentence."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from small_lumen import NOMINAL, SIZE, lumen, snapshots

from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.evaluation.run.plan import Settings
from prismask.evaluation.run.runner import evaluate
from prismask.inference.options import MaskStd, Options
from prismask.inference.reconstruct import Reconstruction, reconstruct
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask, Measurement

SHOTS, MASK = snapshots(NOMINAL)
STD = (0.2 * torch.rand(MASK.shape[2:], generator=seeded(4))).numpy()
RECORD = Mask(MASK[0, 0].numpy())
PLAIN: dict[str, Any] = {
    "device": "cpu", "precision": "float32", "dark": 0.0, "bad_pixels": "none",
    "check_mask": False, "noise_std": 0.01,
}  # fmt: skip


def made(mask: Any = RECORD, model: Any = "small", **how: Any) -> Cube:
    given = {"model": lumen()} if model == "small" else {"method": model, "iterations": 2}
    return reconstruct(SHOTS[0], mask, NOMINAL, **given, **PLAIN, **how)


def findings(cube: Cube) -> str:
    return " ".join(line for line in cube.attrs["findings"] if "mask_std" in line)


@pytest.fixture(scope="module")
def told() -> Cube:
    return made(mask_std=STD)


# --- everything it may come as --------------------------------------------------------------------


def test_it_may_come_as_anything_a_mask_comes_as(tmp_path: Path, told: Cube) -> None:
    save(Mask(STD), tmp_path / "std.tif")
    save(replace(RECORD, std=STD), tmp_path / "both.nc")
    given: dict[str, Any] = {
        "tensor": torch.tensor(STD),
        "batch": torch.tensor(STD)[None, None],
        "xarray": xarray.DataArray(STD, dims=("y", "x")),
        "mask": replace(RECORD, std=STD),
        "values of a mask": Mask(STD),
        "file": tmp_path / "std.tif",
        "name of a file": str(tmp_path / "both.nc"),
    }
    for name, std in given.items():
        found = made(mask_std=std)
        np.testing.assert_array_equal(found.values, told.values, err_msg=name)
        assert found.attrs["recipe"] == told.attrs["recipe"], name
    assert made(mask_std=tmp_path / "std.tif").attrs["mask_std_from"] == str(tmp_path / "std.tif")


def test_numbers_are_maps_that_are_everywhere_alike() -> None:
    flat = np.full(STD.shape, 0.1, np.float32)
    for number in (0.1, np.float32(0.1), torch.tensor(0.1)):
        np.testing.assert_allclose(made(mask_std=number).values, made(mask_std=flat).values)


def test_the_mask_brings_it_along(tmp_path: Path, told: Cube) -> None:
    uncertain = replace(RECORD, std=STD)
    save(uncertain, tmp_path / "mask.nc")
    for mask in (uncertain, tmp_path / "mask.nc", uncertain.to_xarray()):
        found = made(mask)
        np.testing.assert_array_equal(found.values, told.values)
        assert found.attrs["mask_std_from"] == "the mask"
        assert found.attrs["recipe"] == told.attrs["recipe"]
        assert findings(found) == ""


def test_what_is_given_counts_before_what_the_mask_brings(told: Cube) -> None:
    found = made(replace(RECORD, std=np.zeros_like(STD)), mask_std=STD)
    np.testing.assert_array_equal(found.values, told.values)
    assert "the mask brings its own mask_std along, which is not used" in findings(found)


def test_history_and_recipe_say_it(told: Cube) -> None:
    nothing, number = made(), made(mask_std=0.1)
    assert told.attrs["mask_std"] == pytest.approx(float(np.sqrt((STD**2).mean())), rel=1e-5)
    assert told.attrs["mask_std_from"] == "given"
    assert number.attrs["mask_std"] == 0.1
    assert nothing.attrs["mask_std_from"] == "estimated by the network"
    assert "mask_std" not in nothing.attrs
    recipes = {cube.attrs["recipe"] for cube in (told, nothing, number, made(mask_std=0.2))}
    assert len(recipes) == 4
    assert np.abs(told.values - nothing.values).max() > 1e-3


def test_recipes_of_before_stay() -> None:
    """A run that says nothing of it goes on with cubes made before it could be said; one that may
    search for a pose does not, for those were made without."""
    assert Options(align=False).recipe(version="0") == "c2150e7aaa907007"
    assert Options().recipe(version="0") != "c2150e7aaa907007"


def test_options_can_be_compared_kept_and_sent() -> None:
    one, other = Options(mask_std=STD), Options(mask_std=STD.copy())
    assert one == other
    assert hash(one) == hash(other)
    assert one != Options(mask_std=0.5 * STD)
    assert pickle.loads(pickle.dumps(one)) == one
    assert isinstance(one.mask_std, MaskStd)
    assert Options(mask_std=one.mask_std) == one


# --- who cannot use it ----------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [RECORD, replace(RECORD, std=STD)], ids=["given", "the mask's"])
def test_a_solver_says_that_it_cannot_be_told(mask: Mask) -> None:
    how = {} if mask.std is not None else {"mask_std": STD}
    found, plain = made(mask, "gap-tv", **how), made(RECORD, "gap-tv")
    np.testing.assert_array_equal(found.values, plain.values)
    assert (
        "gap-tv has no input for how far the mask may be wrong: mask_std is not used"
        in findings(found)
    )
    assert "mask_std_from" not in found.attrs


@pytest.mark.parametrize(
    "masks", [None, {"fault_share": 0.5, "told_share": 0.0}, {"fault_share": 0.0, "told_share": 1}]
)
def test_a_network_that_has_only_met_right_masks_says_so(masks: Any) -> None:
    model = lumen()
    # Masks that were wrong without a word teach nothing about being told.
    model.record["masks"] = masks
    told, plain = (
        reconstruct(SHOTS[0], RECORD, NOMINAL, model=model, **PLAIN, **how)
        for how in ({"mask_std": 0.1}, {})
    )
    assert "lumen.small was trained with right masks alone" in findings(told)
    assert findings(plain) == ""


def test_so_does_a_function_of_ones_own() -> None:
    def mine(measurement: torch.Tensor, mask: torch.Tensor, camera: Any) -> torch.Tensor:
        spread: torch.Tensor = camera.spread(measurement, mask)
        return spread

    found = reconstruct(SHOTS[0], RECORD, NOMINAL, mine, mask_std=0.1, **PLAIN)
    assert "has no input for how far the mask may be wrong" in findings(found)


# --- what cannot be meant -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("std", "kind", "text"),
    [
        (-0.1, ConfigError, "mask_std is -0.1; .*between 0 .exact. and 1, the mask's own range"),
        (1.5, ConfigError, "mask_std is 1.5; .*Leave it out where it is unknown"),
        (float("nan"), ConfigError, "mask_std is nan"),
        (STD[:-2], ShapeError, "mask_std is 22×30 and its mask 24×30: 24×30 is needed"),
        (np.stack([STD] * 6), ShapeError, "mask_std is 6×24×30 and its mask 24×30"),
        (STD - 0.1, ValuesError, "mask_std goes down to -0.*; a standard deviation is 0 or more"),
        (np.where(STD > 0.19, np.nan, STD), ValuesError, "mask_std is NaN at [0-9]+ of 720 pixels"),
        (255 * STD, ValuesError, "mask_std goes up to 5.*Divide it by what the mask was divided"),
        (RECORD, ValuesError, "mask_std is the mask itself. Give how far each of its pixels"),
        (Measurement(STD), ValuesError, "mask_std is a Measurement; give a number"),
        ("missing.nc", Exception, "missing.nc does not exist"),
        ({"a": 1}, ValuesError, "mask_std is a dict; give a record, the path of a file"),
    ],
    ids=["negative", "large", "nan", "size", "planes", "negative map", "NaN map", "counts",
         "the mask itself", "measurement", "missing", "dict"],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(std: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        made(mask_std=std)
    if kind is ShapeError:  # also where it would not be used
        with pytest.raises(kind, match=text):
            made(model="gap-tv", mask_std=std)


def test_a_misspelt_name_is_told() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'mask_std'"):
        reconstruct(SHOTS[0], RECORD, NOMINAL, maskstd=0.1)


# --- wavelengths ----------------------------------------------------------------------------------


def test_what_is_assumed_of_wavelengths_is_said_in_python_too() -> None:
    said = " ".join(made().attrs["findings"])
    assert "the wavelengths of these 6 bands are unknown" in said
    known = made(wavelengths=[450, 480, 510, 540, 570, 600])
    assert "wavelengths" not in " ".join(known.attrs["findings"])


# --- evaluations ----------------------------------------------------------------------------------


def test_evaluations_tell_every_network_the_same_number() -> None:
    cube = Cube(np.random.default_rng(0).random((6, *SIZE)), 450.0 + 30 * np.arange(6))
    models = {"small": lumen(), "gap-tv": "gap-tv:iterations=2"}
    how: dict[str, Any] = {
        "scenes": {"one": cube}, "masks": {"mine": RECORD}, "camera": NOMINAL, "timing": False,
        "trials": 1, "device": "cpu", "precision": "float32", "metrics": ("psnr_paper",),
        "protocol": "one-to-many",
    }  # fmt: skip
    told, plain = evaluate(models, mask_std=0.2, **how), evaluate(models, **how)
    for model, same in (("small", False), ("gap-tv", True)):
        assert (told.mean(model, "mine") == plain.mean(model, "mine")) == same
    assert any(
        "gap-tv has no input for how far the mask may be wrong" in r for r in told.plan.remarks
    )


def test_evaluations_refuse_what_is_no_spread() -> None:
    with pytest.raises(ConfigError, match="mask_std is 3; it says how far the mask may be wrong"):
        Settings(mask_std=3.0)


def test_the_same_run_again_is_the_same_result() -> None:
    ready = Reconstruction(Options(mask_std=STD, **PLAIN), lumen())
    first, second = (ready(SHOTS[0], RECORD, NOMINAL) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
