"""What commands print and write, line by line and number by number, in one small laboratory."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import shift

from prismask.apps.cli.app import run
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import load, save
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

GOLDEN = Path(__file__).with_name("commands_golden.txt")
"""`PRISMASK_WRITE_GOLDEN=1 pytest test_what_commands_say.py` writes it anew, after a change that is
meant to change it."""
SIZE = (24, 28)
LINES = """
info scene.nc
info shot.nc
info spoilt.npy
info several.npz
info several.npz --variable cube
convert scene.nc scene.mat
convert several.npz named.nc --kind cube --variable cube --wavelengths 480,520,560
convert several.npz wrong.nc --kind measurement --wavelengths 480,520,560
info named.nc
simulate scene.nc --mask mask.nc -o shot2.nc --scale 0.5 --full-well 1000 --read-noise 5 --bits 10
simulate scene.nc --mask mask.nc -o shot3.nc --step 3 --noise-std 0.02 --seed 4 --scale white
info shot2.nc
reconstruct shot.nc --mask mask.nc -o cube.nc --method gap-tv --iterations 5 --device cpu --dark 0
reconstruct shot.nc --mask mask.nc -o cube.nc --method gap-tv --iterations 5 --device cpu
info cube.nc
info told.nc
simulate several.npz --variable cube --mask masks.npz --mask-variable fine -o shot4.nc
reconstruct shots.npz --variable lit --mask masks.npz --mask-variable fine -o cube4.nc \
--method gap-tv --iterations 2 --bands 3 --device cpu --no-quick-look
evaluate-pair scene.nc cube.nc
evaluate-pair cube.nc scene.nc
evaluate-pair scene.nc dim.nc
evaluate-pair scene.nc dim.nc --fit-scale
evaluate-pair several.npz named.nc --truth-variable cube
render scene.nc -o whole.png --exposure 2
render scene.nc -o lit.png --illuminant A
render scene.nc -o band.png --band 550
render several.npz --variable cube -o grey.png
render scene.nc -o wrong.png --band 9
spectra cube.nc -o spectra.csv --points 3,4 --regions 2,2,9,8 --no-picture
camera 450=lit450.npy 550=lit550.npy 650=lit650.npy --flat 450=flat450.npy \
--flat 550=flat550.npy --flat 650=flat650.npy --dark 0.05 --bands 5 --no-figure -o lab.nc
info lab.nc
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("lab")
    before = Path.cwd()
    os.chdir(here)
    draw = np.random.default_rng(0)
    scene = random_scene(1, SIZE, np.linspace(450, 650, 6))
    mask = fabricate_mask(SIZE, seeded(1)).numpy()
    save(scene, "scene.nc")
    save(Mask(mask, attrs={"instrument": "lab"}), "mask.nc")
    save(Cube(0.5 * scene.values, scene.wavelengths), "dim.nc")
    assert run(shlex.split("simulate scene.nc --mask mask.nc -o shot.nc")) == 0
    spoilt = draw.random((6, 8))
    spoilt[0, :3] = np.nan
    np.save("spoilt.npy", spoilt)
    np.savez("several.npz", cube=draw.random((3, *SIZE)), extra=draw.random((5, 7)), name="x")
    found = ["note: the first finding.", "note: the second finding."]
    told = {"findings": found, "numbers": list(range(90)), "nested": {"a": 1}}
    save(Cube(scene.values[:2], attrs=told), "told.nc")
    np.savez("masks.npz", coarse=1 - mask, fine=mask)
    lit = draw.random((SIZE[0], SIZE[1] + 4))
    np.savez("shots.npz", dim=0.1 * lit, lit=lit)
    sensor = np.pad(fabricate_mask((64, 80), seeded(2)).numpy(), ((0, 0), (0, 20)))
    for nm, px in ((450, 0.0), (550, 11.5), (650, 20.0)):
        light = nm / 1000
        moved = shift(sensor, (0, px), order=1)
        np.save(f"lit{nm}.npy", (0.05 + light * moved).astype(np.float32))
        np.save(f"flat{nm}.npy", np.full(sensor.shape, 0.05 + light, np.float32))
    os.chdir(before)
    return here


def written(path: Path) -> str:
    """A few numbers that depend on all of a file."""
    if path.suffix == ".png":
        with Image.open(path) as picture:
            values = np.asarray(picture, dtype=np.float64)
    elif path.suffix == ".csv":
        return path.read_text()
    else:
        record = load(path)
        assert isinstance(record, Cube | Mask | Measurement)
        values = record.values.astype(np.float64)
    flat = values.ravel()
    waves = [float(np.cos(rate * np.arange(flat.size)) @ flat) for rate in (0.7, 2.1)]
    numbers = [float(flat.mean()), float(flat.std()), *(w / flat.size**0.5 for w in waves)]
    return f"{path.name} {values.shape} {' '.join(f'{number:.4g}' for number in numbers)}"


NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w)")
CHANGING = re.compile(
    r"(?<![.\w])[0-9a-f]{12,16}\b|\d+\.\d+\.\d+\S*|(seconds +)\S+|(by gap-tv, )\S+ s|"
    r"(NetCDF-4, )\S+"
)
"""Hashes, versions, times, and sizes that a library decides."""


@pytest.mark.usefixtures("one_thread")
def test_every_line_is_as_it_was(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lab)
    monkeypatch.setenv("COLUMNS", "100")
    parts = []
    for line in LINES.replace("\\\n", "").strip().splitlines():
        known = set(lab.iterdir())
        code = run(shlex.split(line))
        said = capsys.readouterr()
        new = sorted(path for path in set(lab.iterdir()) - known)
        parts += [f"$ {line}", f"{said.out}{said.err}exit {code}", *map(written, new), ""]
    text = CHANGING.sub(r"\1\2\3#", "\n".join(parts))
    if os.environ.get("PRISMASK_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    kept = GOLDEN.read_text(encoding="utf-8")
    for found, expected in zip(text.splitlines(), kept.splitlines(), strict=True):
        assert NUMBER.sub("0", found).split() == NUMBER.sub("0", expected).split()
        numbers, told = ([float(n) for n in NUMBER.findall(one)] for one in (found, expected))
        assert numbers == pytest.approx(told, rel=0.01, abs=0.003), found
