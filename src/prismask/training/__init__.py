"""Training: configuration, crops, the bilevel loop, exact checkpoints.

`prismask.train` adds the validation, which lives further right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.training.config import TrainConfig as TrainConfig
    from prismask.training.config import read_config as read_config
    from prismask.training.config import to_toml as to_toml
    from prismask.training.config import with_changes as with_changes
    from prismask.training.run import Outcome as Outcome
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "config": ["TrainConfig", "read_config", "to_toml", "with_changes"],
            "run": ["Outcome"],
        },
    )
