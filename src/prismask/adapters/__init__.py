"""Adapters: this camera and these methods for the tools that people use.

deepinv: `as_physics`, `as_reconstructor`, `as_denoiser`; napari: a reader, found by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.adapters.deepinv import as_denoiser as as_denoiser
    from prismask.adapters.deepinv import as_physics as as_physics
    from prismask.adapters.deepinv import as_reconstructor as as_reconstructor
    from prismask.adapters.napari import get_reader as get_reader
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "deepinv": ["as_denoiser", "as_physics", "as_reconstructor"],
            "napari": ["get_reader"],
        },
    )
