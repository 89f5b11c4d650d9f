"""Draw the picture of a real snapshot's cube that the README shows.

    prismask reconstruct measurements/tsanet_scene1.mat --mask masks/tsanet_real_660.mat \\
        --align -o real.nc
    python docs/real_example.py real.nc

In colour, and the spectra of three charms with their error bars; nobody knows the truth.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import prismask

OUT = Path(__file__).resolve().parent / "images" / "real.png"
SEEN = (slice(40, 520), slice(120, 600))
"""Rows and columns of the picture; the rest is dark cloth."""
PLACES = {"#1b9e5a": (318, 190), "#f08c00": (328, 394), "#c2185b": (430, 296)}
"""Colour of a curve and its place, x and y."""
HALF = 3


def draw(cube: prismask.Cube) -> None:
    """Write the picture of this cube."""
    figure, (picture, plot) = plt.subplots(
        1, 2, figsize=(9.5, 3.6), width_ratios=(1, 1.6), layout="constrained"
    )
    rows, columns = SEEN
    extent = (columns.start, columns.stop, rows.stop, rows.start)
    picture.imshow(cube.rgb()[SEEN], extent=extent)
    for colour, (x, y) in PLACES.items():
        spectrum = cube.spectrum((x - HALF, y - HALF, x + HALF, y + HALF))
        picture.plot(x, y, "s", mec="white", mfc=colour, ms=7)
        plot.plot(spectrum.wavelengths, spectrum.values, color=colour)
        plot.fill_between(
            spectrum.wavelengths, spectrum.lower, spectrum.upper, color=colour, alpha=0.25, lw=0
        )
    picture.set(xlabel="x in pixels", ylabel="y in pixels")
    plot.set(xlabel="wavelength in nm", ylabel="fraction of full scale", ylim=(0, None))
    plot.set_title(f"{cube.attrs['interval'].split(',')[0]} intervals", fontsize=10)
    figure.savefig(OUT, dpi=100)


if __name__ == "__main__":
    draw(prismask.load_cube(sys.argv[1]))
