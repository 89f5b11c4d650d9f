"""The mask that explains the snapshots of a camera, and how far each of its pixels may be wrong.

    refined = refine_mask(["one.mat", "two.mat", "three.mat"], "mask.nc")
    save(refined.mask, "refined.nc")

Scenes are unknown, so cubes and mask are found in turn: cubes by a network that is told the mask as
far as it is known and how far it may be wrong, then the mask with those cubes. First the few
numbers of its pose (`alignment.steps`), then its pixels (`mask_fit`).

Given enough freedom a mask explains any snapshots, so what it was not fitted to decides: one
snapshot is held out, or of one or two snapshots a share of the sensor's pixels. The mask that
leaves least of that is kept, and the calibration itself is among those that are compared. The last
fit then uses everything.

Rows never mix behind the camera, so frames are worked on in strips, and memory does not grow with
their height.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from prismask import __version__
from prismask.errors import ConfigError, ValuesError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import slid_along
from prismask.inference.alignment.steps import (
    POSED_STD,
    UNKNOWN_STD,
    Lines,
    largest_change,
    seen_lines,
    step_pose,
)
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.options import DEFAULTS, Options
from prismask.inference.refinement.mask_fit import MaskFit, fit_mask
from prismask.inference.refinement.shots import Shots, read_shots
from prismask.optics.camera import CASSI, CameraDescription
from prismask.progress import Progress, as_progress
from prismask.scenes.atomic import write_beside
from prismask.scenes.conversion import as_mask
from prismask.scenes.records import Mask, array_hash
from prismask.wording import Finding, told_in_python

if TYPE_CHECKING:
    from prismask.scenes.conversion import MaskLike, MeasurementLike

ROUNDS = 4
"""Turns of cubes and pixels at most."""
POSE_ROUNDS, POSE_SHOTS = 6, 6
"""Turns of cubes and pose at most, and snapshots that are used for it, the brightest."""
USUAL_SLIDE = 4
"""Cubes that the pose's last shift along the dispersion usually takes."""
POSE_LINES, POSE_PIECES = 64, 3
"""Lines of each piece of a large frame that the pose is found from, and how many pieces."""
SETTLED = 0.03
"""Change of the pose's numbers below which it counts as found."""
STRIP = 96
"""Lines that are worked on at once."""
LEAST_GAIN = 0.01
"""Share by which a step has to lower what is left of held-out data."""
PIXELS_FROM = 3
"""Snapshots from which pixels are fitted, too. Of fewer no whole snapshot can be held out, and
pixels held out of one share its cube with the others: dust fitted to one snapshot explained those
38 % better, and cubes of other scenes were 0.2 dB worse."""
HELD_SHARE, SEED = 0.15, 20
"""Share of the pixels that are held out of one or two snapshots, and the seed that draws them."""
CONTRADICTS, LEAST_SHARE = 3.0, 0.05
"""Times the median share left unexplained from which a snapshot contradicts the others, and the
least share of that kind."""
UNIFORM = 0.03
"""Variation over the frame, relative to its mean, below which a scene says nothing of the mask."""
STATE = 1
"""Version of the file that work goes on from."""


@dataclass(frozen=True, eq=False)
class Refinement:
    """What was found about a mask."""

    mask: Mask
    """With its `std`; the given one where no other explains held-out data better."""
    pose: MaskPose
    """Where the given mask was found."""
    levels: tuple[float, ...]
    """What each mask leaves of held-out data, as a share: as given, in its pose, of each round."""
    kept: int
    """Which of those masks was taken."""
    used: tuple[str, ...]
    """The snapshots that it was found from."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Those that were not used, and why."""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def is_changed(self) -> bool:
        """Whether the mask is another than the given one."""
        return self.kept > 0


