"""Methods: what they declare, and methods of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import BANDS, CAMERA, SIZE, bare_network, calibrated_network, masks, scenes
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.evaluation.run.runner import evaluate
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.methods import registry
from prismask.inference.methods.protocol import Capabilities, Estimate, one_by_one
from prismask.inference.methods.registry import (
    as_aligner,
    as_method,
    create_method,
    register_method,
)
from prismask.inference.options import DEFAULTS, Options
from prismask.inference.reconstruct import reconstruct
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.progress import Progress
from prismask.scenes.records import Cube, Mask, Measurement

CPU = torch.device("cpu")


class Scaled:
    """A method from elsewhere: the first guess times a factor."""

    capabilities: Capabilities = frozenset({"samples"})

    def __init__(self, device: torch.device, factor: float = 1.0) -> None:
        self.name, self.factor = "scaled", factor

    def identity(self, options: Options = DEFAULTS) -> dict[str, Any]:
        return {"method": "scaled", "factor": self.factor}

    def check(self, options: Options) -> None:
        pass

    def __call__(
        self, snapshot: Snapshot, options: Options = DEFAULTS, progress: Progress | None = None
    ) -> Estimate:
        first = snapshot.camera.spread(snapshot.signal[None], snapshot.mask)[0]
        return Estimate((self.factor * first).numpy(), attrs={"method": "scaled"})

    def batch(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, options: Options = DEFAULTS
    ) -> Tensor:
        return one_by_one(self, measurement, mask, camera, options)

    def work(self, camera: CASSI, scene: tuple[int, int]) -> tuple[int | None, int | None]:
        return None, None


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register_method("scaled")(Scaled)
    return "scaled"


def shot() -> tuple[Tensor, Tensor]:
    mask = masks(1)
    return CAMERA.forward(scenes(range(2)), mask), mask


def test_a_registered_method_reconstructs_and_is_scored(scaled: str) -> None:
    measurement, mask = shot()
    record, aperture = Measurement(measurement[0].numpy()), Mask(mask[0, 0].numpy())
    cube = reconstruct(record, aperture, CAMERA, scaled, factor=0.5)
    expected = 0.5 * CAMERA.spread(measurement[:1], mask)[0]
    np.testing.assert_allclose(cube.values, expected.numpy(), atol=1e-6)
    assert cube.attrs["method"] == "scaled"
    at = np.linspace(450.0, 650.0, BANDS)
    given = {"leaf": Cube(scenes(range(1))[0].numpy(), at)}
    found = evaluate(
        ["scaled", "half=scaled:factor=0.5"], scenes=given, masks={"m": aperture}, camera=CAMERA,
        trials=1, timing=False,
    )  # fmt: skip
    assert found.mean("scaled", "m") > found.mean("half", "m")


def test_names_of_methods(scaled: str) -> None:
    assert {"gap-tv", "scaled"} <= set(registry.list_methods())
    with pytest.raises(ConfigError, match="there is a method 'gap-tv' already"):
        register_method("gap-tv")(Scaled)
    with pytest.raises(ConfigError, match="there is a method 'scaled' already"):
        register_method("scaled")(lambda device: Scaled(device))
    with pytest.raises(ConfigError, match=r"Did you mean 'scaled'"):
        create_method("scalde", CPU)
    with pytest.raises(ConfigError, match="scaled does not take faktor=2"):
        create_method("scaled", CPU, faktor=2)
    with pytest.raises(ConfigError, match="int is no method"):
        as_method(3, CPU, DEFAULTS)


def test_capabilities_follow_from_the_weights() -> None:
    without = create_model("srn", bands=BANDS, width=8, blocks=1, seed=0)
    found = [
        as_method(one, CPU, DEFAULTS).capabilities
        for one in (without, bare_network(), calibrated_network())
    ]
    assert found[0] == {"adapt", "half"}
    assert found[1] - found[0] == {"samples", "mask_std"}
    assert found[2] - found[1] == {"interval"}
    told = create_model("lumen", bands=BANDS, width=8, stages=1, seed=0)
    more = as_method(told, CPU, DEFAULTS).capabilities - found[0]
    assert more == {"align", "uncertain_mask", "bad_pixels", "samples"}
    solver, function = create_method("gap-tv", CPU), as_method(lambda y, m, c: y, CPU, DEFAULTS)
    assert solver.capabilities == {"bad_pixels"}
    assert not function.capabilities
    for plain in (solver, function):
        assert as_aligner(plain) is None
        for asked in ({"samples": 2}, {"adapt": 2}):
            with pytest.raises(ConfigError, match=r"use a network|use one"):
                plain.check(Options(**asked))  # type: ignore[arg-type]  # numbers, both


@pytest.mark.parametrize("options", [Options(), Options(noise_std=0.02), Options(dark=0.1)])
@pytest.mark.parametrize("name", ["network", "gap-tv", "twist", "function"])
def test_a_batch_gives_what_single_calls_give(name: str, options: Options) -> None:
    measurement, mask = shot()
    made: Any = {
        "network": bare_network(),
        "function": lambda y, m, camera: camera.spread(y, m),
    }
    method = (
        as_method(made[name], CPU, Options(precision="float32"))
        if name in made
        else create_method(name, CPU, iterations=3)
    )
    together = method.batch(measurement, mask, CAMERA, options)
    ready = prepare(measurement, mask, CAMERA, options)
    alone = [torch.from_numpy(method(one, options).values) for one in ready.snapshots()]
    assert together.shape == (2, BANDS, *SIZE)
    torch.testing.assert_close(together, torch.stack(alone), atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "camera",
    [CAMERA, CASSI.from_step(BANDS, -3.0, "height"), CASSI.from_step(11),
     CASSI.from_step(BANDS, design="dual")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["network", "gap-tv", "function"])
def test_a_gpu_gives_the_same_batch(name: str, camera: CASSI) -> None:
    at = torch.linspace(0, BANDS - 1, camera.bands).round().long()
    truth = scenes(range(2))[:, at] * torch.tensor([1.0, 0.02])[:, None, None, None]
    mask = torch.rand(1, 1, *camera.mask_size(SIZE), generator=torch.Generator().manual_seed(0))
    measurement = camera.forward(truth, mask)
    found = []
    for device in (CPU, torch.device("cuda")):
        method = (
            create_method("gap-tv", device, iterations=3)
            if name == "gap-tv"
            else as_method(
                bare_network() if name == "network" else lambda y, m, eye: eye.spread(y, m),
                device, Options(precision="float32"),
            )
        )  # fmt: skip
        cubes = method.batch(measurement.to(device), mask.to(device), camera)
        assert cubes.device.type == device.type
        found.append(cubes.cpu())
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)


def test_a_function_that_gives_no_cube_is_told() -> None:
    method = as_method(lambda y, m, c: y, CPU, DEFAULTS, "mine")
    measurement, mask = shot()
    with pytest.raises(ShapeError, match=r"mine gave .*a model returns cubes"):
        method.batch(measurement, mask, CAMERA)
