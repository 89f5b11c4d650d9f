"""A network that works from the snapshot behind every camera: what it is shown is what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import interval_record
from small_lumen import CAMERAS, NOMINAL, SIZE, lumen, snapshots
from torch import Tensor

from prismask.apps.cli.models import _facts, _weights_line
from prismask.errors import PrismaskWarning
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match import CameraMatch, Turn, View, match_camera
from prismask.inference.inspection import prepare
from prismask.inference.methods import registry
from prismask.inference.methods.network import NetworkMethod, _pieces
from prismask.inference.methods.registry import Choice, network_method
from prismask.inference.options import Options
from prismask.inference.reconstruct import deliver_batch, in_pose, reconstruct
from prismask.models import weights
from prismask.models.backbones.lumen import Belief, Shot, doubt
from prismask.models.inputs import BLIND, Observation
from prismask.models.network import Reconstructor
from prismask.models.weights import save_weights, trained_with
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded
from prismask.scenes.records import Cube

CPU = torch.device("cpu")
PLAIN: dict[str, Any] = {
    "device": "cpu", "precision": "float32", "dark": 0.0, "bad_pixels": "none", "check_mask": False,
}  # fmt: skip
ANY = pytest.mark.filterwarnings("ignore:this camera is beyond:prismask.errors.PrismaskWarning")
"""For those who insist behind two dispersers, which the small network's record does not know."""


def made(model: Reconstructor, shot: Tensor, mask: Tensor, camera: CASSI, **how: Any) -> Cube:
    return reconstruct(shot, mask[0], camera, model=model, **{**PLAIN, **how})


def bare(
    model: Reconstructor, shots: Tensor, mask: Tensor, camera: CASSI, std: Tensor | None
) -> Tensor:
    """The network itself on turned frames of noise 0.01, and its cubes turned back."""
    turn = Turn.towards(camera, 2.0)
    told = None if std is None else turn.there(std)
    level = torch.full((len(shots),), 0.01)
    cubes: Tensor = model(turn.there(shots), turn.there(mask), turn.camera(camera), level, told)
    return turn.back(cubes)


# --- the same as the network itself ---------------------------------------------------------------


@ANY
@pytest.mark.parametrize("per_band", [False, True], ids=["one plane", "a plane per band"])
@pytest.mark.parametrize("name", CAMERAS)
def test_what_is_delivered_is_what_the_network_says(name: str, per_band: bool) -> None:
    camera, model = CAMERAS[name], lumen()
    shots, mask = snapshots(camera, 2, camera.bands if per_band else 1)
    # A map that differs from pixel to pixel: turned the wrong way it would be another one.
    std = 0.2 * torch.rand(mask.shape, generator=seeded(7))
    for told, given in ((std, {"mask_std": std}), (None, {})):
        expected = bare(model, shots, mask, camera, told)
        options = Options(noise_std=0.01, **PLAIN, **given)
        method = network_method(model, CPU, options)
        batch = deliver_batch(method, None, shots, mask, camera, options)
        torch.testing.assert_close(batch, expected, atol=1e-5, rtol=1e-4)
        for shot, cube in zip(shots, expected, strict=True):
            found = made(model, shot, mask, camera, noise_std=0.01, **given)
            np.testing.assert_allclose(found.values, cube, atol=1e-5, rtol=1e-4)
            assert found.values.shape == (camera.bands, *SIZE)
    assert not torch.allclose(bare(model, shots, mask, camera, std), expected, atol=1e-3)


@ANY
@pytest.mark.parametrize("name", CAMERAS)
def test_nothing_is_resampled(name: str) -> None:
    camera = CAMERAS[name]
    shots, mask = snapshots(camera)
    method = network_method(lumen(), CPU, Options(**PLAIN))
    seen = method.view(Observation(shots, mask, camera, torch.zeros(1)), torch.full((1,), 0.5))
    assert not seen.is_resampled
    assert seen.shown.camera.axis == "width"
    assert seen.shown.camera.bands == camera.bands
    torch.testing.assert_close(seen.turn.back(seen.shown.measurement), shots, atol=0, rtol=0)


