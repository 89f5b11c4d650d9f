"""The command line in-process: exit codes, sentences, and that nothing heavy is imported."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from prismask import __version__
from prismask.apps.cli import app as cli
from prismask.apps.cli.files import as_text
from prismask.errors import FormatError

PRISMASK = [sys.executable, "-m", "prismask"]
COMMANDS = (
    "demo", "info", "simulate", "reconstruct", "render", "evaluate-pair", "convert", "train",
    "models", "calibrate", "evaluate", "stress", "spectra-test", "analyse", "report",
    "view", "serve", "spectra", "export", "camera", "camera refine", "camera check",
)  # fmt: skip


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert name.split()[0] in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*name.split(), "--help"]) == 0
    options = _options(capsys.readouterr().out)
    assert options
    for option in options:
        words = option.split()
        explained = [word for word in words if word.islower() and not word.startswith("-")]
        assert len(explained) >= 2, f"{name}: no explanation in {option!r}"


def _options(shown: str) -> list[str]:
    """The options in a help text, each with its whole explanation, however wide the terminal is."""
    options: list[str] = []
    for line in shown.splitlines():
        if not line.startswith("│"):
            continue
        text = line.strip("│").removeprefix(" *").rstrip()
        indent = len(text) - len(text.lstrip())
        if indent <= 4:
            options.append(text.strip())
        else:
            options[-1] += f" {text.strip()}"
    return options


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    # Its own processor time: what it takes on a free core, whatever else runs beside the tests.
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*PRISMASK, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5
    code = (
        "import sys; from prismask.apps.cli import app as cli; cli.run(['--help']);"
        "heavy = {'torch', 'xarray', 'colour', 'matplotlib', 'scipy', 'h5py', 'PIL', 'pandas'};"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["recnstruct"], 'Did you mean "reconstruct"?'),
        (["info", "x.nc", "--jsn"], "Did you mean --json?"),
        (["info"], "requires an argument"),
        (["info", "not-there.nc"], "not-there.nc does not exist"),
        (["demo", "--size", "many"], "unable to convert"),
    ],
)
def test_wrong_input_is_told_in_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.startswith("prismask: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def _command_that_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    _command_that_raises(monkeypatch, FormatError("damaged"))
    with pytest.raises(FormatError, match="damaged"):
        cli.run(["info", "x", "--debug"])
    assert cli.run(["info", "x"]) == 2


def test_interruption_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command_that_raises(monkeypatch, KeyboardInterrupt())
    assert cli.run(["demo"]) == 130
    assert capsys.readouterr().err == "prismask: interrupted.\n"


def test_trouble_with_the_disk_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command_that_raises(monkeypatch, OSError(28, "No space left on device", "cube.nc"))
    assert cli.run(["demo"]) == 2
    assert capsys.readouterr().err == "prismask: cube.nc: No space left on device.\n"


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors raised on purpose become sentences; a bug must show where it is."""
    _command_that_raises(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.run(["demo"])


def test_info_text_shows_what_is_unclear() -> None:
    summary = {
        "path": "a.mat", "format": "MATLAB v5", "bytes": 2_000_000, "kind": None,
        "variable": None, "shape": None, "minimum": None, "maximum": None, "not_finite": None,
        "wavelengths": None, "attrs": {"long": list(range(100))}, "problem": "two\n arrays fit.",
        "variables": [
            {"name": "a", "shape": (3, 4), "dtype": "float32", "note": ""},
            {"name": "b", "shape": (2,), "dtype": "object", "note": "a struct"},
        ],
    }  # fmt: skip
    text = as_text(summary)
    assert "a (float32 3×4); b (object 2, a struct)" in text
    assert "two arrays fit." in text
    assert "2 MB" in text
    assert max(map(len, text.splitlines())) < 110


THREADS = """
from prismask.apps.cli import app
app.run = lambda words: 0 * __import__("torch").get_num_threads()
app.main([])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other OpenMP libraries do not tell")
@pytest.mark.parametrize(("told", "spins"), [({}, False), ({"OMP_WAIT_POLICY": "active"}, True)])
def test_threads_of_commands_wait_without_burning_a_core(told: dict[str, str], spins: bool) -> None:
    """On a shared machine spinning took twice the time; who asks for it gets it."""
    kept = {name: text for name, text in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True,
        env=kept | {"OMP_DISPLAY_ENV": "verbose"} | told,
    )  # fmt: skip
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("this torch does not use libgomp")
    assert ("GOMP_SPINCOUNT = '0'" not in done.stderr) == spins
