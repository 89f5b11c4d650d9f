"""Files that can be read but hold something wrong: NaN, wrong sizes, pickles, huge claims."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import tifffile

from prismask.errors import DataMissingError, FormatError, ShapeError, ValuesError
from prismask.scenes.formats import hdf5
from prismask.scenes.formats.contents import check_claim
from prismask.scenes.formats.files import load, load_cube, load_mask, load_measurement


def put(folder: Path, extension: str, values: np.ndarray[Any, Any]) -> Path:
    """A file as someone else would write it, values bands first."""
    path = folder / f"file{extension}"
    on_disk = np.moveaxis(values, 0, -1) if values.ndim == 3 else values
    if extension == ".npy":
        np.save(path, values)
    elif extension == ".npz":
        np.savez(path, some_array=values)
    elif extension == ".mat":
        scipy.io.savemat(path, {"some_array": on_disk})
    elif extension == ".tif":
        tifffile.imwrite(path, values, photometric="minisblack")
    elif extension == ".nc":
        with h5py.File(path, "w") as file:
            file["some_array"] = values
    return path


ANY = pytest.mark.parametrize("extension", [".npy", ".npz", ".mat", ".tif", ".nc"])


@ANY
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(tmp_path: Path, extension: str, bad: float) -> None:
    values = np.full((3, 4, 5), 0.5, np.float32)
    values[2, 1, 3] = bad
    path = put(tmp_path, extension, values)
    with pytest.raises(ValuesError, match=r"file\..*1 NaN or infinite value, .*\(2, 1, 3\)"):
        load_cube(path)


@ANY
def test_flat_file_is_no_cube(tmp_path: Path, extension: str) -> None:
    path = put(tmp_path, extension, np.full((4, 5), 0.5, np.float32))
    with pytest.raises(FormatError, match="measurement or a mask"):
        load_cube(path)
    assert load_measurement(path).size == (4, 5)
    assert load_mask(path).size == (4, 5)


@ANY
def test_deep_file_is_no_measurement(tmp_path: Path, extension: str) -> None:
    path = put(tmp_path, extension, np.full((3, 4, 5), 0.5, np.float32))
    with pytest.raises(FormatError, match=r"average=True: .* Otherwise it is a cube"):
        load_measurement(path)
    assert load_cube(path).values.shape == (3, 4, 5)


@pytest.mark.parametrize("extension", [".npy", ".npz"])
def test_a_colour_picture_is_not_only_a_stack_of_exposures(tmp_path: Path, extension: str) -> None:
    path = put(tmp_path, extension, np.full((40, 50, 3), 0.5, np.float32))
    with pytest.raises(FormatError, match="If it is the picture of a colour sensor"):
        load_measurement(path)


@pytest.mark.parametrize("extension", [".npy", ".npz", ".mat", ".nc"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (7,)])
def test_other_dimensions(tmp_path: Path, extension: str, shape: tuple[int, ...]) -> None:
    path = put(tmp_path, extension, np.ones(shape, np.float32))
    with pytest.raises((FormatError, ShapeError)):
        load_cube(path)


def test_named_variable_of_wrong_dimensions(tmp_path: Path) -> None:
    path = put(tmp_path, ".npz", np.ones((4, 5)))
    with pytest.raises(ShapeError, match="2 dimensions; a cube has 3"):
        load_cube(path, variable="some_array")


@ANY
def test_mask_out_of_range(tmp_path: Path, extension: str) -> None:
    path = put(tmp_path, extension, np.full((4, 5), 37.0, np.float32))
    with pytest.raises(ValuesError, match=r"file\..*37.*Divide by the flat field"):
        load_mask(path)


def test_missing_file_suggests_a_neighbour(tmp_path: Path) -> None:
    put(tmp_path, ".npy", np.ones((4, 5)))
    with pytest.raises(DataMissingError, match=r"Did you mean 'file\.npy'"):
        load(tmp_path / "flie.npy")
    with pytest.raises(DataMissingError):
        load(tmp_path / "nowhere" / "file.npy")


# --- pickles -----------------------------------------------------------------------------------


class Bomb:
    """Unpickling one of these would be noticed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


