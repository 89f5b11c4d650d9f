"""What the benchmarks share: the clock, memory, a table with targets, the record."""

from __future__ import annotations

import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    device: str
    what: str
    value: float
    unit: str
    target: float | None = None
    at_least: ClassVar[bool] = False

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(
    call: Callable[[], object],
    device: torch.device | str,
    repeats: int,
    warmup: int = 1,
    block: int = 1,
) -> float:
    """Median seconds of a call, the device's queue drained before and after `block` calls.

    A training never waits between steps, so the host prepares the next one while the device is
    busy; blocks of several steps measure that.
    """
    there = torch.device(device)
    for _ in range(warmup):
        call()
    seconds = []
    for _ in range(repeats):
        synchronise(there)
        start = time.perf_counter()
        for _ in range(block):
            call()
        synchronise(there)
        seconds.append((time.perf_counter() - start) / block)
    return statistics.median(seconds)


def resident(name: str) -> int:
    """Bytes in memory, now (VmRSS) or at most (VmHWM); where Linux does not say, the most so far.

    `getrusage` is second choice: on Linux a process starts with its parent's high-water mark.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> dict[str, str | int]:
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'device':<7} {'what':<46} {'value':>9} {'unit':<7} {'target':>7}"]
    for row in rows:
        sign = "≥" if row.at_least else "≤"
        target = "" if row.target is None else f"{sign} {row.target:g}"
        verdict = "" if row.target is None else ("  met" if row.met else "  MISSED")
        line = f"{row.device:<7} {row.what:<46} {row.value:>9.3f} {row.unit:<7} {target:>7}"
        lines.append(line + verdict)
    return "\n".join(lines)


def report(facts: Mapping[str, Any], rows: Sequence[Any], shown: str, file: Path | None) -> int:
    """Print facts and table, write both to the file; 1 when a target is missed."""
    print("  ".join(f"{name}: {fact}" for name, fact in facts.items()))
    print(shown)
    if file:
        listed = [{**asdict(row), "met": row.met} for row in rows]
        file.write_text(json.dumps({"machine": facts, "rows": listed}, indent=1) + "\n")
    return 0 if all(row.met for row in rows) else 1
