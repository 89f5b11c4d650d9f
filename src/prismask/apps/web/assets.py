"""The files that pages are made of; all of them come with the package or with plotly's wheel."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prismask.errors import DataMissingError

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
PLOTLY = "plotly.js"
PACKED = (".html", ".css", ".js", ".svg")


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    kind: str
    content: bytes
    packed: bytes | None
    """The same in gzip, where that is shorter."""
    etag: str


@cache
def find_asset(name: str) -> Asset:
    """The file of this name; a name that is not among ours leads nowhere."""
    if name == PLOTLY:
        from plotly.offline import get_plotlyjs

        text: str = get_plotlyjs()
        return _asset(".js", text.encode())
    path = _paths().get(name)
    if path is None:
        raise DataMissingError("there is no such file.")
    return _asset(path.suffix, path.read_bytes())


def text_of(name: str) -> str:
    """A file as text."""
    return find_asset(name).content.decode()


def _asset(suffix: str, content: bytes) -> Asset:
    packed = gzip.compress(content, 6, mtime=0) if suffix in PACKED else None
    return Asset(TYPES[suffix], content, packed, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


@cache
def _paths() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
