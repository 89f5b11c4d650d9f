"""A cell: the smallest piece of an evaluation, one model on all scenes through one mask.

Finished cells are kept in a journal, so that no interruption loses one: a file of lines that only
grows; one process writes it. A line reaches the disk before the next cell is counted as finished.
Killed in the middle of a line, the torn end is cut off at the next opening and that cell is
computed again; everything before it is not.

Only the offset of each line is held in memory.
"""

from __future__ import annotations

import io
import json
import logging
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from prismask.errors import FormatError, OutputExistsError, WriteFailedError


@dataclass(frozen=True)
class Cell:
    """Which model, which mask, and what is wrong with the camera (nothing, in an evaluation)."""

    model: str
    """Label of the contender."""
    group: str
    """Name of the mask group."""
    trial: int
    """Number of the mask in its group's list."""
    fault: str = ""
    """What differs between the camera and its description; empty: nothing."""
    size: float = 0.0
    """How much it differs."""
    given: str = "nominal"
    """Which mask the model is given."""

    @property
    def key(self) -> str:
        """One line of text that no other cell has."""
        return json.dumps(list(asdict(self).values()), ensure_ascii=False)


@dataclass(frozen=True)
class CellResult:
    """What came out of a cell."""

    cell: Cell
    mask_id: str
    """Hash of the trial's mask, as the group lists it."""
    measurement_id: str
    """Hash of all measurements: equal for all models of a trial."""
    seconds: float
    """Seconds per sample, with the device's queue drained."""
    values: dict[str, list[float]]
    """Metric → value of each scene; NaN where the model gave no finite cube."""
    failed: dict[str, str] = field(default_factory=dict)
    """Scene → why it has no values."""

    def to_line(self) -> str:
        """One line of JSON; NaN and infinity as Python writes them."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> CellResult:
        """Read what `to_line` wrote."""
        facts: dict[str, Any] = json.loads(line)
        facts["cell"] = Cell(**facts["cell"])
        return cls(**facts)


log = logging.getLogger(__name__)


class Journal:
    """Results of cells by key; in a file, or in memory where there is no path."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._offsets: dict[str, int] = {}
        self._file: BinaryIO = io.BytesIO() if path is None else _opened(path)
        try:
            self._end = self._recover()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._offsets

    def append(self, result: CellResult) -> None:
        """Write one finished cell down, to the disk."""
        line = result.to_line().encode() + b"\n"
        try:
            self._file.seek(self._end)
            self._file.write(line)
            self._file.flush()
            if self.path is not None:
                os.fsync(self._file.fileno())
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise WriteFailedError(
                f"{self.path} could not be written: {reason}. Finished cells are kept; go on "
                "with --resume when there is room."
            ) from problem
        self._offsets[result.cell.key] = self._end
        self._end += len(line)

    def read(self, cell: Cell) -> CellResult:
        """The result of a finished cell."""
        self._file.seek(self._offsets[cell.key])
        return CellResult.from_line(self._file.readline())

    def close(self) -> None:
        """Let other processes open it. What is in memory stays readable."""
        if self.path is not None:
            self._file.close()

    def _recover(self) -> int:
        """Index all whole lines, cut off a torn end, and give the offset after the last one."""
        self._file.seek(0)
        offset = 0
        for number, line in enumerate(self._file, start=1):
            try:
                result = CellResult.from_line(line) if line.endswith(b"\n") else None
            except (ValueError, TypeError, KeyError) as error:
                if self._file.read(1):
                    raise FormatError(
                        f"{self.path}: line {number} is damaged ({error}). Delete the file to "
                        "compute everything again."
                    ) from error
                result = None
            if result is None:
                log.warning("%s: a torn last line was cut off; its cell is computed again.",
                            self.path)  # fmt: skip
                self._file.truncate(offset)
                break
            self._offsets[result.cell.key] = offset
            offset += len(line)
        return offset


def _opened(path: Path) -> BinaryIO:
    path.touch()
    file = path.open("r+b")
    try:
        import fcntl
    except ImportError:  # not on every system; then nothing keeps two runs apart
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise OutputExistsError(
            f"another process is writing into {path.parent}. Wait for it, or choose another --out."
        ) from error
    return file
