"""From a snapshot to a cube with a trained network, and to its error bar."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.probe import Probe, probe_mask
from prismask.inference.alignment.search import Alignment, align_mask
from prismask.inference.camera_match import (
    BandAdapter,
    View,
    adapter_for,
    gain_findings,
)
from prismask.inference.engine import Engine, FrameEstimate
from prismask.inference.findings import Finding
from prismask.inference.inspection import TYPICAL_LEVEL, Snapshot, network_gain, prepare
from prismask.inference.intervals.evidence import Evidence
from prismask.inference.intervals.learned import (
    LearnedInterval,
    calibration_words,
    classes_of,
    interval_findings,
    probe_findings,
)
from prismask.inference.intervals.trust import TrustRule, Verdict
from prismask.inference.methods.adaptation import Learned, learn
from prismask.inference.methods.protocol import (
    Array,
    Capabilities,
    Capability,
    Estimate,
    Method,
    one_by_one,
)
from prismask.inference.options import DEFAULTS, Options
from prismask.models.complexity import count_multiply_adds, count_parameters
from prismask.models.network import Reconstructor, ensemble_size
from prismask.models.weights import knows_wrong_masks, serves_any_camera
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.progress import Progress, part

NETWORK = "network"
"""What cubes made by a network note as their method."""
LEARNED = "learned"
"""Where a record's `interval` has one whose widths are predicted (`intervals.learned`)."""


def network_capabilities(network: Reconstructor) -> Capabilities:
    """What a network can do as a method."""
    found: set[Capability] = {"align", "adapt", "half"}
    if network.wants_mask_std:
        found |= {"uncertain_mask", "bad_pixels"}
    if network.posterior.is_random:
        found |= {"samples", "mask_std"}
    if network.record.get("interval"):
        found |= {"interval"}
    return frozenset(found)


