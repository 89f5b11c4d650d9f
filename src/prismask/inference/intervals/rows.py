"""What is kept of snapshots for the fit of an interval: some of their values, with their features.

A few thousand values, evenly over the bands, and some more at a planted structure, which would be
too few to be learned otherwise; those count in the fit and at the structure, and in no other score.
Snapshots are reconstructed once, one after the other, and the rows of each are written to a file of
their own: nothing is lost when the work is stopped, and the same command goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.inference.inspection import prepare
from prismask.inference.intervals.evidence import FACTS, VALUES, Evidence
from prismask.inference.intervals.snapshots import Shot, Studio
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.options import DEFAULTS
from prismask.models.network import ensemble_size
from prismask.optics.randomness import seed_of
from prismask.progress import Progress
from prismask.scenes.atomic import write_beside

PER_SNAPSHOT, AT_STRUCTURE = 12_000, 1_500
"""Values kept of each snapshot, and more of them at a planted structure."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Rows:
    """The values of one snapshot; errors, values and facts are relative to its brightness."""

    features: Floats
    """`(N, K)`."""
    error: Floats
    """Truth − estimate, `(N,)`."""
    value: Floats
    """The estimate, `(N,)`."""
    truth: Floats
    """The truth, `(N,)`, by which quarters of the intensities are told apart."""
    place: Floats
    """Position in the spectrum between 0 and 1, `(N,)`."""
    extra: NDArray[np.bool_]
    """Whether a value is there only because of a planted structure, `(N,)`."""
    names: tuple[str, ...]
    """Of the features."""
    scene: str
    light: str
    condition: str
    noise_std: float
    probe_gain: float
    """NaN: not probed."""
    other_camera: bool
    facts: tuple[float, ...]
    """`Evidence.facts`, in their order."""
    rms_error: float
    """Root mean square error of the cube."""
    rms_reference: float
    """The same of the quick solver's cube."""

    @classmethod
    def of(cls, shot: Shot, evidence: Evidence, seed: int) -> Rows:
        """A random part of a snapshot."""
        draw, level = np.random.default_rng(seed), evidence.level
        each = max(1, PER_SNAPSHOT // len(shot.truth))
        bands = max(1, int(shot.planted.flatten(1).any(1).sum()))
        parts: dict[str, list[Any]] = {
            name: [] for name in ("features", "error", "value", "truth", "place", "extra")
        }
        for band, features in enumerate(evidence.features()):
            chosen = draw.integers(features[0].numel(), size=each)
            there = np.flatnonzero(shot.planted[band].numpy())
            count = AT_STRUCTURE // bands if len(there) else 0
            more = draw.choice(there, count) if count else np.zeros(0, dtype=np.int64)
            at = torch.from_numpy(np.concatenate([chosen, more]))
            truth = shot.truth[band].flatten()[at] / level
            value = evidence.values[band].flatten()[at] / level
            place = band / max(1, len(shot.truth) - 1)
            found = {
                "features": features.flatten(1)[:, at].T,
                "error": truth - value,
                "value": value,
                "truth": truth,
                "place": torch.full((len(at),), place),
            }
            for name, tensor in found.items():
                parts[name].append(tensor.numpy())
            parts["extra"].append(np.arange(len(at)) >= each)
        return cls(
            **{name: np.concatenate(listed) for name, listed in parts.items()},
            names=evidence.names,
            scene=shot.scene,
            light=shot.light,
            condition=shot.condition,
            noise_std=shot.noise_std,
            probe_gain=float("nan") if evidence.probe_gain is None else evidence.probe_gain,
            other_camera=evidence.other_camera,
            facts=tuple(evidence.facts.values()),
            rms_error=_rms(evidence.values - shot.truth) / level,
            rms_reference=_rms(evidence.reference - shot.truth) / level,
        )

    def save(self, path: Path) -> None:
        """Write them; an interruption leaves nothing half written."""
        with write_beside(path, overwrite=True) as beside, beside.open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(v) for name, v in vars(self).items()}
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Rows | None:
        """Read them; None where there are none, or none that can be read."""
        try:
            with np.load(path) as stored:
                found: dict[str, Any] = {name: stored[name] for name in stored.files}
            for name in ("scene", "light", "condition"):
                found[name] = str(found[name])
            for name in ("noise_std", "probe_gain", "rms_error", "rms_reference"):
                found[name] = float(found[name])
            found["other_camera"] = bool(found["other_camera"])
            found["names"] = tuple(str(name) for name in found["names"])
            found["facts"] = tuple(float(value) for value in found["facts"])
            return cls(**found)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


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
