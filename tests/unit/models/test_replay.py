"""Recording is for CUDA; elsewhere the function runs as it is. (On CUDA: test_gpu.py.)"""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.models.replay import Replayed


def test_on_a_cpu_every_call_runs_the_function() -> None:
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(x)
        return 2 * x

    replayed = Replayed()
    for value in (1.0, 2.0, 3.0):
        assert float(replayed(function, None, torch.tensor(value))) == 2 * value
    assert len(calls) == 3
