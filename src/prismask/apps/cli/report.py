"""`prismask report` and `join`: one page about a folder, one table of evaluations made apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from prismask.apps.cli.terminal import remark, say


def report(
    folder: Path,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    title: str = "",
    figures: Path | None = None,
    truth_pictures: bool = True,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make one HTML page, and Markdown tables beside it, of a folder's results.

    Parameters
    ----------
    folder
        Looked through for evaluations, stress tests, tests of spectra, analyses and trainings.
    out
        The HTML file; its tables go beside it as .md. [default: report.html in the folder]
    title
        Heading of the page.
    figures
        Folder that gets every figure as a PNG, linked from the Markdown. [default: none]
    truth_pictures
        Show pictures of the true scenes; leave them out before publishing a page about a data
        set that is not yours.
    overwrite
        Replace the page if it exists.
    """
    from prismask.evaluation.report.page import NAME, write_report
    from prismask.scenes.atomic import check_folder, refuse_existing, refuse_inputs

    page = folder / NAME if out is None else out
    refuse_existing(page, overwrite)
    check_folder(page.parent)
    # The tables of the page must not take the place of those of a run.
    refuse_inputs([page.with_suffix(".md")], folder.rglob("summary.md"))
    written = write_report(
        folder,
        out,
        truth_pictures=truth_pictures,
        figures=figures,
        title=title,
        overwrite=overwrite,
    )
    say(str(written.page))
    remark(f"tables: {written.tables}")
    for text in written.missing:
        remark(f"not on the page: {text}")


def join(folders: list[Path], /, *, out: Annotated[Path, Parameter(name=["--out", "-o"])]) -> None:
    """Put evaluations that were made apart into one table, with differences mask by mask.

    They must have used the same scenes, masks, camera, seed and noise, so that their models saw
    the same snapshots. Needs their tables only, no weights: those of another laboratory will do.

    Parameters
    ----------
    folders
        Two or more folders that `prismask evaluate` wrote.
    out
        Folder for the joined tables and record.
    """
    from prismask.evaluation.run.join import join as put_together

    say(put_together(folders, out))
    remark(f"{out}: run.json, scores.csv, summary.csv, summary.md")
