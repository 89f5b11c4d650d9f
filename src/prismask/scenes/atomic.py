"""Writing files so that neither an interruption nor a badly chosen name loses anything.

A new file is written beside its place, flushed to the disk, and only then renamed: whatever goes
wrong before that, the old file is untouched. Files that are still being written are called
`.name.COMPUTER-PROCESS-RANDOM.prismask-part`; no reader takes them for data, and the next run that
writes into the folder removes those of killed processes. The files of one write share the token in
the middle: from any one of them the others can be found.

Files that belong together (an ENVI header and its data) are swapped in an order that never shows
a mixed pair: the *key* file, the last of the list and the one readers start from, is removed first
and put back last. All new files are complete before that, so a swap that was killed in between can
be read (`key_of_swap`, `file_of_swap`) and finished (`finish_swap`) by any later process.

Commands check before their work that the result can be written, fits on the disk, and is none of
their inputs, under any name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prismask.errors import OutputExistsError, PrismaskError, WriteFailedError

PART_SUFFIX = ".prismask-part"
"""Ends the name of a file that is still being written."""
OLD_SUFFIX = ".prismask-old"
"""Ends the name of a replaced file while its pair is being swapped."""

_TOKEN = re.compile(r"\.([0-9a-f]{4}-[0-9a-f]+-[0-9a-f]{8})\.prismask-(?:part|old)$")
_LONGEST_NAME = 150

in_use: set[str] = set()
"""Tokens of what this process is writing."""
swept: set[tuple[int, Path]] = set()
"""Folders that have been looked through, each with the number of the process, which may fork."""


def new_token() -> str:
    """A token of this process."""
    return f"{_computer():04x}-{os.getpid():x}-{secrets.token_hex(4)}"


def token_of(path: Path) -> str:
    """The token in a hidden name; empty where there is none."""
    found = _TOKEN.search(path.name)
    return found[1] if found else ""


def hidden_name(target: Path, token: str, suffix: str) -> Path:
    """The hidden file beside `target`."""
    return target.with_name(f"{hidden_start(target)}{token}{suffix}")


def hidden_start(target: Path) -> str:
    """How the names of hidden files for `target` begin.

    A long name is cut: most disks take 255 bytes, and it needs room for what is put around it.
    """
    raw = os.fsencode(target.name)
    if len(raw) <= _LONGEST_NAME:
        return f".{target.name}."
    start = raw[:_LONGEST_NAME].decode("utf-8", "ignore")
    return f".{start}~{hashlib.sha256(raw).hexdigest()[:8]}."


def is_leftover(path: Path) -> bool:
    """Whether a file was left by an interrupted write."""
    return path.name.endswith((PART_SUFFIX, OLD_SUFFIX))


def is_abandoned(path: Path) -> bool:
    """Whether the process that made a hidden file has ended; False where that cannot be known."""
    token = token_of(path)
    if not token:
        return False
    computer, process, _ = (int(part, 16) for part in token.split("-"))
    if computer != _computer():
        return False
    if process == os.getpid():
        return token not in in_use  # an earlier process had the same number
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def sweep(folder: Path) -> None:
    """Remove what killed runs left in a folder; once per process, as folders may be large.

    Parts of an interrupted swap are kept: they are complete, and needed to finish it.
    """
    if (os.getpid(), folder) in swept:
        return
    swept.add((os.getpid(), folder))
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if is_leftover(path)]
        swapping = {token_of(path) for path in found if path.name.endswith(OLD_SUFFIX)}
        for path in found:
            is_part = path.name.endswith(PART_SUFFIX) and token_of(path) not in swapping
            if is_part and is_abandoned(path):
                path.unlink(missing_ok=True)


def _computer() -> int:
    return zlib.crc32(platform.node().encode("utf-8", "replace")) & 0xFFFF


@contextmanager
def write_beside(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a path to write to; put the file in place when the block ends without an error.

    The path exists already, empty, when the block starts. An output that exists is refused with
    `OutputExistsError` unless `overwrite`: before the work starts, and again at the end in case
    another process made it meanwhile. An `OSError` in the block becomes `WriteFailedError`.
    """
    with write_together([path], overwrite=overwrite) as parts:
        yield parts[0]


@contextmanager
def write_together(
    paths: Sequence[str | Path], *, overwrite: bool = False
) -> Iterator[tuple[Path, ...]]:
    """Like `write_beside` for files that belong together; the last one is the key file."""
    targets = tuple(_real(Path(path)) for path in paths)
    for target in targets:
        refuse_existing(target, overwrite)
    for folder in {target.parent for target in targets}:
        sweep(folder)
    if len(targets) > 1:
        _remove_old(targets)
    parts: list[Path] = []
    token = new_token()
    in_use.add(token)
    try:
        for target in targets:
            parts.append(_new_part(target, token))
        modes = [stat.S_IMODE(part.stat().st_mode) for part in parts]
        yield tuple(parts)
        for part, target, mode in zip(parts, targets, modes, strict=True):
            _finish(part, target, mode)
        _put_in_place(parts, targets, overwrite)
    except PrismaskError:
        raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        kept = " The file that was there before is untouched." if targets[-1].exists() else ""
        raise WriteFailedError(f"{targets[-1]} could not be written: {reason}.{kept}") from problem
    finally:
        for part in parts:
            # A part that cannot even be removed must not hide the error that led here.
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        in_use.discard(token)


