"""How a mask has moved since it was calibrated, by the dates of snapshots."""

from __future__ import annotations

import numpy as np

from prismask.evaluation.figures.style import FAINT, INK, figure_png, styled
from prismask.inference.refinement.check import MaskCheck


def drift_figure(found: MaskCheck) -> bytes:
    """PNG: shifts, and what snapshots leave unexplained, over their dates."""
    shots = found.dated
    dates = np.array([shot.date for shot in shots], dtype="datetime64[s]")
    with styled() as figure_class:
        figure = figure_class(figsize=(8.0, 4.4), layout="constrained")
        moved, left = figure.subplots(2, 1, sharex=True)
        moved.axhline(0, color=FAINT, linewidth=0.8)
        moved.plot(dates, [shot.pose.right for shot in shots], "o-", color="#c0392b", label="right")
        moved.plot(dates, [shot.pose.down for shot in shots], "s-", color=INK, label="down")
        moved.set(ylabel="mask is read [px]", title="Drift of the mask")
        moved.legend()
        left.plot(dates, [100 * shot.unexplained for shot in shots], "o-", color=INK)
        against = [not shot.fits for shot in shots]
        if any(against):
            shares = np.array([100 * shot.unexplained for shot in shots])
            left.plot(
                dates[against], shares[against], "o", color="#c0392b", label="contradicts the mask"
            )
            left.legend()
        left.set(ylabel="unexplained [%]")
        left.set_ylim(bottom=0)
        left.tick_params(axis="x", rotation=30)
        return figure_png(figure)
