"""A network behind a camera: whether it serves it, what it is shown, and the way back.

Two things may be done to frames. A `View` is snapshots as the network knows them.

Orientation. A camera may disperse to the right, to the left, up or down, and a network has seen one
of these. Snapshot and mask are turned before it sees them and its cube is turned back, exactly
(`Turn`).

Pixels. A network that works from the snapshot itself contains the camera, and serves any bands and
offsets near those of its training, or those of cameras on which it was scored and did well. Where a
spectrum is longer than any of those, the frame is read with larger pixels along the dispersion, by
a factor f < 1 (`Stretch`). It is then that of a camera whose offsets are f · o_λ: with
u′ + ½ = f (u + ½) on sensor, mask and scene,

    y[v] = Σ_λ m[v − o_λ] x_λ[v − o_λ]      is      y′[v′] = Σ_λ m′[v′ − f o_λ] x′_λ[v′ − f o_λ].

Detail finer than 1/f pixels along the dispersion is lost.

A network with input planes has learned its own camera's bands, or a family of cameras with these
bands; behind any other it would be wrong everywhere, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.models.inputs import Observation
from prismask.models.weights import (
    ONE_CAMERA,
    Measured,
    Variation,
    serves_any_camera,
    trained_camera,
    trained_variation,
)
from prismask.optics.camera import CASSI, band_positions
from prismask.optics.shear import bent
from prismask.wording import Finding

NEAR = 1.2
"""Ratio of bands, or of pixels over which the spectrum is spread, to the nearest in training up to
which a camera that nobody has measured is still like those of the training."""
LEAST_STRETCH = 0.4
"""Least factor by which frames are stretched; beyond it too much detail is lost."""
SAME_CAMERA_PX = 0.1
"""Pixels by which a band may miss its position in training and still be the training's camera.

Few, because errors grow with parts of a pixel: of the first network that shipped an interval of
90 % held 89.2, 88.0, 84.3 and 81.3 % of the true values with its last band 0.05, 0.11, 0.27 and
0.54 px off, and 90.1 % without. A dispersion that `--align` finds to be off is another matter: it
moves the mask, and the camera stays what it was."""
SAME_FAMILY_PX = 0.5
"""Pixels by which a band may miss its place in the training of a network of fixed bands."""
WIDEST_PROBED = 5.0
"""Mean pixels between neighbouring bands up to which a snapshot is asked about its mask."""
UNEVEN_MARGIN = 0.2
"""Share of half the way to its neighbour by which a band may land further from its place than in
training: no prism's curve is quite the one that cameras were drawn with."""


