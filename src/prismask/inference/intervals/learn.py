"""Fitting a learned interval to rows of snapshots, and how it does on scenes that were left out.

Its regressor is fitted with the pinball loss of quantile regression (Koenker and Bassett, 1978) to
one-sided errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.inference.alignment.search import INCONSISTENT_FROM
from prismask.inference.intervals.evidence import VALUES, TrustRule, fit_trust
from prismask.inference.intervals.learned import (
    BEYOND,
    INCONSISTENT_MASKS,
    LEVELS,
    OTHER_CAMERAS,
    Factors,
    LearnedInterval,
    WidthHead,
    aim_of,
    ascending,
    plain,
)
from prismask.inference.intervals.snapshots import Rows, Studio
from prismask.inference.methods.network import LEARNED
from prismask.progress import Progress

HIDDEN = 24
BATCH, STEPS, RATE = 4096, 1200, 8e-3
"""Values a step, steps and largest rate of the fit."""
LEAST = 1e-4
"""Errors below this, relative to the snapshot's brightness, count as this."""
MOST_FOLDS = 6
"""Parts that the scenes are left out in."""
FEWEST = 8
"""Snapshots that a class needs for factors of its own."""
WORST = 0.1
"""The share of the snapshots with the least coverage that is scored by itself."""
QUARTERS, BANDS = 4, 14
"""Parts of the intensities and of the spectrum by which a scene is scored."""
BRIGHT = 2.0
"""How often a value of the brightest quarter is learned from, relative to others: networks are too
dark there, by the most in scenes that are unlike the others."""
CONTRAST = 1.1
"""Exponent on the predicted reach: on scenes that a regressor has not seen its predictions are too
even, too wide for easy scenes and too narrow for hard ones."""

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Fitted:
    """An interval and how it did."""

    interval: LearnedInterval
    scores: dict[str, Any]
    """`scores_of` at every level."""
    widths: Values
    """Mean width of each snapshot's interval by level, `(snapshots, levels)`, over its brightness,
    predicted by a regressor and with factors that had not seen its scene."""


