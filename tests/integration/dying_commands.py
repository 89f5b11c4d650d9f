"""A command killed before each of its changes to the disk, one after the other.

`python dying_commands.py FOLDER COMMAND…` runs the command in FOLDER again and again, each time in
a process that is killed a step later than the one before, until one gets to its end. After every
kill the command is run once more, in a copy of what was left: FOLDER-killed/NUMBER.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = ("replace", "rename", "hardlink_to", "unlink", "mkdir", "rmdir", "touch", "write_text")
"""Methods of a path that change the disk."""

steps_left = 0


def dying(real: Callable[..., Any]) -> Callable[..., Any]:
    """The function, before which the process may end as if the power went."""

    def call(*given: Any, **named: Any) -> Any:
        global steps_left
        steps_left -= 1
        if steps_left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)

    return call


def run(folder: Path, arguments: list[str], steps: int | None) -> int:
    """The command's exit code, in a process of its own; negative where it was killed."""
    from prismask.apps.cli import app

    global steps_left
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.chdir(folder)
    if steps is not None:
        steps_left = steps
        os.fsync = dying(os.fsync)
        for name in CHANGES:
            setattr(Path, name, dying(getattr(Path, name)))
    os._exit(app.run(arguments))


def main(folder: Path, arguments: list[str]) -> None:
    """Kill, copy, put back; until the command ends by itself."""
    import torch

    import prismask.evaluation.run.runner
    import prismask.optics.measured  # noqa: F401  # once, before all forks

    torch.set_num_threads(1)
    start, killed = Path(f"{folder}-start"), Path(f"{folder}-killed")
    shutil.copytree(folder, start)
    for steps in range(1000):
        code = run(folder, arguments, steps)
        if code == 0:
            return
        assert code == -signal.SIGKILL, code
        copy = killed / str(steps)
        shutil.copytree(folder, copy)
        # The next run, which nobody kills, goes on from what is there.
        assert run(copy, arguments, None) == 0, steps
        shutil.rmtree(folder)
        shutil.copytree(start, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
