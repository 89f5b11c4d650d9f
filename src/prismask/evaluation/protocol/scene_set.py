"""Test scenes, checked before anything is computed: present, of one size, with fitting bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prismask.checks import size_text
from prismask.errors import ConfigError, DataMissingError, ShapeError, ValuesError
from prismask.evaluation.protocol.splits import EvaluationSplit
from prismask.evaluation.run.contenders import Entry
from prismask.models.weights import serves_any_camera
from prismask.optics.camera import CASSI
from prismask.scenes import datasets
from prismask.scenes.formats.files import load_cube
from prismask.scenes.records import Array, Cube
from prismask.scenes.resample import resample

WAVELENGTH_TOLERANCE = 1.0
"""Nanometres by which a network's bands may differ from the scenes' and still count as the same."""

PARTS = ("train", "validation", "test")
"""Names that stand for all scenes of a part of the data folder."""

KAIST_PACK = "kaist.npz"
"""The pack in which nine of ten brightness maxima are estimates."""


@dataclass(frozen=True, eq=False)
class SceneSet:
    """Scenes stacked, with what is worth knowing about them."""

    names: tuple[str, ...]
    values: Array
    """`(N, C, H, W)`, float32."""
    wavelengths: tuple[float, ...] | None
    hashes: Mapping[str, str]
    """Short id of each scene's values."""
    remarks: tuple[str, ...] = ()
    """Constant bands and the like."""
    has_estimated_peaks: bool = False
    """Whether scenes come from the pack whose maxima are known to about 3 % only."""

    @property
    def bands(self) -> int:
        """Number of spectral bands C."""
        return int(self.values.shape[1])

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.values.shape[2]), int(self.values.shape[3])


def load_scene_set(
    split: EvaluationSplit,
    wanted: Sequence[str] | Mapping[str, Cube] | None,
    entries: Sequence[Entry],
    resample_bands: bool = False,
    camera_bands: int | None = None,
    size: tuple[int, int] | None = None,
) -> SceneSet:
    """Load the split's scenes, or those named, or take those given; bands as the models need.

    camera_bands: of a camera that was described; where scenes may be resampled, it is to these.
    size: height and width of the middle of each scene that is taken; None takes it whole.
    """
    if isinstance(wanted, Mapping):
        cubes = dict(wanted)
    else:
        cubes = _read(split, list(wanted or split.scenes))
    if not cubes:
        raise ConfigError("there are no scenes to test on.")
    if size is not None:
        cubes = {name: _middle(cube, size, name) for name, cube in cubes.items()}
    cubes = _one_grid(cubes, split.wavelengths, resample_bands)
    if resample_bands and camera_bands is not None:
        cubes = _at_bands(cubes, camera_bands)
    else:
        cubes = _fit_models(cubes, entries, resample_bands)
    sizes = {cube.size for cube in cubes.values()}
    if len(sizes) > 1:
        listed = ", ".join(f"{name} {size_text(cube.size)}" for name, cube in cubes.items())
        raise ShapeError(
            f"one mask serves all scenes of a trial, but they differ in size: {listed}. Evaluate "
            "each size by itself with --scenes."
        )
    return _stacked(cubes)


def check_camera_bands(camera: CASSI, bands: int) -> None:
    """A camera disperses as many bands as the scenes have."""
    if camera.bands != bands:
        raise ShapeError(
            f"the camera has {camera.bands} bands and the scenes {bands}. Pass --resample to bring "
            "the scenes there (linear in wavelength), or describe another camera."
        )


def _read(split: EvaluationSplit, names: list[str]) -> dict[str, Cube]:
    """Names are looked up in the data folder; what looks like a file is read as one.

    train, validation and test stand for all scenes of that part of the data folder.
    """
    files = [name for name in names if _is_file_name(name, split)]
    listed = [name for name in names if name not in files]
    found = {Path(name).stem: _read_file(name, split) for name in files}
    parts: dict[str, list[str]] = {}
    if listed:
        if split.folder is None:
            raise DataMissingError(
                f"{', '.join(listed)}: scenes by name come from a data folder; give one with "
                "--data, or name files."
            )
        # Where the split says nothing, the data folder's own wavelengths hold.
        for part in [name for name in listed if name in PARTS]:
            cubes = datasets.load_scenes(split.folder, part, split.wavelengths)
            found |= cubes
            parts[part] = list(cubes)
        alone = [name for name in listed if name not in PARTS]
        found |= datasets.load_scenes(split.folder, alone, split.wavelengths) if alone else {}
    order = [
        scene
        for name in names
        for scene in parts.get(name, [Path(name).stem if name in files else name])
    ]
    if len(set(order)) < len(order):
        raise ConfigError(f"a scene is named twice: {', '.join(order)}.")
    return {name: found[name] for name in order}


def _is_file_name(name: str, split: EvaluationSplit) -> bool:
    folders = [folder for folder in (split.beside, split.folder) if folder is not None]
    there = any((folder / name).is_file() for folder in folders) or Path(name).is_file()
    return there or bool(Path(name).suffix) or "/" in name


def _read_file(name: str, split: EvaluationSplit) -> Cube:
    if Path(name).is_file():
        return load_cube(name)
    return load_cube(split.find(name, "scene") / name)