# --- longer spectra than it was tried with --------------------------------------------------------

LONG = {
    "15 px": CASSI.from_step(6, 3.0),
    "to the left": CASSI.from_step(6, -3.0),
    "along the height": CASSI.from_step(6, 4.0, axis="height"),
    "few bands": CASSI.from_step(4, 6.0),
}
TOO_LONG = CASSI.from_step(6, 5.2)
"""26 px, where the training's own 10 px become 25 px at most."""


def tried() -> Reconstructor:
    """The small network, scored behind spectra of up to 12 px."""
    model = lumen()
    model.record["measured_cameras"] = {"bands": [4, 12], "length_px": [4.0, 12.0]}
    return model


def shown_to(model: Reconstructor, camera: CASSI, std: Tensor | None, planes: int = 1) -> View:
    shots, mask = snapshots(camera, 1, planes)
    method = network_method(model, CPU, Options(**PLAIN))
    taken = Observation(shots, mask, camera, torch.full((1,), 0.01), std)
    return method.view(taken, torch.full((1,), 0.5))


@pytest.mark.parametrize("planes", [1, None], ids=["one plane", "a plane per band"])
@pytest.mark.parametrize("name", LONG)
def test_a_map_lies_on_its_mask_with_longer_pixels_too(name: str, planes: int | None) -> None:
    camera = LONG[name]
    _, mask = snapshots(camera, 1, planes or camera.bands)
    seen = shown_to(tried(), camera, 0.5 * mask, planes or camera.bands)
    assert seen.stretch is not None
    length = abs(seen.shown.camera.offsets[-1] - seen.shown.camera.offsets[0])
    assert length == pytest.approx(10, rel=0.05)
    assert seen.shown.mask_std is not None
    torch.testing.assert_close(seen.shown.mask_std, 0.5 * seen.shown.mask, atol=0.02, rtol=0)
    everywhere = shown_to(tried(), camera, torch.full_like(mask, 0.1)).shown.mask_std
    torch.testing.assert_close(everywhere, torch.full_like(everywhere, 0.1))


@pytest.mark.parametrize("name", LONG)
def test_longer_spectra_are_delivered_with_what_is_known_of_the_mask(name: str) -> None:
    camera, model = LONG[name], tried()
    (shot, mask) = snapshots(camera)
    std = 0.3 * torch.rand(mask.shape, generator=seeded(7))
    flat = torch.full_like(mask, 0.1)
    cubes = []
    for told in (std, None, flat, 0.1):
        given = {} if told is None else {"mask_std": told}
        found = made(model, shot[0], mask, camera, noise_std=0.01, **given)
        assert found.values.shape == (camera.bands, *SIZE)
        assert any("times as long along the dispersion" in x for x in found.attrs["findings"])
        seen = shown_to(model, camera, told if isinstance(told, Tensor) else None)
        assert seen.stretch is not None
        assert found.attrs["frame_stretch"] == seen.stretch.factor
        # A batch is made the same way.
        options = Options(noise_std=0.01, **PLAIN, **given)
        method = network_method(model, CPU, options)
        batch = deliver_batch(method, None, shot, mask, camera, options)
        np.testing.assert_allclose(found.values, batch[0], atol=1e-5, rtol=1e-4)
        cubes.append(found.values)
    np.testing.assert_allclose(cubes[3], cubes[2], atol=1e-5)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(cubes[one] - cubes[other]).max() > 1e-3


# --- the last step --------------------------------------------------------------------------------


@ANY
@pytest.mark.parametrize("name", CAMERAS)
def test_without_noise_an_exact_mask_is_believed(name: str) -> None:
    camera, model = CAMERAS[name], lumen()
    (shot, mask) = snapshots(camera)
    cube = torch.tensor(made(model, shot[0], mask, camera, noise_std=0.0, mask_std=0.0).values)
    left = (camera.forward(cube[None], mask) - shot).square().mean().sqrt()
    told = (torch.zeros(1), torch.zeros_like(mask))
    seen = Observation(shot, mask, camera, *told)
    before = camera.forward(model.before_projection(seen), mask) - shot
    if camera.is_exactly_diagonal:
        assert left < 1e-6 * shot.square().mean().sqrt()
    # Between pixels A Aᵀ is not diagonal: the last step goes there by steps, and not all the way.
    assert left < 0.15 * before.square().mean().sqrt()


