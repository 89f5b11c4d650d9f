"""One hundred people looking at one result: how long each kind of request takes.

    python benchmarks/web_load.py --size 660 --viewers 100 --seconds 30

Starts `prismask view` on a drawn scene in a process of its own. Every viewer opens the page, then
moves the slider, looks at the colours and picks pixels, pausing for 0 to 2 s as people do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import httpx
import numpy as np

from common import machine
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube
from prismask.scenes.synthetic.demo import random_scene

PAUSE_SECONDS = 2.0
KINDS = ("page", "rgb", "band", "spectrum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=660)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cube.nc"
        scene = random_scene(0, (given.size, given.size))
        std = np.full_like(scene.values, 0.02)
        save(Cube(scene.values, scene.wavelengths, std), path)
        command = [sys.executable, "-m", "prismask", "view", str(path), "--no-browser"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            link = next(word for word in server.stdout.readline().split() if "http://" in word)
            times, wrong = asyncio.run(look(link, given.size, given.viewers, given.seconds))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)
            server.stdout.close()
    print(f"{given.viewers} viewers, 28×{given.size}×{given.size}, load {os.getloadavg()[0]:.1f}")
    print(machine())
    print("\n".join(table(times)))
    print(f"wrong answers: {len(wrong)}", *wrong[:3])


async def look(
    link: str, size: int, viewers: int, seconds: float
) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds of every request by kind, and the answers that were wrong."""
    address, _, token = link.partition("?token=")
    times: dict[str, list[float]] = defaultdict(list)
    wrong: list[str] = []
    limits = httpx.Limits(max_connections=viewers, max_keepalive_connections=viewers)
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=address, headers=headers, limits=limits, timeout=60
    ) as client:
        page = (await client.get("/")).headers["location"]
        base = f"/api{page}"
        over = time.monotonic() + seconds

        async def visit(seed: int) -> None:
            chance = random.Random(seed)
            await asyncio.sleep(chance.random() * PAUSE_SECONDS)
            turn = 0
            while time.monotonic() < over:
                x, y = chance.randrange(size), chance.randrange(size)
                paths = {
                    "page": page,
                    "rgb": f"{base}/layers/rgb.png?width=400",
                    "band": f"{base}/layers/band.png?band={chance.randrange(28)}&width=400",
                    "spectrum": f"{base}/spectrum?region={x},{y},{x},{y}",
                }
                kind = KINDS[turn % len(KINDS)]
                started = time.perf_counter()
                answer = await client.get(paths[kind])
                times[kind].append(time.perf_counter() - started)
                if answer.status_code != 200:
                    wrong.append(f"{paths[kind]}: {answer.status_code}")
                turn += 1
                await asyncio.sleep(chance.random() * PAUSE_SECONDS)

        await asyncio.gather(*(visit(seed) for seed in range(viewers)))
    return times, wrong


def table(times: dict[str, list[float]]) -> list[str]:
    """Median and 95th percentile of each kind, in ms."""
    lines = ["| request | count | median in ms | 95 % in ms |", "|---|---|---|---|"]
    for kind in KINDS:
        listed = sorted(times[kind])
        late = listed[int(0.95 * (len(listed) - 1))]
        middle = statistics.median(listed)
        lines.append(f"| {kind} | {len(listed)} | {1000 * middle:.0f} | {1000 * late:.0f} |")
    return lines


if __name__ == "__main__":
    main()
