"""The research data that Prismask is trained and measured on: where it is, who is who, loading.

Nothing of it comes with the package. A data folder holds

    splits.json      who is trained, validated and tested on
    cave.cubepack    the CAVE scenes; or a folder `cave` with the PNGs as distributed
    kaist.npz        the ten KAIST test scenes; or a folder `kaist` with scene01.mat …
    masks/           calibrated masks, .mat
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import nearest, size_text
from prismask.errors import DataMissingError, FormatError, ShapeError
from prismask.scenes.cubepack import read_cubepack, read_header
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.formats import cave, kaist
from prismask.scenes.formats.contents import reading
from prismask.scenes.formats.files import load_cube, load_mask
from prismask.scenes.records import Cube, Mask
from prismask.scenes.resample import resample

VARIABLE = "PRISMASK_DATA"
"""Environment variable that names the data folder."""
LEFT_OUT = ("watercolors",)
"""CAVE scenes that are not trained on: 8-bit at the source."""

HOW_TO_GET = {
    "splits.json": "write it: {wavelengths_nm, scenes: {train, validation, test}, masks}",
    "CAVE": "download it from https://www.cs.columbia.edu/CAVE/databases/multispectral/ and unpack "
    "it into a folder `cave`, or pack it with prismask.scenes.cubepack.write_cubepack",
    "KAIST": "take the ten simulation test scenes (scene01.mat …) from "
    "https://github.com/mengziyi64/TSA-Net and put them into a folder `kaist`",
    "masks": "take mask.mat from https://github.com/mengziyi64/TSA-Net (660×660 and 256×256) and "
    "https://github.com/mengziyi64/SMEM and put them into a folder `masks`",
}
"""How each piece is obtained."""

_KAIST_NAME = re.compile(r"scene\d\d")


@dataclass(frozen=True)
class MaskRegion:
    """A part of a mask file."""

    file: str
    """Path of the file in the data folder."""
    rows: tuple[int, int] | None = None
    """First row and the one after the last; None for all."""
    columns: tuple[int, int] | None = None
    """First column and the one after the last; None for all."""


@dataclass(frozen=True)
class Split:
    """Who is trained, validated and tested on."""

    wavelengths: tuple[float, ...]
    """Wavelengths in nm to which all scenes are brought."""
    train: tuple[str, ...]
    """Scenes to train on; empty where the CAVE scenes are absent."""
    validation: tuple[str, ...]
    """Scenes to choose on."""
    test: tuple[str, ...]
    """Scenes for the final test alone."""
    masks: Mapping[str, MaskRegion]
    """Mask regions by name."""


def data_folder(path: str | Path | None = None) -> Path:
    """The data folder: the one given, else `PRISMASK_DATA`, else `shared/data` here or above."""
    stated = path if path is not None else os.environ.get(VARIABLE)
    if stated is not None:
        folder = Path(stated)
        if folder.is_dir():
            return folder
        origin = "" if path is not None else f" (from {VARIABLE})"
        raise DataMissingError(f"there is no data folder {folder}{origin}. {_how_to_get()}")
    here = Path.cwd()
    for place in (here, *here.parents):
        if (place / "shared" / "data" / "splits.json").is_file():
            return place / "shared" / "data"
    raise DataMissingError(
        f"no data folder was found: {VARIABLE} is not set, and neither {here} nor a folder above "
        f"it has shared/data/splits.json. {_how_to_get()}"
    )


def read_split(folder: str | Path) -> Split:
    """The split that `splits.json` fixes.

    `train` may be a list of names; anything else stands for every CAVE scene that is neither
    validated on nor left out.
    """
    folder = Path(folder)
    path = folder / "splits.json"
    if not path.is_file():
        raise DataMissingError(f"{path} is missing. {_how_to_get('splits.json')}")
    with reading(path, "a split"):
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        scenes = facts["scenes"]
        validation, test = tuple(scenes["validation"]), tuple(scenes["test"])
        train = scenes["train"]
        if not isinstance(train, list):
            apart = {*validation, *LEFT_OUT}
            train = [name for name in cave_names(folder) if name not in apart]
        masks = {name: _region(region) for name, region in facts["masks"].items()}
        wavelengths = tuple(float(w) for w in facts["wavelengths_nm"])
    shared = (set(train) | set(validation)) & set(test) | set(train) & set(validation)
    if shared:
        raise FormatError(f"{path} puts {', '.join(sorted(shared))} into two groups at once.")
    return Split(wavelengths, tuple(train), validation, test, masks)


def load_scenes(
    folder: str | Path,
    which: str | Iterable[str],
    wavelengths: Sequence[float] | NDArray[np.float64] | None = None,
) -> dict[str, Cube]:
    """Scenes by name, at the split's wavelengths or at those given (linear interpolation).

    `which` is a group (`train`, `validation`, `test`) or a list of names; `scene01` … are KAIST
    scenes, all others CAVE scenes.
    """
    folder = Path(folder)
    if isinstance(which, str) or wavelengths is None:
        split = read_split(folder)
        wavelengths = split.wavelengths if wavelengths is None else wavelengths
    names = list(which) if not isinstance(which, str) else list(_group(split, which))
    if which == "train" and not names:
        raise DataMissingError(f"{folder} has no CAVE scenes. {_how_to_get('CAVE')}")
    tests = [name for name in names if _KAIST_NAME.fullmatch(name)]
    others = [name for name in names if not _KAIST_NAME.fullmatch(name)]
    found = _load_kaist(folder, tests, wavelengths) if tests else {}
    found |= _load_cave(folder, others, wavelengths) if others else {}
    return {name: found[name] for name in names}


def load_mask_file(folder: str | Path, region: MaskRegion | str) -> Mask:
    """A mask of the data folder: a file by its path in there, or a region of one."""
    region = MaskRegion(region) if isinstance(region, str) else region
    path = Path(folder) / region.file
    if not path.is_file():
        raise DataMissingError(f"{path} is missing. {_how_to_get('masks')}")
    mask = load_mask(path)
    height, width = mask.size
    top, bottom = region.rows or (0, height)
    left, right = region.columns or (0, width)
    if not (0 <= top < bottom <= height and 0 <= left < right <= width):
        raise ShapeError(
            f"rows {top}–{bottom} and columns {left}–{right} are not all in {path}, "
            f"which is {size_text(mask.size)}."
        )
    attrs = {"source": region.file, "rows": [top, bottom], "columns": [left, right]}
    std = None if mask.std is None else mask.std[..., top:bottom, left:right]
    return Mask(mask.values[..., top:bottom, left:right], mask.wavelengths, attrs, std)


def read_scene_folder(folder: str | Path, names: Iterable[str] | None = None) -> dict[str, Cube]:
    """A folder of .mat scenes, one per file, as TSA-Net hands them out.

    Scenes of 28 bands without wavelengths of their own get those of the TSA-Net camera.
    """
    folder = Path(folder)
    files = {path.stem: path for path in sorted(folder.glob("[!.]*.mat"))}
    cubes = {}
    for name in list(files) if names is None else names:
        if name not in files:
            raise DataMissingError(
                f"{folder} has no scene {name!r}.{nearest(name, files)} {_how_to_get('KAIST')}"
            )
        cube = load_cube(files[name])
        if cube.wavelengths is None and cube.bands == BANDS:
            cube = Cube(cube.values, np.array(WAVELENGTHS_NM), attrs=cube.attrs)
        cubes[name] = cube
    return cubes


def cave_names(folder: str | Path) -> tuple[str, ...]:
    """Names of the CAVE scenes in a data folder, packed or as PNGs; empty if there are none."""
    folder = Path(folder)
    pack = folder / "cave.cubepack"
    if pack.is_file():
        with reading(pack, "cubepack"):
            return tuple(read_header(pack).entries)
    pictures = folder / "cave"
    return tuple(cave.find_scenes(pictures)) if pictures.is_dir() else ()


def _load_cave(folder: Path, names: list[str], wavelengths: Any) -> dict[str, Cube]:
    known = cave_names(folder)
    if not known:
        raise DataMissingError(f"{folder} has no CAVE scenes. {_how_to_get('CAVE')}")
    for name in names:
        if name not in known:
            raise DataMissingError(
                f"{folder} has no CAVE scene {name!r}.{nearest(name, known)} "
                f"Known: {', '.join(known)}."
            )
    if (folder / "cave.cubepack").is_file():
        return read_cubepack(folder / "cave.cubepack", names, wavelengths)
    cubes = {}
    for name in names:
        scene = load_cube(folder / "cave", variable=name)
        attrs = {"source": "CAVE", "scene": name}
        cubes[name] = resample(Cube(scene.values, scene.wavelengths, attrs=attrs), wavelengths)
    return cubes


def _load_kaist(folder: Path, names: list[str], wavelengths: Any) -> dict[str, Cube]:
    if (folder / "kaist.npz").is_file():
        with reading(folder / "kaist.npz", "packed KAIST scenes"):
            cubes = kaist.read_kaist(folder / "kaist.npz", names)
    elif (folder / "kaist").is_dir():
        cubes = read_scene_folder(folder / "kaist", names)
    else:
        raise DataMissingError(f"{folder} has no KAIST scenes. {_how_to_get('KAIST')}")
    return {name: resample(cube, wavelengths) for name, cube in cubes.items()}


def _group(split: Split, which: str) -> tuple[str, ...]:
    groups = {"train": split.train, "validation": split.validation, "test": split.test}
    return groups.get(which, (which,))


def _region(facts: dict[str, Any]) -> MaskRegion:
    rows, columns = facts.get("rows"), facts.get("columns")
    return MaskRegion(
        str(facts["file"]),
        None if rows is None else (int(rows[0]), int(rows[1])),
        None if columns is None else (int(columns[0]), int(columns[1])),
    )


def _how_to_get(piece: str | None = None) -> str:
    pieces = HOW_TO_GET if piece is None else {piece: HOW_TO_GET[piece]}
    return "How to get it: " + "; ".join(f"{name}: {how}" for name, how in pieces.items()) + "."