@pytest.mark.parametrize("name", ["of the training", "fractional", "along the height"])
def test_the_more_a_mask_may_be_wrong_the_less_it_is_believed(name: str) -> None:
    """A network whose features say nothing: the cube before the last step is always the same."""
    camera, model = CAMERAS[name], lumen(size=0.0)
    (shot, mask) = snapshots(camera)
    left = []
    for std in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
        cube = made(model, shot[0], mask, camera, noise_std=0.0, mask_std=std)
        left.append(float((camera.forward(torch.tensor(cube.values)[None], mask) - shot).norm()))
    assert left == sorted(left)
    assert left[-1] > 5 * left[0]


def test_a_mask_is_doubted_where_it_is_told_to_be_wrong() -> None:
    (shot, mask), model = snapshots(NOMINAL), lumen(size=0.0)
    std = torch.zeros_like(mask)
    std[..., :12, :] = 0.3
    cube = made(model, shot[0], mask, NOMINAL, noise_std=0.0, mask_std=std)
    left = (NOMINAL.forward(torch.tensor(cube.values)[None], mask) - shot).abs()[0]
    assert float(left[:12].mean()) > 100 * float(left[12:].mean())


# --- everything else that a network does ----------------------------------------------------------


def test_strips_have_their_part_of_the_map() -> None:
    (shot, mask) = snapshots(NOMINAL)
    std = 0.3 * torch.rand(mask.shape, generator=seeded(8))
    whole, cut, untold = (
        made(lumen(stages=1), shot[0], mask, NOMINAL, noise_std=0.01, **how).values
        for how in ({"mask_std": std}, {"mask_std": std, "tile": 8}, {"tile": 8})
    )
    np.testing.assert_allclose(cut, whole, atol=1e-4)
    assert np.abs(untold - whole).max() > 0.01


def sampled(model: Reconstructor, camera: CASSI = NOMINAL, **how: Any) -> Cube:
    (shot, mask) = snapshots(camera)
    return made(model, shot[0], mask, camera, **{"samples": 4, "noise_std": 0.01, **how})


@ANY
@pytest.mark.parametrize("name", CAMERAS)
def test_masks_that_are_exact_give_the_cube_of_a_single_pass(name: str) -> None:
    """What is shared between the samples is what a single pass computes."""
    one, many = (sampled(lumen(), CAMERAS[name], mask_std=0.0, samples=count) for count in (0, 3))
    np.testing.assert_allclose(many.values, one.values, atol=1e-5)
    assert many.std is not None
    assert float(many.std.max()) < 1e-5


def test_the_more_a_mask_may_be_wrong_the_more_its_samples_differ() -> None:
    # While it is small: what is said to be very wrong is believed less as well.
    spreads = [sampled(lumen(), mask_std=told).std for told in (0.003, 0.01, 0.03)]
    sizes = [float(np.square(one).mean()) for one in spreads if one is not None]
    assert sizes[2] > 2 * sizes[1] > 8 * sizes[0] > 0
    where = torch.zeros(1, 1, *SIZE)
    where[..., :12, :] = 0.3
    spread = sampled(lumen(stages=1), mask_std=where).std
    assert spread is not None
    assert spread[:, :9].mean() > 100 * spread[:, 16:].mean()


def test_one_seed_draws_the_same_masks_whatever_the_tiles() -> None:
    how: dict[str, Any] = {"mask_std": 0.1}
    first, again, other = (sampled(lumen(stages=1), seed=seed, **how) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.values, again.values)
    assert np.abs(first.values - other.values).max() > 1e-3
    cut = sampled(lumen(stages=1), tile=8, **how)
    np.testing.assert_allclose(cut.values, first.values, atol=1e-4)
    np.testing.assert_allclose(cut.std, first.std, atol=1e-4)


