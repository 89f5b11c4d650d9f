"""A camera as it is, for networks that work from the snapshot itself.

Such a network contains the camera, whatever its bands and offsets: nothing is resampled for it, and
turning a frame so that light disperses the way it learned is exact (`camera_match.frames.Turn`).
What remains is whether it has learned behind cameras like this one. A training cuts one spectrum
into several numbers of bands, over more or fewer pixels, bent and uneven (`models.trained`); what
lies within that family, or near it, is within reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prismask.inference.camera_match.bands import (
    MISMATCH_WARNING,
    BandAdapter,
    band_findings,
    band_positions,
    nearest_bend,
)
from prismask.inference.findings import Finding
from prismask.models.trained import serves_any_camera, trained_camera, trained_variation
from prismask.optics.camera import CASSI

UNEVEN_MARGIN = 0.2
"""Share of half the way to its neighbour by which a band may land further beside its place than in
training: no prism's curve is quite the one that cameras were drawn with."""


@dataclass(frozen=True)
class AsItIs(BandAdapter):
    """Shows a camera as it is, and says how far it lies from those of the network's training."""

    @property
    def stretch(self) -> float:
        """Frames are never stretched."""
        return 1.0

    @property
    def apart(self) -> float:
        """Bands are the camera's own."""
        return 1.0

    @property
    def dispersion_mismatch(self) -> float:
        """Pixels of its spectrum over the nearest in training, or the inverse; at least 1."""
        spread = self._length_ratio()
        if spread is None:
            return 1.0
        if spread == 0:
            return float("inf")
        near = self.variation.nearest_spread(spread)
        return max(spread / near, near / spread)

    @property
    def is_of_other_design(self) -> bool:
        """Whether no camera of the training had as many dispersers."""
        return self.camera.design not in (self.trained_design, *self.variation.designs)

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
        counts = (self.trained.bands, *self.variation.band_counts)
        low, high = min(counts), max(counts)
        if not low / MISMATCH_WARNING <= self.camera.bands <= high * MISMATCH_WARNING:
            learned = f"{low}" if low == high else f"{low} to {high}"
            found.append(f"it has {self.camera.bands} bands ({learned} in training)")
        if self.dispersion_mismatch > MISMATCH_WARNING:
            length = self.trained.offsets[-1] - self.trained.offsets[0]
            ends = sorted({1.0, *self.variation.spread})
            learned = " to ".join(f"{abs(length) * end:.3g}" for end in (ends[0], ends[-1]))
            own = abs(self.camera.offsets[-1] - self.camera.offsets[0])
            found.append(f"its spectrum is {own:.3g} px long ({learned} px in training)")
        if self._unevenness() > self.variation.jitter + UNEVEN_MARGIN:
            found.append("its bands do not land in even steps or along a curve like a prism's")
        return tuple(found)

    def why_not(self, network: str) -> str:
        """Why the network called `network` is not taken by default."""
        listed = " and ".join(self.beyond)
        return f"this camera is beyond what the network {network} was trained for: {listed}"

    @classmethod
    def for_record(cls, camera: CASSI, record: dict[str, Any]) -> AsItIs:
        """The adapter to the network that a weights record describes."""
        trained = trained_camera(record) if "step_px" in record else None
        return cls(camera, camera, trained, trained_variation(record))

    def _length_ratio(self) -> float | None:
        """Length of the spectrum in pixels over that of the record's camera."""
        if self.trained is None or min(self.camera.bands, self.trained.bands) < 2:
            return None
        own, known = (c.offsets[-1] - c.offsets[0] for c in (self.camera, self.trained))
        return abs(own / known) if known else None

    def _unevenness(self) -> float:
        """How far bands land beside the nearest known curve, in halves of their mean distance."""
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
    kind = AsItIs if serves_any_camera(record) else BandAdapter
    return kind.for_record(camera, record)


def camera_findings(adapter: BandAdapter) -> list[Finding]:
    """Remarks where a network sees another camera, or one beyond what it has learned."""
    if not isinstance(adapter, AsItIs):
        return band_findings(adapter)
    if not adapter.beyond:
        return []
    text = (
        f"this camera is beyond what the network was trained for: {' and '.join(adapter.beyond)}. "
        "Expect a worse cube than published, and compare with --method gap-tv."
    )
    return [Finding("warning", text)]
