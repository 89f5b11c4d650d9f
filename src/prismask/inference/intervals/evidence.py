"""What is known about a cube without its truth, value by value: the features of an error bar.

Everything is computed in the snapshot's own bands and pixels from the cube that people get, so it
is the same for every network, camera and orientation, and relative to the snapshot's brightness,
so that a brighter exposure changes nothing. Features are logarithms (`log(v + FLOOR)`) unless said
otherwise:

    value, brightness   of the value, and of its surroundings
    gradient            over space; `step` and `bend`: first and second differences over the bands
    residual, far       what the re-projected cube leaves of the snapshot where the value landed, in
                        a small and in a large neighbourhood
    reference           the cube of a quick solver minus this one, positive and negative part
                        apart, for an error bar has two ends; and `reference_bend`, the second
                        difference over its bands
    far_gradient,       of a large neighbourhood: how fine it is, and how far the two cubes are
    far_apart           apart there
    light               share of the bands that reach the sensor pixel: little at the dark ends
    noise               of the snapshot, in the units of the cube
    place               position in the spectrum, as cosines
    probe, other_camera what the probe of the mask gained, and whether the camera is not the
                        training's

Numbers of the whole snapshot are left to `facts`, for its verdict (`TrustRule`): in an error bar
they would only tell the few scenes of a fit apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import two_digits
from prismask.errors import PrismaskError, ValuesError, WeightsError
from prismask.inference.alignment.search import INCONSISTENT_FROM
from prismask.inference.engine import project, throughput
from prismask.optics.camera import CASSI
from prismask.solvers.gap_tv import GapTv
from prismask.wording import Finding

if TYPE_CHECKING:
    from prismask.inference.intervals.snapshots import Rows

FLOOR = 1e-3
"""Added before logarithms, relative to the snapshot's brightness."""
NEAR, FAR = 5, 17
"""Sides of the neighbourhoods that features are averaged over, in pixels."""
SMOOTH, STEPS, STRIP = 9, 6, 96
"""`missing_light`: side of the window whose triangle smooths it, conjugate gradient steps, and the
lines in the middle of the frame that it is computed on."""
PLACES = 3
"""Cosines over the spectrum."""
LINES, MARGIN = 256, 24
"""Lines across the dispersion that are worked on at a time, and their seen neighbours."""
REFERENCE, QUICK = "gap-tv", GapTv(iterations=30, inner_iterations=2)
"""The solver that networks are compared with, and the quick version of it."""
LEAST_NOISE = 0.01
"""Noise that it is given at least, of the snapshot's rms."""
LEAST_LIGHT = 0.1
"""Throughput by which a residual is divided at least; at the ends of the dispersion it is 0."""
VALUES = (
    "value", "brightness", "gradient", "step", "bend", "residual", "far", "far_gradient",
    "far_apart", "reference_above", "reference_below", "reference_bend", "light", "noise",
    *(f"place_{k}" for k in range(1, PLACES + 1)), "probe", "other_camera",
)  # fmt: skip
"""Features of every value, in the order of `Evidence.features`."""
FACTS = ("unexplained", "over_noise", "missing", "apart", "probe", "other_camera", "mismatch")
"""Numbers of the whole snapshot."""
LARGEST_MISMATCH = 1.6
"""Dispersion mismatch from which a cube is not trusted whatever else is known about it."""
PROBE_FROM = 0.01
"""Gain of the mask's probe below which it says nothing: right masks reach it."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A cube and its snapshot; all tensors float32, in the snapshot's bands, pixels and units."""

    values: Tensor
    """The cube `(C, H, W)`."""
    signal: Tensor
    """The snapshot `(H, L)`."""
    mask: Tensor
    """`(1, 1|C, h, w)`."""
    camera: CASSI
    noise_std: float
    """Of the snapshot."""
    brightness: float
    """Of the snapshot: how bright white would be."""
    probe_gain: float | None = None
    """Of the mask's probe (`alignment.probe`); None: it was not probed."""
    mismatch: float = 1.0
    """Dispersion mismatch of the camera, at least 1."""
    other_camera: bool = False
    """Whether the camera is not the training's."""

    @property
    def level(self) -> float:
        """The unit of all features: the snapshot's brightness, or 1 where it is dark."""
        return self.brightness if self.brightness > 0 else 1.0

    @cached_property
    def residual(self) -> Tensor:
        """y − A x, `(H, L)`."""
        return self.signal - project(self.values, self.mask, self.camera)

    @cached_property
    def reference(self) -> Tensor:
        """The cube of a quick solver, `(C, H, W)`: other evidence than the network's."""
        return self.solved(QUICK)

    def solved(self, solver: GapTv) -> Tensor:
        """The cube of the solver, `(C, H, W)`, which is given the noise."""

        def part(signal: Tensor, mask: Tensor) -> Tensor:
            level = float(signal.square().mean().sqrt())
            noise = max(self.noise_std / level, LEAST_NOISE) if level > 0 else 0.0
            return replace(solver, noise=noise)(signal[None], mask, self.camera)[0]

        return self._in_strips(part, self.signal)

    def _in_strips(self, part: Callable[[Tensor, Tensor], Tensor], frame: Tensor) -> Tensor:
        """`part` of strips of the sensor `frame (H, L)` and the mask, joined, `(C, H, W)`.

        Lines never mix in the camera, so strips with margins bound the memory.
        """
        along_width = self.camera.axis == "width"
        across = -2 if along_width else -1
        made = torch.empty_like(self.values)
        total = made.shape[across]
        for first in range(0, total, LINES):
            last = min(total, first + LINES)
            start, stop = max(0, first - MARGIN), min(total, last + MARGIN)
            seen, code = (t.narrow(across, start, stop - start) for t in (frame, self.mask))
            found = part(seen, code).narrow(across, first - start, last - first)
            made.narrow(across, first, last - first).copy_(found)
        return made

    @property
    def _probe(self) -> float:
        return max(0.0, (self.probe_gain or 0.0) - PROBE_FROM)

    @cached_property
    def facts(self) -> dict[str, float]:
        """Numbers of the whole snapshot, by the names in `FACTS`, before any logarithm."""
        rms = float(self.residual.square().mean().sqrt())
        signal = max(float(self.signal.square().mean().sqrt()), 1e-12)
        across = -2 if self.camera.axis == "width" else -1
        lines = min(STRIP, self.residual.shape[across])
        first = (self.residual.shape[across] - lines) // 2
        left, mask = (t.narrow(across, first, lines) for t in (self.residual, self.mask))
        missing = missing_light(left[None], mask, self.camera)
        apart = float((self.reference - self.values).square().mean().sqrt()) / self.level
        return {
            "unexplained": math.sqrt(max(rms**2 - self.noise_std**2, 0.0)) / signal,
            "over_noise": rms / max(self.noise_std, FLOOR * signal),
            "missing": float(missing.square().mean().sqrt()) / self.level,
            "apart": apart,
            "probe": self._probe,
            "other_camera": float(self.other_camera),
            "mismatch": self.mismatch - 1,
        }

    def features(self) -> Iterator[Tensor]:
        """The features `(K, H, W)` of each band, in the order of `VALUES`."""
        light = throughput(self.mask, self.camera)
        left = self.camera.unshear((self.residual.abs() / light.clamp_min(LEAST_LIGHT))[None])[0]
        lit = self.camera.unshear(light[None])[0] / light.max().clamp_min(1e-12)
        noise = self.noise_std / max(float(light.mean()), LEAST_LIGHT)
        bent, refined = (_bend(cube) for cube in (self.values, self.reference))
        steps = _step(self.values)
        constant = (noise / self.level, self._probe, float(self.other_camera))
        log_noise, *facts = (_log(torch.tensor(number)) for number in constant)
        for band, values in enumerate(self.values):
            apart = self.reference[band] - values
            near = [
                values.abs(), _gradient(values), steps[band].abs(), bent[band].abs(), left[band],
                apart.clamp_min(0), (-apart).clamp_min(0), refined[band].abs(),
            ]  # fmt: skip
            pooled = _average(torch.stack(near) / self.level, NEAR)
            further = torch.stack([left[band] / self.level, pooled[1], pooled[5] + pooled[6]])
            place = band / max(1, len(self.values) - 1)
            cosines = [math.cos(math.pi * k * place) for k in range(1, PLACES + 1)]
            even = [log_noise, *(torch.tensor(cosine) for cosine in cosines), *facts]
            yield torch.cat([
                _log((values.abs() / self.level)[None]), _log(pooled[:5]),
                _log(_average(further, FAR)), _log(pooled[5:8]), _log(lit[band])[None],
                torch.stack(even)[:, None, None].expand(-1, *values.shape),
            ])  # fmt: skip


