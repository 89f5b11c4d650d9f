"""A small regressor that predicts how far an error reaches, value by value.

From the features of a value (`intervals.evidence`) it gives, for every level, how far above the
estimate and how far below it the truth may lie: two hidden layers of a few dozen units, in
logarithms, so that reaches are positive, and as running sums, so that a higher level never reaches
less far. It is fitted with the pinball loss of quantile regression (Koenker and Bassett, 1978) to
one-sided errors. It promises nothing by itself: the conformal step does (`intervals.learned`).

Its numbers are stored with the weights as plain lists, with a hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ValuesError
from prismask.progress import Progress

HIDDEN = 24
BATCH, STEPS, RATE = 4096, 1200, 8e-3
"""Values a step, steps and largest rate of the fit."""
LEAST = 1e-4
"""Errors below this, relative to the snapshot's brightness, count as this."""
BEYOND = 4.0
"""Standard deviations beyond which a feature is taken to be no further: nothing was learned
there."""


@dataclass(frozen=True, eq=False)
class WidthHead:
    """A fitted regressor."""

    names: tuple[str, ...]
    """Features that it takes, in order."""
    levels: tuple[float, ...]
    """Coverages, ascending."""
    centre: Tensor
    """Mean of each feature `(K,)`."""
    scale: Tensor
    """Its standard deviation `(K,)`."""
    layers: tuple[tuple[Tensor, Tensor], ...]
    """Weight `(out, in)` and bias `(out,)` of each layer; the last has two outputs per level."""
    contrast: float = 1.0
    """Exponent on the reach (`intervals.learn`)."""

    def __post_init__(self) -> None:
        sizes = [len(self.names), *(len(bias) for _, bias in self.layers)]
        fits = all(
            weight.shape == (out, into)
            for (weight, _), into, out in zip(self.layers, sizes, sizes[1:], strict=False)
        )
        if not (self.layers and fits and sizes[-1] == 2 * len(self.levels)):
            raise ValuesError("the layers of an interval's regressor do not fit each other.")
        if {len(self.centre), len(self.scale)} != {len(self.names)} or not self._is_finite:
            raise ValuesError("an interval's regressor holds numbers that are none.")
        if not 0 < self.contrast < math.inf:
            raise ValuesError(f"the contrast {self.contrast:g} of an interval is not above 0.")
        if list(self.levels) != sorted(set(self.levels)) or not all(0 < x < 1 for x in self.levels):
            raise ValuesError(f"levels {self.levels} of an interval do not ascend between 0 and 1.")

    @property
    def _is_finite(self) -> bool:
        parts = (self.centre, self.scale, *(part for layer in self.layers for part in layer))
        return all(bool(torch.isfinite(part).all()) for part in parts) and bool(
            (self.scale > 0).all()
        )

    def reach(self, features: Tensor, levels: int | None = None) -> tuple[Tensor, Tensor]:
        """`(K, N)` → how far above and below at the first `levels`, each `(levels, N)`, positive.

        Values lie side by side, not one below the other: products of such narrow matrices are
        several times faster that way.
        """
        hidden = (features - self.centre[:, None]).div_(self.scale[:, None])
        hidden.clamp_(-BEYOND, BEYOND)
        *inner, (weight, bias) = self.layers
        for one, offset in inner:
            hidden = F.silu(torch.addmm(offset[:, None], one, hidden), inplace=True)
        reach = _ascending(torch.addmm(bias[:, None], weight, hidden), levels)
        above, below = reach.mul_(self.contrast).exp_()
        return above, below

    def to_record(self) -> dict[str, Any]:
        """Plain numbers, with a hash of them."""
        record = {
            "names": list(self.names),
            "levels": list(self.levels),
            "centre": _plain(self.centre),
            "scale": _plain(self.scale),
            "layers": [[_plain(weight), _plain(bias)] for weight, bias in self.layers],
            "contrast": self.contrast,
        }
        return {**record, "sha256": _hash(record)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> WidthHead:
        """Read what `to_record` wrote; raises `ValueError` where it is damaged."""
        numbers = {key: value for key, value in record.items() if key != "sha256"}
        if _hash(numbers) != record["sha256"]:
            raise ValuesError("the regressor's numbers are not those that were fitted")
        return cls(
            tuple(str(name) for name in record["names"]),
            tuple(float(level) for level in record["levels"]),
            torch.tensor(record["centre"], dtype=torch.float32),
            torch.tensor(record["scale"], dtype=torch.float32),
            tuple(
                (torch.tensor(w, dtype=torch.float32), torch.tensor(b, dtype=torch.float32))
                for w, b in record["layers"]
            ),
            float(record["contrast"]),
        )


def fit_head(
    features: Tensor,
    errors: Tensor,
    weight: Tensor,
    names: Sequence[str],
    levels: Sequence[float],
    *,
    steps: int = STEPS,
    seed: int = 0,
    progress: Progress | None = None,
) -> WidthHead:
    """Fit to `features (N, K)` and `errors (N,)`: truth − estimate over the brightness.

    weight: how often each value is drawn, relative to others, `(N,)`.
    """
    generator = torch.Generator().manual_seed(seed)
    scale, centre = torch.std_mean(features, 0)
    # A feature that never changed says nothing, and must not explode where it does for once.
    scale = torch.where(scale > 1e-3, scale, torch.ones_like(scale))
    net = _network(features.shape[1], len(levels), generator)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, steps)
    tails = (1 + torch.tensor(levels)[:, None]) / 2
    upto = weight.cumsum(0, dtype=torch.float64)
    for done in range(steps):
        drawn = torch.rand(BATCH, generator=generator, dtype=torch.float64) * upto[-1]
        chosen = torch.searchsorted(upto, drawn).clamp_max(len(errors) - 1)
        seen = ((features[chosen] - centre) / scale).clamp(-BEYOND, BEYOND)
        reaches = _ascending(net(seen).T)
        loss = torch.zeros(())
        for reach, error in zip(reaches, (errors[chosen], -errors[chosen]), strict=True):
            beyond = error.clamp_min(LEAST).log() - reach
            loss = loss + torch.maximum(tails * beyond, (tails - 1) * beyond).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        if progress is not None and done % 100 == 99:
            progress(done + 1, steps, {})
    layers = tuple(
        (_rounded(part.weight), _rounded(part.bias)) for part in net if isinstance(part, nn.Linear)
    )
    return WidthHead(tuple(names), tuple(levels), _rounded(centre), _rounded(scale), layers)


