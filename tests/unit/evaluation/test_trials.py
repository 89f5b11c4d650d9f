"""Cells: what a model sees, what is scored, and what happens to cubes that are not finite."""

from __future__ import annotations

import dataclasses
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from small_workload import BANDS, CAMERA, METRICS, SIDE, cubes, spread, workload
from torch import Tensor

from prismask.errors import ConfigError, DeviceError, DivergedError, ShapeError
from prismask.evaluation.metrics import score
from prismask.evaluation.run import plan, runs
from prismask.evaluation.run import plan as cost_module
from prismask.evaluation.run import trials as trials_module
from prismask.evaluation.run.cells import Cell
from prismask.evaluation.run.plan import choose_halves, half_cost, measure_cost
from prismask.evaluation.run.trials import Bench, Workload
from prismask.optics.camera import CASSI
from prismask.parallel.cluster import run_with_client

CPU = torch.device("cpu")


def no_time(results: Any) -> list[Any]:
    return [(r.cell, r.mask_id, r.measurement_id, r.values, r.failed) for r in results]


def test_scores_are_those_of_the_metrics() -> None:
    work = workload({"f": spread})
    found = Bench(work, CPU).run(Cell("f", "lab", 1))
    mask = work.groups["lab"].mask(1)
    for place, cube in enumerate(cubes().values()):
        truth = torch.tensor(cube.values)[None]
        estimate = CAMERA.spread(CAMERA.forward(truth, mask), mask)
        for name, value in score(estimate, truth, METRICS).items():
            assert found.values[name][place] == pytest.approx(float(value[0]), rel=1e-5)
    assert found.mask_id == work.groups["lab"].masks.entries[1].mask_id