@dataclass(frozen=True)
class CameraMatch:
    """A camera beside those of a network's training."""

    camera: CASSI
    bands: int | None = None
    """Bands of the network; None: any."""
    trained: CASSI | None = None
    """The camera of its training, where its record says so."""
    variation: Variation = ONE_CAMERA
    """How far other cameras of its training lay from that."""

    @property
    def trained_step(self) -> float | None:
        """Pixels per band in the network's training, where its record says so."""
        return None if self.trained is None else _step(self.trained)

    @property
    def stretch(self) -> float:
        """The factor on frames along the dispersion that brings long spectra to the training."""
        measured, length = self.variation.measured, _length(self.camera)
        if measured is None or self.trained is None or length <= measured.length_px[1]:
            return 1.0
        # All the way to the training's own length, where it is at its best.
        return max(_length(self.trained) / length, LEAST_STRETCH)

    @property
    def mismatch(self) -> float:
        """How many times the spectrum, as it is read, is longer or shorter than the nearest known.

        At least 1.
        """
        if self.trained is None or min(self.camera.bands, self.trained.bands) < 2:
            return 1.0
        if not _length(self.trained):
            return 1.0
        read = self.stretch * _length(self.camera) / _length(self.trained)
        if read == 0:
            return float("inf")
        near = self.variation.nearest_spread(read)
        return max(read / near, near / read)

    @property
    def lengths(self) -> tuple[float, float]:
        """Shortest and longest spectrum that a network of any bands is taken for, in pixels."""
        assert self.trained is not None
        known, measured = _length(self.trained), self.variation.measured
        if measured is not None:
            return measured.length_px[0], known / LEAST_STRETCH
        low, high = min(1.0, self.variation.spread[0]), max(1.0, self.variation.spread[1])
        return known * low / NEAR, known * high * NEAR

    @property
    def is_of_other_design(self) -> bool:
        """Whether the camera has two dispersers where the training's had one, or the reverse."""
        return self.camera.design != ("single" if self.trained is None else self.trained.design)

    @property
    def is_within_reach(self) -> bool:
        """Whether the network serves the camera."""
        return not self.beyond

    @property
    def is_other_camera(self) -> bool:
        """Whether the camera is not the one in the record, so that other errors are to be expected.

        They are within a family too: few bands far apart are harder than many close together. One
        that lies along the height or to the left is the training's, turned.
        """
        if self.stretch < 1 or self.is_of_other_design:
            return True
        if self.trained is None:
            return False
        if self.camera.bands != self.trained.bands:
            return True
        apart = np.abs(_landings(self.camera) - _landings(self.trained))
        return bool(apart.max() > SAME_CAMERA_PX)

    @property
    def can_probe(self) -> bool:
        """Whether a snapshot tells a right mask from a wrong one behind this camera, too.

        It does for a network that contains the camera: behind ten others right masks gained 0.008
        at most from another pose (`alignment.search.probe_mask`) and wrong ones at least 0.062;
        but behind 8 bands 7 px apart one right mask gained 0.3.
        """
        apart = _length(self.camera) / max(1, self.camera.bands - 1)
        return self.bands is None and apart <= WIDEST_PROBED

    @property
    def beyond(self) -> tuple[str, ...]:
        """What of the camera the network has not learned, in words."""
        found = []
        # Of a network of fixed bands without a record of its camera nothing else is known.
        if self.is_of_other_design and (self.bands is None or self.trained is not None):
            count = {"single": "one disperser", "dual": "two dispersers"}[self.camera.design]
            found.append(f"it has {count}")
        if self.bands is not None and self.bands != self.camera.bands:
            return (*found, f"it has {self.camera.bands} bands, not {self.bands}")
        if self.trained is None:
            return tuple(found)
        if self.bands is not None:
            return (*found, *self._off_its_places(self.trained))
        measured = self.variation.measured
        if measured is None:
            return (*found, *self._unlike_training(self.trained))
        return (*found, *self._past(measured))

    def _off_its_places(self, trained: CASSI) -> list[str]:
        """How far bands land from where they did in the training, at the nearest of its cameras."""
        if not _length(trained):
            return []
        known, length = band_positions(trained), _length(trained)
        bent_by = nearest_bend(band_positions(self.camera), known, self.variation.bend) - known
        factor = self.variation.nearest_spread(_length(self.camera) / length)
        there = factor * (_landings(trained) + length * bent_by)
        off = np.abs(_landings(self.camera) - there).max()
        room = self.variation.jitter * abs(_step(trained)) / 2
        if off <= SAME_FAMILY_PX + room:
            return []
        return [f"its bands land up to {off:.2g} px from their places in training"]

    def _past(self, measured: Measured) -> list[str]:
        """What lies outside all cameras on which the network was scored and did well."""
        found, (fewest, most) = [], measured.bands
        if not fewest <= self.camera.bands <= most:
            found.append(f"it has {self.camera.bands} bands (tried with {fewest} to {most})")
        shortest, longest = self.lengths
        if not shortest <= (length := _length(self.camera)) <= longest:
            tried = f"tried with {shortest:.3g} to {longest:.3g} px"
            found.append(f"its spectrum is {length:.3g} px long ({tried})")
        if self._unevenness() == float("inf"):
            found.append("its bands do not land in the order of their wavelengths")
        return found

    def _unlike_training(self, trained: CASSI) -> list[str]:
        """What lies outside the cameras of the training, and not near them."""
        found = []
        counts = (trained.bands, *self.variation.band_counts)
        low, high = min(counts), max(counts)
        if not low / NEAR <= self.camera.bands <= high * NEAR:
            learned = f"{low}" if low == high else f"{low} to {high}"
            found.append(f"it has {self.camera.bands} bands ({learned} in training)")
        if self.mismatch > NEAR:
            ends = sorted({1.0, *self.variation.spread})
            learned = " to ".join(f"{_length(trained) * end:.3g}" for end in (ends[0], ends[-1]))
            own = f"{_length(self.camera):.3g}"
            found.append(f"its spectrum is {own} px long ({learned} px in training)")
        if self._unevenness() > self.variation.jitter + UNEVEN_MARGIN:
            found.append("its bands do not land in even steps or along a curve like a prism's")
        return found

    def why_not(self, network: str) -> str:
        """Why the network called `network` is not taken by default."""
        listed = " and ".join(self.beyond)
        return f"this camera is beyond what the network {network} was trained for: {listed}"

    def check(self, network: str) -> None:
        """Raise where the network called `network`, of fixed bands, does not serve the camera."""
        if self.bands is not None and self.beyond:
            raise ConfigError(
                f"{network} serves the cameras of its training only, and this one is another: "
                f"{' and '.join(self.beyond)}. Leave --model out for lumen.m2m, which serves "
                "cameras of any bands, or give --method gap-tv."
            )

    def findings(self) -> list[Finding]:
        """Remarks where frames are stretched, or the camera is beyond what was learned."""
        found = []
        if self.stretch < 1:
            text = (
                f"the frame is resampled to pixels {1 / self.stretch:.2f} times as long along the "
                "dispersion, so that bands are as close as in the network's training: finer detail "
                "along it is lost."
            )
            found.append(Finding("note", text))
        if self.beyond:
            text = (
                "this camera is beyond what the network was trained for: "
                f"{' and '.join(self.beyond)}. Expect a worse cube than published, and compare "
                "with --method gap-tv."
            )
            found.append(Finding("warning", text))
        return found

    def _unevenness(self) -> float:
        """How far bands land from the nearest known curve, in halves of their mean distance."""
        if self.trained is None or self.camera.bands < 3:
            return 0.0
        steps = np.diff(self.camera.offsets) * (self.camera.offsets[-1] - self.camera.offsets[0])
        if not (steps > 0).all():
            return float("inf")
        here = band_positions(self.camera)
        known = band_positions(self.trained)
        counted = np.linspace(0, 1, len(here)), np.linspace(0, 1, len(known))
        there = nearest_bend(here, np.interp(*counted, known), self.variation.bend)
        return float(2 * (len(here) - 1) * np.abs(here - there).max())


