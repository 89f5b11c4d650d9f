"""Jobs as a script sees them: done, refused, cancelled, too slow, too many, forgotten."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import tiny_web

from prismask.apps.web import jobs
from prismask.apps.web.decode import decode_caged
from prismask.apps.web.limits import Limits
from prismask.errors import FormatError
from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.simulate import simulate
from prismask.parallel.cage import TimeLimitError
from prismask.scenes.formats.files import load_cube, load_mask, load_measurement, save
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_web.write_snapshot(tmp_path)
    return tmp_path


@pytest.fixture
def slow_folder(tmp_path: Path) -> Path:
    """A snapshot on which 5000 iterations take minutes on any machine."""
    tiny_web.write_snapshot(tmp_path, (256, 256))
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[httpx.Client]:
    with tiny_web.running(folder, "serve") as (client, _):
        yield client


def test_how_far_the_mask_may_be_wrong_reaches_the_job(folder: Path, served: httpx.Client) -> None:
    """Given in the form, or brought along by the mask's file."""
    how = {"method": "gap-tv", "iterations": 2}
    for name, told in (("form", {"mask_std": 0.1}), ("file", {})):
        answer = tiny_web.submit(served, folder, **how, **told)
        status = tiny_web.wait_for(served, answer.json()["id"])
        said = " ".join(status["findings"])
        assert "gap-tv has no input for how far the mask may be wrong" in said, name
        mask = load_mask(folder / "mask.nc")
        save(Mask(mask.values, std=0.1 * mask.values), folder / "mask.nc", overwrite=True)
    for wrong in (-0.1, 2, "nan", "wide"):
        refused = tiny_web.submit(served, folder, **how, mask_std=wrong)
        assert refused.status_code == 422
        assert "mask_std" in refused.json()["detail"]


def test_a_job_gives_what_the_command_gives(folder: Path, served: httpx.Client) -> None:
    import prismask

    answer = tiny_web.submit(served, folder, method="gap-tv", iterations=4)
    assert answer.status_code == 202
    status = tiny_web.wait_for(served, answer.json()["id"])
    assert status["state"] == "done"
    assert (status["done"], status["total"]) == (4, 4)
    out = folder / "fetched.nc"
    out.write_bytes(served.get(f"/api/results/{status['result']}/cube.nc").content)
    expected = prismask.reconstruct(
        folder / "snapshot.nc", folder / "mask.nc", method="gap-tv", iterations=4
    )
    np.testing.assert_allclose(load_cube(out).values, expected.values, atol=1e-5)

    gone = served.delete(f"/api/jobs/{answer.json()['id']}")
    assert gone.status_code == 200
    assert served.get(f"/api/results/{status['result']}").status_code == 404
    assert served.get(f"/api/jobs/{answer.json()['id']}").status_code == 404
    assert len(tiny_web.leftovers(folder)) == 1, "nothing but the server's own empty folder"


def test_a_camera_is_told_in_the_form(folder: Path, served: httpx.Client) -> None:
    import prismask

    camera, at = CASSI((0.0, 1.9, 3.7, 6.0), axis="height"), (450, 500, 550, 600)
    mask, scene = load_mask(folder / "mask.nc"), random_scene(1, tiny_web.SIZE, at)
    bare = Measurement(simulate(scene, mask, camera).values)  # nothing noted in the file
    save(bare, folder / "snapshot.nc", overwrite=True)
    told = {"offsets": "0, 1.9 3.7,6", "axis": "height", "wavelengths": "450,500,550,600"}
    answer = tiny_web.submit(served, folder, method="gap-tv", iterations=4, **told)
    status = tiny_web.wait_for(served, answer.json()["id"])
    assert status["state"] == "done", status
    out = folder / "fetched.nc"
    out.write_bytes(served.get(f"/api/results/{status['result']}/cube.nc").content)
    found = load_cube(out)
    expected = prismask.reconstruct(bare, mask, camera, "gap-tv", iterations=4)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    np.testing.assert_array_equal(found.wavelengths, at)
    both = tiny_web.submit(served, folder, offsets="0,2,4,6", step=2)
    assert (both.status_code, "give one of them" in both.text) == (422, True)


