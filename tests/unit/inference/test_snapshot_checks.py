"""What is looked at before anything runs: sizes, exposure, dark level, scale."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from prismask.errors import ShapeError
from prismask.inference import inspection
from prismask.inference.alignment.pose import Registration
from prismask.inference.engine import project, throughput
from prismask.inference.inspection import Snapshot
from prismask.inference.options import Options
from prismask.inference.reconstruct import Residual, reproject
from prismask.optics.camera import CASSI, Resolved, camera_attrs, resolve_camera
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA = CASSI.from_step(12)
GRID = tuple(450.0 + 18 * k for k in range(12))


def _shot(size: tuple[int, int] = (160, 150)) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    cube = torch.tensor(random_scene(3, size, GRID).values)
    mask = fabricate_mask(size, seeded(1))[None, None]
    return cube, mask, CAMERA.forward(cube[None], mask)[0]


def test_a_wrong_step_is_corrected_before_the_band_count() -> None:
    with pytest.raises(ShapeError, match="fit 28 bands at 2 px: give --step 2"):
        inspection.check_fit((660, 714), (660, 660), CASSI.from_step(28, 1.0))


# --- cameras and sizes ---------------------------------------------------------------------------


def test_a_noted_camera_is_taken() -> None:
    noted = CASSI((0.0, 1.5, 4.0), "height")
    found = resolve_camera(None, camera_attrs(noted), sizes=((1, 1), (1, 1)))
    assert found == Resolved(noted)


def test_the_default_camera_is_taken_where_it_fits() -> None:
    found = resolve_camera(sizes=((660, 714), (660, 660)))
    assert found == Resolved(CASSI.from_step())


@pytest.mark.parametrize(
    ("measurement", "bands", "axis"), [((660, 706), 24, "width"), ((720, 660), 31, "height")]
)
def test_other_band_counts_are_found_from_the_sizes(
    measurement: tuple[int, int], bands: int, axis: str
) -> None:
    found = resolve_camera(sizes=(measurement, (660, 660)))
    assert (found.camera.bands, found.camera.axis) == (bands, axis)
    assert f"{bands} bands at 2 px are assumed" in found.assumed


@pytest.mark.parametrize("measurement", [(660, 660), (660, 663), (660, 666), (650, 706)])
def test_odd_sizes_are_not_guessed(measurement: tuple[int, int]) -> None:
    found = resolve_camera(sizes=(measurement, (660, 660)))
    assert found == Resolved(CASSI.from_step())


@pytest.mark.parametrize(
    ("measurement", "mask", "sentence"),
    [
        ((32, 38), (32, 32), "need a measurement of 32×86"),
        ((32, 38), (32, 32), "These two sizes fit 4 bands at 2 px."),
        ((40, 84), (30, 40), "Turned by 90° the mask would fit"),
        ((84, 40), (40, 30), "Turned by 90° the measurement would fit"),
        ((84, 40), (30, 40), "give --axis height"),
        ((60, 114), (50, 50), "mask is smaller than the scene"),
        (
            (90, 120),
            (90, 69),
            "over 51 px: give --bands and --step (28 bands would be 1.89",
        ),
        ((90, 120), (90, 69), "Otherwise the mask is 3 px too wide, and this"),
        ((120, 90), (69, 90), "the spectrum spreads over 51 px"),
        (
            (90, 127),
            (90, 70),
            "over 57 px: give --bands and --step (28 bands would be 2.11",
        ),
        ((90, 127), (90, 70), "Otherwise the mask is smaller than the scene"),
        ((60, 114), (70, 70), "The mask is 10 px too tall and 10 px too wide, and this"),
    ],
)
def test_sizes_that_do_not_fit_name_what_would(
    measurement: tuple[int, int], mask: tuple[int, int], sentence: str
) -> None:
    axis: Literal["width", "height"] = "height" if measurement == (120, 90) else "width"
    with pytest.raises(ShapeError) as raised:
        inspection.check_fit(measurement, mask, CASSI.from_step(axis=axis))
    assert sentence in str(raised.value)


def test_a_mask_that_is_larger_both_ways_tells_nothing_of_the_dispersion() -> None:
    with pytest.raises(ShapeError) as raised:
        inspection.check_fit((60, 114), (70, 70), CASSI.from_step())
    assert "spreads over" not in str(raised.value)


def test_offsets_that_spread_too_little_are_what_is_to_be_checked() -> None:
    camera = CASSI((0.0, 4.3, 8.5))
    with pytest.raises(ShapeError, match="spread over 20 px: check the band offsets"):
        inspection.check_fit((40, 60), (40, 40), camera)


def test_dual_disperser_wants_a_longer_mask() -> None:
    camera = CASSI.from_step(5, design="dual")
    inspection.check_fit((20, 30), (20, 38), camera)
    with pytest.raises(ShapeError, match="need a mask of 20×38"):
        inspection.check_fit((20, 30), (20, 30), camera)


# --- exposure, dark level, scale -----------------------------------------------------------------


def test_saturation_is_noticed() -> None:
    _, _, signal = _shot()
    assert not inspection.exposure_findings(signal, 0.0)
    clipped = signal.clamp_max(float(signal.quantile(0.98)))
    [finding] = inspection.exposure_findings(clipped, 0.0)
    assert finding.weight == "warning"
    assert "2 % of the snapshot's pixels are at its largest value" in finding.text


@pytest.mark.parametrize("given", [None, 0.25])
def test_a_dark_level_is_called_estimated_only_where_it_is(given: float | None) -> None:
    _, mask, signal = _shot()
    shot, code = Measurement((signal + 0.25).numpy()), Mask(mask[0, 0].numpy())
    options = Options(dark=given, check_mask=False, bad_pixels="none")
    found = inspection.inspect(shot, code, CAMERA, options, torch.device("cpu"))
    told = [one.text for one in found.findings if "dark level" in one.text]
    assert found.dark == pytest.approx(0.25, abs=0.05)
    assert bool(told) == (given is None)


def test_a_frame_that_is_clipped_everywhere_says_so_in_plain_numbers() -> None:
    [finding] = inspection.exposure_findings(torch.ones(20, 26), 0.0)
    assert finding.text.startswith("100 % of the snapshot's pixels")
    assert "120 % of the signal, 340 × the noise" in Residual(1.0, 1.2, 1 / 340, "given").text()


def test_the_one_brightest_pixel_of_a_small_frame_is_not_clipped() -> None:
    signal = torch.rand(20, 26, generator=seeded(3))
    assert not inspection.exposure_findings(signal, 0.0)
    for count in (3, 4):
        signal.flatten()[:count] = 1.0
        assert len(inspection.exposure_findings(signal, 0.0)) == (count == 4)


@pytest.mark.parametrize("offset", [0.2, 1.0])
def test_a_dark_level_is_read_back(offset: float) -> None:
    _, mask, signal = _shot()
    light = throughput(mask, CAMERA)
    noise = 0.01 * torch.randn(signal.shape, generator=seeded(0))
    found = inspection.dark_level(signal + offset + noise, light)
    assert found == pytest.approx(offset, abs=0.08)
    assert found <= offset + 0.03


def test_no_dark_level_where_there_is_none() -> None:
    _, mask, signal = _shot()
    assert inspection.dark_level(signal, throughput(mask, CAMERA)) == 0
    # Nor in a scene without a dark corner.
    white = CAMERA.forward(torch.ones(1, 12, 160, 150), mask)[0]
    assert inspection.dark_level(white, throughput(mask, CAMERA)) == 0
    assert inspection.dark_level(torch.zeros(160, 172), throughput(mask, CAMERA)) == 0


def test_a_scale_the_network_does_not_know_is_brought_home() -> None:
    _, mask, signal = _shot()
    light = throughput(mask, CAMERA)
    level = inspection.brightness(signal, light)
    assert inspection.network_gain(level) == 1, "a scene in the cube's own units is left alone"
    for factor in (0.01, 50.0):
        gain = inspection.network_gain(inspection.brightness(signal * factor, light))
        assert float(gain * factor * level) == pytest.approx(inspection.TYPICAL_LEVEL, rel=1e-3)
    found = inspection.network_gain(torch.tensor([0.0, float(level)]))
    assert found.tolist() == [1, 1]
    exact = torch.tensor(0.45, dtype=torch.float64)
    assert float(inspection.network_gain(exact, typical=4.0)) == pytest.approx(4 / 0.45)


def test_brightness_of_a_grey_scene_is_its_value() -> None:
    _, mask, _ = _shot()
    signal = CAMERA.forward(torch.full((1, 12, 160, 150), 0.3), mask)[0]
    assert inspection.brightness(signal, throughput(mask, CAMERA)) == pytest.approx(0.3, rel=1e-4)


# --- sentences about the mask --------------------------------------------------------------------


def test_what_is_said_about_the_mask() -> None:
    def text(found: Registration | None) -> str:
        return " ".join(finding.text for finding in inspection.registration_findings(found))

    assert text(None) == ""
    assert text(Registration(30, 30, span=30, extent=30)) == ""
    assert "is not found in the snapshot" in text(Registration(1, 3))
    moved = text(Registration(2, 30, "as given", (3, -5), 30, 30))
    assert "shifted by +3 rows and -5 columns" in moved
    flipped = text(Registration(2, 30, "flipped left-right", (0, 0), 30, 30))
    assert "better flipped left-right (score 30 instead of 2)" in flipped
    longer = text(Registration(20, 30, "as given", (0, 8), 57, 46))
    assert "found over 57 px" in longer


@pytest.mark.parametrize(("moved", "told"), [(0.0, False), (4.0, False), (6.0, True), (50.0, True)])
def test_planes_of_other_wavelengths_are_told(moved: float, told: bool) -> None:
    at = np.linspace(450, 550, 11)
    found = inspection.plane_findings(Mask(np.ones((11, 3, 4)), at + moved), at)
    assert bool(found) == told
    if told:
        assert found[0].weight == "warning"
        assert f"450 to 550 nm, up to {moved:g} nm away" in found[0].text


def test_planes_without_wavelengths_say_nothing() -> None:
    at = np.linspace(450, 550, 11)
    assert not inspection.plane_findings(Mask(np.ones((11, 3, 4))), at)
    assert not inspection.plane_findings(Mask(np.ones((3, 4))), at)
    assert not inspection.plane_findings(Mask(np.ones((11, 3, 4)), at + 50), None)


# --- the camera in strips, residual -------------------------------------------------------


@pytest.mark.parametrize("camera", [CAMERA, CASSI.from_step(12, axis="height")])
def test_strips_are_the_whole(camera: CASSI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismask.inference.engine.LINES", 7)
    cube, mask, _ = _shot((33, 40))
    assert torch.equal(project(cube, mask, camera), camera.forward(cube[None], mask)[0])
    assert torch.equal(throughput(mask, camera), camera.throughput(mask)[0])


def test_what_was_told_to_be_wrong_explains_as_much() -> None:
    cube, mask, _ = _shot()
    mask = 0.2 + 0.6 * mask
    std = torch.full_like(mask, 0.05)
    true = mask + std * torch.randn(mask.shape, generator=seeded(3))
    seen = Snapshot(CAMERA.forward(cube[None], true)[0], mask, CAMERA, 0.005, 1.0, std)
    found = reproject(cube, seen, "given")
    assert found.over_noise is not None
    assert found.over_noise > 3
    assert found.over_expected == pytest.approx(1, rel=0.05)
    assert "a mask as wrong as stated leaves" in found.text()


def test_the_truth_leaves_the_noise_as_residual() -> None:
    cube, mask, signal = _shot()
    noisy = signal + 0.02 * torch.randn(signal.shape, generator=seeded(2))
    right = reproject(cube, Snapshot(noisy, mask, CAMERA, 0.02, 1.0), "given")
    assert right.over_noise is not None
    assert right.over_noise == pytest.approx(1.0, rel=0.02)
    wrong = reproject(0.9 * cube, Snapshot(noisy, mask, CAMERA, 0.02, 1.0), "given")
    assert wrong.over_noise is not None
    assert wrong.over_noise > 3
    assert "× the noise (0.02, given)" in wrong.text()
    dark = reproject(0 * cube, Snapshot(0 * signal, mask, CAMERA, 0.0, 1.0), "given")
    assert dark.relative == 0
    assert dark.over_noise is None
    assert "noise" not in dark.text()
