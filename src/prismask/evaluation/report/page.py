"""One page about everything a folder holds: `write_report(folder)`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prismask.errors import ConfigError, OutputExistsError
from prismask.evaluation.figures.style import check_available
from prismask.evaluation.report.analyses import analysis_sections
from prismask.evaluation.report.document import Block, Listing, Page, Section, Table, Text
from prismask.evaluation.report.models import model_sections
from prismask.evaluation.report.provenance import provenance_sections
from prismask.evaluation.report.render import html_page, markdown_page
from prismask.evaluation.report.scores import score_sections
from prismask.evaluation.report.sources import Sources, find_sources
from prismask.evaluation.report.stress import stress_sections
from prismask.evaluation.report.training import training_sections
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
    """PNG files, where they were asked for."""
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

    folder: looked through for evaluations, stress tests, analyses and trainings.
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
    links = {name: _link(path, page_path.parent) for name, path in files.items()}
    for path, text in ((tables_path, markdown_page(page, links)), (page_path, html_page(page))):
        with write_beside(path, overwrite=overwrite) as beside:
            beside.write_text(text, encoding="utf-8")
    return Report(page_path, tables_path, tuple(files.values()), tuple(missing_parts(found)))


def build_page(found: Sources, truth_pictures: bool = True, title: str = "") -> Page:
    """The report as blocks."""
    missing = missing_parts(found)
    sections = [_overview(found, missing)]
    for source in found.evaluations:
        sections += score_sections(source)
    sections += model_sections(found)
    for source in found.stresses:
        sections += stress_sections(source)
    for source in found.analyses:
        sections += analysis_sections(source, truth_pictures)
    sections += training_sections(found)
    sections += provenance_sections(found)
    lead = (
        "Every number carries the name of its convention; ± is one standard deviation over masks. "
        "What was not measured is listed first."
    )
    return Page(title or "Evaluation report", lead, sections)


def missing_parts(found: Sources) -> list[str]:
    """What a full report has and this one has not, each with the command that makes it."""
    missing = []
    for parts, text in (
        (found.evaluations, "No evaluation: `prismask evaluate MODEL… --out DIR/many-to-many`."),
        (found.stresses, "No stress test: `prismask stress MODEL… --out DIR/stress`."),
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
        for source in (*found.evaluations, *found.stresses)
        if not source.is_finished
    ]
    return missing + found.problems


def _overview(found: Sources, missing: list[str]) -> Section:
    rows = []
    for kind, sources in (("evaluation", found.evaluations), ("stress test", found.stresses),
                          ("analysis", found.analyses)):  # fmt: skip
        for source in sources:
            models = ", ".join(source.record["models"])
            count = str(len(source.record["scenes"]))
            rows.append([source.name, kind, str(source.record["protocol"]), count, models])
    rows += [[name, "training", "–", "–", "–"] for name in found.trainings]
    header = ["source", "what", "protocol", "scenes", "models"]
    blocks: list[Block] = [Table("What was found.", header, rows)]
    if missing:
        blocks += [Text("**Missing**, and therefore not on this page:"), Listing(missing)]
    return Section("Overview", blocks)


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


def _link(path: Path, beside: Path) -> str:
    import os

    return Path(os.path.relpath(path, beside)).as_posix()
