"""The drawing of the camera: `python docs/camera_drawing.py` writes docs/images/camera.png."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from prismask import CASSI, demo_scene, simulate
from prismask.optics import fabricate_mask

OUT = Path(__file__).resolve().parent / "images" / "camera.png"
INK, FAINT = "#1f2430", "#8a90a0"
SIZE = 96
RAYS = ("#3b5bdb", "#2f9e44", "#e8590c")
"""Blue, green and red light, which the prism bends differently."""


def draw() -> Figure:
    """Scene, lens, mask, prism and sensor in a row, and below what the light looks like there."""
    scene = demo_scene(SIZE)
    mask = fabricate_mask((SIZE, SIZE), torch.Generator().manual_seed(3)).numpy()
    shot = np.asarray(simulate(scene, mask, CASSI.from_step(28)))
    figure = Figure(figsize=(10, 4.6))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 20), ylim=(0, 9.2))
    ax.axis("off")
    _bench(ax)
    coloured = scene.rgb()
    coded = (coloured * mask[..., None]).astype(np.uint8)
    for x, picture, width, title, note in (
        (1.0, coloured, 2.6, "scene", "28 bands in every pixel"),
        (6.1, coded, 2.6, "coded", "the mask lets through\nhalf of it, pixel by pixel"),
        (
            14.4,
            shot,
            4.05,
            "snapshot",
            "all bands at once, each moved\na little further: one grey picture",
        ),
    ):
        grey = {"cmap": "gray"} if picture.ndim == 2 else {}
        ax.imshow(picture, extent=(x, x + width, 1.15, 3.75), aspect="auto", zorder=3, **grey)
        ax.text(x + width / 2, 3.95, title, ha="center", fontsize=11, color=INK)
        ax.text(x + width / 2, 0.9, note, ha="center", va="top", fontsize=9, color=FAINT)
    for start, end in ((3.9, 5.8), (9.2, 14.0)):
        ax.add_patch(
            FancyArrowPatch(
                (start, 2.45), (end, 2.45), arrowstyle="->", color=FAINT, mutation_scale=14
            )
        )
    ax.text(4.85, 2.65, "× mask", ha="center", fontsize=10, color=INK)
    ax.text(11.6, 2.65, "shear and add", ha="center", fontsize=10, color=INK)
    ax.set_aspect("auto")
    return figure


def _bench(ax) -> None:  # matplotlib's axes
    """The parts on the optical axis, with three rays."""
    middle = 6.6
    ax.plot((0.8, 18.6), (middle, middle), color="#e4e7ee", lw=1, zorder=0)
    # scene
    ax.add_patch(Polygon([(1.9, 5.5), (2.5, 5.5), (2.2, 7.7)], color="#69b36a"))
    ax.text(2.2, 8.25, "scene", ha="center", fontsize=11, color=INK)
    # two lenses
    for x, name in ((4.6, "lens"), (9.4, "lens")):
        angle = np.linspace(-1, 1, 50)
        left, right = x - 0.22 * (1 - angle**2), x + 0.22 * (1 - angle**2)
        outline = np.concatenate(
            [np.c_[left, middle + 1.15 * angle], np.c_[right, middle + 1.15 * angle][::-1]]
        )
        ax.add_patch(Polygon(outline, facecolor="#d9ecff", edgecolor=FAINT, zorder=2))
        ax.text(x, 8.25, name, ha="center", fontsize=11, color=INK)
    # mask: a column of cells
    cells = np.random.default_rng(1).random(16) < 0.5
    for row, is_open in enumerate(cells):
        ax.add_patch(
            Rectangle(
                (7.1, middle - 1.12 + 0.14 * row),
                0.13,
                0.14,
                facecolor="white" if is_open else INK,
                edgecolor=INK,
                lw=0.4,
                zorder=4,
            )
        )
    ax.text(7.16, 8.25, "mask", ha="center", fontsize=11, color=INK, weight="bold")
    # prism
    ax.add_patch(
        Polygon(
            [(11.3, 5.5), (12.9, 5.5), (12.1, 7.75)], facecolor="#eef3f8", edgecolor=FAINT, zorder=2
        )
    )
    ax.text(12.1, 8.25, "prism", ha="center", fontsize=11, color=INK, weight="bold")
    # sensor
    ax.add_patch(Rectangle((17.2, middle - 1.5), 0.22, 2.7, facecolor="#495057", zorder=4))
    ax.text(17.3, 8.25, "sensor", ha="center", fontsize=11, color=INK)
    for colour, end in zip(RAYS, (5.75, 6.25, 6.75), strict=True):
        white = {"color": FAINT, "lw": 1.0, "zorder": 1}
        ax.plot((2.25, 4.6, 7.16, 9.4, 11.75), (7.1, 7.35, middle, 6.0, 6.45), **white)
        ax.plot((11.75, 12.45, 17.2), (6.45, 6.42, end), color=colour, lw=1.6, zorder=3)


def main() -> None:
    """Write the picture."""
    with matplotlib.rc_context({"font.family": "DejaVu Sans"}):
        draw().savefig(OUT, dpi=120, facecolor="white", metadata={"Software": None})


if __name__ == "__main__":
    main()
