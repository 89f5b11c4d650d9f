"""What was noticed about a result, in the words of the page, with what can be done about it.

How long that will take is told with it: a first guess from the size, corrected by every job that
ends here.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from typing import Literal, get_args

from prismask.apps.web.results import Result
from prismask.apps.web.work import Order

RemedyName = Literal["align", "adapt", "solver", "dark"]
REMEDIES: tuple[RemedyName, ...] = get_args(RemedyName)
ADAPT_STEPS = 60
SOLVER = "gap-tv"

_LABELS: dict[str, str] = {
    "align": "“Align the mask”",
    "adapt": "“Adapt to the scene”",
    "method": "the method",
    "model": "the network",
    "samples": "“Mask samples”",
    "iterations": "“Iterations”",
    "level": "“Coverage”",
    "bands": "“Bands”",
    "step": "“Dispersion step”",
    "offsets": "“Band offsets”",
    "wavelengths": "“Wavelengths”",
    "axis": "“Dispersion axis”",
    "design": "“Dispersers”",
    "polynomial": "“Band offsets”",
    "bits": "“Sensor bits”",
    "average": "a tick at “Pages are exposures”",
    "turn-mask": "“Turn the mask”:",
    "turn-snapshot": "“Turn the snapshot”:",
    "crop-mask": "“Part of the mask”:",
    "dark": "“Dark level”",
    "flat": "“Flat field”",
    "noise-std": "“Noise”",
    "mask-std": "“Mask uncertainty”",
}
"""What the form calls the options of the command line."""
_NO_FIELD = (
    (
        re.compile(r"(Name|Choose) one with --variable NAME( \(for [^)]*\))?\."),
        "Send a file that holds it alone.",
    ),
    (re.compile(r" For further snapshots .*--pose; --no-align keeps the mask as it is\."), ""),
)
"""Advice that the form has no field for, and what is said instead."""
_TICKS = (
    (re.compile(r"\b(U|u)se --no-check-mask to"), r"\1ntick “Look for the mask first” to"),
    (
        re.compile(r"--bad-pixels none keeps them"),
        "Untick “Leave out hot and dead pixels” to keep them",
    ),
    (re.compile(r"give --bad-pixels none"), "untick “Leave out hot and dead pixels”"),
)
"""Options that are boxes there, ticked as long as nobody says otherwise."""
_WORD = re.compile(r"(?<![\w-])--(" + "|".join(_LABELS) + r")\b(?!-)")


@dataclass(frozen=True)
class Remedy:
    """Something to run at one press."""

    name: RemedyName
    title: str
    seconds: float


@dataclass(frozen=True)
class Notice:
    """A finding with its remedies."""

    level: Literal["warning", "note"]
    text: str
    remedies: tuple[Remedy, ...] = ()


FixedField = Literal["turn_mask", "turn_snapshot", "crop_mask"]


@dataclass(frozen=True)
class Fix:
    """What to enter into a field of the form so that a job that failed may work."""

    field: FixedField
    value: str


_FIX = re.compile(r"--(turn-mask|turn-snapshot|crop-mask) ([a-z][a-z0-9-]+|\d+(?:,\d+){3})")


def fixes_in(text: str) -> tuple[Fix, ...]:
    """The fields that an error in the words of the command line names with their values."""
    fields: dict[str, FixedField] = {
        "turn-mask": "turn_mask", "turn-snapshot": "turn_snapshot", "crop-mask": "crop_mask",
    }  # fmt: skip
    return tuple(dict.fromkeys(Fix(fields[flag], value) for flag, value in _FIX.findall(text)))


def page_words(text: str) -> str:
    """A message of the command line in the words of the page; commands in backticks stay."""
    for flag, words in (*_NO_FIELD, *_TICKS):
        text = flag.sub(words, text)
    parts = text.split("`")
    parts[::2] = [_WORD.sub(lambda found: _LABELS[found[1]], part) for part in parts[::2]]
    return "`".join(parts)


def changed_order(order: Order, remedy: RemedyName) -> Order:
    """The order with a remedy in it."""
    if remedy == "align":
        return replace(order, align=True)
    if remedy == "adapt":
        return replace(order, adapt=ADAPT_STEPS)
    if remedy == "dark":
        return replace(order, dark=0.0)
    return replace(order, method=SOLVER, model=None, samples=0, adapt=0)


def notices(result: Result, estimates: Estimates | None) -> list[Notice]:
    """The findings of a result, warnings first; without `estimates` nothing can be run here."""
    found = result.cube.attrs.get("findings", [])
    lines = [str(line) for line in found] if isinstance(found, list | tuple) else [str(found)]
    offered: set[RemedyName] = set()
    listed = []
    for line in sorted(lines, key=lambda line: not line.startswith("warning")):
        told: Literal["warning", "note"] = "warning" if line.startswith("warning") else "note"
        text = line.removeprefix(f"{told}: ")
        fitting = [name for name in _named_in(line, result) if name not in offered]
        ready = [] if estimates is None else [_remedy(name, result, estimates) for name in fitting]
        offered.update(one.name for one in ready)
        listed.append(Notice(told, page_words(text), tuple(ready)))
    return _with_verdict(result, listed)


def _with_verdict(result: Result, listed: list[Notice]) -> list[Notice]:
    """How far to trust the cube comes first, told once with the finding that is its reason."""
    attrs = result.cube.attrs
    if "trust_grade" not in attrs:
        return listed
    grade, because = str(attrs["trust_grade"]), page_words(str(attrs["trust_because"]))
    begins = because.rstrip(".").lower()
    same = [one for one in listed if one.text.lower().startswith(begins)][:1]
    text, remedies = (same[0].text, same[0].remedies) if same else (because, ())
    verdict = Notice(
        "warning" if grade == "poor" else "note",
        f"Trust: {grade} ({attrs['trust']:.2f} of 1). {text[:1].upper()}{text[1:]}",
        remedies,
    )
    return [verdict, *(one for one in listed if one not in same)]


def _named_in(line: str, result: Result) -> list[RemedyName]:
    """The remedies that a finding speaks of and that were not part of the order already."""
    order = result.order
    if not isinstance(order, Order) or result.snapshot is None or result.mask is None:
        return []
    fits: dict[RemedyName, bool] = {
        "align": "--align" in line and not order.align,
        "adapt": "--adapt" in line and order.adapt == 0 and order.method is None,
        "solver": f"--method {SOLVER}" in line and order.method != SOLVER,
        "dark": "--dark 0" in line and order.dark is None,
    }
    return [name for name, does in fits.items() if does]


def _remedy(name: RemedyName, result: Result, estimates: Estimates) -> Remedy:
    titles: dict[RemedyName, str] = {
        "align": "Align the mask and reconstruct again",
        "adapt": f"Adapt the network to the scene in {ADAPT_STEPS} steps",
        "solver": f"Compare with the solver {SOLVER}",
        "dark": "Subtract nothing (dark level 0)",
    }
    order = changed_order(result.order, name)
    return Remedy(name, titles[name], estimates.seconds(order, result.cube.values.size))


COLD_SECONDS = 6.0
"""Until a fresh worker process is ready."""
NETWORK = "network"
FIRST_RATES = {NETWORK: 2.0, "gap-tv": 2.0}
"""Seconds for a million values of the cube, on two CPU cores, until jobs here have told better."""
OTHER_SOLVER = 20.0
ALIGN_SECONDS = 7.0
"""For a cube of a million values."""
LEAST_VALUES = 100_000
ADAPT_SECONDS = 1.0
"""Per step, whatever the frame."""
MEMORY = 0.5
"""Weight of the newest job."""


class Estimates:
    """Seconds by method and size."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self.extra: dict[str, float] = {"align": ALIGN_SECONDS, "adapt": ADAPT_SECONDS}
        """Seconds on top: of aligning a million values, and of each step of adapting."""
        self._lock = threading.Lock()

    def seconds(self, order: Order, values: int, is_cold: bool = False) -> float:
        """What a job will take, `values` being those of its cube."""
        kind = _kind(order)
        rate = self._rates.get(kind, FIRST_RATES.get(kind, OTHER_SOLVER))
        pure = rate * values / 1e6 * _passes(order)
        return pure + self._on_top(order, values) + (COLD_SECONDS if is_cold else 0.0)

    def extra_at(self, values: int) -> dict[str, float]:
        """Seconds on top for a cube of so many values: of aligning, and of a step of adapting."""
        return self.extra | {"align": self.extra["align"] * _aligned(values)}

    def learn(self, order: Order, values: int, seconds: float) -> None:
        """Take in how long a job took."""
        with self._lock:
            if not order.align and not order.adapt:
                self._move(self._rates, _kind(order), seconds / (values / 1e6 * _passes(order)))
                return
            plain = self.seconds(replace(order, align=False, adapt=0), values)
            extra = max(seconds - plain, 0.1)
            if order.align and not order.adapt:
                self._move(self.extra, "align", extra / _aligned(values))
            elif order.adapt and not order.align:
                self._move(self.extra, "adapt", extra / order.adapt)

    def _on_top(self, order: Order, values: int) -> float:
        extra = self.extra_at(values)
        return order.align * extra["align"] + order.adapt * extra["adapt"]

    @staticmethod
    def _move(held: dict[str, float], key: str, found: float) -> None:
        known = held.get(key)
        held[key] = found if known is None else (1 - MEMORY) * known + MEMORY * found


def _kind(order: Order) -> str:
    """Jobs that cost alike; where nobody chose, a network is likely."""
    return order.method or NETWORK


def _aligned(values: int) -> float:
    """What aligning takes, in units of a cube of a million values.

    It looks at a certain number of lines and moves more of the mask than those: on one core 11 s
    for 28 bands of 256×256 and 47 s for 660×660.
    """
    return float((max(values, LEAST_VALUES) / 1e6) ** 0.75)


def _passes(order: Order) -> float:
    if order.method is None:
        return max(1, order.samples)
    return 1.0 if order.iterations is None else order.iterations / 60