class NetworkMethod:
    """Reconstruction by a trained network."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.record = engine.model.record

    @property
    def capabilities(self) -> Capabilities:
        """What its weights are made for."""
        return network_capabilities(self.engine.model)

    def identity(self, options: Options = DEFAULTS) -> dict[str, Any]:
        """The hash of the weights and of the interval stored with them."""
        # Marks a cube whose mask was not probed, where that may widen the interval.
        unprobed = self.probes_masks and not options.check_mask
        return {
            "method": NETWORK,
            "weights": self._hash,
            # The key of the first versions, whose finished cubes are still recognised.
            "ways": ensemble_size(self.record),
            "interval": self._interval_identity,
            **({"mask_checked": False} if unprobed else {}),
        }

    @property
    def _bands_text(self) -> str:
        return "any bands" if serves_any_camera(self.record) else f"{self.engine.bands} bands"

    @property
    def _interval_identity(self) -> Any:
        """What distinguishes one fit from another: all of it, and of a learned one the hash."""
        stored = self.record.get("interval")
        if not stored or LEARNED not in stored:
            return stored
        text = json.dumps(stored, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def _hash(self) -> str:
        return str(self.record.get("sha256", "unsaved"))

    def work(self, camera: CASSI, scene: tuple[int, int]) -> tuple[int | None, int | None]:
        """Learnable values, and multiply-adds for a scene in the frame that the network sees."""
        model = self.engine.model
        blank = torch.zeros(1, *camera.measurement_size(scene))
        code = torch.ones(1, 1, *camera.mask_size(scene))
        one = torch.ones(1)
        seen = View.of(blank, code, camera, one, one, self.adapter(camera))
        shown = seen.camera.scene_size((seen.signal.shape[-2], seen.signal.shape[-1]))
        return count_parameters(model), count_multiply_adds(model, seen.camera, shown)

    def adapter(self, camera: CASSI) -> BandAdapter:
        """How `camera` is shown to this network."""
        return adapter_for(camera, self.record)

    def mask_std(self, mask: Tensor) -> Tensor:
        """How wrong each pixel of `mask (1, 1|C, H, W)` may be, of the same shape."""
        std: Tensor = self.engine.network.model.posterior.std(as_mask_batch(mask))
        return std

    def interval(self) -> LearnedInterval | None:
        """The interval stored with the weights, if there is one."""
        stored = self.record.get("interval") or {}
        if LEARNED not in stored:
            return None
        source = self.engine.network.model.source
        return LearnedInterval.from_record(stored[LEARNED], source or "the weights")

    @property
    def judges_itself(self) -> bool:
        """Whether a rule of trust is stored with the weights."""
        return "trust" in (self.record.get("interval") or {})

    @property
    def probes_masks(self) -> bool:
        """Whether an interval is stored that knows of inconsistent masks."""
        return LEARNED in (self.record.get("interval") or {})

    def check(self, options: Options) -> None:
        """Whether the weights can give the samples and the interval that the options want."""
        if options.samples and "samples" not in self.capabilities:
            raise ConfigError(
                f"{self.name} was trained without a mask posterior, so no masks can be drawn from "
                "it; leave samples out, or use weights with one (`prismask models`)."
            )
        interval = self.interval()
        if interval is not None:
            interval.check(options.level, ensemble_size(self.record) > 1)

    def view(
        self,
        signal: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise_std: Tensor,
        brightness: Tensor,
        mask_std: Tensor | None = None,
        bad: Tensor | None = None,
    ) -> View:
        """Snapshots `(B, H, L)` as the network knows them; noise and brightness are `(B,)`."""
        typical = float(self.record.get("input_level", TYPICAL_LEVEL))
        gain = network_gain(brightness, typical)
        told = (mask_std, bad) if self.engine.model.wants_mask_std else ()
        return View.of(signal, mask, camera, noise_std, gain, self.adapter(camera), *told)

    def view_of(self, snapshot: Snapshot) -> View:
        """One snapshot as the network knows them."""
        noise, level = (torch.tensor([x]) for x in (snapshot.noise_std, snapshot.brightness))
        told = snapshot.mask_std, snapshot.bad
        return self.view(snapshot.signal[None], snapshot.mask, snapshot.camera, noise, level, *told)

    def align(self, snapshot: Snapshot, progress: Progress | None = None) -> Alignment:
        """The pose in which the mask explains the snapshot best."""
        seen = self.view_of(snapshot)
        found = align_mask(
            self.engine, seen.signal[0], seen.mask, seen.camera, float(seen.noise_std), progress,
            seen.mask_std,
        )  # fmt: skip
        return replace(found, pose=seen.pose_back(found.pose))

    def batch(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, options: Options = DEFAULTS
    ) -> Tensor:
        """Snapshots `(B, H, L)` through one mask, all at once → cubes `(B, C, H, W)`."""
        if options.samples or options.adapt:
            return one_by_one(self, measurement, mask, camera, options)
        engine = self.engine
        chooses = engine.precision == "auto"  # by the noise
        with_noise = engine.wants_noise or chooses
        ready = prepare(measurement, mask, camera, options, with_noise=with_noise)
        seen = self.view(
            ready.signal, ready.mask, camera, ready.noise_std, ready.brightness, ready.mask_std
        )
        cubes = engine.cubes(seen.signal, seen.mask, seen.camera, seen.noise_std, seen.mask_std)
        return seen.back(cubes).to(measurement.device)

    def __call__(
        self, snapshot: Snapshot, options: Options = DEFAULTS, progress: Progress | None = None
    ) -> Estimate:
        """One pass, or one for each sampled mask; the result is in the snapshot's units again."""
        seen, interval = self.view_of(snapshot), self.interval()
        signal, noise = seen.signal[0], float(seen.noise_std)
        probe = None if snapshot.is_aligned else self._probe(seen, options, interval)
        if interval is not None:
            interval = interval.for_classes(classes_of(seen.adapter, probe))
        tails = ((1 - options.level) / 2, (1 + options.level) / 2)
        learned = Learned(self.engine)
        if options.adapt:
            learned = learn(
                self.engine, signal, seen.mask, seen.camera, noise, options.adapt, options.seed,
                progress, seen.mask_std,
            )  # fmt: skip
        with part("network"):
            made = learned.engine.run(
                signal,
                seen.mask,
                seen.camera,
                samples=options.samples,
                seed=options.seed,
                levels=tails if options.samples and interval is None else None,
                noise_std=noise,
                mask_std=seen.mask_std,
                bad=seen.bad,
                progress=progress,
            )
        values, std, lower, upper = read_back(seen, made)
        evidence, verdict = None, None
        if interval is not None:
            evidence = evidence_of(snapshot, seen, made, values, probe)
            with part("interval"):
                lower, upper = (e.numpy() for e in interval.ends(evidence, options.level))
                verdict = self._verdict(evidence, interval, options.level, upper - lower)
        findings = (
            *probe_findings(probe, options),
            *gain_findings(float(seen.gain)),
            *seen.adapter.findings(),
            *self._spread_findings(seen),
            *interval_findings(seen.adapter, interval, self.record.get("interval")),
            *learned.findings,
        )
        attrs = {**self._attrs(options, seen, made, interval, probe), **learned.attrs}
        return Estimate(values, std, lower, upper, attrs, findings, evidence, verdict)

    def _verdict(
        self, evidence: Evidence, interval: LearnedInterval, level: float, width: Array
    ) -> Verdict | None:
        """How far to trust the cube, where a rule for that is stored."""
        stored = self.record["interval"].get("trust")
        if stored is None:
            return None
        rule = TrustRule.from_record(stored, self.engine.network.model.source or "the weights")
        mean = float(width.mean()) / evidence.level * interval.width_ratio(level)
        return rule.verdict(evidence.facts, mean, evidence.probe_gain)

    def evidence(self, snapshot: Snapshot, probed: bool, options: Options = DEFAULTS) -> Evidence:
        """A single pass and all that is known about it without its truth, to fit an interval on.

        probed: whether the mask is probed, which takes as long as the pass or longer.
        """
        seen = self.view_of(snapshot)
        noise = float(seen.noise_std)
        probe = None
        if probed and not seen.adapter.is_other_camera:
            probe = probe_mask(
                self.engine, seen.signal[0], seen.mask, seen.camera, noise, seen.mask_std
            )
        made = self.engine.run(
            seen.signal[0], seen.mask, seen.camera, noise_std=noise, mask_std=seen.mask_std,
            bad=seen.bad,
        )  # fmt: skip
        return evidence_of(snapshot, seen, made, read_back(seen, made)[0], probe)

    def _spread_findings(self, seen: View) -> list[Finding]:
        """A remark where the mask may be wrong in ways that it has not seen in training."""
        if seen.mask_std is None or knows_wrong_masks(self.record):
            return []
        text = (
            f"{self.name} was trained with right masks alone: mask_std changes how far its cube "
            "has to explain the snapshot, and little else."
        )
        return [Finding("note", text)]

    @part("probe")
    def _probe(
        self, seen: View, options: Options, interval: LearnedInterval | None
    ) -> Probe | None:
        """Whether the snapshot agrees with its mask.

        None where it is not wanted, and where it is not known what the answer is worth: for other
        weights, and behind other cameras, which networks see a little wrongly with any mask.
        """
        if not options.check_mask or interval is None or seen.adapter.is_other_camera:
            return None
        noise = float(seen.noise_std)
        signal, told = seen.signal[0], seen.mask_std
        return probe_mask(self.engine, signal, seen.mask, seen.camera, noise, told)

    def _attrs(
        self,
        options: Options,
        seen: View,
        made: FrameEstimate,
        interval: LearnedInterval | None,
        probe: Probe | None,
    ) -> dict[str, Any]:
        attrs: dict[str, Any] = {
            "method": NETWORK,
            "model": self.name,
            "weights_sha256": self._hash,
            "backbone": self.record["backbone"],
            "method_options": f"{self.name} ({self.record['backbone']}, {self._bands_text})",
            "precision": made.precision,
            "network_gain": float(seen.gain),
        }
        if ensemble_size(self.record) > 1:
            attrs["mirror_ensemble"] = ensemble_size(self.record)
        if seen.turn.text:
            attrs["frame_for_network"] = seen.turn.text
        if seen.stretch.is_needed:
            attrs["frame_stretch"] = seen.stretch.factor
        if seen.adapter.is_needed:
            attrs["bands_from"] = f"{self.engine.bands} bands of the network, interpolated"
        if options.samples:
            attrs |= {"samples": options.samples, "seed": options.seed}
        if probe is not None:
            attrs["mask_inconsistent"] = probe.is_inconsistent
            attrs["mask_probe_gain"] = round(probe.gain, 4)
        percent = f"{100 * options.level:g} %"
        if interval is not None:
            words = calibration_words(seen.adapter, interval, probe)
            attrs["interval"] = f"{percent}, calibrated on {words}"
            if options.samples:
                attrs["interval"] += ", fitted to single passes, not to the mean of samples"
        elif options.samples:
            attrs["interval"] = f"central {percent} of the mask samples, not calibrated"
        return attrs