@told_in_python
def refine_mask(
    snapshots: Sequence[MeasurementLike],
    mask: MaskLike,
    camera: CASSI | CameraDescription | None = None,
    *,
    model: Any = None,
    rounds: int = ROUNDS,
    state: str | Path | None = None,
    progress: Progress | bool | None = None,
    options: Options = DEFAULTS,
    **changes: Any,
) -> Refinement:
    """The mask that explains `snapshots`, all taken by one camera through the calibrated `mask`.

    snapshots, mask: records, paths of files, arrays, tensors or xarray objects.
    camera: None takes the one noted in the files, else the default one.
    model: weights by name or path, or a network; one that is told how far its mask may be wrong.
    rounds: turns of cubes and pixels at most; 0 finds the pose alone, as fewer than three
        snapshots do.
    state: a file that is written after each turn; work that was stopped goes on from it.
    options, changes: as `reconstruct` takes them, where they concern snapshots (`dark`, `bits`,
        `noise_std` …) or the device.
    """
    if rounds < 0:
        raise ConfigError(f"rounds is {rounds}; 0 finds the pose alone.")
    given: Any = None
    if isinstance(model, str | Path):
        changes["model"] = str(model)
    else:
        given = model
    chosen, told = options.with_changes(changes), as_mask(mask)
    shots, method = read_shots(snapshots, told, camera, chosen, given)
    bar = as_progress(progress, "refining")
    work = _Work(shots, method, rounds, bar, None if state is None else Path(state))
    return _finished(work.run(), told, method)


@dataclass(frozen=True, eq=False)
class _Found:
    """Where the work has come to; masks are calibration in `pose` + `change`."""

    shots: Shots
    pose: MaskPose = field(default_factory=MaskPose)
    change: Tensor | None = None
    """`(1, 1, H, W)`; None while the pose is still searched for."""
    std: Tensor | None = None
    """What the network is told, `(1, 1, H, W)`."""
    levels: tuple[float, ...] = ()
    best: Tensor | None = None
    """The change that left least of held-out data so far."""
    fit: MaskFit | None = None
    """The last fit, to all data."""

    @property
    def kept(self) -> int:
        """Which of the masks that were compared leaves least, as far as that counts."""
        best = 0
        for number, level in enumerate(self.levels):
            if level < (1 - LEAST_GAIN) * self.levels[best]:
                best = number
        return best


