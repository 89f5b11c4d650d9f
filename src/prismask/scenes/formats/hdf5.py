"""Walking through an HDF5 file without leaving it, for NetCDF-4 and MATLAB v7.3.

HDF5 lets a file point to others: external links, arrays stored in raw files, virtual arrays.
None of these is followed, or a crafted file could have any file of this computer copied
into a cube. Links within the file are left out as well: what they lead to is found by itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.scenes.formats.contents import (
    DEFLATE_RATIO,
    MOST_TEXT_BYTES,
    Variable,
    check_claim,
    check_count,
    check_decoded,
    printable,
)

logger = logging.getLogger(__name__)

OUTSIDE = "stored in another file, which is not followed: copy the data into this one"
LINK = object()
"""Stands for a node that lies in another file."""


def members(path: Path, group: Any) -> Iterator[tuple[str, Any]]:
    """Name and node of everything that lies in a group itself, `LINK` for what lies elsewhere.

    What cannot be opened is left out with a warning, but for the root: there lie a file's own
    arrays, and one that lacks its error bar must not pass for a whole.
    """
    import h5py

    check_count(path, len(group), "objects")
    for name in group:
        # Names that are no UTF-8 come as bytes.
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        text = raw.decode("utf-8", "surrogateescape")
        try:
            kind = group.id.links.get_info(raw).type
            node = open_node(group, text) if kind == h5py.h5l.TYPE_HARD else None
            if node is not None:
                yield text, node
            elif kind == h5py.h5l.TYPE_EXTERNAL:
                yield text, LINK
        except Exception as problem:  # h5py raises anything; the rest of the file is readable
            if group.name == "/":
                raise FormatError(f"{path}: {text} cannot be read: {problem}.") from problem
            where = printable(f"{group.name}/{text}")
            logger.warning("%s: %s cannot be read and is left out: %s", path, where, problem)


def open_node(group: Any, name: str) -> Any:
    """The array or group at a path, None for anything else; the name need be no UTF-8."""
    import h5py

    found = h5py.h5o.open(group.id, name.encode("utf-8", "surrogateescape"))
    if isinstance(found, h5py.h5d.DatasetID):
        return h5py.Dataset(found)
    return h5py.Group(found) if isinstance(found, h5py.h5g.GroupID) else None


def all_arrays(path: Path, file: Any) -> Iterator[tuple[str, Any]]:
    """Path and node of every array of a file, in the order of the paths; `LINK` as above."""
    import h5py

    # Not recursive: groups may lie a thousand deep.
    open_groups = [("", members(path, file))]
    seen = {h5py.h5o.get_info(file.id).addr}
    count = 0
    while open_groups:
        start, rest = open_groups[-1]
        name, node = next(rest, (None, None))
        if node is None:
            open_groups.pop()
            continue
        count += 1
        check_count(path, count, "objects")
        if node is LINK or isinstance(node, h5py.Dataset):
            yield f"{start}{name}", node
        elif isinstance(node, h5py.Group):
            address = h5py.h5o.get_info(node.id).addr
            if address not in seen:  # groups may hold each other
                seen.add(address)
                open_groups.append((f"{start}{name}/", members(path, node)))


def link_variable(name: str) -> Variable:
    """What is listed of an array that lies in another file."""

    def refuse() -> NDArray[Any]:
        raise FormatError(f"{name} is {OUTSIDE}.")

    return Variable(name, (), "link", refuse, note=OUTSIDE)


def note_for(node: Any) -> str:
    """Why an array cannot be used, or an empty string."""
    import h5py

    if node.dtype.kind not in "fiub":
        return "not real numbers"
    if node.shape is None:
        return "empty"
    plan = node.id.get_create_plist()
    is_virtual = plan.get_layout() == h5py.h5d.VIRTUAL
    outside = is_virtual and any(one.file_name != "." for one in node.virtual_sources())
    return OUTSIDE if outside or plan.get_external_count() else ""


def read_values(path: Path, node: Any) -> NDArray[Any]:
    """The numbers of an array, after everything it claims was checked."""
    trouble = note_for(node)
    if trouble:
        raise FormatError(f"{path}: {node.name} is {trouble}.")
    claimed = math.prod(node.shape) * node.dtype.itemsize
    check_claim(path, claimed, path.stat().st_size, own_path(node), DEFLATE_RATIO)
    check_decoded(path, claimed, own_path(node))
    if node.chunks is not None:
        chunk = math.prod(node.chunks) * node.dtype.itemsize
        check_decoded(path, chunk, f"a chunk of {own_path(node)}")
    return np.asarray(node[()])


def attributes(path: Path, node: Any) -> dict[str, Any]:
    """The attributes of a node; lists of one number are that number."""
    check_count(path, len(node.attrs), "attributes")
    found = {}
    for name in node.attrs:
        check_size(path, node.attrs.get_id(name).get_storage_size(), f"the attribute {name}")
        found[name] = attribute(node, name)
    return found


def attribute(node: Any, name: str) -> Any:
    """One attribute, None where there is none."""
    import h5py

    if not h5py.h5a.exists(node.id, name.encode("utf-8", "surrogateescape")):
        return None
    value = node.attrs[name]
    is_list_of_one = isinstance(value, np.ndarray) and value.size == 1
    return value.reshape(-1)[0] if is_list_of_one else value


def text_attribute(node: Any, name: str) -> str:
    """An attribute as text, empty where there is none."""
    value = attribute(node, name)
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def check_size(path: Path, size: int, what: str) -> None:
    """Raise where a text is too long to be one."""
    if size > MOST_TEXT_BYTES:
        raise FormatError(f"{path}: {what} takes {size} bytes; {MOST_TEXT_BYTES} are the limit.")


def own_path(node: Any) -> str:
    """`/entry/cube` → `entry/cube`."""
    return str(node.name).lstrip("/")