@pytest.mark.parametrize("planes", [1, None], ids=["one plane", "a plane per band"])
@pytest.mark.parametrize("name", ["along the height", "to the left"])
def test_samples_are_read_back_from_longer_pixels(name: str, planes: int | None) -> None:
    """And masks are drawn plane by plane, in whatever frame the network sees."""
    camera, model = LONG[name], tried()
    shot, mask = snapshots(camera, 1, planes or camera.bands)
    cubes = [
        made(model, shot[0], mask, camera, samples=3, noise_std=0.01, **told)
        for told in ({}, {"mask_std": 0.05}, {"mask_std": 0.0})
    ]
    for cube in cubes:
        assert cube.std is not None
        assert cube.std.shape == cube.values.shape == (camera.bands, *SIZE)
        assert (cube.std >= 0).all()
    unknown, told, exact = (float(np.square(cube.std).mean()) for cube in cubes)
    assert min(unknown, told) > 1e-6 > exact


def test_only_the_last_stage_is_computed_for_every_mask() -> None:
    backbone: Any = lumen(stages=3).backbone
    ran = [0, 0, 0]

    def count(number: int) -> None:
        ran[number] += 1

    for number, stage in enumerate(backbone.stages):
        stage.register_forward_hook(lambda *_, number=number: count(number))
    (shot, mask) = snapshots(NOMINAL)
    seen = Observation(shot, mask, NOMINAL, torch.zeros(1), torch.full_like(mask, 0.1))
    cubes = list(backbone.redrawn(seen, torch.randn(5, 1, 1, *SIZE, generator=seeded(4))))
    assert ran == [1, 1, 5]
    assert not torch.allclose(cubes[0], cubes[1], atol=1e-3)


@ANY
@pytest.mark.parametrize("name", ["of the training", "fractional", "two dispersers"])
@pytest.mark.parametrize("wrong", [0.02, 0.1])
def test_a_mask_seems_as_wrong_as_it_is(name: str, wrong: float) -> None:
    """For a cube that is right, what it leaves is noise and the mask's errors."""
    camera, size = CAMERAS[name], (120, 140)
    mask = 0.4 + 0.2 * torch.rand(1, 1, *camera.mask_size(size), generator=seeded(1))
    cube = torch.rand(1, camera.bands, *size, generator=seeded(2))
    off = wrong * torch.randn(mask.shape, generator=seeded(3))
    shot = camera.forward(cube, mask + off)
    shot = shot + 0.05 * torch.randn(shot.shape, generator=seeded(4))
    noise = torch.full_like(shot, 0.05)
    shot[..., :3], noise[..., :3] = 7.0, BLIND  # a few columns that say nothing
    seen = Shot(shot, mask, torch.zeros(1, 1, 1, 1), torch.ones_like(shot), torch.ones_like(shot))
    belief = Belief(cube, torch.zeros_like(cube[:, :1]))
    told = torch.full_like(mask, -1.0)
    told[..., :5, :] = 0.3
    found = doubt(belief, seen, camera, noise, told)
    assert float(found[..., 0, 0]) == pytest.approx(0.3)
    # Between pixels, neighbouring errors are averaged.
    near = 0.1 if camera.is_exactly_diagonal else 0.25
    assert float(found[..., 9, 9]) == pytest.approx(wrong, rel=near)


def test_samples_are_drawn_from_a_posterior_beside_the_told_map() -> None:
    (shot, mask) = snapshots(NOMINAL)
    std = 0.2 * torch.rand(mask.shape, generator=seeded(8))
    found, other = (
        made(lumen("gst"), shot[0], mask, NOMINAL, samples=3, noise_std=0.01, mask_std=told)
        for told in (std, 0.0)
    )
    assert found.std is not None
    assert float(found.std.min()) > 0
    assert np.abs(found.values - other.values).max() > 1e-3


