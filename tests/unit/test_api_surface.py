"""The public names and their arguments are a file: a change of it is seen in review.

python tests/unit/test_api_surface.py     # writes it anew
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import prismask

ROOT = Path(__file__).resolve().parents[2]
SURFACE = ROOT / "tests" / "api_surface.txt"
PACKAGES = (
    "prismask", "prismask.scenes", "prismask.optics", "prismask.models", "prismask.solvers",
    "prismask.training", "prismask.inference", "prismask.evaluation",
    "prismask.evaluation.metrics", "prismask.parallel", "prismask.adapters",
)  # fmt: skip
WITH_EXAMPLES = (
    "prismask", "prismask.wording", "prismask.optics.masks",
    "prismask.optics.simulate",
    "prismask.scenes.records", "prismask.solvers.registry", "prismask.evaluation.scoring",
)  # fmt: skip


def surface() -> str:
    """One line per public name of each package: functions and classes with their arguments."""
    lines = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        lines += [_line(module, name) for name in module.__all__]
    return "\n".join(lines) + "\n"


def _line(module: ModuleType, name: str) -> str:
    thing = getattr(module, name)
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Warning | Exception)):
        return f"{module.__name__}.{name}"
    words, previous = [], None
    for parameter in inspect.signature(thing).parameters.values():
        kind = parameter.kind
        if kind is parameter.KEYWORD_ONLY and previous not in (kind, parameter.VAR_POSITIONAL):
            words.append("*")
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(kind, "")
        is_optional = parameter.default is not parameter.empty
        words.append(f"{mark}{parameter.name}{'=…' if is_optional else ''}")
        previous = kind
    return f"{module.__name__}.{name}({', '.join(words)})"


def test_the_surface_is_the_committed_one() -> None:
    known = SURFACE.read_text(encoding="utf-8")
    assert surface() == known, f"if that is meant: python {Path(__file__).relative_to(ROOT)}"


def test_names_are_about_twenty_and_lead_to_what_they_say() -> None:
    assert 20 <= len(prismask.__all__) <= 30
    for package in PACKAGES:
        module = importlib.import_module(package)
        assert sorted(module.__all__) == list(module.__all__)
        assert set(module.__all__) <= set(dir(module))
        for name in module.__all__:
            thing = getattr(module, name)
            assert getattr(thing, "__name__", name) == name
            if inspect.isfunction(thing) or inspect.isclass(thing):
                assert inspect.getdoc(thing), f"{package}.{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = prismask.nonsense  # type: ignore[attr-defined]  # wrong on purpose


def test_what_type_checkers_see_is_what_is_there() -> None:
    for package in PACKAGES:
        path = Path(str(importlib.import_module(package).__file__))
        text = path.read_text(encoding="utf-8")
        if "lazy_names" not in text:
            continue
        declared = {line.split()[-1] for line in text.splitlines() if line.startswith("    from ")}
        listed = set(importlib.import_module(package).__all__) - {"__version__"}
        assert declared == listed, package


def test_packages_load_nothing_heavy() -> None:
    heavy = {"torch", "xarray", "matplotlib", "scipy", "colour", "h5py", "numpy"}
    lazy = [name for name in PACKAGES if name != "prismask.evaluation.metrics"]
    code = (
        f"import sys, {', '.join(lazy)}\n"
        f"found = sorted(set({sorted(heavy)!r}) & set(sys.modules))\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.attempted > 0
    assert ran.failed == 0


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert "version" not in project["project"]
    where = project["tool"]["setuptools"]["dynamic"]["version"]
    assert where == {"attr": "prismask.__version__"}
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "\nversion:" not in cited


def test_the_change_log_knows_the_version() -> None:
    """Work goes on under Unreleased, towards a number that no release has; a release is dated."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(r"^## \[(.+?)\](.*)$", text, re.MULTILINE)
    assert first == ("Unreleased", "")
    numbers = [number for number, _ in released]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", number) for number in numbers)
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in released)
    number, is_ahead, _ = prismask.__version__.partition(".dev0")
    if is_ahead:
        assert number not in numbers
    else:
        assert number == numbers[0]


def test_the_picture_of_packages_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grimp", reason="import-linter is not installed (extra: dev)")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    picture = importlib.import_module("package_picture")
    assert picture.drawn() == picture.picture(), "draw it anew: python docs/package_picture.py"


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|txt))`", text)
    assert len(named) > 10
    for name in named:
        if "yourname" in name or "yourformat" in name:
            continue
        places = (ROOT / name, ROOT / "src" / "prismask" / name)
        assert any(place.exists() for place in places), name


if __name__ == "__main__":
    SURFACE.write_text(surface(), encoding="utf-8")