def test_pickled_npy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.npy"
    np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"pickled Python objects.*never"):
        load(path)


def test_pickled_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, cube=np.ones((2, 3, 4)), extra=np.array([Bomb()], dtype=object))
    with pytest.raises(FormatError, match="extra holds pickled Python objects"):
        load(path)


def test_a_plain_pickle_is_refused(tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "file.npy"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FormatError, match="never loaded"):
        load(path)


# --- claims that no memory could hold ----------------------------------------------------------


def npy_claiming(shape: tuple[int, ...]) -> bytes:
    head = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    head = head.ljust(128 - 10 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


HUGE = (28, 10**9, 10**9)


@pytest.mark.parametrize("ratio", [1, 1100])
def test_a_claim_is_believed_up_to_what_the_file_can_hold(ratio: int) -> None:
    check_claim("a.nc", 100 * ratio, 100, "cube", ratio)
    with pytest.raises(FormatError, match=r"a\.nc: cube claims .* holds only 100 bytes"):
        check_claim("a.nc", 100 * ratio + 1, 100, "cube", ratio)


def test_npy_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file.npy"
    path.write_bytes(npy_claiming(HUGE) + bytes(1000))
    with pytest.raises(FormatError, match="TB, but the file holds only 1 kB"):
        load(path)


def test_npz_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cube.npy", npy_claiming(HUGE) + bytes(1000))
    with pytest.raises(FormatError, match="cube claims"):
        load(path)


@pytest.mark.parametrize("extension", [".nc", ".mat"])
def test_hdf5_that_claims_too_much(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"file{extension}"
    with h5py.File(path, "w", userblock_size=512 if extension == ".mat" else 0) as file:
        # Chunks are only stored once written, so this file is tiny.
        file.create_dataset("cube", shape=(10**6, 10**5, 28), dtype="f4", chunks=(64, 64, 28))
    with pytest.raises(FormatError, match=r"cube claims 11\.2 TB"):
        load(path)


def test_coordinate_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file.nc"
    with h5py.File(path, "w") as file:
        file["cube"] = np.ones((2, 3, 4))
        file.create_dataset("wavelength", shape=(10**12,), dtype="f8", chunks=(1024,))
    with pytest.raises(FormatError, match="wavelength claims 8 TB"):
        load(path)


def test_v5_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file.mat"
    scipy.io.savemat(path, {"cube": np.ones((2, 3, 4))})
    content = path.read_bytes()
    dims = struct.pack("<iii", 2, 3, 4)
    assert content.count(dims) == 1
    path.write_bytes(content.replace(dims, struct.pack("<iii", 60_000, 60_000, 28)))
    with pytest.raises(FormatError, match="cube claims"):
        load(path)


def test_tiff_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file.tif"
    tifffile.imwrite(path, np.ones((6, 5), np.uint8), photometric="minisblack")
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        for name in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            tag = file.pages[0].tags[name]
            content[tag.offset + 2 : tag.offset + 4] = struct.pack("<H", 4)
            content[tag.offset + 8 : tag.offset + 12] = struct.pack("<I", 4_000_000_000)
    path.write_bytes(bytes(content))
    with pytest.raises(FormatError):
        load(path)


def test_what_cannot_be_opened_is_left_out_below_the_root_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def open_node(group: Any, name: str) -> Any:
        if name == "bad":
            raise OSError("its header is damaged")
        return group[name]

    monkeypatch.setattr(hdf5, "open_node", open_node)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in ("group/bad", "group/good", "cube"):
            file[name] = np.ones(3)
        assert [name for name, _ in hdf5.members(tmp_path / "x.h5", file["group"])] == ["good"]
        assert "group/bad cannot be read and is left out: its header" in caplog.text
        file["bad"] = np.ones(3)
        with pytest.raises(FormatError, match="bad cannot be read: its header is damaged"):
            list(hdf5.members(tmp_path / "x.h5", file))