def match_camera(camera: CASSI, record: Mapping[str, Any]) -> CameraMatch:
    """`camera` beside those of the network that a weights record describes."""
    bands = None if serves_any_camera(record) else int(record["bands"])
    trained = trained_camera(record) if "step_px" in record else None
    return CameraMatch(camera, bands, trained, trained_variation(record))


def nearest_bend(
    here: NDArray[np.float64], there: NDArray[np.float64], most: float
) -> NDArray[np.float64]:
    """The positions `there` of the training, bent as it knows, nearest to a camera's, `here`."""
    if most == 0 or len(there) < 3:
        return there
    counted = np.linspace(0, 1, len(here)), np.linspace(0, 1, len(there))
    even = np.interp(*counted, there)
    push = bent(even, 1.0) - even
    along = float(push @ push)
    bend = float(push @ (here - even)) / along if along else 0.0
    return bent(there, min(max(bend, -most), most))


def _landings(camera: CASSI) -> NDArray[np.float64]:
    """Pixels from the first band to each, whichever direction they run in."""
    offsets = np.asarray(camera.offsets, dtype=np.float64) - camera.offsets[0]
    return -offsets if offsets[-1] < 0 else offsets


def _length(camera: CASSI) -> float:
    """Of a camera's spectrum, in pixels."""
    return abs(camera.offsets[-1] - camera.offsets[0])


def _step(camera: CASSI) -> float:
    """Pixels per band, on average."""
    return (camera.offsets[-1] - camera.offsets[0]) / max(1, camera.bands - 1)


def gain_findings(gain: float) -> list[Finding]:
    """A remark where the snapshot is made brighter or darker for the network."""
    if gain == 1.0:
        return []
    text = (
        f"the snapshot is multiplied by {gain:.3g} to match the brightness of the network's "
        "training; the cube is divided by it again."
    )
    return [Finding("note", text)]


FINE = 4
"""Samples that are averaged in each larger pixel."""


