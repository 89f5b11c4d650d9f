"""Optics: the CASSI operator, dispersion, masks and their faults, the sensor.

`simulate`, which is also the name of its module, is imported from `prismask`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.optics.camera import CASSI as CASSI
    from prismask.optics.camera import CameraDescription as CameraDescription
    from prismask.optics.camera import resolve_camera as resolve_camera
    from prismask.optics.fabricate import Aperture as Aperture
    from prismask.optics.fabricate import fabricate_mask as fabricate_mask
    from prismask.optics.faults import make_fault as make_fault
    from prismask.optics.masks import MaskRegion as MaskRegion
    from prismask.optics.masks import combine_calibrations as combine_calibrations
    from prismask.optics.measured import Curve as Curve
    from prismask.optics.measured import MeasuredCamera as MeasuredCamera
    from prismask.optics.measured import measure_camera as measure_camera
    from prismask.optics.measured import transmission as transmission
    from prismask.optics.noise import estimate_noise as estimate_noise
    from prismask.optics.simulate import Gaussian as Gaussian
    from prismask.optics.simulate import Quantise as Quantise
    from prismask.optics.simulate import Saturate as Saturate
    from prismask.optics.simulate import Sensor as Sensor
    from prismask.optics.simulate import ShotRead as ShotRead
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "camera": ["CASSI", "CameraDescription", "resolve_camera"],
            "fabricate": ["Aperture", "fabricate_mask"],
            "faults": ["make_fault"],
            "masks": ["MaskRegion", "combine_calibrations"],
            "measured": ["Curve", "MeasuredCamera", "measure_camera", "transmission"],
            "noise": ["estimate_noise"],
            "simulate": ["Gaussian", "Quantise", "Saturate", "Sensor", "ShotRead"],
        },
    )
