"""SRN that looks at the snapshot again between its blocks.

SRN sees the snapshot once, at its head; sixteen blocks later nothing keeps its cube true to what
was measured. Here a few of the blocks are preceded by a look: an estimate x̂ is read from the
features, the camera says what the snapshot has and x̂ does not explain, and that goes back,

    h ← h + CONV(Aᵀ (A Aᵀ + ε)⁻¹ (y − A x̂)),    x̂ = CONV(h).

The camera is exact for any mask, so less of it has to be learned. The first convolution starts
near zero: an SRN given looks computes what it computed before, and its training can go on. So does
one that looks twice as often (`halfway`): looks in between come last in the list, the others keep
their weights.
"""

from __future__ import annotations

from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.models.backbones.srn import SRN
from prismask.models.layers import conv3x3, conv_aligned, in_dtype_of
from prismask.models.registry import register
from prismask.optics.camera import CASSI

DARK = 0.1
"""ε, small beside Σ_λ m² of lit pixels: where hardly any light arrives, noise is not blown up."""


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
        # In float32: what is left of the snapshot is small beside the snapshot.
        estimate = conv_aligned(self.read, x).float()
        unexplained = measurement - camera.forward(estimate, mask)
        told = in_dtype_of(self.tell, camera.adjoint(unexplained / gram, mask))
        return x + conv_aligned(self.tell, told)


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
