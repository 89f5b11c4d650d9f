"""What can be known before the work about whether its result can be written.

An hour of computing that ends at a folder without room is an hour lost, and an input that its own
result replaces may never be taken again. Commands ask here before they start, so that what a
command writes is never what it reads, by whatever name either goes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from prismask.errors import OutputExistsError, WriteFailedError

Identity = tuple[int, int]
"""Device and number of a file, which all of its names share."""


def refuse_inputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise where an output is also an input, which overwriting would destroy.

    By whatever name: links to an input, symbolic or hard, are the input.
    """
    given = list(inputs)
    names = {_resolved(path) for path in given}
    files = {_identity(path) for path in given} - {None}
    for path in outputs:
        if _resolved(path) in names or _identity(path) in files:
            raise OutputExistsError(
                f"{path} is what is read, and would be lost. Choose another name for the result."
            )


def check_folder(folder: Path) -> None:
    """Raise unless files can be made in `folder`, which need not exist yet."""
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except (OSError, ValueError) as problem:  # a name too long, or with a zero in it
        reason = getattr(problem, "strerror", None) or problem
        raise WriteFailedError(f"{folder} cannot be written: {reason}.") from problem
    if not existing.is_dir():
        raise OutputExistsError(f"{existing} is a file; give the name of a folder.")
    check_takes_files(existing)


def check_takes_files(folder: Path) -> None:
    """Raise unless a file can be made in a folder that exists."""
    try:
        # Permissions do not tell of a disk mounted for reading, or of one without room for a name.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise WriteFailedError(
            f"nothing can be written into {folder}: {reason}. Choose another folder for the result."
        ) from problem


def check_room(path: Path, least_bytes: int) -> None:
    """Raise unless the disk of `path` has room for `least_bytes`, what the result takes at least.

    path: a file to be made in a folder that exists.
    """
    try:
        free = shutil.disk_usage(_resolved(path).parent).free
    except OSError:
        return  # a disk that does not say; writing will
    if free < least_bytes:
        raise WriteFailedError(
            f"{path} takes {_size(least_bytes)} or more, and its disk has {_size(free)} left. Make "
            "room, or choose another place for the result."
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links, or no name at all
        return path


def _identity(path: Path) -> Identity | None:
    """Which file a name stands for; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def check_inputs(*files: Path) -> None:
    """Raise for the first file that is not there: that comes before what the output lacks."""
    from prismask.scenes.formats.registry import check_exists

    for path in files:
        check_exists(path)


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
