"""How much a reader passes: files and functions that the main commands run through.

    python benchmarks/files_passed.py [--list reconstruct]

Each command runs once on small inputs in a process of its own. Passed is a file in which a function
is called after the imports are done (the bodies of modules and classes do not count), by any thread
of that process. Comparing two commits tells whether a change made the way shorter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, SMOKE = ROOT / "src" / "prismask", ROOT / "configs" / "smoke.toml"
SMALLER = (
    "schedule.epochs=1", "schedule.warmup_epochs=1", "schedule.epoch_crops=4", "schedule.batch=2",
    "output.validate_every=0",
)  # fmt: skip
TINY = [str(SMOKE), *(word for one in SMALLER for word in ("--set", one))]
"""The training of configs/smoke.toml, smaller still."""
SPLIT = """
[scenes]
test = ["scene.nc"]
[masks.test_lab]
file = "mask.nc"
"""
COMMANDS = {
    "reconstruct": ["reconstruct", "snapshot.nc", "--mask", "mask.nc", "-o", "cube.nc"],
    "train": ["train", *TINY, "--out", "run"],
    "evaluate": [
        "evaluate", "lumen.m2m", "gap-tv:iterations=2", "--data", ".", "--split", "split.toml",
        "--groups", "test_lab", "--scenes", "scene.nc", "--trials", "1", "--out", "scores",
        "--without-timing",
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", choices=COMMANDS, help="also name the files of this command")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print("\n" + json.dumps(traced(json.loads(given.inside))))
        return
    print(f"{'command':<12} {'files':>6} {'functions':>10} {'lines in them':>14}")
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for name, command in COMMANDS.items():
            passed = passed_by(command, Path(folder))
            lines = sum(len((PACKAGE / file).read_text().splitlines()) for file in passed)
            print(f"{name:<12} {len(passed):>6} {sum(passed.values()):>10} {lines:>14}")
            if given.list == name:
                print("\n".join(f"    {count:3} {file}" for file, count in sorted(passed.items())))
    files = list(PACKAGE.rglob("*.py"))
    total = sum(len(file.read_text().splitlines()) for file in files)
    print(f"the package has {len(files)} files with {total} lines")


def prepare(folder: Path) -> None:
    """Write what the commands read."""
    import numpy as np

    import prismask

    scene = prismask.demo_scene((64, 64))
    mask = prismask.Mask((np.random.default_rng(0).random((64, 64)) > 0.5).astype(np.float32))
    prismask.save(scene, folder / "scene.nc")
    prismask.save(mask, folder / "mask.nc")
    prismask.save(prismask.simulate(scene, mask), folder / "snapshot.nc")
    (folder / "split.toml").write_text(SPLIT)


def passed_by(command: list[str], folder: Path) -> dict[str, int]:
    """File of the package → how many of its functions the command calls."""
    line = [sys.executable, str(Path(__file__).resolve()), "--inside", json.dumps(command)]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def traced(command: list[str]) -> dict[str, int]:
    """The same, of a command run in this process."""
    from prismask.apps.cli.app import run

    called: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and is_function(code) and code.co_filename.startswith(str(PACKAGE)):
            called.add((code.co_filename, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    code = run(command)
    sys.setprofile(None)
    if code:
        raise SystemExit(code)
    files: dict[str, int] = {}
    for file, _ in called:
        name = str(Path(file).relative_to(PACKAGE))
        files[name] = files.get(name, 0) + 1
    return files


def is_function(code: CodeType) -> bool:
    """Written with `def`: not the body of a module or a class, nor a comprehension or a lambda."""
    return bool(code.co_flags & CO_OPTIMIZED) and not code.co_name.startswith("<")


if __name__ == "__main__":
    main()
