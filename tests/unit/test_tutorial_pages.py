"""How a script becomes a page."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = '''"""For readers of the code."""

# %% [markdown]
# # Title
#
# Text.

# %%
import warnings

from prismask import Cube, PrismaskWarning
print("before")
warnings.warn("careful", PrismaskWarning)
print("after")
6 * 7

# %%
import numpy as np
import matplotlib.pyplot as plt
plt.plot([1, 2])

# %%
Cube(np.ones((3, 4, 5)))

# %% check
assert 1 + 1 == 2
'''


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("myst_parser", reason="myst-parser is not installed (extra: docs)")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("tutorial_pages")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    path = tmp_path / "short.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_text_code_output_and_pictures(pages: ModuleType, script: Path, tmp_path: Path) -> None:
    page = pages.page_of(script, tmp_path)
    assert page.startswith("# Title\n\nText.")
    assert "```text\nbefore\nPrismaskWarning: careful\nafter\n```\n\n```text\n42\n```" in page
    assert "![Drawn by the code above](/_build/tutorials/short-1.png)" in page
    assert (tmp_path / "short-1.png").read_bytes().startswith(b"\x89PNG")
    assert "```{raw} html\n<div" in page
    assert "For readers" not in page
    assert "1 + 1" not in page


@pytest.mark.parametrize("cell", ["# %% check\nassert 1 > 2\n", "# %%\nwarnings.warn('x')\n"])
def test_what_is_not_true_any_more_stops_it(
    pages: ModuleType, script: Path, tmp_path: Path, cell: str
) -> None:
    script.write_text(SCRIPT + cell, encoding="utf-8")
    with pytest.raises((AssertionError, UserWarning)):
        pages.page_of(script, tmp_path)
