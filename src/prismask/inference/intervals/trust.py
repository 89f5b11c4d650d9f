"""How far to trust one cube: a number, a word and a sentence, without its truth.

Three things are compared with what they were for validation scenes with right masks, behind the
training's camera, over the noise of the fit: how much of the snapshot the cube leaves unexplained
beyond its noise, how wide its error bars are, and whether a quick solver is expected to come nearer
the truth. The last is a linear rule in logarithms, fitted to snapshots whose truth is known. What
the probe of the mask gained and how far the camera is from what was learned count as well. The
worst of them decides: `excess` is 1 where at most a twenty-fifth of the right cases lie above it,
and

    trust = 1 / (1 + excess²):        good from 0.5, doubtful from 0.2, poor below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from prismask.checks import two_digits
from prismask.errors import PrismaskError, ValuesError, WeightsError
from prismask.inference.alignment.probe import INCONSISTENT_FROM
from prismask.inference.camera_match import LARGEST_MISMATCH
from prismask.inference.findings import Finding
from prismask.inference.intervals.evidence import FACTS, FLOOR, REFERENCE

if TYPE_CHECKING:
    from prismask.inference.intervals.snapshots import Rows

VERSION = 1
SURE = 0.96
"""Share of right cases that are to be trusted."""
TYPICAL = 0.9
"""Share of them that a single limit is read at, before all are brought to `SURE` together."""
SOLVER_BETTER = 0.1
"""Least logarithm of the network's expected error over the solver's from which the solver is taken:
about 0.9 dB, below which the rule itself is uncertain."""
STAYS = 0.98
"""Share of right cases that are to stay with the network."""
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
            f"noise; with right masks and scenes like those of the fit it is at most {usual} %",
            "width": f"the 90 % interval is {wide} % of the brightness wide on average; for scenes "
            f"like those of the fit it is at most {wide_usual} %",
            "solver": f"spectra like these were reconstructed better by {REFERENCE} than by the "
            "network when its trust was fitted",
            "probe": "the snapshot contradicts its mask",
            "mismatch": "the camera is far from those that the network learned behind",
        }
        if self.grade == "good":
            return (
                f"as for scenes of the fit with right masks: {left} % of the snapshot is left "
                f"unexplained beyond its noise, and the 90 % interval is {wide} % of the "
                "brightness wide on average."
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

    def findings(self, align: bool, adapt: bool) -> list[Finding]:
        """A remark where the cube is not to be trusted; the probe has one of its own."""
        if self.grade == "good" or self.reason in ("probe", "mismatch"):
            return []
        if self.reason == "width":
            return [Finding("note", f"{self.text[:1].upper()}{self.text[1:]}")]
        ways = [] if align else ["a mask away from its calibration (--align finds out)"]
        ways += [] if adapt else ["a scene unlike those of the training (--adapt 60 learns it)"]
        ways.append(f"spectra with lines or narrow bands (compare with --method {REFERENCE})")
        text = f"{self.text} It may be {', or '.join(ways)}."
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
    is_right = np.array([one.condition in ("right", "noise") for one in rows])
    if not is_right.any():
        is_right = np.ones(len(rows), dtype=bool)
    limits = {
        "unexplained": max(_conformal(unexplained[is_right], TYPICAL), FLOOR),
        "width": max(_conformal(widths[is_right], TYPICAL), FLOOR),
    }
    worst = np.maximum(unexplained / limits["unexplained"], widths / limits["width"])
    joint = max(1.0, _conformal(worst[is_right], SURE))
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
    """The lowest limit, not below `least`, above which snapshots really gain by the solver."""
    for limit in (least, *np.sort(predicted[predicted > least])):
        taken = predicted > limit
        if taken.any() and target[taken].mean() > 0:
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
