"""Tasks that do what they are called, in any process that can import this module."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prismask.errors import FormatError


@dataclass(frozen=True)
class Doing:
    """Prepares `do`; `folder` is where tasks leave their marks."""

    folder: Path

    def __call__(self, number: int | None) -> Callable[[str], str]:
        return self.do

    def do(self, task: str) -> str:
        name, _, rest = task.partition("-")
        if name == "bad":
            raise FormatError("this one is bad.")
        if name == "die":
            os._exit(9)
        if name == "once" and not (self.folder / task).exists():
            (self.folder / task).touch()
            os._exit(9)
        if name == "long":
            self.wait(self.folder / f"{task}.part")
        return f"{rest} by {os.getpid()}"

    def wait(self, part: Path) -> None:
        """Long work that clears away what it left half done."""
        try:
            part.touch()
            time.sleep(120)
        finally:
            # Inside, and perhaps not there yet: whoever sees the file may interrupt at once.
            part.unlink(missing_ok=True)


def number_of(result: str | None) -> str:
    assert result is not None
    return result.partition(" ")[0]
