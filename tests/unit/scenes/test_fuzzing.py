"""A few hundred damaged files of every format; `make fuzz` tries many more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fuzzing import HEALTHY, mutate, read, run

PER_FORMAT = 20


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_files_are_read(tmp_path: Path, name: str) -> None:
    HEALTHY[name](tmp_path / name)
    assert read(str(tmp_path / name)) == ("read", [])


def test_mutants_can_be_made_again_and_differ() -> None:
    content = bytes(range(256)) * 8
    made = [mutate(content, np.random.default_rng((0, number))) for number in range(50)]
    again = [mutate(content, np.random.default_rng((0, number))) for number in range(50)]
    assert made == again
    assert len(set(made)) > 45
    assert content not in made


@pytest.mark.slow
@pytest.mark.parametrize("format", range(len(HEALTHY)), ids=list(HEALTHY))
def test_no_mutant_does_harm(format: int) -> None:
    numbers = range(format, PER_FORMAT * len(HEALTHY), len(HEALTHY))
    counts, troubles = run(numbers, seed=1)
    assert not troubles
    assert counts.total() == PER_FORMAT
    assert counts["read"] < PER_FORMAT
