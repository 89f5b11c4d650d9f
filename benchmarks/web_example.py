"""Draws the example on the front page of `prismask serve`: snapshot, scene, spectrum.

    python benchmarks/web_example.py src/prismask/apps/web/static/example.png

The scene is the one that "Try it with a drawn scene" photographs, reconstructed with the defaults.
The spectrum is that of the pixel with the median error.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import prismask
from prismask.apps.web.api_jobs import SAMPLE_SIZE
from prismask.apps.web.work import MASK, SNAPSHOT, TRUTH, draw_sample
from prismask.scenes.colour import grey_picture, to_srgb
from prismask.scenes.formats.files import load_cube, load_mask, load_measurement

GREY = "#868c97"
"""Reads on light and on dark."""
ACCENT = "#3f83e0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        draw_sample(here, SAMPLE_SIZE)
        snapshot, truth = load_measurement(here / SNAPSHOT), load_cube(here / TRUTH)
        cube = prismask.reconstruct(snapshot, load_mask(here / MASK))
    error = ((cube.values - truth.values) ** 2).mean(axis=0)
    y, x = np.argwhere(error == np.sort(error.ravel())[error.size // 2])[0]
    coloured = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    plt.rcParams.update({"font.size": 9, **dict.fromkeys(coloured, GREY)})
    figure, axes = plt.subplots(
        1, 3, figsize=(7.6, 2.6), width_ratios=(1.2, 1, 1.25), layout="constrained"
    )
    axes[0].imshow(grey_picture(snapshot.values), cmap="gray")
    axes[0].set_title("coded snapshot")
    axes[1].imshow(to_srgb(cube))
    axes[1].plot(x, y, "s", mfc="none", mec=ACCENT, ms=7, mew=2)
    axes[1].set_title("reconstructed scene")
    for axis in axes[:2]:
        axis.set_axis_off()
    assert cube.lower is not None
    assert cube.upper is not None
    at = cube.wavelengths
    axes[2].fill_between(
        at, cube.lower[:, y, x], cube.upper[:, y, x], color=ACCENT, alpha=0.3, lw=0
    )
    axes[2].plot(at, cube.values[:, y, x], color=ACCENT, label="estimate")
    axes[2].plot(at, truth.values[:, y, x], "--", color=GREY, label="truth")
    axes[2].set_title("one pixel's spectrum")
    axes[2].set_xlabel("wavelength in nm")
    axes[2].set_ylim(bottom=0)
    axes[2].patch.set_alpha(0)
    axes[2].spines[["top", "right"]].set_visible(False)
    axes[2].legend(frameon=False, labelcolor=GREY)
    held = io.BytesIO()
    figure.savefig(held, dpi=160, transparent=True)
    # 256 colours are enough for a small picture, and a third of the bytes.
    Image.open(held).quantize(256, Image.Quantize.FASTOCTREE).save(given.out, optimize=True)


if __name__ == "__main__":
    main()
