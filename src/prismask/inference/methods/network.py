"""From a snapshot to a cube with a trained network, and to its error bar."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import Alignment, Probe, align_mask, probe_mask
from prismask.inference.camera_match import (
    CameraMatch,
    View,
    gain_findings,
    match_camera,
)
from prismask.inference.engine import Engine, FrameEstimate, project
from prismask.inference.inspection import TYPICAL_LEVEL, Snapshot, network_gain, prepare
from prismask.inference.intervals.evidence import Evidence, TrustRule, Verdict
from prismask.inference.intervals.learned import (
    LearnedInterval,
    calibration_words,
    classes_of,
    interval_findings,
    probe_findings,
)
from prismask.inference.methods.protocol import (
    Array,
    Capabilities,
    Capability,
    Estimate,
    Method,
    one_by_one,
)
from prismask.inference.options import DEFAULTS, Options
from prismask.models.fast import half_dtype
from prismask.models.inputs import UNKNOWN, Noise, Observation
from prismask.models.network import Reconstructor
from prismask.models.posterior import perturb
from prismask.models.registry import count_multiply_adds, count_parameters
from prismask.models.weights import knows_wrong_masks, serves_any_camera
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.randomness import seeded
from prismask.progress import Progress, part
from prismask.wording import Finding

NETWORK = "network"
"""What cubes made by a network note as their method."""
LEARNED = "learned"
"""Where a record's `interval` has one whose widths are predicted (`intervals.learned`)."""