@pytest.mark.parametrize("name", ["of the training", "along the height", "two dispersers"])
def test_pieces_to_learn_from_are_taken_through_masks_that_are_as_wrong(name: str) -> None:
    camera = CAMERAS[name]
    mask = 0.3 + 0.4 * snapshots(camera)[1]  # nowhere so near to its ends that it is cut off
    cube = torch.rand(camera.bands, *SIZE, generator=seeded(2))
    told = 0.1 * mask  # so that a piece of it can be recognised
    truth, code, shot, spread = next(_pieces(cube, mask, camera, 0.0, 4, told))
    torch.testing.assert_close(spread, 0.1 * code)
    off = (shot - camera.forward(truth, code)).square()
    expected = camera.forward(truth.square(), spread.square())
    assert float(off.mean() / expected.mean()) == pytest.approx(1, rel=0.2)
    truth, code, shot, spread = next(_pieces(cube, mask, camera, 0.0, 4))
    torch.testing.assert_close(shot, camera.forward(truth, code))
    assert bool((spread < 0).all())


def test_it_learns_the_scene_and_says_so() -> None:
    (shot, mask) = snapshots(NOMINAL)
    found = made(lumen(), shot[0], mask, NOMINAL, noise_std=0.01, mask_std=0.05, adapt=2)
    assert any("adapted to this scene" in line for line in found.attrs["findings"])


def test_a_map_moves_with_its_mask() -> None:
    (shot, mask) = snapshots(NOMINAL)
    options = Options(mask_std=0.1 * mask, noise_std=0.01, **PLAIN)
    (snapshot,) = prepare(shot, mask, NOMINAL, options).snapshots()
    # A blur and other values change the mask, not how far it may be wrong.
    moved = in_pose(snapshot, MaskPose(down=2, right=-1, middle=0.1, blur=0.3)).snapshot
    assert moved.mask_std is not None
    inner = moved.mask_std[..., 3:-3, 3:-3]
    torch.testing.assert_close(inner, 0.1 * mask[..., 5:-1, 2:-4], atol=1e-5, rtol=1e-4)


def test_other_precisions_and_half_error_know_the_map() -> None:
    (shot, mask) = snapshots(NOMINAL)
    exact, half = (
        made(lumen(), shot[0], mask, NOMINAL, noise_std=0.01, mask_std=0.1, precision=precision)
        for precision in ("float32", "half")
    )
    np.testing.assert_allclose(half.values, exact.values, atol=0.05)


def test_work_is_counted_behind_other_cameras() -> None:
    method = network_method(lumen(), CPU, Options(**PLAIN))
    few, many = (method.work(CAMERAS[name], SIZE)[1] for name in ("few bands", "many bands"))
    assert few is not None
    assert many is not None
    assert few < many


def test_an_interval_serves_other_band_counts() -> None:
    model = lumen()
    model.record["interval"] = interval_record(0.05)
    camera = CAMERAS["many bands"]
    (shot, mask) = snapshots(camera)
    cube = made(model, shot[0], mask, camera, noise_std=0.01)
    assert cube.upper is not None
    assert cube.upper.shape == cube.values.shape
    width = (cube.upper - cube.values).mean((1, 2))
    np.testing.assert_allclose(width, width[0], rtol=1e-3)
    assert width[0] > 0


# --- which cameras it has learned -----------------------------------------------------------------


def match(camera: CASSI, **record: Any) -> CameraMatch:
    known = {"backbone": "lumen", "bands": 28, **trained_with(CASSI.from_step(28, 2.0)), **record}
    return match_camera(camera, known)


LEARNED = {"spread": [0.6, 1.1], "bend": 0.1, "jitter": 0.3, "band_counts": [16, 40]}
BENT = CASSI(tuple(54 * (u + 0.3 * u * (1 - u)) for u in np.linspace(0, 1, 28)))
"""A prism: steps of 2.6 px at one end and 1.4 px at the other."""


