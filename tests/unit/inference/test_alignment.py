"""Finding a mask that lies a little beside its calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference import alignment
from prismask.inference.alignment import Alignment, align_mask
from prismask.inference.catalogue import default_weights, load_model
from prismask.inference.displacement import Place, derivatives
from prismask.inference.engine import Engine
from prismask.inference.single import reconstruct
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.random_scenes import random_scene
from prismask.scenes.records import Cube, Mask, Measurement

CAMERA = CASSI.from_step()
SIZE = (64, 96)
BESIDE = Place((0.45, -0.6, 0.0, 0.1, 0.0, 0.0))


def mask_values() -> Tensor:
    return fabricate_mask(SIZE, seeded(8))[None, None]


@pytest.fixture(scope="module")
def engine() -> Engine:
    shipped = default_weights()
    assert shipped is not None
    return Engine(load_model(shipped.path), torch.device("cpu"))


@pytest.fixture(scope="module")
def scene() -> Cube:
    return random_scene(5, SIZE)


# --- the displacement itself ---------------------------------------------------------------------


def test_no_displacement_changes_nothing() -> None:
    mask = mask_values()
    assert torch.allclose(Place().moved(mask), mask, atol=1e-6)


def test_a_whole_shift_reads_the_neighbours() -> None:
    mask = mask_values()
    moved = Place((1.0, -2.0, 0, 0, 0, 0)).moved(mask)
    assert torch.allclose(moved[..., 4:-4, 4:-4], mask[..., 5:-3, 2:-6], atol=1e-4)


def test_growth_is_nothing_at_the_centre_and_full_at_the_edge() -> None:
    columns = torch.linspace(0, 1, 101).expand(1, 1, 51, 101)
    moved = Place((0, 0, 0, 0, 5.0, 0)).moved(columns)
    centre, inside = moved[0, 0, 25, 50], moved[0, 0, 25, 90]
    assert float(centre) == pytest.approx(0.5, abs=1e-3)
    assert float(inside) == pytest.approx(0.9 + 0.05 * 40 / 50.5, abs=2e-3)


def test_words_of_optics() -> None:
    # A turn by a small angle moves columns down to the right and rows right upwards.
    angle = math.radians(0.2)
    turn = Place((0, 0, angle * 50, 0, 0, -angle * 40))
    assert "turned by +0.200°" in turn.text((80, 100))
    assert turn.text((80, 100)).endswith("0.000°")
    assert "-0.25 px to the right" in Place((0, -0.25, 0, 0, 0, 0)).text((80, 100))
    assert "+1.00 % across its rows" in Place((0, 0, 0, 0.4, 0, 0)).text((80, 100))


def test_derivatives_are_those_of_the_displacement() -> None:
    rows, columns = torch.linspace(0, 3, 40)[:, None], torch.linspace(0, 2, 60)[None]
    mask = (0.5 + 0.3 * torch.sin(rows) * torch.cos(columns))[None, None].double()
    for number, derivative in enumerate(derivatives(mask)):
        step = torch.zeros(6)
        step[number] = 0.05
        there, back = (Place().stepped(sign * step).moved(mask) for sign in (1, -1))
        inner = (..., slice(10, -10), slice(10, -10))  # splines feel the edge
        assert torch.allclose(((there - back) / 0.1)[inner], derivative[inner], atol=1e-4)


# --- finding it ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_displaced_mask_is_found_and_the_cube_is_better(engine: Engine, scene: Cube) -> None:
    truth, nominal = torch.tensor(scene.values)[None], mask_values()
    true_mask = BESIDE.moved(nominal)
    signal = CAMERA.forward(truth, true_mask)[0]
    found = align_mask(engine, signal, nominal, CAMERA, 0.002)
    assert found.is_worth_it
    assert found.after < 0.6 * found.before
    down, right = found.place.numbers[:2]
    assert (down, right) == (pytest.approx(0.45, abs=0.3), pytest.approx(-0.6, abs=0.3))

    def error(mask: Tensor) -> float:
        cube = engine.run(signal, mask, CAMERA, noise_std=0.002).values
        return float((cube - truth[0]).square().mean())

    assert error(found.place.moved(nominal)) < 0.5 * error(nominal)


@pytest.mark.slow
def test_a_mask_in_its_place_stays_there(engine: Engine, scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], nominal)[0]
    told: list[tuple[int, int]] = []
    found = align_mask(
        engine, signal, nominal, CAMERA, 0.002, lambda done, most, _: told.append((done, most))
    )
    assert max(abs(number) for number in found.place.numbers[:2]) < 0.1
    assert told[0] == (1, alignment.RUNS)
    assert len(told) <= alignment.RUNS


@pytest.mark.slow
def test_reconstruct_uses_it_and_says_so(scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], BESIDE.moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())
    plain = reconstruct(shot, mask, CAMERA, noise_std=0.002, device="cpu", registration=False)
    assert any("--align" in line for line in plain.attrs["findings"])
    moved = reconstruct(
        shot, mask, CAMERA, noise_std=0.002, device="cpu", registration=False, align=True
    )
    assert any("the mask is read" in line for line in moved.attrs["findings"])
    assert moved.attrs["residual_rms"] < 0.6 * plain.attrs["residual_rms"]
    assert moved.attrs["mask_place"][1] == pytest.approx(-0.6, abs=0.3)
    assert moved.attrs["recipe"] != plain.attrs["recipe"]


@pytest.mark.slow
def test_a_solver_lets_the_default_network_find_the_mask(scene: Cube) -> None:
    nominal = mask_values()
    signal = CAMERA.forward(torch.tensor(scene.values)[None], BESIDE.moved(nominal))[0]
    shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())

    def solved(align: bool) -> Cube:
        return reconstruct(shot, mask, CAMERA, "gap-tv", noise_std=0.002, device="cpu",
                           registration=False, align=align, iterations=20)  # fmt: skip

    plain, moved = solved(False), solved(True)
    assert moved.attrs["method"] == "gap-tv"
    assert moved.attrs["mask_place_by"] == "srn-looks.m2m"
    assert moved.attrs["recipe"] != plain.attrs["recipe"]
    errors = [float(np.square(cube.values - scene.values).mean()) for cube in (plain, moved)]
    assert errors[1] < 0.8 * errors[0]


def test_a_camera_that_no_network_knows_is_not_aligned() -> None:
    camera = CASSI.from_step(28, 0.5)
    shot = Measurement(np.ones((20, 34), np.float32))
    mask = Mask(mask_values()[0, 0, :20, :20].numpy())
    with pytest.raises(ConfigError, match="gap-tv cannot tell where the mask lies"):
        reconstruct(shot, mask, camera, "gap-tv", align=True, registration=False, device="cpu")


def test_a_small_gain_moves_no_mask() -> None:
    assert Alignment(BESIDE, 0.050, 0.049).found == Place()
    assert Alignment(BESIDE, 0.050, 0.040).found == BESIDE


def test_large_frames_are_looked_at_in_strips_across_the_dispersion() -> None:
    pieces = alignment.pieces_of((700, 900), CAMERA)
    assert len(pieces) == alignment.PIECES
    assert (pieces[0].start, pieces[-1].stop) == (0, 700)
    assert sum(piece.stop - piece.start for piece in pieces) == alignment.LINES
    tall = CASSI.from_step(axis="height")
    assert alignment.pieces_of((700, 900), tall)[-1].stop == 900
    assert alignment.pieces_of((100, 900), CAMERA) == [slice(0, 100)]
    values = torch.arange(12.0).view(3, 4)
    assert torch.equal(alignment.cut(values, slice(1, 2), CAMERA), values[1:2])
    assert torch.equal(alignment.cut(values, slice(1, 2), tall), values[:, 1:2])
