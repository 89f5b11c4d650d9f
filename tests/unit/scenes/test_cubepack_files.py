"""The .cubepack format, against the reference program that came with the data."""

from __future__ import annotations

import importlib.util
import json
import lzma
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from file_examples import a_cube

from prismask.errors import FormatError, OutputExistsError, ValuesError
from prismask.scenes.cubepack import (
    MAGIC,
    decode_plane,
    encode_plane,
    read_cubepack,
    write_cubepack,
)
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.formats.files import load_cube
from prismask.scenes.records import Cube


@pytest.fixture(scope="module")
def reference(data_folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", data_folder / "cubepack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def smooth_cube(bands: int = 7, height: int = 24, width: int = 31) -> Cube:
    """Something like a scene: few spectra, smooth in space."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    spectra = np.random.default_rng(0).random((3, bands))
    maps = np.stack([x, y, np.sin(5 * x * y) ** 2])
    return Cube(np.einsum("sb,shw->bhw", spectra, maps) / 3, 450.0 + 10 * np.arange(bands))


def test_rounding_is_all_that_is_lost(tmp_path: Path) -> None:
    cube = smooth_cube()
    for step in (0.005, 0.0005):
        write_cubepack(tmp_path / "x.cubepack", {"one": cube}, step, overwrite=True)
        back = read_cubepack(tmp_path / "x.cubepack")["one"]
        # The root of a value is off by at most step/2 in every turned band.
        roots = np.abs(np.sqrt(back.values) - np.sqrt(cube.values)).max()
        assert roots <= step / 2 * np.sqrt(cube.bands) + 1e-6
        assert np.array_equal(back.wavelengths, cube.wavelengths)


def test_rounding_leaves_no_value_beyond_full_scale(tmp_path: Path) -> None:
    """Black and white are at the ends of what a value can be; a coarse step misses them widely."""
    drawn = np.random.default_rng(3).random((5, 16, 16)) < 0.5
    cube = Cube(drawn.astype(np.float32), 450.0 + 10 * np.arange(5))
    write_cubepack(tmp_path / "x.cubepack", {"one": cube}, 0.1)
    back = read_cubepack(tmp_path / "x.cubepack")["one"].values
    assert (back.min(), back.max()) == (0, 1)
    # A root that was rounded below 0 is 0, not its square.
    assert (back[drawn] == 1).mean() > 0.3
    assert (back[~drawn] == 0).mean() > 0.3


def test_planes_of_any_numbers_come_back() -> None:
    generator = np.random.default_rng(0)
    for low, high in ((-3, 4), (-32767, 32768), (0, 1)):
        plane = generator.integers(low, high, (17, 9)).astype(np.int32)
        assert np.array_equal(decode_plane(Path("x"), encode_plane(plane), plane.shape), plane)
    # Predicting these would need 17 bits: they must be stored as they are.
    extreme = np.array([[32767, -32768], [-32768, 32767]], np.int32)
    assert np.array_equal(decode_plane(Path("x"), encode_plane(extreme), (2, 2)), extreme)


def test_names_and_wavelengths_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "x.cubepack"
    cube = smooth_cube()
    write_cubepack(path, {"one": cube, "two": cube, "three": cube})
    assert list(read_cubepack(path, ["three", "one"])) == ["three", "one"]
    at = [455.0, 500.0]
    found = read_cubepack(path, ["one"], at)["one"]
    assert found.wavelengths.tolist() == at
    whole = read_cubepack(path, ["one"])["one"].values
    np.testing.assert_allclose(found.values[0], (whole[0] + whole[1]) / 2, atol=1e-6)
    with pytest.raises(FormatError, match=r"no scene 'tow'\. Did you mean 'two'"):
        read_cubepack(path, ["tow"])
    with pytest.raises(ValuesError, match="reach 10 nm below"):
        read_cubepack(path, ["one"], [440.0])
    with pytest.raises(FormatError, match=r"a pack of training scenes.*read_cubepack"):
        load_cube(path)


def test_writing_refuses_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.cubepack"
    cube = smooth_cube()
    with pytest.raises(ValuesError, match="at least one"):
        write_cubepack(path, {})
    with pytest.raises(ValuesError, match="Resample them first"):
        write_cubepack(path, {"one": cube, "two": smooth_cube(bands=5)})
    with pytest.raises(ValuesError, match="Resample them first"):
        write_cubepack(path, {"one": Cube(cube.values)})
    with pytest.raises(ValuesError, match="too fine for 16 bits"):
        write_cubepack(path, {"one": cube}, step=1e-9)
    assert not list(tmp_path.iterdir())
    write_cubepack(path, {"dark": Cube(np.zeros((2, 3, 4)), [500.0, 600.0])})
    assert read_cubepack(path)["dark"].values.max() == 0
    with pytest.raises(OutputExistsError):
        write_cubepack(path, {"one": cube})


# --- headers that lie --------------------------------------------------------------------------


def pack_header(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header: dict[str, Any] = json.loads(lzma.decompress(content[16 : 16 + length]))
    return header


def tampered(folder: Path, **changes: Any) -> Path:
    """A good pack whose entry says something else."""
    good = folder / "good.cubepack"
    write_cubepack(good, {"one": a_cube(bare=True)}, overwrite=True)
    content = good.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header = pack_header(good)
    header["cubes"]["one"] |= changes
    packed = lzma.compress(json.dumps(header).encode())
    path = folder / "bad.cubepack"
    path.write_bytes(MAGIC + len(packed).to_bytes(8, "little") + packed + content[16 + length :])
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [3, 10**9, 10**9]},
        {"shape": [3, 50, 40]},
        {"shape": [3, 2, 2]},
        {"shape": [4, 5, 4]},
        {"shape": [3, -5, -4]},
        {"sizes": [10**12, 10, 10]},
        {"sizes": [0, 10, 10]},
        {"sizes": [-5, 10, 10]},
        {"sizes": [10, 10]},
        {"offset": 10**12},
        {"offset": -16},
        {"mean": [0.5]},
        {"basis": [[1.0]]},
        {"basis": "none"},
    ],
)
def test_headers_that_lie(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="bad"):
        read_cubepack(tampered(tmp_path, **changes))


def test_header_longer_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.cubepack"
    path.write_bytes(MAGIC + (2**62).to_bytes(8, "little") + bytes(100))
    with pytest.raises(FormatError, match="the header claims"):
        read_cubepack(path)


def test_header_that_unpacks_without_end(tmp_path: Path) -> None:
    packed = lzma.compress(bytes(2**27), preset=0)  # 128 MiB in 20 kB
    path = tmp_path / "x.cubepack"
    path.write_bytes(MAGIC + len(packed).to_bytes(8, "little") + packed)
    with pytest.raises(FormatError, match="unpacks to more than"):
        read_cubepack(path)


def test_planes_that_unpack_to_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.cubepack"
    write_cubepack(path, {"one": Cube(np.zeros((16, 8, 8)), 400.0 + np.arange(16))})
    bad = tmp_path / "bad.cubepack"
    side = 3000  # 576 MB of values from a few kilobytes
    plane = encode_plane(np.zeros((side, side), np.int32))
    header = pack_header(path)
    header["cubes"]["one"] |= {"shape": [16, side, side], "sizes": [len(plane)] * 16}
    packed = lzma.compress(json.dumps(header).encode())
    bad.write_bytes(MAGIC + len(packed).to_bytes(8, "little") + packed + 16 * plane)
    with pytest.raises(FormatError, match=r"a scene would take 576 MB.*PRISMASK_READ_MEMORY"):
        read_cubepack(bad)


@pytest.mark.parametrize(
    "changes",
    [{"step": "fine"}, {"wavelengths_nm": 3}, {"cubes": []}, {"wavelengths_nm": [10**400] * 3}],
)
def test_headers_of_wrong_types(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "bad.cubepack"
    write_cubepack(path, {"one": a_cube(bare=True)})
    packed = lzma.compress(json.dumps(pack_header(path) | changes).encode())
    path.write_bytes(MAGIC + len(packed).to_bytes(8, "little") + packed + bytes(1000))
    with pytest.raises(FormatError, match="bad"):
        read_cubepack(path)


# --- against the reference ---------------------------------------------------------------------


@pytest.mark.data
def test_reads_what_the_reference_reads(data_folder: Path, reference: ModuleType) -> None:
    path, names = data_folder / "cave.cubepack", ["beads", "watercolors"]
    ours, theirs = read_cubepack(path, names), reference.read(path, names)
    for name in names:
        np.testing.assert_allclose(ours[name].values, theirs[name], atol=1e-6)
    at = np.array(WAVELENGTHS_NM)
    resampled, expected = read_cubepack(path, names[:1], at), reference.read(path, names[:1], at)
    np.testing.assert_allclose(resampled["beads"].values, expected["beads"], atol=1e-6)


@pytest.mark.data
def test_the_reference_reads_what_we_write_and_back(tmp_path: Path, reference: ModuleType) -> None:
    cube = smooth_cube()
    ours, theirs = tmp_path / "ours.cubepack", tmp_path / "theirs.cubepack"
    write_cubepack(ours, {"one": cube}, about="a test")
    found = reference.read(ours)["one"]
    np.testing.assert_allclose(found, read_cubepack(ours)["one"].values, atol=1e-6)
    reference.write(theirs, {"one": cube.values}, cube.wavelengths, 0.005, "a test")
    np.testing.assert_allclose(
        read_cubepack(theirs)["one"].values, reference.read(theirs)["one"], atol=1e-6
    )
    # Same basis, same rounding: the two packs are equally exact.
    assert reference.header(ours)[0]["cubes"]["one"]["error_psnr"] == pytest.approx(
        reference.header(theirs)[0]["cubes"]["one"]["error_psnr"], abs=0.1
    )


@pytest.mark.data
@pytest.mark.slow
def test_all_scenes_in_seconds(data_folder: Path) -> None:
    start = time.perf_counter()
    cubes = read_cubepack(data_folder / "cave.cubepack")
    assert time.perf_counter() - start < 60  # about 6 s on two free cores
    assert len(cubes) == 32
    assert all(cube.values.shape == (21, 512, 512) for cube in cubes.values())
