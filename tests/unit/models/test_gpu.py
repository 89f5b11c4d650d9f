"""What only a GPU can show: its kernels compute what the CPU computes.

Under pytest these skip where there is no CUDA device. A machine that has one but no pytest runs

    PYTHONPATH=src python tests/unit/models/test_gpu.py

which needs torch, NumPy, SciPy and safetensors alone.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models import layers
from prismask.models.fast import FastReconstructor
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.records import Mask
from prismask.scenes.synthetic.demo import random_scene

DEVICE = torch.device("cuda")
CPU = torch.device("cpu")
CAMERA = CASSI.from_step()
SIZE = (128, 144)
SMOKE = Path(__file__).resolve().parents[3] / "configs" / "smoke.toml"

if find_spec("pytest") is not None:
    import pytest

    pytestmark = [
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ]


def scene() -> Tensor:
    return torch.tensor(random_scene(3, SIZE).values)[None]


def aperture() -> Tensor:
    return fabricate_mask(SIZE, seeded(5))[None, None]


@cache
def network() -> Reconstructor:
    """The trained network that ships; PSNR says little about an untrained one."""
    from prismask.models.weights import load_model, shipped

    return load_model(shipped()[0].name).eval()


def psnr(estimate: Tensor, truth: Tensor) -> float:
    return -10 * math.log10(float((estimate.double().cpu() - truth.double()).square().mean()))


def exact() -> Any:
    """Float32 means float32: a GPU likes to convolve with the 11 bits of TF32."""
    return torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)


# --- optics and solvers --------------------------------------------------------------------------


def test_the_operator_is_the_same_on_both() -> None:
    cameras = [
        CASSI.from_step(6, 2.0),
        CASSI.from_step(6, -1.5),
        CASSI.from_step(6, 2.0, axis="height"),
        CASSI.from_step(6, 1.25, design="dual"),
        CASSI((0.0, 0.4, 1.9, 4.2, 7.7, 12.3)),
    ]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        for camera in cameras:
            generator = seeded(1)
            cube = torch.rand(2, 6, 37, 41, generator=generator).to(dtype)
            mask = torch.rand(*camera.mask_size((37, 41)), generator=generator).to(dtype)
            measurement = camera.forward(cube, mask)
            there = camera.forward(cube.to(DEVICE), mask.to(DEVICE))
            assert there.device.type == DEVICE.type
            assert there.dtype == dtype
            close(there, measurement, tolerance)
            for name in ("adjoint", "pseudo_inverse", "spread"):
                here = getattr(camera, name)(measurement, mask)
                there = getattr(camera, name)(measurement.to(DEVICE), mask.to(DEVICE))
                # A division by a small diagonal enlarges what the sums rounded differently.
                close(there, here, tolerance * max(1.0, float(here.abs().max())))


def test_gap_tv_gives_the_same_cube() -> None:
    from prismask.solvers import create_solver

    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    solver = create_solver("gap-tv", iterations=30)
    here = solver(measurement, mask, CAMERA)
    there = solver(measurement.to(DEVICE), mask.to(DEVICE), CAMERA)
    assert there.device.type == DEVICE.type
    close(there, here, 1e-3)
    assert abs(psnr(there, truth) - psnr(here, truth)) < 0.005
    assert psnr(there, truth) > psnr(CAMERA.spread(measurement, mask), truth) + 1


def test_pnp_dip_fits_as_well_from_recorded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from prismask.solvers import create_solver, pnp_dip
    from prismask.solvers.pnp_dip import Repeated

    made: list[Repeated] = []

    def watched(device: torch.device) -> Repeated:
        made.append(Repeated(device))
        return made[-1]

    monkeypatch.setattr(pnp_dip, "Repeated", watched)
    truth, mask = scene()[..., :48, :56], aperture()[..., :48, :56]
    measurement = CAMERA.forward(truth, mask)
    small = {"iterations": 10, "steps": 10, "width": 16, "levels": 2, "start": "gap-tv"}
    options = {**small, "networks": 2, "stop_at_noise": False}
    here = create_solver("pnp-dip", **options)(measurement, mask, CAMERA)
    for half in (False, True):
        solver = create_solver("pnp-dip", half=half, **options)
        there = solver(measurement.to(DEVICE), mask.to(DEVICE), CAMERA)
        assert there.device.type == DEVICE.type
        assert psnr(there, truth) > psnr(here, truth) - 1
    assert made
    assert not [reason for one in made for reason in one.refusals]


# --- networks ------------------------------------------------------------------------------------


def test_the_fused_convolution_is_the_plain_one_with_its_gradients() -> None:
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float16, 4e-3), (torch.bfloat16, 3e-2)):
        conv = nn.Conv2d(16, 24, 3, padding=1).to(DEVICE, dtype)
        x = torch.randn(3, 16, 33, 20, device=DEVICE, dtype=dtype)
        weights = torch.randn(3, 24, 33, 20, device=DEVICE, dtype=dtype)
        assert layers.uses_tensor_cores(x)
        ours = _with_gradients(lambda c, v: layers.conv_then_relu(c, v), conv, x, weights)
        plain = _with_gradients(lambda c, v: F.relu(c(v)), conv, x, weights)
        # The reference in float64 says what both should be; ours may not be the worse of the two.
        true = _with_gradients(
            lambda c, v: F.relu(c(v)), copy.deepcopy(conv).double(), x.double(), weights.double()
        )
        for name, value in true.items():
            allowed = max(tolerance, 2 * distance(plain[name], value))
            assert distance(ours[name], value) < allowed, f"{name} in {dtype}"


def _with_gradients(
    run: Callable[[nn.Conv2d, Tensor], Tensor], conv: nn.Conv2d, x: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """The output and the gradients to input, weight and bias."""
    conv.zero_grad()
    given = x.clone().requires_grad_()
    out = run(conv, given)
    (out * weights).sum().backward()
    assert given.grad is not None
    assert conv.weight.grad is not None
    assert conv.bias is not None
    assert conv.bias.grad is not None
    return {
        "output": out.detach(),
        "input": given.grad,
        "weight": conv.weight.grad.clone(),
        "bias": conv.bias.grad.clone(),
    }


def test_padded_channels_change_nothing() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(5, 11, 3, padding=1).to(DEVICE, torch.float16)
    x = torch.rand(2, 5, 19, 23, device=DEVICE, dtype=torch.float16)
    assert distance(layers.conv_aligned(conv, x), conv(x)) < 2e-3


def test_fewer_bits_cost_less_than_a_tenth_of_a_decibel() -> None:
    truth, mask = scene(), aperture()
    measurement = CAMERA.forward(truth, mask)
    given = measurement.to(DEVICE), mask.to(DEVICE), CAMERA
    with torch.no_grad():
        here = network()(measurement, mask, CAMERA)
    with exact():
        single = FastReconstructor(network(), DEVICE, "float32")(*given)
    close(single, here, 1e-3)
    best = psnr(single, truth)
    half = FastReconstructor(network(), DEVICE, "half")
    assert half.dtype == torch.float16
    assert abs(psnr(half(*given), truth) - best) < 0.1
    there = copy.deepcopy(network()).to(DEVICE)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        rough = there(*given).float()
    assert abs(psnr(rough, truth) - best) < 0.1


def test_replayed_kernels_read_what_they_are_given() -> None:
    """From the second call of a shape on, a recording answers; it must not repeat itself."""
    backbones: list[tuple[str, dict[str, Any]]] = [
        ("srn", {"width": 16, "blocks": 2}),
        ("srn+", {"width": 16, "blocks": 2}),
    ]
    camera = CASSI.from_step(6)
    for name, options in backbones:
        model = create_model(name, bands=6, mask_posterior="gst", seed=0, **options).eval()
        fast = FastReconstructor(model, DEVICE, "float32")
        for seed in range(5):
            generator = seeded(seed)
            mask = torch.rand(1, 1, 24, 31, generator=generator)
            measurement = camera.forward(torch.rand(2, 6, 24, 31, generator=generator), mask)
            with exact(), torch.no_grad():
                there = fast(measurement.to(DEVICE), mask.to(DEVICE), camera)
                close(there, model(measurement, mask, camera), 1e-4)


def test_two_results_of_a_recording_are_two() -> None:
    camera = CASSI.from_step(6)
    fast = FastReconstructor(
        create_model("srn", bands=6, seed=0, width=8, blocks=1).eval(), DEVICE, "float32"
    )
    mask = torch.rand(1, 1, 24, 31, device=DEVICE)
    shots = [camera.forward(torch.rand(1, 6, 24, 31, device=DEVICE), mask) for _ in range(4)]
    cubes = [fast(shot, mask, camera) for shot in shots]
    kept = [cube.clone() for cube in cubes]
    for shot in shots:
        fast(shot, mask, camera)
    assert all(torch.equal(cube, copied) for cube, copied in zip(cubes, kept, strict=True))
    assert not torch.equal(cubes[2], cubes[3])


# --- the whole way -------------------------------------------------------------------------------


def test_reconstruct_gives_the_same_cube_with_the_same_spread() -> None:
    from prismask.inference.reconstruct import reconstruct

    truth = random_scene(3, SIZE)
    mask = Mask(fabricate_mask(SIZE, seeded(5)).numpy())
    shot = simulate(truth, mask, CAMERA)
    cubes = {}
    for device in (CPU, DEVICE):
        with exact():
            cubes[device.type] = reconstruct(
                shot, mask, model=network(), samples=3, seed=2, tile=64, device=str(device),
                precision="float32",
            )  # fmt: skip
    here, there = cubes["cpu"], cubes[DEVICE.type]
    assert there.attrs["device"].startswith(DEVICE.type)
    for part in ("values", "std", "lower", "upper"):
        one, other = getattr(there, part), getattr(here, part)
        assert (one is None) == (other is None)
        if one is not None:
            close(torch.tensor(one), torch.tensor(other), 2e-3)
    quick = reconstruct(shot, mask, model=network(), device=str(DEVICE))
    exactly = reconstruct(shot, mask, model=network(), device="cpu", precision="float32")
    scores = [
        psnr(torch.tensor(cube.values), torch.tensor(truth.values)) for cube in (quick, exactly)
    ]
    assert abs(scores[0] - scores[1]) < 0.1


def test_training_learns_pauses_and_goes_on(tmp_path: Path) -> None:
    from prismask.models.weights import load_weights, save_weights
    from prismask.training.config import read_config
    from prismask.training.run import train

    changes = ["schedule.epochs=8", "schedule.warmup_epochs=2", "schedule.theta_epochs=2",
               "schedule.phi_epochs=1", "output.checkpoint_every=1", "output.validate_every=0",
               "output.log_every=1", f'speed.device="{DEVICE.type}"']  # fmt: skip
    config = read_config(SMOKE, changes)
    with exact():
        whole = train(config, tmp_path / "whole")
    assert whole.finished
    losses = _losses(tmp_path / "whole")
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-8:]) < 0.7 * sum(losses[:8])
    pauses = 0
    with exact():
        parts = train(config, tmp_path / "parts", stop_after=1e-9)
        while not parts.finished:
            pauses += 1
            assert pauses < 1000
            parts = train(config, tmp_path / "parts", resume=True, stop_after=1e-9)
    assert pauses >= 3
    assert len(_losses(tmp_path / "parts")) == len(losses)
    # Sums on a GPU may come in another order, so the two runs need not agree to the last bit.
    first, second = (parameters(run.state.model) for run in (whole, parts))
    assert distance(second, first) < 0.02
    save_weights(whole.state.model, tmp_path / "weights.safetensors", {})
    again = load_weights(tmp_path / "weights.safetensors")
    assert distance(parameters(again), first) < 1e-3, "kept in half precision"


def test_a_step_replayed_as_a_graph_learns_what_the_plain_one_does(tmp_path: Path) -> None:
    from prismask.training.config import read_config
    from prismask.training.run import train
    from prismask.training.step import RecordedStep

    recorded = set()
    call = RecordedStep.__call__

    def noted(self: RecordedStep, *given: Any) -> Any:
        seen = call(self, *given)
        recorded.update({self.phase} if self.graph is not None else ())
        return seen

    RecordedStep.__call__ = noted  # type: ignore[method-assign]
    changes = ["schedule.epochs=6", "schedule.warmup_epochs=2", "schedule.theta_epochs=2",
               "schedule.phi_epochs=1", "output.validate_every=0", "output.log_every=1",
               "speed.ema=0.9", "optimizer.kind=muon", "optimizer.ramp_steps=9", "loss.kind=log",
               "speed.precision=float32", f'speed.device="{DEVICE.type}"']  # fmt: skip
    runs = {}
    try:
        for graphs in ("false", "true"):
            config = read_config(SMOKE, [*changes, f"speed.graphs={graphs}"])
            with exact():
                runs[graphs] = train(config, tmp_path / graphs).state
    finally:
        RecordedStep.__call__ = call  # type: ignore[method-assign]
    assert runs["true"].theta.parts[0].param_groups[0]["lr"].is_cuda
    assert recorded == {"warmup", "theta", "phi"}, "every phase was replayed"
    first, second = (parameters(state.model) for state in runs.values())
    # Muon multiplies in bf16 on a GPU and sums come in any order.
    assert distance(second, first) < 0.02
    one, other = (_losses(tmp_path / graphs) for graphs in runs)
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 0.1
    assert one[-1] < one[0] - 0.5
    averages = [torch.cat([v.reshape(-1) for v in s.average.values()]) for s in runs.values()]
    assert distance(averages[1], averages[0]) < 0.02


def parameters(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()


def _losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    facts = [json.loads(line) for line in lines]
    return [float(one["loss"]) for one in facts if one["event"] == "step"]


# --- comparing, and running without pytest -------------------------------------------------------


def close(one: Tensor, other: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(one.cpu(), other.cpu(), rtol=0, atol=tolerance)


def distance(one: Tensor, other: Tensor) -> float:
    """Relative to the size of `other`."""
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).norm() / other.norm())


def run_all() -> int:
    """Every test of this module, one line each; the number that failed."""
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        started = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                test(Path(folder)) if inspect.signature(test).parameters else test()
            verdict = "ok"
        except Exception:
            traceback.print_exc()
            failed, verdict = failed + 1, "FAILED"
        print(f"{verdict:6} {name} ({time.perf_counter() - started:.1f} s)", flush=True)
    return failed


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("no CUDA device")
    sys.exit(run_all() > 0)
