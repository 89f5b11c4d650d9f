"""The history of a cube, field by field: what was done, and with what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import CAMERA, calibrated_network, masks, scenes
from small_lumen import CAMERAS, lumen, snapshots

from prismask import __version__
from prismask.inference.reconstruct import reconstruct
from prismask.scenes.records import Cube, Mask, Measurement

PLAIN: dict[str, Any] = {
    "device": "cpu", "precision": "float32", "dark": 0.0, "bad_pixels": "none", "check_mask": False,
}  # fmt: skip
MEASURED = {
    "measurement_hash", "mask_hash", "recipe", "seconds", "residual", "residual_rms",
    "residual_relative", "residual_over_noise", "findings", "versions", "registration_score",
}  # fmt: skip
"""What depends on the numbers or on the machine."""
ALWAYS = {
    "title": "Reconstructed cube", "made_by": f"prismask {__version__}", "device": "cpu",
    "units": "of the snapshot: re-projecting the cube gives the snapshot less its dark level",
    "dark_level": 0.0, "noise_std": pytest.approx(0.01), "noise_from": "given",
    "wavelengths_from": "unknown",
}  # fmt: skip


def check(cube: Cube, snapshot: torch.Tensor, mask: torch.Tensor, expected: Any) -> None:
    told = {name: value for name, value in cube.attrs.items() if name not in MEASURED}
    assert told == ALWAYS | expected
    assert cube.attrs.keys() >= MEASURED
    assert cube.attrs["measurement_hash"] == Measurement(snapshot.numpy()).hash
    assert cube.attrs["mask_hash"] == Mask(mask.numpy()).hash
    assert cube.attrs["versions"]["torch"] == torch.__version__
    rms = float(np.sqrt(np.mean(snapshot.numpy() ** 2)))
    assert cube.attrs["residual_relative"] == pytest.approx(
        cube.attrs["residual_rms"] / rms, rel=1e-4
    )
    assert cube.attrs["residual_over_noise"] == pytest.approx(100 * cube.attrs["residual_rms"])


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
def test_of_a_network_behind_a_camera_that_is_not_its_own() -> None:
    camera = CAMERAS["backwards along the height"]
    shots, mask = snapshots(camera)
    cube = reconstruct(
        shots[0], mask[0, 0], camera, model=lumen(), noise_std=0.01, mask_std=0.1, **PLAIN
    )
    expected = {
        "method": "network", "model": "lumen.small", "weights_sha256": "unsaved",
        "backbone": "lumen", "method_options": "lumen.small (lumen, any bands)",
        "precision": "float32", "network_gain": 1.0, "frame_for_network": "transposed, mirrored",
        "mask_std": 0.1, "mask_std_from": "given", "camera_design": "single",
        "camera_axis": "height", "camera_offsets_px": [6.0, 4.5, 3.0, 1.5, 0.0],
        "interval": "none: lumen.small has no error bars",
    }  # fmt: skip
    check(cube, shots[0], mask[0, 0], expected)


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
@pytest.mark.parametrize("samples", [0, 3])
def test_of_a_network_with_an_interval(samples: int) -> None:
    mask = masks(1)
    shot = CAMERA.forward(scenes(range(1)), mask)[0]
    cube = reconstruct(
        shot, mask[0, 0], CAMERA, model=calibrated_network(), noise_std=0.01, level=0.8,
        samples=samples, seed=4, **PLAIN,
    )  # fmt: skip
    network = {
        "method": "network", "model": "untrained", "weights_sha256": "unsaved", "backbone": "srn",
        "method_options": "untrained (srn, 8 bands)", "precision": "float32",
        "network_gain": pytest.approx(cube.attrs["network_gain"]),
        "camera_design": "single", "camera_axis": "width",
        "camera_offsets_px": list(CAMERA.offsets),
        "interval": "80 %, calibrated on 9 snapshots of 3 scenes",
    }  # fmt: skip
    if samples:
        network |= {"samples": 3, "seed": 4}
        network["interval"] += ", fitted to single passes, not to the mean of samples"
    check(cube, shot, mask[0, 0], network)


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
def test_of_a_solver() -> None:
    mask = masks(1)
    shot = CAMERA.forward(scenes(range(1)), mask)[0]
    options = {name: value for name, value in PLAIN.items() if name != "precision"}
    cube = reconstruct(
        shot, mask[0, 0], CAMERA, method="gap-tv", iterations=3, noise_std=0.01, **options
    )
    expected = {
        "method": "gap-tv", "camera_design": "single",
        "camera_axis": "width", "camera_offsets_px": list(CAMERA.offsets),
        "interval": "none: gap-tv has no error bars",
    }  # fmt: skip
    assert "iterations=3" in cube.attrs["method_options"]
    expected["method_options"] = cube.attrs["method_options"]
    check(cube, shot, mask[0, 0], expected)
