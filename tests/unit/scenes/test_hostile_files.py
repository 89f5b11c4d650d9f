"""Files made to do harm: each is answered soon, with an error of ours, and harms nothing."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from file_examples import a_cube, a_mask, same
from hostile_files import (
    BOMBS,
    CRASHES,
    ESCAPE,
    ODD,
    OUTSIDE,
    Make,
    not_utf8,
    with_escapes,
)
from PIL import Image

from prismask.apps.cli.app import run
from prismask.errors import ConfigError, DataMissingError, FormatError, PrismaskError
from prismask.scenes.cubepack import read_cubepack, write_cubepack
from prismask.scenes.formats import cave
from prismask.scenes.formats.contents import ReadLimits, using
from prismask.scenes.formats.files import (
    describe,
    load,
    load_cube,
    load_mask,
    load_mask_std,
    load_measurement,
    save,
)
from prismask.scenes.formats.registry import identify
from prismask.scenes.records import Cube, Mask, Measurement

QUICK = ReadLimits(seconds=1)


def peak_bytes() -> int:
    """The most memory that this process or any it waited for has held."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(one).ru_maxrss for one in who) * 1024


def answer(look: Callable[..., Any], path: Path, **options: Any) -> str:
    """What the error says, if there is one: it must be ours and name the file."""
    try:
        look(path, **options)
    except PrismaskError as problem:
        said = str(problem)
    else:
        return ""
    assert path.stem in said
    return said


@pytest.mark.parametrize("make", CRASHES)
def test_parsers_that_crash_or_loop_take_nothing_with_them(tmp_path: Path, make: Make) -> None:
    path = make(tmp_path)
    for look in (load_cube, describe):
        answer(look, path, limits=QUICK)


def test_a_loop_is_stopped_and_the_limit_is_told(tmp_path: Path) -> None:
    path = CRASHES[1](tmp_path)
    start = time.monotonic()
    # Without a limit it would run for ever, with the usual one for more than ten seconds.
    with pytest.raises(FormatError, match=r"stopped after 0\.5 s.*PRISMASK_READ_SECONDS=600"):
        load(path, limits=ReadLimits(seconds=0.5))
    assert time.monotonic() - start < 9


@pytest.mark.parametrize("make", OUTSIDE)
def test_no_file_leads_to_another(tmp_path: Path, make: Make) -> None:
    path = make(tmp_path)
    with pytest.raises(
        FormatError, match="stored in another file, which is not followed"
    ) as caught:
        load_cube(path)
    assert path.name in str(caught.value)
    for name in ("cube", "img"):
        with pytest.raises(FormatError, match=r"no variable|another file"):
            load_cube(path, variable=name)


@pytest.mark.parametrize("make", BOMBS)
def test_bombs_are_answered_before_they_unfold(tmp_path: Path, make: Make) -> None:
    path = make(tmp_path)
    held = peak_bytes()
    for look in (load, describe):
        answer(look, path)
    # Here as well, to count the seconds of this process and not those of others.
    start = time.process_time()
    with contextlib.suppress(PrismaskError):
        identify(path).read_here(path)
    assert time.process_time() - start < 2
    assert peak_bytes() - held < 4e8


def test_the_limit_is_told_and_can_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.npz"
    np.savez_compressed(path, cube=np.zeros((20, 100, 100), np.float32))
    told = r"cube would take 800\.\d kB; arrays of this file may take 250 kB.*PRISMASK_READ_MEMORY"
    with pytest.raises(FormatError, match=told):
        load_cube(path, limits=ReadLimits(memory_bytes=10**6))
    monkeypatch.setenv("PRISMASK_READ_MEMORY", "1 MB")
    with pytest.raises(FormatError, match=told):
        load_cube(path)
    assert load_cube(path, limits=ReadLimits(memory_bytes=10**7)).bands == 20
    monkeypatch.setenv("PRISMASK_READ_MEMORY", "0.1GB")
    assert load_cube(path).bands == 20
    for wrong in ("much", "-1", "0", "1e400", "9" * 400):
        monkeypatch.setenv("PRISMASK_READ_MEMORY", wrong)
        with pytest.raises(ConfigError, match="a size such as 16GB"):
            load_cube(path)
    with pytest.raises(ConfigError, match="above 0"):
        ReadLimits(seconds=float("nan"))


@pytest.mark.parametrize("look", [load, load_cube, load_mask, load_measurement, load_mask_std])
def test_every_way_to_read_takes_limits(tmp_path: Path, look: Callable[..., Any]) -> None:
    shape = (3, 200, 300) if look is load_cube else (400, 500)
    np.savez(tmp_path / "x.npz", values=np.random.default_rng(0).random(shape, dtype=np.float32))
    with pytest.raises(FormatError, match="arrays of this file may take 250 kB"):
        look(tmp_path / "x.npz", limits=ReadLimits(memory_bytes=10**6))
    look(tmp_path / "x.npz", limits=ReadLimits(memory_bytes=10**8))


def test_limits_may_be_infinite(tmp_path: Path) -> None:
    save(a_mask(), tmp_path / "x.nc")
    boundless = ReadLimits(float("inf"), float("inf"))  # type: ignore[arg-type]
    assert same(load(tmp_path / "x.nc", limits=boundless), a_mask())


