"""`prismask join`: evaluations that were made apart, compared mask by mask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from prismask.apps.cli.terminal import remark, say


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