def _network(inputs: int, levels: int, generator: torch.Generator) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):  # the state of others is not ours to change
        net = _layers(inputs, levels)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                bound = 1 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.zero_()
        last = net[-1]
        assert isinstance(last, nn.Linear)
        last.weight.mul_(0.3)
        # Errors of a few per cent to begin with.
        last.bias.view(2, levels)[:, 0] = -4.0
    return net


def _layers(inputs: int, levels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
        nn.Linear(HIDDEN, 2 * levels),
    )  # fmt: skip


def _ascending(outputs: Tensor, levels: int | None = None) -> Tensor:
    """Two outputs per level, `(2 · all, N)` → logarithms of the reach above and below at the first
    `levels`, `(2, levels, N)`, ascending."""
    pairs = outputs.reshape(2, -1, outputs.shape[-1])[:, :levels]
    return torch.cat([pairs[:, :1], F.softplus(pairs[:, 1:])], 1).cumsum(1)


def _rounded(values: Tensor) -> Tensor:
    """As they will be stored, so that a fit and its file give the same interval."""
    return torch.tensor(_plain(values.detach()), dtype=torch.float32)


def _plain(values: Tensor) -> Any:
    """Nested lists of numbers with six digits."""
    if values.ndim:
        return [_plain(row) for row in values]
    return float(f"{float(values):.6g}")


def _hash(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
