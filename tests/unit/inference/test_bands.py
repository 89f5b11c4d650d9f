"""A network behind a camera with another number of bands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from prismask.inference.camera_match import STRETCH_FROM, BandAdapter, adapter_for
from prismask.models.weights import ONE_CAMERA, Variation
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.synthetic.demo import random_scene

GRID = (453.3, 648.1)


def test_the_same_band_count_changes_nothing() -> None:
    camera = CASSI.from_step(6)
    adapter = BandAdapter.between(camera, 6, CASSI.from_step(6))
    assert adapter.shown is camera
    assert adapter.gain == 1
    values = np.random.default_rng(0).random((6, 3, 4)).astype(np.float32)
    assert adapter.back(values) is values
    mask = torch.rand(3, 4)
    assert torch.equal(adapter.mask(mask)[0, 0], mask)


@pytest.mark.parametrize(("bands", "network"), [(24, 28), (31, 28), (20, 28)])
def test_both_cameras_take_the_same_photograph(bands: int, network: int) -> None:
    """A smooth spectrum gives nearly the same snapshot through the real and the virtual camera."""
    camera = CASSI.from_step(bands)
    adapter = BandAdapter.between(camera, network)
    assert adapter.shown.bands == network
    assert adapter.shown.extent == camera.extent

    def scene(count: int) -> torch.Tensor:
        at = np.linspace(*GRID, count)
        return torch.tensor(random_scene(4, (48, 48), tuple(at)).values)[None]

    # The prism cannot tell a mask finer than its step from a blurred one; a real one is coarser.
    mask = fabricate_mask((48, 48), seeded(0))[None, None]
    real = camera.forward(scene(bands), mask) * adapter.gain
    virtual = adapter.shown.forward(scene(network), adapter.mask(mask))

    def difference(one: torch.Tensor) -> float:
        return float((one - virtual).square().mean().sqrt() / virtual.std())

    assert difference(real) < 0.12
    assert float((real - virtual).mean().abs() / virtual.mean()) < 0.01
    # Without the factor, or with the bands in the wrong places, it is another photograph.
    assert difference(real / adapter.gain) > 1.5 * difference(real)
    assert difference(real.roll(3, -1)) > 2 * difference(real)


def test_there_and_back_keeps_smooth_spectra() -> None:
    adapter = BandAdapter.between(CASSI.from_step(24), 28)
    spectrum = np.cos(np.linspace(0, 3, 28))[:, None, None].astype(np.float32)
    expected = np.cos(np.linspace(0, 3, 24))
    assert np.allclose(
        adapter.back(torch.from_numpy(spectrum)).numpy()[:, 0, 0], expected, atol=2e-3
    )
    flat = np.full((28, 2, 2), 0.3, np.float32)
    assert np.allclose(adapter.back(torch.from_numpy(flat)).numpy(), 0.3)


def uneven(first: float, last: float, bands: int = 28) -> CASSI:
    """A prism whose bands lie `first` px apart at one end and `last` px at the other."""
    return CASSI((0.0, *np.cumsum(np.linspace(first, last, bands - 1)).tolist()))


@pytest.mark.parametrize("first", [2.9, 2.5, 1.1])
@pytest.mark.parametrize("bands", [28, 31, 20])
def test_an_uneven_prism_is_shown_as_an_even_one(first: float, bands: int) -> None:
    """The same photograph, and the same spectrum when it comes back."""
    camera = uneven(first, 4 - first, bands)
    adapter = BandAdapter.between(camera, 28, CASSI.from_step(28))
    assert adapter.is_needed
    assert np.allclose(np.diff(adapter.shown.offsets), camera.offsets[-1] / 27)
    # Light as a smooth density along the dispersion; a band holds what falls on its pixels.
    on = np.asarray(adapter.shown.offsets)
    density = 0.4 + 0.3 * np.cos(3 * on / on[-1])
    network = density[:, None, None].astype(np.float32) * np.ones((1, 48, 48), np.float32)
    real = adapter.back(torch.from_numpy(network)).numpy()
    at = np.asarray(camera.offsets)
    room = np.gradient(at) * (bands - 1) / at[-1]
    expected = (0.4 + 0.3 * np.cos(3 * at / at[-1])) * room
    assert np.allclose(real[:, 0, 0], expected, rtol=5e-3)
    mask = fabricate_mask((48, 48), seeded(0))[None, None]
    photograph = camera.forward(torch.tensor(real)[None], mask) * adapter.gain
    virtual = adapter.shown.forward(torch.tensor(network)[None], mask)
    inner = (..., slice(8, -8))  # the ends of a spectrum have room on one side only
    difference = (photograph - virtual)[inner]
    assert float(difference.square().mean().sqrt() / virtual[inner].std()) < 0.15


def test_a_network_that_learned_behind_a_prism_knows_it() -> None:
    prism = uneven(2.6, 1.4)
    assert BandAdapter.between(prism, 28, prism).shown is prism
    even = BandAdapter.between(CASSI.from_step(28), 28, prism)
    assert even.is_needed
    assert np.allclose(even.shown.offsets, prism.offsets)
    flat = np.full((28, 2, 2), 0.3, np.float32) * np.gradient(prism.offsets)[:, None, None] / 2
    assert np.allclose(
        even.back(torch.from_numpy(flat.astype(np.float32))).numpy()[:, 0, 0], 0.3, rtol=2e-2
    )


def test_bands_that_turn_back_are_counted() -> None:
    camera = CASSI((0.0, 4.0, 2.0, 6.0))
    assert BandAdapter.between(camera, 4, CASSI.from_step(4)).shown is camera
    assert BandAdapter.between(camera, 7).shown.offsets == (0, 2, 4, 3, 2, 4, 6)


def test_planes_of_the_mask_follow_the_bands() -> None:
    adapter = BandAdapter.between(CASSI.from_step(5), 9)
    planes = torch.linspace(0, 1, 5)[:, None, None].expand(5, 2, 3)
    assert torch.allclose(adapter.mask(planes)[0, :, 0, 0], torch.linspace(0, 1, 9))


@pytest.mark.parametrize(
    ("step", "bands", "strange"),
    [
        (2.0, 28, 1.0),
        (3.0, 28, 1.0),  # wide steps are stretched away
        (10.0, 28, 2.0),  # up to a limit
        (1.0, 28, 2.0),
        (-2.0, 28, 1.0),
        (2.0, 24, 54 / 46),
        (0.9, 60, 2.0 / (0.9 * 59 / 27)),  # many bands close together are as good as 28
        (54 / 7, 8, 27 / 7),  # eight bands far apart are not
        (54 / 19, 20, 27 / 19),
    ],
)
def test_dispersion_mismatch(step: float, bands: int, strange: float) -> None:
    adapter = BandAdapter.between(CASSI.from_step(bands, step), 28, CASSI.from_step(28))
    assert adapter.dispersion_mismatch == pytest.approx(strange)
    assert BandAdapter.between(CASSI.from_step(bands, step), 28).dispersion_mismatch == 1


@pytest.mark.parametrize(
    ("step", "bands", "factor"), [(2.0, 28, 1), (1.5, 28, 1), (3.0, 28, 2 / 3), (-3.0, 28, 2 / 3)]
)
def test_wide_steps_are_stretched(step: float, bands: int, factor: float) -> None:
    adapter = BandAdapter.between(CASSI.from_step(bands, step), 28, CASSI.from_step(28))
    assert adapter.stretch == pytest.approx(factor)
    assert BandAdapter.between(CASSI.from_step(bands, step), 28).stretch == 1


@pytest.mark.parametrize(
    ("camera", "another"),
    [
        (CASSI.from_step(28), False),
        (CASSI.from_step(28, -2), False),  # the same, to the left
        (CASSI.from_step(28, 2, "height"), False),
        (CASSI.from_step(28, 2.003), False),  # the last band lands 0.08 px further
        (CASSI.from_step(28, 2.02), True),  # half a pixel
        (CASSI.from_step(28, 1.98), True),
        (CASSI.from_step(28, 1.5), True),
        (CASSI.from_step(28, 3), True),
        (CASSI.from_step(27), True),
        (CASSI.from_step(54, 1), True),
        (uneven(2.05, 1.95), True),
        (uneven(2.6, 1.4), True),
        (CASSI.from_step(28, 2, design="dual"), True),
    ],
)
def test_which_camera_is_not_the_training_s(camera: CASSI, another: bool) -> None:
    assert BandAdapter.between(camera, 28, CASSI.from_step(28)).is_other_camera is another


def test_where_nothing_is_known_of_the_training_bands_alone_tell() -> None:
    assert not BandAdapter.between(CASSI.from_step(28, 3), 28).is_other_camera
    assert BandAdapter.between(CASSI.from_step(27), 28).is_other_camera


MANY = Variation((0.6, 1.1), 0.1)
"""A network that learned behind spectra of these lengths and bends."""


@pytest.mark.parametrize(
    ("step", "bands", "strange", "factor"),
    [
        (2.0, 28, 1.0, 1),
        (1.2, 28, 1.0, 1),  # the closest it knows
        (1.0, 28, 1.2, 1),
        (0.5, 28, 2.4, 1),
        (2.2, 28, 1.0, 1),  # the widest
        (2.4, 28, 1.0, 2 / 2.4),  # beyond it is stretched back to the camera it knows best
        (12.0, 28, 12 * 0.4 / 2.2, 0.4),
        (1.2 * 27 / 53, 54, 1.0, 1),
        (54 / 7, 8, 27 / 7, 1),
        (58 / 17, 18, 27 / 17, 1),  # further apart than its own by that, whatever the spectrum
        (62 / 17, 18, 27 / 17, 54 * 27 / 27 / 62),
        (34 / 11, 12, 17 / 11, 1),
        (2.2, 16, 1.0, 1),  # few bands, but no further apart than it knows
    ],
)
def test_only_what_lies_beyond_the_cameras_of_the_training_is_strange(
    step: float, bands: int, strange: float, factor: float
) -> None:
    adapter = BandAdapter.between(CASSI.from_step(bands, step), 28, CASSI.from_step(28), MANY)
    assert adapter.dispersion_mismatch == pytest.approx(strange)
    assert adapter.stretch == pytest.approx(factor)
    assert adapter.is_within_reach == (strange <= 1.6)


@given(
    bands=st.integers(2, 60),
    extent=st.floats(10, 300),
    known=st.builds(
        lambda low, high: Variation((low, high), 0.1), st.floats(0.3, 1), st.floats(1, 1.5)
    ),
)
@example(bands=28, extent=61, known=Variation((1.0, 1.125), 0.1))
@example(bands=28, extent=81.5, known=Variation((1.0, 1.5), 0.1))
def test_who_knows_more_reaches_further(bands: int, extent: float, known: Variation) -> None:
    camera = CASSI.from_step(bands, extent / (bands - 1))
    one, many = (
        BandAdapter.between(camera, 28, CASSI.from_step(28), each) for each in (ONE_CAMERA, known)
    )
    most = one.dispersion_mismatch
    if many.stretch != one.stretch:
        # Stretching loses detail, so a frame just beyond what the network knows is left as it is.
        assert one.stretch < many.stretch
        most = max(most, STRETCH_FROM)
    assert many.dispersion_mismatch <= most * (1 + 1e-9)


@pytest.mark.parametrize(
    ("spread", "factor", "nearest"),
    [
        ((0.6, 1.1), 0.8, 0.8),
        ((0.6, 1.1), 0.5, 0.6),
        ((0.6, 1.1), 3.0, 1.1),
        ((0.3, 0.5), 0.6, 0.5),  # nothing between its cameras and that of the record is known
        ((0.3, 0.5), 0.75, 1.0),
        ((0.3, 0.5), 2.0, 1.0),
        ((1.2, 1.5), 1.03, 1.0),
        ((1.2, 1.5), 0.0, 1.0),
        ((0.6, 1.1), 0.0, 0.6),
    ],
)
def test_the_nearest_that_it_knows(
    spread: tuple[float, float], factor: float, nearest: float
) -> None:
    known = Variation(spread)
    assert known.nearest_spread(factor) == nearest
    if factor:
        camera = CASSI.from_step(28, 2 * factor)
        adapter = BandAdapter.between(camera, 28, CASSI.from_step(28), known)
        assert adapter.stretch <= 1
        assert (adapter.stretch < 1) == (factor > 1.2)


@pytest.mark.parametrize("first", [2.9, 2.3, 1.7, 1.1])
@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_a_prism_that_is_bent_as_in_training_is_shown_as_it_is(first: float, scale: float) -> None:
    prism = uneven(scale * first, scale * (4 - first))
    adapter = BandAdapter.between(prism, 28, CASSI.from_step(28), MANY)
    assert adapter.shown is prism
    assert adapter.dispersion_mismatch == 1
    assert adapter.is_other_camera  # its errors are not those behind the camera of the record


@pytest.mark.parametrize("bands", [28, 31, 20])
def test_a_stronger_bend_is_shown_as_the_strongest_of_the_training(bands: int) -> None:
    prism = uneven(3.5, 0.5, bands)
    adapter = BandAdapter.between(prism, 28, CASSI.from_step(28), MANY)
    assert adapter.is_needed
    steps = np.diff(adapter.shown.offsets) * 27 / adapter.shown.offsets[-1]
    # Its ends lie 1 ± 4 b (1 − 1/27) times as far apart as without a bend.
    assert steps[0] == pytest.approx(1 + 0.4 * 26 / 27, rel=1e-2)
    assert steps[-1] == pytest.approx(1 - 0.4 * 26 / 27, rel=1e-2)
    mirrored = CASSI(tuple(prism.offsets[-1] - place for place in prism.offsets[::-1]))
    other = BandAdapter.between(mirrored, 28, CASSI.from_step(28), MANY)
    assert np.allclose(np.diff(other.shown.offsets)[::-1], np.diff(adapter.shown.offsets))


@pytest.mark.parametrize("bands", [31, 20])
def test_a_virtual_camera_is_bent_like_the_real_one(bands: int) -> None:
    prism = uneven(2.4, 1.6, bands)
    adapter = BandAdapter.between(prism, 28, CASSI.from_step(28), MANY)
    steps = np.diff(adapter.shown.offsets)
    assert steps[0] / steps[-1] == pytest.approx(2.4 / 1.6, rel=2e-2)
    even = BandAdapter.between(prism, 28, CASSI.from_step(28))
    assert np.ptp(np.diff(even.shown.offsets)) < 1e-6


def test_what_a_record_says_of_its_cameras() -> None:
    record = {"bands": 28, "step_px": 2.0, "spread": [0.6, 1.1], "bend": 0.1}
    adapter = adapter_for(CASSI.from_step(28, 1.5), record)
    assert adapter.variation == MANY
    assert adapter.dispersion_mismatch == 1
    plain = adapter_for(CASSI.from_step(28, 1.5), {"bands": 28, "step_px": 2.0})
    assert plain.dispersion_mismatch == pytest.approx(4 / 3)
    assert adapter_for(CASSI.from_step(28, 1.5), {"bands": 28}).trained is None


def test_orientation_and_design_are_kept() -> None:
    adapter = BandAdapter.between(CASSI.from_step(5, -2, "height", "dual"), 9)
    assert (adapter.shown.axis, adapter.shown.design) == ("height", "dual")
    assert adapter.shown.offsets[0] == adapter.camera.offsets[0] == 8
