"""Record a network's GPU kernels once a shape, then replay them.

A small snapshot keeps a GPU busy for less time than Python needs to start its kernels. A CUDA
graph starts them all at once. The first call of a shape runs as usual (most shapes come once),
the second records, later ones replay. Elsewhere than on CUDA nothing is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

log = logging.getLogger(__name__)

MOST_SHAPES = 4
"""Recordings kept at once; each holds the memory of one pass."""
Refused = Callable[[str], None]
"""Takes the reason why something could not be recorded."""
LARGEST = 2**27
"""Input elements above which kernels last longer than their starts, so nothing is gained."""


@dataclass(frozen=True)
class Recording:
    """A graph with the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor

    def __call__(self, *given: Tensor) -> Tensor:
        """Replay on new values."""
        for place, values in zip(self.inputs, given, strict=True):
            place.copy_(values)
        self.graph.replay()
        # The next replay writes to the same memory.
        return self.output.clone()


class Replayed:
    """A function of CUDA tensors → tensor, recorded for the shapes that come again."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._recordings: dict[Hashable, Recording | None] = {}
        self.refusals: list[str] = []
        """Why something could not be recorded; it runs as it is then."""

    def __call__(self, function: Callable[..., Tensor], what: Hashable, *given: Tensor) -> Tensor:
        """`function(*given)`; `what` names everything else that the result depends on."""
        if not all(t.is_cuda for t in given) or sum(t.numel() for t in given) > LARGEST:
            return function(*given)
        key = (what, tuple((t.shape, t.dtype, t.stride(), t.device) for t in given))
        if key not in self._recordings:
            self._counts[key] = self._counts.get(key, 0) + 1
            if self._counts[key] < 2 or len(self._recordings) >= MOST_SHAPES:
                return function(*given)
            self._recordings[key] = _record(function, given, self.refusals.append)
        recording = self._recordings[key]
        return function(*given) if recording is None else recording(*given)


def _record(
    function: Callable[..., Tensor], given: tuple[Tensor, ...], refused: Refused
) -> Recording | None:
    """One recording, or None where the function does something a graph cannot hold."""
    inputs = tuple(t.clone() for t in given)
    outputs: list[Tensor] = []
    graph = capture(lambda: outputs.append(function(*inputs)), refused=refused)
    return None if graph is None else Recording(graph, inputs, outputs[0])


def _warn(reason: str) -> None:
    log.warning("this cannot be recorded as a CUDA graph and runs slower: %s", reason)


def capture(
    run: Callable[[], None], stream: torch.cuda.Stream | None = None, refused: Refused = _warn
) -> torch.cuda.CUDAGraph | None:
    """What `run` starts, recorded but not done; None where a graph cannot hold it.

    stream: the one it was warmed up on, whose libraries' workspaces the recording then uses.
    refused: is told why, where it cannot.
    """
    current = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads of a server go on meanwhile; only this one is bound by the recording.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            run()
    except RuntimeError as reason:
        torch.cuda.set_stream(current)
        torch.cuda.synchronize()
        refused(str(reason))
        return None
    return graph
