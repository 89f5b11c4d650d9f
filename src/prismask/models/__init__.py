"""Models: backbones, the self-tuning network, the mask posterior, registry, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.models.network import Reconstructor as Reconstructor
    from prismask.models.registry import create_model as create_model
    from prismask.models.registry import list_models as list_models
    from prismask.models.registry import register as register
    from prismask.models.weights import load_model as load_model
    from prismask.models.weights import load_weights as load_weights
    from prismask.models.weights import read_record as read_record
    from prismask.models.weights import save_weights as save_weights
    from prismask.models.weights import shipped as shipped
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "network": ["Reconstructor"],
            "registry": ["create_model", "list_models", "register"],
            "weights": ["load_model", "load_weights", "read_record", "save_weights", "shipped"],
        },
    )
