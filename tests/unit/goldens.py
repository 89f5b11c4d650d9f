"""What whole parts of the library compute from fixed numbers; `python tests/unit/goldens.py` writes
`goldens.json` anew, after a change that is meant to change them.

Weights are set, not drawn, so that another way to start a network changes nothing here. Of every
array a few numbers are kept that depend on all of it and on where its values lie.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

for room in ("models", "../integration"):
    if (folder := str(Path(__file__).parent / room)) not in sys.path:
        sys.path.insert(0, folder)

from test_networks import TINY  # noqa: E402
from tiny_training import MUON, tiny_config  # noqa: E402

from prismask.evaluation.protocol.conditions import FAULT_KINDS, arrange, photograph  # noqa: E402
from prismask.evaluation.run.cells import Cell  # noqa: E402
from prismask.inference.intervals.evidence import Evidence  # noqa: E402
from prismask.inference.intervals.snapshots import Plan, Studio, draw_cameras  # noqa: E402
from prismask.models.network import Reconstructor  # noqa: E402
from prismask.models.registry import create_model  # noqa: E402
from prismask.models.weights import trained_with  # noqa: E402
from prismask.optics.camera import CASSI  # noqa: E402
from prismask.optics.fabricate import fabricate_mask, random_aperture  # noqa: E402
from prismask.optics.faults import Variation, make_fault, vary  # noqa: E402
from prismask.optics.noise import estimate_noise  # noqa: E402
from prismask.optics.randomness import seeded  # noqa: E402
from prismask.optics.simulate import (  # noqa: E402
    Gaussian,
    Quantise,
    Saturate,
    Sensor,
    ShotRead,
    simulate,
)
from prismask.optics.varied_prism import PrismFamily  # noqa: E402
from prismask.scenes.colour import to_srgb  # noqa: E402
from prismask.scenes.records import Cube, Mask  # noqa: E402
from prismask.scenes.resample import resample  # noqa: E402
from prismask.scenes.synthetic import demo_scene  # noqa: E402
from prismask.scenes.synthetic.demo import random_scene  # noqa: E402
from prismask.scenes.synthetic.spectra import Feature, plant  # noqa: E402
from prismask.solvers.registry import create_solver  # noqa: E402
from prismask.training.data.batches import BatchMaker  # noqa: E402
from prismask.training.run import _batches, train  # noqa: E402
from prismask.training.setup import prepare  # noqa: E402

FILE = Path(__file__).with_name("goldens.json")
BANDS, SIZE = 6, (20, 22)
GRID = tuple(np.linspace(450.0, 650.0, BANDS))
CAMERAS = {
    "width": CASSI.from_step(BANDS),
    "fractional along the height": CASSI.from_step(BANDS, -1.7, axis="height"),
    "two dispersers": CASSI.from_step(BANDS, design="dual"),
}
Made = Mapping[str, Any]


def scene(seed: int = 3, size: tuple[int, int] = SIZE) -> Cube:
    return random_scene(seed, size, GRID)


def snapshot(camera: CASSI, count: int = 1) -> tuple[Tensor, Tensor]:
    """Of `count` scenes, with a little noise, and the mask."""
    mask = fabricate_mask(camera.mask_size(SIZE), seeded(2))[None, None]
    cubes = torch.stack([torch.tensor(scene(3 + k).values) for k in range(count)])
    light = camera.forward(cubes, mask)
    return light + 0.05 * torch.randn(light.shape, generator=seeded(4)), mask


# --- networks and solvers -------------------------------------------------------------------------


def network(name: str, posterior: str = "none", **more: Any) -> Reconstructor:
    """With weights like noise, of the size that keeps values in their range."""
    options = {**TINY[name.removesuffix("+")], **more}
    model = create_model(name, bands=BANDS, mask_posterior=posterior, seed=0, **options)
    with torch.no_grad():
        for place, (_, weight) in enumerate(sorted(model.named_parameters())):
            numbers = torch.arange(weight.numel(), dtype=torch.float64) + 0.37 * place
            noise = torch.sin(12.9898 * numbers).mul(43758.5453).frac()
            if weight.ndim > 1:
                noise *= (3 / weight[0].numel()) ** 0.5
                weight.copy_(noise.reshape(weight.shape))
            else:  # biases and scales start at 0 or 1
                weight += 0.1 * noise.reshape(weight.shape)
    return model.eval()


@torch.no_grad()
def answer(name: str, camera: CASSI, **more: Any) -> Made:
    shots, mask = snapshot(camera, 2)
    return {"cube": network(name, **more)(shots, mask, camera, torch.full((2,), 0.01), 0.1 * mask)}


@torch.no_grad()
def posterior(kind: str) -> Made:
    camera = CAMERAS["width"]
    shots, mask = snapshot(camera, 2)
    model = network("srn", kind)
    drawn, std = model.posterior.sample(mask, 2, generator=seeded(1))
    sampled = model.sample(shots, mask, camera, seeded(1))
    return {"drawn": drawn, "std": std, "told": model.posterior.std(mask), "sampled": sampled}


SOLVERS: dict[str, dict[str, Any]] = {
    "gap-tv": {"iterations": 4},
    "gap-tv told": {"iterations": 4, "noise": 0.05, "nonnegative": False},
    "gap-tv apart": {"iterations": 4, "coupling": "band", "inner_iterations": 2},
    "twist": {"iterations": 4},
    "twist told": {"iterations": 4, "weight": 0.05, "nonnegative": False},
    "gpsr": {"iterations": 4},
    "gpsr told": {
        "iterations": 4,
        "weight": 0.01,
        "smoothness": 0.5,
        "levels": 2,
        "wavelet": "db2",
        "monotone": False,
        "nonnegative": False,
    },
    "pnp": {"iterations": 4},
    "pnp admm": {"iterations": 4, "scheme": "admm", "denoiser": "tv", "noise": 0.1},
    "pnp free": {
        "iterations": 4,
        "nonnegative": False,
        "sigma": 0.8,
        "last_sigma": 0.1,
        "start": "spread",
    },
    "desci": {"iterations": 2, "start_iterations": 4, "noise": 0.05},
    "desci dense": {
        "iterations": 2,
        "start_iterations": 2,
        "patch": 4,
        "stride": 2,
        "group": 8,
        "radius": 4,
        "match_every": 1,
        "strength": 0.5,
        "nonnegative": False,
    },
    "pnp-dip alone": {
        "iterations": 2,
        "steps": 3,
        "width": 8,
        "levels": 1,
        "start": "gap-tv",
        "multiplier": False,
        "average": 0.5,
        "networks": 2,
        "noise": 0.1,
    },
    "pnp-dip": {"iterations": 2, "steps": 3, "width": 8, "levels": 2, "seed": 3},
}


def solved(name: str, options: Mapping[str, Any], camera: CASSI) -> Made:
    shots, mask = snapshot(camera, 1)
    return {"cube": create_solver(name.split()[0], **options)(shots, mask, camera)}


# --- training -------------------------------------------------------------------------------------

BATCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "data": {
            "source": "synthetic", "synthetic_scenes": 3, "synthetic_size": 48, "crop": [16, 24],
            "scale": [0.6, 1.8], "resampling": "cubic", "choices": 2, "native_share": 0.3,
            "tilt_share": 0.5, "brightness": [0.5, 1.0], "spectral_gain": 0.2, "collage": 0.5,
            "warp": 0.5, "recombine": 0.5, "repaint": 0.3, "lamps": 0.5, "narrow_bands": 0.5,
            "laser_lines": 0.5, "noise_std": [0.01, 0.05], "noise_share": 0.7, "plain_share": 0.2,
        },
        "masks": {
            "per": "sample", "vary": True, "binary_share": 0.3,
            "fault_share": 0.7, "dispersion_share": 0.5, "per_band_share": 0.4, "told_share": 0.6,
        },
        "camera": {"bands": 4, "spread": [0.6, 1.4], "bend": 0.1, "jitter": 0.3,
                   "varied_share": 0.7, "more_bands": [3, 6], "more_bands_share": 0.4},
        "model": {"backbone": "lumen", "options": {"width": 8, "stages": 2, "cosines": 8}},
        "posterior": {"kind": "none"}, "schedule": {"mode": "plain"},
    },
    "three band counts behind one prism": {
        "camera": {"bands": 4, "more_bands": [3, 6], "more_bands_share": 0.7},
        "masks": {"fault_share": 0.8, "dispersion_share": 0.8, "per": "sample"},
        "model": {"backbone": "lumen", "options": {"width": 8, "stages": 2, "cosines": 8}},
        "posterior": {"kind": "none"}, "schedule": {"mode": "plain"},
    },
    "beside their place": {"masks": {"vary": True, "calibration_error": 0.5, "per": "sample"}},
    "two dispersers, together": {
        "camera": {"bands": 4, "design": "dual"}, "masks": {"per": "sample", "fault_share": 0.5},
        "speed": {"batches_at_once": 2},
    },
}  # fmt: skip


def maker(tables: Mapping[str, Any]) -> BatchMaker:
    config = tiny_config(**tables)
    prepared = prepare(config, torch.device("cpu"))
    return _batches(config, prepared, prepared.train_scenes, "training", slice(0, 4))


def batches(name: str) -> Made:
    made = maker(BATCHES[name])
    return {
        f"{step} {field}": value
        for step in range(4)
        for field, value in vars(made.make(step)).items()
        if isinstance(value, Tensor)
    }


LUMEN = BATCHES["everything"]["model"]
SHORT = {"epochs": 4, "warmup_epochs": 1, "theta_epochs": 1, "phi_epochs": 1}
TRAININGS: dict[str, dict[str, Any]] = {
    "bilevel": {"schedule": SHORT},
    "joint, rmse": {"schedule": SHORT | {"mode": "joint"}, "loss": {"kind": "rmse"}},
    "muon, log, clipped": {
        "schedule": {"mode": "plain", "epochs": 3, "clip_gradient": 0.1, "hold": 0.3},
        "posterior": {"kind": "none"}, "optimizer": MUON, "loss": {"kind": "log"},
    },
    "adversary": {"schedule": SHORT | {"mode": "plain"}, "loss": {"adversarial": 0.1},
                  "posterior": {"kind": "none"}},
    "stages and masks": {
        "schedule": SHORT | {"mode": "plain"}, "posterior": {"kind": "none"}, "model": LUMEN,
        "masks": {"source": "fabricated", "fabricated_count": 2, "fault_share": 0.7,
                  "per": "sample"},
        "loss": {"stage_decay": 0.5, "mask_weight": 0.3},
    },
}  # fmt: skip


def trained(name: str) -> Made:
    lines: list[dict[str, Any]] = []
    train(tiny_config(**TRAININGS[name]), report=lines.append)
    steps = [line for line in lines if line["event"] == "step"]
    numbers = ("loss", "psnr_unit", "rate", "progress", "epoch", "g_min", "g_max")
    return {key: np.array([s[key] for s in steps]) for key in numbers if key in steps[0]}


# --- optics and scenes ----------------------------------------------------------------------------

STRENGTHS: dict[str, dict[str, Any]] = {
    "shift": {"rows": 1.3, "columns": -0.6}, "rotation": {"degrees": 2.0}, "blur": {"std": 0.8},
    "gain": {"gain": 0.8, "offset": 0.05}, "gamma": {"gamma": 1.3}, "dead": {"fraction": 0.1},
    "stuck": {"fraction": 0.1}, "noise": {"std": 0.05},
}  # fmt: skip


def faults() -> Made:
    mask = fabricate_mask(SIZE, seeded(2))[None, None]
    made = {n: make_fault(n, **STRENGTHS[n]).apply(mask, seeded(3)) for n in STRENGTHS}
    made["varied"] = vary(mask.expand(3, -1, -1, -1), seeded(3), Variation())
    return made


def apertures() -> Made:
    made: dict[str, Any] = {"usual": fabricate_mask((40, 44), seeded(0))}
    for seed in range(3):
        drawn = random_aperture(seeded(seed))
        made[f"random {seed}"] = fabricate_mask((40, 44), seeded(seed), drawn)
    return made


def photographs() -> Made:
    camera, mask = CAMERAS["width"], fabricate_mask(SIZE, seeded(2))
    noisy = Sensor((ShotRead(500.0, 3.0), Gaussian(0.01), Saturate(), Quantise(10)))
    shot = simulate(scene(), Mask(mask.numpy()), camera, noisy, 5, "white")
    signal = torch.tensor(shot.values)[None]
    prism = PrismFamily(camera, (0.6, 1.4), 0.1, 0.3)
    offsets = [prism.draw(seeded(seed)).offsets for seed in range(3)]
    noise = estimate_noise(signal, mask[None, None], camera)
    return {"shot": shot.values, "noise": noise, "offsets": np.array(offsets)}


def stressed() -> Made:
    camera, made = CAMERAS["width"], {}
    mask = fabricate_mask(SIZE, seeded(2))[None, None]
    cubes = torch.tensor(scene().values)[None]
    for name, kind in FAULT_KINDS.items():
        size = float(kind.sizes[-1])
        situation = arrange(Cell("m", "lab", 1, name, size, "nominal"), mask, camera, 5)
        made[name] = photograph(cubes, situation, camera, [7])
    return made


FEATURES = (Feature("smooth"), Feature("line", 12.0), Feature("cosine", 4.0),
            Feature("dips", 60.0), Feature("laser"), Feature("lamp", lamp="FL11"))  # fmt: skip


def pictures() -> Made:
    here = scene(5)
    made: dict[str, Any] = {
        "random": here.values, "demo": demo_scene((40, 40)).values, "colour": to_srgb(here),
        "resampled": resample(here, np.linspace(470, 630, 9)).values,
    }  # fmt: skip
    for feature in FEATURES:
        found = plant(here, feature, 1)
        made[f"{feature.name} {feature.size:g}"] = found.values
        made[f"{feature.name} {feature.size:g} smooth"] = found.smooth
    return made


# --- error bars -----------------------------------------------------------------------------------


def evidence(camera: CASSI) -> Made:
    shots, mask = snapshot(camera)
    cube = torch.tensor(scene(4).values)
    known = Evidence(cube, shots[0], mask, camera, 0.01, 0.6, 0.01, 1.2, other_camera=True)
    bands = list(known.features())
    return {"features": torch.stack(bands), "facts": np.array(list(known.facts.values()))}


def shots() -> Made:
    own = CASSI.from_step(8)
    grid = tuple(np.linspace(450.0, 650.0, 8))
    scenes = {f"s{k}": random_scene(k, (48, 72), grid) for k in range(2)}
    measured = {"bands": [4, 16], "length_px": [0.625 * 14, 35]}
    known = {"backbone": "lumen", "bands": 8, **trained_with(own), "measured_cameras": measured}
    others, region = draw_cameras(known, 2, 5), fabricate_mask((60, 90), seeded(8))
    studio = Studio(Plan(32, 40, seed=2), scenes, own, others, region)
    made: dict[str, Any] = {}
    for number in range(8):
        shot = studio.shoot(number)
        for name in ("truth", "signal", "mask", "planted"):
            made[f"{number} {name}"] = getattr(shot, name)
        made[f"{number} offsets"] = np.array(shot.camera.offsets)
    return made


MAKERS: dict[str, Callable[[], Made]] = {
    **{f"{name}{plus}, {eye}": partial(answer, f"{name}{plus}", camera)
       for name in TINY for eye, camera in CAMERAS.items()
       for plus in ("",)},
    "lumen, folded": partial(answer, "lumen", CAMERAS["width"], fold=2, look=1, levels=2, blocks=2,
                             lowest=1, encode=False, widest=12),
    "lumen, deep": partial(answer, "lumen", CAMERAS["width"], levels=3, blocks=2),
    **{f"posterior {kind}": partial(posterior, kind) for kind in ("gst", "conv", "fixed")},
    **{f"{name}, {eye}": partial(solved, name, options, camera)
       for name, options in SOLVERS.items() for eye, camera in CAMERAS.items()},
    **{f"batches, {name}": partial(batches, name) for name in BATCHES},
    **{f"training, {name}": partial(trained, name) for name in TRAININGS},
    **{f"evidence, {eye}": partial(evidence, camera) for eye, camera in CAMERAS.items()},
    "faults": faults, "apertures": apertures, "photographs": photographs, "stressed": stressed,
    "pictures": pictures, "shots of a fit": shots,
}  # fmt: skip


def kept(array: Any) -> list[float]:
    """Mean, size, and three sums in which every place has a weight of its own."""
    values = np.asarray(array.detach() if isinstance(array, Tensor) else array, dtype=np.float64)
    flat = values.ravel()
    places = np.arange(flat.size)
    waves = [np.cos(rate * places + shift) for rate, shift in ((0.7, 0), (2.1, 1), (2.9, 2))]
    size = max(flat.size, 1)
    return [float(flat.mean()), float(np.sqrt(np.mean(flat**2))),
            *(float(wave @ flat / size**0.5) for wave in waves)]  # fmt: skip


def made(name: str) -> Iterator[tuple[str, list[float]]]:
    for part, array in MAKERS[name]().items():
        yield part, kept(array)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = {name: {p: [float(f"{n:.6g}") for n in numbers] for p, numbers in made(name)}
            for name in MAKERS}  # fmt: skip
    lines = ",\n".join(
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(part)}: {json.dumps(numbers)}" for part, numbers in row.items()
        )
        + "\n }"
        for name, row in rows.items()
    )
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
