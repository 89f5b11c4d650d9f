"""Snapshots of one camera, ready for its mask to be found from them.

All are of one size and of one camera, or it is an error that names the one that is not. What cannot
be used is left out, and said: saturated pixels, frames that are mostly saturated or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prismask.checks import size_text, two_digits
from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.inference.camera_match import View
from prismask.inference.inspection import (
    SATURATED_SHARE,
    Inspection,
    check_fit,
    inspect,
    saturated_share,
    with_noted_noise,
)
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.methods.registry import Choice
from prismask.inference.options import Options
from prismask.models.inputs import Observation
from prismask.models.machine import choose_device
from prismask.optics.camera import (
    CASSI,
    CameraDescription,
    as_mask_batch,
    camera_notes,
    resolve_camera,
)
from prismask.scenes.conversion import as_measurement
from prismask.scenes.records import Mask, Measurement
from prismask.wording import Finding

if TYPE_CHECKING:
    from prismask.scenes.conversion import MeasurementLike

MOST_SATURATED = 0.02
"""Share of saturated pixels from which a snapshot is left out: light that bleeds into neighbours
and spectra that are cut off say more wrong things than right ones."""
DARK = 1.5
"""Times the noise below which a whole snapshot counts as dark."""


@dataclass(frozen=True, eq=False)
class Shots:
    """Snapshots as a network knows them: its units and orientation, dispersed along the width."""

    names: tuple[str, ...]
    """What people call them."""
    view: View
    """All of them, `(N, H, L)`, their mask, and the way back."""
    counts: Tensor
    """1 where a pixel says something, else 0; `(N, H, L)`."""
    attrs: tuple[dict[str, Any], ...]
    """What their files say."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Name and reason."""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def camera(self) -> CASSI:
        """As the network sees it."""
        return self.view.shown.camera

    @property
    def told(self) -> Tensor:
        """The mask as calibrated, `(1, 1|C, H, W)`."""
        return self.view.shown.mask

    @property
    def signal(self) -> Tensor:
        """`(N, H, L)`."""
        return self.view.shown.measurement

    @property
    def noise(self) -> Tensor:
        """Of each, `(N,)`."""
        assert self.view.shown.noise is not None
        return self.view.shown.noise

    def __len__(self) -> int:
        return len(self.names)

    def told_that(self, numbers: Sequence[int], mask: Tensor, std: Tensor) -> Observation:
        """Some of them, and a network told of a mask and its errors, `(1, 1|C, H, W)` each."""
        chosen = list(numbers)
        return Observation(self.signal[chosen], mask, self.camera, self.noise[chosen], std)

    def without(self, dropped: Sequence[int], reason: str) -> Shots:
        """The same without some of them."""
        kept = [number for number in range(len(self)) if number not in dropped]
        shown = self.view.shown._replace(measurement=self.signal[kept], noise=self.noise[kept])
        view = replace(self.view, gain=self.view.gain[kept], shown=shown)
        return replace(
            self,
            names=tuple(self.names[number] for number in kept),
            view=view,
            counts=self.counts[kept],
            attrs=tuple(self.attrs[number] for number in kept),
            left_out=(*self.left_out, *((self.names[number], reason) for number in dropped)),
        )


def network_for(options: Options, camera: CASSI, given: Any = None) -> NetworkMethod:
    """The network that makes the cubes: one that is told how far its mask may be wrong."""
    if camera.design == "dual":
        raise ConfigError(
            "behind a dual disperser every band meets another part of the mask, which is not "
            "refined yet: this is for cameras with one disperser."
        )
    method = Choice(options, choose_device(options.device), given).for_camera(camera)
    if not isinstance(method, NetworkMethod) or "uncertain_mask" not in method.capabilities:
        raise ConfigError(
            f"{method.name} has no input for how far a mask may be wrong, without which it fits "
            "its cubes to any mask. Give --model lumen.m2m."
        )
    return method


