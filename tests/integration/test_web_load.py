"""One hundred people looking at one result; `benchmarks/web_load.py` is the same for longer."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections import defaultdict
from pathlib import Path

import httpx
import numpy as np
import pytest
import tiny_web

from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube
from prismask.scenes.synthetic.demo import random_scene

VIEWERS, REQUESTS, PAUSE_SECONDS = 100, 8, 2.0
MEDIAN_SECONDS, LATE_SECONDS = 0.2, 1.0
BUSY = 1.0
"""Load per core above which the machine has too much else to do for a fair measurement."""


@pytest.mark.slow
def test_a_hundred_viewers(tmp_path: Path) -> None:
    scene = random_scene(0, (512, 512))
    std = np.full_like(scene.values, 0.02)
    save(Cube(scene.values, scene.wavelengths, std), tmp_path / "cube.nc")
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    with tiny_web.running(tmp_path, "view", str(tmp_path / "cube.nc")) as (client, _):
        times, wrong = _look(client, client.get("/").headers["location"])
    assert wrong == []
    assert sum(map(len, times.values())) == VIEWERS * REQUESTS
    late = {kind: sorted(all_of)[int(0.95 * len(all_of))] for kind, all_of in times.items()}
    middle = {kind: statistics.median(all_of) for kind, all_of in times.items()}
    text = f"medians {middle}, 95 % {late} in s, load {busy:.1f} per core"
    is_fast = max(middle.values()) < MEDIAN_SECONDS and max(late.values()) < LATE_SECONDS
    if not is_fast and busy > BUSY:
        pytest.skip(f"the machine is busy with other things: {text}")
    assert is_fast, text


def _look(known: httpx.Client, page: str) -> tuple[dict[str, list[float]], list[str]]:
    """Every viewer moves the slider and picks pixels, with pauses as people make them."""
    times: dict[str, list[float]] = defaultdict(list)
    wrong: list[str] = []
    limits = httpx.Limits(max_connections=VIEWERS, max_keepalive_connections=VIEWERS)
    with httpx.Client(
        base_url=known.base_url, headers=known.headers, limits=limits, timeout=30
    ) as client:

        def visit(seed: int) -> None:
            chance = random.Random(seed)
            time.sleep(chance.random() * PAUSE_SECONDS)
            for turn in range(REQUESTS):
                band, x, y = chance.randrange(28), chance.randrange(512), chance.randrange(512)
                kind, path = (
                    ("page", page),
                    ("rgb", f"/api{page}/layers/rgb.png?width=400"),
                    ("band", f"/api{page}/layers/band.png?band={band}&width=400"),
                    ("spectrum", f"/api{page}/spectrum?region={x},{y},{x},{y}"),
                )[turn % 4]
                started = time.perf_counter()
                answer = client.get(path)
                times[kind].append(time.perf_counter() - started)
                if answer.status_code != 200:
                    wrong.append(f"{path}: {answer.status_code}")
                time.sleep(chance.random() * PAUSE_SECONDS)

        viewers = [threading.Thread(target=visit, args=(seed,)) for seed in range(VIEWERS)]
        for viewer in viewers:
            viewer.start()
        for viewer in viewers:
            viewer.join()
    return times, wrong
