"""How θ and φ learn: Adam, or Muon on the hidden matrices with AdamW on everything else.

Muon (Jordan et al., 2024) replaces the momentum of a matrix by the nearest matrix whose singular
values are all about one, so that every direction of a layer learns at the same pace:

    B ← μ B + (1 − μ) G,    U = NS₅((1 − μ) G + μ B),    W ← W − α √max(1, rows/columns) U.

A convolution is the matrix `(out, in·k·k)`. Heads, tails, norms, biases and tables are not maps
between hidden features; they are left to AdamW.

PyTorch's own `torch.optim.Muon` takes two-dimensional weights one at a time at a rate held in
Python. Here kernels of one shape share one batched product, which is most of the speed of small
networks, and the rate may be a number on the device, which a CUDA graph needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from prismask.errors import ConfigError
from prismask.training.config import OptimizerConfig

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic a·s + b·s³ + c·s⁵; five rounds bring singular values to 0.7 … 1.2."""
ROUNDS = 5


def orthogonalised(matrices: Tensor) -> Tensor:
    """Newton–Schulz on a stack `(N, rows, columns)`: same singular vectors, values near one.

    In bfloat16 on CUDA, where that is what the tensor cores multiply; elsewhere as given.
    """
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    upright: Tensor = x if wide else x.mT
    return upright.to(matrices.dtype)


class Muon(Optimizer):
    """Momentum, orthogonalised; for weights of two or more dimensions."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float | Tensor, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim < 2:
                    raise ConfigError(
                        f"Muon takes matrices and convolutions; a parameter of shape "
                        f"{tuple(parameter.shape)} is neither. Leave it to AdamW."
                    )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            stacks: dict[tuple[int, int], list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    stacks.setdefault(matrix_shape(parameter), []).append(parameter)
            for shape, parameters in stacks.items():
                self._step_stack(shape, parameters, group["lr"], group["momentum"])

    def _step_stack(
        self,
        shape: tuple[int, int],
        parameters: list[nn.Parameter],
        rate: float | Tensor,
        momentum: float,
    ) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        buffers = [self._momentum(p) for p in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        stack = torch.stack([as_matrix(update) for update in ahead])
        step = orthogonalised(stack) * (-rate * math.sqrt(max(1.0, shape[0] / shape[1])))
        weights: list[Tensor] = [parameter.data for parameter in parameters]
        pairs = zip(step, ahead, strict=True)
        torch._foreach_add_(weights, [as_kernel(matrix, like) for matrix, like in pairs])

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum"]
        return buffer


def matrix_shape(weight: Tensor) -> tuple[int, int]:
    """`(out, in, k, k)` → `(out, in·k·k)`."""
    return weight.shape[0], weight[0].numel()


def as_matrix(kernel: Tensor) -> Tensor:
    """A kernel as `(out, in·k·k)`, its columns in the order in which they lie in memory.

    The order of columns does not matter to Muon, and reading them in any other would be a copy.
    """
    rows = kernel.permute(0, 2, 3, 1) if _is_channels_last(kernel) else kernel
    return rows.reshape(matrix_shape(kernel))


def as_kernel(matrix: Tensor, like: Tensor) -> Tensor:
    """What `as_matrix` made of a kernel, in the shape and memory layout of that kernel."""
    if not _is_channels_last(like):
        return matrix.view(like.shape)
    out, channels, height, width = like.shape
    return matrix.view(out, height, width, channels).permute(0, 3, 1, 2)


def _is_channels_last(kernel: Tensor) -> bool:
    return kernel.ndim == 4 and kernel.is_contiguous(memory_format=torch.channels_last)


def hidden_matrices(backbone: nn.Module) -> list[str]:
    """Names of the parameters between hidden features, in order.

    A backbone lists patterns of the others in `io_layers`. Depthwise kernels mix no channels and
    are never among them.
    """
    patterns: Sequence[str] = getattr(backbone, "io_layers", ("head*", "tail*"))
    return [
        name
        for name, weight in backbone.named_parameters()
        if weight.ndim >= 2
        and not (weight.ndim > 2 and weight.shape[1] == 1)
        and not any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


class Optimisers:
    """All optimisers of one network, stepped as one at a common factor of their rates."""

    def __init__(self, parts: Sequence[tuple[Optimizer, float]]) -> None:
        self.parts = tuple(part for part, _ in parts)
        self.rates = tuple(rate for _, rate in parts)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Everything that they change."""
        return [p for part in self.parts for group in part.param_groups for p in group["params"]]

    @property
    def clipped(self) -> list[nn.Parameter]:
        """Those whose gradient's size matters; Muon's steps do not depend on it."""
        others = [part for part in self.parts if not isinstance(part, Muon)]
        return [p for part in others for group in part.param_groups for p in group["params"]]

    @property
    def rate(self) -> float:
        """The last one's current rate: that of `schedule.theta_rate` or `phi_rate`."""
        return float(self.parts[-1].param_groups[0]["lr"])

    def set_rates(self, factor: float) -> None:
        """Scale all rates; those that lie on the device are changed in place."""
        for part, rate in zip(self.parts, self.rates, strict=True):
            for group in part.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate * factor)
                else:
                    group["lr"] = rate * factor

    def step(self) -> None:
        """One step of each."""
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def state_of(self, parameter: nn.Parameter) -> Mapping[str, Tensor]:
        """The moments of one parameter; empty before its first step."""
        found: Mapping[str, Tensor] = self.owner(parameter).state.get(parameter, {})
        return found

    def owner(self, parameter: nn.Parameter) -> Optimizer:
        """The one that changes this parameter."""
        for part in self.parts:
            if any(parameter is p for group in part.param_groups for p in group["params"]):
                return part
        raise KeyError("no optimiser of this network has that parameter.")


def theta_optimisers(
    backbone: nn.Module, config: OptimizerConfig, rate: float, on_device: bool
) -> Optimisers:
    """What trains the backbone.

    on_device: rates as device numbers, for a step that is replayed as a CUDA graph.
    """
    if config.kind == "adam":
        return Optimisers([(adam(list(backbone.parameters()), rate, on_device), rate)])
    names = set(hidden_matrices(backbone))
    hidden = [p for name, p in backbone.named_parameters() if name in names]
    others = [p for name, p in backbone.named_parameters() if name not in names]
    if not hidden:
        raise ConfigError(
            f"optimizer.kind 'muon' finds no hidden matrices in {type(backbone).__name__}; "
            "use optimizer.kind = 'adam'."
        )
    muon = Muon(hidden, _rate(config.muon_rate, hidden, on_device), config.momentum)
    rest = AdamW(others, betas=(0.9, 0.99), weight_decay=0.0, **_how(others, rate, on_device))
    return Optimisers([(muon, config.muon_rate), (rest, rate)])


def adam(parameters: list[nn.Parameter], rate: float, on_device: bool) -> Adam:
    """Adam as the paper uses it."""
    return Adam(parameters, **_how(parameters, rate, on_device))


def _how(parameters: list[nn.Parameter], rate: float, on_device: bool) -> dict[str, Any]:
    fused = parameters[0].is_cuda
    lr = _rate(rate, parameters, on_device)
    return {"lr": lr, "fused": fused, "capturable": on_device}


def _rate(rate: float, parameters: list[nn.Parameter], on_device: bool) -> float | Tensor:
    return torch.tensor(rate, device=parameters[0].device) if on_device else rate