def test_whoever_says_nothing_gets_the_network_for_the_camera(
    folder: Path, served: httpx.Client
) -> None:
    wide = CASSI.from_step(28, 3.0)
    scene, mask = random_scene(1, tiny_web.SIZE), load_mask(folder / "mask.nc")
    save(simulate(scene, mask, wide), folder / "snapshot.nc", overwrite=True)
    answer = tiny_web.submit(served, folder)
    status = tiny_web.wait_for(served, answer.json()["id"])
    assert status["state"] == "done", status
    out = folder / "fetched.nc"
    out.write_bytes(served.get(f"/api/results/{status['result']}/cube.nc").content)
    assert load_cube(out).attrs["model"] == "lumen.m2m"


def test_own_weights_with_samples(folder: Path) -> None:
    model = create_model("srn", bands=28, mask_posterior="gst", seed=0, width=8, blocks=1)
    save_weights(model, folder / "tiny.safetensors", {"name": "tiny", "step_px": 2.0})
    with tiny_web.running(folder, "serve", "--model", str(folder / "tiny.safetensors")) as (c, _):
        assert "tiny" in c.get("/api/about").json()["models"]
        # The path that the server knows is nothing a visitor may name.
        refused = tiny_web.submit(c, folder, model=folder / "tiny.safetensors")
        assert (refused.status_code, "unknown model" in refused.text) == (422, True)
        job = tiny_web.submit(c, folder, model="tiny", samples=3).json()
        status = tiny_web.wait_for(c, job["id"])
        assert status["state"] == "done", status
        spectrum = c.get(f"/api/results/{status['result']}/spectrum?region=1,1,4,4").json()
        assert all(np.array(spectrum["lower"]) <= np.array(spectrum["values"]))
        sought = tiny_web.submit(c, folder, model="tiny", align="true").json()
        told = tiny_web.wait_for(c, sought["id"])
        assert any("the mask" in line for line in told["findings"]), told
        taught = tiny_web.submit(c, folder, model="tiny", adapt=2).json()
        told = tiny_web.wait_for(c, taught["id"])
        assert any("adapted to this scene" in line for line in told["findings"]), told
        layers = c.get(f"/api/results/{status['result']}").json()["layers"]
        assert "uncertainty" in [layer["name"] for layer in layers]


def test_sizes_that_do_not_fit_fail_with_the_reason(folder: Path, served: httpx.Client) -> None:
    save(Mask(np.ones((8, 8), np.float32)), folder / "mask.nc", overwrite=True)
    status = tiny_web.wait_for(served, tiny_web.submit(served, folder).json()["id"])
    assert status["state"] == "failed"
    assert "8×8" in str(status["message"])
    assert "Traceback" not in str(status["message"])
    assert str(folder) not in str(status["message"])


def test_a_sample_and_a_remedy_at_one_press(folder: Path, served: httpx.Client) -> None:
    sample = served.post("/api/sample")
    assert sample.status_code == 202
    assert sample.json()["seconds_left"] > 0, "from the first second"
    status = tiny_web.wait_for(served, sample.json()["id"])
    assert status["state"] == "done", status
    first = served.get(f"/api/results/{status['result']}").json()
    assert "error" in [layer["name"] for layer in first["layers"]], "the drawn scene is the truth"
    again = served.post(f"/api/results/{first['id']}/again", data={"remedy": "solver"})
    assert again.status_code == 202
    status = tiny_web.wait_for(served, again.json()["id"])
    assert status["state"] == "done", status
    second = served.get(f"/api/results/{status['result']}").json()
    assert second["name"] == "drawn scene (gap-tv)"
    assert second["others"] == [{"id": first["id"], "name": first["name"]}]
    listed = [one["id"] for one in served.get("/api/results").json()]
    assert listed == [second["id"], first["id"]]
    wrong = served.post(f"/api/results/{first['id']}/again", data={"remedy": "none"})
    assert wrong.status_code == 422
    assert served.get("/api/about").json()["seconds"]["start"] == 0, "the worker is warm now"


