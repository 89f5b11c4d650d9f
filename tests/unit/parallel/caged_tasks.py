"""Tasks for the tests of the cage: some behave, most do not."""

from __future__ import annotations

import ctypes
import logging
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from prismask.errors import ShapeError


def double(values: list[float]) -> tuple[Any, list[Any]]:
    return {"sum": sum(values)}, [2 * np.array(values)]


def arrays() -> tuple[Any, list[Any]]:
    cube = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    return None, [cube, cube.T, cube[:, ::2], np.float32(1.5) * np.ones(()), np.zeros((0, 3))]


def large(count: int) -> tuple[Any, list[Any]]:
    return None, [np.ones(count, np.uint8)]


def refuse() -> tuple[Any, list[Any]]:
    raise ShapeError("it is 3×4.")


def stumble() -> tuple[Any, list[Any]]:
    return {}["missing"], []


def ramble() -> tuple[Any, list[Any]]:
    return {"facts": object()}, []


def crash() -> tuple[Any, list[Any]]:
    ctypes.string_at(0)
    return None, []


def vanish() -> tuple[Any, list[Any]]:
    os._exit(0)


def hang() -> tuple[Any, list[Any]]:
    # In C, where no Python signal handler ever runs.
    ctypes.CDLL(None).pause()
    return None, []


def sleep(seconds: float, started: str) -> tuple[Any, list[Any]]:
    Path(started).write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(seconds)
    return None, []


def warn() -> tuple[Any, list[Any]]:
    logging.getLogger("prismask.somewhere").warning("odd: %d", 3)
    print("noise on stdout")
    return None, []


def remember() -> tuple[Any, list[Any]]:
    """How often it was called in this process."""
    remember.calls = getattr(remember, "calls", 0) + 1  # type: ignore[attr-defined]
    return remember.calls, []  # type: ignore[attr-defined]


# --- for a cage that stays: these take what tells how far they are -------------------------------


def remember_here(report: Any) -> tuple[Any, list[Any]]:
    return remember()


def number_here(report: Any) -> tuple[Any, list[Any]]:
    return os.getpid(), []


def count_up(report: Any, total: int) -> tuple[Any, list[Any]]:
    for done in range(1, total + 1):
        report(done, total)
    return "counted", []


def refuse_here(report: Any) -> tuple[Any, list[Any]]:
    return refuse()


def stumble_here(report: Any) -> tuple[Any, list[Any]]:
    return stumble()


def take(report: Any, kind: str, count: int) -> tuple[Any, list[Any]]:
    if kind == "numpy":
        return int(np.ones(count, np.uint8).size), []
    import torch

    return torch.ones(count, dtype=torch.uint8).numel(), []


def sleep_here(report: Any, seconds: float) -> tuple[Any, list[Any]]:
    time.sleep(seconds)
    return None, []


def die_here(report: Any) -> tuple[Any, list[Any]]:
    return crash()
