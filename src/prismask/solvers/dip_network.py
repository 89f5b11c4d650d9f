"""The untrained network of PnP-DIP: an hourglass of convolutions with skip connections.

Fitted to one snapshot it draws shapes that repeat and edges that the bands share long before it
draws what the wrong bands leave behind: its structure is the prior. Nothing in it was learnt from
other scenes.

What it sees is noise alone. Shown the first cube as well it is ahead for some hundred steps,
but keeps that cube's faults for good: 2 dB behind after 1500 steps on one of two scenes, 0.3 dB
ahead on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models.replay import capture

INPUT_CHANNELS = 32
"""Planes of fixed noise that the network turns into a cube."""
SKIP_CHANNELS = 16
"""What passes from the way down to the way up on each level; few, so that the depth counts."""
LEAST_SIDE = 4
"""Shortest side of the deepest level in pixels: statistics over fewer say nothing."""
WARM_UP = 3
"""Steps before a recording: the first ones allocate what the later ones use again."""


class Hourglass(nn.Module):
    """`(1, INPUT_CHANNELS, H, W)` → `(1, bands, H, W)` in 0 … 1, for any size."""

    def __init__(self, bands: int, width: int, levels: int) -> None:
        super().__init__()
        self.head = _block(INPUT_CHANNELS, width)
        self.downs = nn.ModuleList(
            nn.Sequential(_block(width, width, stride=2), _block(width, width))
            for _ in range(levels)
        )
        self.skips = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, SKIP_CHANNELS, 1), nn.LeakyReLU(0.2))
            for _ in range(levels)
        )
        self.ups = nn.ModuleList(
            nn.Sequential(_block(width + SKIP_CHANNELS, width), _block(width, width))
            for _ in range(levels)
        )
        self.tail = nn.Conv2d(width, bands, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Down by two on each level (sizes rounded up), and up again to the sizes kept."""
        x = self.head(x)
        kept = []
        for down, skip in zip(self.downs, self.skips, strict=True):
            kept.append(skip(x))
            x = down(x)
        for up in self.ups:
            beside = kept.pop()
            x = F.interpolate(x, size=beside.shape[-2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([beside, x], dim=1))
        # In half precision a bright pixel would be rounded by 0.4 %.
        with torch.autocast(x.device.type, enabled=False):
            return torch.sigmoid(self.tail(x.float()))


class Repeated:
    """Repeats one step that takes no arguments and returns nothing.

    On CUDA it is recorded after `WARM_UP` calls and replayed from then on: Python needs several
    times as long to start the kernels of a step as the GPU to run them. The step has to work on
    the same tensors every time and must not ask for their values. Steps of several are done at
    the same time where they are called within `apart`, until `join`.
    """

    def __init__(self, device: torch.device) -> None:
        self._calls = 0
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch's own
        self._graph: torch.cuda.CUDAGraph | None = None
        self.refusals: list[str] = []
        """Why the step could not be recorded; it is done as it is then."""

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is started within runs on a stream of its own, after all that was started before."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What is started from here on waits for what was done apart."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def __call__(self, step: Callable[[], None]) -> None:
        """Do the step once, on the stream of `apart`."""
        self._calls += 1
        if self._stream is not None and self._calls == WARM_UP + 1:
            # Where this fails it is not tried again.
            self._graph = capture(step, self._stream, self.refusals.append)
        if self._graph is not None:
            self._graph.replay()
        else:
            step()


def levels_for(levels: int, height: int, width: int) -> int:
    """`levels`, or as many as leave the deepest one `LEAST_SIDE` pixels; at least 0."""
    side, fit = min(height, width), 0
    while fit < levels and (side + 1) // 2 >= LEAST_SIDE:
        side, fit = (side + 1) // 2, fit + 1
    return fit


def build_hourglass(
    bands: int, width: int, levels: int, size: tuple[int, int], seed: int, device: torch.device
) -> tuple[Hourglass, Tensor]:
    """A network with its seeded start and its fixed input `(1, INPUT_CHANNELS, H, W)`.

    Both are drawn on the CPU: the same seed is the same start on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Hourglass(bands, width, levels_for(levels, *size))
        noise = 0.1 * torch.rand(1, INPUT_CHANNELS, *size)
    # Convolutions in bf16 run on tensor cores in this layout.
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    network.to(device=device, memory_format=layout)  # type: ignore[call-overload]
    return network, noise.to(device=device, memory_format=layout)


def _block(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    # Statistics of the one image at hand: there is no other, and none is to be remembered.
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False),
        nn.BatchNorm2d(channels_out, track_running_stats=False),
        nn.LeakyReLU(0.2),
    )