def fit_learned(
    rows: Sequence[Rows],
    *,
    seen: Sequence[Rows] = (),
    steps: int = STEPS,
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """The interval of all snapshots, with the scores of those that were left out.

    seen: snapshots of scenes that the network learned from. Its errors are smaller there, so they
    count in no factor; but how errors go with features is much the same, and they are many scenes.
    All of them together weigh as much as `rows` do. They are left out in turn as well, and scored
    apart: by factors of scenes that the network has not seen, and so too well.
    """
    scenes = sorted({one.scene for one in rows})
    if len(scenes) < 2:
        raise ConfigError(
            f"{len(scenes)} scene: an interval needs two or more, each to be judged by the others."
        )
    both = [group for group in (rows, seen) if group]
    examples = [_examples(group) for group in both]
    if seen:
        examples[1][2].mul_(examples[0][2].sum() / examples[1][2].sum())
    folds = min(MOST_FOLDS, len(scenes))
    fold_of = [_folds(group, folds) for group in both]
    tables = [Table.of(group) for group in both]
    done = _counter(progress, (folds + 1) * steps)

    def fitted(left_out: int) -> WidthHead:
        uses = [
            torch.from_numpy((fold != left_out)[table.snapshot])
            for fold, table in zip(fold_of, tables, strict=True)
        ]
        chosen = [[part[use] for part in group] for group, use in zip(examples, uses, strict=True)]
        inputs, errors, weight = (torch.cat(parts) for parts in zip(*chosen, strict=True))
        return fit_head(
            inputs, errors, weight, VALUES, LEVELS,
            steps=steps, seed=seed, progress=done(left_out * steps),
        )  # fmt: skip

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its layers are so small that several get in each other's way
    reaches = [np.empty((2, len(LEVELS), len(group[1])), dtype=np.float32) for group in examples]
    for fold in range(folds):
        head = fitted(fold)
        for of, table, group, reach in zip(fold_of, tables, examples, reaches, strict=True):
            is_here = (of == fold)[table.snapshot]
            if is_here.any():
                found = head.reach(group[0][torch.from_numpy(is_here)].T)
                reach[:, :, is_here] = torch.stack(found).numpy()
    head = fitted(folds)
    torch.set_num_threads(threads)
    left_out = LeftOut.of(tables[0], reaches[0], fold_of[0])
    factors = left_out.factors(np.ones(len(rows), dtype=bool))
    scores, widths = scores_of(rows, left_out), left_out.widths
    facts = {
        "snapshots": len(rows), "scenes": len(scenes), "folds": folds,
        "learned_from": len({one.scene for one in seen}), **(about or {}), "left_out": scores,
        "mean_widths": {
            f"{level:g}": _rounded(mean) for level, mean in zip(LEVELS, widths.mean(0), strict=True)
        },
    }  # fmt: skip
    if seen:
        too_well = scores_of(seen, LeftOut.of(tables[1], reaches[1], fold_of[1], left_out))
        facts["left_out_of_fit_alone"] = {
            level: found["summary"] for level, found in too_well.items()
        }
    own = factors.pop("")
    interval = LearnedInterval(replace(head, contrast=CONTRAST), own.quantiles, factors, facts)
    return Fitted(interval, scores, widths)


def _folds(rows: Sequence[Rows], count: int) -> Numbers:
    """In which of `count` parts each snapshot is left out, with all of its scene."""
    scenes = sorted({one.scene for one in rows})
    return np.array([scenes.index(one.scene) % count for one in rows])


def class_of(one: Rows) -> str:
    """The class whose factors apply; empty: the training's camera, and a consistent mask."""
    if one.other_camera:
        return OTHER_CAMERAS
    return INCONSISTENT_MASKS if one.probe_gain > INCONSISTENT_FROM else ""


def _examples(rows: Sequence[Rows]) -> tuple[Tensor, ...]:
    """Features `(N, K)`, errors and weights `(N,)` to learn from."""
    quarter = np.concatenate([_quarter(one) for one in rows])
    return (
        torch.from_numpy(np.concatenate([one.features for one in rows])),
        torch.from_numpy(np.concatenate([one.error for one in rows])),
        torch.from_numpy(np.where(quarter == QUARTERS - 1, BRIGHT, 1.0)),
    )


def _counter(progress: Progress | None, total: int) -> Callable[[int], Progress | None]:
    def start(before: int) -> Progress | None:
        if progress is None:
            return None
        return lambda done, _, info: progress(before + done, total, info)

    return start


# --- the conformal step ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Table:
    """The values of all snapshots one after the other, and what each belongs to."""

    error: NDArray[np.float32]
    value: NDArray[np.float32]
    snapshot: Numbers
    quarter: Numbers
    """Quarter of the true intensities; `QUARTERS` for values that are there for a structure."""
    band: Numbers
    """Part of the spectrum."""
    plain: Flags
    """Whether a value counts in all scores, not at a structure alone."""
    scene: Numbers
    """Number of each snapshot's scene, `(snapshots,)`."""
    kind: NDArray[np.str_]
    """Class of each snapshot, empty where the class has too few for factors of its own."""

    @classmethod
    def of(cls, rows: Sequence[Rows]) -> Table:
        """Put together the values of `rows`."""
        kind = np.array([class_of(one) for one in rows])
        for name in np.unique(kind):
            if (kind == name).sum() < FEWEST:
                kind[kind == name] = ""
        return cls(
            np.concatenate([one.error for one in rows]),
            np.concatenate([one.value for one in rows]),
            np.repeat(np.arange(len(rows)), [len(one.error) for one in rows]),
            np.concatenate([_quarter(one) for one in rows]),
            np.concatenate([(one.place * BANDS).astype(int) for one in rows]).clip(0, BANDS - 1),
            ~np.concatenate([one.extra for one in rows]),
            np.unique([one.scene for one in rows], return_inverse=True)[1],
            kind,
        )

    def shares(self, inside: Flags, of: NDArray[Any] | None = None, parts: int = 1) -> Values:
        """Mean of `inside` by snapshot and part `of` it, `(snapshots, parts)`; NaN: no such."""
        return self.means(inside, self.plain, of, parts)

    def means(
        self, values: NDArray[Any], use: Flags, of: NDArray[Any] | None = None, parts: int = 1
    ) -> Values:
        """Mean of the `values` in `use` by snapshot and part `of` it, `(snapshots, parts)`."""
        place = (self.snapshot * parts + (0 if of is None else of))[use]
        count = len(self.scene) * parts
        with np.errstate(invalid="ignore"):
            mean = np.bincount(place, values[use], count) / np.bincount(place, minlength=count)
        return np.asarray(mean).reshape(-1, parts)

    def by_scene(self, shares: Values) -> Values:
        """Mean over the snapshots of every scene, `(scenes, parts)`; NaN where there is none."""
        found = [shares[self.scene == one] for one in np.unique(self.scene)]
        return np.array([[_mean(column) for column in of.T] for of in found])


def _quarter(one: Rows) -> Numbers:
    """Which quarter of the true intensities each value belongs to.

    By rank, for much of a scene may be equally dark; values at a structure are in none.
    """
    plain = ~one.extra
    quarter = np.full(len(plain), QUARTERS)
    quarter[plain] = np.argsort(np.argsort(one.truth[plain])) * QUARTERS // int(plain.sum())
    return quarter


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What was predicted for scenes that were left out."""

    table: Table
    fold: Numbers
    """In which part each snapshot was left out, `(snapshots,)`."""
    ratio: NDArray[np.float32]
    """How many times its reach each error goes, by level, `(levels, N)`."""
    inside: Flags
    """Whether each value lies inside, by level, `(levels, N)`."""
    widths: Values
    """Mean width by snapshot and level, `(snapshots, levels)`."""

    @classmethod
    def of(
        cls,
        table: Table,
        reach: NDArray[np.float32],
        fold: Numbers,
        judges: LeftOut | None = None,
    ) -> LeftOut:
        """With the factors that the other folds of scenes ask for.

        reach: above and below as predicted, `(2, levels, N)`; fold: of each snapshot; judges: whose
        factors count, those of these very snapshots if left out.
        """
        above, below = reach**CONTRAST
        ratio = np.where(table.error >= 0, table.error / above, -table.error / below)
        made = cls(table, fold, ratio, np.zeros(ratio.shape, dtype=bool), np.zeros((0, 0)))
        judges = judges or made
        of_snapshot = np.empty((len(LEVELS), len(fold)), dtype=np.float32)
        for one in np.unique(fold):
            known = judges.factors(judges.fold != one)
            for number in np.flatnonzero(fold == one):
                quantiles = known.get(str(table.kind[number]), known[""]).quantiles
                of_snapshot[:, number] = [quantiles[level] for level in LEVELS]
        factor = of_snapshot[:, table.snapshot]
        low = np.minimum(factor * below, table.value.clip(0))
        widths = [table.means(wide, table.plain)[:, 0] for wide in factor * above + low]
        return replace(made, inside=ratio <= factor, widths=np.stack(widths, 1))

    def factors(self, use: Flags) -> dict[str, Factors]:
        """Factors of each class that the snapshots in `use` ask for; that of no class is ""."""
        table, found = self.table, {}
        kinds = {"", *np.unique(table.kind[use]).tolist()}
        for kind in sorted(kinds):
            members = use & (table.kind == kind)
            members = members if members.any() else use
            here = members[table.snapshot] & table.plain
            quantiles = {
                level: round(_quantile(ratio[here], aim_of(level)), 5)
                for level, ratio in zip(LEVELS, self.ratio, strict=True)
            }
            scenes = len(np.unique(table.scene[members]))
            found[kind] = Factors(quantiles, {"snapshots": int(members.sum()), "scenes": scenes})
        return found


def _quantile(values: NDArray[np.floating], level: float) -> float:
    """The conformal quantile: the ⌈(n + 1)·level⌉-th smallest value."""
    count = len(values)
    rank = min(count, int(np.ceil((count + 1) * level)))
    return float(np.partition(values, rank - 1)[rank - 1])


# --- scores ---------------------------------------------------------------------------------------


def scores_of(rows: Sequence[Rows], left_out: LeftOut) -> dict[str, Any]:
    """Coverage of what was left out by scene, quarter, band, condition and light, at every level.

    Every snapshot counts alike.
    """
    return {f"{level:g}": _scores_at(rows, left_out, place) for place, level in enumerate(LEVELS)}


def _scores_at(rows: Sequence[Rows], left_out: LeftOut, place: int) -> dict[str, Any]:
    table, inside = left_out.table, left_out.inside[place]
    shares = table.shares(inside)[:, 0]
    names = {
        "scenes": [one.scene for one in rows],
        "conditions": [one.condition for one in rows],
        "lights": [one.light for one in rows],
        "noise": [_noise_heading(one.noise_std) for one in rows],
    }
    found: dict[str, Any] = {heading: _by_name(shares, of) for heading, of in names.items()}
    quarters = table.by_scene(table.shares(inside, table.quarter, QUARTERS))
    bands = table.by_scene(table.shares(inside, table.band, BANDS))
    found["quarters"] = {
        name: [_rounded(share) for share in four if not np.isnan(share)]
        for name, four in zip(found["scenes"], quarters, strict=True)
    }
    found["worst_bands"] = {
        name: _rounded(np.nanmin(of)) for name, of in zip(found["scenes"], bands, strict=True)
    }
    structure = _by_name(table.means(inside, ~table.plain)[:, 0], names["lights"])
    found["structures"] = {name: share for name, share in structure.items() if share == share}
    found["widths"] = _by_name(left_out.widths[:, place], names["conditions"])
    found["summary"] = {
        "mean": _rounded(_mean(np.array(list(found["scenes"].values())))),
        "worst_scene": min(found["scenes"].values()),
        "worst_quarter": min(min(four) for four in found["quarters"].values()),
        "worst_band": min(found["worst_bands"].values()),
        "structures": min(found["structures"].values(), default=None),
        "worst_tenth": _rounded(float(np.quantile(shares, WORST))),
        "worst_snapshot": _rounded(shares.min()),
        "width": _rounded(left_out.widths[:, place].mean()),
    }
    return found


def _by_name(values: Values, names: Sequence[str]) -> dict[str, float]:
    """Mean of the snapshots that bear each name."""
    of = np.array(names)
    return {str(name): _rounded(_mean(values[of == name])) for name in np.unique(of)}


def _noise_heading(noise_std: float) -> str:
    if noise_std == 0:
        return "none"
    return "below 0.5 %" if noise_std < 0.005 else "to 2 %" if noise_std < 0.02 else "above 2 %"


def _mean(values: NDArray[Any]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _rounded(value: float) -> float:
    return round(float(value), 4)


def fit_record(
    rows: list[Rows],
    studio: Studio,
    *,
    seen: Sequence[Rows] = (),
    about: Mapping[str, Any] | None = None,
    steps: int | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], Fitted, TrustRule]:
    """The record `interval` of a network, and what was found on the way.

    seen: of scenes that the network learned from (`fit_learned`).
    """
    facts = {"plan": asdict(studio.plan), "cameras": len(studio.others), **(about or {})}
    more: dict[str, Any] = {} if steps is None else {"steps": steps}
    fitted = fit_learned(
        rows, seen=seen, about=facts, seed=studio.plan.seed, progress=progress, **more
    )
    trust = fit_trust(rows, fitted.widths[:, LEVELS.index(0.9)])
    record = {LEARNED: fitted.interval.to_record(), "trust": trust.to_record()}
    # Through JSON once, so that what is used now is what a file will give.
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain, fitted, trust


# --- the regressor ------------------------------------------------------------------------------


def fit_head(
    features: Tensor,
    errors: Tensor,
    weight: Tensor,
    names: Sequence[str],
    levels: Sequence[float],
    *,
    steps: int = STEPS,
    seed: int = 0,
    progress: Progress | None = None,
) -> WidthHead:
    """Fit to `features (N, K)` and `errors (N,)`: truth − estimate over the brightness.

    weight: how often each value is drawn, relative to others, `(N,)`.
    """
    generator = torch.Generator().manual_seed(seed)
    scale, centre = torch.std_mean(features, 0)
    # A feature that never changed says nothing, and must not explode where it does for once.
    scale = torch.where(scale > 1e-3, scale, torch.ones_like(scale))
    net = _network(features.shape[1], len(levels), generator)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, steps)
    tails = (1 + torch.tensor(levels)[:, None]) / 2
    upto = weight.cumsum(0, dtype=torch.float64)
    for done in range(steps):
        drawn = torch.rand(BATCH, generator=generator, dtype=torch.float64) * upto[-1]
        chosen = torch.searchsorted(upto, drawn).clamp_max(len(errors) - 1)
        seen = ((features[chosen] - centre) / scale).clamp(-BEYOND, BEYOND)
        reaches = ascending(net(seen).T)
        loss = torch.zeros(())
        for reach, error in zip(reaches, (errors[chosen], -errors[chosen]), strict=True):
            beyond = error.clamp_min(LEAST).log() - reach
            loss = loss + torch.maximum(tails * beyond, (tails - 1) * beyond).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        if progress is not None and done % 100 == 99:
            progress(done + 1, steps, {})
    layers = tuple(
        (_stored(part.weight), _stored(part.bias)) for part in net if isinstance(part, nn.Linear)
    )
    return WidthHead(tuple(names), tuple(levels), _stored(centre), _stored(scale), layers)


def _network(inputs: int, levels: int, generator: torch.Generator) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):  # the state of others is not ours to change
        net = _layers(inputs, levels)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                bound = 1 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.zero_()
        last = net[-1]
        assert isinstance(last, nn.Linear)
        last.weight.mul_(0.3)
        # Errors of a few per cent to begin with.
        last.bias.view(2, levels)[:, 0] = -4.0
    return net


def _layers(inputs: int, levels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
        nn.Linear(HIDDEN, 2 * levels),
    )  # fmt: skip


def _stored(values: Tensor) -> Tensor:
    """As they will be stored, so that a fit and its file give the same interval."""
    return torch.tensor(plain(values.detach()), dtype=torch.float32)
