"""What a command writes is never what it reads, by whatever name either goes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def check_record(out: Path, overwrite: bool, *read: Path | str | None) -> None:
    """Raise unless a record can be written at `out` without harm to what is read.

    read: files, and texts that may name one; None is nothing.
    """
    from prismask.scenes.formats.registry import check_writable

    refuse_read(check_writable(out, overwrite).written(out), *read)


def refuse_read(written: Iterable[Path], *read: Path | str | None) -> None:
    """Raise where one of the files `written` is, or belongs to, one that is `read`."""
    from prismask.scenes.formats.registry import stored
    from prismask.scenes.outputs import refuse_inputs

    files = [Path(path) for path in read if path is not None and "\0" not in str(path)]
    refuse_inputs(written, [file for path in files for file in stored(path)])
