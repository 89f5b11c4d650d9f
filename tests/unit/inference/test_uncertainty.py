"""Running moments and quantiles against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prismask.inference.engine import RunningMoments, quantiles


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_running_moments(offset: float) -> None:
    """A large offset ruins the textbook formula, not this one."""
    samples = torch.rand(17, 3, 5, 4, generator=torch.Generator().manual_seed(0)) + offset
    moments = RunningMoments()
    for sample in samples:
        moments.add(sample)
    wide = samples.double().numpy()
    assert np.allclose(moments.mean.numpy(), wide.mean(0), rtol=1e-6)
    assert np.allclose(moments.std.numpy(), wide.std(0, ddof=1), rtol=2e-3)


def test_the_first_sample_is_not_changed() -> None:
    first = torch.ones(2, 2, 2)
    moments = RunningMoments()
    moments.add(first)
    moments.add(first + 2)
    assert torch.equal(first, torch.ones(2, 2, 2))
    assert torch.equal(moments.mean, first + 1)


def test_one_sample_has_no_spread() -> None:
    moments = RunningMoments()
    moments.add(torch.ones(1, 2, 2))
    assert torch.equal(moments.std, torch.zeros(1, 2, 2))
    with pytest.raises(RuntimeError, match="no sample"):
        _ = RunningMoments().mean


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_quantiles(count: int) -> None:
    samples = torch.rand(count, 2, 3, 4, generator=torch.Generator().manual_seed(count))
    levels = (0.0, 0.05, 0.5, 0.95, 1.0)
    found = quantiles(list(samples), levels)
    assert np.allclose(torch.stack(found).numpy(), np.quantile(samples.numpy(), levels, axis=0))
