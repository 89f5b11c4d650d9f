"""Solvers by name."""

from __future__ import annotations

import pytest
import torch

from prismask.errors import ConfigError, ValuesError
from prismask.optics.camera import CASSI
from prismask.solvers import create_solver, list_solvers
from prismask.solvers.gap_tv import GapTv
from prismask.solvers.registry import SUMMARIES


def test_every_listed_solver_can_be_made() -> None:
    assert list_solvers() == ["desci", "gap-tv", "gpsr", "pnp", "pnp-dip", "twist"]
    assert sorted(SUMMARIES) == list_solvers()
    for name in list_solvers():
        assert callable(create_solver(name))


@pytest.mark.parametrize("name", ["gap-tv", "gpsr", "pnp", "twist"])
def test_all_are_called_alike(name: str) -> None:
    camera = CASSI.from_step(bands=3, step=1.5)
    mask = torch.rand(11, 13, generator=torch.Generator().manual_seed(0))
    measurement = camera.forward(torch.rand(2, 3, 11, 13), mask)
    calls: list[int] = []
    solver = create_solver(name, iterations=3)
    cube = solver(measurement, mask, camera, progress=lambda done, total, info: calls.append(done))
    assert cube.shape == (2, 3, 11, 13)
    assert cube.dtype == torch.float32
    assert torch.isfinite(cube).all()
    assert calls == [1, 2, 3]
    assert solver.solve(measurement, mask, camera).chosen.keys() >= {"noise"}


def test_options_reach_the_solver() -> None:
    assert create_solver("gap-tv", iterations=7, noise=0.0) == GapTv(iterations=7, noise=0.0)


def test_unknown_names_and_options_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'gap-tv'"):
        create_solver("gaptv")
    with pytest.raises(ConfigError, match=r"no option 'iteration'.*Did you mean 'iterations'"):
        create_solver("gap-tv", iteration=3)


@pytest.mark.parametrize("name", ["gap-tv", "gpsr", "pnp", "twist"])
def test_a_word_is_no_number(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} does not take iterations='many'"):
        create_solver(name, iterations="many")


def test_one_dark_mask_among_others_is_refused() -> None:
    camera = CASSI.from_step(bands=3, step=2)
    masks = torch.ones(2, 1, 6, 7)
    masks[1] = 0
    with pytest.raises(ValuesError, match="lets no light through"):
        create_solver("gap-tv", iterations=1)(torch.ones(2, 6, 11), masks, camera)
