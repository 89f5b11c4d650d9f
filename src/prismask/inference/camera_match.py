"""A network on a camera that it was not trained with: what it is shown, and the way back.

Three things may differ: the bands (`BandAdapter`), the direction of the dispersion (`Turn`) and the
pixels per band (`Stretch`). A `View` is snapshots as the network knows them in all three.

Bands. A network with input planes knows a spectrum as C′ positions along the dispersion. Any other
camera is shown to it as a *virtual camera* with C′ bands over the same pixels, which lie between
the camera's first band and its last as they did in training. Of a scene with a smooth spectrum both
take the same snapshot, except that the light of C terms is now spread over C′: the snapshot is
multiplied by C′ / C, which keeps the cube in the camera's units. The result is interpolated back to
the camera's bands; one that has more pixels to itself than its neighbours holds more of the light.

This teaches no network another dispersion: `dispersion_mismatch` says how far off it is from the
nearest that was learned (`models.weights.Variation`), and beyond `LARGEST_MISMATCH` a solver is the
better choice. A camera with few bands far apart is beyond it as well: no smooth spectrum makes the
steps in its snapshot.

A network that works from the snapshot itself contains the camera, and nothing is resampled for it
(`AsItIs`). What remains is whether it was trained with cameras like this one, or was scored
on such and did well.

Orientation. A camera may disperse to the right, to the left, up or down, and a network has seen one
of these. Snapshot and mask are turned before it sees them and its cube is turned back, exactly.

Steps. A network that learned bands 2 px apart is lost where they are 3 px apart. Read with larger
pixels along the dispersion, by a factor f < 1, the same frame is that of a camera whose offsets are
f · o_λ: with u′ + ½ = f (u + ½) on sensor, mask and scene,

    y[v] = Σ_λ m[v − o_λ] x_λ[v − o_λ]      is      y′[v′] = Σ_λ m′[v′ − f o_λ] x′_λ[v′ − f o_λ].

So snapshot and mask are resampled like that before the network sees them, and its cube is resampled
back. Detail finer than 1/f pixels along the dispersion is lost; smaller pixels (f > 1) would bring
nothing to a camera that spreads its spectrum less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
from prismask.optics.camera import CASSI, as_mask_batch, band_positions
from prismask.optics.shear import bent
from prismask.scenes.resample import resampling_weights
from prismask.wording import Finding

LARGEST_MISMATCH = 1.6
"""Ratio of pixels per band, to training, beyond which a network is not taken by default."""
MISMATCH_WARNING = 1.2
"""Ratio from which the result is accompanied by a warning."""
STRETCH_FROM = 1.04
"""Ratio of the virtual camera's pixels per band, to training, from which frames are stretched."""
LEAST_STRETCH = 0.4
"""Least factor by which they are; beyond it too much detail is lost."""
SAME_SPACING = 0.02
"""Share of the extent by which bands may lie off those of the training and still be shown."""
SAME_CAMERA_PX = 0.1
"""Pixels by which a band may miss its position in training and still be the training's camera.

Few, because a network that learned whole offsets feels parts of a pixel: at 1.998, 1.996, 1.99 and
1.98 px per band instead of 2, which is 0.05, 0.11, 0.27 and 0.54 px at the last of 28 bands, the
90 % interval of srn-looks.m2m held 89.2, 88.0, 84.3 and 81.3 % of the true values, and 90.1 %
on its own camera (`results/cameras.py`). A dispersion that `--align` finds to be off is another
matter: it moves the mask, and the camera stays what it was."""


