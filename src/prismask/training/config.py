"""What a training run is made of: frozen dataclasses, one table of a TOML file each.

`read_config` refuses a key it does not know and names the nearest one; a file may name others
as its `base` and only say what differs. `to_toml` writes the resolved configuration back, so a
run folder says exactly what ran. What a number may be is part of its type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import torch

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.models.posterior import PosteriorConfig
from prismask.scenes.defaults import BANDS, SIZE, STEP
from prismask.training.losses import KINDS
from prismask.training.tables import build, flatten, override, read_table, toml_value


@dataclass(frozen=True)
class Limit:
    """What one kind of number may be."""

    words: str
    """What fits, as "it must be …" goes on."""
    fits: Callable[[float], bool]
    """A comparison, never its opposite: NaN then fits nowhere."""


Count = Annotated[int, Limit("at least 1", lambda number: number >= 1)]
CountOrNone = Annotated[int, Limit("0 or more", lambda number: number >= 0)]
Share = Annotated[float, Limit("between 0 and 1", lambda number: 0 <= number <= 1)]
BelowOne = Annotated[float, Limit("0 or more, and below 1", lambda number: 0 <= number < 1)]
Decay = Annotated[float, Limit("0 (off) or more, and below 1", lambda number: 0 <= number < 1)]
Rate = Annotated[float, Limit("above 0, and finite", lambda number: 0 < number < math.inf)]
Strength = Annotated[float, Limit("0 or more, and finite", lambda number: 0 <= number < math.inf)]
NoiseShare = Annotated[
    float,
    Limit(
        "above 0 and at most 1; for no noise at all set data.noise_std = [0, 0]",
        lambda number: 0 < number <= 1,
    ),
]


@dataclass(frozen=True)
class DataConfig:
    """Scenes and how they are cut."""

    source: str = "cave"
    """"cave" (the data folder's CAVE pack) or "synthetic" (made on the spot, no data needed)."""
    folder: str = ""
    """The data folder; empty: PRISMASK_DATA, then shared/data nearby."""
    crop: tuple[int, int] = (SIZE, SIZE)
    """Height and width of a training crop; one number: both. Wide crops see more of the spectrum:
    only columns that all bands reach know it whole."""
    scale: tuple[float, float] = (1.0, 2.0)
    """Random enlargement of a crop; below 1 it is taken from a scene averaged 2×2."""
    resampling: str = "linear"
    """Interpolation of crops that are not at the scene's own resolution: "linear", or "cubic",
    which keeps them as sharp as the scene (training/data/crops.py)."""
    choices: Count = 1
    """How many crops are drawn for each that is taken: the one with most contrast."""
    native_share: Share = 0.0
    """Share of crops left at the scene's own resolution, pixel for pixel."""
    flip: bool = True
    """Mirror crops at random."""
    turn: bool = True
    """Turn crops by random quarter turns."""
    tilt_share: Share = 0.0
    """Share of the enlarged and shrunk crops that are turned by any angle, not only by quarters."""
    brightness: tuple[float, float] = (1.0, 1.0)
    """Random factor on a crop's values."""
    spectral_gain: Strength = 0.0
    """How strongly a random lamp recolours each crop: the spread of a smooth logarithmic gain
    over the bands (0.2: about ±35 % at the ends)."""
    collage: Share = 0.0
    """Share of crops that are joined from two along natural shapes (training/data/cubes.py)."""
    warp: Share = 0.0
    """Share of crops whose spectrum is shifted, stretched or reversed (`training.data.cubes`)."""
    recombine: Share = 0.0
    """Share of crops whose spectra are recombined from a few broad bands, each with a new smooth
    spectrum: materials that no scene holds (`training.data.cubes`)."""
    repaint: Strength = 0.0
    """How strongly two random lamps, mixed pixel by pixel, recolour each crop: new materials from
    known scenes (training/data/cubes.py)."""
    lamps: Share = 0.0
    """Share of crops lit by a lamp with lines: fluorescent, discharge or LED
    (training/data/cubes.py)."""
    narrow_bands: Share = 0.0
    """Share of crops in parts of which materials absorb or reflect in narrow bands."""
    laser_lines: Share = 0.0
    """Share of crops parts of which are also lit by a single line."""
    noise_std: tuple[float, float] = (0.0, 0.0)
    """Gaussian measurement noise: each sample draws its σ from this range; the measurement is
    scaled by 2/C when the noise is added, so σ is relative to the cube's range."""
    noise_share: NoiseShare = 1.0
    """Share of the samples that get noise at all; the others stay clean."""
    plain_share: Share = 0.0
    """Share of the samples that are the plain case: cut and joined, but with the spectra that the
    scenes have, no noise, and the mask that the network is given. All that is drawn for a share of
    the samples is drawn for the others only."""
    synthetic_scenes: Count = 6
    """With source "synthetic": how many scenes for training (a third as many for validation)."""
    synthetic_size: Count = 96
    """With source "synthetic": their height and width."""


@dataclass(frozen=True)
class MaskConfig:
    """Where training masks come from."""

    source: str = "train"
    """A mask region of the split ("train", "single"), or "fabricated"."""
    per: str = "batch"
    """One mask m for a "batch" (the paper) or one for each "sample"."""
    vary: bool = False
    """Also turn, mirror, shift by up to half a pixel and bend the values of each mask."""
    calibration_error: Strength = 0.0
    """Most pixels, along each axis, by which the mask that the network is given is displaced from
    the one that codes the light."""
    fabricated_share: Share = 0.0
    """Share of steps whose masks are cut from fabricated instruments instead of the region."""
    fabricated_count: Count = 16
    """How many instruments are fabricated for that."""
    binary_share: Share = 0.0
    """Share of the masks of which only open and closed is left: sharp edges, no grey."""
    fault_share: Share = 0.0
    """Share of the samples whose light is coded by another mask than the network is given: moved,
    turned, blurred, bent in its values, dead pixels, noise (training/data/masks.py)."""
    fault_size: Strength = 1.0
    """Factor on the size of all these faults."""
    dispersion_share: Share = 0.0
    """Share of those samples whose dispersion is not quite the nominal one either."""
    per_band_share: Share = 0.0
    """Share of the steps whose masks have a plane per band, sharper in some than in others."""
    told_share: Share = 0.7
    """With faults: share of all samples for which the network is given how far the mask is off."""


@dataclass(frozen=True)
class CameraConfig:
    """The camera that measures the crops."""

    bands: Count = BANDS
    """Spectral bands."""
    step: float = STEP
    """Pixels a band."""
    offsets: tuple[float, ...] = ()
    """Where each band lands in pixels, instead of equal steps; empty: `step` says it."""
    wavelengths: tuple[float, ...] = ()
    """Centre of each band in nm; empty: the field's for 28 bands, else equal steps between."""
    design: str = "single"
    """One disperser ("single") or two ("dual"). The axis does not matter: frames are turned."""
    spread: tuple[float, float] = (1.0, 1.0)
    """Factors between which the spectrum is spread more or less far, another one in a share of the
    steps: for a network that serves many cameras (`optics.varied_prism`)."""
    bend: Strength = 0.0
    """Most by which it is bent in those steps, as a share of its length: 0.1 makes steps of 2 px
    2.8 px at one end and 1.2 px at the other."""
    jitter: BelowOne = 0.0
    """Most by which each band is displaced in those steps, as a share of half the way to
    its neighbour."""
    varied_share: Share = 0.5
    """Share of the steps that have another prism than the nominal one."""
    more_bands: tuple[int, ...] = ()
    """Other band counts, cut from the same spectrum, for networks that serve any; each of them is
    compiled by itself, so name few."""
    more_bands_share: Share = 0.25
    """With these: share of the steps that have one of them."""

    @property
    def is_varied(self) -> bool:
        """Whether steps differ in the camera."""
        return self.spread != (1.0, 1.0) or self.bend != 0 or self.jitter != 0

    def __post_init__(self) -> None:
        choose(self.design, ("single", "dual"), "camera.design")
        for name, listed in (("offsets", self.offsets), ("wavelengths", self.wavelengths)):
            if listed and len(listed) != self.bands:
                raise ConfigError(
                    f"camera.{name} lists {len(listed)} numbers, camera.bands says {self.bands}: "
                    "one for each band is needed."
                )
        if any(count < 1 for count in self.more_bands):
            raise ConfigError(
                f"camera.more_bands = {list(self.more_bands)}: every count must be at least 1."
            )


@dataclass(frozen=True)
class ModelConfig:
    """The backbone f_θ."""

    backbone: str = "srn"
    """A name that `prismask models` lists."""
    inputs: tuple[str, ...] = ()
    """What it sees; empty: the backbone's own choice."""
    options: dict[str, Any] = field(default_factory=dict)
    """Passed to the backbone (width, blocks, …)."""
    start_from: str = ""
    """Weights to go on from instead of random ones: a name of `prismask models`, or a file. More
    training, or another camera."""


@dataclass(frozen=True)
class LossConfig:
    """ℓ and the entropy term of L."""

    kind: str = "l2"
    """"l2": squared error (the paper); "rmse": its root, sample by sample; "l1": absolute error;
    "log": the logarithm of each sample's squared error over its own energy, as PSNR counts."""
    stage_decay: Share = 0.0
    """For networks that say something at every stage: a stage weighs this factor less than the next
    (0.7: 1, 0.7, 0.49 … from the end); 0: the last alone."""
    mask_weight: Strength = 0.0
    """For networks that estimate the mask too: weight of what is left of its error
    (`training.losses`)."""
    teacher: str = ""
    """Trained weights from whose cubes the network learns besides the truth: a name of `prismask
    models`, or a file (`training.teacher`); empty: none."""
    teacher_weight: Strength = 1.0
    """Weight of the loss against the teacher's cube, compared with 1 for the truth; 0: none."""
    adversarial: Strength = 0.0
    """Weight of a discriminator's opinion in θ's loss (λ-net: 0.01); 0: no discriminator."""
    beta: Strength = 1e-5
    """Weight β of the entropy term in φ-phases."""
    entropy_sign: str = "paper"
    """"paper" (+β·H, as printed) pulls g towards 0; "elbo" (−β·H) keeps it open: docs/method.md."""


@dataclass(frozen=True)
class OptimizerConfig:
    """What makes steps of gradients; φ always has Adam."""

    kind: str = "adam"
    """"adam" (the paper), or "muon": Muon on hidden matrices and convolutions, AdamW on the rest at
    `schedule.theta_rate` (`training.optimizers`)."""
    muon_rate: Rate = 4e-3
    """Learning rate of Muon."""
    momentum: BelowOne = 0.95
    """Momentum of Muon."""
    ramp_steps: CountOrNone = 0
    """Steps over which all rates rise linearly at the start."""

    def __post_init__(self) -> None:
        choose(self.kind, ("adam", "muon"), "optimizer.kind")


@dataclass(frozen=True)
class ScheduleConfig:
    """How long, in which order, at which learning rates."""

    mode: str = "bilevel"
    """"bilevel"; "joint" (φ and θ together on ℓ, training set); "plain" (θ only)."""
    batch: Count = 8
    """Crops a step, over all processes."""
    epoch_crops: Count = 1000
    """Crops an epoch."""
    epochs: Count = 300
    """Epochs in all, those of both phases counted; ignored with a budget."""
    warmup_epochs: CountOrNone = 20
    """Epochs of θ alone on unperturbed masks before alternating."""
    theta_epochs: Count = 5
    """Epochs of a θ-phase."""
    phi_epochs: CountOrNone = 3
    """Epochs of a φ-phase."""
    theta_rate: Rate = 4e-4
    """Learning rate of θ."""
    phi_rate: Rate = 1e-5
    """Learning rate of φ."""
    halve_every: Count = 50
    """Epochs after which both rates halve; with a budget they follow a cosine instead."""
    budget: str = ""
    """Wall-clock time such as "12min" or "90s": anneal to the end and stop when it is up."""
    hold: BelowOne = 0.0
    """With a budget: share of it at the full rates before they go down. A training that is to go on
    later (`model.start_from`) loses nothing where it was held."""
    clip_gradient: Strength = 0.0
    """Largest norm of θ's gradient, of what Adam trains of it; 0: unlimited. Muon's steps do not
    depend on it."""


@dataclass(frozen=True)
class SpeedConfig:
    """How it is computed."""

    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:1", "mps"."""
    precision: str = "auto"
    """"float32", "bf16", or "auto": bf16 on CUDA, float32 elsewhere."""
    compile: bool = False
    """`torch.compile` the network; pays from a few minutes of training on."""
    graphs: bool = False
    """On CUDA: replay the whole step (network, gradients, optimisers, average) as one CUDA graph,
    so that small crops do not wait for Python. One process only, and no adversary."""
    batches_at_once: Count = 1
    """Batches that are made together. On CUDA making one costs hundreds of small kernels, whatever
    its size: 4 take hardly longer than one. One process and a mask per sample only."""
    ema: Decay = 0.0
    """Decay of an exponential average of θ that is validated and kept; 0: off."""


@dataclass(frozen=True)
class OutputConfig:
    """What is kept."""

    checkpoint_every: Count = 10
    """Epochs between checkpoints."""
    validate_every: CountOrNone = 10
    """Epochs between validations; 0: at the end only."""
    keep_every: CountOrNone = 0
    """Epochs between (averaged) weights that are kept in snapshots/, to see later how a network
    came along; 0: none."""
    log_every: Count = 20
    """Steps between lines of metrics.jsonl."""
    compact: bool = False
    """Checkpoints in a third of the space, which resume almost exactly (`training.checkpoint`)."""
    tensorboard: bool = False
    """Also write TensorBoard event files (needs the package tensorboard)."""


@dataclass(frozen=True)
class TrainConfig:
    """A whole run."""

    name: str = "run"
    """Name of the run; part of the records it leaves."""
    seed: CountOrNone = 0
    """One seed reproduces the run."""
    data: DataConfig = DataConfig()
    masks: MaskConfig = MaskConfig()
    camera: CameraConfig = CameraConfig()
    model: ModelConfig = ModelConfig()
    posterior: PosteriorConfig = field(default_factory=PosteriorConfig)
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    speed: SpeedConfig = SpeedConfig()
    output: OutputConfig = OutputConfig()

    def __post_init__(self) -> None:
        choose(self.data.source, ("cave", "synthetic"), "data.source")
        choose(self.data.resampling, ("linear", "cubic"), "data.resampling")
        choose(self.masks.source, ("train", "single", "fabricated"), "masks.source")
        choose(self.masks.per, ("batch", "sample"), "masks.per")
        choose(self.loss.kind, KINDS, "loss.kind")
        choose(self.loss.entropy_sign, ("elbo", "paper"), "loss.entropy_sign")
        choose(self.schedule.mode, ("bilevel", "joint", "plain"), "schedule.mode")
        choose(self.speed.precision, ("auto", "float32", "bf16"), "speed.precision")
        learned = self.posterior.kind in ("gst", "conv")
        if self.schedule.mode != "plain" and not learned:
            raise ConfigError(
                f"schedule.mode {self.schedule.mode!r} trains a variance network, but "
                f"posterior.kind is {self.posterior.kind!r}: set posterior.kind to 'gst' or "
                "'conv', or schedule.mode to 'plain'."
            )
        if self.schedule.mode == "plain" and learned:
            raise ConfigError(
                f"posterior.kind {self.posterior.kind!r} needs schedule.mode 'bilevel' or 'joint'; "
                "'plain' would leave it untrained."
            )
        check_numbers(flatten(asdict(self)))
        if self.schedule.mode == "bilevel" and self.schedule.phi_epochs == 0:
            raise ConfigError(
                "schedule.phi_epochs is 0: schedule.mode 'bilevel' would leave the variance "
                "network untrained. Set it to 1 or more, or use posterior.kind 'fixed' or 'none' "
                "with schedule.mode 'plain'."
            )
        parse_budget(self.schedule.budget)
        if self.speed.batches_at_once > 1 and self.masks.per != "sample":
            raise ConfigError(
                f"speed.batches_at_once is {self.speed.batches_at_once}, which would give several "
                "steps the same mask: set masks.per = 'sample', or speed.batches_at_once = 1."
            )
        if self.masks.fault_share > 0 and self.masks.calibration_error > 0:
            raise ConfigError(
                "masks.fault_share has shifts among its faults; masks.calibration_error would be "
                "lost beside it. Set one of them to 0."
            )
        if self.speed.graphs and self.loss.adversarial > 0:
            raise ConfigError(
                "speed.graphs replays a step in which nothing but the batch changes; with "
                "loss.adversarial a discriminator learns in it too. Set speed.graphs = false."
            )


def in_half(config: TrainConfig, device: torch.device) -> bool:
    """Whether convolutions are computed in half precision on a device."""
    chosen = config.speed.precision
    return chosen == "bf16" or (chosen == "auto" and device.type == "cuda")


def parse_budget(text: str) -> float | None:
    """`"12min"`, `"90s"`, `"1.5h"` → seconds; empty → None."""
    if not text:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|min|h)\s*", text)
    if not found or float(found[1]) <= 0:
        raise ConfigError(f"budget {text!r} is not a time; write '90s', '12min' or '1.5h'.")
    return float(found[1]) * {"s": 1, "sec": 1, "min": 60, "h": 3600}[found[2]]