class _Work:
    """Snapshots, a network, and what is held out."""

    def __init__(
        self,
        shots: Shots,
        method: NetworkMethod,
        rounds: int,
        progress: Progress | None,
        state: Path | None,
    ) -> None:
        self.shots, self.method, self.rounds, self.state = shots, method, rounds, state
        self.device = method.engine.device
        self.camera = shots.camera
        self.told = shots.told
        self.progress, self.done = progress, 0
        self._hold_out()

    def _hold_out(self) -> None:
        """One snapshot of medium brightness, or a share of the pixels where there are few."""
        shots = self.shots
        energy = (shots.signal.double().square() * shots.counts).mean((-1, -2))
        order = energy.argsort(descending=True).tolist()
        self.by_light = order
        if len(shots) >= 3:
            self.held = [order[len(order) // 2]]
            self.fitted = [number for number in range(len(shots)) if number not in self.held]
            self.fit_counts = self.held_counts = shots.counts
            return
        self.held = self.fitted = list(range(len(shots)))
        generator = torch.Generator().manual_seed(SEED)
        drawn = torch.rand(shots.counts.shape, generator=generator) < HELD_SHARE
        self.fit_counts = shots.counts * ~drawn
        self.held_counts = shots.counts * drawn

    # --- the turns -------------------------------------------------------------------------------

    def run(self) -> _Found:
        """All turns, from where an earlier run has stopped."""
        found = self._resumed() or _Found(self.shots)
        if found.change is None:
            found = self._posed(found)
            self._keep(found)
        # The first round is made even where the pose was right: pixels may not be.
        rounds = self.rounds if len(self.shots) >= PIXELS_FROM else 0
        while len(found.levels) < 2 + rounds and (
            len(found.levels) == 2 or found.kept == len(found.levels) - 1
        ):
            found = self._next_round(found)
            self._keep(found)
        if found.kept > 0:
            found = self._last_fit(found)
        if self.state is not None:
            self.state.unlink(missing_ok=True)
        return found

    def _posed(self, found: _Found) -> _Found:
        """The pose that all share, and what it leaves of held-out data."""
        pose, std = found.pose, self._told_std()
        pieces = _pieces(self.told.shape[-2])
        for number in range(POSE_ROUNDS):
            chosen = [k for k in self.by_light if k in self.fitted][:POSE_SHOTS]
            moved = pose.moved(self.told)
            lines = [self._lines(chosen, rows, moved, std, self.fit_counts) for rows in pieces]
            if not number:
                self._refuse_uniform(lines)
            better, _ = step_pose(lines, self.told, pose)
            change, pose = largest_change(pose, better), better
            std = torch.full_like(std, min(POSED_STD, float(std.max())))
            if change < SETTLED:
                break
        if any(pose.numbers):
            pose, _ = slid_along(pose, partial(self._left, chosen, pieces))
        moved = pose.moved(self.told)
        dropped = self._contradicting(moved, std, pieces)
        if dropped:
            self.shots = self.shots.without(dropped, "contradicts the others")
            self._hold_out()
            return self._posed(replace(found, shots=self.shots))
        levels = (self._level(self.told), self._level(moved))
        if levels[1] > (1 - LEAST_GAIN) * levels[0]:
            pose = MaskPose()
        return replace(
            found, pose=pose, std=std, levels=levels, change=torch.zeros_like(self.told[:, :1])
        )

    def _next_round(self, found: _Found) -> _Found:
        """Pixels fitted to cubes that were made with the mask as it is."""
        assert found.change is not None
        centre = found.pose.moved(self.told)
        fit = self._fitted(centre, found, self.fitted, self.fit_counts)
        level = self._level((centre + fit.change).clamp(0, 1))
        after = replace(
            found, change=fit.change, std=fit.std, levels=(*found.levels, level), fit=None
        )
        is_better = after.kept == len(after.levels) - 1
        return replace(after, best=fit.change if is_better else found.best)

    def _last_fit(self, found: _Found) -> _Found:
        """Once more with all snapshots, from the mask that was kept."""
        centre = found.pose.moved(self.told)
        start = found.best if found.kept > 1 else torch.zeros_like(self.told[:, :1])
        begin = replace(found, change=start, std=torch.full_like(self._told_std(), POSED_STD)
                        if found.kept < 2 else found.std)  # fmt: skip
        fit = self._fitted(centre, begin, list(range(len(self.shots))), self.shots.counts)
        if found.kept < 2:  # pixels explained held-out data no better: the pose counts alone
            nothing = torch.zeros_like(fit.change)
            fit = replace(fit, change=nothing, curvature=nothing)
        return replace(found, shots=self.shots, fit=fit)

    def _fitted(
        self, centre: Tensor, found: _Found, numbers: Sequence[int], counts: Tensor
    ) -> MaskFit:
        """Strip by strip: rows never mix."""
        assert found.change is not None
        assert found.std is not None
        mask = (centre + found.change).clamp(0, 1)
        made = []
        for rows in _strips(centre.shape[-2]):
            lines = self._lines(numbers, rows, mask, found.std, counts)
            start = lines.of(found.change)
            fit = fit_mask(lines.observed, lines.of(centre), start)
            made.append(MaskFit(*(part.cpu() for part in (fit.change, fit.scale, fit.curvature))))
        return MaskFit(
            torch.cat([fit.change for fit in made], -2),
            torch.cat([fit.scale for fit in made], -2),
            torch.cat([fit.curvature for fit in made], -2),
        )

    # --- the network -----------------------------------------------------------------------------

    def _lines(
        self, numbers: Sequence[int], rows: slice, mask: Tensor, std: Tensor, counts: Tensor
    ) -> Lines:
        """Some lines of some snapshots, with cubes made with `mask` and what is told of it."""

        def tick(lines: int) -> None:
            self.done += lines
            if self.progress is not None:
                self.progress(min(self.done, self._most), self._most, {})

        seen = self.shots.told_that(numbers, mask, std)
        return seen_lines(self.method.engine, seen, rows, counts[list(numbers)], tick)

    @property
    def _most(self) -> int:
        """Lines through the network, if all turns are made."""
        lines, shots = int(self.told.shape[-2]), len(self.shots)
        pieces = sum(int(rows.stop - rows.start) for rows in _pieces(lines))
        posed = ((POSE_ROUNDS + USUAL_SLIDE) * min(POSE_SHOTS, len(self.fitted)) + shots) * pieces
        held = (2 + self.rounds) * len(self.held) * lines
        return posed + held + (self.rounds * len(self.fitted) + shots) * lines

    def _told_std(self) -> Tensor:
        told = self.shots.view.shown.mask_std
        plane = self.told[:, :1]
        return torch.full_like(plane, UNKNOWN_STD) if told is None else told.mean(1, keepdim=True)

    # --- what decides ----------------------------------------------------------------------------

    def _level(self, mask: Tensor) -> float:
        """What `mask` leaves of held-out data, as a share."""
        return self._left_of(self.held, _strips(mask.shape[-2]), mask, self.held_counts)

    def _left(self, numbers: Sequence[int], pieces: Sequence[slice], pose: MaskPose) -> float:
        """What the mask in `pose` leaves of what it is fitted to, as a share."""
        return self._left_of(numbers, pieces, pose.moved(self.told), self.fit_counts)

    def _left_of(
        self, numbers: Sequence[int], pieces: Sequence[slice], mask: Tensor, counts: Tensor
    ) -> float:
        """What is left of some snapshots if the network is told that `mask` is right.

        Told otherwise it would explain them with every mask alike.
        """
        left = total = 0.0
        exact = torch.zeros_like(mask[:, :1])
        for rows in pieces:
            observed = self._lines(numbers, rows, mask, exact, counts).observed
            part = observed.left(mask[..., rows, :].to(self.device)) * observed.counts
            left += float(part.double().square().sum())
            total += float((observed.signal * observed.counts).double().square().sum())
        return math.sqrt(left / max(total, 1e-24))

    def _contradicting(self, mask: Tensor, std: Tensor, pieces: Sequence[slice]) -> list[int]:
        """Snapshots that the mask of all explains far worse than the others."""
        if len(self.shots) < 3:
            return []
        shares = []
        for number in range(len(self.shots)):
            left = total = 0.0
            for rows in pieces:
                observed = self._lines([number], rows, mask, std, self.shots.counts).observed
                part = observed.left(mask[..., rows, :].to(self.device)) * observed.counts
                left += float(part.double().square().sum())
                total += float(observed.signal.double().square().sum())
            shares.append(math.sqrt(left / max(total, 1e-24)))
        usual = float(np.median(shares))
        limit = max(CONTRADICTS * usual, LEAST_SHARE)
        return [number for number, share in enumerate(shares) if share > limit]

    def _refuse_uniform(self, lines: Sequence[Lines]) -> None:
        """Scenes without any structure say the same of every mask of one mean."""
        planes = [some.observed.cubes.mean(1) for some in lines]
        both = torch.cat([plane.flatten(1) for plane in planes], 1)
        # A mean over windows: cubes through a wrong mask carry its pattern.
        coarse = [torch.nn.functional.avg_pool2d(plane, 8, 8).flatten(1) for plane in planes]
        varied = torch.cat(coarse, 1).std(1) / both.mean(1).clamp_min(1e-9)
        if float(varied.max()) < UNIFORM:
            raise ValuesError(
                "the snapshots show nothing but an even surface: every mask that lets as much "
                "light through on average explains them, so that none can be found. Take snapshots "
                "of scenes with edges and several colours."
            )

    # --- going on later --------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        """Of everything that decides the result."""
        parts = (
            STATE, __version__, array_hash(self.shots.signal.numpy()), self.rounds,
            array_hash(self.told.numpy()), self.method.identity().get("weights"),
        )  # fmt: skip
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _keep(self, found: _Found) -> None:
        if self.state is None or found.change is None or found.std is None:
            return
        best = found.change if found.best is None else found.best
        names = [self.shots_given.index(name) for name in found.shots.names]
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, key=np.array(self._first_key), pose=np.array(found.pose.numbers),
            change=found.change.numpy(), std=found.std.numpy(), best=best.numpy(),
            has_best=np.array(found.best is not None), levels=np.array(found.levels),
            kept=np.array(names),
        )  # fmt: skip
        with write_beside(self.state, overwrite=True) as part:
            part.write_bytes(buffer.getvalue())

    def _resumed(self) -> _Found | None:
        self._first_key, self.shots_given = self._key, self.shots.names
        if self.state is None or not self.state.is_file():
            return None
        try:
            with np.load(self.state, allow_pickle=False) as stored:
                if str(stored["key"]) != self._first_key:
                    return None
                kept = {int(number) for number in stored["kept"]}
                change, std, best = (
                    torch.from_numpy(stored[name]) for name in ("change", "std", "best")
                )
                pose = MaskPose.from_numbers(stored["pose"].tolist())
                levels = tuple(float(level) for level in stored["levels"])
                has_best = bool(stored["has_best"])
        except (OSError, ValueError, KeyError):
            return None  # half a file, or somebody else's: begin anew
        dropped = [number for number in range(len(self.shots)) if number not in kept]
        if dropped:
            self.shots = self.shots.without(dropped, "contradicts the others")
            self._hold_out()
        return _Found(self.shots, pose, change, std, levels, best if has_best else None)


def _strips(lines: int) -> list[slice]:
    """All lines, about `STRIP` at a time."""
    count = max(1, round(lines / STRIP))
    edges = [round(k * lines / count) for k in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def _pieces(lines: int) -> list[slice]:
    """The lines that a pose is found from: all, or some at the top, in the middle, at the end."""
    if lines <= POSE_LINES * POSE_PIECES:
        return [slice(0, lines)]
    starts = [round(k * (lines - POSE_LINES) / (POSE_PIECES - 1)) for k in range(POSE_PIECES)]
    return [slice(start, start + POSE_LINES) for start in starts]


def _finished(found: _Found, told: Mask, method: NetworkMethod) -> Refinement:
    """The record, in the frame of the camera."""
    shots, view = found.shots, found.shots.view
    pose = view.pose_back(found.pose) if found.kept else MaskPose()
    findings = list(shots.findings)
    for name, reason in shots.left_out:
        findings.append(Finding("warning", f"{name} {reason}: it was left out."))
    if found.fit is None:
        findings.append(Finding("note", "no other mask explains what was held out better than "
                                "the given one, which is kept as it is."))  # fmt: skip
        return Refinement(
            told, pose, found.levels, found.kept, shots.names, shots.left_out, tuple(findings)
        )
    centre = found.pose.moved(shots.told)
    mask = view.turn.back((centre + found.fit.change).clamp(0, 1))[0].numpy()
    std = view.turn.back(found.fit.std.clamp(0, 1))[0, 0].numpy()
    values = mask[0] if told.values.ndim == 2 else mask
    attrs = {
        **told.attrs,
        "refined_by": f"prismask {__version__}, {method.name}",
        "refined_from": told.hash,
        "refined_with": len(shots),
        "refined_pose": list(pose.numbers),
        "refined_levels": [round(level, 5) for level in found.levels],
        "refined_kept": found.kept,
        "refined_change_rms": float(np.sqrt(np.mean(np.square(values - told.values)))),
    }
    refined = Mask(values, told.wavelengths, attrs, std)
    return Refinement(
        refined, pose, found.levels, found.kept, shots.names, shots.left_out, tuple(findings)
    )