@dataclass(frozen=True)
class Turn:
    """Rows and columns exchanged first, then the columns' order reversed."""

    transposed: bool = False
    mirrored: bool = False

    @classmethod
    def towards(cls, camera: CASSI, trained_step: float | None) -> Turn:
        """What makes `camera` disperse along the width, as with `trained_step` pixels per band."""
        trained_rightwards = trained_step is None or trained_step >= 0
        rightwards = camera.offsets[-1] >= camera.offsets[0]
        return cls(camera.axis == "height", rightwards != trained_rightwards)

    @property
    def text(self) -> str:
        """What is done to frames, in words; empty: nothing."""
        done = {"transposed": self.transposed, "mirrored": self.mirrored}
        return ", ".join(word for word, applies in done.items() if applies)

    def camera(self, camera: CASSI) -> CASSI:
        """The camera that takes turned snapshots through turned masks, always along the width."""
        if self.transposed:
            camera = replace(camera, axis="width")
        return camera.mirrored() if self.mirrored else camera

    def there(self, frames: Tensor) -> Tensor:
        """Frames `(…, H, W)` as the network is shown them."""
        if self.transposed:
            frames = frames.transpose(-2, -1)
        if self.mirrored:
            frames = frames.flip(-1)
        return frames.contiguous()

    def back(self, frames: Tensor) -> Tensor:
        """Frames of the network `(…, H, W)` as the camera took them."""
        if self.mirrored:
            frames = frames.flip(-1)
        if self.transposed:
            frames = frames.transpose(-2, -1)
        return frames.contiguous()

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose found in turned frames, in those of the camera."""
        if self.mirrored:  # what went right goes left, and columns count from the other side
            pose = replace(
                pose,
                right=-pose.right,
                right_by_row=-pose.right_by_row,
                down_by_column=-pose.down_by_column,
                spread=-pose.spread,
                bend=-pose.bend,
            )
        if self.transposed:
            pose = replace(
                pose,
                down=pose.right,
                right=pose.down,
                down_by_column=pose.right_by_row,
                down_by_row=pose.right_by_column,
                right_by_column=pose.down_by_row,
                right_by_row=pose.down_by_column,
            )
        return pose


@dataclass(frozen=True)
class Stretch:
    """A frame of `camera`, which disperses along the width, with `width` columns of the scene."""

    camera: CASSI
    width: int
    columns: int
    """Columns that the network sees of them, at most as many."""

    @classmethod
    def by(cls, factor: float, camera: CASSI, width: int) -> Stretch | None:
        """The nearest to `factor` with which the scene ends where a pixel does; None: no change."""
        columns = max(1, round(factor * width))
        return None if columns == width else cls(camera, width, columns)

    @property
    def factor(self) -> float:
        """Pixels of the network in one of the camera's."""
        return self.columns / self.width

    @property
    def shown(self) -> CASSI:
        """The camera as the network sees it."""
        return replace(self.camera, offsets=tuple(self.factor * o for o in self.camera.offsets))

    def signal(self, signal: Tensor, noise_std: Tensor) -> tuple[Tensor, Tensor]:
        """Snapshots `(B, H, L)` for the network, and what is left of their noise `(B,)`."""
        weights = self._there(signal.shape[-1], self.shown.measurement_size((1, self.columns))[1])
        left = float(weights.square().sum(1).mean().sqrt())
        return signal @ weights.T.to(signal.device), noise_std * left

    def blind(self, bad: Tensor) -> Tensor:
        """Sensor pixels `(H, L)` of the network's frame that are made of bad ones for the most."""
        shares, _ = self.signal(bad.float()[None], torch.zeros(1))
        return shares[0] > 0.5

    def mask(self, mask: Tensor) -> Tensor:
        """A mask `(1, 1|C, H, W)` for the network."""
        columns = self.shown.mask_size((1, self.columns))[1]
        return (mask @ self._there(mask.shape[-1], columns).T.to(mask.device)).clamp(0, 1)

    def back(self, values: Tensor) -> Tensor:
        """Cubes of the network `(…, H, W′)` in the camera's pixels `(…, H, W)`."""
        return values @ self._back(3).T.to(values.device)

    def back_distance(self, values: Tensor) -> Tensor:
        """The same for what is never negative, such as the width of an interval."""
        return values @ self._back(1).T.to(values.device)

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose found in frames of the network, in the camera's pixels."""
        return replace(
            pose,
            right=pose.right / self.factor,
            right_by_column=pose.right_by_column / self.factor,
            right_by_row=pose.right_by_row / self.factor,
            spread=pose.spread / self.factor,
            bend=pose.bend / self.factor,
            # Its pixels are longer than high, the blur of a pose is round.
            blur=pose.blur * (1 + self.factor**-2) / 2,
        )

    def _there(self, length: int, columns: int) -> Tensor:
        fine = (np.arange(FINE * columns, dtype=np.float64) + 0.5) / (FINE * self.factor)
        weights = _spline(length, fine - 0.5, 3)
        return torch.from_numpy(weights.reshape(columns, FINE, length).mean(1)).float()

    def _back(self, degree: int) -> Tensor:
        at = self.factor * (np.arange(self.width, dtype=np.float64) + 0.5) - 0.5
        return torch.from_numpy(_spline(self.columns, at, degree)).float()


