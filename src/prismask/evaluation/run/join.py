"""Evaluations that were made apart, in one table and compared trial by trial.

What makes two scores comparable is the measurement, and that is a function of the scene, the mask,
the camera, and the seed and strength of the noise. All of these are in a run's record and in its
table of scores, so networks can be compared whose weights are no longer there, or in another
laboratory: their `run.json` and `scores.csv` (or `.parquet`) are enough.
They are read from their folders and held against each other before anything is joined.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prismask.errors import ConfigError, FormatError, OutputExistsError
from prismask.evaluation.run.runner import write_tables
from prismask.evaluation.run.runs import RUN
from prismask.evaluation.tables import markdown
from prismask.evaluation.tables.summaries import (
    COLUMNS,
    MOST_FAILURES,
    Failure,
    Row,
    Summary,
    Tally,
    read_scores,
)
from prismask.parallel.ownership import owned

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
    """The same for seconds per sample."""


def read_finished(folder: Path) -> dict[str, Any]:
    """The record of a folder, if it is that of a finished evaluation."""
    record = RUN.read(folder)
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
                f"{folder} and {first} differ in {key}: they did not measure the same thing. "
                "Evaluate again with the same scenes, camera, --seed and --noise."
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
            # An earlier join may have added a folder's name to it.
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
            raise FormatError(f"{folder}: its scores are not those that its {RUN.name} describes.")
        key = (row["model"], group, trial)
        if key not in scores:
            scores[key] = {metric: [math.nan] * len(scenes) for metric in metrics}
            seconds[key] = row["seconds"]
        scores[key][row["metric"]][scenes[row["scene"]]] = row["value"]
        count += 1
    if count != len(labels) * sum(trials.values()) * len(metrics) * len(scenes):
        raise FormatError(f"{folder}: its table of scores is not complete.")
    return Part(folder, record, labels, scores, seconds)


def join(folders: Sequence[str | Path], out: str | Path) -> str:
    """Put finished evaluations into one, in the folder `out`; gives its summary in Markdown.

    Trials and groups that all of them have are kept. A model that is in several under one label is
    taken from the first; one label that stands for two models gets the folder's name added to it.
    """
    if len(folders) < 2:
        raise ConfigError("name at least two folders of evaluations to join.")
    with owned(Path(out), "a join of evaluations"):
        return _joined([Path(folder) for folder in folders], Path(out))


def _joined(paths: Sequence[Path], out: Path) -> str:
    if (out / RUN.name).exists():
        raise OutputExistsError(f"{out} holds {RUN.one} already. Choose another --out.")
    records = [read_finished(path) for path in paths]
    for path, record in zip(paths[1:], records[1:], strict=True):
        check_same(paths[0], records[0], path, record)
    trials = common_trials(paths, records)
    shared = set.intersection(*(set(record["metrics"]) for record in records))
    metrics = [metric for metric in records[0]["metrics"] if metric in shared]
    if not metrics:
        raise ConfigError("these evaluations have no metric in common.")
    parts = [
        read_part(path, record, labels, trials, metrics)
        for path, record, labels in zip(paths, records, labels_of(paths, records), strict=True)
    ]
    summary = _summary(parts, trials, metrics)
    record = _record(parts, trials, metrics, summary)
    text = markdown.evaluation_text(record, summary)
    write_tables(out, COLUMNS, _rows(parts, record), summary, text)
    RUN.write(out, record)
    return text


def _summary(parts: Sequence[Part], trials: Mapping[str, int], metrics: Sequence[str]) -> Summary:
    summary = Summary(same_measurements=_same_bits([part.record for part in parts]))
    names = [name for part in parts for name in part.labels.values()]
    for group, count in trials.items():
        tally = Tally(names, list(parts[0].record["scenes"]), metrics)
        for trial in range(count):
            values = {
                name: part.scores[label, group, trial]
                for part in parts
                for label, name in part.labels.items()
            }
            tally.add(values)
            for failure in _failures(parts, group, trial, metrics[0]):
                summary.failed += 1
                if len(summary.failures) < MOST_FAILURES:
                    summary.failures.append(failure)
        summary.rows += tally.rows(group, _verdicts(parts, group))
        summary.paired += tally.paired_rows(group)
    for part in parts:
        for label, name in part.labels.items():
            times = [value for (model, *_), value in part.seconds.items() if model == label]
            summary.seconds[name] = math.fsum(times) / len(times)
    return summary


def _failures(parts: Sequence[Part], group: str, trial: int, metric: str) -> Iterator[Failure]:
    """The failures of one trial, by the joined names, with the reasons that the records give."""
    for part in parts:
        mask_id = part.record["groups"][group]["masks"]["masks"][trial]["mask_id"]
        for label, name in part.labels.items():
            values = part.scores[label, group, trial][metric]
            for scene, value in zip(part.record["scenes"], values, strict=True):
                if math.isnan(value):
                    known = Failure(label, group, trial, mask_id, scene, "")
                    reasons = (t for t in part.record["failures"] if t.startswith(str(known)))
                    reason = (
                        next(reasons, "").removeprefix(str(known)) or "its record does not say why"
                    )
                    yield replace(known, model=name, reason=reason)


def _same_bits(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether measurements agree to the last bit: on one kind of machine, in one batch size."""
    machines = {(record.get("device_name"), record.get("batch")) for record in records}
    return len(machines) == 1 and all(record.get("same_measurements") for record in records)