@pytest.mark.parametrize(
    ("camera", "beyond"),
    [
        (CASSI.from_step(28, 2.0), ""),
        (CASSI.from_step(28, -2.0, axis="height"), ""),
        (CASSI.from_step(16, 3.0), ""),
        (CASSI.from_step(24, 2.0), ""),
        (CASSI.from_step(31, 2.0), ""),
        (CASSI.from_step(28, 1.3), ""),
        (BENT, ""),
        (CASSI.from_step(28, 0.8), "21.6 px long"),
        (CASSI.from_step(28, 3.0), "81 px long"),
        (CASSI.from_step(8, 7.0), "it has 8 bands"),
        (CASSI.from_step(90, 0.6), "it has 90 bands"),
        (CASSI.from_step(28, 2.0, design="dual"), "it has two dispersers"),
        (CASSI(tuple(54 * u**2 for u in np.linspace(0, 1, 28))), "even steps"),
        (CASSI((0.0, 6.0, 3.0, *(3.0 * k for k in range(3, 18)))), "even steps"),
    ],
)
def test_the_record_says_behind_which_cameras_it_learned(camera: CASSI, beyond: str) -> None:
    found = match(camera, **LEARNED)
    assert found.is_within_reach == (not beyond)
    assert beyond in " ".join(found.beyond)
    assert bool(found.beyond) == bool(beyond)


TRIED = {**LEARNED, "measured_cameras": {"bands": [8, 54], "length_px": [21.5, 70.5]}}


@pytest.mark.parametrize(
    ("camera", "beyond"),
    [
        (CASSI.from_step(8, 7.0), ""),
        (CASSI.from_step(54, 1.0), ""),
        (CASSI.from_step(28, 0.8), ""),
        (CASSI.from_step(28, -2.6, axis="height"), ""),
        (CASSI(tuple(54 * u**2 for u in np.linspace(0, 1, 28))), ""),
        (CASSI.from_step(7, 7.0), "it has 7 bands (tried with 8 to 54)"),
        (CASSI.from_step(28, 3.0), ""),  # with longer pixels
        (CASSI.from_step(28, -5.0, axis="height"), ""),
        (CASSI.from_step(28, 5.1), "138 px long (tried with 21.5 to 135 px)"),
        (CASSI.from_step(28, 0.7), "18.9 px long (tried with 21.5 to 135 px)"),
        (CASSI.from_step(28, 2.0, design="dual"), "it has two dispersers"),
        (CASSI((0.0, 6.0, 3.0, *(3.0 * k for k in range(3, 18)))), "in the order"),
    ],
)
def test_all_between_cameras_that_were_tried_is_within_reach(camera: CASSI, beyond: str) -> None:
    found = match(camera, **TRIED)
    assert found.is_within_reach == (not beyond)
    assert beyond in " ".join(found.beyond)
    assert found.is_other_camera, "its errors are still its own"


@pytest.mark.parametrize(
    ("bands", "step", "stretch"),
    [
        (28, 2.0, 1.0),
        (28, 2.6, 1.0),  # 70.2 px: long, and tried as it is
        (28, 3.0, 54 / 81),  # all the way to the training's own length
        (28, -3.0, 54 / 81),
        (10, 10.0, 0.6),
        (28, 5.0, 0.4),
        (28, 8.0, 0.4),  # beyond its reach, for those who insist
        (28, 0.8, 1.0),
    ],
)
def test_spectra_longer_than_those_tried_are_read_with_longer_pixels(
    bands: int, step: float, stretch: float
) -> None:
    found = match(CASSI.from_step(bands, step), **TRIED)
    assert found.stretch == pytest.approx(stretch)
    notes = [line.text for line in found.findings() if line.weight == "note"]
    assert len(notes) == (stretch < 1)
    assert all(f"pixels {1 / stretch:.2f} times as long along" in text for text in notes)
    assert [line.weight for line in found.findings() if line.weight != "note"] == (
        [] if abs(step) * (bands - 1) <= 135 else ["warning"]
    )
    # Where nobody has looked how far it reaches, nothing is stretched.
    assert match(CASSI.from_step(bands, step), **LEARNED).stretch == 1


