"""From a network and scenes with known truth to its interval and its rule of trust.

Snapshots are reconstructed once, one after the other; what the fit needs of each is written to a
folder, so that nothing is lost when the work is stopped, and the same command goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from prismask.inference.inspection import prepare
from prismask.inference.intervals.evidence import FACTS, VALUES
from prismask.inference.intervals.learn import Fitted, fit_learned
from prismask.inference.intervals.learned import LEVELS
from prismask.inference.intervals.rows import Rows
from prismask.inference.intervals.snapshots import Shot, Studio
from prismask.inference.intervals.trust import TrustRule, fit_trust
from prismask.inference.methods.network import LEARNED, NetworkMethod
from prismask.inference.options import DEFAULTS
from prismask.models.network import ensemble_size
from prismask.optics.randomness import seed_of
from prismask.progress import Progress

PROBED = 3
"""One in so many right masks is probed, as are all wrong ones: it takes as long as a pass."""


@torch.inference_mode()
def collect(
    method: NetworkMethod,
    studio: Studio,
    count: int,
    folder: Path,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> list[Rows]:
    """The rows of `count` snapshots, those in `folder` as they are.

    seconds: stop after this many, once every scene has been seen twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started, found, scenes = time.monotonic(), [], len(studio.scenes)
    for number in range(count):
        path = folder / f"{number:05d}.npz"
        rows = Rows.load(path)
        if rows is None:
            late = seconds is not None and time.monotonic() - started > seconds
            # Whole rounds only: every scene is to count alike.
            if late and number >= 2 * scenes and number % scenes == 0:
                break
            rows = _rows(method, studio.shoot(number), number, scenes)
            rows.save(path)
        found.append(rows)
        if progress is not None:
            progress(number + 1, count, {})
    return found


def folder_for(parent: Path, method: NetworkMethod, studio: Studio) -> Path:
    """Where the rows of this network and these snapshots are kept.

    Named for all that decides them: what was kept of other weights or of another plan stays apart.
    """
    facts = {
        "weights": method.record.get("sha256"),
        "ensemble": ensemble_size(method.record),
        "plan": asdict(studio.plan),
        "scenes": {name: cube.hash for name, cube in studio.scenes.items()},
        "cameras": [camera.offsets for camera in studio.others],
        "region": None if studio.region is None else list(studio.region.shape),
        "features": [*VALUES, *FACTS],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return parent / digest


def _rows(method: NetworkMethod, shot: Shot, number: int, scenes: int) -> Rows:
    ready = prepare(shot.signal[None], shot.mask, shot.camera, DEFAULTS)
    (snapshot,) = ready.snapshots()
    probed = shot.fault is not None or number // scenes % PROBED == 0
    return Rows.of(shot, method.evidence(snapshot, probed), seed_of("rows", number))


def fit_record(
    rows: list[Rows],
    studio: Studio,
    *,
    seen: Sequence[Rows] = (),
    about: Mapping[str, Any] | None = None,
    steps: int | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], Fitted, TrustRule]:
    """The record `interval` of a network, and what was found on the way.

    seen: of scenes that the network learned from (`fit_learned`).
    """
    facts = {"plan": asdict(studio.plan), "cameras": len(studio.others), **(about or {})}
    more: dict[str, Any] = {} if steps is None else {"steps": steps}
    fitted = fit_learned(
        rows, seen=seen, about=facts, seed=studio.plan.seed, progress=progress, **more
    )
    trust = fit_trust(rows, fitted.widths[:, LEVELS.index(0.9)])
    record = {LEARNED: fitted.interval.to_record(), "trust": trust.to_record()}
    # Through JSON once, so that what is used now is what a file will give.
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain, fitted, trust