def test_all_models_see_identical_measurements() -> None:
    seen: dict[str, list[Tensor]] = {"a": [], "b": []}

    def watcher(label: str) -> Any:
        def watch(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
            seen[label].append(torch.cat([measurement.flatten(), mask.flatten()]))
            return spread(measurement, mask, camera)

        return watch

    work = workload({label: watcher(label) for label in seen}, noise=0.05)
    bench = Bench(work, CPU)
    # Not the same order for both: what is seen must not depend on what ran before.
    results = {}
    for label, trials in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        results[label] = {t: bench.run(Cell(label, "lab", t)) for t in trials}
    ordered = [seen["b"][k] for k in (1, 2, 0)]
    assert all(torch.equal(x, y) for x, y in zip(seen["a"], ordered, strict=True))
    for trial in range(3):
        ids = {results[label][trial].measurement_id for label in seen}
        assert len(ids) == 1
    assert results["a"][0].measurement_id != results["a"][1].measurement_id


def test_batches_of_one_measure_the_same() -> None:
    whole = Bench(workload({"f": spread}, noise=0.1), CPU).run(Cell("f", "lab", 0))
    singly = Bench(workload({"f": spread}, noise=0.1, batch=1), CPU).run(Cell("f", "lab", 0))
    assert whole.measurement_id == singly.measurement_id
    assert whole.values["psnr_paper"] == pytest.approx(singly.values["psnr_paper"])


def test_noise_is_seeded() -> None:
    ids = [
        Bench(workload({"f": spread}, noise=0.1, seed=s), CPU).run(Cell("f", "lab", 0))
        for s in (0, 0, 1)
    ]
    assert ids[0].measurement_id == ids[1].measurement_id != ids[2].measurement_id


def test_noise_and_masks_are_fresh_in_every_trial_and_scene() -> None:
    """Repeatable is not enough: 100 trials of one noise are one trial."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        seen.append((measurement.clone(), mask.clone()))
        return spread(measurement, mask, camera)

    bench = Bench(workload({"f": keep}, noise=0.1), CPU)
    for trial in range(3):
        bench.run(Cell("f", "lab", trial))
    noise = torch.cat(
        [(shot - CAMERA.forward(bench._cubes, mask)).flatten(1) for shot, mask in seen]
    )
    noise = noise / noise.norm(dim=1, keepdim=True)
    assert len(noise) == 9
    assert float((noise @ noise.T).fill_diagonal_(0).abs().max()) < 0.3
    masks = [mask for _, mask in seen]
    assert not any(torch.equal(masks[k], masks[m]) for k, m in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize(("batch", "calls"), [(8, 1), (2, 2), (1, 3)])
def test_seconds_are_those_of_one_sample(
    monkeypatch: pytest.MonkeyPatch, batch: int, calls: int
) -> None:
    """Each call takes 6 s, whatever it is given; three scenes share them."""
    monkeypatch.setattr(trials_module, "timed_call", lambda method, *given: (method(*given), 6.0))
    found = Bench(workload({"f": spread}, batch=batch), CPU).run(Cell("f", "lab", 0))
    assert found.seconds == pytest.approx(6.0 * calls / 3)


def nan_at_second(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    estimate = spread(measurement, mask, camera).clone()
    estimate[1, 0, 3, 3] = math.nan
    return estimate


def diverges_at_bright(measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    first = Bench(workload({"f": spread}), CPU)._cubes[1:2]
    bright = camera.forward(first, mask)
    if any(torch.allclose(one, bright[0]) for one in measurement):
        raise DivergedError("it did not stay finite.")
    return spread(measurement, mask, camera)


@pytest.mark.parametrize("model", [nan_at_second, diverges_at_bright])
def test_a_cube_that_is_not_finite_is_named_and_the_rest_goes_on(model: Any) -> None:
    good = Bench(workload({"f": spread}), CPU).run(Cell("f", "lab", 0))
    found = Bench(workload({"f": model}), CPU).run(Cell("f", "lab", 0))
    assert list(found.failed) == ["leaf1"]
    assert "finite" in found.failed["leaf1"] or "NaN" in found.failed["leaf1"]
    for name in METRICS:
        assert math.isnan(found.values[name][1])
        for place in (0, 2):
            assert found.values[name][place] == pytest.approx(good.values[name][place], rel=1e-5)


def test_nothing_finite_at_all() -> None:
    work = workload({"f": lambda y, m, c: torch.full((len(y), BANDS, SIDE, SIDE), math.inf)})
    found = Bench(work, CPU).run(Cell("f", "lab", 0))
    assert list(found.failed) == ["leaf0", "leaf1", "leaf2"]
    assert all(math.isnan(value) for column in found.values.values() for value in column)


@pytest.mark.parametrize("wrong", [lambda y, m, c: y, lambda y, m, c: None])
def test_a_model_that_gives_no_cubes(wrong: Any) -> None:
    with pytest.raises(ShapeError, match=r"f gave .* a model returns cubes"):
        Bench(workload({"f": wrong}), CPU).run(Cell("f", "lab", 0))


def test_out_of_memory_names_the_batch() -> None:
    def greedy(y: Tensor, m: Tensor, c: CASSI) -> Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(DeviceError, match="smaller --batch"):
        Bench(workload({"f": greedy}), CPU).run(Cell("f", "lab", 0))


# --- who computes --------------------------------------------------------------------------------


def cells(work: Workload) -> list[Cell]:
    return [Cell(m, "lab", t) for t in range(3) for m in work.contenders]


class FakeClient:
    """As much of `distributed.Client` as is used, in threads."""

    def scatter(self, work: Workload, broadcast: bool, hash: bool) -> Workload:
        return work

    def get_executor(self, pure: bool) -> ThreadPoolExecutor:
        assert not pure, "two cells with equal arguments are still two calls"
        return ThreadPoolExecutor(2)

    def nthreads(self) -> dict[str, int]:
        return {"a": 1, "b": 1}


def test_a_cluster_s_client_gives_the_same() -> None:
    work = workload(["srn:width=8,blocks=1", "gap-tv:iterations=2"])
    here = list(runs.run_cells(work, cells(work), CPU))
    benches = runs.Benches(work, CPU)
    outcomes = run_with_client(FakeClient(), cells(work), benches, threads=1, broadcast=True)
    there = [outcome.get() for outcome in outcomes]
    assert len(there) == 6
    assert no_time(sorted(there, key=lambda r: r.cell.key)) == no_time(
        sorted(here, key=lambda r: r.cell.key)
    )


def test_an_error_ends_the_run() -> None:
    work = workload({"good": spread, "bad": lambda y, m, c: y})
    results = runs.run_cells(work, cells(work), CPU)
    assert next(results).cell == Cell("good", "lab", 0)
    with pytest.raises(ShapeError, match="bad gave"):
        next(results)
    assert list(results) == []


def test_only_a_few_cells_are_on_their_way() -> None:
    work = workload({"f": spread})
    handed: list[int] = []

    def many() -> Any:
        for trial in range(3):
            handed.append(trial)
            yield Cell("f", "lab", trial)

    results = runs.run_cells(work, many(), CPU)
    assert handed == []
    next(results)
    assert handed == [0]


def test_wrong_crews() -> None:
    work = workload({"f": spread})
    with pytest.raises(ConfigError, match="at least one"):
        runs.run_cells(work, [], CPU, workers=0)


# --- cost and precision --------------------------------------------------------------------------


def test_cost_of_a_network_and_of_a_solver() -> None:
    work = workload(["srn:width=8,blocks=1", "gap-tv:iterations=1"])
    bench = Bench(work, CPU)
    mask = work.groups["lab"].mask(0)
    measurement = CAMERA.forward(bench._cubes[:1], mask)
    costs = [
        measure_cost(bench.ready(label), measurement, mask, CAMERA) for label in work.contenders
    ]
    weights = (BANDS * 8 + 2 * 8 * 8 + 8 * 8 + 8 * BANDS) * 9
    assert costs[0].parameters == weights + 4 * 8 + BANDS
    assert costs[0].multiply_adds == weights * SIDE * SIDE
    assert costs[1].parameters is None
    assert all(cost.seconds_per_sample > 0 and cost.repeats >= 1 for cost in costs)


def test_the_cost_is_that_of_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "timed_call", lambda method, *given: (method(*given), 6.0))
    work = workload(["gap-tv:iterations=1"])
    bench = Bench(work, CPU)
    mask = work.groups["lab"].mask(0)
    (label,) = work.contenders
    cost = measure_cost(bench.ready(label), CAMERA.forward(bench._cubes[:1], mask), mask, CAMERA)
    assert cost.seconds_per_sample == 6.0


def test_half_precision_is_asked_for_on_gpus_only() -> None:
    work = workload(["srn:width=8,blocks=1"])
    assert choose_halves(work, CPU, "auto") == {}
    with pytest.raises(ConfigError, match="for GPUs"):
        choose_halves(work, CPU, "half")


def test_a_network_that_half_precision_hurts_keeps_its_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    label = "srn:width=8,blocks=1 (untrained)"
    work = workload(["srn:width=8,blocks=1"])
    original = Bench.run
    for harm, expected in ((1.0, set()), (0.001, {label})):

        def run(self: Bench, cell: Cell, harm: float = harm) -> Any:
            found = original(self, cell)
            if self.work.halves:
                found.values["psnr_paper"][0] += harm
            return found

        monkeypatch.setattr(Bench, "run", run)
        monkeypatch.setattr("prismask.models.fast.half_dtype", lambda device: torch.float32)
        assert half_cost(work, CPU, label) == pytest.approx(harm, abs=1e-4)
        fake_gpu = type("Device", (), {"type": "cuda"})()
        monkeypatch.setattr(
            "prismask.evaluation.run.plan.half_cost", lambda w, d, m: half_cost(w, CPU, m)
        )
        assert set(choose_halves(work, fake_gpu, "auto")) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_half_precision_costs_next_to_nothing_and_cells_repeat() -> None:
    work = workload(["srn:mask_posterior=gst"])
    label, device = "srn:mask_posterior=gst (untrained)", torch.device("cuda")
    halves = choose_halves(work, device, "auto")
    assert halves.keys() == {label}
    half = dataclasses.replace(work, halves=frozenset(halves))
    one, same = (Bench(half, device).run(Cell(label, "lab", 1)) for _ in range(2))
    assert no_time([one]) == no_time([same])
    here = Bench(work, CPU).run(Cell(label, "lab", 1))
    there = Bench(work, device).run(Cell(label, "lab", 1))
    assert there.values["psnr_paper"] == pytest.approx(here.values["psnr_paper"], abs=1e-3)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux says so there alone")
def test_memory_is_counted_in_bytes() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    assert plan._status("VmSize") == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.005)
    assert plan._status("VmNone") is None