def test_one_camera_in_the_record_is_one_camera_and_those_near_it() -> None:
    assert match(CASSI.from_step(26, 2.1)).is_within_reach
    assert not match(CASSI.from_step(16, 3.0)).is_within_reach
    assert not match(CASSI.from_step(28, 1.5)).is_within_reach
    assert match_camera(CASSI.from_step(5), {"backbone": "lumen", "bands": 28}).is_within_reach


def test_cameras_of_the_family_have_errors_of_their_own() -> None:
    """The interval was fitted behind the record's camera, turned or not."""
    assert not match(CASSI.from_step(28, -2.0, "height"), **LEARNED).is_other_camera
    assert match(CASSI.from_step(28, 1.8), **LEARNED).is_other_camera
    assert match(CASSI.from_step(24, 2.0), **LEARNED).is_other_camera


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One default, for every camera of its family."""
    model = lumen()
    save_weights(model, tmp_path / "lumen.small.safetensors", {**model.record, "default": True})
    monkeypatch.setattr(registry, "default_weights", lambda: weights.default_weights(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", CAMERAS)
def test_one_default_serves_its_family_and_a_solver_the_rest(shipped: Path, name: str) -> None:
    camera = CAMERAS[name]
    shots, mask = snapshots(camera)
    cube = reconstruct(shots[0], mask[0], camera, **{**PLAIN, "precision": "auto"})
    said = " ".join(line for line in cube.attrs["findings"] if "trained for" in line)
    if name != "two dispersers":
        assert (cube.attrs.get("model"), said) == ("lumen.small", "")
        return
    assert cube.attrs["method"] == "gap-tv"
    assert said == (
        "note: gap-tv is used: this camera is beyond what the network lumen.small was trained for: "
        "it has two dispersers. Give model='lumen.small' to use it anyway."
    )


def test_spectra_too_long_for_longer_pixels_are_left_to_a_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tried()
    save_weights(model, tmp_path / "lumen.small.safetensors", {**model.record, "default": True})
    monkeypatch.setattr(registry, "default_weights", lambda: weights.default_weights(tmp_path))
    for camera, taken in ((LONG["15 px"], "lumen.small"), (TOO_LONG, "gap-tv")):
        shots, mask = snapshots(camera)
        cube = reconstruct(shots[0], mask[0], camera, **{**PLAIN, "precision": "auto"})
        assert cube.attrs.get("model", cube.attrs["method"]) == taken
    said = [line for line in cube.attrs["findings"] if "trained for" in line]
    assert said == [
        "note: gap-tv is used: this camera is beyond what the network lumen.small was trained for: "
        "its spectrum is 26 px long (tried with 4 to 25 px). Give model='lumen.small' to use it "
        "anyway."
    ]


def test_who_insists_is_warned(shipped: Path) -> None:
    camera = CASSI.from_step(30, 1.0)
    shots, mask = snapshots(camera)
    weights = str(shipped / "lumen.small.safetensors")
    with pytest.warns(PrismaskWarning, match="it has 30 bands.*compare with method='gap-tv'"):
        cube = reconstruct(shots[0], mask[0], camera, model=weights, **PLAIN)
    assert cube.attrs["model"] == "lumen.small"


def test_the_default_aligns_for_a_solver_behind_its_family(shipped: Path) -> None:
    chosen = Choice(Options("gap-tv", align=True), CPU)
    aligner = chosen.aligner(CAMERAS["few bands"])
    assert isinstance(aligner, NetworkMethod)
    assert aligner.name == "lumen.small"
    assert chosen.aligner(CAMERAS["two dispersers"]) is None


def test_the_list_of_weights_says_which_cameras_they_serve(shipped: Path) -> None:
    (one,) = weights.shipped(shipped)
    facts = _facts(one)
    assert (facts["any_camera"], facts["default"]) == (True, True)
    line = _weights_line(facts)
    assert line.startswith("lumen, any camera; ")
    assert line.endswith("(default)")
