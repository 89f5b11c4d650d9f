"""The self-tuning network against its explicit graph, and the posterior's laws."""

from __future__ import annotations

import math

import pytest
import torch

from prismask.errors import ConfigError
from prismask.models.posterior import (
    ConvAttention,
    GraphAttention,
    MaskPosterior,
    PosteriorConfig,
    SelfTuning,
    entropy,
    entropy_term,
    perturb,
    prior_noise,
)
from prismask.models.registry import count_parameters


def test_linear_graph_equals_the_explicit_one() -> None:
    """Build E = H₁ᵀH₂ with its (HW)² entries and compare."""
    torch.manual_seed(0)
    attention = GraphAttention(6).double()
    features = torch.rand(2, 6, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        first = attention.to_first(features).flatten(2)
        second = attention.to_second(features).flatten(2)
        edges = first.transpose(1, 2) @ second  # (B, 256, 256)
        assert edges.shape == (2, 256, 256)
        nodes = features.flatten(2).transpose(1, 2)  # Mᵀ
        explicit = torch.sigmoid(edges @ nodes / 256 @ attention.weight.weight.T)
        explicit = explicit.transpose(1, 2).reshape(features.shape)
        assert torch.allclose(attention(features), explicit, rtol=0, atol=1e-12)


def test_graph_sees_far_pixels_and_convolutions_do_not() -> None:
    torch.manual_seed(0)
    mask = torch.rand(1, 1, 24, 24)
    changed = mask.clone()
    changed[..., -1, -1] = 1 - changed[..., -1, -1].round()
    for graph, expected in ((True, True), (False, False)):
        network = SelfTuning(graph=graph).double()
        moved = network(mask.double()) - network(changed.double())
        assert bool(moved[0, 0, 0, 0].abs() > 0) is expected


@pytest.mark.parametrize("graph", [True, False])
def test_starts_small_against_the_mask(graph: bool) -> None:
    mask = (torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(1)) > 0.5).float()
    for seed in range(5):
        torch.manual_seed(seed)
        std = SelfTuning(graph=graph, initial_std=0.05)(mask).detach()
        assert float(std.min()) > 0
        assert float(std.max()) < 0.2
        assert float(std.mean()) == pytest.approx(0.05, rel=0.6)


def test_without_graph_has_at_least_its_size() -> None:
    assert count_parameters(ConvAttention(36)) >= count_parameters(GraphAttention(36))


def test_half_precision_around_it_changes_nothing() -> None:
    """A sum over 65 536 bright pixels overflowed float16 once."""
    torch.manual_seed(0)
    network = SelfTuning()
    mask = torch.ones(1, 1, 256, 256)
    with torch.no_grad():
        network.embed[2].bias.fill_(3.0)
        plain = network(mask)
        with torch.autocast("cpu", torch.float16):
            inside = network(mask)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, plain)


def test_planes_are_looked_at_singly() -> None:
    torch.manual_seed(0)
    network = SelfTuning().double()
    masks = torch.rand(2, 3, 12, 15, dtype=torch.float64)
    together = network(masks)
    for batch in range(2):
        for band in range(3):
            alone = network(masks[batch, band][None, None])[0, 0]
            assert torch.allclose(together[batch, band], alone, atol=1e-12)


def test_sample_has_the_stated_mean_and_spread() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = prior_noise((400, 1, 32, 32), 0.006, 0.1, generator, torch.zeros(()))
    assert float(noise.mean()) == pytest.approx(0.006, abs=1e-3)
    assert float(noise.std()) == pytest.approx(0.1, rel=0.01)
    posterior = MaskPosterior(PosteriorConfig("fixed", 0.5, 1.0, 0.02))
    mask = torch.full((1, 1, 32, 32), 0.5)
    drawn, std = posterior.sample(mask, 300, generator)
    assert float(std.unique()) == pytest.approx(0.02)
    assert float(drawn.mean()) == pytest.approx(0.5 + 0.02 * 0.5, abs=1e-3)
    assert float(drawn.std()) == pytest.approx(0.02, rel=0.02)
    assert torch.allclose(posterior.mean(mask), torch.full_like(mask, 0.51))


def test_samples_differ_and_stay_in_range() -> None:
    posterior = MaskPosterior(PosteriorConfig("fixed", 0.0, 1.0, 0.5))
    mask = torch.tensor([[0.0, 1.0], [0.5, 0.5]])[None, None]
    drawn, _ = posterior.sample(mask, 64, torch.Generator().manual_seed(0))
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) <= 1
    assert len(drawn[:, 0, 1, 0].unique()) > 30
    again, _ = posterior.sample(mask, 64, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again)


def test_reparametrised_gradient() -> None:
    std = torch.full((1, 1, 2, 2), 0.1, requires_grad=True)
    noise = torch.tensor([[1.0, -2.0], [0.5, 100.0]])[None, None]
    perturb(torch.full((1, 1, 2, 2), 0.5), std, noise).sum().backward()
    assert std.grad is not None
    assert std.grad.flatten().tolist() == [1.0, -2.0, 0.5, 0.0]  # the last one is clamped


def test_entropy_of_a_gaussian_and_both_signs() -> None:
    std = torch.full((3, 3), 0.2, dtype=torch.float64, requires_grad=True)
    known = 0.5 * math.log(2 * math.pi * math.e * 0.2**2)
    assert float(entropy(std.detach())) == pytest.approx(known, abs=1e-12)
    for sign, direction in (("elbo", -1), ("paper", 1)):
        std.grad = None
        entropy_term(std, 0.1, sign).backward()
        # elbo pushes g up (negative gradient), the printed sign pulls it down
        assert torch.all(torch.sign(std.grad) == direction)
    with pytest.raises(ConfigError, match="entropy sign"):
        entropy_term(std, 0.1, "minus")


def test_wrong_settings() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'gst'"):
        PosteriorConfig("gts")
    with pytest.raises(ConfigError, match="nowhere to start"):
        PosteriorConfig("gst", initial_std=0.0)
    with pytest.raises(ConfigError, match="must lie in"):
        PosteriorConfig("fixed", initial_std=2.0)


def test_none_is_no_perturbation() -> None:
    posterior = MaskPosterior(PosteriorConfig("none"))
    mask = torch.rand(1, 1, 4, 4)
    assert not posterior.is_random
    assert torch.equal(posterior.mean(mask), mask)
    assert torch.equal(posterior.sample(mask, 1, torch.Generator())[0], mask)


def test_a_compiler_takes_it_in_one_piece_under_autocast() -> None:
    network = SelfTuning()
    # "eager" compiles nothing, but traces as every backend does, and breaks where they would.
    traced = torch.compile(network, dynamic=False, backend="eager", fullgraph=True)
    mask = torch.rand(2, 1, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(traced(mask), network(mask))


def test_a_std_that_has_shrunk_to_nothing_has_no_gradient_instead_of_an_infinite_one() -> None:
    std = torch.tensor([0.0, 1e-44, 1e-3], requires_grad=True)
    entropy_term(std, 0.1, "paper").backward()
    assert std.grad is not None
    assert torch.isfinite(std.grad).all()
    assert std.grad[2] > 0
