"""What opening a file costs: a small one and a large one of every format, cold and warm.

    python benchmarks/files.py [--megabytes 100] [--repeats 5]

Prints a table in milliseconds. "in this process" parses the file here, "in the cage" is what
`load_cube` does; formats that our own code reads have no cage.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import machine
from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.formats.registry import identify
from prismask.scenes.formats.selection import make_record
from prismask.scenes.records import Cube

FORMATS = ((".nc", None), (".mat", "matlab7.3"), (".mat", "matlab"), (".tif", None),
           (".npz", None), (".npy", None), (".hdr", None))  # fmt: skip


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    side = round((options.megabytes * 1e6 / 4 / 25) ** 0.5)
    generator = np.random.default_rng(0)
    cubes = {
        "small": Cube(generator.random((3, 16, 16), dtype=np.float32), [450, 550, 650]),
        "large": Cube(generator.random((25, side, side), dtype=np.float32), np.arange(25) + 450),
    }
    print(f"{machine()}\n")
    print("| file | format | first, ms | in this process, ms | in the cage, ms | more, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size, cube in cubes.items():
            for extension, name in FORMATS:
                path = Path(folder) / f"{size}{extension}"
                save(cube, path, overwrite=True, format=name)
                report(size, path, options.repeats)
                path.unlink()


def report(size: str, path: Path, repeats: int) -> None:
    form = identify(path)
    first = milliseconds(lambda: load_cube(path), 1)
    make_record(form.read_here(path), "cube")  # imports what it needs
    here = milliseconds(lambda: make_record(form.read_here(path), "cube"), repeats)
    caged = milliseconds(lambda: load_cube(path), repeats)
    print(
        f"| {size} | {form.title} | {first:.0f} | {here:.1f} | {caged:.1f} | {caged - here:.1f} |"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
