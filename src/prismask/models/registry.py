"""Backbones by name: `create_model("srn", mask_posterior="gst", bands=28)`.

A backbone is an `nn.Module` built as `Backbone(planes=…, bands=…, **options)` that maps
`(B, planes, H, W)` to `(B, C, H, W)`. One that contains the camera sets `wants_physics = True` and
is called with `(x, measurement, mask, camera)` instead. One that works from the snapshot itself
(`models.network.SnapshotBackbone`) is built as `Backbone(**options)`. Adding one is a file with a
`@register` line and its name in `_HOMES`.

Each names in `io_layers` (patterns of parameter names, as `fnmatch` reads them) what is no hidden
matrix: heads, tails, tables, gates. Optimisers that orthogonalise leave those to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.models.inputs import Observation, input_planes
from prismask.optics.camera import CASSI
from prismask.scenes.defaults import BANDS, SIZE

if TYPE_CHECKING:
    from prismask.models.network import Reconstructor

_HOMES = {
    "srn": "prismask.models.backbones.srn",
    "srn-looks": "prismask.models.backbones.srn",
    "swinir": "prismask.models.backbones.swinir",
    "spectral-vit": "prismask.models.backbones.spectral_vit",
    "tsa-net": "prismask.models.backbones.tsa_net",
    "lambda-net": "prismask.models.backbones.lambda_net",
    "gsm": "prismask.models.backbones.gsm",
    "hssp": "prismask.models.backbones.hssp",
    "lumen": "prismask.models.backbones.lumen",
}
"""Where each backbone lives; its module is imported when it is first used."""

WITHOUT_PLANES = frozenset({"lumen"})
"""Backbones that work from the snapshot itself: they have no input planes, and no `+` variant."""

PLUS_INPUTS = ("backprojection", "normalised", "mask")
"""What a `name+` variant sees: the mask's throughput divided out, and the mask itself."""


Speed = Literal["fast", "medium", "slow", "unmeasured"]
SPEEDS: dict[Speed, float] = {"fast": 3.0, "medium": 10.0, "slow": math.inf}
"""Classes of networks: below how many milliseconds a snapshot (256×256, 28 bands) on one H200."""


@dataclass(frozen=True)
class Backbone:
    """A registered backbone."""

    name: str
    build: Callable[..., nn.Module]
    paper: str
    """Where it was published."""
    inputs: tuple[str, ...]
    """What it sees by default (names of `models.inputs.INPUTS`)."""
    speed: Speed = "unmeasured"
    """How long a snapshot of 256×256 and 28 bands takes, see `SPEEDS`."""

    @property
    def summary(self) -> str:
        """What it is, in one line: the first of its docstring."""
        return (getdoc(self.build) or self.name).splitlines()[0]

    @property
    def grows_from(self) -> str:
        """A smaller backbone whose training it can go on with; itself if there is none."""
        return str(getattr(self.build, "grows_from", self.name))

    @property
    def wants_physics(self) -> bool:
        """Whether it is also given the measurement, the mask and the camera."""
        return bool(getattr(self.build, "wants_physics", False)) or self.works_from_snapshot

    @property
    def works_from_snapshot(self) -> bool:
        """Whether it is given these and nothing else, with a camera of any band count."""
        return bool(getattr(self.build, "works_from_snapshot", False))

    def sizes(self, inputs: Sequence[str], bands: int) -> dict[str, int]:
        """What it has to know of its inputs and outputs when it is built."""
        if not self.works_from_snapshot:
            return {"planes": input_planes(inputs, bands), "bands": bands}
        if inputs:
            raise ConfigError(
                f"backbone {self.name!r} works from the snapshot itself and has no input planes, "
                f"but model.inputs lists {', '.join(inputs)}. Leave it empty, and the name "
                "without a +."
            )
        return {}


_BACKBONES: dict[str, Backbone] = {}


