"""Prismask: hyperspectral cubes with honest error bars from one coded snapshot.

Names are imported when first used, because torch takes seconds to load and
`prismask --help` should not wait for it.

>>> import numpy as np
>>> import prismask
>>> mask = np.random.default_rng(0).random((32, 40))
>>> snapshot = prismask.simulate(prismask.demo_scene((32, 40)), mask)
>>> cube = prismask.reconstruct(snapshot, mask, method="gap-tv", iterations=5)
>>> cube
<Cube 28 bands × 32×40, 453–648 nm>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from prismask.errors import PrismaskError as PrismaskError
    from prismask.errors import PrismaskWarning as PrismaskWarning
    from prismask.evaluation.run.runner import evaluate as evaluate
    from prismask.evaluation.run.training import train as train
    from prismask.evaluation.scoring import score as score
    from prismask.inference.methods.registry import register_method as register_method
    from prismask.inference.options import Options as Options
    from prismask.inference.reconstruct import Reconstruction as Reconstruction
    from prismask.inference.reconstruct import reconstruct as reconstruct
    from prismask.models.registry import create_model as create_model
    from prismask.models.weights import load_model as load_model
    from prismask.optics.camera import CASSI as CASSI
    from prismask.optics.measured import measure_camera as measure_camera
    from prismask.optics.simulate import simulate as simulate
    from prismask.progress import progress_bar as progress_bar
    from prismask.scenes.formats.files import load as load
    from prismask.scenes.formats.files import load_cube as load_cube
    from prismask.scenes.formats.files import load_mask as load_mask
    from prismask.scenes.formats.files import load_measurement as load_measurement
    from prismask.scenes.formats.files import save as save
    from prismask.scenes.libraries import load_library as load_library
    from prismask.scenes.records import Cube as Cube
    from prismask.scenes.records import Mask as Mask
    from prismask.scenes.records import Measurement as Measurement
    from prismask.scenes.synthetic.demo import demo_scene as demo_scene
    from prismask.solvers.registry import create_solver as create_solver
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "errors": ["PrismaskError", "PrismaskWarning"],
            "evaluation.run.runner": ["evaluate"],
            "evaluation.run.training": ["train"],
            "evaluation.scoring": ["score"],
            "inference.methods.registry": ["register_method"],
            "inference.options": ["Options"],
            "inference.reconstruct": ["Reconstruction", "reconstruct"],
            "models.weights": ["load_model"],
            "models.registry": ["create_model"],
            "optics.camera": ["CASSI"],
            "optics.measured": ["measure_camera"],
            "optics.simulate": ["simulate"],
            "progress": ["progress_bar"],
            "scenes.formats.files": ["load", "load_cube", "load_mask", "load_measurement", "save"],
            "scenes.libraries": ["load_library"],
            "scenes.records": ["Cube", "Mask", "Measurement"],
            "scenes.synthetic.demo": ["demo_scene"],
            "solvers.registry": ["create_solver"],
        },
        also=["__version__"],
    )
