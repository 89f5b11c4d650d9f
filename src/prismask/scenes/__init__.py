"""Scenes: records, files, data sets, synthetic scenes, colour and spectra. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.scenes.colour import auto_exposure as auto_exposure
    from prismask.scenes.colour import to_srgb as to_srgb
    from prismask.scenes.conversion import as_cube as as_cube
    from prismask.scenes.conversion import as_mask as as_mask
    from prismask.scenes.conversion import as_measurement as as_measurement
    from prismask.scenes.formats.contents import ReadLimits as ReadLimits
    from prismask.scenes.formats.files import describe as describe
    from prismask.scenes.formats.files import load as load
    from prismask.scenes.formats.files import load_cube as load_cube
    from prismask.scenes.formats.files import load_mask as load_mask
    from prismask.scenes.formats.files import load_measurement as load_measurement
    from prismask.scenes.formats.files import save as save
    from prismask.scenes.libraries import MaterialMap as MaterialMap
    from prismask.scenes.libraries import SpectralLibrary as SpectralLibrary
    from prismask.scenes.libraries import load_library as load_library
    from prismask.scenes.records import Cube as Cube
    from prismask.scenes.records import Mask as Mask
    from prismask.scenes.records import Measurement as Measurement
    from prismask.scenes.regions import Polygon as Polygon
    from prismask.scenes.regions import Region as Region
    from prismask.scenes.spectra import Spectrum as Spectrum
    from prismask.scenes.synthetic.demo import demo_scene as demo_scene
    from prismask.scenes.synthetic.demo import random_scene as random_scene
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "colour": ["auto_exposure", "to_srgb"],
            "conversion": ["as_cube", "as_mask", "as_measurement"],
            "formats.files": [
                "describe",
                "load",
                "load_cube",
                "load_mask",
                "load_measurement",
                "save",
            ],
            "formats.contents": ["ReadLimits"],
            "libraries": ["MaterialMap", "SpectralLibrary", "load_library"],
            "records": ["Cube", "Mask", "Measurement"],
            "regions": ["Polygon", "Region"],
            "spectra": ["Spectrum"],
            "synthetic.demo": ["demo_scene", "random_scene"],
        },
    )
