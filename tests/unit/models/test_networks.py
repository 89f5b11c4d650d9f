"""Every network obeys the same laws: any camera, gradients everywhere, weights that come back.

One list of networks, one list of laws; a new backbone is subjected to all of them by its line in
`TINY`.
"""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.models.fast import FastReconstructor
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor, compile_parts
from prismask.models.registry import (
    SPEEDS,
    WITHOUT_PLANES,
    backbone,
    count_multiply_adds,
    count_parameters,
    create_model,
    describe,
    list_models,
)
from prismask.models.weights import load_weights, save_weights
from prismask.optics.camera import CASSI

TINY: dict[str, dict[str, Any]] = {
    "srn": {"width": 8, "blocks": 1},
    "srn-looks": {"width": 8, "blocks": 3, "looks": 2},
    "swinir": {"width": 12, "groups": 1, "layers": 2, "heads": 2},
    "spectral-vit": {"width": 12, "groups": 1, "layers": 1, "heads": 2},
    "tsa-net": {"width": 8, "heads": 2},
    "lambda-net": {"width": 8},
    "gsm": {"width": 8, "stages": 2, "taps": 3},
    "hssp": {"width": 8, "stages": 2},
    "lumen": {"width": 8, "stages": 2, "cosines": 8},
}
UNFOLDED = ("gsm", "hssp", "srn-looks", "lumen")
BANDS = 5
ODD = (33, 47)
FRACTIONAL = CASSI.from_step(BANDS, 1.7)


def tiny(name: str, posterior: str = "none", **more: Any) -> Reconstructor:
    options = {**TINY[name.removesuffix("+")], **more}
    return create_model(name, bands=BANDS, mask_posterior=posterior, seed=0, **options)


def snapshot(camera: CASSI, size: tuple[int, int] = ODD, count: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(1, 1, *camera.mask_size(size), generator=generator)
    cube = torch.rand(count, camera.bands, *size, generator=generator)
    return camera.forward(cube, mask), mask


every_network = pytest.mark.parametrize("name", TINY)


def test_all_registered_networks_are_on_the_list() -> None:
    with_planes = [f"{name}+" for name in TINY if name not in WITHOUT_PLANES]
    assert list_models() == sorted([*TINY, *with_planes])
    assert {name for name in TINY if backbone(name).works_from_snapshot} == WITHOUT_PLANES
    assert {name for name in TINY if backbone(name).wants_physics} == set(UNFOLDED)


MEASURED = Path(__file__).resolve().parents[3] / "results" / "benchmark_backbones_h200.json"


@pytest.mark.skipif(not MEASURED.is_file(), reason="the measurements are not beside the tests")
def test_speed_classes_are_what_was_measured() -> None:
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
    measured = {row["network"]: row["inference"]["ours"]["ms"] for row in rows}
    assert {name for name in TINY if backbone(name).speed == "unmeasured"} == TINY.keys() - measured
    for name in TINY.keys() & measured.keys():
        first = next(speed for speed, limit in SPEEDS.items() if measured[name] < limit)
        assert backbone(name).speed == first, f"{name}: {measured[name]:.1f} ms"


# --- laws ----------------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("suffix", ["", "+"])
@torch.no_grad()
def test_any_size_bands_and_dispersion(name: str, suffix: str) -> None:
    if suffix and name in WITHOUT_PLANES:
        with pytest.raises(ConfigError, match="no input planes"):
            tiny(name + suffix)
        return
    cameras = (FRACTIONAL, CASSI.from_step(BANDS, -2.0, axis="height", design="dual"))
    for camera in cameras:
        measurement, mask = snapshot(camera)
        cube = tiny(name + suffix)(measurement, mask, camera)
        assert cube.shape == (2, BANDS, *ODD)
        assert torch.isfinite(cube).all()


@every_network
@torch.no_grad()
def test_frames_smaller_than_a_window(name: str) -> None:
    measurement, mask = snapshot(FRACTIONAL, (3, 2), 1)
    assert tiny(name)(measurement, mask, FRACTIONAL).shape == (1, BANDS, 3, 2)


@every_network
def test_gradients_reach_every_parameter_and_the_posterior(name: str) -> None:
    model = tiny(name, "gst")
    measurement, mask = snapshot(FRACTIONAL)
    generator = torch.Generator().manual_seed(0)
    model.sample(measurement, mask, FRACTIONAL, generator).square().mean().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@every_network
@torch.no_grad()
def test_weights_come_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = tiny(name, "gst").eval()
    save_weights(model, tmp_path / "w.safetensors", {}, dtype=torch.float32)
    again = load_weights(tmp_path / "w.safetensors")
    measurement, mask = snapshot(FRACTIONAL)
    first, second = (m(measurement, mask, FRACTIONAL) for m in (model, again))
    assert torch.equal(first, second)
    assert torch.equal(first, model(measurement, mask, FRACTIONAL)), "a network has no memory"


@every_network
@torch.no_grad()
def test_samples_of_a_batch_do_not_know_each_other(name: str) -> None:
    model = tiny(name)  # in training mode, where a norm over the batch would show
    measurement, mask = snapshot(FRACTIONAL)
    together = model(measurement, mask, FRACTIONAL)
    alone = model(measurement[1:], mask, FRACTIONAL)
    assert torch.allclose(together[1:], alone, atol=1e-5)


@every_network
@torch.no_grad()
def test_the_mask_matters(name: str) -> None:
    model = tiny(name)
    measurement, mask = snapshot(FRACTIONAL)
    there = model(measurement, mask, FRACTIONAL)
    assert not torch.allclose(there, model(measurement, mask.flip(-1), FRACTIONAL), atol=1e-4)


@every_network
def test_half_precision_changes_little(name: str) -> None:
    model = tiny(name, "gst").eval()
    measurement, mask = snapshot(FRACTIONAL)
    with torch.no_grad():
        exact = model(measurement, mask, FRACTIONAL)
        with torch.autocast("cpu", torch.bfloat16):
            trained_as = model(measurement, mask, FRACTIONAL)
    copies = {"autocast": trained_as.float()}
    for precision in ("float32", "auto"):
        fast = FastReconstructor(model, torch.device("cpu"), precision)
        copies[precision] = fast(measurement, mask, FRACTIONAL)
    assert torch.allclose(copies["float32"], exact, atol=1e-5)
    for how, cube in copies.items():
        assert cube.dtype == torch.float32
        assert float((cube - exact).norm() / exact.norm()) < 0.03, how


@every_network
def test_steps_of_training_lower_the_loss(name: str) -> None:
    model, camera = tiny(name), CASSI.from_step(BANDS)
    mask = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(2))
    rows = torch.linspace(0.1, 0.9, 16)
    cube = (rows[:, None] * rows[None] * torch.linspace(0.5, 1, BANDS)[:, None, None])[None]
    measurement = camera.forward(cube, mask)
    optimiser = torch.optim.Adam(model.backbone.parameters(), lr=4e-3)
    losses = []
    for _ in range(12):
        loss = (model.reconstruct(Observation(measurement, mask, camera)) - cube).square().mean()
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < 0.8 * losses[0]


