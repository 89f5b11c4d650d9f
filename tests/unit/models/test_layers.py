"""Shared layers against plainly written references."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.models.backbones import swinir
from prismask.models.backbones.gsm import VoxelFilter
from prismask.models.backbones.spectral_vit import ChannelAttention
from prismask.models.backbones.swinir import (
    WindowAttention,
    from_windows,
    pad_to_windows,
    relative_positions,
    shifted_window_mask,
    to_windows,
)
from prismask.models.backbones.tsa_net import neighbouring_bands
from prismask.models.layers import (
    ChannelNorm,
    ConvReLU,
    UNet,
    attend_few,
    make_norm,
    up_conv,
)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# --- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "window", "heads"), [((8, 12), 4, 3), ((6, 3), 3, 1)])
def test_windows_split_and_merge(size: tuple[int, int], window: int, heads: int) -> None:
    x = torch.rand(2, *size, heads * 5)
    split = to_windows(x, window, heads)
    assert torch.equal(from_windows(split, window, heads, size), x)
    columns = size[1] // window
    for number in range(split.shape[1] // heads):
        top, left = number // columns * window, number % columns * window
        for head in range(heads):
            cut = x[:, top : top + window, left : left + window, head * 5 : head * 5 + 5]
            assert torch.equal(split[:, number * heads + head], cut.flatten(1, 2))


def test_padding_repeats_the_border() -> None:
    x = torch.rand(1, 2, 5, 8)
    padded = pad_to_windows(x, 4)
    assert padded.shape == (1, 2, 8, 8)
    assert torch.equal(padded[:, :, :5], x)
    assert torch.equal(padded[:, :, 7], x[:, :, 4])
    assert pad_to_windows(padded, 4) is padded


@pytest.mark.parametrize(
    ("size", "window", "shift"), [((8, 12), 4, 2), ((9, 6), 3, 1), ((4, 4), 4, 2)]
)
def test_shifted_mask_lets_only_true_neighbours_meet(
    size: tuple[int, int], window: int, shift: int
) -> None:
    mask = shifted_window_mask(size, window, shift, torch.zeros(()))
    rows = torch.arange(size[0])[:, None].expand(size)
    columns = torch.arange(size[1])[None].expand(size)
    origin = torch.stack([rows, columns], dim=-1).roll((-shift, -shift), (0, 1))
    origin = to_windows(origin[None], window, 1)[0]
    for number, places in enumerate(origin.tolist()):
        for i, one in enumerate(places):
            for j, other in enumerate(places):
                near = all(abs(a - b) < window for a, b in zip(one, other, strict=True))
                # Rows of one window were contiguous in the frame unless the roll joined its ends.
                assert (mask[number, i, j] == 0) == (near and _same_side(one, other, shift))


def _same_side(one: list[int], other: list[int], shift: int) -> bool:
    return all((a < shift) == (b < shift) for a, b in zip(one, other, strict=True))


def test_relative_positions_are_differences() -> None:
    window = 3
    index = relative_positions(window)
    places = [(r, c) for r in range(window) for c in range(window)]
    seen: dict[int, tuple[int, int]] = {}
    for i, one in enumerate(places):
        for j, other in enumerate(places):
            difference = (one[0] - other[0], one[1] - other[1])
            assert seen.setdefault(int(index[i, j]), difference) == difference
    assert len(seen) == (2 * window - 1) ** 2


def naive_window_attention(layer: WindowAttention, x: Tensor) -> Tensor:
    """Pixel by pixel: each looks at those of its shifted window that lie beside it."""
    _, height, width, channels = x.shape
    window, shift, heads = layer.window, layer.shift, layer.heads
    per_head = channels // heads
    query, key, value = layer.to_parts(x).chunk(3, dim=-1)
    table = layer.position_scores.view(heads, 2 * window - 1, 2 * window - 1)
    out = torch.zeros_like(x)

    def home(r: int, c: int) -> tuple[int, int, bool, bool]:
        moved_r, moved_c = (r - shift) % height, (c - shift) % width
        return moved_r // window, moved_c // window, r < shift, c < shift

    def inside(place: int, length: int) -> int:
        return (place - shift) % length % window

    for r in range(height):
        for c in range(width):
            friends = [
                (a, b) for a in range(height) for b in range(width) if home(a, b) == home(r, c)
            ]
            for head in range(heads):
                part = slice(head * per_head, (head + 1) * per_head)
                scores = []
                for a, b in friends:
                    down = inside(r, height) - inside(a, height) + window - 1
                    across = inside(c, width) - inside(b, width) + window - 1
                    product = (query[:, r, c, part] * key[:, a, b, part]).sum(-1)
                    scores.append(product / math.sqrt(per_head) + table[head, down, across])
                weights = torch.softmax(torch.stack(scores, -1), -1)
                values = torch.stack([value[:, a, b, part] for a, b in friends], 1)
                out[:, r, c, part] = (weights[..., None] * values).sum(1)
    return layer.project(out)


@pytest.mark.parametrize("shift", [0, 1, 2])
@torch.no_grad()
def test_window_attention(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = WindowAttention(6, heads=2, window=4, shift=shift)
    layer.position_scores.normal_()
    x = torch.randn(2, 8, 12, 6)
    naive = naive_window_attention(layer, x)
    assert torch.allclose(layer(x), naive, atol=1e-5)
    monkeypatch.setattr(swinir, "WINDOWS_AT_ONCE", 4)
    assert torch.allclose(layer(x), naive, atol=1e-5), "a few windows at a time"
    monkeypatch.setattr(swinir, "uses_tensor_cores", lambda _: True)
    assert torch.allclose(layer(x), naive, atol=1e-5), "heads padded with zeros"


# --- attention between channels ------------------------------------------------------------------


@torch.no_grad()
def test_channel_attention() -> None:
    layer = ChannelAttention(6, heads=2)
    layer.sharpness.copy_(torch.tensor([0.5, 3.0]).view(2, 1, 1))
    x = torch.randn(2, 5, 7, 6)
    query, key, value = layer.to_parts(x).flatten(1, 2).chunk(3, dim=-1)  # (B, HW, C)
    out = torch.zeros_like(value)
    for head in range(2):
        for i in range(3 * head, 3 * head + 3):
            scores = []
            for j in range(3 * head, 3 * head + 3):
                cosine = F.cosine_similarity(query[..., i], key[..., j], dim=1)
                scores.append(cosine * layer.sharpness[head, 0, 0])
            weights = torch.softmax(torch.stack(scores, -1), -1)
            out[..., i] = (weights[:, None] * value[..., 3 * head : 3 * head + 3]).sum(-1)
    assert torch.allclose(layer(x), layer.project(out).view_as(x), atol=1e-5)


def test_few_tokens_attend_like_pytorchs() -> None:
    query, key, value = (torch.randn(2, 3, 6, n) for n in (4, 4, 50))
    expected = F.scaled_dot_product_attention(query, key, value, scale=0.7)
    assert torch.allclose(attend_few(query, key, value, 0.7), expected, atol=1e-5)


def test_neighbouring_bands_are_alike() -> None:
    cosine = neighbouring_bands(7, torch.zeros(()))
    assert torch.allclose(cosine.diagonal(), torch.ones(7))
    assert cosine[0, 6] == pytest.approx(0, abs=1e-6)
    assert torch.equal(cosine, cosine.T)
    assert (cosine[0, 1:] < cosine[0, :-1]).all()
    assert torch.equal(neighbouring_bands(1, torch.zeros(())), torch.ones(1, 1))


# --- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_filtering_along_an_axis(axis: int) -> None:
    cube, taps = torch.rand(2, 4, 5, 6), torch.randn(2, 7, 4, 5, 6)
    out = VoxelFilter(axis)(cube, taps)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in cube.shape)).tolist():
        total, norm = 0.0, 0.0
        for tap in range(7):
            other = list(place)
            other[axis] = min(max(place[axis] + tap - 3, 0), cube.shape[axis] - 1)
            weight = float(taps[place[0], tap, place[1], place[2], place[3]])
            total, norm = total + weight * float(cube[tuple(other)]), norm + weight**2
        assert float(out[tuple(place)]) == pytest.approx(total / math.sqrt(norm), abs=1e-5)


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("size", [(1, 1), (7, 12), (8, 8)])
def test_unet_keeps_any_size(pool: str, size: tuple[int, int]) -> None:
    convs = [ConvReLU(*channels) for channels in ((2, 4), (4, 8), (8, 8))]
    ups, decoders = [up_conv(8, 8), up_conv(8, 4)], [ConvReLU(16, 8), ConvReLU(8, 3)]
    network = UNet(convs, ups, decoders, pool)
    assert network(torch.rand(1, 2, *size)).shape == (1, 3, *size)


def test_mean_pool_of_an_odd_frame_ignores_what_is_not_there() -> None:
    network = UNet([], [], [], "mean")
    assert torch.equal(network._halved(torch.ones(1, 1, 5, 3)), torch.ones(1, 1, 3, 2))


def test_norms() -> None:
    x = torch.randn(2, 6, 3, 4)
    centred = x - x.mean(1, keepdim=True)
    expected = centred / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(ChannelNorm(6)(x), expected, atol=1e-5)
    assert isinstance(make_norm("batch", 6), torch.nn.BatchNorm2d)
