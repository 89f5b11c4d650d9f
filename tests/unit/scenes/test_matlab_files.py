"""MATLAB files as others write them: classes, scales, structs, names, byte orders."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from file_examples import a_cube, write
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prismask.errors import FormatError, ValuesError
from prismask.scenes.formats.files import describe, load, load_cube, load_mask, load_measurement
from prismask.scenes.formats.matlab import list_elements, read_numbers
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.units import kaist_to_fraction


def mat(folder: Path, **variables: Any) -> Path:
    path = folder / "file.mat"
    scipy.io.savemat(path, variables, do_compression=True)
    return path


CUBE = np.random.default_rng(0).random((5, 4, 3))  # H×W×C, as MATLAB has it

NUMBERS = hnp.arrays(
    dtype=st.sampled_from(["f8", "f4", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "?"]),
    shape=hnp.array_shapes(min_dims=2, max_dims=4, max_side=5),
)


@settings(max_examples=25, deadline=None)
@given(array=NUMBERS, name=st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,30}", fullmatch=True))
@pytest.mark.parametrize("packed", [True, False])
def test_arrays_agree_with_scipy(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray[Any, Any], name: str, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("mat") / "file.mat"
    scipy.io.savemat(path, {name: array}, do_compression=packed)
    (element,) = list_elements(path)
    ours = read_numbers(path, element)
    theirs = scipy.io.loadmat(path, mat_dtype=True)[name]
    assert element.name == name
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.data
def test_files_by_matlab_itself_agree_with_scipy(data_folder: Path) -> None:
    for path in sorted(data_folder.glob("m*/*.mat")):
        record = load(path)
        (values,) = (v for k, v in scipy.io.loadmat(path).items() if not k.startswith("_"))
        assert np.array_equal(record.values, values.astype(np.float32))
        assert isinstance(record, Mask if "mask" in str(path.parent) else Measurement)


def by_hand(order: str, name: bytes, stored: str, values: bytes, flags: int = 6) -> bytes:
    """A 2×3 array, byte by byte, as MATLAB's documentation lays it out."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack(order + "II", kind, len(data)) + data + bytes(-len(data) % 8)

    types = {"u1": 2, "f8": 9}
    inside = (
        element(6, struct.pack(order + "II", flags, 0))
        + element(5, struct.pack(order + "ii", 2, 3))
        + element(1, name)
        + element(types[stored], values)
    )
    return struct.pack(order + "II", 14, len(inside)) + inside


def header(order: str) -> bytes:
    mark = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
    return b"MATLAB 5.0 MAT-file, by hand".ljust(116) + bytes(8) + mark


@pytest.mark.parametrize("order", ["<", ">"])
def test_either_byte_order_and_numbers_stored_as_bytes(tmp_path: Path, order: str) -> None:
    # MATLAB stores a double array of small whole numbers as bytes. It stays a double: a mask of
    # ones is 1, not 1/255.
    path = tmp_path / "file.mat"
    path.write_bytes(header(order) + by_hand(order, b"mask", "u1", bytes([1, 0, 1, 1, 0, 0])))
    assert load_mask(path).values.tolist() == [[1, 1, 0], [0, 1, 0]]  # column by column


def test_compressed_variable_with_a_wrong_checksum(tmp_path: Path) -> None:
    path = tmp_path / "file.mat"
    packed = bytearray(zlib.compress(by_hand("<", b"mask", "u1", bytes(6))))
    packed[-1] ^= 1
    path.write_bytes(header("<") + struct.pack("<II", 15, len(packed)) + bytes(packed))
    with pytest.raises(FormatError):
        load_mask(path)


@pytest.mark.parametrize("missing", [1, 4, 5, 20])
def test_compressed_variable_cut_short_inside(tmp_path: Path, missing: int) -> None:
    # The file's own lengths agree; only the compressed data ends early.
    path = tmp_path / "file.mat"
    noise = np.random.default_rng(0).random(6).tobytes()
    packed = zlib.compress(by_hand("<", b"mask", "f8", noise))[:-missing]
    path.write_bytes(header("<") + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(FormatError, match=r"file\.mat.*cut short"):
        load_mask(path)


def test_a_cut_between_two_variables_is_noticed(tmp_path: Path) -> None:
    # Nothing in the format tells that variables are missing, so ours puts the cube last.
    path = write(a_cube(), tmp_path, "file", ".mat", "matlab")
    content = path.read_bytes()
    for element in list_elements(path):
        path.write_bytes(content[: element.position])
        with pytest.raises(FormatError, match=r"file\.mat"):
            load(path)


def test_older_or_other_files_called_mat(tmp_path: Path) -> None:
    path = tmp_path / "file.mat"
    scipy.io.savemat(path, {"mask": np.ones((3, 4))}, format="4")
    with pytest.raises(FormatError, match="save it again with -v7"):
        load(path)


# --- scales ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["img", "img_expand"])
@pytest.mark.parametrize("dtype", ["float64", "uint16"])
def test_tsa_net_training_files_count_in_65536ths(tmp_path: Path, name: str, dtype: str) -> None:
    counts = np.random.default_rng(0).integers(0, 65536, (5, 4, 3)).astype(dtype)
    counts[0, 0, 0] = 65535
    cube = load_cube(mat(tmp_path, **{name: counts}))
    expected = np.moveaxis(counts / 65536, -1, 0)
    np.testing.assert_allclose(cube.values, expected, rtol=1e-7)


def test_tsa_net_test_files_hold_fractions(tmp_path: Path) -> None:
    bright = CUBE * 1.2  # a highlight over 1 does not make it a count
    cube = load_cube(mat(tmp_path, img=bright))
    np.testing.assert_allclose(cube.values, np.moveaxis(bright, -1, 0), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "full"), [("float64", 1), ("uint16", 65535)])