def _verdicts(parts: Sequence[Part], group: str) -> dict[str, str]:
    return {
        name: part.record["groups"][group]["overlap"][label]
        for part in parts
        for label, name in part.labels.items()
    }


def _record(
    parts: Sequence[Part], trials: Mapping[str, int], metrics: Sequence[str], summary: Summary
) -> dict[str, Any]:
    """A record like that of one evaluation, with the parts' own provenance under `joined`."""
    first = parts[0].record
    # Speeds of different machines do not belong side by side.
    timed = [part for part in parts if part.record.get("device_name") == first.get("device_name")]
    return {
        **{key: first[key] for key in ("format", *SAME)},
        "metrics": list(metrics),
        "batch": first["batch"],
        "device": first["device"],
        "trials": dict(trials),
        "wavelengths_nm": first["wavelengths_nm"],
        "conventions": {metric: first["conventions"][metric] for metric in metrics},
        "groups": {
            name: {
                "text": first["groups"][name]["text"],
                "masks": _masks(parts, name, count),
                "overlap": _verdicts(parts, name),
            }
            for name, count in trials.items()
        },
        "models": _renamed(parts, "models"),
        "remarks": list(dict.fromkeys(r for part in parts for r in part.record["remarks"])),
        "estimated_peaks": first["estimated_peaks"],
        "versions": first["versions"],
        "commit": _all_of(parts, "commit"),
        "device_name": _all_of(parts, "device_name"),
        "sessions": [session for part in parts for session in part.record["sessions"]],
        "costs": _renamed(timed, "costs"),
        "seconds_per_sample_in_run": summary.seconds,
        "same_measurements": summary.same_measurements,
        "failed": summary.failed,
        "failures": [str(failure) for failure in summary.failures],
        "joined": [_provenance(part) for part in parts],
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _masks(parts: Sequence[Part], group: str, count: int) -> dict[str, Any]:
    """The list of the part that has just these masks: `count` is the fewest."""
    listed = (part.record["groups"][group]["masks"] for part in parts)
    return next(dict(masks) for masks in listed if len(masks["masks"]) == count)


def _renamed(parts: Sequence[Part], key: str) -> dict[str, Any]:
    return {
        name: part.record[key][label]
        for part in parts
        for label, name in part.labels.items()
        if label in part.record[key]
    }


def _all_of(parts: Sequence[Part], key: str) -> str:
    return ", ".join(dict.fromkeys(str(part.record.get(key, "?")) for part in parts))


def _provenance(part: Part) -> dict[str, Any]:
    kept = ("commit", "versions", "device_name", "finished")
    return {
        "folder": part.folder.resolve().name,
        "models": list(part.labels.values()),
        **{key: part.record.get(key) for key in kept},
    }


def _rows(parts: Sequence[Part], record: Mapping[str, Any]) -> Iterator[Row]:
    """The long table: by model, group, trial, scene and metric, as in an evaluation."""
    for part in parts:
        for label, name in part.labels.items():
            for group, count in record["trials"].items():
                facts = record["groups"][group]
                for trial in range(count):
                    values = part.scores[label, group, trial]
                    mask_id = facts["masks"]["masks"][trial]["mask_id"]
                    seconds = part.seconds[label, group, trial]
                    for place, scene in enumerate(record["scenes"]):
                        for metric in record["metrics"]:
                            yield (
                                name, record["protocol"], group, trial, mask_id, scene, metric,
                                values[metric][place], seconds, facts["overlap"][name],
                            )  # fmt: skip