def missing_light(residual: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """The smooth cube `(B, C, H, W)` that explains a `residual (B, H, L)` best.

    A few steps of conjugate gradients on ‖r − A S z‖² for S, a smoothing: masks differ from pixel
    to pixel, so over a neighbourhood the residual shows in which band light is missing.
    """
    left = residual.clone()
    gradient = _smooth(camera.adjoint(left, mask))
    step, made = gradient.clone(), torch.zeros_like(gradient)
    power = gradient.square().sum((1, 2, 3), keepdim=True)
    for _ in range(STEPS):
        seen = camera.forward(_smooth(step), mask)
        size = power / seen.square().sum((1, 2)).clamp_min(1e-30)[:, None, None, None]
        made += size * step
        left = left - size[:, 0] * seen
        gradient = _smooth(camera.adjoint(left, mask))
        now = gradient.square().sum((1, 2, 3), keepdim=True)
        step = gradient + now / power.clamp_min(1e-30) * step
        power = now
    return _smooth(made)


def _smooth(cube: Tensor) -> Tensor:
    for _ in range(2):
        cube = _sums(cube, SMOOTH) / SMOOTH**2
    return cube


def _average(planes: Tensor, side: int) -> Tensor:
    """Mean of planes `(…, H, W)` over a window, of the pixels there are at the border."""
    down, right = (_sums(torch.ones(n, 1), side, (-2,)) for n in planes.shape[-2:])
    return _sums(planes, side).div_(down).div_(right[:, 0])


def _sums(planes: Tensor, side: int, axes: tuple[int, ...] = (-2, -1)) -> Tensor:
    """Sums over a window, with zeros beyond the border.

    Shifted planes are added, along one axis and then the other: a sixth of the time of pooling.
    """
    for axis in axes:
        size, half = planes.shape[axis], side // 2
        padded = F.pad(planes, (half, half) if axis == -1 else (0, 0, half, half))
        planes = padded.narrow(axis, 0, size).clone()
        for shift in range(1, side):
            planes += padded.narrow(axis, shift, size)
    return planes


def _gradient(plane: Tensor) -> Tensor:
    """|∂y| + |∂x| of `(H, W)`, forward differences, 0 at the far border."""
    down = F.pad(plane.diff(dim=0).abs(), (0, 0, 0, 1))
    right = F.pad(plane.diff(dim=1).abs(), (0, 1))
    return down + right


def _step(cube: Tensor) -> Tensor:
    """First differences over the bands of `(C, H, W)`, centred."""
    padded = torch.cat([cube[:1], cube, cube[-1:]])
    return (padded[2:] - padded[:-2]) / 2


def _bend(cube: Tensor) -> Tensor:
    """Second differences over the bands of `(C, H, W)`; the ends repeat."""
    padded = torch.cat([cube[:1], cube, cube[-1:]])
    return padded[2:] - 2 * cube + padded[:-2]


def _log(plane: Tensor) -> Tensor:
    return (plane + FLOOR).log()


# --- how far to trust one cube: a number, a word and a sentence, without its truth ----------------
#
# Three things are compared with what they were for validation scenes with right masks, behind the
# training's camera, over the noise of the fit: how much of the snapshot the cube leaves unexplained
# beyond its noise, how wide its error bars are, and whether a quick solver is expected to come
# nearer the truth. The last is a linear rule in logarithms, fitted to snapshots whose truth is
# known. What the probe of the mask gained and how far the camera is from what was learned count as
# well. The worst of them decides: `excess` is 1 where at most a twenty-fifth of the right cases lie
# above it, and
#
#     trust = 1 / (1 + excess²):        good from 0.5, doubtful from 0.2, poor below.


VERSION = 1
TRUSTED_SHARE = 0.96
"""Share of right cases that are to be trusted."""
LIMIT_SHARE = 0.9
"""Share of them at which a single limit is read, before all are brought to `TRUSTED_SHARE`."""
SOLVER_BETTER = 0.1
"""Least logarithm of the network's expected error over the solver's from which the solver is taken:
about 0.9 dB, below which the rule itself is uncertain."""
STAYS = 0.98
"""Share of right cases that are to stay with the network."""
RIGHT, CLOSE = ("right", "noise", "structured spectra"), 0.058
"""Conditions of right cases, and by how much the logarithm of the network's error may be above the
quick solver's: half a decibel. What is measured counts as false alarms by the same rule."""
FEWEST_TAKEN, SURELY = 5, 3.0
"""Snapshots that a limit must have beyond it, and by how many standard errors their mean gain must
be above 0: what one or two snapshots did is no reason to leave the network. Three, for the lowest
of many limits is looked for."""
NEVER = 10.0
"""A gain that nothing reaches: the limit where no solver was ever worth taking."""
RIDGE = 1e-2
Grade = Literal["good", "doubtful", "poor"]

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """What is to be thought of a cube."""

    excess: float
    """How far the worst of the signs is beyond the limit of right cases."""
    reason: str
    """Which sign that is."""
    unexplained: float
    """Share of the snapshot's rms that the cube leaves beyond the noise."""
    width: float
    """Mean width of the 90 % interval over the snapshot's brightness."""
    solver_gain: float
    """Logarithm of the expected error over that of the quick solver."""
    limits: Mapping[str, float]

    @property
    def trust(self) -> float:
        """Between 0 and 1."""
        return 1 / (1 + self.excess**2)

    @property
    def grade(self) -> Grade:
        """In a word."""
        return "good" if self.excess <= 1 else "doubtful" if self.excess <= 2 else "poor"

    @property
    def takes_solver(self) -> bool:
        """Whether the quick solver is expected to be clearly nearer the truth."""
        return self.solver_gain > self.limits["solver"]

    @property
    def text(self) -> str:
        """The sentence."""
        left, usual = (
            two_digits(100 * share) for share in (self.unexplained, self.limits["unexplained"])
        )
        wide, wide_usual = (two_digits(100 * share) for share in (self.width, self.limits["width"]))
        said = {
            "unexplained": f"the cube leaves {left} % of the snapshot unexplained beyond its "
            f"noise; with the right mask it was rarely above {usual} % in validation",
            "width": f"the 90 % interval is {wide} % of the brightness wide on average; in "
            f"validation it was rarely above {wide_usual} %",
            "solver": f"in validation, spectra like these were reconstructed better by {REFERENCE} "
            "than by the network",
            "probe": "the snapshot contradicts its mask",
            "mismatch": "the camera is unlike those that the network was trained on",
        }
        if self.grade == "good":
            return (
                f"as in validation with the right mask: {left} % of the snapshot is unexplained "
                f"beyond its noise, and the 90 % interval is {wide} % of the brightness wide on "
                "average."
            )
        return f"{said[self.reason]}."

    def attrs(self) -> dict[str, Any]:
        """For the history of a cube."""
        return {
            "trust": round(self.trust, 3),
            "trust_grade": self.grade,
            "trust_because": self.text,
            "unexplained": round(self.unexplained, 5),
        }

    def findings(self, is_searched: bool, adapt: bool) -> list[Finding]:
        """A remark where the cube is not to be trusted; the probe has one of its own.

        is_searched: whether the mask's pose was searched for. adapt: whether the network has
            learned the scene.
        """
        if self.grade == "good" or self.reason in ("probe", "mismatch"):
            return []
        if self.reason == "width":
            return [Finding("note", f"{self.text[:1].upper()}{self.text[1:]}")]
        ways = [] if is_searched else ["a mask that has moved or lost focus (try --align)"]
        ways += [] if adapt else ["a scene unlike those of the training (try --adapt 60)"]
        ways.append(f"spectra with lines or narrow bands (compare with --method {REFERENCE})")
        text = f"{self.text} Possible causes: {', or '.join(ways)}."
        return [Finding("warning" if self.grade == "poor" else "note", text)]


@dataclass(frozen=True)
class TrustRule:
    """Limits of right cases and the rule for the solver, as stored with the weights."""

    limits: dict[str, float]
    """`unexplained` and `width`; and `solver`, from which gain on a solver is taken."""
    weights: tuple[float, ...]
    """Of the linear rule: a constant, then one for each number of `_signs`."""
    about: dict[str, Any]
    """How it did on what was left out."""

    def __post_init__(self) -> None:
        numbers = (*self.limits.values(), *self.weights)
        if set(self.limits) != {"unexplained", "width", "solver"} or len(self.weights) != SIGNS:
            raise ValuesError("the rule of trust has other numbers than this version knows")
        if not all(math.isfinite(number) for number in numbers):
            raise ValuesError("the rule of trust holds numbers that are none")
        if not all(limit > 0 for limit in self.limits.values()):
            raise ValuesError("a limit of the rule of trust is not above 0")

    def verdict(
        self, facts: Mapping[str, float], width: float, probe_gain: float | None
    ) -> Verdict:
        """What to think of a cube; facts: of its `Evidence`; width: mean, over the brightness."""
        gain = float(_signs([tuple(facts[name] for name in FACTS)])[0] @ np.array(self.weights))
        signs = {
            "unexplained": facts["unexplained"] / self.limits["unexplained"],
            "width": width / self.limits["width"],
            "solver": math.exp(min(gain - self.limits["solver"], 2.0)),
            "probe": max(0.0, probe_gain or 0.0) / INCONSISTENT_FROM,
            "mismatch": facts["mismatch"] / (LARGEST_MISMATCH - 1),
        }
        reason = max(signs, key=lambda name: signs[name])
        return Verdict(signs[reason], reason, facts["unexplained"], width, gain, dict(self.limits))

    def to_record(self) -> dict[str, Any]:
        """Plain values for a weights record."""
        return {
            "version": VERSION,
            "limits": dict(self.limits),
            "weights": list(self.weights),
            "about": dict(self.about),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], source: str = "the weights") -> TrustRule:
        """Read what `to_record` wrote."""
        try:
            if record["version"] != VERSION:
                raise ValueError(f"version {record['version']} is not known")
            return cls(
                {str(name): float(limit) for name, limit in record["limits"].items()},
                tuple(float(weight) for weight in record["weights"]),
                dict(record["about"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, PrismaskError) as error:
            said = str(error).rstrip(".") or type(error).__name__
            raise WeightsError(
                f"the rule of trust stored with {source} is damaged: {said}. Calibrate again "
                "(`prismask calibrate`), or get the file anew."
            ) from error


def fit_trust(rows: Sequence[Rows], widths: Values) -> TrustRule:
    """Limits and rule from snapshots with known truth.

    Right cases are those with a right mask behind the training's camera where the network does not
    lose to the quick solver, whatever their spectra.

    widths: mean width of each snapshot's 90 % interval as predicted without its scene, `(N,)`.
    """
    facts = [one.facts for one in rows]
    signs = _signs(facts)
    target = np.log([one.rms_error / max(one.rms_reference, 1e-9) for one in rows])
    scenes = np.array([one.scene for one in rows])
    predicted = np.empty(len(rows))
    for scene in np.unique(scenes):
        is_here = scenes == scene
        predicted[is_here] = signs[is_here] @ _least_squares(signs[~is_here], target[~is_here])
    weights = _least_squares(signs, target)
    unexplained = np.array([fact[FACTS.index("unexplained")] for fact in facts])
    is_right = (target <= CLOSE) & [one.condition in RIGHT for one in rows]
    if not is_right.any():
        is_right = np.ones(len(rows), dtype=bool)
    limits = {
        "unexplained": max(_conformal(unexplained[is_right], LIMIT_SHARE), FLOOR),
        "width": max(_conformal(widths[is_right], LIMIT_SHARE), FLOOR),
    }
    worst = np.maximum(unexplained / limits["unexplained"], widths / limits["width"])
    joint = max(1.0, _conformal(worst[is_right], TRUSTED_SHARE))
    limits = {name: round(joint * limit, 6) for name, limit in limits.items()}
    # Right cases stay with the network, however well a solver happens to do on some.
    least = max(SOLVER_BETTER, _conformal(predicted[is_right], STAYS))
    limits["solver"] = round(_paying(least, predicted, target), 6)
    taken = predicted > limits["solver"]
    loss = 20 / math.log(10) * np.maximum(np.where(taken, -target, target), 0)
    about = {
        "right": int(is_right.sum()),
        "right_not_trusted": int((worst[is_right] > joint).sum()),
        "solver_taken": int(taken.sum()),
        "solver_taken_wrongly": int((taken & (target < 0)).sum()),
        "solver_taken_right_masks": int((taken & is_right).sum()),
        "loss_db_95": round(float(np.quantile(loss, 0.95)), 3),
    }
    return TrustRule(limits, tuple(round(float(w), 6) for w in weights), about)


def _paying(least: float, predicted: Values, target: Values) -> float:
    """The lowest limit, not below `least`, above which snapshots surely gain by the solver."""
    for limit in (least, *np.sort(predicted[predicted > least])):
        gain = target[predicted > limit]
        if len(gain) >= FEWEST_TAKEN and gain.mean() > SURELY * gain.std(ddof=1) / len(gain) ** 0.5:
            return float(limit)
    return NEVER


SIGNS = 9
"""Numbers that the linear rule takes, the constant among them."""


def _signs(facts: Sequence[Sequence[float]]) -> Values:
    """What the linear rule looks at, `(N, SIGNS)`: logarithms of facts, and a hinge."""
    found = {
        name: np.array(column) for name, column in zip(FACTS, np.transpose(facts), strict=True)
    }
    logs = {
        name: np.log(found[name] + FLOOR)
        for name in ("unexplained", "over_noise", "missing", "apart")
    }
    hinge = np.maximum(logs["unexplained"] - math.log(0.05), 0)
    return np.column_stack([
        np.ones(len(facts)), *logs.values(), hinge, found["probe"], found["other_camera"],
        found["mismatch"],
    ])  # fmt: skip


def _least_squares(signs: Values, target: Values) -> Values:
    gram = signs.T @ signs + RIDGE * np.eye(signs.shape[1])
    return np.asarray(np.linalg.solve(gram, signs.T @ target))


def _conformal(values: Values, level: float) -> float:
    """The ⌈(n + 1)·level⌉-th smallest value, or the largest."""
    rank = min(len(values), math.ceil((len(values) + 1) * level))
    return float(np.sort(values)[rank - 1])