def test_a_frame_called_img_is_no_training_file(tmp_path: Path, dtype: str, full: int) -> None:
    frame = np.array([[300, 4000], [0, 65535]], dtype)
    found = load_measurement(mat(tmp_path, img=frame), variable="img").values
    np.testing.assert_allclose(found, frame / full, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "full"), [("uint8", 255), ("uint16", 65535), ("int16", 32767)])
def test_integers_are_fractions_of_their_full_scale(tmp_path: Path, dtype: str, full: int) -> None:
    values = np.array([[0, 2, full], [1, 5, full // 2]], dtype)
    found = load_measurement(mat(tmp_path, meas=values)).values
    np.testing.assert_allclose(found, values / full, rtol=1e-6)


def test_integers_without_a_known_full_scale(tmp_path: Path) -> None:
    path = mat(tmp_path, meas=np.array([[0, 4095]], np.int32))
    with pytest.raises(ValuesError, match=r"int32 from 0 to 4095.*no known full scale"):
        load_measurement(path)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_binary_masks_of_any_type(tmp_path: Path, dtype: str) -> None:
    mask = (np.random.default_rng(0).random((6, 5)) > 0.5).astype(dtype)
    assert np.array_equal(load_mask(mat(tmp_path, mask=mask)).values, mask.astype(np.float32))


# --- which variable ----------------------------------------------------------------------------


def test_unknown_names_are_listed_with_size_and_type(tmp_path: Path) -> None:
    path = mat(tmp_path, first=CUBE, second=CUBE.astype("f4"), note="hello")
    with pytest.raises(FormatError) as caught:
        load_cube(path)
    for part in (
        "first (double 5×4×3)",
        "second (single 5×4×3)",
        "note (char 1×5",
        "variable=NAME",
    ):
        assert part in str(caught.value)
    assert np.array_equal(
        load_cube(path, variable="second").values, np.moveaxis(CUBE, -1, 0).astype("f4")
    )
    with pytest.raises(FormatError, match=r"no variable 'secnd'\. Did you mean 'second'"):
        load_cube(path, variable="secnd")


def test_a_single_fitting_array_needs_no_known_name(tmp_path: Path) -> None:
    path = mat(tmp_path, strange=CUBE, exposure=0.5, row=np.arange(4.0), plate=np.ones((5, 4)))
    assert load_cube(path).bands == 3
    assert load_measurement(path).size == (5, 4)


@pytest.mark.parametrize("name", ["meas", "meas_real", "snapshot", "y"])
def test_known_measurements(tmp_path: Path, name: str) -> None:
    path = mat(tmp_path, **{name: CUBE[:, :, 0], "other": np.ones((5, 4))})
    assert isinstance(load(path), Measurement)


@pytest.mark.parametrize("name", ["mask", "mask_3d", "mask3d"])
def test_known_masks(tmp_path: Path, name: str) -> None:
    path = mat(tmp_path, **{name: CUBE})
    assert isinstance(load(path), Mask)
    with pytest.raises(FormatError, match="known as the cube"):
        load_cube(path)


def test_a_mask_that_is_sheared_already_is_not_taken_for_one(tmp_path: Path) -> None:
    path = mat(tmp_path, mask_3d_shift=np.ones((5, 8, 3)))
    with pytest.raises(FormatError, match="Name one with variable"):
        load_mask(path)
    assert load_mask(path, variable="mask_3d_shift").values.shape == (3, 5, 8)


def test_wavelengths_tell_the_axis_of_the_bands(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((3, 5, 4))  # bands first, unlike most
    cube = load_cube(mat(tmp_path, cube=values, wavelengths=[400.0, 500.0, 600.0]))
    assert np.array_equal(cube.values, values.astype("f4"))
    assert cube.wavelengths is not None
    micrometres = mat(tmp_path, cube=CUBE, lambda_=1, wl=[0.4, 0.5, 0.6])
    assert load_cube(micrometres).wavelengths.tolist() == [400, 500, 600]


def as_v73(folder: Path, **variables: Any) -> Path:
    path = folder / "file73.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in variables.items():
            stored = file.create_dataset(name, data=np.ascontiguousarray(np.atleast_2d(values).T))
            stored.attrs["MATLAB_class"] = np.bytes_("double")
    return path


@pytest.mark.parametrize("written", [mat, as_v73])
@pytest.mark.parametrize(
    "others",
    [{"lambda": 0.05}, {"lambda": 2.0}, {"bands": np.arange(1.0, 4)}, {"bands": np.arange(3.0)}],
)
def test_weights_and_counts_are_no_wavelengths(
    tmp_path: Path, written: Any, others: dict[str, Any]
) -> None:
    path = written(tmp_path, cube=CUBE, **others)
    cube = load_cube(path)
    assert cube.wavelengths is None
    assert cube.values.shape == describe(path)["shape"] == (3, 5, 4)
    assert describe(path)["wavelengths"] is None
    both = written(tmp_path, cube=CUBE, wavelengths=[400.0, 500.0, 600.0], **others)
    assert load_cube(both).wavelengths.tolist() == [400, 500, 600]


def test_a_line_of_pixels_keeps_its_bands(tmp_path: Path) -> None:
    # The one row fits a single number too.
    path = mat(tmp_path, cube=CUBE[:1], **{"lambda": 0.5})
    assert load_cube(path).values.shape == (3, 1, 4)


def test_logical_bands_are_a_choice(tmp_path: Path) -> None:
    path = mat(tmp_path, cube=CUBE, bands=np.array([False, True, True]))
    assert load_cube(path).wavelengths is None


def test_unsorted_wavelengths(tmp_path: Path) -> None:
    path = mat(tmp_path, cube=CUBE, wavelengths=[500.0, 400.0, 600.0])
    with pytest.raises(ValuesError, match=r"file\.mat: wavelengths are not ascending"):
        load_cube(path)
    assert load_cube(path, wavelengths=[1000, 1100, 1200]).bands == 3


def test_wavelengths_that_do_not_fit(tmp_path: Path) -> None:
    path = mat(tmp_path, cube=CUBE)
    with pytest.raises(ValueError, match="7 wavelengths came for 3 bands"):
        load_cube(path, wavelengths=[1, 2, 3, 4, 5, 6, 7])


# --- what is not an array of real numbers ------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"a": CUBE}, "struct"),
        (np.array([CUBE, 1], dtype=object), "cell"),
        (CUBE + 1j, "complex double"),
        (scipy.sparse.csc_array(np.eye(3)), "sparse"),
    ],
)
def test_v5_contents_that_are_no_arrays(tmp_path: Path, content: Any, word: str) -> None:
    path = mat(tmp_path, cube=content)
    with pytest.raises(FormatError, match=f"cube .*{word}"):
        load_cube(path)
    with pytest.raises(FormatError, match="cannot be used"):
        load_cube(path, variable="cube")


def v73(folder: Path) -> Path:
    """A file as MATLAB writes it, with something of everything."""
    path = folder / "file.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        references = file.create_group("#refs#")
        references["a"] = np.ones((2, 2))
        cell = file.create_dataset("a_cell", (1, 1), dtype=h5py.ref_dtype)
        cell[0, 0] = references["a"].ref
        cell.attrs["MATLAB_class"] = np.bytes_("cell")
        file.create_group("a_struct").attrs["MATLAB_class"] = np.bytes_("struct")
        sparse = file.create_group("a_sparse")
        sparse.attrs["MATLAB_class"] = np.bytes_("double")
        sparse.attrs["MATLAB_sparse"] = np.uint64(3)
        pairs = np.dtype([("real", "f8"), ("imag", "f8")])
        file.create_dataset("a_complex", (3, 4, 5), pairs).attrs["MATLAB_class"] = np.bytes_(
            "double"
        )
        empty = file.create_dataset("an_empty", data=np.array([0, 0], np.uint64))
        empty.attrs["MATLAB_class"] = np.bytes_("double")
        empty.attrs["MATLAB_empty"] = np.uint8(1)
        logical = file.create_dataset("mask", data=np.eye(4, 5, dtype=np.uint8))
        logical.attrs["MATLAB_class"] = np.bytes_("logical")
        hyper = file.create_dataset("hyper", data=np.ascontiguousarray(CUBE.T), compression="gzip")
        hyper.attrs["MATLAB_class"] = np.bytes_("double")
    return path


def test_v73_with_something_of_everything(tmp_path: Path) -> None:
    path = v73(tmp_path)
    assert np.array_equal(load_cube(path).values, np.moveaxis(CUBE, -1, 0).astype("f4"))
    assert np.array_equal(load_mask(path).values, np.eye(5, 4, dtype=np.float32))
    for name, word in {
        "a_cell": "cell",
        "a_struct": "struct",
        "a_sparse": "sparse",
        "a_complex": "complex double",
        "an_empty": "empty double",
    }.items():
        with pytest.raises(FormatError, match=f"{name} .*{word}.*cannot be used"):
            load_cube(path, variable=name)
    assert isinstance(load(path), Cube)


@pytest.mark.parametrize(("largest", "full"), [(1.0, 1), (256.0, 1), (257.0, 65536), (6e4, 65536)])
def test_floating_point_scenes_are_counts_where_no_fraction_is_so_large(
    largest: float, full: int
) -> None:
    scene = np.zeros((2, 3, 4))
    scene[1, 2, 3] = largest
    np.testing.assert_allclose(kaist_to_fraction(scene), scene / full)