def check_output(path: Path, overwrite: bool = False) -> None:
    """Raise unless a file can be made at `path`: for commands, before their work starts."""
    folder = _real(path).parent
    refuse_existing(path, overwrite)
    check_takes_files(folder)


def refuse_existing(path: Path, overwrite: bool = False) -> None:
    """Raise unless something may be written at `path`."""
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as problem:  # a name too long, or with a zero in it
        reason = getattr(problem, "strerror", None) or problem
        raise WriteFailedError(f"{path} cannot be written: {reason}.") from problem
    if is_folder:
        raise OutputExistsError(f"{path} is a folder; give the name of a file in it.")
    if exists and not overwrite:
        raise OutputExistsError(
            f"{path} exists already and was kept. Choose another name, or give --overwrite."
        )


def kept_from_swap(path: Path) -> list[Path]:
    """Old versions of `path` that an interrupted swap left beside it."""
    if not path.parent.is_dir():
        return []
    start = hidden_start(path)
    return sorted(
        other
        for other in path.parent.iterdir()
        if other.name.startswith(start) and other.name.endswith(OLD_SUFFIX)
    )


def key_of_swap(key: Path) -> Path | None:
    """Where the new key file of an interrupted swap lies, complete; None if there is no such."""
    if _exists(key):
        return None
    for old in kept_from_swap(key):
        new = old.with_name(old.name.removesuffix(OLD_SUFFIX) + PART_SUFFIX)
        if new.exists():
            return new
    return None


def file_of_swap(new_key: Path, path: Path) -> Path:
    """Where the new `path` lies that belongs to `new_key`: still hidden, or in its place."""
    hidden = hidden_name(path, token_of(new_key), PART_SUFFIX)
    return hidden if hidden.exists() else path


def finish_swap(new_key: Path, paths: Sequence[Path]) -> None:
    """Put the files of an interrupted swap in their places, the key file last.

    Nothing happens while the process that swaps them lives.
    """
    if not is_abandoned(new_key):
        return
    for path in paths:
        hidden = file_of_swap(new_key, path)
        if hidden != path:
            hidden.replace(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a zero in it, is no file's
        return False


def _remove_old(targets: Sequence[Path]) -> None:
    """Remove the replaced versions left by a run that was killed just before it removed them."""
    if targets[-1].exists():
        for target in targets:
            for old in kept_from_swap(target):
                if is_abandoned(old):
                    old.unlink(missing_ok=True)


def _real(path: Path) -> Path:
    """Where the bytes go: a link stays a link, its target is what gets replaced."""
    try:
        target = path.resolve()
        has_folder = target.parent.is_dir()
    except (OSError, ValueError, RuntimeError) as problem:  # too long a name, a loop of links …
        raise WriteFailedError(f"{path} cannot be written: {problem}.") from problem
    if not has_folder:
        raise WriteFailedError(
            f"{path} cannot be written: there is no folder {target.parent}. Make it first."
        )
    return target


def _new_part(target: Path, token: str) -> Path:
    part = hidden_name(target, token, PART_SUFFIX)
    # 0o666 minus the umask, as for any new file; `tempfile` would make it private to the owner.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return part


def _finish(part: Path, target: Path, mode: int) -> None:
    """Bring the bytes to the disk before the name points to them."""
    # Some writers make the file anew, readable by its owner alone.
    part.chmod(mode)
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    if target.exists():
        shutil.copymode(target, part)


def _put_in_place(parts: Sequence[Path], targets: Sequence[Path], overwrite: bool) -> None:
    if overwrite and len(targets) == 1:
        parts[0].replace(targets[0])
    elif overwrite:
        _swap(parts, targets)
    else:
        _place_new(parts, targets)
    for folder in {target.parent for target in targets}:
        _sync_folder(folder)


def _place_new(parts: Sequence[Path], targets: Sequence[Path]) -> None:
    """Put the parts where nothing is yet; take all of them back if one does not fit."""
    placed: list[Path] = []
    try:
        for part, target in zip(parts, targets, strict=True):
            _place_without_replacing(part, target)
            placed.append(target)
    except BaseException:
        for target in reversed(placed):
            target.unlink()
        raise


def _place_without_replacing(part: Path, target: Path) -> None:
    try:
        # A hard link fails when the name is taken; a rename would silently replace it.
        target.hardlink_to(part)
    except FileExistsError:
        refuse_existing(target)
        raise
    except OSError:
        # Some file systems (FAT, network shares) have no hard links.
        refuse_existing(target)
        part.rename(target)


def _swap(parts: Sequence[Path], targets: Sequence[Path]) -> None:
    """Replace a group of files; see the order in the module's docstring."""
    moved: list[tuple[Path, Path]] = []
    placed: list[Path] = []
    try:
        for target in reversed(targets):
            if target.exists():
                old = hidden_name(target, token_of(parts[0]), OLD_SUFFIX)
                target.rename(old)
                moved.append((old, target))
        for part, target in zip(parts, targets, strict=True):
            part.rename(target)
            placed.append(target)
    except BaseException:
        for target in reversed(placed):
            target.unlink()
        for old, target in reversed(moved):
            old.replace(target)
        raise
    for old, _ in moved:
        old.unlink()


def _sync_folder(folder: Path) -> None:
    # The rename itself must survive a power cut. Not every system lets one open a folder, and
    # the file is complete by now, so a refusal is no reason to fail.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
    """Raise for the first file that is missing: that is reported before any fault of the output."""
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

    files = [Path(path) for path in read if path is not None and "\0" not in str(path)]
    refuse_inputs(written, [file for path in files for file in stored(path)])