@dataclass(frozen=True)
class BandAdapter:
    """The camera a network is shown, and the way to it and back."""

    camera: CASSI
    """The real camera."""
    shown: CASSI
    """The camera as the network sees it: the same one, or a virtual one with its bands."""
    trained: CASSI | None = None
    """The camera of its training, where its record says so."""
    variation: Variation = ONE_CAMERA
    """How far other cameras of its training lay from that."""

    @classmethod
    def between(
        cls,
        camera: CASSI,
        bands: int,
        trained: CASSI | None = None,
        variation: Variation = ONE_CAMERA,
    ) -> BandAdapter:
        """The adapter from `camera` to a network built for `bands` bands, `trained` with one."""
        here = band_positions(camera)
        there = nearest_bend(here, _trained_positions(bands, trained), variation.bend)
        if bands == camera.bands and float(np.abs(here - there).max()) <= SAME_SPACING:
            return cls(camera, camera, trained, variation)
        offsets = np.interp(there, here, camera.offsets)
        shown = replace(camera, offsets=tuple(offsets.tolist()))
        return cls(camera, shown, trained, variation)

    @property
    def is_needed(self) -> bool:
        """Whether the network sees another camera."""
        return self.shown is not self.camera

    @property
    def gain(self) -> float:
        """The factor C′ / C on the snapshot."""
        return self.shown.bands / self.camera.bands

    @property
    def trained_step(self) -> float | None:
        """Pixels per band in the network's training, where its record says so."""
        return None if self.trained is None else _step(self.trained)

    @property
    def stretch(self) -> float:
        """The factor on frames along the dispersion that brings wide steps back to the training's.

        See `Stretch`; 1 where bands lie as close, or closer.
        """
        spread = self._spread(self.shown)
        if spread is None:
            return 1.0
        wider = spread > STRETCH_FROM * max(1.0, self.variation.nearest_spread(spread))
        return max(1 / spread, LEAST_STRETCH) if wider else 1.0

    @property
    def dispersion_mismatch(self) -> float:
        """Pixels per band that it sees over the nearest in training, or the inverse, or `apart`.

        At least 1, and for a network that knows more cameras never more than for one of them where
        both read the frame alike. A frame that lies less than `STRETCH_FROM` beyond the widest of
        its cameras is not stretched, and keeps that small mismatch; a network of one camera may
        have had it stretched, without one.
        """
        spread = self._spread(self.shown)
        if spread is None:
            return 1.0
        if spread == 0:
            return float("inf")
        shown = spread * self.stretch
        near = self.variation.nearest_spread(shown)
        return max(shown / near, near / shown, self.apart)

    @property
    def apart(self) -> float:
        """How much further apart the camera's own bands lie than in the training, at least 1.

        That is, than those of the record's camera or than the network's own, whichever is less.
        """
        shown, own = self._spread(self.shown), self._spread(self.camera)
        if not shown or not own:
            return 1.0
        read = own * self.stretch
        return min(read, own / shown) if read > self.variation.nearest_spread(read) else 1.0

    def _spread(self, camera: CASSI) -> float | None:
        """Pixels per band of a camera over those of the training, where that is known."""
        if not self.trained_step or self.shown.bands < 2:
            return None
        return abs(_step(camera) / self.trained_step)

    @property
    def is_of_other_design(self) -> bool:
        """Whether the camera has two dispersers where the training's had one, or the reverse."""
        return self.camera.design != ("single" if self.trained is None else self.trained.design)

    @property
    def is_within_reach(self) -> bool:
        """Whether the network may be taken by default."""
        return not self.is_of_other_design and self.dispersion_mismatch <= LARGEST_MISMATCH

    @property
    def is_other_camera(self) -> bool:
        """Whether the camera is not the training's, so that other errors are to be expected.

        One that lies along the height or to the left is the training's, turned.
        """
        if self.is_needed or self.stretch < 1 or self.is_of_other_design:
            return True
        if self.trained is None or self.camera.bands < 2:
            return False
        here, there = _landings(self.camera), _landings(self.trained)
        return float(np.abs(here - there).max()) > SAME_CAMERA_PX

    def why_not(self, network: str) -> str:
        """Why the network called `network` is not taken by default."""
        off = f"dispersion is {self.dispersion_mismatch:.2g} times off"
        if self.is_of_other_design:
            count = {"single": "one disperser", "dual": "two dispersers"}[self.camera.design]
            off = f"design, with {count}, is not"
        return f"this camera's {off} what the network {network} was trained for"

    def mask(self, mask: Tensor) -> Tensor:
        """A mask `(B|1, 1|C, H, W)` for the shown camera; one plane for all bands stays as is."""
        mask = as_mask_batch(mask)
        if not self.is_needed or mask.shape[1] == 1:
            return mask
        weights = _weights(self.camera, self.shown)
        return torch.einsum("kc,bchw->bkhw", torch.from_numpy(weights).to(mask), mask)

    def back(self, values: Tensor) -> Tensor:
        """Bands of the network `(…, C′, H, W)` → bands of the camera `(…, C, H, W)`."""
        if not self.is_needed:
            return values
        weights = _weights(self.shown, self.camera) / _room(self.shown)
        weights = _room(self.camera)[:, None] * weights
        return torch.einsum("ck,...khw->...chw", torch.from_numpy(weights).to(values), values)

    def findings(self) -> list[Finding]:
        """Remarks where the network sees another camera than the one that took the snapshot."""
        found = []
        if self.is_needed:
            differs = (
                f"the network has {self.shown.bands} bands and the camera {self.camera.bands}"
                if self.shown.bands != self.camera.bands
                else "the camera's bands are not spaced as in the network's training"
            )
            text = (
                f"{differs}: the network sees a virtual camera over the same pixels, and its bands "
                "are interpolated back."
            )
            found.append(Finding("note", text))
        found += self._stretch_findings()
        if self.dispersion_mismatch > MISMATCH_WARNING:
            off = f"this camera is {self.dispersion_mismatch:.2g} times off that"
            if self.dispersion_mismatch == self.apart:
                off = f"bands of this camera lie {self.apart:.2g} times further apart"
            text = (
                f"the network was trained at {self._steps()} px per band, and {off}: expect a "
                "worse cube than published, and compare with --method gap-tv."
            )
            found.append(Finding("warning", text))
        return found

    def _stretch_findings(self) -> list[Finding]:
        if self.stretch == 1:
            return []
        text = (
            f"the frame is resampled to pixels {1 / self.stretch:.2f} times as long along the "
            "dispersion, so that bands are as close as in the network's training: finer detail "
            "along it is lost."
        )
        return [Finding("note", text)]

    def _steps(self) -> str:
        """The pixels per band that a network knows: "2", "1.2 to 2.2", or "2 and 2.4 to 3"."""
        step, (low, high) = abs(self.trained_step or 0), self.variation.spread
        known = " to ".join(f"{step * factor:.3g}" for factor in sorted({low, high}))
        return known if low <= 1 <= high else f"{step:.3g} and {known}"


