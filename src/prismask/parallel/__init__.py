"""Sharing tasks out: in this process, to several on this machine, or to a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.parallel.workers import Workers as Workers
    from prismask.parallel.workers import run_tasks as run_tasks
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "workers": ["Workers", "run_tasks"],
        },
    )
