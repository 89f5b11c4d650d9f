"""A data folder small enough for tests, shaped like the real one.

`python tiny_evaluation.py DATA OUT CALLS` evaluates a slow model there, to be killed: every call
leaves a line in the file CALLS.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.scenes.datasets import load_mask_file, read_split

BANDS, SIDE = 4, 24
GRID = [450.0, 520.0, 590.0, 650.0]
SCENES = ("scene01", "scene02", "scene03")

# As in the real data: two calibrations of one aperture (the names say so), training rows above,
# test rows below, and the single mask across the border; another instrument beside them.
MASKS = {
    "train": {"file": "masks/tsanet_real_660.mat", "rows": [0, 220]},
    "test_same_hardware": {
        "file": "masks/tsanet_real_660.mat",
        "rows": [220, 244],
        "columns": [190, 240],
    },
    "test_other_hardware": {"file": "masks/smem_real_660.mat"},
    "single": {"file": "masks/tsanet_sim_256.mat"},
}


def make_data(folder: Path) -> Path:
    """Write scenes, masks and splits.json; give the folder."""
    random = np.random.default_rng(0)
    (folder / "masks").mkdir(parents=True)
    scenes: dict[str, Any] = {"wavelengths": np.array(GRID)}
    for number, name in enumerate(SCENES):
        smooth = gaussian_filter(random.random((BANDS, SIDE, SIDE)), (1, 3, 3))
        smooth = (smooth - smooth.min()) / np.ptp(smooth)
        scenes[name] = (255 * smooth).astype(np.uint8)
        scenes[f"{name}_max"] = np.float32(0.5 + 0.1 * number)
    np.savez(folder / "kaist.npz", **scenes)
    large = random.random((260, 240))
    place = large[202 : 202 + SIDE, 201 : 201 + SIDE]
    again = np.clip(place + 0.1 * random.standard_normal(place.shape), 0, 1)
    for name, values in (
        ("tsanet_real_660", large),
        ("tsanet_sim_256", again),
        ("smem_real_660", random.random((60, 60))),
    ):
        scipy.io.savemat(folder / "masks" / f"{name}.mat", {"mask": values})
    split = {
        "wavelengths_nm": GRID,
        "scenes": {"train": [], "validation": [], "test": list(SCENES)},
        "masks": MASKS,
    }
    (folder / "splits.json").write_text(json.dumps(split), encoding="utf-8")
    return folder


def make_weights(
    path: Path, data: Path, masks: str | None, bands: int = BANDS, **more: Any
) -> Path:
    """A small network whose record says that it was trained on a mask region of the split."""
    facts: dict[str, Any] = {"source": masks, "vary": False, "fabricated_share": 0.0}
    if masks is not None:
        place = read_split(data).masks[masks]
        source = load_mask_file(data, place.file)
        facts |= {
            "name": Path(place.file).stem,
            "source_hash": source.hash,
            "rows": list(place.rows or (0, source.size[0])),
            "columns": list(place.columns or (0, source.size[1])),
        }
    model = create_model("srn", bands=bands, width=8, blocks=1, seed=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    grid = np.linspace(GRID[0], GRID[-1], bands).tolist() if bands != BANDS else GRID
    record = {"name": path.stem, "masks": facts, "wavelengths_nm": grid, "data": {}, **more}
    save_weights(model, path, record)
    return path


class Slow:
    """Takes its time and leaves a line a call."""

    def __init__(self, calls: Path, seconds: float) -> None:
        self.calls, self.seconds = calls, seconds

    def __call__(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        time.sleep(self.seconds)
        with self.calls.open("a") as file:
            file.write(f"{float(mask.double().sum())!r}\n")
        return camera.spread(measurement, mask)


if __name__ == "__main__":
    from prismask.evaluation.run.runner import evaluate

    torch.set_num_threads(1)
    evaluate(
        {"slow": Slow(Path(sys.argv[3]), 0.1)},
        data=sys.argv[1],
        out=sys.argv[2],
        trials=8,
        timing=False,
        resume=True,
    )
