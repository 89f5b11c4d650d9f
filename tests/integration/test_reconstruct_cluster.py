"""`prismask reconstruct FOLDER` on a Dask cluster: the same cubes as without."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from prismask.apps.cli import app as cli
from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.parallel import cluster
from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")

BANDS, SIZE = 28, (32, 40)
CAMERA = CASSI.from_step(BANDS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A scheduler with one worker that was started in another folder than the command."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as made:
        yield made.scheduler_address


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mask, three snapshots of which one is damaged, wavelengths, and small weights."""
    monkeypatch.chdir(tmp_path)
    mask = make_mask(0)
    (tmp_path / "shots").mkdir()
    for seed in range(2):
        shot = simulate(random_scene(seed, SIZE), mask, CAMERA)
        save(Measurement(shot.values), tmp_path / "shots" / f"shot{seed}.nc")
    whole = (tmp_path / "shots" / "shot0.nc").read_bytes()
    (tmp_path / "shots" / "damaged.nc").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "nm.txt").write_text(" ".join(str(450 + k) for k in range(BANDS)))
    model = create_model("srn", bands=BANDS, mask_posterior="gst", seed=0, width=8, blocks=1)
    record = {"name": "tiny", "step_px": 2.0, "wavelengths_nm": [450.0 + k for k in range(BANDS)]}
    save_weights(model, tmp_path / "tiny.safetensors", record)
    return tmp_path


def make_mask(seed: int) -> Mask:
    mask = Mask(fabricate_mask(SIZE, seeded(seed)).numpy())
    save(mask, "mask.nc", overwrite=True)
    return mask


def run(line: str) -> int:
    return cli.run(f"reconstruct shots --mask mask.nc {line}".split())


def same_cubes(one: Path, other: Path) -> bool:
    for name in ("shot0.nc", "shot1.nc"):
        cubes = [load_cube(folder / name) for folder in (one, other)]
        assert cubes[0].attrs["recipe"] == cubes[1].attrs["recipe"]
        for part in ("values", "std", "lower", "upper", "wavelengths"):
            if not np.array_equal(*(getattr(cube, part) for cube in cubes)):
                return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["--iterations 2", "--model tiny.safetensors --samples 2 --wavelengths nm.txt"]
)
def test_two_local_workers_give_the_serial_cubes(
    folder: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"-o here {method}") == 1
    capsys.readouterr()
    assert run(f"-o there {method} --dask local --workers 2") == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "2 reconstructed; 1 failed"
    assert out.splitlines()[1].startswith("failed: shots/damaged.nc:")
    assert "3 of 3:" in err
    assert "distributed" not in err, "Dask's own log"
    assert same_cubes(folder / "here", folder / "there")
    assert sorted(path.name for path in (folder / "there").iterdir()) == [
        "shot0.nc", "shot0.quicklook.png", "shot1.nc", "shot1.quicklook.png",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_scheduler_s_workers_find_relative_names_and_resume(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shots" / "damaged.nc").unlink()
    method = "--model tiny.safetensors --wavelengths nm.txt"
    line = f"-o there {method} --dask {address}"
    assert run(line) == 0
    assert run(f"-o here {method}") == 0
    assert same_cubes(folder / "here", folder / "there")
    (folder / "there" / "shot1.nc").unlink()
    stamp = (folder / "there" / "shot0.nc").stat().st_mtime_ns
    capsys.readouterr()
    assert run(line) == 0
    assert capsys.readouterr().out.splitlines()[0] == "1 reconstructed; 1 finished before"
    assert (folder / "there" / "shot0.nc").stat().st_mtime_ns == stamp
    # The workers outlive a run; what they remember of it must not.
    make_mask(1)
    assert run(f"{line} --overwrite") == 0
    assert run(f"-o here {method} --overwrite") == 0
    assert same_cubes(folder / "here", folder / "there")


def test_a_scheduler_that_does_not_answer_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_CONNECT", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert run(f"-o there --dask tcp://127.0.0.1:{free.getsockname()[1]}") == 2
    err = capsys.readouterr().err
    assert "no Dask scheduler answers" in err
    assert "Traceback" not in err
    assert not (folder / "there").exists()


def test_one_snapshot_is_not_shared_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "reconstruct shots/shot0.nc --mask mask.nc -o cube.nc --dask local"
    assert cli.run(line.split()) == 2
    assert "is only one: leave it out" in capsys.readouterr().err
