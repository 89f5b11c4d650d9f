"""The settings of an evaluation, once for Python, the command line and the record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from prismask.checks import choose, nearest
from prismask.errors import ConfigError
from prismask.evaluation.protocol.splits import PROTOCOLS
from prismask.evaluation.run.precision import PRECISIONS, Precision
from prismask.evaluation.run.trials import BATCH
from prismask.inference.options import Options


@dataclass(frozen=True)
class Settings:
    """Options of an evaluation or a stress test."""

    protocol: str = "many-to-many"
    """one-to-one, one-to-many or many-to-many."""
    trials: int = 100
    """Masks per group; one-to-one has one."""
    seed: int = 0
    """Draws masks and noise and starts fresh networks."""
    metrics: tuple[str, ...] = ()
    """Names of `evaluation.metrics.METRICS`; empty: all."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 …"""
    precision: Precision = "auto"
    """Of networks: auto takes half precision on a GPU where it moves no PSNR by 0.005 dB."""
    batch: int = BATCH
    """Scenes that go through a model at once."""
    noise: float = 0.0
    """Measurement noise: std on 2/C times the snapshot, so relative to the cube's range; seeded."""
    workers: int = 1
    """Processes."""
    threads: int | None = None
    """CPU threads per process; None shares the cores out."""
    dask: str | None = None
    """Address of a Dask scheduler, or "local"."""
    timing: bool = True
    """Whether each method is timed by itself at the end."""
    allow_overlap: bool = False
    """Whether a model may be tested on what it was trained on; it is marked then."""
    resample: bool = False
    """Whether scenes may be brought to the bands of the models, or of the camera."""
    align: bool = False
    """Whether the pose of the mask is found from every snapshot first, as by `reconstruct`."""
    adapt: int = 0
    """Steps in which networks learn every scene first, likewise."""

    def __post_init__(self) -> None:
        from prismask.evaluation.metrics import METRICS

        choose(self.protocol, PROTOCOLS, "protocol")
        choose(self.precision, PRECISIONS, "precision")
        names = tuple(choose(name, METRICS, "metric") for name in self.metrics) or tuple(METRICS)
        object.__setattr__(self, "metrics", names)
        for name in ("trials", "batch", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; at least 1 is needed.")
        if self.adapt < 0:
            raise ConfigError(f"adapt is {self.adapt} steps; 0 leaves networks as they are.")
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise is {self.noise:g}; it must be 0 (none) or more, and finite.")

    @property
    def options(self) -> Options:
        """What every model is to do with every snapshot."""
        return Options(align=self.align, adapt=self.adapt, check_mask=False)


def with_options(settings: Settings | None, options: Mapping[str, Any]) -> Settings:
    """Settings with some of them changed; an unknown name is an error with a suggestion."""
    known = [field.name for field in fields(Settings)]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"there is no option {name!r}.{nearest(name, known)} Known: {', '.join(known)}."
            )
    one_metric = isinstance(options.get("metrics"), str)
    changes = {**options, "metrics": (options["metrics"],)} if one_metric else options
    return replace(settings or Settings(), **changes)
