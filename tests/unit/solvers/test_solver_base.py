"""The loop that all iterative solvers share, with a method simple enough to predict."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError, DivergedError, ShapeError, ValuesError
from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric

CAMERA = CASSI.from_step(bands=3, step=1)


@dataclass(frozen=True)
class Landweber(IterativeSolver):
    """x ← x + Aᵀ(y − A x) / 3: converges on any mask in [0, 1]."""

    pause: float = 0.0
    factor: float = 1 / 3

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        cube = torch.zeros_like(camera.adjoint(measurement, mask))
        for _ in range(self.iterations):
            residual = measurement - camera.forward(cube, mask)
            cube += self.factor * camera.adjoint(residual, mask)
            time.sleep(self.pause)
            yield Estimate(cube, measurement - camera.forward(cube, mask))


def problem(batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = 0.2 + 0.8 * torch.rand(6, 7, generator=generator)
    cube = torch.rand(batch, 3, 6, 7, generator=generator)
    return CAMERA.forward(cube, mask), mask


def test_history_progress_and_result_agree() -> None:
    measurement, mask = problem()
    calls: list[tuple[int, int, dict[str, float]]] = []
    solver = Landweber(iterations=4)
    solution = solver.solve(measurement, mask, CAMERA, lambda *call: calls.append(call))
    assert solution.iterations == 4
    assert solution.reason == "iterations"
    assert solution.residuals.shape == (4, 2)
    assert [(done, total) for done, total, _ in calls] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for (_, _, info), residual in zip(calls, solution.residuals, strict=True):
        assert info["residual"] == pytest.approx(float(residual.mean()))
        assert info["seconds"] >= 0
    left = measurement - CAMERA.forward(solution.cube, mask)
    want = left.flatten(1).norm(dim=1) / measurement.flatten(1).norm(dim=1)
    torch.testing.assert_close(solution.residuals[-1], want)
    assert torch.equal(solver(measurement, mask, CAMERA), solution.cube)


@dataclass(frozen=True)
class Talkative(Landweber):
    """Chooses its factor and knows its objective."""

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        chosen.note("factor", torch.tensor([0.25, 0.25]))
        chosen.note("level", measurement.square().mean((-1, -2)))
        chosen.note("start", "dark")
        for one in super().iterate(measurement, mask, camera, chosen):
            yield Estimate(one.cube, one.residual, one.residual.square().sum((-1, -2)) / 2)


def test_objective_and_choices_are_told(caplog: pytest.LogCaptureFixture) -> None:
    measurement, mask = problem()
    calls: list[dict[str, float]] = []
    with caplog.at_level("INFO", logger="prismask.solvers"):
        solution = Talkative(iterations=3).solve(
            measurement, mask, CAMERA, lambda *call: calls.append(call[2])
        )
    assert solution.objectives is not None
    norms = measurement.square().sum((-1, -2)).sqrt()
    torch.testing.assert_close(
        solution.objectives, (solution.residuals * norms).square() / 2, rtol=1e-4, atol=0
    )
    assert [info["objective"] for info in calls] == pytest.approx(
        solution.objectives.mean(1).tolist()
    )
    assert solution.chosen["factor"] == 0.25
    assert "over the batch" in str(solution.chosen["level"])
    assert solution.chosen["start"] == "dark"
    assert [record.message for record in caplog.records][::2] == [
        "chosen: factor = 0.25",
        "chosen: start = dark",
    ]
    silent = Landweber(iterations=3).solve(measurement, mask, CAMERA)
    assert silent.objectives is None
    assert silent.chosen == {}


def test_it_stops_when_settled() -> None:
    measurement, mask = problem()
    solution = Landweber(iterations=500, tolerance=1e-3).solve(measurement, mask, CAMERA)
    assert solution.reason == "tolerance"
    assert 2 < solution.iterations < 500
    shorter = Landweber(iterations=solution.iterations - 1)(measurement, mask, CAMERA)
    change = (solution.cube - shorter).flatten(1).norm(dim=1)
    assert (change <= 1e-3 * solution.cube.flatten(1).norm(dim=1)).all()


def test_it_stops_when_time_is_up() -> None:
    measurement, mask = problem()
    solver = Landweber(iterations=1000, seconds=0.05, pause=0.02)
    solution = solver.solve(measurement, mask, CAMERA)
    assert solution.reason == "seconds"
    assert 1 <= solution.iterations <= 4
    assert solution.seconds > 0.05


def test_a_dark_measurement_has_no_residual() -> None:
    _, mask = problem()
    solution = Landweber(iterations=3).solve(torch.zeros(1, 6, 9), mask, CAMERA)
    assert torch.equal(solution.residuals, torch.zeros(3, 1))


def test_integers_and_doubles_are_taken() -> None:
    measurement, mask = problem()
    counts = (measurement * 1000).to(torch.int32)
    assert Landweber(iterations=2)(counts, mask, CAMERA).dtype == torch.float32
    assert Landweber(iterations=2)(measurement.double(), mask, CAMERA).dtype == torch.float64


def test_bad_input_and_divergence_are_named() -> None:
    measurement, mask = problem()
    with pytest.raises(ShapeError, match="need a measurement of 6×9"):
        Landweber()(measurement[..., :-1], mask, CAMERA)
    broken = measurement.clone()
    broken[1, 2, 3] = math.nan
    with pytest.raises(ValuesError, match=r"measurement holds 1 NaN.*\(1, 2, 3\)"):
        Landweber()(broken, mask, CAMERA)
    leaking = mask.clone()
    leaking[4, 5] = math.inf
    with pytest.raises(ValuesError, match="mask holds 1 NaN"):
        Landweber()(measurement, leaking, CAMERA)
    with pytest.raises(DivergedError, match="Landweber did not stay finite"):
        Landweber(iterations=200, factor=1e3)(measurement, mask, CAMERA)


@pytest.mark.parametrize(
    "options", [{"iterations": 0}, {"tolerance": -1.0}, {"seconds": 0.0}, {"seconds": -1.0}]
)
def test_impossible_rules_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Landweber(**options)  # type: ignore[arg-type]


def test_geometric_runs_from_end_to_end() -> None:
    values = geometric(8.0, 0.5, 5)
    assert values == pytest.approx([8, 4, 2, 1, 0.5])
    assert geometric(8.0, 0.5, 1) == [0.5]
