"""Training and scoring where few packages are installed, as on a machine rented for its GPU.

Compiled packages besides torch, NumPy, SciPy and safetensors are often missing there. The commands
need none of them; what is pure Python (cyclopts and what it needs, filelock) can be carried along,
as CONTRIBUTING describes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_evaluation import make_data

import prismask

COMPILED = (
    "torch", "torchgen", "functorch", "numpy", "numpy.libs", "scipy", "scipy.libs", "safetensors",
    "sympy", "mpmath", "typing_extensions.py", "networkx", "fsspec", "nvidia", "triton",
)  # fmt: skip
"""torch, NumPy, SciPy and safetensors with what they bring along."""
CARRIED = (
    "cyclopts", "attr", "attrs", "docstring_parser", "rich", "rich_rst", "docutils",
    "markdown_it", "mdurl", "pygments", "filelock",
)  # fmt: skip
"""What `pip install --target parts cyclopts filelock` fetches."""
MISSING = (
    "xarray", "h5py", "h5netcdf", "tifffile", "imagecodecs", "spectral", "PIL", "colour",
    "matplotlib", "jinja2", "pandas", "pyarrow", "dask", "distributed", "fastapi", "uvicorn",
    "plotly",
)  # fmt: skip

SMOKE = Path(__file__).resolve().parents[2] / "configs" / "smoke.toml"
SMALLER = (
    "schedule.epochs=1", "schedule.warmup_epochs=1", "schedule.epoch_crops=4", "schedule.batch=2",
    "output.validate_every=0",
)  # fmt: skip
TINY = [str(SMOKE), *(word for one in SMALLER for word in ("--set", one))]
"""The training of configs/smoke.toml, smaller still."""


class Machine:
    """A Python that finds the given packages of this one, Prismask, and nothing else."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        installed = Path(torch.__file__).parents[1]
        folder.mkdir()
        for name in packages:
            if (installed / name).exists():
                (folder / name).symlink_to(installed / name)
        paths = os.pathsep.join((str(Path(prismask.__file__).parents[1]), str(folder)))
        self.environment = {**os.environ, "PYTHONPATH": paths}

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Without -S Python would find everything that is installed here.
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            capture_output=True, text=True, check=False, env=self.environment,
        )  # fmt: skip

    def prismask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.python("-m", "prismask", *arguments)
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine") / "parts", COMPILED + CARRIED)
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    assert machine.python("-c", code, *MISSING).stdout.strip() == "[]"
    return machine


@pytest.mark.parametrize(
    "command", ["train", "evaluate", "stress", "spectra-test", "analyse", "calibrate"]
)
def test_help(machine: Machine, command: str) -> None:
    assert f"prismask {command}" in machine.prismask(command, "--help").stdout


def test_a_network_is_trained_scored_and_analysed(machine: Machine, tmp_path: Path) -> None:
    run, scores, analysis = (str(tmp_path / name) for name in ("run", "scores", "analysis"))
    machine.prismask("train", *TINY, "--out", run)
    asked = [run, "gap-tv:iterations=1", "--data", str(make_data(tmp_path / "data")), "--resample"]
    machine.prismask("evaluate", *asked, "--out", scores, "--trials", "1")
    assert json.loads((tmp_path / "scores" / "run.json").read_text())["finished"]
    # Tables are CSV, which needs nothing; their Parquet twins would need pyarrow.
    assert (tmp_path / "scores" / "scores.csv").is_file()
    assert not (tmp_path / "scores" / "scores.parquet").exists()
    less = ["--masks", "1", "--samples", "2", "--scenes", "scene01"]
    done = machine.prismask("analyse", *asked, "--out", analysis, *less)
    assert "no figures were drawn" in done.stderr


def test_without_the_carried_parts_their_lack_is_told(tmp_path: Path) -> None:
    done = Machine(tmp_path / "parts", COMPILED).python("-m", "prismask", "evaluate", "--help")
    assert done.returncode == 2
    assert "pip install --target" in done.stderr
    assert "Traceback" not in done.stderr
