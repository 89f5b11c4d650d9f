"""What a person at a notebook meets: arrays in, warnings out, arguments suggested."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import xarray

import prismask
from prismask.errors import ConfigError, PrismaskWarning, ShapeError
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction, reconstruct
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene
from prismask.wording import python_words

BANDS, SIZE = 6, (40, 48)
GRID = tuple(450.0 + 40 * k for k in range(BANDS))
CAMERA = CASSI.from_step(BANDS)


@pytest.fixture(scope="module")
def mask() -> Mask:
    return Mask(fabricate_mask(SIZE, seeded(0)).numpy())


@pytest.fixture(scope="module")
def shot(mask: Mask) -> Measurement:
    cube = random_scene(1, SIZE, GRID)
    return prismask.simulate(cube.to_xarray(), torch.tensor(mask.values), scale=1.0)


def test_arrays_tensors_and_xarray_give_the_same_cube(shot: Measurement, mask: Mask) -> None:
    wanted = reconstruct(shot, mask, CAMERA, iterations=2)
    y, m = shot.values, mask.values
    forms: list[tuple[Any, Any]] = [
        (y, m),
        (torch.tensor(y), torch.tensor(m)[None, None]),
        (xarray.DataArray(y, dims=("y", "x")), mask.to_xarray()),
    ]
    for snapshot, aperture in forms:
        made = reconstruct(snapshot, aperture, CAMERA, iterations=2)
        np.testing.assert_allclose(made.values, wanted.values, rtol=1e-6)


def test_two_arrays_are_scored(shot: Measurement, mask: Mask) -> None:
    truth = random_scene(1, SIZE, GRID)
    made = reconstruct(shot, mask, iterations=5)
    wanted = prismask.score(made, truth)
    assert prismask.score(np.asarray(made.values), torch.tensor(truth.values)) == wanted
    assert set(prismask.score(made, truth, ["sam"])) == {"sam"}


def test_doubts_are_warnings_in_the_words_of_python(shot: Measurement, mask: Mask) -> None:
    clipped = np.minimum(shot.values, np.quantile(shot.values, 0.9))
    with pytest.warns(PrismaskWarning, match="overexposed") as caught:
        cube = reconstruct(clipped, mask, CAMERA, iterations=2)
    assert caught[0].filename == __file__
    assert any(line.startswith("warning: ") for line in cube.attrs["findings"])
    with pytest.warns(PrismaskWarning, match="overexposed") as caught:
        Reconstruction(Options(method="gap-tv"))(clipped, mask, CAMERA)
    assert caught[0].filename == __file__
    # What the commands call tells them in its history only.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Reconstruction(Options(method="gap-tv")).run(Measurement(clipped), mask, CAMERA)


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("--align finds its pose.", "align=True finds its pose."),
        ("give --align instead of --pose.", "give align=True instead of pose."),
        ("(--adapt 60 learns it)", "(adapt=60 learns it)"),
        ("Give --dark 0 to keep it.", "Give dark=0 to keep it."),
        ("compare with --method gap-tv.", "compare with method='gap-tv'."),
        ("Give --model lumen.m2m to", "Give model='lumen.m2m' to"),
        ("with --wavelengths, or", "with wavelengths, or"),
        ("say so: --bands 24.", "say so: bands=24 of the camera."),
        ("`prismask calibrate --out new` fits", "`prismask calibrate --out new` fits"),
    ],
)
def test_flags_become_arguments(flags: str, arguments: str) -> None:
    assert python_words(flags) == arguments


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("smaples", "samples"), ("sample", "samples"), ("wavelength", "wavelengths")],
)
def test_a_misspelt_argument_is_suggested_first(
    shot: Measurement, mask: Mask, wrong: str, right: str
) -> None:
    for how in ({}, {"method": "gap-tv"}):
        with pytest.raises(ConfigError, match=f"no argument '{wrong}'. Did you mean '{right}'?"):
            reconstruct(shot, mask, **how, **{wrong: 2})  # type: ignore[arg-type]  # one key
    with pytest.raises(ConfigError, match="Did you mean 'iterations'"):
        reconstruct(shot, mask, method="gap-tv", iteration=2)


def test_a_camera_described_as_on_the_command_line_is_told_how(
    shot: Measurement, mask: Mask
) -> None:
    for word in ("bands", "step"):
        with pytest.raises(ConfigError, match=rf"{word} belongs to the camera: .*CASSI.from_step"):
            reconstruct(shot.values, mask.values, **{word: 6})
    with pytest.raises(ConfigError, match=r"camera is 28; give CASSI\.from_step"):
        reconstruct(shot.values, mask.values, 28)  # type: ignore[arg-type]  # what people try


def test_progress_can_be_shown(
    shot: Measurement, mask: Mask, capsys: pytest.CaptureFixture[str]
) -> None:
    reconstruct(shot, mask, iterations=3, progress=True)
    assert "3 of 3" in capsys.readouterr().err
    reconstruct(shot, mask, iterations=3, progress=False)
    assert capsys.readouterr().err == ""


def test_arrays_are_evaluated(mask: Mask) -> None:
    scene = random_scene(2, (24, 24), GRID)
    common: dict[str, Any] = {"trials": 1, "camera": CAMERA, "metrics": ("rmse",), "timing": False}
    wanted, made = (
        prismask.evaluate(
            {"gap": "gap-tv:iterations=2"}, scenes={"a": cube}, masks={"mine": aperture}, **common
        )
        for cube, aperture in ((scene, mask), (torch.tensor(scene.values), mask.values))
    )
    assert made.mean("gap", "mine", "rmse") == wanted.mean("gap", "mine", "rmse")


def test_masked_and_complex_arrays_are_refused_with_what_to_do(
    shot: Measurement, mask: Mask
) -> None:
    masked = np.ma.masked_greater(shot.values, 0.5 * shot.values.max())
    with pytest.raises(ValueError, match=r"are masked: .* bad_pixels=np.ma.getmaskarray\(y\)"):
        reconstruct(masked, mask, CAMERA)
    with pytest.raises(ValueError, match="complex64 values, and real numbers are needed"):
        reconstruct(shot.values.astype(np.complex64), mask, CAMERA)


def test_descending_wavelengths_ask_for_a_negative_step(shot: Measurement, mask: Mask) -> None:
    with pytest.raises(ValueError, match="has a negative step, such as step=-2 of the camera"):
        reconstruct(shot, mask, CAMERA, wavelengths=GRID[::-1], iterations=1)


def test_other_words_and_broken_numbers_are_told(shot: Measurement, mask: Mask) -> None:
    with pytest.raises(ConfigError, match=r"no argument 'mask_uncertainty'. Did you mean 'mask_st"):
        reconstruct(shot, mask, CAMERA, mask_uncertainty=0.1)
    with pytest.raises(ConfigError, match=r"no argument 'noise'. Did you mean 'noise_std'?"):
        reconstruct(shot, mask, CAMERA, noise=0.01)  # and not gap-tv in silence
    reconstruct(shot, mask, CAMERA, "gap-tv", noise=0.01, iterations=1)
    with pytest.raises(ConfigError, match=r"not take iterations=2.5: a whole number"):
        reconstruct(shot, mask, CAMERA, "gap-tv", iterations=2.5)


def test_findings_name_arguments_and_small_frames_are_not_checked(
    shot: Measurement, mask: Mask
) -> None:
    cube = reconstruct(shot.values, mask, CAMERA, iterations=1)
    said = " ".join(cube.attrs["findings"])
    assert "--" not in said
    assert "too small to check that this is its mask, in the right orientation" in said
    unasked = reconstruct(shot.values, mask, CAMERA, iterations=1, check_mask=False)
    assert "too small" not in " ".join(unasked.attrs["findings"])


def test_a_swapped_truth_and_the_line_that_is_warned_of(shot: Measurement, mask: Mask) -> None:
    truth, made = random_scene(1, SIZE, GRID), reconstruct(shot, mask, CAMERA, iterations=2)
    prismask.score(made, truth)
    with pytest.warns(PrismaskWarning, match=r"swapped\? score\(estimate, truth\)") as told:
        prismask.score(truth, made)
    assert told[0].filename == __file__


def test_a_colour_picture_is_told_what_it_is(shot: Measurement, mask: Mask) -> None:
    colour = np.stack([shot.values] * 3, axis=-1)
    with pytest.raises(ShapeError, match="If it is the picture of a colour sensor"):
        reconstruct(colour, mask, CAMERA)
    with pytest.raises(
        ShapeError, match=r"give average=True: \S+ mean is then reconstructed. Pass snap"
    ):
        reconstruct(np.stack([shot.values] * 3), mask, CAMERA)


def test_wavelengths_that_nobody_gave_are_marked_where_a_cube_is_shown() -> None:
    assumed = prismask.Cube(np.ones((2, 3, 4)), [450, 550], attrs={"wavelengths_from": "default"})
    assert "450–550 nm (assumed)" in repr(assumed)
    assert "assumed" in assumed._repr_html_()
    assert "assumed" not in repr(prismask.Cube(np.ones((2, 3, 4)), [450, 550]))
