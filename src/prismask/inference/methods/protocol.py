"""What a method is: any way from a snapshot to a cube.

Networks (`methods.network`), solvers and Python functions are methods, and so is
whatever is registered (`methods.registry`). `reconstruct`, folders, the web page, `evaluate`,
`stress`, `analyse` and the fitting of intervals all call the same method, so what is scored is what
is delivered. A method owns everything between the camera at hand and what it computes with: a
network that knows one orientation and one brightness brings snapshots there and its cube back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.checks import size_text
from prismask.errors import ShapeError
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.options import DEFAULTS, Options
from prismask.optics.camera import CASSI
from prismask.progress import Progress
from prismask.wording import Finding

if TYPE_CHECKING:
    from prismask.inference.alignment.search import Probe
    from prismask.inference.intervals.evidence import Evidence, Verdict

Array = NDArray[np.float32]

Capability = Literal[
    "samples", "align", "adapt", "interval", "mask_std", "uncertain_mask", "bad_pixels", "half"
]  # fmt: skip
"""What a method may be able to do besides giving a cube.

samples: draw masks around the given one (`Options.samples`).
align: find the pose of a mask (`Aligner.align`).
adapt: learn the scene before it gives its cube (`Options.adapt`).
interval: give calibrated error bars.
mask_std: say how wrong a mask may be.
uncertain_mask: make use of how wrong a mask may be (`Options.mask_std`).
bad_pixels: leave single pixels of the sensor out (`Snapshot.bad`).
half: compute in half precision (`Options.precision`).
"""
Capabilities = frozenset[Capability]


@dataclass(frozen=True, eq=False)
class Estimate:
    """A cube `(C, H, W)` and what goes with it, in the units of the snapshot's signal."""

    values: Array
    std: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()
    evidence: Evidence | None = None
    """What its interval was made from, where that is learned."""
    verdict: Verdict | None = None
    """How far to trust it, where its method has a rule for that."""


class Method(Protocol):
    """A way to reconstruct."""

    name: str

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; there is no other way to find out."""

    def identity(self, options: Options = DEFAULTS) -> dict[str, Any]:
        """What distinguishes this method, with these options, from others, for the recipe."""

    def check(self, options: Options) -> None:
        """Raise `ConfigError` where it cannot do what the options want, before anything runs."""

    def __call__(
        self, snapshot: Snapshot, options: Options = DEFAULTS, progress: Progress | None = None
    ) -> Estimate:
        """Reconstruct one snapshot."""

    def batch(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, options: Options = DEFAULTS
    ) -> Tensor:
        """The same numbers for many snapshots through one mask, without their history.

        `measurement (B, H, L)`, as the camera took it, and `mask (1, 1|C, H, W)` → cubes
        `(B, C, H, W)` float32, all on the measurement's device.
        """

    def work(self, camera: CASSI, scene: tuple[int, int]) -> tuple[int | None, int | None]:
        """Learnable values, and multiply-adds for one scene `(H, W)`; None: cannot be counted."""


class Aligner(Method, Protocol):
    """A method with the capability `align`."""

    def probe(self, snapshot: Snapshot, options: Options = DEFAULTS) -> Probe | None:
        """Whether the snapshot contradicts its mask; None where it cannot tell, or need not."""

    def align(self, snapshot: Snapshot, progress: Progress | None = None) -> Any:
        """The pose of the mask that explains the snapshot best, an `alignment.search.Alignment`."""


def one_by_one(
    method: Method, measurement: Tensor, mask: Tensor, camera: CASSI, options: Options
) -> Tensor:
    """`batch` for a method, or for options, that take one snapshot at a time."""
    ready = prepare(measurement, mask, camera, options)
    cubes = [torch.from_numpy(method(one, options).values) for one in ready.snapshots()]
    return torch.stack(cubes).to(measurement.device)


def check_cubes(cubes: object, measurement: Tensor, camera: CASSI, name: str) -> Tensor:
    """Raise unless a method gave cubes of the right size for `measurement (B, H, L)`."""
    scene = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
    wanted = (measurement.shape[0], camera.bands, *scene)
    if not isinstance(cubes, Tensor) or tuple(cubes.shape) != wanted:
        came = size_text(cubes.shape) if isinstance(cubes, Tensor) else type(cubes)
        raise ShapeError(
            f"{name} gave {came}; a model returns cubes (B, C, H, W), here {size_text(wanted)}."
        )
    return cubes
