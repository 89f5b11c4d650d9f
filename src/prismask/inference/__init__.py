"""Inference: one snapshot or a folder, tiling, uncertainty.

`reconstruct`, which is also the name of its module, is imported from `prismask`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.inference.methods.protocol import Estimate as Estimate
    from prismask.inference.methods.protocol import Method as Method
    from prismask.inference.methods.registry import list_methods as list_methods
    from prismask.inference.methods.registry import register_method as register_method
    from prismask.inference.options import Options as Options
    from prismask.inference.reconstruct import Reconstruction as Reconstruction
    from prismask.inference.refinement.check import check_mask as check_mask
    from prismask.inference.refinement.refine import refine_mask as refine_mask
    from prismask.wording import Finding as Finding
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "methods.protocol": ["Estimate", "Finding", "Method"],
            "methods.registry": ["list_methods", "register_method"],
            "options": ["Options"],
            "reconstruct": ["Reconstruction"],
            "refinement.check": ["check_mask"],
            "refinement.refine": ["refine_mask"],
        },
    )