def test_queue_bound_and_cancel(slow_folder: Path) -> None:
    with tiny_web.running(slow_folder, "serve", "--queue", "1") as (client, _):
        slow = {"method": "gap-tv", "iterations": 5000}
        first = tiny_web.submit(client, slow_folder, **slow).json()["id"]
        _wait_until_running(client, first)
        second = tiny_web.submit(client, slow_folder, **slow).json()["id"]
        places = [client.get(f"/api/jobs/{job}").json()["position"] for job in (first, second)]
        assert places == [0, 1], "the one that runs is before the one that waits"
        third = tiny_web.submit(client, slow_folder, **slow)
        assert third.status_code == 429
        assert "no more are taken" in third.json()["detail"]
        assert client.delete(f"/api/jobs/{second}").json()["state"] == "cancelled"
        fourth = tiny_web.submit(client, slow_folder, **slow)
        assert fourth.status_code == 202, "a job that was called off has left its place"
        client.delete(f"/api/jobs/{fourth.json()['id']}")
        client.delete(f"/api/jobs/{first}")
        assert tiny_web.wait_for(client, first, 10)["state"] == "cancelled"
        # The worker was killed with the first job; there is another for the next.
        last = tiny_web.submit(client, slow_folder, method="gap-tv", iterations=1).json()["id"]
        assert tiny_web.wait_for(client, last)["state"] == "done"
        assert len(tiny_web.leftovers(slow_folder)) == 1


def test_time_limit_and_forgetting(slow_folder: Path) -> None:
    words = ("--minutes", "0.2", "--keep-minutes", "0.05")
    with tiny_web.running(slow_folder, "serve", *words) as (client, _):
        job = tiny_web.submit(client, slow_folder, method="gap-tv", iterations=5000).json()["id"]
        status = tiny_web.wait_for(client, job, 120)
        assert status["state"] == "failed"
        assert "12 s, the time limit" in str(status["message"])
        deadline = time.monotonic() + 60
        while client.get(f"/api/jobs/{job}").status_code == 200:
            assert time.monotonic() < deadline, "the job should have been forgotten"
            time.sleep(0.3)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_however_the_server_ends(slow_folder: Path, kind: int) -> None:
    with tiny_web.running(slow_folder, "serve") as (client, server):
        job = tiny_web.submit(client, slow_folder, method="gap-tv", iterations=5000).json()["id"]
        _wait_until_running(client, job)
        children = _children(server.pid)
        assert len(children) >= 2
        server.send_signal(kind)
        server.wait(timeout=60)
    deadline = time.monotonic() + 60
    while tiny_web.leftovers(slow_folder) or any(map(_is_alive, children)):
        assert time.monotonic() < deadline, (tiny_web.leftovers(slow_folder), children)
        time.sleep(0.2)
    assert "Traceback" not in (slow_folder / "server.log").read_text()


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_quietly_while_uploads_stall(folder: Path, kind: int) -> None:
    with tiny_web.running(folder, "serve") as (client, server):
        url, token = client.base_url, client.headers["authorization"]
        with socket.create_connection((url.host, url.port)) as stalled:
            stalled.sendall(
                f"POST /api/jobs HTTP/1.1\r\nhost: {url.host}:{url.port}\r\n"
                f"authorization: {token}\r\ncontent-length: 99999\r\n"
                "content-type: multipart/form-data; boundary=b\r\n\r\n--b\r\n".encode()
            )
            time.sleep(1)
            server.send_signal(kind)
            server.wait(timeout=60)
    assert (folder / "server.log").read_text() == ""