def _trained_positions(bands: int, trained: CASSI | None) -> NDArray[np.float64]:
    if trained is None or trained.bands != bands:
        return np.linspace(0.0, 1.0, bands) if bands > 1 else np.array([0.5])
    return band_positions(trained)


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
    return band_positions(camera) * _length(camera)


def _length(camera: CASSI) -> float:
    """Of a camera's spectrum, in pixels."""
    return abs(camera.offsets[-1] - camera.offsets[0])


def _step(camera: CASSI) -> float:
    """Pixels per band, on average."""
    return (camera.offsets[-1] - camera.offsets[0]) / max(1, camera.bands - 1)


def _room(camera: CASSI) -> NDArray[np.float64]:
    """Pixels that each band has to itself, relative to their mean."""
    if camera.bands < 2:
        return np.ones(1)
    return np.asarray(np.gradient(band_positions(camera)) * (camera.bands - 1))


def _weights(source: CASSI, target: CASSI) -> NDArray[np.float64]:
    return resampling_weights(band_positions(source), band_positions(target), extrapolate="hold")


def gain_findings(gain: float) -> list[Finding]:
    """A remark where the snapshot is made brighter or darker for the network."""
    if gain == 1.0:
        return []
    text = (
        f"the snapshot is multiplied by {gain:.3g} to match the brightness of the network's "
        "training; the cube is divided by it again."
    )
    return [Finding("note", text)]


UNEVEN_MARGIN = 0.2
"""Share of half the way to its neighbour by which a band may land further from its place than in
training: no prism's curve is quite the one that cameras were drawn with."""


@dataclass(frozen=True)
class AsItIs(BandAdapter):
    """Shows a camera as it is, and says how far it lies from those of the network's training.

    Only where its spectrum is longer than any on which the network did well are frames read
    with longer pixels along it.
    """

    @property
    def stretch(self) -> float:
        """The factor on frames along the dispersion that brings long spectra to the training."""
        measured, length = self.variation.measured, _length(self.camera)
        if measured is None or self.trained is None or length <= measured.length_px[1]:
            return 1.0
        # All the way to the training's own length, where it is at its best.
        return max(_length(self.trained) / length, LEAST_STRETCH)

    @property
    def is_within_reach(self) -> bool:
        """Whether the network may be taken by default."""
        return not self.beyond

    @property
    def is_other_camera(self) -> bool:
        """Whether the camera is not the one in the record, so that other errors are to be expected.

        They are within the family too: few bands far apart are harder than many close together.
        """
        if self.trained is not None and self.camera.bands != self.trained.bands:
            return True
        return super().is_other_camera

    @property
    def beyond(self) -> tuple[str, ...]:
        """What of the camera the network has not learned, in words."""
        found = []
        if self.is_of_other_design:
            count = {"single": "one disperser", "dual": "two dispersers"}[self.camera.design]
            found.append(f"it has {count}")
        if self.trained is None:
            return tuple(found)
        measured = self.variation.measured
        if measured is None:
            return (*found, *self._unlike_training(self.trained))
        return (*found, *self._past(measured, _length(self.trained)))

    def _past(self, measured: Measured, trained_px: float) -> list[str]:
        """What lies outside all cameras on which the network was scored and did well."""
        found = []
        fewest, most = measured.bands
        if not fewest <= self.camera.bands <= most:
            found.append(f"it has {self.camera.bands} bands (tried with {fewest} to {most})")
        shortest, longest = measured.length_px[0], trained_px / LEAST_STRETCH
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
        if not low / MISMATCH_WARNING <= self.camera.bands <= high * MISMATCH_WARNING:
            learned = f"{low}" if low == high else f"{low} to {high}"
            found.append(f"it has {self.camera.bands} bands ({learned} in training)")
        if self.dispersion_mismatch > MISMATCH_WARNING:
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

    def findings(self) -> list[Finding]:
        """Remarks where frames are stretched, or the camera is beyond what was learned."""
        found = self._stretch_findings()
        if not self.beyond:
            return found
        text = (
            f"this camera is beyond what the network was trained for: {' and '.join(self.beyond)}. "
            "Expect a worse cube than published, and compare with --method gap-tv."
        )
        return [*found, Finding("warning", text)]

    def _spread(self, camera: CASSI) -> float | None:
        """Length of a camera's spectrum over that of the record's camera; bands are as they are."""
        if self.trained is None or min(camera.bands, self.trained.bands) < 2:
            return None
        known = _length(self.trained)
        return _length(camera) / known if known else None

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


