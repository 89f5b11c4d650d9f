"""Fixtures that several of the tests of whole runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_evaluation import make_data


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data folder, shaped like the real one."""
    return make_data(tmp_path_factory.mktemp("tiny") / "data")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch on one thread: tests run beside each other, and sums come out in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