def read_config(path: Path | str, overrides: list[str] | tuple[str, ...] = ()) -> TrainConfig:
    """Read a TOML file, apply `key=value` overrides (`schedule.batch=4`), check everything."""
    table = read_table(Path(path))
    for text in overrides:
        override(table, text)
    return from_table(table, str(path))


def from_table(table: dict[str, Any], origin: str = "configuration") -> TrainConfig:
    """A checked configuration from nested dictionaries."""
    config: TrainConfig = build(TrainConfig, table, origin)
    return config


def to_toml(config: TrainConfig) -> str:
    """The resolved configuration as TOML."""
    lines, tables = [], []
    for key, value in asdict(config).items():
        if isinstance(value, dict):
            body = [f"{k} = {toml_value(v)}" for k, v in value.items()]
            tables.append("\n".join([f"[{key}]", *body]))
        else:
            lines.append(f"{key} = {toml_value(value)}")
    return "\n\n".join(["\n".join(lines), *tables]) + "\n"


def difference(one: TrainConfig, other: TrainConfig) -> list[str]:
    """Dotted keys whose values differ, with both values."""
    first, second = flatten(asdict(one)), flatten(asdict(other))
    return [
        f"{key}: {first.get(key)!r} → {second.get(key)!r}"
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key)
    ]


