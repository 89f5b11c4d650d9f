"""What networks, solvers, training, optics and scenes compute is what it was (`goldens.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from goldens import FILE, MAKERS, STRENGTHS, made

from prismask.optics.faults import FAULTS
from prismask.solvers.registry import list_solvers

KEPT = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", MAKERS)
def test_it_is_as_it_was(name: str) -> None:
    found = dict(made(name))
    assert found.keys() == KEPT[name].keys()
    for part, numbers in KEPT[name].items():
        size = max(abs(number) for number in numbers)
        assert found[part] == pytest.approx(numbers, rel=1e-3, abs=1e-4 * size + 1e-6), part


def test_nothing_is_forgotten() -> None:
    assert KEPT.keys() == MAKERS.keys()
    assert {name.split(",")[0].split()[0] for name in MAKERS} >= set(list_solvers())
    assert STRENGTHS.keys() == FAULTS.keys()