def as_network(method: Method) -> NetworkMethod | None:
    """The method, if it is a network of ours, whose posterior and members can be looked into."""
    return cast(NetworkMethod, method) if method.identity().get("method") == NETWORK else None


def evidence_of(
    snapshot: Snapshot, seen: View, made: FrameEstimate, values: Array, probe: Probe | None
) -> Evidence:
    """What is known about the cube `values (C, H, W)` of a snapshot."""
    apart, cube = made.disagreement, torch.from_numpy(values)
    return Evidence(
        cube,
        snapshot.seen_by(cube),
        snapshot.mask,
        snapshot.camera,
        snapshot.noise_std,
        snapshot.brightness,
        None if apart is None else seen.back_distance(apart[None])[0],
        None if probe is None else probe.gain,
        seen.adapter.dispersion_mismatch,
        seen.adapter.is_other_camera,
    )


def read_back(
    seen: View, made: FrameEstimate
) -> tuple[Array, Array | None, Array | None, Array | None]:
    """Values, standard deviation and both ends of an estimate in the snapshot's bands and units."""

    def back(values: Tensor) -> Array:
        return seen.back(values[None])[0].numpy()

    values = back(made.values)
    ends = (made.std, made.lower, made.upper)
    if not seen.is_resampled:
        std, lower, upper = (None if end is None else back(end) for end in ends)
        return values, std, lower, upper
    # Resampled as distances: a curve of its own could put an end on the wrong side, and a lower end
    # that stops at zero in one band would stop short in the neighbouring bands.
    away = (made.std, *(None if end is None else (end - made.values).abs() for end in ends[1:]))
    std, below, above = (
        None if end is None else seen.back_distance(end[None])[0].numpy() for end in away
    )
    lower = None if below is None else np.maximum(values - below, np.minimum(values, 0))
    return values, std, lower, None if above is None else values + above
