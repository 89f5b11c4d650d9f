"""The camera at record sizes: real data, sizes, and messages a person can act on.

Its algebra is in tests/properties/test_operator_laws.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI, Design
from prismask.optics.shear import offsets_from_polynomial
from prismask.scenes.defaults import BANDS, SIZE, STEP


@pytest.mark.data
def test_forward_model_of_a_real_scene_through_a_real_mask(data_folder: Path) -> None:
    with np.load(data_folder / "kaist.npz") as kaist:
        cube = (kaist["scene01"].astype(np.float64) + 0.5) / 256 * float(kaist["scene01_max"])
    mask = scipy.io.loadmat(data_folder / "masks" / "tsanet_sim_256.mat")["mask"].astype(float)
    expected = np.zeros((256, 310))
    for band in range(28):
        expected[:, 2 * band : 2 * band + 256] += mask * cube[band]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        came = CASSI.from_step().forward(
            torch.tensor(cube, dtype=dtype)[None], torch.tensor(mask, dtype=dtype)
        )
        assert came.shape == (1, 256, 310)
        assert came.dtype == dtype
        error = np.abs(came[0].double().numpy() - expected).max() / expected.max()
        assert error <= tolerance


def test_defaults_are_the_common_camera() -> None:
    camera = CASSI.from_step()
    assert camera.bands == BANDS
    assert camera.measurement_size((SIZE, SIZE)) == (256, 310)
    assert camera.measurement_size((660, 660)) == (660, 714)
    assert camera.scene_size((660, 714)) == (660, 660)
    assert camera.extent == STEP * (BANDS - 1)


def test_integer_unshear_is_a_view_of_the_measurement() -> None:
    measurement = torch.rand(2, 8, 14)
    windows = CASSI.from_step(4, 2).unshear(measurement)
    assert windows.untyped_storage().data_ptr() == measurement.untyped_storage().data_ptr()


def test_forward_never_holds_more_than_the_padded_rows() -> None:
    """Without autograd the only large tensor is one padded copy of the cube."""
    from torch.profiler import ProfilerActivity, profile

    cube, mask = torch.rand(2, 28, 32, 32), torch.rand(32, 32)
    camera = CASSI.from_step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        camera.forward(cube, mask)
    taken = sum(max(event.self_cpu_memory_usage, 0) for event in seen.events())
    padded = 2 * 32 * 28 * (32 + 56) * 4
    assert taken <= padded * 1.1


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, -1, 1.5])
@pytest.mark.parametrize("design", ["single", "dual"])
def test_a_compiler_sees_one_graph(step: float, design: Design) -> None:
    """Unrolled networks are compiled: the operator must not break their graph."""
    camera = CASSI.from_step(4, step, design=design)
    cube, mask = torch.rand(2, 4, 8, 8), torch.rand(camera.mask_size((8, 8)))

    def there_and_back(cube: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return camera.pseudo_inverse(camera.forward(cube, mask), mask)

    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(cube, mask), there_and_back(cube, mask))


def test_polynomial_starts_with_the_constant() -> None:
    wavelengths = [450.0, 500.0, 600.0]
    assert offsets_from_polynomial(wavelengths, [7.0, 0.02]) == (0.0, 1.0, 3.0)
    assert offsets_from_polynomial(wavelengths, [0.0, -0.02]) == (3.0, 2.0, 0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CASSI(()),
        lambda: CASSI((0.0, float("nan"))),
        lambda: CASSI(((0.0, 1.0), (2.0, 3.0))),  # type: ignore[arg-type]
        lambda: CASSI(("red", "green")),  # type: ignore[arg-type]
        lambda: CASSI.from_step(0),
        lambda: CASSI((0.0,), axis="depth"),  # type: ignore[arg-type]
        lambda: CASSI((0.0,), design="triple"),  # type: ignore[arg-type]
        lambda: CASSI.from_polynomial([450.0], [1.0]),
    ],
)
def test_an_impossible_camera_is_refused(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]


CAMERA = CASSI.from_step()


@pytest.mark.parametrize(
    ("measurement", "mask", "words"),
    [
        # The measurement was cropped: the width that fits is named.
        ((1, 660, 660), (660, 660), ["660×660", "660×714", "28 bands at 2 px", "cropped"]),
        ((1, 256, 309), (256, 256), ["256×309", "256×310"]),
        # Too narrow for any scene at all: still the width that fits, not only a complaint.
        ((1, 256, 54), (256, 256), ["256×54", "256×310"]),
        ((1, 250, 310), (256, 256), ["250×310", "256×310"]),
        ((256, 310), (256, 256), ["measurement is 256×310 (2 dimensions)", "B×H×W"]),
        ((3, 256, 310), (2, 1, 256, 256), ["2 masks", "batch of 3"]),
        ((1, 256, 310), (27, 256, 256), ["27 bands", "28"]),
        ((1, 0, 310), (0, 256), ["no elements"]),
        ((1, 256, 310), (1, 1, 1, 256, 256), ["5 dimensions"]),
    ],
)
def test_a_measurement_that_does_not_fit(
    measurement: tuple[int, ...], mask: tuple[int, ...], words: list[str]
) -> None:
    with pytest.raises(ShapeError) as caught:
        CAMERA.adjoint(torch.zeros(measurement), torch.zeros(mask))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("cube", "mask", "words"),
    [
        ((1, 28, 256, 256), (200, 256), ["200×256", "256×256", "larger mask"]),
        ((1, 28, 256, 256), (660, 660), ["660×660", "256×256", "crop the mask"]),
        ((1, 31, 256, 256), (256, 256), ["1×31×256×256", "28"]),
        ((28, 256, 256), (256, 256), ["3 dimensions", "B×28×H×W"]),
        ((1, 28, 256, 256), (3, 256, 256), ["3 bands", "28"]),
        ((2, 28, 256, 256), (3, 1, 256, 256), ["3 masks", "batch of 2"]),
        ((1, 28, 256, 256), (256,), ["mask is 256", "1 dimension"]),
    ],
)
def test_a_cube_and_a_mask_that_do_not_fit(
    cube: tuple[int, ...], mask: tuple[int, ...], words: list[str]
) -> None:
    with pytest.raises(ShapeError) as caught:
        CAMERA.forward(torch.zeros(cube), torch.zeros(mask))
    for word in words:
        assert word in str(caught.value)


def test_other_designs_name_their_sizes_too() -> None:
    high = CASSI.from_step(4, 1.5, axis="height")
    with pytest.raises(ShapeError, match="15×10 for that mask"):
        high.adjoint(torch.zeros(1, 14, 10), torch.zeros(10, 10))
    dual = CASSI.from_step(4, 2, design="dual")
    with pytest.raises(ShapeError, match="needs 10×16"):
        dual.forward(torch.zeros(1, 4, 10, 10), torch.zeros(10, 10))
    with pytest.raises(ShapeError, match="needs 10×16"):
        dual.adjoint(torch.zeros(1, 10, 10), torch.zeros(10, 10))
    with pytest.raises(ShapeError, match="no scene is left"):
        high.unshear(torch.zeros(1, 5, 10))


def test_a_pseudo_inverse_stays_finite_where_no_light_falls() -> None:
    """Behind closed cells A Aᵀ is 0, and what was measured there says nothing of the scene."""
    camera = CASSI.from_step(3, 2.0)
    mask = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
    mask[2] = 0
    found = camera.pseudo_inverse(torch.ones(1, 6, 12), mask)
    assert torch.isfinite(found).all()
    assert (found[:, :, 2] == 0).all()
    faint = camera.pseudo_inverse(torch.ones(1, 6, 12), torch.full((6, 8), 1e-6))
    assert float(faint.abs().max()) <= 1.0  # 1e-6 over the floor of 1e-6, not over 1e-12


@pytest.mark.parametrize("camera", [CASSI.from_step(4, 1.5), CASSI.from_step(4, 2.0, "height"),
                                    CASSI.from_step(4, 1.0, design="dual")])  # fmt: skip
def test_a_sensor_that_is_blind_in_places(camera: CASSI) -> None:
    """An exact pair of operators, zero there, and a first guess that has no holes."""
    generator = torch.Generator().manual_seed(0)
    scene = (12, 14)
    mask = torch.rand(1, 1, *camera.mask_size(scene), generator=generator)
    size = camera.measurement_size(scene)
    bad = torch.rand(size, generator=generator) < 0.1
    blind = camera.without(bad)
    cube = torch.rand(2, 4, *scene, generator=generator, dtype=torch.float64)
    seen = torch.rand(2, *size, generator=generator, dtype=torch.float64)
    made = blind.forward(cube, mask.double())
    assert not made[:, bad].any()
    torch.testing.assert_close(made[:, ~bad], camera.forward(cube, mask.double())[:, ~bad])
    torch.testing.assert_close(
        (made * seen).sum(), (cube * blind.adjoint(seen, mask.double())).sum()
    )
    even = camera.throughput(mask)
    guess = blind.spread(torch.where(bad, 99.0, even), mask)
    torch.testing.assert_close(guess, camera.spread(even, mask))
    assert blind != camera.without(bad.logical_not())
    assert blind != camera


def test_a_mirrored_camera_with_bad_pixels_stays_where_it_was() -> None:
    """Its lowest band lands a part of a pixel further on, which must not be lost."""
    camera = CASSI.from_step(4, 1.3).mirrored()
    blind = camera.without(torch.zeros(12, 14 + camera.extent, dtype=torch.bool))
    assert camera.start > 0
    assert (blind.offsets, blind.start) == (camera.offsets, camera.start)
