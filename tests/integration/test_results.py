"""What the results page and the documentation quote is what the raw tables say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from prismask.evaluation.report.sources import (
    cell_text,
    headline_table,
    read_headline,
    refreshed,
)
from prismask.evaluation.run import spectra
from prismask.evaluation.run.runs import RUN
from prismask.evaluation.run.spectra import summary_text
from prismask.evaluation.tables.markdown import evaluation_text, grid, stress_text
from prismask.evaluation.tables.published import row_number
from prismask.evaluation.tables.summaries import PairedRow, Summary, SummaryRow, read_table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
SPECTRA = (RESULTS / "spectra", RESULTS / "spectra-lumen")
QUOTING = ("README.md", "docs/models.md", "results/README.md")
"""Pages that quote the headline."""
SPREAD = r"\d\d\.\d\d ± \d\.\d\d"


@pytest.fixture(scope="module")
def headline() -> dict[str, Any]:
    return read_headline(RESULTS)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("headline_script", RESULTS / "headline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _text(page: str) -> str:
    """The text of a page, without line breaks and marks of emphasis."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").replace("**", "").split())


def test_every_number_of_ours_is_that_of_its_table(headline: dict[str, Any]) -> None:
    assert refreshed(headline, RESULTS) == headline


def test_every_number_has_a_source_and_ours_a_command(headline: dict[str, Any]) -> None:
    for row in headline["rows"]:
        assert row["source"]
        if row["who"] == "ours":
            assert (RESULTS / row["source"]).is_file()
            assert row["command"].startswith("prismask evaluate")
            assert all("table" in cell for cell in row["scores"].values())
            # The page that explains it names the same command.
            first = row["command"].split(" --")[0].split(";")[0]
            assert first in _text(f"results/{row['source']}"), row["method"]
        for cell in row["scores"].values():
            assert cell.get("note") in {None, *headline["notes"]}


@pytest.mark.parametrize(
    ("method", "name", "column", "protocol"),
    [
        ("SRN, mask ensemble", "w/o GST", "mixed", "many-to-many"),
        ("SRN + GST", "full", "mixed", "many-to-many"),
        ("SRN + GST, one mask", "full", "own", "one-to-one"),
        ("SRN + GST, one mask", "full", "mixed", "one-to-many"),
        ("SwinIR + GST", "SwinIR + GST", "mixed", "many-to-many"),
    ],
)
def test_the_papers_numbers_are_those_it_prints(
    headline: dict[str, Any], method: str, name: str, column: str, protocol: str
) -> None:
    printed_rows = [row for row in headline["rows"] if row["who"] == "paper"]
    (row,) = [row for row in printed_rows if row["method"] == method]
    printed = row_number(name, protocol, "psnr_paper")
    assert printed is not None
    assert (row["scores"][column]["mean"], row["scores"][column].get("std")) == (
        printed.mean,
        printed.std,
    )


def test_the_table_on_the_page_is_that_of_the_file(headline: dict[str, Any]) -> None:
    table = headline_table(headline)
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    script = _script()
    shown = page.split(script.BEGIN)[1].split(script.END)[0]
    assert grid(table.header, table.rows) in shown
    assert table.note in shown


def test_pages_quote_the_headline_and_nothing_else(headline: dict[str, Any]) -> None:
    """A score with its spread that stands on one of these pages is in headline.json."""
    known = {
        cell_text({**cell, "note": ""}, row["metric"])
        for row in headline["rows"]
        for cell in row["scores"].values()
    }
    for page in QUOTING:
        found = re.findall(SPREAD, _text(page))
        assert found, f"{page} quotes nothing"
        assert sorted(set(found) - known) == [], page


def test_every_shipped_network_with_a_score_is_in_the_headline(headline: dict[str, Any]) -> None:
    methods = " ".join(row["method"] for row in headline["rows"])
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    shipped = re.findall(r"^## ([\w.-]+\.m2m)", text, re.MULTILINE)
    assert shipped
    assert [name for name in shipped if name not in methods] == []


def test_links_of_the_results_arrive() -> None:
    for page in (RESULTS / "README.md", *sorted((RESULTS / "pages").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            where = page if not path else (page.parent / path).resolve()
            assert where.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchor in _anchors(where), f"{page.name}: {target}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize(
    "folder",
    sorted(path.parent for path in RESULTS.rglob("summary.csv") if path.parent not in SPECTRA),
    ids=lambda p: p.name,
)
def test_every_summary_is_what_its_tables_make(folder: Path) -> None:
    """Whoever changes how a summary is written has to write these anew."""
    record = {"costs": {}, **RUN.read(folder)}
    summary = Summary([SummaryRow(**row) for row in read_table(folder / "summary.csv")])
    if (folder / "paired.csv").is_file():
        summary.paired = [PairedRow(**row) for row in read_table(folder / "paired.csv")]
    text = stress_text if record.get("kind") == "stress" else evaluation_text
    assert text(record, summary) == (folder / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", SPECTRA, ids=lambda p: p.name)
def test_the_summary_of_spectra_is_what_its_tables_make(folder: Path) -> None:
    record = spectra.RECORD.read(folder)
    text = summary_text(list(read_table(folder / "summary.csv")), record)
    assert text == (folder / "summary.md").read_text(encoding="utf-8")