def read_shots(
    given: Sequence[MeasurementLike],
    mask: Mask,
    camera: CASSI | CameraDescription | None,
    options: Options,
    network: Any = None,
) -> tuple[Shots, NetworkMethod]:
    """Snapshots taken through `mask`, inspected, and the network to use."""
    if not given:
        raise ConfigError("no snapshot was given: one is needed, ten are better.")
    names = [str(one) if isinstance(one, str | Path) else f"snapshot {k + 1}"
             for k, one in enumerate(given)]  # fmt: skip
    frames = [as_measurement(one) for one in given]
    _check_sizes(names, frames)
    eye = _one_camera(names, frames, mask, camera)
    method = network_for(options, eye, network)
    seen, kept, left_out = [], [], []
    for number, (name, frame) in enumerate(zip(names, frames, strict=True)):
        found = inspect(frame, mask, eye, with_noted_noise(options, frame), method.engine.device)
        reason = _useless(found)
        if reason:
            left_out.append((name, reason))
        else:
            seen.append(found)
            kept.append(number)
    if not seen:
        listed = "; ".join(f"{name} {reason}" for name, reason in left_out)
        raise ValuesError(f"no snapshot can be used: {listed}.")
    view = _view(method, seen, mask, eye)
    counts = torch.stack([_unsaturated(found.snapshot.signal) for found in seen])
    findings = tuple(
        Finding(said.weight, f"{names[number]}: {said.text}")
        for number, found in zip(kept, seen, strict=True)
        for said in found.findings
        if said.weight == "warning"
    )
    shots = Shots(
        tuple(names[number] for number in kept), view, view.turn.there(counts),
        tuple(dict(frames[number].attrs) for number in kept), tuple(left_out), findings,
    )  # fmt: skip
    return shots, method


def _view(method: NetworkMethod, seen: Sequence[Inspection], mask: Mask, camera: CASSI) -> View:
    shots = [found.snapshot for found in seen]
    told = None if mask.std is None else as_mask_batch(torch.tensor(mask.std))
    taken = Observation(
        torch.stack([shot.signal for shot in shots]),
        shots[0].mask,
        camera,
        torch.tensor([shot.noise_std for shot in shots]),
        told,
    )
    view = method.view(taken, torch.tensor([shot.brightness for shot in shots]))
    if view.is_resampled:
        raise ConfigError(
            f"{method.name} reads this camera's frames with larger pixels than they have: its mask "
            "cannot be refined with it."
        )
    return view


def _check_sizes(names: Sequence[str], frames: Sequence[Measurement]) -> None:
    for name, frame in zip(names, frames, strict=True):
        if frame.size != frames[0].size:
            raise ShapeError(
                f"{name} is {size_text(frame.size)} and {names[0]} {size_text(frames[0].size)}: "
                "snapshots of one camera have one size. Leave out those of another."
            )


def _one_camera(
    names: Sequence[str],
    frames: Sequence[Measurement],
    mask: Mask,
    camera: CASSI | CameraDescription | None,
) -> CASSI:
    first: CASSI | None = None
    for name, frame in zip(names, frames, strict=True):
        sizes = (frame.size, mask.size)
        found = resolve_camera(camera, camera_notes(frame, mask), sizes=sizes).camera
        check_fit(*sizes, found, lambda: None)
        if first is not None and found != first:
            raise ConfigError(
                f"{name} is of another camera than {names[0]}: {_bands(found)} instead of "
                f"{_bands(first)}. A mask is refined from snapshots of one camera."
            )
        first = found
    assert first is not None
    return first


def _bands(camera: CASSI) -> str:
    return f"{camera.bands} bands over {max(camera.offsets):g} px along the {camera.axis}"


def _useless(found: Inspection) -> str:
    """Why a snapshot cannot be used; empty: it can."""
    shot = found.snapshot
    share = saturated_share(shot.signal)
    if share > MOST_SATURATED:
        return (
            f"is overexposed ({two_digits(100 * share)} % of its pixels are at its largest value)"
        )
    level = float(shot.signal.double().square().mean().sqrt())
    if not level > DARK * shot.noise_std:
        return "is dark"
    return ""


def _unsaturated(signal: Tensor) -> Tensor:
    if saturated_share(signal) <= SATURATED_SHARE:
        return torch.ones_like(signal)
    return (signal < signal.max()).to(signal)
