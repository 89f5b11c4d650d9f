"""A discriminator that tells cubes from reconstructions, and how it is trained alongside θ.

λ-net trains its generator against one: a few strided convolutions see a cube together with the
measurement at each band's place and say whether the cube is a scene. θ is rewarded for cubes that
pass; after every such step the discriminator learns from the same batch. Any backbone can be
trained so (`loss.adversarial`); φ never is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.training.distributed import World, average_gradients
from prismask.training.optimizers import Optimisers

WIDTHS = (64, 128, 256, 512)
MOMENTUM = 0.5
"""First decay of Adam: a moving opponent makes old gradients misleading."""


class Discriminator(nn.Module):
    """A cube and its measurement → one logit a sample, positive for "a scene"."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, here in zip((2 * bands, *WIDTHS), WIDTHS, strict=False):
            layers += [nn.Conv2d(before, here, 3, stride=2, padding=1), nn.LeakyReLU(0.2)]
        self.judge = nn.Sequential(*layers, nn.Conv2d(WIDTHS[-1], 1, 1))

    def forward(self, cube: Tensor, seen: Tensor) -> Tensor:
        """`(B, C, H, W)` twice → `(B,)`, the mean over all places."""
        logits: Tensor = self.judge(torch.cat([cube, seen], dim=1))
        return logits.mean((1, 2, 3))


class Adversary:
    """The discriminator and its optimiser."""

    def __init__(self, bands: int, rate: float, seed: int, device: torch.device) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = Discriminator(bands).to(device)
        fused = device.type == "cuda"
        optimiser = Adam(self.network.parameters(), lr=rate, betas=(MOMENTUM, 0.999), fused=fused)
        self.optimiser = Optimisers([(optimiser, rate)])

    def objection(self, estimate: Tensor, measurement: Tensor, camera: CASSI) -> Tensor:
        """What θ pays for reconstructions that do not pass."""
        self.network.requires_grad_(False)
        return F.softplus(-self.network(estimate.float(), _seen(measurement, camera))).mean()

    def learn(
        self, estimate: Tensor, truth: Tensor, measurement: Tensor, camera: CASSI, world: World
    ) -> None:
        """One step on this batch's reconstructions and scenes."""
        self.network.requires_grad_(True)
        seen = _seen(measurement, camera)
        passes, fails = self.network(truth, seen), self.network(estimate.float(), seen)
        loss = F.softplus(-passes).mean() + F.softplus(fails).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(self.network.parameters(), world)
        self.optimiser.step()
        self.optimiser.zero_grad()


def _seen(measurement: Tensor, camera: CASSI) -> Tensor:
    return camera.unshear(measurement * network_scale(camera.bands))
