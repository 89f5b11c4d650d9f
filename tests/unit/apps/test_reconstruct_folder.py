"""Many snapshots: found, planned, done, skipped, failed, and a worker that dies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from prismask.apps.cli.reconstruct import Finished, Job, find_snapshots, is_many, plan, run_jobs
from prismask.errors import ConfigError, DataMissingError, FormatError
from prismask.scenes.formats.files import save
from prismask.scenes.records import Mask, Measurement


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    folder = tmp_path / "shots"
    folder.mkdir()
    for name in ("b.mat", "a.nc", "mask.mat", "notes.txt", ".hidden.mat", "a.quicklook.png",
                 ".x.nc.12345678.prismask-part"):  # fmt: skip
        (folder / name).write_bytes(b"x")
    (folder / "more").mkdir()
    return folder


def test_a_folder_gives_its_snapshots(shots: Path) -> None:
    found = find_snapshots([shots], leave_out=[shots / "mask.mat"])
    assert [path.name for path in found] == ["a.nc", "b.mat"]


@pytest.mark.parametrize("given", ["mask.img", "mask.hdr"])
def test_both_files_of_a_mask_are_left_out(tmp_path: Path, given: str) -> None:
    save(Mask(np.ones((3, 4))), tmp_path / "mask.hdr")
    save(Measurement(np.ones((3, 4))), tmp_path / "shot.hdr")
    for where in (tmp_path, tmp_path / "*.*"):
        found = find_snapshots([where], leave_out=[tmp_path / given])
        assert {path.stem for path in found} == {"shot"}


def test_patterns_and_names_together(shots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_snapshots([shots / "b.mat", shots / "*.mat"], leave_out=[shots / "mask.mat"])
    assert [path.name for path in found] == ["b.mat"]
    monkeypatch.chdir(shots.parent)
    assert find_snapshots([Path("shots/[ab].*")]) == [Path("shots/a.nc"), Path("shots/b.mat")]
    assert is_many([Path("shots/*.mat")])
    assert is_many([Path("shots")])
    assert is_many([Path("shots/a.nc"), Path("shots/b.mat")])
    assert not is_many([Path("shots/a.nc")])


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(shots: Path) -> None:
    odd = shots / "a[1].nc"
    odd.write_bytes((shots / "a.nc").read_bytes())
    assert find_snapshots([odd]) == [odd]
    assert not is_many([odd])


@pytest.mark.parametrize("given", ["shots/*.png7", "shots/more"])
def test_nothing_found_is_told(shots: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shots.parent)
    with pytest.raises(DataMissingError):
        find_snapshots([Path(given)])
    with pytest.raises(DataMissingError, match="no snapshot"):
        find_snapshots([Path("shots/a.nc")], leave_out=[Path("shots/a.nc")])


def test_two_snapshots_for_one_output_are_refused() -> None:
    jobs = plan([Path("x/a.mat"), Path("x/b.mat")], Path("out"), ".nc")
    assert [job.out for job in jobs] == [Path("out/a.nc"), Path("out/b.nc")]
    with pytest.raises(ConfigError, match=r"x/a\.mat and y/a\.nc would both be written"):
        plan([Path("x/a.mat"), Path("y/a.nc")], Path("out"), "nc")


@dataclass(frozen=True)
class Pretend:
    """Work that does what the file is called."""

    def __call__(self, job: Job) -> Finished:
        name = job.source.stem.partition("-")[0]
        if name == "bad":
            raise FormatError("this one is bad.")
        if name == "bug":
            raise ZeroDivisionError("oops")
        if name == "die":
            os._exit(9)
        return Finished(job, "skipped" if name == "old" else "done", f"{job.out}")


def _jobs(*names: str) -> list[Job]:
    return plan([Path(f"{name}.nc") for name in names], Path("out"), "nc")


@pytest.mark.parametrize(
    ("workers", "dask"),
    [
        (1, None),
        pytest.param(2, None, marks=pytest.mark.slow),
        pytest.param(2, "local", marks=pytest.mark.slow),
    ],
)
def test_one_bad_file_does_not_stop_the_others(workers: int, dask: str | None) -> None:
    if dask is not None:
        pytest.importorskip("distributed", reason="the extra cluster is not installed")
    jobs = _jobs("fine-1", "bad", "old", "bug", "fine-2")
    told: list[tuple[str, int, int, float]] = []
    finished = run_jobs(
        jobs, Pretend(), workers, lambda one, *rest: told.append((one.status, *rest)), dask
    )
    assert [one.job for one in finished] == jobs
    assert [one.status for one in finished] == ["done", "failed", "skipped", "failed", "done"]
    assert finished[1].text == "this one is bad."
    assert finished[3].text == "ZeroDivisionError: oops"
    assert [entry[1:3] for entry in told] == [(k, 5) for k in range(1, 6)]
    assert told[-1][3] == 0
    assert all(entry[3] >= 0 for entry in told)


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_own_file() -> None:
    finished = run_jobs(_jobs("fine-1", "die", "fine-2", "bad"), Pretend(), 2, lambda *_: None)
    assert [one.status for one in finished] == ["done", "failed", "done", "failed"]
    assert "the worker process died" in finished[1].text


@pytest.mark.slow
def test_a_cluster_s_worker_that_dies_takes_only_its_own_file() -> None:
    dask = pytest.importorskip("dask", reason="the extra cluster is not installed")
    told: list[Job] = []
    # Dask's own patience is four deaths; two show the same, sooner.
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        jobs = _jobs("fine-1", "bad", "die")
        finished = run_jobs(jobs, Pretend(), 2, lambda one, *_: told.append(one.job), "local")
    assert [one.status for one in finished] == ["done", "failed", "failed"]
    assert "every worker that tried it died" in finished[2].text
    assert sorted(told, key=str) == sorted(jobs, key=str), "under the names that were given"
    assert finished[0].text == str(jobs[0].out.absolute())


def test_somebody_has_to_work() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        run_jobs(_jobs("fine"), Pretend(), 0, lambda *_: None)