def adapter_for(camera: CASSI, record: dict[str, Any]) -> BandAdapter:
    """How `camera` is shown to the network that a weights record describes."""
    trained = trained_camera(record) if "step_px" in record else None
    variation = trained_variation(record)
    if serves_any_camera(record):
        return AsItIs(camera, camera, trained, variation)
    return BandAdapter.between(camera, int(record["bands"]), trained, variation)


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
    """Snapshots of one camera in a network's bands, units and orientation, and the way back."""

    adapter: BandAdapter
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
        cls, taken: Observation, gain: Tensor, adapter: BandAdapter, bad: Tensor | None = None
    ) -> View:
        """Snapshots `(B, H, L)` through one mask for the network of `adapter`.

        taken: with the noise `(B,)` of every snapshot; mask_std, and `bad` pixels `(H, L)`, only
            for networks that see bands as they are.
        gain: of every snapshot, `(B,)`.
        """
        assert taken.noise is not None
        factor = (gain.double() * adapter.gain).float()
        signal, noise = taken.measurement * factor[:, None, None], taken.noise * factor
        seen = taken._replace(measurement=signal, noise=noise)
        if adapter.is_needed:
            seen = seen._replace(mask=adapter.mask(seen.mask), camera=adapter.shown)
        turn = Turn.towards(taken.camera, adapter.trained_step)
        if turn != Turn():
            seen = seen.with_images(turn.there)._replace(camera=turn.camera(seen.camera))
            bad = None if bad is None else turn.there(bad)
        stretch = Stretch.by(adapter.stretch, seen.camera, seen.scene_size[1])
        if stretch is not None:
            signal, noise = stretch.signal(seen.measurement, noise)
            stated = None if seen.mask_std is None else stretch.mask(seen.mask_std)
            seen = Observation(signal, stretch.mask(seen.mask), stretch.shown, noise, stated)
            bad = None if bad is None else stretch.blind(bad)
        return cls(adapter, turn, stretch, gain, seen, bad)

    @property
    def is_resampled(self) -> bool:
        """Whether pixels or bands of the network are not those of the camera."""
        return self.stretch is not None or self.adapter.is_needed

    def back(self, values: Tensor) -> Tensor:
        """Cubes of the network `(B, C′, H, W′)` in the bands, units and frame of the snapshots."""
        if self.stretch is not None:
            values = self.stretch.back(values)
        return self._in_bands(values)

    def back_distance(self, values: Tensor) -> Tensor:
        """The same for what is never negative, such as the width of an interval."""
        if self.stretch is not None:
            values = self.stretch.back_distance(values)
        return self._in_bands(values)

    def pose_back(self, pose: MaskPose) -> MaskPose:
        """A pose of the mask that was found here, in the frame of the snapshots."""
        return self.turn.pose_back(pose if self.stretch is None else self.stretch.pose_back(pose))

    def _in_bands(self, values: Tensor) -> Tensor:
        if self.turn != Turn():
            values = self.turn.back(values)
        if self.adapter.is_needed:
            values = self.adapter.back(values)
        return values / self.gain.float().to(values.device)[:, None, None, None]


def _spline(length: int, at: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    """Weights `(n, length)` of the values at 0 … length − 1 for those at `at`; edges continue."""
    degree = min(degree, length - 1)
    if degree < 1:
        return np.ones((len(at), 1))
    from scipy.interpolate import make_interp_spline

    spline = make_interp_spline(np.arange(length), np.eye(length), k=degree)
    return np.asarray(spline(np.clip(at, 0, length - 1)))
