"""Pixels of the sensor that say nothing: methods that can do without them do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_lumen import CAMERAS, NOMINAL, SIZE, lumen, snapshots
from torch import Tensor

from prismask import reconstruct
from prismask.inference.engine import Engine, Tiling, project
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.methods.registry import SolverMethod
from prismask.inference.options import Options
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import trained_with
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded
from prismask.solvers import list_solvers

CPU = torch.device("cpu")
QUICK: dict[str, dict[str, Any]] = {
    "gap-tv": {"iterations": 4}, "twist": {"iterations": 4}, "gpsr": {"iterations": 4},
    "pnp": {"iterations": 2}, "desci": {"iterations": 1}, "pnp-dip": {"iterations": 1},
}  # fmt: skip


def snapshot(camera: CASSI, share: float = 0.03) -> Snapshot:
    """With pixels that are marked as bad and still hold what was measured."""
    measured, mask = snapshots(camera)
    (ready,) = prepare(measured, mask, camera, Options(dark=0.0, noise_std=0.001)).snapshots()
    drawn = torch.rand(ready.signal.shape, generator=seeded(8))
    return replace(ready, bad=drawn < share)


def spoilt(shot: Snapshot) -> Snapshot:
    """Something else at its bad pixels."""
    assert shot.bad is not None
    return replace(shot, signal=torch.where(shot.bad, 2 * shot.signal + 3, shot.signal))


def network(model: Reconstructor, tile: int = 64) -> NetworkMethod:
    engine = Engine(model, CPU, "float32", Tiling(tile, halo=8, blend=4, align=4))
    return NetworkMethod(engine, "small")


def residual(shot: Snapshot, values: Any) -> Tensor:
    return shot.signal - project(torch.from_numpy(values), shot.mask, shot.camera)


@pytest.mark.parametrize("name", sorted(list_solvers()))
def test_no_solver_sees_what_a_bad_pixel_holds(name: str) -> None:
    method = SolverMethod(name, CPU, QUICK[name])
    assert "bad_pixels" in method.capabilities
    shot = snapshot(NOMINAL)
    made = method(shot).values
    np.testing.assert_array_equal(method(spoilt(shot)).values, made)
    everything = method(replace(shot, bad=None)).values
    assert np.abs(everything - made).max() > 1e-4


@pytest.mark.parametrize("name", sorted(CAMERAS))
def test_a_network_around_the_camera_imposes_no_bad_pixel(name: str) -> None:
    """Its last step fits what was measured, and only that; in every frame that it is shown."""
    method, shot = network(lumen()), snapshot(CAMERAS[name])
    shot = replace(shot, mask_std=torch.zeros_like(shot.mask))
    assert shot.bad is not None
    wrong = spoilt(shot)
    left = residual(wrong, method(wrong).values)
    believed = residual(wrong, method(replace(wrong, bad=None)).values)
    assert float(left[shot.bad].abs().mean()) > 20 * float(left[~shot.bad].abs().mean())
    assert float(left[shot.bad].abs().mean()) > 3 * float(believed[shot.bad].abs().mean())


def test_strips_of_a_frame_have_their_own_bad_pixels() -> None:
    shot = snapshot(NOMINAL)
    whole, cut = (network(lumen(), tile)(shot).values for tile in (64, 12))
    moved = network(lumen(), 12)(replace(shot, bad=None)).values
    apart = np.abs(cut - whole).max()
    assert apart < 0.2 * np.abs(moved - whole).max()


def test_a_network_of_planes_has_no_place_for_them() -> None:
    model = create_model("srn", bands=6, seed=1, mask_posterior="none", width=8, blocks=1)
    model.record |= {**trained_with(NOMINAL), "name": "planes"}
    method = network(model.eval().requires_grad_(False))
    assert "bad_pixels" not in method.capabilities
    shot = snapshot(NOMINAL)
    np.testing.assert_array_equal(method(shot).values, method(replace(shot, bad=None)).values)


def test_the_self_check_leaves_them_out_too() -> None:
    measured, mask = snapshots(NOMINAL)
    marks = np.zeros(measured.shape[1:], bool)
    marks[3, 4] = marks[20, 30] = True
    how: dict[str, Any] = {"camera": NOMINAL, "method": "gap-tv", "iterations": 20, "dark": 0.0,
                           "check_mask": False, "noise_std": 0.01}  # fmt: skip
    aperture = mask[0, 0].numpy()
    sound = reconstruct(measured[0].numpy(), aperture, bad_pixels=marks, **how)
    hot = np.where(marks, 50.0, measured[0].numpy()).astype(np.float32)
    made = reconstruct(hot, aperture, bad_pixels=marks, **how)
    assert made.attrs["residual_rms"] == pytest.approx(sound.attrs["residual_rms"], rel=0.01)
    assert "2 bad pixels in the map given: gap-tv leaves them out." in str(made.attrs["findings"])
    own = reconstruct(
        hot, aperture, NOMINAL, lambda y, m, camera: camera.spread(y, m), bad_pixels=marks,
        dark=0.0, check_mask=False,
    )  # fmt: skip
    assert "filled from the neighbours, because" in str(own.attrs["findings"])


def test_what_a_cube_says_at_bad_pixels() -> None:
    shot = snapshot(NOMINAL)
    assert shot.bad is not None
    cube = torch.rand(NOMINAL.bands, *SIZE, generator=seeded(2))
    seen = shot.seen_by(cube)
    there = project(cube, shot.mask, NOMINAL)
    torch.testing.assert_close(seen[shot.bad], there[shot.bad])
    assert torch.equal(seen[~shot.bad], shot.signal[~shot.bad])
    assert replace(shot, bad=None).seen_by(cube) is shot.signal
