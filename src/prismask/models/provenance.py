"""What computed a result: versions, commit and device, for every record that is left behind."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

from prismask import __version__


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
