"""Fitting a learned interval to rows of snapshots, and how it does on scenes that were left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.probe import INCONSISTENT_FROM
from prismask.inference.intervals.head import STEPS, WidthHead, fit_head
from prismask.inference.intervals.learned import LEVELS, Factors, LearnedInterval, slack_of
from prismask.inference.intervals.model import INCONSISTENT_MASKS, OTHER_CAMERAS
from prismask.inference.intervals.rows import Rows
from prismask.progress import Progress

MOST_FOLDS = 6
"""Parts that the scenes are left out in."""
FEWEST = 8
"""Snapshots that a class needs for factors of its own."""
WORST = 0.1
"""Share of the snapshots whose coverage is looked at."""
QUARTERS, BANDS = 4, 14
"""Parts of the intensities and of the spectrum by which a scene is scored."""

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Fitted:
    """An interval and how it did."""

    interval: LearnedInterval
    scores: dict[str, Any]
    """`scores_of` at every level."""
    widths: Values
    """Mean width of each snapshot's interval by level, `(snapshots, levels)`, over its brightness,
    predicted by a regressor that had not seen its scene."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictions for values whose scene was left out."""

    ratio: Tensor
    """How many times its reach the error goes, by level, `(N, levels)`."""
    width: Tensor
    """Reach above and below together, by level, `(N, levels)`; below no further than to 0."""
    snapshot: NDArray[np.intp]
    """Number of the snapshot that each value belongs to, `(N,)`."""


