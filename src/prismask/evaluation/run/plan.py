"""What a run will compute: the workload, the cells in order, and what is known before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from prismask.evaluation.protocol.conditions import FAULT_KINDS
from prismask.evaluation.protocol.overlap import Verdict, trained_on
from prismask.evaluation.protocol.settings import Settings
from prismask.evaluation.run.cells import Cell
from prismask.evaluation.run.trials import Workload
from prismask.optics.simulate import camera_attrs

Condition = tuple[str, float, str]
"""Fault, size, mask given."""
NOTHING_WRONG: Condition = ("", 0.0, "nominal")


@dataclass(frozen=True, eq=False)
class Plan:
    """An evaluation or a stress test, ready to run."""

    kind: Literal["evaluation", "stress"]
    work: Workload
    conditions: Mapping[str, tuple[Condition, ...]]
    """What is tried in each group."""
    verdicts: Mapping[tuple[str, str], Verdict]
    """How training and test masks relate, by model and group."""
    settings: Settings
    device: torch.device
    remarks: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """What tables call it."""
        return self.settings.protocol if self.kind == "evaluation" else "stress"

    def cells(self) -> Iterator[Cell]:
        """All cells, all models of a trial together: what is finished is comparable."""
        for name, group in self.work.groups.items():
            for trial in range(len(group)):
                for condition in self.conditions[name]:
                    for model in self.work.contenders:
                        yield Cell(model, name, trial, *condition)

    def cells_of(self, model: str) -> Iterator[Cell]:
        """The cells of one model in the order of the table."""
        for name, group in self.work.groups.items():
            for condition in self.conditions[name]:
                for trial in range(len(group)):
                    yield Cell(model, name, trial, *condition)

    def shown_as(self, group: str, condition: Condition) -> tuple[Condition, ...]:
        """How tables show a condition: where nothing is wrong, every fault's curve begins."""
        if self.kind == "evaluation" or condition != NOTHING_WRONG:
            return (condition,)
        faults = dict.fromkeys(fault for fault, _, _ in self.conditions[group])
        return tuple(
            (fault, FAULT_KINDS[fault].neutral, "nominal")
            for fault in faults
            if fault in FAULT_KINDS
        )

    def count(self) -> int:
        """How many cells there are."""
        each = sum(
            len(group) * len(self.conditions[name]) for name, group in self.work.groups.items()
        )
        return each * len(self.work.contenders)

    def identity(self) -> dict[str, Any]:
        """What must be equal for cells of an earlier run to count in this one.

        Trials, groups and models may be added, so they are not part of it.
        """
        return {
            "kind": self.kind,
            "protocol": self.protocol,
            "seed": self.work.seed,
            "scenes": dict(self.work.scenes.hashes),
            "camera": camera_attrs(self.work.camera),
            "metrics": list(self.work.metrics),
            "noise": self.work.noise,
            "batch": self.work.batch,
            "device": self.device.type,
        }

    def models_record(self) -> dict[str, dict[str, Any]]:
        """Who is compared: kind, identity, training masks, precision."""
        return {
            label: {
                "kind": found.kind,
                "identity": found.identity,
                "network": "half" in found.capabilities,
                "trained_on": trained_on(found),
                "precision": "float16" if label in self.work.halves else "float32",
                "record": {
                    key: found.record[key]
                    for key in ("name", "backbone", "bands", "posterior", "masks", "data", "seed")
                    if key in found.record
                },
            }
            for label, found in self.work.contenders.items()
        }
