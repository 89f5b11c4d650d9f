"""Evaluation: metrics, protocols, statistics, analyses, figures, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismask.lazy import lazy_names

if TYPE_CHECKING:
    from prismask.evaluation.analyses.runner import analyse as analyse
    from prismask.evaluation.metrics import METRICS as METRICS
    from prismask.evaluation.run.plan import Settings as Settings
    from prismask.evaluation.run.runner import Evaluation as Evaluation
    from prismask.evaluation.run.runner import evaluate as evaluate
    from prismask.evaluation.run.runner import stress as stress
    from prismask.evaluation.run.training import train as train
    from prismask.evaluation.scoring import score as score
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "analyses.runner": ["analyse"],
            "metrics": ["METRICS"],
            "run.plan": ["Settings"],
            "run.runner": ["Evaluation", "evaluate", "stress"],
            "run.training": ["train"],
            "scoring": ["score"],
        },
    )
