"""Where a band's light lies in a snapshot: as the camera itself says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from prismask.apps.web.results import Result
from prismask.apps.web.spectra import places_of
from prismask.optics.camera import CASSI, camera_attrs
from prismask.scenes.records import Cube, Mask, Measurement

BANDS, SIZE = 3, (5, 7)
CAMERAS = [
    CASSI((0.0, 2.0, 4.0)),
    CASSI((4.0, 2.0, 0.0), "height"),
    CASSI((0.0, 1.5, 3.25)),
    CASSI((0.0, 1.5, 3.25)).mirrored(),
    CASSI((0.0, 2.0, 3.0), "width", "dual"),
    CASSI((0.0, 2.0, 3.0), "height", "dual"),
]


def result_of(camera: CASSI, noted_in: str = "cube", **attrs: Any) -> Result:
    notes = {**camera_attrs(camera), **attrs}
    return Result(
        "a",
        Cube(np.zeros((BANDS, *SIZE), np.float32), attrs=notes if noted_in == "cube" else {}),
        snapshot=Measurement(
            np.zeros(camera.measurement_size(SIZE)), notes if noted_in == "snapshot" else {}
        ),
        mask=Mask(np.ones(camera.mask_size(SIZE))),
    )


@pytest.mark.parametrize("camera", CAMERAS, ids=str)
@pytest.mark.parametrize("noted_in", ["cube", "snapshot"])
def test_light_lands_where_the_camera_puts_it(camera: CASSI, noted_in: str) -> None:
    found = places_of(result_of(camera, noted_in), "snapshot")
    assert found is not None
    for band in range(BANDS):
        scene = torch.zeros(1, BANDS, *SIZE)
        scene[0, band, 2, 3] = 1
        light = camera.forward(scene, torch.ones(camera.mask_size(SIZE)))[0].numpy()
        rows, columns = np.indices(light.shape)
        right, down = found[band] if found else (0.0, 0.0)
        assert (light * columns).sum() == pytest.approx(3 + right, abs=1e-5)
        assert (light * rows).sum() == pytest.approx(2 + down, abs=1e-5)


@pytest.mark.parametrize("camera", CAMERAS, ids=str)
def test_the_mask_is_met_where_the_camera_meets_it(camera: CASSI) -> None:
    found = places_of(result_of(camera), "mask")
    assert found is not None
    across = np.broadcast_to(np.arange(camera.mask_size(SIZE)[1]), camera.mask_size(SIZE))
    met = camera.code(torch.tensor(across.copy(), dtype=torch.float32))[0].numpy()
    for band in range(len(found)):
        assert met[band, 2, 3] == pytest.approx(3 + found[band][0], abs=1e-5)


def test_layers_of_the_cube_are_where_they_are() -> None:
    assert places_of(result_of(CAMERAS[0]), "band") == []
    assert places_of(result_of(CAMERAS[0]), "mask") == []


@pytest.mark.parametrize(
    "attrs",
    [
        {"camera_offsets_px": "far"},
        {"camera_offsets_px": [0.0, float("nan"), 4.0]},
        {"camera_offsets_px": [0.0, 4.0]},
        {"camera_offsets_px": [0.0, 4.0, 8.0]},
        {"camera_offsets_px": [[0.0], [1.0, 2.0]]},
        {"camera_axis": "height"},
        {"camera_design": "dual"},
    ],
)
def test_notes_that_do_not_fit_say_nothing(attrs: dict[str, Any]) -> None:
    assert places_of(result_of(CAMERAS[0], **attrs), "snapshot") is None


def test_without_notes_nobody_knows() -> None:
    bare = result_of(CAMERAS[0], "nowhere")
    assert places_of(bare, "snapshot") is None
    assert places_of(bare, "mask") == []
