"""From a snapshot to a cube with a trained network, and to its error bar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.fit import Alignment, align_mask
from prismask.inference.alignment.probe import Probe, probe_mask
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.camera_match.view import Snapshot, View
from prismask.inference.camera_match.wording import band_findings, scale_findings
from prismask.inference.checks import TYPICAL_LEVEL, network_gain
from prismask.inference.engine.frame import Engine, Estimate
from prismask.inference.intervals.model import DOUBTED_MASKS, Interval, cube_features
from prismask.inference.intervals.wording import (
    calibration_words,
    classes_of,
    interval_findings,
    probe_findings,
)
from prismask.inference.methods.adapted import Learned, learn
from prismask.inference.methods.protocol import Outcome, Progress
from prismask.inference.options import Settings
from prismask.models.mirror_ensemble import ways_of
from prismask.optics.camera import CASSI


class NetworkMethod:
    """Reconstruction by a trained network."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.record = engine.model.record

    def identity(self) -> dict[str, Any]:
        """The hash of the weights and of the interval stored with them."""
        return {
            "method": "network",
            "weights": self._hash,
            "ways": ways_of(self.record),
            "interval": self.record.get("interval"),
        }

    @property
    def _hash(self) -> str:
        return str(self.record.get("sha256", "unsaved"))

    def adapter(self, camera: CASSI) -> BandAdapter:
        """How `camera` is shown to this network."""
        return BandAdapter.for_record(camera, self.record)

    def interval(self, settings: Settings) -> Interval | None:
        """The interval that fits the settings, if one is stored with the weights."""
        stored = self.record.get("interval") or {}
        kind = "sampled" if settings.samples and "sampled" in stored else "single"
        if kind not in stored:
            return None
        return Interval.from_record(stored[kind], self.engine.bands)

    @property
    def asks_about_masks(self) -> bool:
        """Whether some interval of the weights was fitted for doubted masks."""
        stored = self.record.get("interval") or {}
        return any(DOUBTED_MASKS in stored[kind].get("classes", {})
                   for kind in ("single", "sampled") if kind in stored)  # fmt: skip

    def check(self, settings: Settings) -> None:
        """Whether the weights can give the samples and the interval that are asked for."""
        self._check_samples(settings)
        interval = self.interval(settings)
        if interval is not None:
            spreads = {"std"} if settings.samples else set()
            spreads |= {"disagreement"} if ways_of(self.record) > 1 else set()
            interval.check(settings.level, spreads)

    def view(self, snapshot: Snapshot) -> View:
        """The snapshot as the network likes to see it."""
        typical = float(self.record.get("input_level", TYPICAL_LEVEL))
        gain = network_gain(snapshot.brightness, typical)
        return View.of(snapshot, self.adapter(snapshot.camera), gain)

    def align(self, snapshot: Snapshot, progress: Progress | None = None) -> Alignment:
        """Where the snapshot says that its mask lies."""
        seen = self.view(snapshot)
        found = align_mask(
            self.engine, seen.signal, seen.mask, seen.camera, seen.noise_std, progress
        )
        return replace(found, place=seen.place_back(found.place))

    def run(self, snapshot: Snapshot, settings: Settings, progress: Progress | None) -> Outcome:
        """One pass, or one for each sampled mask; the result is in the snapshot's units again."""
        seen, interval = self.view(snapshot), self.interval(settings)
        probe = None if snapshot.is_aligned else self._probe(seen, settings, interval)
        if interval is not None:
            interval = interval.for_classes(classes_of(seen.adapter, probe))
        tails = ((1 - settings.level) / 2, (1 + settings.level) / 2)
        learned = Learned(self.engine)
        if settings.adapt:
            learned = learn(
                self.engine, seen.signal, seen.mask, seen.camera, seen.noise_std,
                settings.adapt, settings.seed, progress,
            )  # fmt: skip
        estimate = learned.engine.run(
            seen.signal,
            seen.mask,
            seen.camera,
            samples=settings.samples,
            seed=settings.seed,
            levels=tails if settings.samples and interval is None else None,
            noise_std=seen.noise_std,
            progress=progress,
        )
        if interval is not None:
            estimate = with_interval(
                estimate, interval, settings.level, seen.signal, seen.mask, seen.camera
            )
        values = seen.back(estimate.values)
        std, lower, upper = seen.interval(estimate, values)
        attrs = self._attrs(settings, seen, estimate, interval, probe)
        attrs |= learned.attrs
        findings = (
            *probe_findings(probe, settings),
            *scale_findings(seen.gain),
            *band_findings(seen.adapter),
            *interval_findings(seen.adapter, interval),
            *learned.findings,
        )
        return Outcome(values, std, lower, upper, attrs, findings)

    def _probe(self, seen: View, settings: Settings, interval: Interval | None) -> Probe | None:
        """Whether the snapshot agrees with its mask.

        None where nobody asks, and where it is not known what the answer is worth: for other
        weights, and behind other cameras, which networks see a little wrongly with any mask.
        """
        fitted = interval is not None and DOUBTED_MASKS in interval.classes
        if not (settings.registration and fitted) or seen.adapter.is_another:
            return None
        return probe_mask(self.engine, seen.signal, seen.mask, seen.camera, seen.noise_std)

    def _check_samples(self, settings: Settings) -> None:
        if settings.samples and not self.engine.can_sample:
            raise ConfigError(
                f"{self.name} was trained without a mask posterior, so no masks can be drawn from "
                "it; leave samples out, or use weights with one (`prismask models`)."
            )

    def _attrs(
        self,
        settings: Settings,
        seen: View,
        estimate: Estimate,
        interval: Interval | None,
        probe: Probe | None,
    ) -> dict[str, Any]:
        attrs: dict[str, Any] = {
            "method": "network",
            "model": self.name,
            "weights_sha256": self._hash,
            "backbone": self.record["backbone"],
            "method_options": f"{self.name} ({self.record['backbone']}, {self.engine.bands} bands)",
            "precision": estimate.precision,
            "network_gain": seen.gain,
        }
        if ways_of(self.record) > 1:
            attrs["asked"] = "both ways round, the mean is given"
        if seen.turn.text:
            attrs["frame_for_network"] = seen.turn.text
        if seen.stretch.is_needed:
            attrs["frame_stretch"] = seen.stretch.factor
        if seen.adapter.is_needed:
            attrs["bands_from"] = f"{self.engine.bands} bands of the network, interpolated"
        if settings.samples:
            attrs |= {"samples": settings.samples, "seed": settings.seed}
        if probe is not None:
            attrs |= {"mask_doubted": probe.is_doubted, "mask_probe_gain": round(probe.gain, 4)}
        percent = f"{100 * settings.level:g} %"
        if interval is not None:
            words = calibration_words(seen.adapter, interval, probe)
            attrs["interval"] = f"{percent}, calibrated on {words}"
            if settings.samples and "sampled" not in self.record["interval"]:
                attrs["interval"] += ", fitted to single passes, not to the mean of samples"
        elif settings.samples:
            attrs["interval"] = f"central {percent} of the mask samples, not calibrated"
        return attrs


def with_interval(
    estimate: Estimate,
    interval: Interval,
    level: float,
    signal: Tensor,
    mask: Tensor,
    camera: CASSI,
) -> Estimate:
    """The estimate with calibrated ends; light is not negative, so neither is the lower end."""
    lower, upper = torch.empty_like(estimate.values), torch.empty_like(estimate.values)
    by_band = cube_features(estimate.values, signal, mask, camera, estimate.spreads)
    for band, features in enumerate(by_band):
        values, width = estimate.values[band], interval.half_width(features, band, level)
        lower[band] = torch.maximum(values - width, values.clamp_max(0))
        upper[band] = values + width
    return replace(estimate, lower=lower, upper=upper)
