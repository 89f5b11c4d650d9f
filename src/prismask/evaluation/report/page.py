"""One page about everything a folder holds: `write_report(folder)`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismask.errors import ConfigError, OutputExistsError
from prismask.evaluation.figures.style import check_available
from prismask.evaluation.metrics import METRICS
from prismask.evaluation.report.analyses import analysis_sections
from prismask.evaluation.report.document import (
    Block,
    Listing,
    Page,
    Section,
    Table,
    Text,
    html_page,
    markdown_page,
)
from prismask.evaluation.report.models import model_sections, training_sections
from prismask.evaluation.report.scores import (
    coverage_sections,
    score_sections,
    spectra_sections,
    stress_sections,
)
from prismask.evaluation.report.sources import Sources, find_sources, headline_sections
from prismask.scenes.atomic import refuse_existing, write_beside

NAME = "report.html"


@dataclass(frozen=True)
class Report:
    """What was written."""

    page: Path
    """The HTML file."""
    tables: Path
    """The Markdown file beside it."""
    figures: tuple[Path, ...]
    """PNG files, where they are wanted."""
    missing: tuple[str, ...]
    """What the page says is missing."""


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    truth_pictures: bool = True,
    figures: str | Path | None = None,
    title: str = "",
    overwrite: bool = False,
) -> Report:
    """Write the page, and its tables as Markdown beside it.

    folder: looked through for evaluations, stress tests, tests of spectra, analyses and trainings.
    out: the HTML file; left out: report.html in the folder.
    truth_pictures: whether true cubes of the data set may be pictured; not for publishing.
    figures: a folder that gets every figure as a PNG, linked from the Markdown.
    """
    check_available()
    page_path = Path(out) if out is not None else Path(folder) / NAME
    if page_path.suffix not in (".html", ".htm"):
        raise ConfigError(f"{page_path} is no HTML file; its name has to end in .html.")
    tables_path = page_path.with_suffix(".md")
    for path in (page_path, tables_path):
        refuse_existing(path, overwrite)
    found = find_sources(folder)
    page = build_page(found, truth_pictures, title)
    page_path.parent.mkdir(parents=True, exist_ok=True)
    files = _write_figures(page, figures, page_path.parent, overwrite)
    links = {
        name: Path(os.path.relpath(path, page_path.parent)).as_posix()
        for name, path in files.items()
    }
    for path, text in ((tables_path, markdown_page(page, links)), (page_path, html_page(page))):
        with write_beside(path, overwrite=overwrite) as beside:
            beside.write_text(text, encoding="utf-8")
    return Report(page_path, tables_path, tuple(files.values()), tuple(missing_parts(found)))


def build_page(found: Sources, truth_pictures: bool = True, title: str = "") -> Page:
    """The report as blocks."""
    missing = missing_parts(found)
    sections = [*headline_sections(found.headline), _overview(found, missing)]
    for source in found.evaluations:
        sections += score_sections(source)
    sections += coverage_sections(found.evaluations)
    sections += model_sections(found)
    sections += stress_sections(found.stresses)
    sections += spectra_sections(found.spectra)
    for source in found.analyses:
        sections += analysis_sections(source, truth_pictures)
    sections += training_sections(found)
    sections += _provenance(found)
    lead = (
        "Every number carries the name of its convention; ± is one standard deviation over masks. "
        "What was not measured is listed in the overview."
    )
    return Page(title or "Evaluation report", lead, sections)


def missing_parts(found: Sources) -> list[str]:
    """What a full report has and this one has not, each with the command that makes it."""
    missing = []
    for parts, text in (
        (found.evaluations, "No evaluation: `prismask evaluate MODEL… --out DIR/many-to-many`."),
        (found.stresses, "No stress test: `prismask stress MODEL… --out DIR/stress`."),
        (found.spectra, "No test of spectra: `prismask spectra-test MODEL… --out DIR/spectra`."),
        (found.analyses, "No analyses (pictures, spectra, uncertainty): `prismask analyse MODEL… "
                         "--out DIR/analysis`."),
    ):  # fmt: skip
        if not parts:
            missing.append(text)
    have = {source.record["protocol"] for source in found.evaluations}
    if found.evaluations:
        missing += [
            f"No {protocol} evaluation: `prismask evaluate MODEL… --protocol {protocol}`."
            for protocol in ("one-to-one", "one-to-many", "many-to-many")
            if protocol not in have
        ]
    missing += [
        f"{source.name} is not finished: give its command again with `--resume`."
        for source in (*found.evaluations, *found.stresses, *found.spectra)
        if not source.is_finished
    ]
    return missing + found.problems


def _overview(found: Sources, missing: list[str]) -> Section:
    rows = []
    for kind, source in found.with_kinds:
        models = ", ".join(source.record["models"])
        count = str(len(source.record["scenes"]))
        rows.append([source.name, kind, str(source.record["protocol"]), count, models])
    rows += [[name, "training", "–", "–", "–"] for name in found.trainings]
    header = ["source", "what", "protocol", "scenes", "models"]
    blocks: list[Block] = [Table("What was found.", header, rows)]
    if missing:
        blocks += [Text("**Missing**, and therefore not on this page:"), Listing(missing)]
    return Section("Overview", blocks)


# --- where the numbers come from -----------------------------------------------------------------


def _provenance(found: Sources) -> list[Section]:
    """Sources, models and conventions."""
    blocks: list[Block] = [_source_table(found), _model_table(found)]
    if found.problems:
        blocks += [Listing([f"could not be read: {problem}" for problem in found.problems])]
    conventions = _conventions(found)
    sections = [Section("Provenance", blocks)]
    if conventions:
        sections.append(Section("Conventions", [Listing(conventions)]))
    return sections


def _source_table(found: Sources) -> Table:
    rows = []
    for kind, source in found.with_kinds:
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


def _model_table(found: Sources) -> Table:
    rows: dict[tuple[str, ...], None] = {}
    for _, source in found.with_kinds:
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
        name for _, source in found.with_kinds for name in source.record.get("metrics") or ()
    )
    return [f"{METRICS[name].label}: {METRICS[name].convention}." for name in names
            if name in METRICS]  # fmt: skip


# --- files ---------------------------------------------------------------------------------------


def _write_figures(
    page: Page, figures: str | Path | None, beside: Path, overwrite: bool
) -> dict[str, Path]:
    if figures is None:
        return {}
    folder = Path(figures)
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file; give the name of a folder for the figures.")
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for picture in page.pictures:
        path = folder / f"{picture.name}.png"
        with write_beside(path, overwrite=overwrite) as part:
            part.write_bytes(picture.png)
        files[picture.name] = path
    return files
