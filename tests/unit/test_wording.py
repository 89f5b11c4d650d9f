"""One sentence for commands and for Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismask import Cube, reconstruct, save
from prismask.apps.cli.app import run
from prismask.errors import OutputExistsError, ShapeError
from prismask.wording import python_words, speaking_flags, told_in_python


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("Crop: --crop-mask 1,2,3,4 (TOP,LEFT,HEIGHT,WIDTH) takes",
         "Crop: np.asarray(mask)[1:4, 2:6] takes"),
        ("Give --turn-mask transposed if", "Give np.transpose(mask) if"),
        ("--turn-snapshot turned-90-clockwise.", "np.rot90(measurement, -1)."),
        ("--turn-mask transposed-other-diagonal", "np.rot90(np.transpose(mask), 2)"),
        ("Go on with it (--resume), or", "Go on with it (resume=True), or"),
        ("--variable NAME (for --mask: --mask-variable NAME).", "variable=NAME."),
        ("--bands 3 --step PX.", "bands=3 of the camera step=PX of the camera."),
    ],
)  # fmt: skip
def test_flags_become_what_one_writes_in_python(flags: str, arguments: str) -> None:
    assert python_words(flags) == arguments
    assert python_words(arguments) == arguments


def test_turns_are_those_of_the_command_line() -> None:
    from prismask.apps.cli.camera_options import ORIENTATIONS, _turned

    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name in ORIENTATIONS:
        said = python_words(f"--turn-mask {name}")
        np.testing.assert_array_equal(eval(said, {"np": np, "mask": values}), _turned(values, name))


def test_errors_speak_to_whoever_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cube.nc"
    save(Cube(np.ones((2, 3, 4))), path)
    with pytest.raises(OutputExistsError, match=r"or give overwrite=True\.$"):
        save(Cube(np.ones((2, 3, 4))), path)
    with speaking_flags(), pytest.raises(OutputExistsError, match=r"or give --overwrite\.$"):
        save(Cube(np.ones((2, 3, 4))), path)
    assert run(["convert", str(path), str(path)]) == 2
    assert "or give --overwrite." in capsys.readouterr().err


def test_no_error_of_reconstruct_names_a_flag() -> None:
    mask, shot = np.random.default_rng(0).random((2, 20, 74))
    for measurement, aperture, wanted in (
        (shot, mask, r"give np\.asarray\(mask\)\[0:20, 0:20\], otherwise"),
        (shot[:, :20], shot, "are snapshot and mask swapped"),
    ):
        with pytest.raises(ShapeError, match=wanted) as caught:
            reconstruct(measurement, aperture)
        assert "--" not in str(caught.value)


def test_what_is_no_sentence_stays() -> None:
    @told_in_python
    def fails() -> None:
        raise OutputExistsError(17, "--overwrite", "name")

    with pytest.raises(OutputExistsError) as caught:
        fails()
    assert caught.value.args == (17, "--overwrite")