@dataclass(frozen=True, eq=False)
class View:
    """Snapshots of one camera in a network's units and orientation, and the way back."""

    match: CameraMatch
    turn: Turn
    stretch: Stretch | None
    gain: Tensor
    """From each snapshot's brightness to the network's, `(B,)`."""
    shown: Observation
    """The snapshots `(B, H, L)`, their mask `(1, 1|C, H, W)` and noise `(B,)` for the network."""
    bad: Tensor | None = None
    """Pixels of the sensor that say nothing, `(H, L)`; None: there are none."""

    @classmethod
    def of(
        cls, taken: Observation, gain: Tensor, match: CameraMatch, bad: Tensor | None = None
    ) -> View:
        """Snapshots `(B, H, L)` through one mask for the network of `match`.

        taken: with the noise `(B,)` of every snapshot; mask_std, and `bad` pixels `(H, L)`, only
            for networks that work from the snapshot.
        gain: of every snapshot, `(B,)`.
        """
        assert taken.noise is not None
        factor = gain.float()
        signal, noise = taken.measurement * factor[:, None, None], taken.noise * factor
        seen = taken._replace(measurement=signal, noise=noise)
        turn = Turn.towards(taken.camera, match.trained_step)
        if turn != Turn():
            seen = seen.with_images(turn.there)._replace(camera=turn.camera(seen.camera))
            bad = None if bad is None else turn.there(bad)
        stretch = Stretch.by(match.stretch, seen.camera, seen.scene_size[1])
        if stretch is not None:
            signal, noise = stretch.signal(seen.measurement, noise)
            stated = None if seen.mask_std is None else stretch.mask(seen.mask_std)
            seen = Observation(signal, stretch.mask(seen.mask), stretch.shown, noise, stated)
            bad = None if bad is None else stretch.blind(bad)
        return cls(match, turn, stretch, gain, seen, bad)

    @property
    def is_resampled(self) -> bool:
        """Whether pixels of the network are not those of the camera."""
        return self.stretch is not None

    def back(self, values: Tensor) -> Tensor:
        """Cubes of the network `(B, C, H, W′)` in the units and frame of the snapshots."""
        if self.stretch is not None:
            values = self.stretch.back(values)
        return self._turned_back(values)

    def back_distance(self, values: Tensor) -> Tensor:
        """The same for what is never negative, such as the width of an interval."""
        if self.stretch is not None:
            values = self.stretch.back_distance(values)
        return self._turned_back(values)

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose of the mask that was found here, in the frame of the snapshots."""
        return self.turn.pose_back(pose if self.stretch is None else self.stretch.pose_back(pose))

    def _turned_back(self, values: Tensor) -> Tensor:
        if self.turn != Turn():
            values = self.turn.back(values)
        return values / self.gain.float().to(values.device)[:, None, None, None]


def _spline(length: int, at: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    """Weights `(n, length)` of the values at 0 … length − 1 for those at `at`; edges continue."""
    degree = min(degree, length - 1)
    if degree < 1:
        return np.ones((len(at), 1))
    from scipy.interpolate import make_interp_spline

    spline = make_interp_spline(np.arange(length), np.eye(length), k=degree)
    return np.asarray(spline(np.clip(at, 0, length - 1)))
