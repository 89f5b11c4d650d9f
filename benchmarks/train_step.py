"""Speed of training and inference of SRN + GST on one device.

    python benchmarks/train_step.py [--json FILE] [--batches 8 16 32]

Prints milliseconds per 256×256 sample, the share of the device's measured bf16 matrix peak and
the peak memory. The peak is measured in the same run. On a CPU it compares inference with the
plain float32 contiguous network and prints the loss of PSNR. Needs torch, numpy, scipy and
safetensors only.
"""

from __future__ import annotations

# First: it takes this folder off the path.
from common import synchronise, timed

# isort: split
import argparse
import json
import math
import time
from functools import partial
from pathlib import Path

import torch

from prismask.models.complexity import count_multiply_adds
from prismask.models.fast import FastReconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.training.config import from_table
from prismask.training.data.batches import BatchMaker
from prismask.training.data.crops import SceneBank
from prismask.training.data.masks import MaskSource
from prismask.training.distributed import World
from prismask.training.loop import Stepper, Training
from prismask.training.setup import build_model
from prismask.training.state import new_state

PROTOTYPE_MS = 1.67  # a plain compiled prototype of the same network on one H200
PUBLIC_MS = 8.4  # the authors' public code on the same card


def matrix_peak(device: torch.device) -> float:
    """Measured bf16 matrix rate in TFLOP/s."""
    size = 8192 if device.type == "cuda" else 1024
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    other = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    seconds = timed(lambda: one @ other, device, 10, 3)
    return 2 * size**3 / seconds / 1e12


MODES = {
    "eager": {"compile": False},
    "compiled": {"compile": True},
    "compiled, replayed": {"compile": True, "graphs": True},
}


def stepper(batch: int, mode: str, device: torch.device, size: int, backbone: str) -> Stepper:
    """A ready training step on random scenes."""
    config = from_table(
        {
            "data": {"crop": size, "scale": [1.0, 2.0]},
            "model": {"backbone": backbone},
            "posterior": {"kind": "gst"},
            "schedule": {"batch": batch},
            "speed": MODES[mode],
        }
    )
    camera = CASSI.from_step()
    scenes = torch.rand(4, camera.bands, 2 * size, 2 * size, device=device)
    bank = SceneBank(scenes, size, 1.0)
    masks = MaskSource(torch.rand(404, 660, device=device), None, (size, size), config.masks)
    maker = BatchMaker(bank, masks, camera, config.data, 0, batch, slice(0, batch))
    state = new_state(build_model(config, device), config)
    run = Training(config, camera, maker, maker, device, World(), None)
    return Stepper(state, run)


def training_rows(device: torch.device, batches: list[int], size: int, backbone: str, peak: float):
    camera = CASSI.from_step()
    model = create_model(backbone, mask_posterior="gst")
    operations = 2 * 3 * count_multiply_adds(model, camera, (size, size))
    modes = list(MODES)[: 3 if device.type == "cuda" else 2]
    for mode in modes:
        for batch in batches:
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            step = stepper(batch, mode, device, size, backbone)
            for phase in ("theta", "phi"):
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
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--backbones", nargs="+", default=["srn"])
    parser.add_argument("--no-training", action="store_true")
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
        sources = [inference_rows(device, given.inference_batches, given.size, backbone, peak)]
        if not given.no_training:
            sources.append(training_rows(device, given.batches, given.size, backbone, peak))
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