def register(
    name: str, *, paper: str, inputs: Sequence[str], speed: Speed = "unmeasured"
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Class decorator that makes a backbone known under `name`."""

    def keep(build: type[nn.Module]) -> type[nn.Module]:
        _BACKBONES[name] = Backbone(name, build, paper, tuple(inputs), speed)
        return build

    return keep


def backbone(name: str) -> Backbone:
    """The registered backbone called `name`, or an error with the nearest one."""
    if name not in _BACKBONES:
        import_module(_HOMES[choose(name, _HOMES, "backbone")])
    return _BACKBONES[name]


def list_models() -> list[str]:
    """All names that `create_model` takes."""
    known = {*_HOMES, *_BACKBONES}
    return sorted([*known, *(f"{name}+" for name in known - WITHOUT_PLANES)])


def create_model(
    name: str = "srn",
    *,
    bands: int = BANDS,
    mask_posterior: str = "none",
    inputs: Sequence[str] | None = None,
    posterior_options: dict[str, Any] | None = None,
    seed: int | None = None,
    **options: Any,
) -> Reconstructor:
    """Build a network with fresh weights.

    name: a backbone (`list_models()`); with a `+` it also sees the normalised back-projection
        and the mask.
    mask_posterior: "gst", "conv" (GST without its graph), "fixed", or "none".
    inputs: what the backbone sees, instead of its own default.
    posterior_options: prior and initial size of the mask perturbation
        (`models.posterior.PosteriorConfig`).
    seed: makes the weights reproducible without touching the global generator.
    options: passed to the backbone.
    """
    from prismask.models.network import Reconstructor
    from prismask.models.posterior import MaskPosterior, PosteriorConfig

    found = backbone(name.removesuffix("+"))
    if inputs is None:
        inputs = PLUS_INPUTS if name.endswith("+") else found.inputs
    sizes = found.sizes(inputs, bands)
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            network = found.build(**sizes, **options)
        except TypeError as error:
            raise ConfigError(f"backbone {name!r} does not take these options: {error}") from error
        posterior = MaskPosterior(PosteriorConfig(kind=mask_posterior, **(posterior_options or {})))
    record = {
        "backbone": name.removesuffix("+"),
        "bands": bands,
        "inputs": list(inputs),
        "options": options,
        "posterior": asdict(posterior.config),
    }
    return Reconstructor(network, posterior, tuple(inputs), record)


def from_record(record: dict[str, Any]) -> Reconstructor:
    """Rebuild the architecture a weights record describes, with fresh weights."""
    posterior = dict(record["posterior"])
    return create_model(
        record["backbone"],
        bands=int(record["bands"]),
        mask_posterior=posterior.pop("kind"),
        inputs=tuple(record["inputs"]),
        posterior_options=posterior,
        **record["options"],
    )


# --- parameters and multiply-adds, counted rather than estimated ----------------------------------


OPERATIONS = {"fast": 100e9, "medium": 300e9}
"""Most multiply-adds of a snapshot in each class; what needs more is "slow"."""


@dataclass(frozen=True)
class Description:
    """What a table of networks says about one."""

    name: str
    summary: str
    """What it is, in one line."""
    paper: str
    """Where it was published."""
    inputs: tuple[str, ...]
    """What it sees (names of `models.inputs.INPUTS`)."""
    wants_physics: bool
    """Whether it also contains the camera."""
    parameters: int
    multiply_adds: int
    """Of one snapshot of the default size."""
    speed: str
    """"fast", "medium" or "slow", by multiply-adds; benchmarks/backbones.py has milliseconds."""


def describe(name: str) -> Description:
    """Facts about a network of `list_models()`, counted without computing anything."""
    found = backbone(name.removesuffix("+"))
    with torch.device("meta"):
        model = create_model(name)
    operations = count_multiply_adds(model, CASSI.from_step())
    speed = next((word for word, most in OPERATIONS.items() if operations <= most), "slow")
    return Description(
        name=name,
        summary=found.summary,
        paper=found.paper,
        inputs=model.inputs,
        wants_physics=found.wants_physics,
        parameters=count_parameters(model),
        multiply_adds=operations,
        speed=speed,
    )


def count_parameters(module: nn.Module) -> int:
    """Number of learnable values."""
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def count_multiply_adds(
    model: Reconstructor, camera: CASSI, size: tuple[int, int] = (SIZE, SIZE)
) -> int:
    """Multiply-adds of one snapshot of scene size `(H, W)`, mask posterior included.

    Runs on the meta device: shapes only, no arithmetic.
    """
    with torch.device("meta"):
        meta = from_record(model.record)
    mask = torch.empty(1, 1, *camera.mask_size(size), device="meta")
    measurement = torch.empty(1, *camera.measurement_size(size), device="meta")
    with FlopCounterMode(display=False) as counter:
        if meta.posterior.is_learned:
            meta.posterior.std(mask)
        # Given, because it cannot be estimated from numbers that are not there.
        seen = Observation(measurement, mask, camera, measurement.new_zeros(1))
        meta.reconstruct(seen)
    return int(counter.get_total_flops()) // 2
