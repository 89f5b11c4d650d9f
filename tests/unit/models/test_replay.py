"""Recording is for CUDA; elsewhere the function runs as it is. (On CUDA: test_gpu.py.)"""

from __future__ import annotations

import logging
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from prismask.models.fast import Replayed, capture


def test_on_a_cpu_every_call_runs_the_function() -> None:
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(x)
        return 2 * x

    replayed = Replayed()
    for value in (1.0, 2.0, 3.0):
        assert float(replayed(function, None, torch.tensor(value))) == 2 * value
    assert len(calls) == 3


def test_whoever_records_hears_why_it_cannot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("current_stream", "set_stream", "synchronize", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())

    def run() -> None:
        raise RuntimeError("a value was asked for")

    reasons: list[str] = []
    with caplog.at_level(logging.DEBUG):
        assert capture(run, refused=reasons.append) is None
        assert reasons == ["a value was asked for"]
        assert not caplog.records
        assert capture(run) is None
    assert [(r.levelname, "a value was asked for" in r.getMessage()) for r in caplog.records] == [
        ("WARNING", True)
    ], "a training that gets slower is told so"