def test_an_upload_that_needs_too_much_is_refused(folder: Path) -> None:
    """In a process of its own: the server, and the next upload, are none the wiser."""
    big = np.zeros((4000, 4000), np.float32)
    np.savez_compressed(folder / "big.npz", mask=big)
    for limits, error, message in (
        (Limits(memory=10**7), FormatError, "more memory than .* Crop it"),
        (Limits(check_seconds=0.02), TimeLimitError, "0.02 s"),
        (Limits(values=10**6), FormatError, "^what-was-sent.npz holds 4000×4000 values"),
    ):
        shutil.copy(folder / "big.npz", folder / "sent.npz")
        with pytest.raises(error, match=message) as caught:
            decode_caged(
                folder / "sent.npz", "what-was-sent.npz", "mask", folder / "out.nc", limits, _never
            )
        assert str(folder) not in jobs.told(caught.value)
        assert not (folder / "sent.npz").exists()
    shutil.copy(folder / "big.npz", folder / "sent.npz")
    size = decode_caged(
        folder / "sent.npz", "what-was-sent.npz", "mask", folder / "out.nc", Limits(), _never
    )
    assert size == [4000, 4000]


def test_a_job_has_the_memory_of_a_reader_and_no_more(folder: Path) -> None:
    site = Limits()
    assert 12 * 4 * site.cube_values + 2**30 < site.memory, "the largest cube fits"
    with tiny_web.running(folder, "serve") as (client, server):
        # As the kernel has it, while a job runs and after it.
        tiny_web.wait_for(client, client.post("/api/sample").json()["id"])
        most = [_data_limit(pid) for pid in _children(server.pid)]
        assert any(0 <= limit - site.memory < 2**28 for limit in most if limit), most


def test_wrong_words_on_the_command_line(folder: Path) -> None:
    for words in (["serve", "--port", "99999"], ["serve", "--queue", "0"], ["view", "none.nc"]):
        done = subprocess.run(
            [sys.executable, "-m", "prismask", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith("prismask: ")
        assert done.stderr.count("\n") == 1


def test_the_snapshot_is_kept_as_it_was_sent(folder: Path, served: httpx.Client) -> None:
    """A PNG and an NPY go through the reader and come out as the layers of the result."""
    from PIL import Image

    shot, mask = load_measurement(folder / "snapshot.nc"), load_mask(folder / "mask.nc")
    grey = np.round(255 * shot.values / shot.values.max()).astype(np.uint8)
    Image.fromarray(grey).save(folder / "anything.png")
    np.save(folder / "other.npy", mask.values)
    files = {name: (folder / path).read_bytes() for name, path in
             (("snapshot", "anything.png"), ("mask", "other.npy"))}  # fmt: skip
    sent = {"snapshot": ("anything.png", files["snapshot"]), "mask": ("x", files["mask"])}
    answer = served.post("/api/jobs", files=sent, data={"method": "gap-tv", "iterations": "1"})
    status = tiny_web.wait_for(served, answer.json()["id"])
    assert status["state"] == "done", status
    facts = served.get(f"/api/results/{status['result']}").json()
    sizes = {layer["name"]: (layer["height"], layer["width"]) for layer in facts["layers"]}
    assert sizes["snapshot"] == shot.size
    assert sizes["mask"] == mask.size


def _wait_until_running(client: httpx.Client, job: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        status = client.get(f"/api/jobs/{job}").json()
        if status["state"] == "running" and status["total"]:
            return
        assert time.monotonic() < deadline, status
        assert status["state"] in ("waiting", "running"), status
        time.sleep(0.1)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("this system does not list the children of a process")
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _data_limit(pid: int) -> int | None:
    """Bytes of private memory that a process may have, None for any."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    word = next(line for line in lines if line.startswith("Max data size")).split()[3]
    return None if word == "unlimited" else int(word)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # One that has ended but was not fetched by its parent is not alive.
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def _never() -> bool:
    return False
