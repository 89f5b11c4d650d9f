"""A snapshot as a network likes to see it: its bands, its way round, its steps, its brightness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from prismask.inference.alignment.pose import Place
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.camera_match.orientation import Turn
from prismask.inference.camera_match.stretching import Stretch
from prismask.inference.engine.frame import Estimate
from prismask.optics.camera import CASSI

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A snapshot that has passed the checks; float32 on the CPU."""

    signal: Tensor
    """`(H, L)` in the cube's units: scale divided out, dark level subtracted."""
    mask: Tensor
    """`(1, 1|C, H, W)`."""
    camera: CASSI
    noise_std: float
    """Noise in the units of `signal`."""
    brightness: float
    """How bright white would be (`checks.brightness`)."""
    is_aligned: bool = False
    """Whether the mask was moved to where this very snapshot says it lies."""


@dataclass(frozen=True, eq=False)
class View:
    """A snapshot in a network's bands and units, and the way round that it knows."""

    adapter: BandAdapter
    turn: Turn
    stretch: Stretch
    gain: float
    """From the snapshot's brightness to the network's."""
    signal: Tensor
    """`(H, L)`."""
    mask: Tensor
    """`(1, 1|C, H, W)`."""
    noise_std: float
    """In the units of `signal`."""

    @classmethod
    def of(cls, snapshot: Snapshot, adapter: BandAdapter, gain: float) -> View:
        """The snapshot as the network behind `adapter` likes to see it, `gain` times as bright."""
        factor = gain * adapter.gain
        turn = Turn.towards(snapshot.camera, adapter.trained_step)
        signal, mask = turn.there(snapshot.signal), turn.there(adapter.mask(snapshot.mask))
        camera = turn.camera(adapter.shown)
        columns = camera.scene_size((signal.shape[-2], signal.shape[-1]))[1]
        stretch = Stretch.by(adapter.stretch, camera, columns)
        signal, noise = stretch.signal(signal * factor, snapshot.noise_std * factor)
        return cls(adapter, turn, stretch, gain, signal, stretch.mask(mask), noise)

    @property
    def camera(self) -> CASSI:
        """The camera as the network sees it."""
        return self.stretch.shown

    def back(self, values: Tensor) -> Array:
        """What the network says `(C′, H, W′)`, in the bands, units and frame of the snapshot."""
        return self._in_bands(self.stretch.back(values))

    def interval(
        self, estimate: Estimate, values: Array
    ) -> tuple[Array | None, Array | None, Array | None]:
        """The standard deviation and both ends of an estimate, likewise; `values` are its own."""
        ends = [estimate.std, estimate.lower, estimate.upper]
        if not (self.stretch.is_needed or self.adapter.is_needed):
            std, lower, upper = (None if end is None else self.back(end) for end in ends)
            return std, lower, upper
        # Read back as distances: a curve of its own could put an end on the wrong side, and a
        # lower end that stops at zero in one band would stop short in the bands beside it.
        away = [end if k == 0 or end is None else (end - estimate.values).abs()
                for k, end in enumerate(ends)]  # fmt: skip
        std, below, above = (
            None if end is None else self._in_bands(self.stretch.back_distance(end)) for end in away
        )
        lower = None if below is None else np.maximum(values - below, np.minimum(values, 0))
        return std, lower, None if above is None else values + above

    def place_back(self, place: Place) -> Place:
        """A place of the mask that was found here, in the frame of the snapshot."""
        return self.turn.place_back(self.stretch.place_back(place))

    def _in_bands(self, values: Tensor) -> Array:
        return self.adapter.back(self.turn.back(values).numpy()) / np.float32(self.gain)
