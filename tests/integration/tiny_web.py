"""A small snapshot with its mask, and a server in a process of its own, for the web tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask
from prismask.scenes.synthetic.demo import random_scene

SIZE = (32, 40)
ENDED = ("done", "failed", "cancelled")


def write_snapshot(folder: Path, size: tuple[int, int] = SIZE) -> Cube:
    """`snapshot.nc` and `mask.nc` in a folder; gives back the scene."""
    mask = Mask(fabricate_mask(size, seeded(0)).numpy())
    scene = random_scene(1, size)
    save(mask, folder / "mask.nc")
    save(simulate(scene, mask, CASSI.from_step(scene.bands)), folder / "snapshot.nc")
    return scene


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """`prismask WORDS…` on a free port, with `folder/tmp` for temporary files; ends by SIGTERM."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "prismask", *words, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert "http://" in line, (folder / "server.log").read_text()
        link = next(word for word in line.split() if word.startswith("http://"))
        address, _, token = link.partition("?token=")
        known = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=address, headers=known, timeout=60) as client:
            yield client, server
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
        assert server.stdout is not None
        server.stdout.close()
        log.close()


def link_of(client: httpx.Client) -> str:
    """The link that the server printed."""
    return f"{client.base_url}?token={client.headers['authorization'].split()[1]}"


def submit(client: httpx.Client, folder: Path, **options: object) -> httpx.Response:
    """Send the snapshot and the mask of `folder`."""
    with (folder / "snapshot.nc").open("rb") as snapshot, (folder / "mask.nc").open("rb") as mask:
        files = {"snapshot": ("snapshot.nc", snapshot), "mask": ("mask.nc", mask)}
        data = {key: str(value) for key, value in options.items()}
        return client.post("/api/jobs", files=files, data=data)


def wait_for(client: httpx.Client, job: str, seconds: float = 60) -> dict[str, object]:
    """The status of a job once it has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status: dict[str, object] = client.get(f"/api/jobs/{job}").json()
        if status["state"] in ENDED:
            return status
        time.sleep(0.1)
    raise AssertionError(f"the job did not end within {seconds} s: {status}")


def leftovers(folder: Path) -> list[str]:
    """Everything that a server has left in `folder/tmp`."""
    # os.walk passes over a folder that is removed while it looks; rglob would raise.
    walked = os.walk(folder / "tmp")
    inside = [Path(root, name) for root, folders, files in walked for name in (*folders, *files)]
    return sorted(str(path.relative_to(folder)) for path in inside)
