"""Masks that say how far they may be wrong, and several calibrations of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
import xarray
from file_examples import WRITTEN, a_mask, a_mask_per_band, an_uncertain_mask, same

from prismask.errors import FormatError, ShapeError, ValuesError
from prismask.optics.masks import combine_calibrations
from prismask.scenes.conversion import as_mask, as_mask_std
from prismask.scenes.datasets import MaskRegion, load_mask_file
from prismask.scenes.formats.files import load_mask, load_mask_std, save
from prismask.scenes.records import Cube, Mask, Measurement, check_mask_std

STD = 0.1 * np.random.default_rng(9).random((5, 4), dtype=np.float32)


def test_a_mask_keeps_its_own_copy_that_nobody_changes() -> None:
    given = STD.copy()
    mask = replace(a_mask(), std=given)
    given[:] = 0
    assert mask.std is not None
    assert np.array_equal(mask.std, STD)
    assert not mask.std.flags.writeable
    assert mask.hash == a_mask().hash  # the same aperture, better known
    assert "with spread" in repr(mask)


@pytest.mark.parametrize(
    ("std", "kind", "text"),
    [
        (STD[:4], ShapeError, "mask_std is 4×4 and its mask 5×4: 5×4 is needed. Crop or turn it"),
        (np.float32(0.1), ShapeError, "mask_std is a single number and its mask 5×4"),
        (STD - 0.05, ValuesError, "goes down to -0.04.*; a standard deviation is 0 or more"),
        (np.where(STD > 0.09, np.nan, STD), ValuesError, "is NaN at 5 of 20 pixels.*leave all"),
        (np.where(STD > 0.09, np.inf, STD), ValuesError, "mask_std"),
        (255 * STD, ValuesError, "goes up to 2.*; a mask's values lie between 0 and 1.*Divide it"),
        (STD.astype(str), ValuesError, "mask_std holds <U.* values"),
        ([[0.1], [0.1, 0.2]], ValuesError, "mask_std is not an array of numbers"),
    ],
    ids=["size", "number", "negative", "NaN", "infinite", "too large", "text", "ragged"],
)
def test_a_spread_that_cannot_be_one_is_refused(std: Any, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        replace(a_mask(), std=std)


def test_planes_belong_to_masks_with_planes() -> None:
    with pytest.raises(ShapeError, match="3×5×4 and its mask 5×4"):
        replace(a_mask(), std=np.zeros((3, 5, 4)))
    with pytest.raises(ShapeError, match="2×5×4 and its mask 3×5×4: 3×5×4 or 5×4 is needed"):
        replace(a_mask_per_band(), std=np.zeros((2, 5, 4)))


@pytest.mark.parametrize(("extension", "form"), WRITTEN)
def test_any_file_that_can_hold_a_mask_can_hold_its_spread(
    tmp_path: Path, extension: str, form: str | None
) -> None:
    path = tmp_path / f"spread{extension}"
    save(Mask(STD), path, format=form)
    assert np.array_equal(load_mask_std(path), STD)
    # And a file that holds both says which is which, where its format can.
    both = tmp_path / f"both{extension}"
    save(an_uncertain_mask(), both, format=form)
    expected = an_uncertain_mask().std if extension in (".nc", ".mat", ".npz") else a_mask().values
    assert np.array_equal(load_mask_std(both), expected)


def test_counts_are_fractions_of_their_full_scale_as_in_masks(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.full((5, 4), 51, np.uint8))
    np.testing.assert_allclose(load_mask_std(tmp_path / "counts.npy"), 0.2)
    np.testing.assert_allclose(as_mask_std(np.full((5, 4), 51, np.uint8)), 0.2)


def test_a_foreign_file_brings_its_own(tmp_path: Path) -> None:
    mask = a_mask().values
    scipy.io.savemat(tmp_path / "lab.mat", {"mask": mask, "mask_std": STD})
    found = load_mask(tmp_path / "lab.mat")
    assert np.array_equal(found.std, STD)
    scipy.io.savemat(tmp_path / "bad.mat", {"mask": mask, "mask_std": STD - 0.05})
    with pytest.raises(ValuesError, match=r"bad\.mat: mask_std goes down to"):
        load_mask(tmp_path / "bad.mat")
    np.savez(tmp_path / "large.npz", mask=mask, mask_std=np.zeros((50, 40)))
    with pytest.raises(ShapeError, match=r"mask_std \(float64 50×40\) is larger than mask"):
        load_mask(tmp_path / "large.npz")
    scipy.io.savemat(tmp_path / "alone.mat", {"mask_std": STD})
    assert np.array_equal(load_mask_std(tmp_path / "alone.mat"), STD)
    with pytest.raises(ValuesError, match=r"bad\.mat: mask_std goes down to"):
        load_mask_std(tmp_path / "bad.mat")
    scipy.io.savemat(tmp_path / "two.mat", {"a": STD, "b": STD})
    with pytest.raises(FormatError, match="several arrays could be the mask"):
        load_mask_std(tmp_path / "two.mat")


def test_whatever_people_hold() -> None:
    mask, record = a_mask(), an_uncertain_mask()
    for given in (STD, torch.tensor(STD)[None, None], xarray.DataArray(STD, dims=("y", "x"))):
        assert np.array_equal(as_mask_std(given), STD)
    assert np.array_equal(as_mask_std(Mask(STD)), STD)
    assert np.array_equal(as_mask_std(record), record.std)
    assert np.array_equal(as_mask_std(record.to_xarray()), record.std)
    assert same(as_mask(record.to_xarray()), record)
    turned = xarray.DataArray(STD.T, dims=("x", "y"))
    assert np.array_equal(as_mask_std(turned), STD)
    with pytest.raises(ValuesError, match="mask_std is a Measurement; give a number, or how far"):
        as_mask_std(Measurement(mask.values))
    with pytest.raises(ValuesError, match="mask_std is a Cube"):
        as_mask_std(Cube(np.zeros((2, 5, 4))))
    with pytest.raises(ShapeError, match="mask_std is 2×2×5×4"):
        as_mask_std(np.zeros((2, 2, 5, 4)))
    with pytest.raises(ValuesError, match="goes up to 7"):
        as_mask_std(np.full((5, 4), 7.0))


def test_parts_of_a_mask_have_their_part_of_it(tmp_path: Path) -> None:
    mask = an_uncertain_mask()
    assert mask.std is not None
    save(mask, tmp_path / "mask.nc")
    region = MaskRegion("mask.nc", rows=(1, 4), columns=(0, 3))
    assert np.array_equal(load_mask_file(tmp_path, region).std, mask.std[1:4, :3])


# --- several calibrations -------------------------------------------------------------------------


def test_calibrations_give_their_mean_and_their_spread(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    truth = numbers.uniform(0.3, 0.7, (60, 70))
    spread = np.where(np.arange(70) < 35, 0.02, 0.06)
    stack = (truth + spread * numbers.normal(size=(8, 60, 70))).clip(0, 1)
    mask = combine_calibrations(stack)
    assert mask.std is not None
    np.testing.assert_allclose(mask.values, stack.mean(0), atol=1e-6)
    np.testing.assert_allclose(mask.std, stack.std(0, ddof=1), atol=1e-6)
    assert np.sqrt((mask.std[:, :35] ** 2).mean()) == pytest.approx(0.02, rel=0.05)
    assert np.sqrt((mask.std[:, 35:] ** 2).mean()) == pytest.approx(0.06, rel=0.05)
    assert mask.attrs["calibrations"] == 8
    masks = [Mask(one, attrs={"camera": "lab"}) for one in stack[:3]]
    paths = [tmp_path / f"{number}.nc" for number in range(3)]
    for one, path in zip(masks, paths, strict=True):
        save(one, path)
    listed = combine_calibrations(paths)
    assert same(listed, combine_calibrations(masks))
    assert listed.attrs == {"camera": "lab", "calibrations": 3}


def test_equal_calibrations_are_exact_and_per_band_masks_stay_so() -> None:
    mask = combine_calibrations([a_mask_per_band(), a_mask_per_band()])
    assert mask.values.shape == (3, 5, 4)
    assert np.array_equal(mask.wavelengths, a_mask_per_band().wavelengths)
    assert not check_mask_std(mask.std).any()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([np.zeros((5, 4))], "two or more calibrations of one mask.*1 came"),
        ([], "0 came"),
        ([np.zeros((5, 4)), np.zeros((4, 5))], "they are 5×4, 4×5"),
        ([np.zeros((5, 4)), np.zeros((2, 5, 4))], "they are 5×4, 2×5×4"),
    ],
)
def test_one_calibration_has_no_spread(given: Any, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        combine_calibrations(given)


def test_a_calibration_that_is_no_mask_is_named() -> None:
    with pytest.raises(ShapeError, match="calibration 2 is 3"):
        combine_calibrations([np.zeros((5, 4)), np.zeros(3)])
