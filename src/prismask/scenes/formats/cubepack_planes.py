"""The planes of a `.cubepack`: 16-bit numbers, predicted, folded and LZMA-coded.

A plane is one byte (1: predicted) and an LZMA stream of two byte planes, low bytes first, of the
numbers folded to non-negative ones (0, −1, 1, −2 … → 0, 1, 2, 3 …).
"""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError

LZMA_RATIO = 20_000
"""LZMA packs a constant plane about 7,000 times; a header that claims more is wrong."""
_LZMA_MEMORY = 2**28


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
    raw = unpack(path, data[1:], lzma.FORMAT_ALONE, 2 * count, "a plane")
    if len(raw) != 2 * count or data[0] not in (0, 1):
        raise FormatError(f"{path}: a plane holds {len(raw)} bytes instead of {2 * count}.")
    low = np.frombuffer(raw, np.uint8, count)
    high = np.frombuffer(raw, np.uint8, count, offset=count)
    folded = low.astype(np.int32) | (high.astype(np.int32) << 8)
    values = ((folded >> 1) ^ -(folded & 1)).reshape(shape)
    if data[0] == 0:
        return values
    return values.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32)


def unpack(path: Path, data: bytes, kind: int, largest: int, what: str) -> bytes:
    """Decompress at most `largest` bytes, so that a few bytes cannot fill the memory."""
    decompressor = lzma.LZMADecompressor(format=kind, memlimit=_LZMA_MEMORY)
    raw = decompressor.decompress(data, max_length=largest + 1)
    if len(raw) > largest:
        raise FormatError(f"{path}: {what} unpacks to more than {largest} bytes.")
    if not decompressor.eof and kind == lzma.FORMAT_XZ:
        raise FormatError(f"{path}: {what} is cut short.")
    return raw
