"""Names of files that are still being written, and what becomes of those that nobody finished.

`.name.COMPUTER-PROCESS-RANDOM.prismask-part`: the token in the middle says which process of which
computer made a file, so that what a killed run left can be told from what somebody is writing.
The files of one write share a token: whoever finds one of them can find the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import zlib
from pathlib import Path

PART_SUFFIX = ".prismask-part"
"""Ends the name of a file that is still being written."""
OLD_SUFFIX = ".prismask-old"
"""Ends the name of a replaced file while its pair is being swapped."""

_TOKEN = re.compile(r"\.([0-9a-f]{4}-[0-9a-f]+-[0-9a-f]{8})\.prismask-(?:part|old)$")
_LONGEST_NAME = 150

in_use: set[str] = set()
"""Tokens of what this process is writing."""
swept: set[tuple[int, Path]] = set()
"""Folders that a process has looked through, with its number: it may fork."""


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
    """Whether a file is the remains of an interrupted write."""
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
    """Remove what killed runs left in a folder; once per run, as folders may be large.

    Parts of a swap that was interrupted are kept: they are complete, and will be needed.
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
