"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data, or a skip that says how to get it."""
    here = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("PRISMASK_DATA", here.parent / "shared" / "data"))
    if not (folder / "kaist.npz").exists():
        pytest.skip(f"real data not found in {folder}; set PRISMASK_DATA to its folder")
    return folder
