"""Shape and range checks in one place, for NumPy arrays and torch tensors alike.

A spec is a tuple of letters and numbers: `("B", "C", "H", "W")`. A letter names a free size, a
number fixes one. Messages say what came and what fits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from prismask.errors import ConfigError, ShapeError, ValuesError

LIKENESS = 0.7
"""Of two words, from which one may be a slip of the other."""
SHORT, LIKENESS_IF_SHORT = 5, 0.6
"""A slip in so few letters makes more of a difference: D66 and D65 are alike to 0.67, value and
valid to 0.6."""


class HasShape(Protocol):
    """Anything with a shape: an array or a tensor."""

    @property
    def shape(self) -> Any:
        """Sizes along the dimensions."""


def size_text(shape: Iterable[int]) -> str:
    """`(28, 256, 256)` → `28×256×256`."""
    return "×".join(str(int(n)) for n in shape)


def two_digits(number: float) -> str:
    """`0.0123` → `0.012`, and `99.7` → `100`, which `.2g` writes as `1e+02`."""
    return f"{float(f'{number:.2g}'):g}"


def check_shape(array: HasShape, spec: tuple[str | int, ...], name: str) -> None:
    """Raise `ShapeError` unless `array` has the dimensions of `spec`."""
    shape = tuple(int(n) for n in array.shape)
    fits = len(shape) == len(spec) and all(
        isinstance(want, str) or want == got for want, got in zip(spec, shape, strict=True)
    )
    if not fits:
        wanted = "×".join(str(s) for s in spec)
        came = size_text(shape) or "a single number"
        raise ShapeError(f"{name} is {came} ({len(shape)} dimensions); expected {wanted}.")
    if 0 in shape:
        raise ShapeError(f"{name} is {size_text(shape)}: it has no elements.")


def check_finite(array: Any, name: str) -> None:
    """Raise `ValuesError` with the count and the first position if a value is not finite."""
    values = array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()
    finite = np.isfinite(values)
    if not finite.all():
        bad = int(values.size - np.count_nonzero(finite))
        where = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), values.shape))
        raise ValuesError(
            f"{name} holds {bad} NaN or infinite value{'s' if bad > 1 else ''}, the first at "
            f"{where}. Mask or replace them before going on."
        )


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that may be meant, or None where nothing is like it."""
    cutoff = LIKENESS_IF_SHORT if len(word) <= SHORT else LIKENESS
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean …?' for the closest known word, or an empty string."""
    found = closest(word, known)
    return "" if found is None else f" Did you mean {found!r}?"


def choose(word: str, known: Iterable[str], what: str) -> str:
    """Return `word` if it is one of `known`, else raise with the list and a suggestion."""
    names = list(known)
    if word not in names:
        raise ConfigError(
            f"unknown {what} {word!r}.{nearest(word, names)} Known: {', '.join(sorted(names))}."
        )
    return word
