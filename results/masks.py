"""What the masks of the three groups have in common, in numbers a network can feel.

    python results/masks.py [--data DIR]

Mean and spread of the transmission, how much of it is nearly closed or open, how alike neighbours
are, and how evenly light falls through (the spread of Σ_λ m² over the snapshot, on which the
brightness of a back-projection depends).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from prismask.optics.camera import CASSI
from prismask.scenes.datasets import data_folder, load_mask_file, read_split

GROUPS = {
    "train": "training region",
    "test_same_hardware": "same hardware, unseen region",
    "test_other_hardware": "other hardware",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    folder = data_folder(parser.parse_args().data)
    places = read_split(folder).masks
    head = ("mean", "spread", "below 0.1", "above 0.9", "neighbours alike", "light, spread / mean")
    print("| masks | " + " | ".join(head) + " |")
    print("|---" * (len(head) + 1) + "|")
    for name, text in GROUPS.items():
        place = places[name]
        (top, bottom), (left, right) = place.rows, place.columns
        mask = load_mask_file(folder, place.file).values[top:bottom, left:right]
        print(f"| {text} | " + " | ".join(f"{value:.3f}" for value in numbers(mask)) + " |")


def numbers(mask: np.ndarray) -> list[float]:
    camera = CASSI.from_step()
    light = camera.gram_diagonal(torch.tensor(mask)[None, None])[0].numpy()
    lit = light[:, camera.extent : -camera.extent]  # where all bands meet
    alike = [
        float(np.corrcoef(mask[:-1].ravel(), mask[1:].ravel())[0, 1]),
        float(np.corrcoef(mask[:, :-1].ravel(), mask[:, 1:].ravel())[0, 1]),
    ]
    return [
        float(mask.mean()),
        float(mask.std()),
        float((mask < 0.1).mean()),
        float((mask > 0.9).mean()),
        sum(alike) / 2,
        float(lit.std() / lit.mean()),
    ]


if __name__ == "__main__":
    main()
