"""Several processes as one: `torchrun … -m prismask.training CONFIG.toml`.

Every process draws the same batch and takes its part; gradients are averaged in one flat
all-reduce. There is no wrapper around the networks, so freezing one of the two changes nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from prismask.errors import ConfigError, WorkerLostError


@dataclass(frozen=True)
class World:
    """This process among its peers."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """The one that writes files and reports."""
        return self.rank == 0

    def part(self, batch: int) -> slice:
        """This process's rows of a batch."""
        if batch % self.size:
            raise ConfigError(
                f"schedule.batch {batch} cannot be shared by {self.size} processes: "
                f"use a multiple of {self.size}."
            )
        share = batch // self.size
        return slice(self.rank * share, (self.rank + 1) * share)


def join_world(device: torch.device | None = None) -> World:
    """Join the processes torchrun started; alone when there are none."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    rank = int(os.environ["RANK"])
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if not dist.is_initialized():
        # Its functions keep the group that exists when it is first imported, torch's optimisers
        # import it sooner or later, and threads of a group that is kept outlive `leave_world`.
        import torch.distributed.nn.functional  # noqa: F401

        backend = "nccl" if device is not None and device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=10))
    return World(rank, size, local)


def leave_world() -> None:
    """Leave the process group, if any, and end its threads.

    One that still runs when the interpreter ends and lets go of a tensor aborts the process.
    """
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def average_gradients(parameters: Iterable[nn.Parameter], world: World) -> None:
    """Replace each gradient by its mean over all processes."""
    if world.size == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= world.size
    start = 0
    for gradient in gradients:
        end = start + gradient.numel()
        gradient.copy_(flat[start:end].view_as(gradient))
        start = end


def agree(value: float, world: World, device: torch.device) -> float:
    """The first process's value, on all of them."""
    return _shared(value, False, world, device)


def give_up(world: World, device: torch.device) -> None:
    """In the first process: let those that wait in `agree` know that no value will come."""
    _shared(math.nan, True, world, device)


def _shared(value: float, failed: bool, world: World, device: torch.device) -> float:
    if world.size == 1:
        return value
    shared = torch.tensor([value, failed], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    value, failed = float(shared[0]), bool(shared[1])
    if failed and not world.is_first:
        raise WorkerLostError("the first process of this run has failed; its message says why.")
    return value


def mean_over_world(value: Tensor, world: World) -> Tensor:
    """The mean of a scalar over all processes."""
    if world.size > 1:
        dist.all_reduce(value)
        value = value / world.size
    return value


def under_torchrun() -> bool:
    """Whether this process has peers."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first_process() -> bool:
    """Whether this is the process that writes files and reports, before and after a run too."""
    return not under_torchrun() or int(os.environ.get("RANK", "0")) == 0
