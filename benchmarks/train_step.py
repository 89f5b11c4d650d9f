"""Speed of training and inference of SRN + GST on one device.

    python benchmarks/train_step.py [--json FILE] [--batches 8 16 32] [--crop 128 128]

Prints steps and samples per second, the share of the device's measured bf16 matrix peak and the
peak memory, for the step as it is now (plain, and replayed as one CUDA graph, with Adam and with
Muon) and for the former one (the network alone replayed by the compiler, optimisers launched one
kernel at a time). The peak is measured in the same run. Inference is compared with the plain
float32 contiguous network, with the loss of PSNR. Needs torch, numpy, scipy and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from functools import partial
from pathlib import Path

import torch

from common import synchronise, timed
from prismask.models.fast import FastReconstructor
from prismask.models.registry import count_multiply_adds, create_model
from prismask.optics.camera import CASSI
from prismask.training.config import from_table
from prismask.training.data.batches import BatchMaker
from prismask.training.data.crops import SceneBank
from prismask.training.data.masks import MaskSource
from prismask.training.distributed import World
from prismask.training.setup import build_model
from prismask.training.state import new_state
from prismask.training.step import STEPS_BEFORE_RECORDING, Stepper, Training

PROTOTYPE_MS = 1.67  # a plain compiled prototype of the same network on one H200
PUBLIC_MS = 8.4  # the authors' public code on the same card


def matrix_peak(device: torch.device) -> float:
    """Measured bf16 matrix rate in TFLOP/s."""
    size = 8192 if device.type == "cuda" else 1024
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    other = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    seconds = timed(lambda: one @ other, device, 10, 3)
    return 2 * size**3 / seconds / 1e12


FORMER = "former: network replayed"
MODES: dict[str, tuple[dict[str, bool], str]] = {
    "plain": ({}, "adam"),
    FORMER: ({"compile": True}, "adam"),
    "step as a graph": ({"graphs": True}, "adam"),
    "step as a graph, compiled": ({"graphs": True, "compile": True}, "adam"),
    "step as a graph, Muon": ({"graphs": True}, "muon"),
    "step as a graph, compiled, Muon": ({"graphs": True, "compile": True}, "muon"),
}
"""What `speed` says, and the optimiser."""


def stepper(
    batch: int, mode: str, device: torch.device, crop: tuple[int, int], backbone: str
) -> Stepper:
    """A ready training step on random scenes."""
    speed, optimizer = MODES[mode]
    config = from_table(
        {
            "data": {"crop": list(crop), "scale": [1.0, 2.0]},
            "model": {"backbone": backbone},
            "posterior": {"kind": "gst"},
            "loss": {"kind": "rmse"},
            "optimizer": {"kind": optimizer},
            "schedule": {"batch": batch},
            "speed": {**speed, "ema": 0.999},
        }
    )
    camera = CASSI.from_step()
    side = 2 * max(crop)
    scenes = torch.rand(4, camera.bands, side, side, device=device)
    bank = SceneBank(scenes, crop, 1.0)
    masks = MaskSource(torch.rand(404, 660, device=device), None, crop, config.masks)
    maker = BatchMaker(bank, masks, camera, config.data, 0, batch, slice(0, batch))
    state = new_state(build_model(config, device), config)
    run = Training(config, camera, maker, maker, device, World(), None)
    step = Stepper(state, run)
    if mode == FORMER:
        options = {"triton.cudagraphs": True}
        step.loss_of = torch.compile(step._loss_of, dynamic=False, options=options)
    return step


def training_rows(
    device: torch.device, batches: list[int], crop: tuple[int, int], backbone: str, peak: float
):
    camera = CASSI.from_step()
    model = create_model(backbone, mask_posterior="gst")
    operations = 2 * 3 * count_multiply_adds(model, camera, crop)
    for mode in list(MODES) if device.type == "cuda" else ["plain"]:
        for batch in batches:
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            step = stepper(batch, mode, device, crop, backbone)
            for phase in ("theta", "phi"):
                for _ in range(STEPS_BEFORE_RECORDING + 1 if device.type == "cuda" else 1):
                    step(phase)
                synchronise(device)
                first = time.perf_counter() - start
                blocks = {"repeats": 5, "warmup": 3, "block": 10}
                once = {"repeats": 1, "warmup": 0}
                how = blocks if device.type == "cuda" else once
                seconds = timed(partial(step, phase), device, **how)
                per_sample = seconds / batch
                yield {
                    "what": f"train {backbone}+gst {phase}",
                    "mode": mode,
                    "batch": batch,
                    "steps_per_s": 1 / seconds,
                    "samples_per_s": 1 / per_sample,
                    "ms_per_sample": per_sample * 1e3,
                    "share_of_peak": operations
                    / per_sample
                    / 1e12
                    / peak
                    * (1 if phase == "theta" else 2 / 3),
                    "first_step_s": first,
                    "peak_GiB": peak_memory(device),
                }
                start = time.perf_counter()


@torch.inference_mode()
def inference_rows(device: torch.device, batches: list[int], size: int, backbone: str, peak: float):
    camera = CASSI.from_step()
    model = create_model(backbone, mask_posterior="gst", seed=0)
    operations = 2 * count_multiply_adds(model, camera, (size, size))
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(1, 1, size, size, generator=generator).to(device)
    for batch in batches:
        cube = torch.rand(batch, camera.bands, size, size, generator=generator).to(device)
        measurement = camera.forward(cube, mask)
        plain = model.to(device).eval()
        reference = plain(measurement, mask, camera)
        fast = FastReconstructor(model, device)
        variants = {"plain float32": plain, f"fast {fast.dtype}": fast}
        if device.type == "cuda":
            compiled = FastReconstructor(model, device)
            compiled.backbone = torch.compile(compiled.backbone, dynamic=False)
            variants[f"fast {fast.dtype} compiled"] = compiled
        for name, network in variants.items():
            repeats = 20 if device.type == "cuda" else 3
            seconds = timed(partial(network, measurement, mask, camera), device, repeats, 2)
            error = (network(measurement, mask, camera) - reference).square().mean().sqrt()
            loss = float(error / reference.square().mean().sqrt())
            yield {
                "what": f"inference {backbone}+gst",
                "mode": name,
                "batch": batch,
                "ms_per_sample": seconds / batch * 1e3,
                "share_of_peak": operations * batch / seconds / 1e12 / peak,
                "relative_error": loss,
                # what an error of this size, independent of the network's own, takes off 34 dB
                "psnr_loss_at_34dB": psnr_loss(float(error), float(reference.abs().max()), 34.0),
            }


def psnr_loss(error: float, peak: float, level: float) -> float:
    own = (peak * 10 ** (-level / 20)) ** 2
    return 10 * math.log10((own + error**2) / own)


def peak_memory(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--inference-batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--size", type=int, default=256, help="frame of the inference rows")
    parser.add_argument("--crop", type=int, nargs=2, default=[128, 128])
    parser.add_argument("--backbones", nargs="+", default=["srn"])
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--no-inference", action="store_true")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    peak = matrix_peak(device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: bf16 matrix peak {peak:.1f} TFLOP/s")
    print(
        f"references on one H200: prototype {PROTOTYPE_MS} ms, public code {PUBLIC_MS} ms a sample"
    )
    rows = []
    for backbone in given.backbones:
        sources = []
        if not given.no_inference:
            sources += [inference_rows(device, given.inference_batches, given.size, backbone, peak)]
        if not given.no_training:
            sources += [training_rows(device, given.batches, tuple(given.crop), backbone, peak)]
        for source in sources:
            for row in source:
                rows.append(row)
                print(
                    "  ".join(
                        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                        for k, v in row.items()
                    ),
                    flush=True,
                )
    if given.json:
        facts = {"device": name, "torch": torch.__version__, "bf16_peak_tflops": peak, "rows": rows}
        Path(given.json).write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
