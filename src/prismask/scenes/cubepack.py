"""`.cubepack`: the scenes of a data folder in one small file, near-losslessly.

A cube is stored as the square root of its values (which evens out the noise), turned over the
bands by an orthonormal basis, and rounded to multiples of `step`. Each of the resulting planes is
kept as it is or as the residue of predicting every pixel from its left and upper neighbours,
whichever is shorter after LZMA: one byte (1: predicted) and an LZMA stream of two byte planes, low
bytes first, of the numbers folded to non-negative ones (0, −1, 1, −2 … → 0, 1, 2, 3 …).

    b"CUBEPAK1" · length of the header (8 bytes, little-endian) · header (JSON, xz) · planes
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import nearest
from prismask.errors import FormatError, ValuesError
from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import check_claim, check_decoded, file_size, reading
from prismask.scenes.records import Cube

MAGIC = b"CUBEPAK1"
STEP = 0.005
"""Rounding of the coefficients; costs about 60 dB."""
_LARGEST_HEADER = 2**24
_LZMA_RATIO = 20_000
"""LZMA packs a constant plane about 7,000 times; a header that claims more is wrong."""
_LZMA_MEMORY = 2**28


@dataclass(frozen=True)
class Entry:
    """Where one cube lies in the pack and how its bands were turned."""

    shape: tuple[int, int, int]
    mean: NDArray[np.float32]
    basis: NDArray[np.float32]
    spans: tuple[tuple[int, int], ...]
    """Start and end of each plane in the file."""


@dataclass(frozen=True)
class Header:
    """What a pack says about itself."""

    about: str
    step: float
    wavelengths: tuple[float, ...]
    entries: Mapping[str, Entry]


def read_cubepack(
    path: str | Path, names: Iterable[str] | None = None, wavelengths: Iterable[float] | None = None
) -> dict[str, Cube]:
    """Cubes of a pack by name, interpolated linearly to `wavelengths` in nm where given."""
    from prismask.scenes.resample import resample

    path = Path(path)
    with reading(path, "cubepack"):
        header = read_header(path)
        chosen = list(header.entries if names is None else names)
        for name in chosen:
            if name not in header.entries:
                raise FormatError(
                    f"{path} has no scene {name!r}.{nearest(name, header.entries)} "
                    f"Found: {', '.join(header.entries)}."
                )
        target = None if wavelengths is None else np.array(list(wavelengths), dtype=np.float64)

        def one(name: str) -> Cube:
            values = _decode(path, header, header.entries[name])
            attrs = {"source": path.name, "scene": name, "about": header.about}
            cube = Cube(values, np.array(header.wavelengths), attrs=attrs)
            return cube if target is None else resample(cube, target)

        # LZMA and BLAS release the interpreter lock, so threads do use the cores. The limits in use
        # are those of this thread; others have to be given them.
        here = [copy_context() for _ in chosen]
        with ThreadPoolExecutor() as pool:
            made = pool.map(lambda context, name: context.run(one, name), here, chosen)
            return dict(zip(chosen, made, strict=True))


def read_header(path: Path) -> Header:
    """The header of a pack, with every size checked against the file."""
    size = file_size(path)
    with path.open("rb") as file:
        start = file.read(16)
        if start[:8] != MAGIC or len(start) < 16:
            raise FormatError(f"{path} is no cubepack, or cut short in its first bytes.")
        length = int.from_bytes(start[8:], "little")
        check_claim(path, 16 + length, size, "the header")
        text = _unpack(path, file.read(length), lzma.FORMAT_XZ, _LARGEST_HEADER, "the header")
    facts = json.loads(text)
    if not isinstance(facts, dict) or facts.get("format") != "cubepack-1":
        raise FormatError(f"{path} does not say that it is in the format cubepack-1.")
    wavelengths = tuple(float(w) for w in facts["wavelengths_nm"])
    entries = {}
    for name, entry in facts["cubes"].items():
        try:
            entries[str(name)] = _entry(entry, 16 + length, size, len(wavelengths))
        except FormatError as problem:
            raise FormatError(f"{path}, {name}: {problem}") from problem
    return Header(str(facts.get("about", "")), float(facts["step"]), wavelengths, entries)


def write_cubepack(
    path: str | Path,
    cubes: Mapping[str, Cube],
    step: float = STEP,
    about: str = "",
    overwrite: bool = False,
) -> None:
    """Write cubes with equal wavelengths as a pack; values are clipped to [0, 1]."""
    wavelengths = _common_wavelengths(cubes)
    index: dict[str, Any] = {}
    offset = 0
    with write_beside(path, overwrite=overwrite) as part:
        planes: list[bytes] = []
        for name, cube in cubes.items():
            facts, packed = _encode(name, np.clip(cube.values, 0, 1), step)
            index[name] = facts | {"offset": offset, "sizes": [len(plane) for plane in packed]}
            offset += sum(index[name]["sizes"])
            planes += packed
        header = {
            "format": "cubepack-1",
            "about": about,
            "step": step,
            "wavelengths_nm": wavelengths,
            "cubes": index,
        }
        packed_header = lzma.compress(json.dumps(header).encode())
        with part.open("wb") as file:
            file.write(MAGIC + len(packed_header).to_bytes(8, "little") + packed_header)
            file.writelines(planes)


def _entry(facts: dict[str, Any], start: int, size: int, bands: int) -> Entry:
    shape = tuple(int(n) for n in facts["shape"])
    if len(shape) != 3 or min(shape) < 1 or shape[0] != bands or len(facts["sizes"]) != bands:
        raise FormatError(f"its shape {shape} does not fit {bands} wavelengths.")
    mean = np.array(facts["mean"], dtype=np.float32)
    basis = np.array(facts["basis"], dtype=np.float32)
    if mean.shape != (bands,) or basis.shape != (bands, bands):
        raise FormatError(f"its mean or its basis does not fit {bands} bands.")
    position = start + int(facts["offset"])
    spans = []
    for length in facts["sizes"]:
        end = position + int(length)
        if position < start or end < position + 2:
            raise FormatError(f"a plane of {length} bytes at {position} is not possible.")
        check_claim("the pack", end, size, "a plane")
        check_claim("the pack", 2 * shape[1] * shape[2], end - position, "a plane", _LZMA_RATIO)
        spans.append((position, end))
        position = end
    return Entry((shape[0], shape[1], shape[2]), mean, basis, tuple(spans))


def _decode(path: Path, header: Header, entry: Entry) -> NDArray[np.float32]:
    bands, height, width = entry.shape
    check_decoded(path, 4 * bands * height * width, "a scene")
    first, last = entry.spans[0][0], entry.spans[-1][1]
    with path.open("rb") as file:
        file.seek(first)
        blob = file.read(last - first)
    planes = [
        decode_plane(path, blob[start - first : end - first], (height, width))
        for start, end in entry.spans
    ]
    coefficients = np.stack(planes).reshape(bands, -1).astype(np.float32)
    roots = entry.basis.T @ (coefficients * np.float32(header.step)) + entry.mean[:, None]
    np.clip(roots, 0, 1, out=roots)
    return np.square(roots, out=roots).reshape(entry.shape)


def _encode(
    name: str, values: NDArray[np.float32], step: float
) -> tuple[dict[str, Any], list[bytes]]:
    bands = values.shape[0]
    roots = np.sqrt(values.reshape(bands, -1).astype(np.float64))
    mean = roots.mean(1).astype(np.float32)
    centred = roots - mean[:, None]
    # Eigenvectors of the covariance, strongest first: most planes then hold next to nothing.
    _, vectors = np.linalg.eigh(centred @ centred.T)
    basis = np.ascontiguousarray(vectors[:, ::-1].T, dtype=np.float32)
    coefficients = np.rint(basis @ centred / step)
    if np.abs(coefficients).max(initial=0) > 32767:
        raise ValuesError(f"{name}: a step of {step:g} is too fine for 16 bits; use a larger one.")
    planes = coefficients.astype(np.int32).reshape(values.shape)
    with ThreadPoolExecutor() as pool:
        packed = list(pool.map(encode_plane, planes))
    back = basis.T @ (coefficients.astype(np.float32) * np.float32(step)) + mean[:, None]
    error = np.clip(back, 0, 1) ** 2 - values.reshape(bands, -1)
    rmse, peak = float(np.sqrt(np.mean(error**2))), float(values.max())
    psnr = round(20 * np.log10(peak / rmse), 2) if peak > 0 and rmse > 0 else None
    facts = {
        "shape": list(values.shape),
        "mean": mean.tolist(),
        "basis": basis.tolist(),
        "error_psnr": psnr,
    }
    return facts, packed


def _common_wavelengths(cubes: Mapping[str, Cube]) -> list[float]:
    if not cubes:
        raise ValuesError("a pack needs at least one cube.")
    stated = {
        name: None if cube.wavelengths is None else cube.wavelengths.tolist()
        for name, cube in cubes.items()
    }
    (first, wavelengths), *others = stated.items()
    if wavelengths is None or any(other != wavelengths for _, other in others):
        raise ValuesError(
            f"cubes of a pack need known and equal wavelengths; those of {first} and the others "
            "differ or are missing. Resample them first."
        )
    return list(wavelengths)


# --- planes --------------------------------------------------------------------------------------


def encode_plane(plane: NDArray[np.int32]) -> bytes:
    """A plane `(H, W)` whose numbers fit 16 bits, in the shorter of the two ways."""
    # A dictionary larger than the plane only costs memory: 64 MiB a thread by default.
    dictionary = max(2**12, 2 * plane.size)
    filters = [
        {"id": lzma.FILTER_LZMA1, "preset": 9, "dict_size": dictionary, "lc": 0, "lp": 0, "pb": 0}
    ]
    residue = np.diff(np.diff(plane, axis=0, prepend=0), axis=1, prepend=0)
    shortest = b""
    for mode, numbers in enumerate((plane, residue)):
        if numbers.min() < -32768 or numbers.max() > 32767:
            continue
        folded = (numbers << 1) ^ (numbers >> 31)
        raw = folded.astype("<u2").view(np.uint8).reshape(-1, 2).T.tobytes()
        packed = lzma.compress(raw, format=lzma.FORMAT_ALONE, filters=filters)
        if not shortest or len(packed) + 1 < len(shortest):
            shortest = bytes([mode]) + packed
    return shortest


def decode_plane(path: Path, data: bytes, shape: tuple[int, int]) -> NDArray[np.int32]:
    """The plane `(H, W)` in `data`."""
    count = shape[0] * shape[1]
    raw = _unpack(path, data[1:], lzma.FORMAT_ALONE, 2 * count, "a plane")
    if len(raw) != 2 * count or data[0] not in (0, 1):
        raise FormatError(f"{path}: a plane holds {len(raw)} bytes instead of {2 * count}.")
    low = np.frombuffer(raw, np.uint8, count)
    high = np.frombuffer(raw, np.uint8, count, offset=count)
    folded = low.astype(np.int32) | (high.astype(np.int32) << 8)
    values = ((folded >> 1) ^ -(folded & 1)).reshape(shape)
    if data[0] == 0:
        return values
    return values.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32)


def _unpack(path: Path, data: bytes, kind: int, largest: int, what: str) -> bytes:
    """Decompress at most `largest` bytes, so that a few bytes cannot fill the memory."""
    decompressor = lzma.LZMADecompressor(format=kind, memlimit=_LZMA_MEMORY)
    raw = decompressor.decompress(data, max_length=largest + 1)
    if len(raw) > largest:
        raise FormatError(f"{path}: {what} unpacks to more than {largest} bytes.")
    if not decompressor.eof and kind == lzma.FORMAT_XZ:
        raise FormatError(f"{path}: {what} is cut short.")
    return raw
