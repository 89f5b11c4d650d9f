"""Damaged files by the thousand: no crash, no hang, no memory, no foreign exception.

    python tests/unit/scenes/fuzzing.py --count 20000 --workers 2 [--seed 0] [--keep folder]

Every mutant is a healthy file of some format, changed in a way drawn from one seed and its
number, so any of them can be made again. Formats parsed in the cage are loaded as users load
them. Those that our own code parses are loaded in a cage too, so that a crash or a loop of ours
would be seen and not suffered. Exits with 1, and names the mutants, where something is wrong.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
import tifffile

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from file_examples import a_cube, a_mask, a_measurement
from PIL import Image

from prismask.errors import PrismaskError
from prismask.parallel.cage import Limits, run_caged
from prismask.scenes.cubepack import read_cubepack, write_cubepack
from prismask.scenes.formats.files import describe, load, save
from prismask.scenes.formats.registry import identify

LONGEST_SECONDS = 10.0
LIMITS = Limits(seconds=LONGEST_SECONDS, memory_bytes=2 * 10**9)
NUMBERS = (0, 1, 2, 127, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63)
WORDS = (b"-1", b"9" * 20, b"9" * 400, b"1e999", b"nan", b"{", b"}", b"=", b"\n", b"\0", b"\xff")


# --- healthy files -------------------------------------------------------------------------------


def _hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        values = a_cube(8, 16, 16).values
        options = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        file.create_dataset("group/cube", data=values, chunks=(2, 8, 8), **options)
        file["group/wavelengths"] = 400.0 + np.arange(8)
        file["group"].attrs["history"] = ["made", "by hand"]
        file["text"] = "a text"


def _png(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 65535, (9, 7)).astype(np.uint16)
    Image.fromarray(pixels).save(path)


def _tiled(path: Path) -> None:
    values = a_cube(3, 64, 48).values
    tifffile.imwrite(path, values, tile=(16, 16), compression="zlib", photometric="minisblack")


def _lzw(path: Path) -> None:
    values = (255 * a_mask(32, 32).values).astype(np.uint8)
    tifffile.imwrite(path, values, compression="lzw", predictor=True)


def _packed_mat(path: Path) -> None:
    values = {"cube": a_cube().values, "s": {"a": 1}, "c": np.array([1, "b"], object)}
    scipy.io.savemat(path, values, do_compression=True)


def _kaist(path: Path) -> None:
    packed = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
    np.savez_compressed(path, scene01=packed, scene01_max=0.9, wavelengths_nm=[450.0, 500.0, 550.0])


def _pack(path: Path) -> None:
    write_cubepack(path, {"one": a_cube(), "two": a_cube()}, overwrite=True)


HEALTHY: dict[str, Callable[[Path], None]] = {
    "cube.nc": lambda path: save(a_cube(), path, overwrite=True),
    "mask.nc": lambda path: save(a_mask(), path, overwrite=True),
    "groups.h5": _hdf5,
    "v73.mat": lambda path: save(a_cube(), path, overwrite=True, format="matlab7.3"),
    "v5.mat": lambda path: save(a_cube(), path, overwrite=True),
    "packed.mat": _packed_mat,
    "cube.npz": lambda path: save(a_cube(), path, overwrite=True),
    "kaist.npz": _kaist,
    "meas.npy": lambda path: save(a_measurement(), path, overwrite=True),
    "cube.tif": lambda path: save(a_cube(), path, overwrite=True),
    "tiled.tif": _tiled,
    "lzw.tif": _lzw,
    "deep.png": _png,
    "cube.hdr": lambda path: save(a_cube(), path, overwrite=True),
    "two.cubepack": _pack,
}
"""A healthy file of every kind, and how it is made."""


# --- and what becomes of them --------------------------------------------------------------------


def mutate(content: bytes, generator: np.random.Generator) -> bytes:
    """The content with one to four changes."""
    wrong = bytearray(content)
    for _ in range(int(generator.integers(1, 5))):
        if wrong:
            _change(wrong, generator)
    return bytes(wrong)


def _change(wrong: bytearray, generator: np.random.Generator) -> None:
    # Structure mostly lies at the start, and at the end of zip archives.
    reach = len(wrong) if generator.random() < 0.5 else min(len(wrong), 800)
    place = int(generator.integers(0, reach))
    if generator.random() < 0.1:
        place = len(wrong) - 1 - place
    length = int(generator.choice([1, 2, 4, 8, 32, 200]))
    way = int(generator.integers(0, 9))
    if way <= 1:
        wrong[place] ^= 1 << int(generator.integers(0, 8))
    elif way == 2:
        wrong[place] = int(generator.integers(0, 256))
    elif way == 3:
        number, width = int(generator.choice(len(NUMBERS))), int(generator.choice([1, 2, 4, 8]))
        order = "little" if generator.random() < 0.7 else "big"
        raw = (NUMBERS[number] % 256**width).to_bytes(width, order)  # type: ignore[arg-type]
        wrong[place : place + width] = raw
    elif way == 4:
        wrong[place : place + length] = bytes([int(generator.choice([0, 255]))]) * length
    elif way == 5:
        del wrong[place : place + length]
    elif way == 6:
        other = int(generator.integers(0, len(wrong)))
        wrong[place:place] = wrong[other : other + length]
    elif way == 7:
        wrong[place : place + 1] = WORDS[int(generator.choice(len(WORDS)))]
    else:
        del wrong[int(generator.integers(0, len(wrong))) :]


def read(path: str) -> tuple[Any, list[Any]]:
    """Read a file in every way that people do; what happened, in a word."""
    word = "read"
    for look in (read_cubepack,) if path.endswith(".cubepack") else (describe, load):
        try:
            look(path)
        except PrismaskError as problem:
            # What would have taken this process with it, had there been no cage.
            caught = {"crash": "crash caught", "stopped after": "loop caught"}
            word = next((caught[said] for said in caught if said in str(problem)), "refused")
    return word, []


def is_ours(path: Path) -> bool:
    """Whether our own code, and no cage, parses a file."""
    try:
        return path.suffix == ".cubepack" or not identify(path).parsers
    except PrismaskError:
        return True


def judge(number: int, seed: int, folder: Path, keep: Path | None) -> tuple[str, str]:
    """Make a mutant and read it; what happened, and what was wrong with that."""
    name = list(HEALTHY)[number % len(HEALTHY)]
    path = folder / name
    generator = np.random.default_rng((seed, number))
    target = path.with_suffix(".img") if name.endswith(".hdr") and number % 4 == 0 else path
    HEALTHY[name](path)
    wrong = mutate(target.read_bytes(), generator)
    target.write_bytes(wrong)
    start = time.monotonic()
    try:
        if is_ours(path):
            word, _ = run_caged("fuzzing:read", [str(path)], LIMITS, ["fuzzing"])
        else:
            word, _ = read(str(path))
        trouble = ""
    except Exception as problem:
        word, trouble = "wrong", f"{type(problem).__name__}: {problem}"[:300]
    taken = time.monotonic() - start
    # Loading and describing may each be stopped at the limit of the reader, and the processes that
    # do it have to be started beside whatever else the machine does.
    if not trouble and taken > 3 * LONGEST_SECONDS:
        word, trouble = "wrong", f"took {taken:.0f} s"
    if trouble and keep is not None:
        (keep / f"{seed}-{number}-{name}").write_bytes(wrong)
    return word, f"mutant {number} of seed {seed}, {name}: {trouble}" if trouble else ""


def run(
    numbers: Iterable[int], seed: int, keep: Path | None = None
) -> tuple[Counter[str], list[str]]:
    """Judge mutants in a folder of their own; how many were read or refused, and all troubles."""
    counts: Counter[str] = Counter()
    troubles = []
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            word, trouble = judge(number, seed, Path(folder), keep)
            counts[word] += 1
            troubles += [trouble] if trouble else []
    return counts, troubles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for mutants that do harm")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    batches = [range(s, min(s + 300, options.count)) for s in range(0, options.count, 300)]
    counts: Counter[str] = Counter()
    troubles: list[str] = []
    start = time.monotonic()
    quiet = (logging.disable, (logging.CRITICAL,))
    with multiprocessing.get_context("spawn").Pool(options.workers, *quiet) as pool:
        work = partial(run, seed=options.seed, keep=options.keep)
        for found, wrong in pool.imap_unordered(work, batches):
            counts += found
            troubles += wrong
            told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
            print(f"{counts.total()} of {options.count}: {told}", flush=True)
            print("".join(f"  {line}\n" for line in wrong), end="", flush=True)
    print(f"{time.monotonic() - start:.0f} s; {len(troubles)} mutants did harm.")
    sys.exit(1 if troubles else 0)


if __name__ == "__main__":
    main()
