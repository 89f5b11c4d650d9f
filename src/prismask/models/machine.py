"""The machine: which device to compute on, and what computed a result (versions, commit,
device)."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

from prismask import __version__
from prismask.errors import DeviceError


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """ "auto" takes CUDA, then Apple's MPS, then the CPU; a device that is named must be there."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"{name!r} is no device; use auto, cpu, cuda, cuda:1 or mps.") from error
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise DeviceError(
                f"device {name!r} is wanted, but this machine has {count} CUDA devices. "
                'Use "auto" or "cpu".'
            )
        return device if device.index is not None else torch.device("cuda", local_rank)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("device 'mps' is wanted, but this machine has none; use 'auto'.")
    if device.type not in ("cpu", "mps"):
        raise DeviceError(f"device {name!r} is not supported; use auto, cpu, cuda, cuda:1 or mps.")
    return device


def versions() -> dict[str, str]:
    """What computed it."""
    return {
        "prismask": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit this code was run from, with a + when files were changed; else "unknown"."""
    here = Path(__file__).resolve().parent
    try:
        head = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head.stdout.strip() or "unknown"


def device_name(device: torch.device) -> str:
    """What people call the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or device.type
