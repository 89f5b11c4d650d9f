"""From two checked files to a cube: runs in the worker process, never in the server."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.apps.cli.camera_options import CameraOptions
from prismask.errors import ConfigError
from prismask.parallel.cage import Report
from prismask.wording import speaking_flags

if TYPE_CHECKING:
    from prismask.inference.options import Options
    from prismask.inference.reconstruct import Reconstruction

SNAPSHOT, MASK, CUBE, TRUTH = "snapshot.nc", "mask.nc", "cube.nc", "truth.nc"
"""Names in the folder of a job; the truth is there where the scene was drawn."""
SAMPLE_SEED = 4
SAMPLE_NOISE = 0.004
"""Of the drawn scene's snapshot, as a share of full scale: an ordinary camera."""


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
    noise_std: float | None = None
    """Of the snapshot, in counts or its own units; None: estimated from it."""
    dark: float | None = None
    """Of the snapshot, in counts or its own units; None: estimated from it."""
    mask_std: float | None = None
    """How far the mask may be wrong; None: what its file says, else the network estimates it."""
    bits: int | None = None
    """Of the sensor, if its counts came in a 16-bit file."""
    bad_pixels: str = "auto"
    check_mask: bool = True
    """Whether the mask is first looked for in the snapshot."""

    def facts(self) -> dict[str, Any]:
        """As plain data, for the worker."""
        return asdict(self) | {"model": None if self.model is None else str(self.model)}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Order:
        """The order that `facts` describe."""
        model = None if facts["model"] is None else Path(facts["model"])
        return cls(**facts | {"model": model, "camera": CameraOptions(**facts["camera"])})

    def options(self) -> Options:
        """As the library takes them; options that contradict each other raise."""
        from prismask.inference.options import Options

        changes = {} if self.iterations is None else {"iterations": self.iterations}
        model = None if self.model is None else str(self.model)
        return Options(
            method=self.method, model=model, samples=self.samples, level=self.level,
            seed=self.seed, device=self.device, align=self.align, adapt=self.adapt,
            noise_std=self.noise_std, dark=self.dark, mask_std=self.mask_std, bits=self.bits,
            bad_pixels=self.bad_pixels, check_mask=self.check_mask,
        ).with_changes(changes)  # fmt: skip


@speaking_flags()
def reconstruct(
    report: Report,
    folder: str,
    facts: dict[str, Any],
    most_values: int,
    drawn: tuple[int, int] | None,
) -> tuple[dict[str, Any], list[Any]]:
    """Reconstruct the snapshot in `folder` and write the cube beside it.

    facts: those of the order. drawn: the size of a scene to draw and photograph first.
    """
    from prismask.scenes.formats.files import load_mask, load_measurement, save

    here, order = Path(folder), Order.from_facts(facts)
    if drawn is not None:
        draw_sample(here, (drawn[0], drawn[1]))
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
    }, []


def draw_sample(here: Path, size: tuple[int, int]) -> None:
    """Draw a scene, photograph it through a fabricated mask, and write all three to a folder."""
    from prismask.optics.camera import CASSI
    from prismask.optics.fabricate import fabricate_mask
    from prismask.optics.randomness import seeded
    from prismask.optics.simulate import Gaussian, simulate
    from prismask.scenes.formats.files import save
    from prismask.scenes.records import Mask
    from prismask.scenes.synthetic.demo import random_scene

    scene = random_scene(SAMPLE_SEED, size)
    mask = Mask(fabricate_mask(size, seeded(SAMPLE_SEED)).numpy())
    save(scene, here / TRUTH)
    save(mask, here / MASK)
    shot = simulate(scene, mask, CASSI.from_step(scene.bands), Gaussian(SAMPLE_NOISE))
    save(shot, here / SNAPSHOT)


@lru_cache(maxsize=2)
def _ready(options: Options) -> Reconstruction:
    """Network and device, prepared once per process."""
    from prismask.inference.reconstruct import Reconstruction

    return Reconstruction(options)