def _middle(cube: Cube, size: tuple[int, int], name: str) -> Cube:
    top, left = ((have - want) // 2 for have, want in zip(cube.size, size, strict=True))
    if min(size) < 1 or min(top, left) < 0:
        raise ShapeError(
            f"scene {name} is {size_text(cube.size)}; it has no middle of {size_text(size)}. "
            "Choose a smaller --size, or leave it out."
        )
    values = cube.values[:, top : top + size[0], left : left + size[1]]
    return Cube(values, cube.wavelengths, attrs=cube.attrs)


def _one_grid(
    cubes: dict[str, Cube], grid: tuple[float, ...] | None, resample_bands: bool
) -> dict[str, Cube]:
    """All scenes at the split's wavelengths, or at those of the first scene."""
    first = next(iter(cubes.values()))
    if grid is None and first.wavelengths is not None:
        grid = tuple(float(w) for w in first.wavelengths)
    bands = len(grid) if grid is not None else first.bands
    fitted = {}
    for name, cube in cubes.items():
        if _at(cube, grid, bands):
            fitted[name] = cube
            continue
        if not resample_bands or grid is None:
            raise ShapeError(
                f"scene {name} has {_bands_text(cube)}; this evaluation runs at {bands} bands"
                f"{_range_text(grid)}. Pass --resample to bring it there (linear in wavelength)."
            )
        fitted[name] = resample(cube, grid)
    return fitted


def _fit_models(
    cubes: dict[str, Cube], entries: Sequence[Entry], resample_bands: bool
) -> dict[str, Cube]:
    """Bring scenes to the bands of the networks, if that is allowed and they agree."""
    first = next(iter(cubes.values()))
    misfits = [entry for entry in entries if not _suits(entry, first)]
    if not resample_bands:
        # Another number of bands is another camera, which some networks serve as it is.
        misfits = [
            entry for entry in misfits
            if entry.bands == first.bands or not serves_any_camera(entry.record)
        ]  # fmt: skip
    if not misfits:
        return cubes
    entry = misfits[0]
    wish = f"{entry.label} was built for {entry.bands} bands{_range_text(entry.wavelengths)}"
    if not resample_bands:
        raise ShapeError(
            f"{wish}; the scenes have {_bands_text(first)}. Pass --resample to bring the scenes "
            "to the network's wavelengths, or use a network trained for these."
        )
    if entry.wavelengths is None:
        raise ConfigError(f"{wish}, but its record does not say at which wavelengths.")
    resampled = {name: resample(cube, entry.wavelengths) for name, cube in cubes.items()}
    for other in entries:
        if not _suits(other, next(iter(resampled.values()))):
            raise ConfigError(
                f"{wish} and {other.label} for {other.bands}{_range_text(other.wavelengths)}: "
                "side by side they need the same measurements. Evaluate them one by one."
            )
    return resampled


def _at_bands(cubes: dict[str, Cube], bands: int) -> dict[str, Cube]:
    """Scenes in `bands` bands over the wavelengths they have."""
    first = next(iter(cubes.values()))
    if first.bands == bands:
        return cubes
    if first.wavelengths is None:
        raise ConfigError(
            f"scenes of {first.bands} bands cannot be brought to {bands}: they do not say at which "
            "wavelengths they are."
        )
    at = np.linspace(first.wavelengths[0], first.wavelengths[-1], bands)
    return {name: resample(cube, at) for name, cube in cubes.items()}


def _suits(entry: Entry, cube: Cube) -> bool:
    return entry.bands is None or _at(cube, entry.wavelengths, entry.bands)


def _at(cube: Cube, grid: tuple[float, ...] | None, bands: int) -> bool:
    if cube.bands != bands:
        return False
    if grid is None or cube.wavelengths is None:
        return True
    return bool(np.abs(cube.wavelengths - np.array(grid)).max() <= WAVELENGTH_TOLERANCE)


def _bands_text(cube: Cube) -> str:
    grid = None if cube.wavelengths is None else tuple(float(w) for w in cube.wavelengths)
    return f"{cube.bands} bands{_range_text(grid)}"


def _range_text(grid: tuple[float, ...] | None) -> str:
    return "" if grid is None else f" ({grid[0]:g}–{grid[-1]:g} nm)"


def _stacked(cubes: dict[str, Cube]) -> SceneSet:
    remarks = []
    for name, cube in cubes.items():
        low, high = cube.values.min(axis=(1, 2)), cube.values.max(axis=(1, 2))
        if not high.max() > 0:
            raise ValuesError(f"scene {name} is black: nothing can be scored on it. Leave it out.")
        flat = [int(band) for band in np.flatnonzero(low == high)]
        if flat:
            bands = ", ".join(str(band) for band in flat)
            remarks.append(
                f"scene {name} is constant in band {bands} (counted from 0): SSIM and ERGAS of "
                "such a band judge noise alone."
            )
    first = next(iter(cubes.values()))
    return SceneSet(
        tuple(cubes),
        np.stack([cube.values for cube in cubes.values()]),
        None if first.wavelengths is None else tuple(float(w) for w in first.wavelengths),
        {name: cube.hash for name, cube in cubes.items()},
        tuple(remarks),
        any(cube.attrs.get("source") == KAIST_PACK for cube in cubes.values()),
    )
