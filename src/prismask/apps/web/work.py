"""From two checked files to a cube: runs in the worker process, never in the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.apps.cli.camera_options import CameraOptions
from prismask.apps.web.process import Report
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.inference.options import Options
    from prismask.inference.reconstruct import Reconstruction

SNAPSHOT, MASK, CUBE = "snapshot.nc", "mask.nc", "cube.nc"
"""Names in the folder of a job."""


@dataclass(frozen=True)
class Order:
    """What somebody asked for. Weights are a path of the server's own, never of a visitor's."""

    method: str | None = None
    model: Path | None = None
    samples: int = 0
    iterations: int | None = None
    level: float = 0.9
    seed: int = 0
    camera: CameraOptions = field(default_factory=CameraOptions)
    """In numbers only: none of it is the name of a file."""
    device: str = "auto"
    align: bool = False
    adapt: int = 0

    def options(self) -> Options:
        """As the library takes them; options that contradict each other raise."""
        from prismask.inference.options import Options

        changes = {} if self.iterations is None else {"iterations": self.iterations}
        model = None if self.model is None else str(self.model)
        return Options(
            method=self.method, model=model, samples=self.samples, level=self.level,
            seed=self.seed, device=self.device, align=self.align, adapt=self.adapt,
        ).with_changes(changes)  # fmt: skip


def reconstruct(report: Report, folder: str, order: Order, most_values: int) -> dict[str, Any]:
    """Reconstruct the snapshot in `folder` and write the cube beside it."""
    from prismask.scenes.formats.files import load_mask, load_measurement, save

    here = Path(folder)
    measurement, mask = load_measurement(here / SNAPSHOT), load_mask(here / MASK)
    ready = _ready(order.options())
    camera, _ = ready.camera_for(measurement, mask, order.camera.description())
    count = camera.bands * mask.size[0] * mask.size[1]
    if count > most_values:
        raise ConfigError(
            f"the cube would hold {count:,} values; at most {most_values:,} are made here. Crop "
            "the snapshot, or use `prismask reconstruct` on your own machine."
        )
    cube = ready.run(
        measurement, mask, camera, order.camera.wavelength_list(),
        lambda done, total, _: report(int(done), int(total)),
    )  # fmt: skip
    save(cube, here / CUBE)
    return {
        "findings": [str(line) for line in cube.attrs.get("findings", [])],
        "residual": str(cube.attrs.get("residual", "")),
    }


@lru_cache(maxsize=2)
def _ready(options: Options) -> Reconstruction:
    """Network and device, prepared once a process."""
    from prismask.inference.reconstruct import Reconstruction

    return Reconstruction(options)
