"""The evaluations that a join puts together: read from their folders, held against each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismask.errors import ConfigError, FormatError
from prismask.evaluation.run.runs import RECORD, read_run
from prismask.evaluation.tables.files import read_scores

SAME = ("kind", "protocol", "scenes", "camera", "size", "noise", "seed")
"""What runs must share for their measurements to be the same."""

Values = dict[str, list[float]]
"""Metric → value of each scene."""


@dataclass(frozen=True)
class Part:
    """One of the evaluations, as it is read from its folder."""

    folder: Path
    record: Mapping[str, Any]
    labels: Mapping[str, str]
    """What the joined table calls each of its models that is taken."""
    scores: Mapping[tuple[str, str, int], Values]
    """`(model, group, trial)` → values, by the part's own labels."""
    seconds: Mapping[tuple[str, str, int], float]
    """The same for seconds a sample."""


def read_finished(folder: Path) -> dict[str, Any]:
    """The record of a folder, if it is that of a finished evaluation."""
    record = read_run(folder)
    if record.get("kind") != "evaluation":
        raise ConfigError(
            f"{folder} holds a {record.get('kind')} test; only evaluations are joined."
        )
    if record.get("finished") is None:
        raise ConfigError(f"{folder} is not finished. Give its command again with --resume.")
    return record


def check_same(
    first: Path, wanted: Mapping[str, Any], folder: Path, record: Mapping[str, Any]
) -> None:
    """Raise unless both measured the same."""
    for key in SAME:
        if record.get(key) != wanted.get(key):
            raise ConfigError(
                f"{folder} and {first} differ in {key}: they did not measure the same. Evaluate "
                "again with the same scenes, camera, --seed and --noise."
            )


def common_trials(paths: Sequence[Path], records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Group → trials that all have; their masks must be the same ones."""
    trials: dict[str, int] = {}
    for name in records[0]["groups"]:
        if not all(name in record["groups"] for record in records):
            continue
        listed = [
            [entry["mask_id"] for entry in record["groups"][name]["masks"]["masks"]]
            for record in records
        ]
        count = min(len(ids) for ids in listed)
        for path, ids in zip(paths[1:], listed[1:], strict=True):
            if ids[:count] != listed[0][:count]:
                raise ConfigError(
                    f"{path} and {paths[0]} drew different masks of {name}: the mask file or the "
                    "split has changed between them. Evaluate one of them again."
                )
        trials[name] = count
    if not trials:
        raise ConfigError("these evaluations have no group of masks in common.")
    return trials


def labels_of(paths: Sequence[Path], records: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What each part's models are called in the joined table; those already there are left out."""
    taken: dict[str, tuple[str, str]] = {}
    found: list[dict[str, str]] = []
    for path, record in zip(paths, records, strict=True):
        here: dict[str, str] = {}
        for label, facts in record["models"].items():
            identity = (facts["identity"], facts["precision"])
            # An earlier join may have put a folder's name behind it.
            if any(
                one == identity and (name == label or name.startswith(f"{label} ("))
                for name, one in taken.items()
            ):
                continue
            name = label if label not in taken else f"{label} ({path.resolve().name})"
            if name in taken:
                raise ConfigError(
                    f"{label!r} of {path} stands for a network other than {name!r} of a folder "
                    "before it. Rename one of the folders."
                )
            taken[name] = identity
            here[label] = name
        found.append(here)
    return found


def read_part(
    folder: Path,
    record: Mapping[str, Any],
    labels: Mapping[str, str],
    trials: Mapping[str, int],
    metrics: Sequence[str],
) -> Part:
    """Those of its scores that the joined table takes; all of them have to be there."""
    scenes = {scene: place for place, scene in enumerate(record["scenes"])}
    scores: dict[tuple[str, str, int], Values] = {}
    seconds: dict[tuple[str, str, int], float] = {}
    masks = {
        (name, trial): entry["mask_id"]
        for name, group in record["groups"].items()
        for trial, entry in enumerate(group["masks"]["masks"])
    }
    count = 0
    for row in read_scores(folder):
        group, trial = row["group"], row["trial"]
        if trial >= trials.get(group, 0) or row["model"] not in labels:
            continue
        if row["metric"] not in metrics:
            continue
        if masks.get((group, trial)) != row["mask_id"] or row["scene"] not in scenes:
            raise FormatError(f"{folder}: its scores are not those that its {RECORD} speaks of.")
        key = (row["model"], group, trial)
        if key not in scores:
            scores[key] = {metric: [math.nan] * len(scenes) for metric in metrics}
            seconds[key] = row["seconds"]
        scores[key][row["metric"]][scenes[row["scene"]]] = row["value"]
        count += 1
    if count != len(labels) * sum(trials.values()) * len(metrics) * len(scenes):
        raise FormatError(f"{folder}: its table of scores is not complete.")
    return Part(folder, record, labels, scores, seconds)
