"""Public names that are imported when first used: torch and xarray take seconds to load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]], also: Iterable[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package.

    homes: the names that each module within the package gives.
    also: names that the package has anyway.
    """
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names}
    listed = sorted([*home, *also])

    def get(name: str) -> Any:
        if name in home:
            return getattr(import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return listed, get, lambda: listed