def fit_learned(
    rows: Sequence[Rows],
    *,
    steps: int = STEPS,
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """The interval of all snapshots, with the scores of those that were left out."""
    scenes = sorted({one.scene for one in rows})
    if len(scenes) < 2:
        raise ConfigError(
            f"{len(scenes)} scene: an interval needs two or more, each to be judged by the others."
        )
    if len({one.names for one in rows}) != 1:
        raise ConfigError("the snapshots have different features: they are of several networks.")
    features = torch.from_numpy(np.concatenate([one.features for one in rows]))
    error = torch.from_numpy(np.concatenate([one.error for one in rows]))
    snapshot = np.repeat(np.arange(len(rows)), [len(one.error) for one in rows])
    folds = min(MOST_FOLDS, len(scenes))
    fold_of = np.array([scenes.index(one.scene) % folds for one in rows])[snapshot]
    value = torch.from_numpy(np.concatenate([one.value for one in rows]))
    ratio, width = torch.empty(len(error), len(LEVELS)), torch.empty(len(error), len(LEVELS))
    done = _counter(progress, (folds + 1) * steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its layers are so small that several get in each other's way
    for fold in range(folds):
        is_here = torch.from_numpy(fold_of == fold)
        head = fit_head(
            features[~is_here], error[~is_here], rows[0].names, LEVELS,
            steps=steps, seed=seed, progress=done(fold * steps),
        )  # fmt: skip
        ratio[is_here], width[is_here] = _judged(
            head, features[is_here], error[is_here], value[is_here]
        )
    head = fit_head(
        features, error, rows[0].names, LEVELS, steps=steps, seed=seed, progress=done(folds * steps)
    )
    torch.set_num_threads(threads)
    left_out = LeftOut(ratio, width, snapshot)
    factors = {name: _factors(rows, left_out, members) for name, members in _classes(rows).items()}
    own = factors.pop("")
    facts = {"snapshots": len(rows), "scenes": len(scenes), "folds": folds, **(about or {})}
    interval = LearnedInterval(head, own.quantiles, factors, facts)
    scores = scores_of(rows, left_out, interval)
    widths = mean_widths(rows, left_out, interval)
    facts |= {
        "left_out": scores,
        "mean_widths": {
            f"{level:g}": _rounded(widths[:, place].mean()) for place, level in enumerate(LEVELS)
        },
    }
    return Fitted(replace(interval, about=facts), scores, widths)


def class_of(one: Rows) -> str:
    """The class of snapshots that decides its factors; empty: the training's camera, no doubt."""
    if one.other_camera:
        return OTHER_CAMERAS
    return INCONSISTENT_MASKS if one.probe_gain > INCONSISTENT_FROM else ""


def _classes(rows: Sequence[Rows]) -> dict[str, Flags]:
    """Which snapshots belong to each class that has enough of them."""
    names = np.array([class_of(one) for one in rows])
    found = {str(name): names == name for name in sorted({"", *names.tolist()})}
    kept = {name: is_in for name, is_in in found.items() if name and is_in.sum() >= FEWEST}
    rest = np.ones(len(rows), dtype=bool)
    for is_in in kept.values():
        rest &= ~is_in
    return {"": rest if rest.any() else np.ones(len(rows), dtype=bool), **kept}


def _judged(
    head: WidthHead, features: Tensor, error: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """Errors over their reach, and widths, by level."""
    with torch.no_grad():
        above, below = head.reach(features)
    ratio = torch.where(error[:, None] >= 0, error[:, None] / above, -error[:, None] / below)
    return ratio, above + torch.minimum(below, value.clamp_min(0)[:, None])


def _counter(progress: Progress | None, total: int) -> Callable[[int], Progress | None]:
    def start(before: int) -> Progress | None:
        if progress is None:
            return None
        return lambda done, _, info: progress(before + done, total, info)

    return start


def _factors(rows: Sequence[Rows], left_out: LeftOut, members: Flags) -> Factors:
    """Factors by level for the snapshots of one class."""
    numbers = [int(number) for number in np.flatnonzero(members)]
    plain = [~rows[number].extra for number in numbers]
    scenes = sorted({rows[number].scene for number in numbers})
    # Parts of each scene in which a level is to hold nearly: quarters of intensities, and bands.
    parts = np.concatenate([
        scenes.index(rows[number].scene) * (QUARTERS + BANDS) + part[:, use]
        for number, use in zip(numbers, plain, strict=True)
        for part in [np.stack([_quarter(rows[number]), QUARTERS + _band(rows[number])])]
    ], 1)  # fmt: skip
    here = [left_out.snapshot == number for number in numbers]
    snapshot = np.repeat(numbers, [int(use.sum()) for use in plain])
    quantiles = {}
    for place, level in enumerate(LEVELS):
        of_level = left_out.ratio[:, place].numpy()
        ratio = np.concatenate([of_level[at][use] for at, use in zip(here, plain, strict=True)])
        quantiles[level] = round(scene_factor(ratio, snapshot, level, parts), 5)
    return Factors(quantiles, {"snapshots": len(numbers), "scenes": len(scenes)})


def _quarter(one: Rows) -> NDArray[np.int64]:
    """Which quarter of the true intensities each value belongs to.

    By rank, for much of a scene may be equally dark; values at a structure are in none.
    """
    plain = ~one.extra
    quarter = np.full(len(plain), QUARTERS)
    quarter[plain] = np.argsort(np.argsort(one.truth[plain])) * QUARTERS // int(plain.sum())
    return quarter


def _band(one: Rows) -> NDArray[np.int64]:
    """Which part of the spectrum each value belongs to."""
    return np.minimum((one.place * BANDS).astype(np.int64), BANDS - 1)


def scene_factor(
    ratio: NDArray[np.floating],
    snapshot: NDArray[Any],
    level: float,
    parts: NDArray[Any] | None = None,
) -> float:
    """The factor at which `level` holds on average, and nearly so in what is worst.

    ratio: errors over their reach, `(N,)`; snapshot: which one each belongs to, equally many.
    parts: groupings of the values, each `(N,)`: of these all are to hold nearly `level`, of the
    snapshots all but the worst tenth, as far as the mean stays near `level` (`slack_of`).
    """
    least, most = slack_of(level)
    needed = sorted(_needed(ratio, snapshot, least), reverse=True)
    worst = needed[min(len(needed) - 1, int(WORST * len(needed)))]
    for grouping in () if parts is None else parts:
        worst = max(worst, *_needed(ratio, grouping, least))
    return float(max(_quantile(ratio, level), min(worst, _quantile(ratio, most))))


def _needed(ratio: NDArray[np.floating], member: NDArray[Any], level: float) -> list[float]:
    """The factor that each member would need to hold `level`."""
    order = np.argsort(member, kind="stable")
    starts = np.flatnonzero(np.diff(member[order])) + 1
    return [_quantile(values, level) for values in np.split(ratio[order], starts)]


def _quantile(values: NDArray[np.floating], level: float) -> float:
    """The conformal quantile: the ⌈(n + 1)·level⌉-th smallest value."""
    count = len(values)
    rank = min(count, int(np.ceil((count + 1) * level)))
    return float(np.partition(values, rank - 1)[rank - 1])


# --- scores --------------------------------------------------------------------------------------


def scores_of(rows: Sequence[Rows], left_out: LeftOut, interval: LearnedInterval) -> dict[str, Any]:
    """Coverage of what was left out by scene, quarter, band, condition and light, at every level.

    Every snapshot counts alike.
    """
    return {
        f"{level:g}": _scores_at(rows, left_out, interval, place)
        for place, level in enumerate(LEVELS)
    }


def mean_widths(rows: Sequence[Rows], left_out: LeftOut, interval: LearnedInterval) -> Values:
    """Mean width of each snapshot's interval by level, `(snapshots, levels)`."""
    found = []
    for number, one in enumerate(rows):
        known = interval.for_classes([class_of(one)])
        factors = np.array([known.quantiles[level] for level in LEVELS])
        here = left_out.width[torch.from_numpy(left_out.snapshot == number)]
        found.append(factors * here.numpy()[~one.extra].mean(0))
    return np.array(found)


def _scores_at(
    rows: Sequence[Rows], left_out: LeftOut, interval: LearnedInterval, place: int
) -> dict[str, Any]:
    level = LEVELS[place]
    inside_of, quarters_of, bands_of, structure = [], [], [], []
    for number, one in enumerate(rows):
        here = left_out.snapshot == number
        known = interval.for_classes([class_of(one)])
        factor = known.quantiles[level]
        inside = left_out.ratio[:, place].numpy()[here] <= factor
        plain = ~one.extra
        inside_of.append(float(inside[plain].mean()))
        structure.append(float(inside[one.extra].mean()) if one.extra.any() else np.nan)
        quarter, band = _quarter(one), _band(one)
        quarters_of.append([_mean(inside[plain & (quarter == q)]) for q in range(QUARTERS)])
        bands_of.append([_mean(inside[plain & (band == b)]) for b in range(BANDS)])
    names = np.array([one.scene for one in rows])
    grouped = {
        "scenes": names,
        "conditions": np.array([one.condition for one in rows]),
        "lights": np.array([one.light for one in rows]),
        "noise": np.array([_noise_heading(one.noise_std) for one in rows]),
    }
    found: dict[str, Any] = {
        heading: {
            str(name): _rounded(_mean(np.array(inside_of)[of == name])) for name in np.unique(of)
        }
        for heading, of in grouped.items()
    }
    by_scene = {str(name): names == name for name in np.unique(names)}
    found["quarters"] = {name: _columns(np.array(quarters_of)[of]) for name, of in by_scene.items()}
    found["worst_bands"] = {
        name: min(_columns(np.array(bands_of)[of])) for name, of in by_scene.items()
    }
    lights = grouped["lights"]
    found["structures"] = {
        str(light): _rounded(_mean(np.array(structure)[lights == light]))
        for light in np.unique(lights)
        if light != "smooth"
    }
    widths = mean_widths(rows, left_out, interval)[:, place]
    found["widths"] = {
        str(name): _rounded(_mean(widths[grouped["conditions"] == name]))
        for name in np.unique(grouped["conditions"])
    }
    found["summary"] = {
        "mean": _rounded(_mean(np.array(list(found["scenes"].values())))),
        "worst_scene": min(found["scenes"].values()),
        "worst_quarter": min(min(four) for four in found["quarters"].values()),
        "worst_band": min(found["worst_bands"].values()),
        "structures": min(found["structures"].values(), default=None),
        "worst_tenth": _rounded(float(np.quantile(inside_of, WORST))),
        "worst_snapshot": _rounded(min(inside_of)),
    }
    return found


def _noise_heading(noise_std: float) -> str:
    if noise_std == 0:
        return "none"
    return "below 0.5 %" if noise_std < 0.005 else "to 2 %" if noise_std < 0.02 else "above 2 %"


def _mean(values: NDArray[Any]) -> float:
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    return float(known.mean()) if len(known) else float("nan")


def _columns(shares: Values) -> list[float]:
    """Mean of each column that has anything: a camera may have fewer bands than parts."""
    means = [_mean(column) for column in shares.T]
    return [_rounded(mean) for mean in means if not np.isnan(mean)]


def _rounded(value: float) -> float:
    return round(float(value), 4)
