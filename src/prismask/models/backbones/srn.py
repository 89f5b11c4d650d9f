"""SRN, the residual backbone f_θ of the paper (its v1: no rescaling pairs), and srn-looks.

head CONV → 16 blocks x + CONV(ReLU(CONV(x))) → CONV, skip over all of it → tail CONV, all 3×3.
"""

from __future__ import annotations

from torch import Tensor, nn

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.models.layers import conv3x3, conv_aligned, conv_then_relu, in_dtype_of
from prismask.models.registry import register
from prismask.optics.camera import CASSI


class ResidualBlock(nn.Module):
    """x + CONV(ReLU(CONV(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv3x3(channels, channels)
        self.second = conv3x3(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        out: Tensor = self.second(conv_then_relu(self.first, x))
        # In its own place: another trip through memory costs a CPU half as much as a convolution.
        return out.add_(x) if out.dtype == x.dtype else out + x


@register(
    "srn", paper="Wang et al. 2021, SSI-ResU-Net v1", inputs=("backprojection",), speed="fast"
)
class SRN(nn.Module):
    """The lightweight residual network; 1,250,972 parameters at 28 bands.

    start: "xavier" (uniform, gain 1: the paper), under which sixteen blocks begin by enlarging
        their input about 25 times, or "torch" (smaller weights), which learns faster at first.
    """

    io_layers: tuple[str, ...] = ("head.*", "tail.*")

    def __init__(
        self, planes: int, bands: int, width: int = 64, blocks: int = 16, start: str = "xavier"
    ) -> None:
        super().__init__()
        choose(start, ("xavier", "torch"), "start of SRN")
        self.head = conv3x3(planes, width)
        self.body = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.after_body = conv3x3(width, width)
        self.tail = conv3x3(width, bands)
        if start == "xavier":
            self.apply(xavier_uniform)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → cube `(B, C, H, W)`."""
        shallow = conv_aligned(self.head, x)
        return conv_aligned(self.tail, shallow + self.after_body(self.body(shallow)))


def xavier_uniform(module: nn.Module) -> None:
    """Xavier-uniform weights with gain 1 and zero biases, as the paper initialises."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.xavier_uniform_(module.weight, gain=1.0)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


# --- SRN that looks at the snapshot again between its blocks --------------------------------------
#
# SRN sees the snapshot once, at its head; sixteen blocks later nothing keeps its cube true to what
# was measured. Here a few of the blocks are preceded by a look: an estimate x̂ is read from the
# features, the camera says what the snapshot has and x̂ does not explain, and that goes back,
#
#     h ← h + CONV(Aᵀ (A Aᵀ + ε)⁻¹ (y − A x̂)),    x̂ = CONV(h).
#
# The camera is exact for any mask, so less of it has to be learned. The first convolution starts
# near zero: an SRN given looks computes what it computed before, and its training can go on. So
# does one that looks twice as often (`halfway`): looks in between come last in the list, the others
# keep their weights.


DARK = 0.1
"""ε, small compared with Σ_λ m² of lit pixels: where hardly any arrives, noise is not blown up."""


class Look(nn.Module):
    """What the snapshot still has to say to the features."""

    def __init__(self, width: int, bands: int) -> None:
        super().__init__()
        self.read = conv3x3(width, bands)
        self.tell = conv3x3(bands, width)
        nn.init.normal_(self.tell.weight, std=1e-4)
        if self.tell.bias is not None:
            nn.init.zeros_(self.tell.bias)

    def forward(
        self, x: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI, gram: Tensor
    ) -> Tensor:
        """Features `(B, F, H, W)` → the same; `gram (B|1, H, L)` is A Aᵀ + ε."""
        # In float32: what is left of the snapshot is far smaller than it.
        estimate = conv_aligned(self.read, x).float()
        unexplained = measurement - camera.forward(estimate, mask)
        hint = in_dtype_of(self.tell, camera.adjoint(unexplained / gram, mask))
        return x + conv_aligned(self.tell, hint)


@register(
    "srn-looks",
    paper="Prismask; the body is Wang et al. 2021, SSI-ResU-Net v1",
    inputs=("backprojection",),
    speed="fast",
)
class LookingSRN(SRN):
    """SRN with the camera inside; 1,380,364 parameters at 28 bands and four looks."""

    wants_physics = True
    grows_from = "srn"
    io_layers = (*SRN.io_layers, "looks.*")

    def __init__(
        self,
        planes: int,
        bands: int,
        width: int = 64,
        blocks: int = 16,
        looks: int = 4,
        halfway: bool = False,
        start: str = "torch",
    ) -> None:
        super().__init__(planes, bands, width, blocks, start)
        most = blocks // 2 if halfway else blocks
        if not 1 <= looks <= most:
            raise ConfigError(
                f"{looks} looks{', and as many halfway,' if halfway else ''} do not fit between "
                f"{blocks} blocks; take 1 to {most}."
            )
        spacing = blocks // looks
        # The last look leaves one block to make use of it.
        places = [blocks - 1 - spacing * (looks - 1 - look) for look in range(looks)]
        if halfway:
            places += [place - spacing // 2 for place in places]
        self.places = tuple(places)
        self.looks = nn.ModuleList(Look(width, bands) for _ in self.places)

    def forward(  # type: ignore[override]  # a backbone with the camera inside is called with it
        self, x: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI
    ) -> Tensor:
        """`(B, planes, H, W)` and the snapshot → cube `(B, C, H, W)`."""
        gram = camera.gram_bound(mask) + DARK
        shallow = features = conv_aligned(self.head, x)
        looks = dict(zip(self.places, self.looks, strict=True))
        for place, block in enumerate(self.body):
            if place in looks:
                features = looks[place](features, measurement, mask, camera, gram)
            features = block(features)
        return conv_aligned(self.tail, shallow + self.after_body(features))
