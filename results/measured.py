"""How exactly `prismask camera` finds a prism, against pictures that were made by counting.

    python results/measured.py [--json FILE]

Masks are drawn twenty times finer than the pixels, moved by whole fine columns and binned, so that
nothing of the package decides where they land. First the places of five pictures of 128×152 px,
for cells of several sizes, blur and noise: the worst of them, over two masks each. Then the bands
between the pictures: two kinds of glass that spread 450 to 650 nm over 54 px, equally spaced
pictures whose places are known to 0.02 px, the worst band (the middle of 25 draws).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from prismask.optics.measured import fit_curve, measure_camera

FINE = 20
SIZE, EXTENT = (128, 128), 24
PLACES = {450.0: 0.0, 490.0: 6.35, 540.0: 12.9, 590.0: 18.55, 650.0: 24.0}
CELLS, BLURS, NOISES = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0), (0.0, 1.0), (0.0, 0.1)
# Sellmeier's equation: three strengths, three resonances in µm².
GLASSES = {
    "BK7": ((1.03961212, 0.231792344, 1.01046945), (0.00600069867, 0.0200179144, 103.560653)),
    "SF11": ((1.73759695, 0.313747346, 1.89878101), (0.013188707, 0.0623068142, 155.23629)),
}
SPREAD, KNOWN = 54.0, 0.02
DRAWS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    places = [
        {"cells": cells, "blur": blur, "noise": noise, "worst_px": worst_place(cells, blur, noise)}
        for cells in CELLS
        for blur in BLURS
        for noise in NOISES
    ]
    print("| cells [px] | blur [px] | noise | worst place [px] |\n|---|---|---|---|")
    for row in places:
        print("| " + " | ".join(f"{value:.3g}" for value in row.values()) + " |")
    bands = {glass: {count: worst_band(glass, count) for count in range(2, 7)} for glass in GLASSES}
    print("\n| pictures | " + " | ".join(GLASSES) + " |\n|---|---|---|")
    for count in range(2, 7):
        print(f"| {count} | " + " | ".join(f"{bands[g][count]:.2g}" for g in GLASSES) + " |")
    if given.json:
        found = {"places": places, "bands": bands}
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def worst_place(cells: float, blur: float, noise: float) -> float:
    worst = 0.0
    for seed in (0, 1):
        random = np.random.default_rng(seed)
        fine = drawn(cells, random)
        pictures = {nm: seen(fine, at, blur, noise, random) for nm, at in PLACES.items()}
        found = measure_camera(pictures).places
        misses = [abs(place.along - PLACES[place.wavelength_nm]) for place in found]
        worst = max(worst, *misses)
    return worst


def drawn(cells: float, random: np.random.Generator) -> NDArray[np.float32]:
    side = round(cells * FINE)
    rows, columns = (length * FINE // side + 1 for length in SIZE)
    coarse = (random.random((rows, columns)) < 0.5).astype(np.float32)
    return coarse.repeat(side, 0).repeat(side, 1)[: SIZE[0] * FINE, : SIZE[1] * FINE]


def seen(
    fine: NDArray[np.float32], at: float, blur: float, noise: float, random: np.random.Generator
) -> NDArray[Any]:
    canvas = np.zeros((SIZE[0] * FINE, (SIZE[1] + EXTENT) * FINE), np.float32)
    left = round(at * FINE)
    canvas[:, left : left + fine.shape[1]] = fine
    binned = canvas.reshape(SIZE[0], FINE, SIZE[1] + EXTENT, FINE).mean((1, 3), dtype=np.float64)
    if blur:
        binned = ndimage.gaussian_filter(binned, blur)
    return np.clip(binned + noise * random.standard_normal(binned.shape), 0, 1)


def worst_band(glass: str, count: int) -> float:
    """Middle of the draws of the places' errors."""
    nm, every = np.linspace(450, 650, count), np.linspace(450, 650, 28)
    truth = place_of(glass, every)
    worst = []
    for seed in range(DRAWS):
        miss = KNOWN * np.random.default_rng(seed).uniform(-1, 1, count)
        curve, _ = fit_curve(nm, place_of(glass, nm) + miss, None)
        worst.append(float(np.abs(curve(every) - truth).max()))
    return float(np.median(worst))


def place_of(glass: str, nm: NDArray[np.float64]) -> NDArray[np.float64]:
    """A thin prism bends light by its index, which is scaled to the spread; blue lands at 0."""

    def index(at: NDArray[np.float64]) -> NDArray[np.float64]:
        square = (at / 1000) ** 2
        terms = (b * square / (square - c) for b, c in zip(*GLASSES[glass], strict=True))
        return np.sqrt(1 + sum(terms))

    first, last = index(np.array([450.0, 650.0]))
    return SPREAD * (first - index(nm)) / (first - last)


if __name__ == "__main__":
    main()