def network_capabilities(network: Reconstructor) -> Capabilities:
    """What a network can do as a method."""
    found: set[Capability] = {"adapt", "half"}
    if network.wants_mask_std:
        found |= {"align", "uncertain_mask", "bad_pixels"}
    if network.can_draw_masks:
        found |= {"samples"}
    if network.posterior.is_random:
        found |= {"mask_std"}
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
        shown = View.of(Observation(blank, code, camera, one), one, self.match(camera)).shown
        return count_parameters(model), count_multiply_adds(model, shown.camera, shown.scene_size)

    def match(self, camera: CASSI) -> CameraMatch:
        """`camera` beside those of the training; raises where the network does not serve it."""
        found = match_camera(camera, self.record)
        found.check(self.name)
        return found

    def check_camera(self, camera: CASSI) -> None:
        """Raise `ConfigError` where the network does not serve `camera`."""
        self.match(camera)

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

    def trust(self) -> TrustRule | None:
        """The rule of trust stored with the weights, if there is one."""
        stored = (self.record.get("interval") or {}).get("trust")
        if stored is None:
            return None
        return TrustRule.from_record(stored, self.engine.network.model.source or "the weights")

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
                "it; leave samples out, or leave the model out: lumen.m2m draws masks."
            )
        interval = self.interval()
        if interval is not None:
            interval.place(options.level)
            self.trust()  # a damaged rule is told before the work

    def view(self, taken: Observation, brightness: Tensor, bad: Tensor | None = None) -> View:
        """Snapshots `(B, H, L)` as the network knows them; noise and brightness are `(B,)`."""
        typical = float(self.record.get("input_level", TYPICAL_LEVEL))
        gain = network_gain(brightness, typical)
        if not self.engine.model.wants_mask_std:
            taken, bad = taken._replace(mask_std=None), None
        return View.of(taken, gain, self.match(taken.camera), bad)

    def view_of(self, snapshot: Snapshot) -> View:
        """One snapshot as the network knows them."""
        noise, level = (torch.tensor([x]) for x in (snapshot.noise_std, snapshot.brightness))
        signal, stated = snapshot.signal[None], snapshot.mask_std
        taken = Observation(signal, snapshot.mask, snapshot.camera, noise, stated)
        return self.view(taken, level, snapshot.bad)

    def probe(self, snapshot: Snapshot, options: Options = DEFAULTS) -> Probe | None:
        """Whether the snapshot contradicts its mask; None where that is not known."""
        return self._probe(snapshot, self.view_of(snapshot), options, self.interval())

    def align(self, snapshot: Snapshot, progress: Progress | None = None) -> Alignment:
        """The pose in which the mask explains the snapshot best."""
        seen = self.view_of(snapshot)
        found = align_mask(self.engine, seen.shown, seen.bad, progress)
        # How surely a number is known has no direction.
        sure = MaskPose.from_numbers([abs(number) for number in seen.pose_back(found.std).numbers])
        return replace(found, pose=seen.pose_back(found.pose), std=sure)

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
        taken = Observation(ready.signal, ready.mask, camera, ready.noise_std, ready.mask_std)
        seen = self.view(taken, ready.brightness)
        return seen.back(engine.cubes(seen.shown)).to(measurement.device)

    def __call__(
        self, snapshot: Snapshot, options: Options = DEFAULTS, progress: Progress | None = None
    ) -> Estimate:
        """One pass, or one for each sampled mask; the result is in the snapshot's units again."""
        seen, interval = self.view_of(snapshot), self.interval()
        probe = snapshot.probe or self._probe(snapshot, seen, options, interval)
        # Behind other cameras intervals are fitted to what is known without a probe.
        known = None if seen.match.is_other_camera else probe
        if interval is not None:
            interval = interval.for_classes(classes_of(seen.match, known))
        tails = ((1 - options.level) / 2, (1 + options.level) / 2)
        learned = Learned(self.engine)
        if options.adapt:
            learned = learn(self.engine, seen.shown, options.adapt, options.seed, progress)
        with part("network"):
            made = learned.engine.run(
                seen.shown,
                samples=options.samples,
                seed=options.seed,
                levels=tails if options.samples and interval is None else None,
                bad=seen.bad,
                progress=progress,
            )
        values, std, lower, upper = read_back(seen, made)
        evidence, verdict = None, None
        if interval is not None:
            evidence = evidence_of(snapshot, seen, made, values, known)
            with part("interval"):
                lower, upper = (e.numpy() for e in interval.ends(evidence, options.level))
                verdict = self._verdict(evidence, interval, options.level, upper - lower, probe)
        findings = (
            *probe_findings(probe, options, snapshot.is_searched, is_widened=known is not None),
            *gain_findings(float(seen.gain)),
            *seen.match.findings(),
            *self._spread_findings(seen),
            *interval_findings(seen.match, interval, self.record.get("interval")),
            *learned.findings,
        )
        attrs = {**self._attrs(options, seen, made, interval, probe), **learned.attrs}
        return Estimate(values, std, lower, upper, attrs, findings, evidence, verdict)

    def _verdict(
        self,
        evidence: Evidence,
        interval: LearnedInterval,
        level: float,
        width: Array,
        probe: Probe | None,
    ) -> Verdict | None:
        """How far to trust the cube, where a rule for that is stored."""
        rule = self.trust()
        if rule is None:
            return None
        mean = float(width.mean()) / evidence.level * interval.width_ratio(level)
        return rule.verdict(evidence.facts, mean, None if probe is None else probe.gain)

    def evidence(self, snapshot: Snapshot, probed: bool, options: Options = DEFAULTS) -> Evidence:
        """A single pass and all that is known about it without its truth, to fit an interval on.

        probed: whether the mask is probed, which takes as long as the pass or longer.
        """
        seen = self.view_of(snapshot)
        probe = None
        if probed and not seen.match.is_other_camera:
            probe = probe_mask(self.engine, seen.shown)
        made = self.engine.run(seen.shown, bad=seen.bad)
        return evidence_of(snapshot, seen, made, read_back(seen, made)[0], probe)

    def _spread_findings(self, seen: View) -> list[Finding]:
        """A remark where the mask may be wrong in ways that it has not seen in training."""
        if seen.shown.mask_std is None or knows_wrong_masks(self.record):
            return []
        text = (
            f"{self.name} was trained with right masks alone: mask_std changes how far its cube "
            "has to explain the snapshot, and little else."
        )
        return [Finding("note", text)]

    @part("probe")
    def _probe(
        self, snapshot: Snapshot, seen: View, options: Options, interval: LearnedInterval | None
    ) -> Probe | None:
        """Whether the snapshot agrees with its mask.

        None where it is not wanted, and where it is not known what the answer is worth: for other
        weights, and behind cameras that a network sees a little wrongly with any mask.
        """
        if snapshot.is_aligned or not options.check_mask or interval is None:
            return None
        if seen.match.is_other_camera and not seen.match.can_probe:
            return None
        return probe_mask(self.engine, seen.shown)

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
        if seen.turn.text:
            attrs["frame_for_network"] = seen.turn.text
        if seen.stretch is not None:
            attrs["frame_stretch"] = seen.stretch.factor
        if options.samples:
            attrs |= {"samples": options.samples, "seed": options.seed}
        if probe is not None:
            attrs["mask_inconsistent"] = probe.is_inconsistent
            attrs["mask_probe_gain"] = round(probe.gain, 4)
        percent = f"{100 * options.level:g} %"
        if interval is not None:
            words = calibration_words(seen.match, interval, probe)
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
    cube = torch.from_numpy(values)
    return Evidence(
        cube,
        snapshot.seen_by(cube),
        snapshot.mask,
        snapshot.camera,
        snapshot.noise_std,
        snapshot.brightness,
        None if probe is None else probe.gain,
        seen.match.mismatch,
        seen.match.is_other_camera,
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


# --- a network that learns the scene in front of it, from its own cube ----------------------------
#
# A network knows the scenes it was trained on better than any other. Its cube x̂ of a new snapshot
# is not the truth, but a scene much like it, and one whose truth is known when it is photographed
# again: cut, turned and mirrored (T), coded by the same mask, with the same noise. For a moment the
# training goes on with such pieces,
#
#     θ ← θ − α ∂/∂θ ‖f_θ(A T x̂ + n) − T x̂‖,
#
# and what is learned about the materials and edges of this scene also holds for the snapshot
# itself. Equivariant imaging (Chen, Tachella, Davies 2021) does the same with a gradient through x̂
# as well; x̂ held is a third of the work, and enough for a network that has been trained. On
# another scene such a network is worse than before, so it is used once and forgotten.


PIECE = 96
"""Height and width of the pieces, or of the frame where that is smaller."""
PIECES = 2
"""Pieces per step."""
CHOICES = 4
"""Positions that are tried for each; the one with most contrast is taken, because a frame that is
mostly dark would teach the network the dark."""
RATE = 5e-5
"""Learning rate at its highest: it rises over the first steps and falls to zero at the last."""
RISE = 10
"""Steps over which it rises."""
TINY = 1e-12
"""Added under the root, whose gradient is infinite at zero: dark pieces have no error."""
MOST_RESIDUAL_GROWTH = 1.2
"""Factor by which the residual may grow when a network learns its scene."""


@dataclass(frozen=True, eq=False)
class Adapted:
    """A network that has learned a scene."""

    model: Reconstructor
    before: float
    """Mean loss of the first tenth of the steps, in the cube's units."""
    after: float
    """Of the last tenth."""


def adapt(
    model: Reconstructor,
    cube: Tensor,
    mask: Tensor,
    camera: CASSI,
    *,
    noise_std: float = 0.0,
    steps: int,
    seed: int = 0,
    device: torch.device | None = None,
    progress: Progress | None = None,
    mask_std: Tensor | None = None,
) -> Adapted:
    """A copy of `model` that went on learning from its own `cube (C, H, W)` for some steps.

    mask: the one the snapshot was taken through, `(1, 1|C, H, W)`.
    noise_std: of the snapshot; pieces get the same, and networks that take it as an input know it.
    mask_std: how far the mask may be wrong, of its shape or one plane: pieces are taken through a
        mask that differs by as much, and the network is given that; None: unknown.
    """
    device = device or torch.device("cpu")
    learner = copy.deepcopy(model).to(device).eval().requires_grad_(False)
    backbone = learner.backbone.requires_grad_(True)
    optimiser = torch.optim.Adam(backbone.parameters(), lr=RATE, betas=(0.9, 0.99))
    stated = None if mask_std is None else mask_std.to(device)
    pieces = _pieces(cube.clamp_min(0).to(device), mask.to(device), camera, noise_std, seed, stated)
    noise: Noise = torch.full((PIECES,), noise_std, device=device)
    losses = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / RISE) * (1 - step / steps)
        truth, code, snapshot, spread = next(pieces)
        shown = learner.posterior.mean(code)
        with (
            torch.enable_grad(),
            torch.autocast(device.type, torch.bfloat16, enabled=half_dtype(device) is not None),
        ):
            seen = Observation(snapshot, shown, camera, noise, spread)
            estimate = learner.reconstruct(seen)
            error = (estimate.float() - truth).square().mean((1, 2, 3))
            loss = (error + TINY).sqrt().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if progress is not None:
            progress(step + 1, steps, {"stage": "learning the scene"})
    few = max(1, steps // 10)
    first, last = (float(torch.stack(part).mean()) for part in (losses[:few], losses[-few:]))
    return Adapted(learner.requires_grad_(False), first, last)


@dataclass(frozen=True, eq=False)
class Learned:
    """A network for one snapshot, and what there is to say about what it has learned."""

    engine: Engine
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


def learn(
    engine: Engine, seen: Observation, steps: int, seed: int, progress: Progress | None
) -> Learned:
    """The network after it has learned the scene of one snapshot, unless that made its cube
    explain less."""
    first, noise = engine.run(seen).values, 0.0 if seen.noise is None else float(seen.noise)
    taught = adapt(
        engine.model, first, seen.mask, seen.camera, noise_std=noise, steps=steps, seed=seed,
        device=engine.device, progress=progress, mask_std=seen.mask_std,
    )  # fmt: skip
    changed = engine.with_model(taught.model)
    before, after = (
        float((seen.measurement[0] - project(cube, seen.mask, seen.camera)).norm())
        for cube in (first, changed.run(seen).values)
    )
    if after > MOST_RESIDUAL_GROWTH * before:
        text = (
            f"adapting to the scene made the cube explain its snapshot worse ({after / before:.2f} "
            "times the residual), so the original network is used: does the mask belong to this "
            "snapshot?"
        )
        return Learned(engine, findings=(Finding("warning", text),))
    went = "fell" if taught.after < taught.before else "did not fall: it went"
    text = (
        f"the network was adapted to this scene on its own cube in {steps} steps: its error there "
        f"{went} from {100 * taught.before:.2g} to {100 * taught.after:.2g} % of white. The error "
        "bars are those of the original network."
    )
    return Learned(changed, {"adapted_steps": steps}, (Finding("note", text),))


def _pieces(
    cube: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise_std: float,
    seed: int,
    mask_std: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Endless pieces of the scene, each with a piece of the mask, a snapshot, the stated spread."""
    numbers = seeded(seed)
    side = min(PIECE, *cube.shape[-2:])
    size, code_size = (side, side), camera.mask_size((side, side))
    stated = torch.full_like(mask[:, :1], UNKNOWN) if mask_std is None else mask_std
    both, planes = torch.cat([mask, stated], dim=1), mask.shape[1]

    def drawn(largest: int) -> int:
        return int(torch.randint(largest + 1, (), generator=numbers))

    def piece(whole: Tensor, height: int, width: int) -> Tensor:
        top, left = drawn(whole.shape[-2] - height), drawn(whole.shape[-1] - width)
        return whole[..., top : top + height, left : left + width]

    def piece_with_contrast() -> Tensor:
        offered = [piece(cube, *size) for _ in range(CHOICES)]
        return max(offered, key=lambda one: float(one.std((-2, -1), correction=0).mean()))

    while True:
        truth = torch.stack([piece_with_contrast() for _ in range(PIECES)])
        truth = torch.rot90(truth.flip(-2) if drawn(1) else truth, drawn(3), (-2, -1))
        cut = piece(both, *code_size)
        code, spread = cut[:, :planes], cut[:, planes:]
        met = code
        if bool((spread > 0).any()):
            off = torch.randn(code.shape, generator=numbers).to(code)
            met = perturb(code, spread.clamp_min(0), off)
        snapshot = camera.forward(truth, met)
        noise = torch.randn(snapshot.shape, generator=numbers).to(snapshot.device)
        yield truth, code, snapshot + noise_std * noise, spread
