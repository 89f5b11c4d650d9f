"""Prismask: hyperspectral cubes with honest error bars from one coded snapshot.

Names are imported when first used, because torch takes seconds to load and
`prismask --help` should not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from prismask.evaluation.run.runner import evaluate as evaluate
    from prismask.inference.reconstruct import reconstruct as reconstruct
    from prismask.optics.camera import CASSI as CASSI
    from prismask.optics.measured import measure_camera as measure_camera
    from prismask.scenes.formats.files import load as load
    from prismask.scenes.formats.files import load_cube as load_cube
    from prismask.scenes.formats.files import load_mask as load_mask
    from prismask.scenes.formats.files import load_measurement as load_measurement
    from prismask.scenes.formats.files import save as save
    from prismask.scenes.records import Cube as Cube
    from prismask.scenes.records import Mask as Mask
    from prismask.scenes.records import Measurement as Measurement

_HOMES = {
    "CASSI": "prismask.optics.camera",
    "Cube": "prismask.scenes.records",
    "Mask": "prismask.scenes.records",
    "Measurement": "prismask.scenes.records",
    "evaluate": "prismask.evaluation.run.runner",
    "load": "prismask.scenes.formats.files",
    "load_cube": "prismask.scenes.formats.files",
    "load_mask": "prismask.scenes.formats.files",
    "load_measurement": "prismask.scenes.formats.files",
    "measure_camera": "prismask.optics.measured",
    "reconstruct": "prismask.inference.reconstruct",
    "save": "prismask.scenes.formats.files",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'prismask' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
