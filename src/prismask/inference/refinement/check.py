"""Does a mask still fit its camera? Each snapshot is asked by itself, in seconds.

The probe of `alignment.search` says whether another pose explains clearly more; the numbers of the
pose that the snapshot itself would have (`alignment.steps`) say how far things have moved. Over the
dates of the snapshots they show a drift.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import torch

from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import PROBE_LINES, Probe, brightest, probe_mask
from prismask.inference.alignment.steps import POSED_STD, UNKNOWN_STD, seen_lines, step_pose
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.options import DEFAULTS, Options
from prismask.inference.refinement.shots import Shots, read_shots
from prismask.optics.camera import CASSI, CameraDescription
from prismask.progress import Progress, as_progress
from prismask.scenes.conversion import as_mask
from prismask.wording import Finding, told_in_python

if TYPE_CHECKING:
    from prismask.scenes.conversion import MaskLike, MeasurementLike

MOST_SHOTS = 12
"""Snapshots that are looked at unless more are wanted, evenly spread: about a minute."""
POSE_TURNS = 2
"""Turns of cube and pose for each snapshot."""
DATES = ("date", "time", "timestamp", "datetime", "acquired", "acquisition_time", "date_created")
"""What files call the date of a snapshot."""
_IN_NAME = re.compile(
    r"(20\d\d)[-_.]?([01]\d)[-_.]?([0-3]\d)(?:[-_T ]?([0-2]\d)[-_.:h]?([0-5]\d))?"
)


@dataclass(frozen=True)
class ShotCheck:
    """What one snapshot says of its mask."""

    name: str
    date: datetime | None
    unexplained: float
    """Share of the bright lines that its cube leaves unexplained with the mask as given."""
    gain: float | None
    """Share of that which another pose would explain; None: too small to tell."""
    pose: MaskPose
    """Where this snapshot alone would have the mask, in the frame of the camera."""

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the mask."""
        return self.gain is None or not Probe(self.gain).is_inconsistent


@dataclass(frozen=True)
class MaskCheck:
    """What the snapshots of a camera say of its mask."""

    shots: tuple[ShotCheck, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Name and reason."""
    findings: tuple[Finding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether most snapshots agree with the mask."""
        agree = sum(shot.fits for shot in self.shots)
        return 2 * agree > len(self.shots)

    @property
    def dated(self) -> tuple[ShotCheck, ...]:
        """Snapshots with a date, the oldest first."""
        dated = [shot for shot in self.shots if shot.date is not None]
        return tuple(sorted(dated, key=lambda shot: shot.date or datetime.min))


@told_in_python
def check_mask(
    snapshots: Sequence[MeasurementLike],
    mask: MaskLike,
    camera: CASSI | CameraDescription | None = None,
    *,
    model: Any = None,
    most: int = MOST_SHOTS,
    progress: Progress | bool | None = None,
    options: Options = DEFAULTS,
    **changes: Any,
) -> MaskCheck:
    """Whether `mask` still explains `snapshots` that were taken through it.

    Arguments are those of `refine_mask`. most: snapshots that are looked at, evenly spread.
    """
    chosen = _spread(list(snapshots), most)
    asked = options.with_changes({**changes, **({"model": str(model)} if model else {})})
    shots, method = read_shots(chosen, as_mask(mask), camera, asked)
    bar = as_progress(progress, "checking")
    found = []
    for number in range(len(shots)):
        found.append(_checked(shots, method, number))
        if bar is not None:
            bar(number + 1, len(shots), {})
    findings = [*shots.findings]
    if len(chosen) < len(snapshots):
        text = f"{len(chosen)} of {len(snapshots)} snapshots were looked at, evenly spread."
        findings.append(Finding("note", text))
    return MaskCheck(tuple(found), shots.left_out, tuple(findings))


def _spread(snapshots: list[Any], most: int) -> list[Any]:
    """At most so many, evenly spread, the last one among them."""
    if len(snapshots) <= most:
        return snapshots
    if most <= 1:
        return snapshots[-1:]
    last = len(snapshots) - 1
    return [snapshots[round(k * last / (most - 1))] for k in range(most)]


def _checked(shots: Shots, method: NetworkMethod, number: int) -> ShotCheck:
    told = shots.told
    alone = shots.view.shown._replace(
        measurement=shots.signal[number : number + 1], noise=shots.noise[number : number + 1]
    )
    probe = probe_mask(method.engine, alone)
    rows = brightest(shots.signal[number], 2 * PROBE_LINES)
    pose, unexplained = MaskPose(), 0.0
    for turn in range(POSE_TURNS):
        std = torch.full_like(told[:, :1], POSED_STD if turn else UNKNOWN_STD)
        moved = pose.moved(told)
        seen = shots.told_that([number], moved, std)
        lines = seen_lines(method.engine, seen, rows, shots.counts[number : number + 1])
        if not turn:
            left = lines.observed.left(lines.of(told)) * lines.observed.counts
            total = lines.observed.signal.double().square().sum().sqrt()
            unexplained = float(left.double().square().sum().sqrt() / total.clamp_min(1e-12))
        pose, _ = step_pose([lines], told, pose)
    return ShotCheck(
        shots.names[number],
        date_of(shots.names[number], shots.attrs[number]),
        unexplained,
        None if probe is None else probe.gain,
        shots.view.pose_back(pose),
    )


def date_of(name: str, attrs: Mapping[str, Any]) -> datetime | None:
    """When a snapshot was taken, by what its file says, else by its name; None: unknown."""
    for key, value in attrs.items():
        if str(key).lower() in DATES:
            try:
                return datetime.fromisoformat(str(value)).replace(tzinfo=None)
            except ValueError:
                continue
    found = _IN_NAME.search(name)
    if found is None:
        return None
    year, month, day, hour, minute = (int(part or 0) for part in found.groups())
    try:
        return datetime(year, month, day, hour, minute)
    except ValueError:
        return None
