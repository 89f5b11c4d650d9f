"""The fused convolution is the plain one, forward and backward, also where cuDNN is absent."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from prismask.models import layers

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def test_operator_laws() -> None:
    """Schema, fake tensors and autograd registration agree with what it computes."""
    x = torch.rand(2, 8, 6, 7, requires_grad=True)
    weight = torch.rand(8, 8, 3, 3, requires_grad=True)
    bias = torch.rand(8, requires_grad=True)
    torch.library.opcheck(layers._conv_relu, (x, weight, bias))


def test_gradients_equal_the_plain_ones() -> None:
    torch.manual_seed(0)
    values = [torch.randn(s, dtype=torch.float64) for s in ((2, 8, 6, 7), (8, 8, 3, 3), (8,))]
    ours = [v.clone().requires_grad_() for v in values]
    plain = [v.clone().requires_grad_() for v in values]
    out = layers._conv_relu(*ours)
    reference = F.relu(F.conv2d(plain[0], plain[1], plain[2], padding=1))
    assert torch.allclose(out, reference)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    (reference * weights).sum().backward()
    for one, other, tolerance in zip(ours, plain, (1e-10, 1e-10, 1e-4), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=tolerance)


def test_padding_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "uses_tensor_cores", lambda x: True)
    torch.manual_seed(0)
    conv = nn.Conv2d(5, 11, 3, padding=1)
    x = torch.rand(2, 5, 9, 8)
    assert torch.allclose(layers.conv_aligned(conv, x), conv(x), atol=1e-6)
    layers.conv_aligned(conv, x).square().sum().backward()
    padded = [p.grad.clone() for p in conv.parameters() if p.grad is not None]
    conv.zero_grad()
    conv(x).square().sum().backward()
    for one, parameter in zip(padded, conv.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.allclose(one, parameter.grad, atol=1e-3)