@pytest.mark.parametrize("name", ODD)
def test_odd_types_and_numbers(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ODD[name](tmp_path)
    for look in (load, describe):
        answer(look, path)
    assert run(["info", str(path)]) in (0, 2)
    assert run(["convert", str(path), str(tmp_path / "out.nc")]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_names_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = not_utf8(tmp_path)
    with pytest.raises(FormatError):
        load_cube(path)
    (name, _) = (entry["name"] for entry in describe(path)["variables"])
    cube = load_cube(path, variable=name)
    assert cube.values.shape == (3, 4, 5)
    assert run(["info", str(path)]) == 0
    for extension in (".nc", ".mat", ".npz", ".tif", ".hdr"):
        out = Path(f"{path}{extension}")
        save(cube, out)
        assert np.array_equal(load_cube(out).values, cube.values)
    assert "\\udcff" in capsys.readouterr().out


@pytest.mark.parametrize("extension", [".h5", ".npz", ".hdr"])
def test_escape_sequences_never_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extension: str
) -> None:
    path = with_escapes(tmp_path, extension)
    run(["info", str(path)])
    run(["info", "--json", str(path)])
    run(["convert", str(path), str(tmp_path / "out.nc"), "--variable", f"none{ESCAPE}"])
    said = "".join(capsys.readouterr())
    assert "owned" in said
    assert not set("\x1b\x07\u202e") & set(said)


# --- what is no file at all ----------------------------------------------------------------------


def test_pipes_devices_and_folders(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.nc"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(FormatError, match="not a file"):
            load(path)
    (tmp_path / "folder.nc").mkdir()
    with pytest.raises(FormatError, match="is a folder"):
        load(tmp_path / "folder.nc")


def test_folders_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cave, "MOST_ENTRIES", 30)
    for number in range(31):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(FormatError, match=r"more than 30 files and folders.*Give one"):
        load(tmp_path)


def test_pipes_among_the_files_of_a_format(tmp_path: Path) -> None:
    (tmp_path / "scene_ms").mkdir()
    for band in range(1, 32):
        os.mkfifo(tmp_path / "scene_ms" / f"scene_ms_{band:02d}.png")
    with pytest.raises(FormatError):
        load_cube(tmp_path)
    save(a_mask(), tmp_path / "x.hdr")
    (tmp_path / "x.img").unlink()
    os.mkfifo(tmp_path / "x.img")
    with pytest.raises(DataMissingError):
        load(tmp_path / "x.hdr")


@pytest.mark.parametrize("extension", [".nc", ".hdr", ".npy"])
def test_long_names(tmp_path: Path, extension: str) -> None:
    path = tmp_path / ("n" * (255 - len(extension)) + extension)
    cube = a_cube(bare=True)
    for _ in range(2):
        save(cube, path, overwrite=True)
        assert np.array_equal(load(path).values, cube.values)
    with pytest.raises(PrismaskError, match="too long"):
        load(tmp_path / ("n" * 300 + extension))
    with pytest.raises(PrismaskError, match="too long"):
        save(cube, tmp_path / ("n" * 300 + extension))
    with pytest.raises(PrismaskError):
        load(f"a\0b{extension}")


# --- records of the wrong types ------------------------------------------------------------------


@pytest.mark.parametrize("record", [Cube, Mask, Measurement])
@pytest.mark.parametrize("values", ["text", None, [[1, 2], [3]], [[{}]], object(), [[10**400]]])
def test_values_of_wrong_types(record: type, values: object) -> None:
    with pytest.raises(PrismaskError):
        record(values)


@pytest.mark.parametrize("wavelengths", ["blue", [{}], [None], [[1], [2, 3]], 10**400, object()])
def test_wavelengths_of_wrong_types(wavelengths: object) -> None:
    with pytest.raises(PrismaskError):
        Cube(np.ones((1, 2, 3)), wavelengths)  # type: ignore[arg-type]


@pytest.mark.parametrize("attrs", [3, "text", [1], None])
def test_provenance_of_wrong_types(attrs: object) -> None:
    with pytest.raises(PrismaskError, match="provenance"):
        Mask(np.ones((2, 3)), attrs=attrs)  # type: ignore[arg-type]


@pytest.mark.parametrize("extension", [".nc", ".mat", ".npz", ".tif", ".hdr"])
def test_provenance_of_any_text_comes_back(tmp_path: Path, extension: str) -> None:
    attrs = {"half": "\ud800", "escape": ESCAPE, "zero": "a\0b", "digits": int("9" * 400)}
    mask = Mask(np.eye(3, 4), attrs=attrs)
    save(mask, tmp_path / f"x{extension}")
    assert same(load(tmp_path / f"x{extension}"), mask)


# --- how much arrays may take ---------------------------------------------------------------------


@pytest.mark.parametrize("extension", [".mat", ".npz", ".tif", ".png", ".h5", ".cubepack"])
def test_every_format_that_packs_tells_what_arrays_may_take(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"x{extension}"
    cube = Cube(np.random.default_rng(0).random((3, 200, 300)), [450.0, 500.0, 550.0])
    if extension == ".png":
        Image.fromarray((255 * cube.values[0]).astype(np.uint8)).resize((2000, 1500)).save(path)
    elif extension == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("cube", data=cube.values, compression="gzip")
    elif extension == ".cubepack":
        write_cubepack(path, {"one": cube}, about="x")
    else:
        save(cube, path)
    look = read_cubepack if extension == ".cubepack" else load
    with (
        using(ReadLimits(memory_bytes=2 * 10**6)),
        pytest.raises(FormatError, match="arrays of this file may take 500 kB"),
    ):
        look(path)
    with using(ReadLimits(memory_bytes=10**9)):
        look(path)