def with_changes(config: TrainConfig, **tables: dict[str, Any]) -> TrainConfig:
    """A copy with some keys of some tables replaced."""
    changed = {name: replace(getattr(config, name), **keys) for name, keys in tables.items()}
    return replace(config, **changed)


def _limits(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, Limit]]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if is_dataclass(hint) and isinstance(hint, type):
            yield from _limits(hint, f"{prefix}{name}.")
        for limit in getattr(hint, "__metadata__", ()):
            yield f"{prefix}{name}", limit


LIMITS = dict(_limits(TrainConfig))
"""By dotted key. `camera.step` and the posterior's numbers are judged by what is built of them."""
RANGES = ("data.scale", "data.brightness", "data.noise_std", "camera.spread")
"""Keys that are a lower and an upper end."""


def check_numbers(values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for the first of these values, by dotted key, that cannot be."""
    for key, limit in LIMITS.items():
        value = values[key]
        if not limit.fits(value):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            raise ConfigError(f"{key} is {shown}; it must be {limit.words}.")
    if min(values["data.crop"]) < 1:
        raise ConfigError(f"data.crop is {list(values['data.crop'])}; each side is at least 1.")
    for key in RANGES:
        low, high = values[key]
        if not 0 <= low <= high < math.inf:
            raise ConfigError(
                f"{key} = [{low:g}, {high:g}]: the first number is the lower end, neither is "
                "negative, and both are finite."
            )
