"""What was noticed about a result, in the words of the page, with what can be done about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

from prismask.apps.web.estimates import Estimates
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
    "dark": "“Dark level”",
    "flat": "“Flat field”",
    "noise-std": "“Noise”",
    "mask-std": "“Mask uncertainty”",
}
"""What the form calls the options of the command line."""
_VARIABLE = re.compile(r"(Name|Choose) one with --variable NAME( \(for [^)]*\))?\.")
"""Advice that the form has no field for."""
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


def page_words(text: str) -> str:
    """A message of the command line in the words of the page; commands in backticks stay."""
    text = _VARIABLE.sub("Send a file that holds it alone.", text)
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
    return [*_verdict(result), *listed]


def _verdict(result: Result) -> list[Notice]:
    """How far to trust the cube, where its method has a rule for that."""
    attrs = result.cube.attrs
    if "trust_grade" not in attrs:
        return []
    told: Literal["warning", "note"] = "warning" if attrs["trust_grade"] == "poor" else "note"
    text = f"Trust: {attrs['trust_grade']} ({attrs['trust']:.2f} of 1). {attrs['trust_because']}"
    return [Notice(told, page_words(text), ())]


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
        "dark": "Keep it as light: dark level 0",
    }
    order = changed_order(result.order, name)
    return Remedy(name, titles[name], estimates.seconds(order, result.cube.values.size))
