"""Shrinking singular values: the proximal steps of rank minimisation, batched over matrices.

For X = U diag(s) Vᵀ every step here is U diag(f(s)) Vᵀ with a function f ≤ s of the singular
values. U is never needed: with the Gram matrix Xᵀ X = V diag(s²) Vᵀ it is

    X · V diag(f(s) / s) Vᵀ,

two products and the eigenvectors of a small symmetric matrix. Thousands of those are found at
once, on a GPU too, where singular values of as many slim matrices would take far longer. Singular
values below about 3·10⁻⁴ of the largest are lost in float32, but those are the ones that go.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Shrinkage = Callable[[Tensor], Tensor]
"""Singular values `(…, n)`, in any order, → what becomes of them."""


@torch.no_grad()
def shrink_singular_values(matrices: Tensor, shrinkage: Shrinkage) -> Tensor:
    """U diag(f(s)) Vᵀ for every one of `matrices (…, rows, columns)`."""
    rows, columns = matrices.shape[-2:]
    if rows < columns:
        return shrink_singular_values(matrices.mT, shrinkage).mT
    squares, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    values = squares.clamp_min(0).sqrt()
    # A singular value of 0 stays 0 whatever it is multiplied by.
    factors = shrinkage(values) / values.clamp_min(torch.finfo(values.dtype).tiny)
    # X · (V diag(f(s) / s) Vᵀ)
    shrunk: Tensor = matrices @ ((vectors * factors.unsqueeze(-2)) @ vectors.mT)
    return shrunk


def minimise_nuclear_norm(matrices: Tensor, weight: float | Tensor) -> Tensor:
    """argmin_Z ½ ‖Z − X‖² + weight · ‖Z‖_*: all singular values less `weight`, at least 0.

    weight: one number, or one a matrix `(…)`.
    """
    weights = torch.as_tensor(weight, dtype=matrices.dtype, device=matrices.device).unsqueeze(-1)
    return shrink_singular_values(matrices, lambda s: (s - weights).clamp_min(0))


def minimise_weighted_nuclear_norm(
    matrices: Tensor, noise: float | Tensor, strength: float = 1.0
) -> Tensor:
    """One weighted step: the weaker a singular value, the more is taken from it (Gu et al., 2014).

    noise: standard deviation σ of the entries' noise, one number or one a matrix `(…)`.
    """
    sigma = torch.as_tensor(noise, dtype=matrices.dtype, device=matrices.device)
    longer = max(matrices.shape[-2:])
    return shrink_singular_values(
        matrices, lambda s: weighted_shrinkage(s, longer * sigma.square(), strength)
    )


def weighted_shrinkage(values: Tensor, noise_power: Tensor, strength: float) -> Tensor:
    """max(s − w, 0) of singular values `(…, n)` with their own weights w.

    noise_power: P `(…)`, what noise adds to each squared singular value: σ² times the longer side
    of the matrix. The original writes √n · σ² for the weight's numerator; with P the same strength
    fits groups of every size.
    """
    power = noise_power.unsqueeze(-1)
    # ŝ = √max(s² − P, 0),   w = strength · P / (ŝ + ε)
    clean = (values.square() - power).clamp_min(0).sqrt()
    weights = (
        strength
        * power
        / (clean + _EPSILON * power.sqrt()).clamp_min(torch.finfo(values.dtype).tiny)
    )
    return (values - weights).clamp_min(0)


_EPSILON = 1e-3
"""ε in units of √P: bounds the weight of a singular value in which there is nothing but noise."""
