"""Solvers by name."""

from __future__ import annotations

import pytest

from prismask.errors import ConfigError
from prismask.solvers import create_solver, list_solvers
from prismask.solvers.gap_tv import GapTv


def test_every_listed_solver_can_be_made() -> None:
    assert "gap-tv" in list_solvers()
    for name in list_solvers():
        assert callable(create_solver(name))


def test_options_reach_the_solver() -> None:
    assert create_solver("gap-tv", iterations=7, noise=0.0) == GapTv(iterations=7, noise=0.0)


def test_unknown_names_and_options_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'gap-tv'"):
        create_solver("gaptv")
    with pytest.raises(ConfigError, match=r"no option 'iteration'.*Did you mean 'iterations'"):
        create_solver("gap-tv", iteration=3)