# --- sizes ---------------------------------------------------------------------------------------

PUBLISHED = {"tsa-net": (44.25, 110.06), "lambda-net": (62.64, 117.98), "gsm": (3.76, 646.65)}
"""Millions of parameters and milliards of multiply-adds at 256×256×28."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    parameters, multiply_adds = PUBLISHED[name]
    told = describe(name)
    assert told.parameters / 1e6 == pytest.approx(parameters, rel=0.05)
    assert told.multiply_adds / 1e9 == pytest.approx(multiply_adds, rel=0.05)


def test_the_papers_swinir() -> None:
    with torch.device("meta"):
        model = create_model("swinir")
    width, heads, window, layers = 60, 6, 8, 24
    attention = 4 * (width**2 + width) + heads * (2 * window - 1) ** 2
    mlp = 2 * 2 * width**2 + 3 * width
    norms = 4 * width
    convs = sum(9 * a * b + b for a, b in [(28, width), *[(width, width)] * 5, (width, 28)])
    assert count_parameters(model) == layers * (attention + mlp + norms) + convs + 2 * width


def test_descriptions() -> None:
    told = describe("hssp+")
    assert told.inputs == ("backprojection", "normalised", "mask")
    assert told.wants_physics
    assert told.speed == "fast"
    assert "spectral prior" in told.summary
    assert "Wang" in told.paper
    assert told.parameters == count_parameters(create_model("hssp+"))


def test_attention_over_channels_is_linear_in_the_pixels() -> None:
    with torch.device("meta"):
        model = create_model("spectral-vit", groups=1, layers=1)
    small = count_multiply_adds(model, CASSI.from_step(), (32, 32))
    assert count_multiply_adds(model, CASSI.from_step(), (64, 96)) == 6 * small


@pytest.mark.parametrize("name", [name for name in TINY if name != "srn"])
@pytest.mark.parametrize("size", [64, 660])
def test_full_networks_at_the_cameras_sizes(name: str, size: int) -> None:
    """Shapes only: full size on the meta device, where no arithmetic is done."""
    camera = CASSI.from_step()
    with torch.device("meta"):
        model = create_model(name, mask_posterior="gst")
        mask = torch.empty(1, 1, *camera.mask_size((size, size)))
        measurement = torch.empty(1, *camera.measurement_size((size, size)))
        noise = torch.empty(
            1
        )  # told, because it cannot be estimated from numbers that are not there
    assert model(measurement, mask, camera, noise).shape == (1, 28, size, size)


@pytest.mark.slow
@every_network
@torch.no_grad()
def test_a_real_frame(name: str) -> None:
    measurement, mask = snapshot(FRACTIONAL, (660, 660), 1)
    cube = tiny(name).eval()(measurement, mask, FRACTIONAL)
    assert cube.shape == (1, BANDS, 660, 660)
    assert torch.isfinite(cube).all()


# --- what only some of them have -----------------------------------------------------------------


@every_network
def test_only_networks_without_a_camera_can_be_tiled(name: str) -> None:
    assert tiny(name).can_tile_backbone is (name not in UNFOLDED)


@torch.no_grad()
def test_hssp_with_an_idle_prior_descends_on_the_misfit() -> None:
    model = tiny("hssp", stages=8)
    for prior in model.backbone.priors:
        prior.spatial.weight.zero_()
        prior.spatial.bias.zero_()
        prior.spectral.weight.copy_(torch.eye(BANDS)[:, :, None, None])
        prior.spectral.bias.zero_()
    measurement, mask = snapshot(FRACTIONAL)
    errors = []
    for stages in (0, 4, 8):
        model.backbone.step[stages:] = 0
        cube = model(measurement, mask, FRACTIONAL)
        errors.append(float((FRACTIONAL.forward(cube, mask) - measurement).norm()))
        model.backbone.step.fill_(0.5)
    assert errors[0] > 2 * errors[1] > 2 * errors[2]


@torch.no_grad()
def test_gsm_with_a_learned_operator_never_sees_the_mask() -> None:
    measurement, mask = snapshot(FRACTIONAL)
    model = tiny("gsm", operator="learned")
    one, other = (model(measurement, m, FRACTIONAL) for m in (mask, mask.flip(-1)))
    assert torch.equal(one, other)


def test_tsa_net_with_the_published_norm() -> None:
    model = tiny("tsa-net", norm="batch")
    measurement, mask = snapshot(FRACTIONAL)
    assert torch.isfinite(model(measurement, mask, FRACTIONAL)).all()
    assert any("running_mean" in key for key in model.state_dict())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("swinir", {"width": 13}),
        ("swinir", {"window": 1}),
        ("spectral-vit", {"width": 13}),
        ("lambda-net", {"width": 7}),
        ("tsa-net", {"norm": "bacth"}),
        ("gsm", {"operator": "none"}),
        ("hssp", {"depth": 3}),
        ("lumen", {"width": 12}),
        ("lumen", {"look": 2}),
        ("lumen", {"stages": 0}),
    ],
)
def test_wrong_options_are_named(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        tiny(name, **options)


@pytest.mark.parametrize(
    ("name", "more", "graphs"),
    [
        ("swinir", {"layers": 6}, 2),  # with and without a shift
        ("spectral-vit", {"layers": 4}, 1),
        ("gsm", {"stages": 4}, 8),  # of 24 calls
        ("lumen", {"stages": 4}, 4),  # its two ends; the first stage is given no gradient
    ],
)
# PyTorch warns of what it does itself while it traces.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:`torch.jit")
def test_what_repeats_is_compiled_once(name: str, more: dict[str, Any], graphs: int) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model, (measurement, mask) = tiny(name, **more), snapshot(FRACTIONAL)
    expected = model.reconstruct(Observation(measurement, mask, FRACTIONAL))
    keys = set(model.state_dict())
    # "eager" compiles nothing, but traces as every backend does.
    assert compile_parts(model.backbone, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        model.reconstruct(Observation(measurement, mask, FRACTIONAL)), expected
    )
    assert 0 < counters["stats"]["unique_graphs"] <= graphs
    assert set(model.state_dict()) == keys, "weights keep their names"
    torch._dynamo.reset()


def test_a_network_without_parts_is_left_alone() -> None:
    assert not compile_parts(tiny("srn").backbone)


@every_network
def test_what_is_no_hidden_matrix_is_named(name: str) -> None:
    """Every pattern meets something, and no matrix that reads or gives bands is called hidden.

    HSSP has nothing but such matrices; its priors count as hidden, or Muon would have no work.
    """
    names = [n for n, p in tiny(name).backbone.named_parameters() if p.ndim >= 2]
    patterns = backbone(name).build.io_layers  # type: ignore[attr-defined]
    optional = {"first_guess.*"}  # where the input planes are not one per band
    for pattern in set(patterns) - optional:
        everything = [n for n, _ in tiny(name).backbone.named_parameters()]
        assert fnmatch.filter(everything, pattern), pattern
    hidden = [n for n in names if not any(fnmatch.fnmatch(n, pattern) for pattern in patterns)]
    assert hidden
    sizes = {n: p.shape for n, p in tiny(name).backbone.named_parameters()}
    for n in hidden if name != "hssp" else ():
        assert BANDS not in sizes[n][:2], n


@torch.no_grad()
def test_every_snapshot_of_a_batch_gets_a_mask_of_its_own() -> None:
    model = create_model("srn", bands=4, mask_posterior="fixed", seed=0, width=8, blocks=1)
    camera, generator = CASSI.from_step(4), torch.Generator().manual_seed(0)
    mask = torch.rand(1, 1, 12, 14, generator=generator)
    shot = camera.forward(torch.rand(1, 4, 12, 14, generator=generator), mask)
    first, second = model.sample(shot.expand(2, -1, -1), mask, camera, generator)
    assert not torch.allclose(first, second, atol=1e-4)
