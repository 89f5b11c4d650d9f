"""Which device to compute on, chosen by itself or insisted on."""

from __future__ import annotations

import torch

from prismask.errors import DeviceError


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """ "auto" takes CUDA, then Apple's MPS, then the CPU; a device asked for must be there."""
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
                f"device {name!r} was asked for, but this machine has {count} CUDA devices. "
                'Use "auto" or "cpu".'
            )
        return device if device.index is not None else torch.device("cuda", local_rank)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("device 'mps' was asked for, but this machine has none; use 'auto'.")
    if device.type not in ("cpu", "mps"):
        raise DeviceError(f"device {name!r} is not supported; use auto, cpu, cuda, cuda:1 or mps.")
    return device
