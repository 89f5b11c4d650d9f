"""Spread over samples, in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RunningMoments:
    """Mean and standard deviation of tensors that come one after another (Welford, 1962)."""

    def __init__(self) -> None:
        self.count = 0
        self._mean: Tensor | None = None
        self._sum: Tensor | None = None

    def add(self, sample: Tensor) -> None:
        """Take one more sample into account."""
        self.count += 1
        if self._mean is None or self._sum is None:
            self._mean = sample.detach().clone()
            self._sum = torch.zeros_like(self._mean)
            return
        before = sample - self._mean
        self._mean += before / self.count
        self._sum += before * (sample - self._mean)

    @property
    def mean(self) -> Tensor:
        """Mean of the samples so far."""
        if self._mean is None:
            raise RuntimeError("no sample was added yet.")
        return self._mean

    @property
    def std(self) -> Tensor:
        """Their standard deviation, divided by n − 1; 0 for a single sample."""
        if self._sum is None:
            raise RuntimeError("no sample was added yet.")
        return (self._sum / max(1, self.count - 1)).clamp_min(0).sqrt()


def quantiles(samples: Sequence[Tensor], levels: Sequence[float]) -> list[Tensor]:
    """Quantiles over the samples, each of the samples' shape, linear between order statistics.

    `torch.quantile` does the same for tensors of at most 16 million values; a tile has more.
    """
    results = [torch.empty_like(samples[0], dtype=torch.float32) for _ in levels]
    # Plane by plane: sorting everything at once would hold five times as much.
    for plane in range(samples[0].shape[0]):
        ordered = torch.stack([sample[plane] for sample in samples]).float().sort(dim=0).values
        last = ordered.shape[0] - 1
        for level, result in zip(levels, results, strict=True):
            low = min(int(level * last), last)
            high = min(low + 1, last)
            result[plane] = torch.lerp(ordered[low], ordered[high], level * last - low)
    return results
