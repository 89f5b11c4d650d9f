"""Where the numbers of a report come from: commands, commits, versions, seeds, hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismask.evaluation.metrics import METRICS
from prismask.evaluation.report.document import Block, Listing, Section, Table
from prismask.evaluation.report.sources import Source, Sources


def provenance_sections(found: Sources) -> list[Section]:
    """Sources, models and conventions."""
    blocks: list[Block] = [_sources(found), _models(found)]
    if found.problems:
        blocks += [Listing([f"could not be read: {problem}" for problem in found.problems])]
    conventions = _conventions(found)
    sections = [Section("Provenance", blocks)]
    if conventions:
        sections.append(Section("Conventions", [Listing(conventions)]))
    return sections


def _all(found: Sources) -> list[tuple[str, Source]]:
    kinds = (("evaluation", found.evaluations), ("stress test", found.stresses),
             ("analysis", found.analyses))  # fmt: skip
    return [(kind, source) for kind, sources in kinds for source in sources]


def _sources(found: Sources) -> Table:
    rows = []
    for kind, source in _all(found):
        record = source.record
        versions = record.get("versions") or {}
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        masks = ", ".join(
            f"{name} {group['masks']['id']} ({len(group['masks']['masks'])})"
            for name, group in record["groups"].items()
        )
        scenes = ", ".join(f"{name} {digest}" for name, digest in record["scenes"].items())
        rows.append(
            [source.name, kind, str(record.get("protocol")), str(record.get("seed")),
             str(record.get("device_name", "?")), str(record.get("commit", "?")),
             _started(record), listed, masks, scenes]
        )  # fmt: skip
    for name in found.trainings:
        rows.append([name, "training", *("–",) * 8])
    header = ["source", "what", "protocol", "seed", "device", "commit", "started", "versions",
              "mask sets (masks)", "scenes and their hashes"]  # fmt: skip
    return Table("What this page was made from.", header, rows)


def _started(record: Mapping[str, Any]) -> str:
    sessions = record.get("sessions") or [{}]
    return str(record.get("started") or sessions[0].get("started") or "?")


def _models(found: Sources) -> Table:
    rows: dict[tuple[str, ...], None] = {}
    for _, source in _all(found):
        for label, facts in source.record["models"].items():
            row = (label, str(facts["kind"]), str(facts["trained_on"]), str(facts["precision"]),
                   _short(str(facts["identity"])))  # fmt: skip
            rows[row] = None
    header = ["model", "what", "trained on masks", "precision", "identity (SHA-256 or options)"]
    return Table("Models.", header, [list(row) for row in rows])


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"


def _conventions(found: Sources) -> list[str]:
    names = dict.fromkeys(
        name for _, source in _all(found) for name in source.record.get("metrics") or ()
    )
    return [f"{METRICS[name].label}: {METRICS[name].convention}." for name in names
            if name in METRICS]  # fmt: skip
